"""What a command imports: little for help, and no more than it needs for tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from crowdwise.cli import VERBS, app
from crowdwise.cli.overview import overview

HEAVY = ("torch", "sklearn", "matplotlib", "pandas", "numba", "scipy.stats", "scipy.optimize", "ray", "jinja2")
SCRIPT = """
import sys
sys.argv = ["crowdwise", *sys.argv[1:]]
from crowdwise.cli import main
try:
    main()
finally:
    print("imported:", *sys.modules)
"""


def imported(*words: str, folder: Path) -> set[str]:
    """Modules that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(done.stdout.partition("imported: ")[2].split())


def test_help_imports_no_verb_and_nothing_heavy(tmp_path: Path) -> None:
    found = imported("--help", folder=tmp_path)
    assert not found.intersection((*HEAVY, "numpy", "pyarrow", "scipy", "typer", "rich", "crowdwise.tasks"))
    assert not {f"crowdwise.cli.{verb}" for verb in VERBS} & found


def test_help_without_and_with_the_parser_of_options_is_the_same() -> None:
    assert CliRunner().invoke(app, ["--help"]).stdout == overview()
    assert max(len(line) for line in overview().splitlines()) <= 80
    assert all(f"  {name} " in overview() and summary in overview() for name, summary in VERBS.items())
    top: Any = get_command(app)
    given = {option for parameter in top.params for option in parameter.opts} - {"--help"}
    assert all(option in overview() for option in given)


@pytest.mark.parametrize("verb", ["aggregate", "agreement", "annotators", "convert"])
def test_verbs_for_tables_import_nothing_that_they_do_not_need(verb: str, tmp_path: Path) -> None:
    labels = [f"t{i},w{j},c{(i + (j == 2)) % 2}" for i in range(30) for j in range(3)]
    Path(tmp_path, "crowd.csv").write_text("\n".join(["task,worker,label", *labels]) + "\n")
    words = {"aggregate": ["crowd.csv", "-o", "labels.csv"], "convert": ["crowd.csv", "crowd.parquet"]}
    found = imported(verb, *words.get(verb, ["crowd.csv"]), folder=tmp_path)
    assert "crowdwise.annotations" in found
    assert not found.intersection(HEAVY)
    assert {f"crowdwise.cli.{name}" for name in VERBS} & found == {f"crowdwise.cli.{verb}"}


def test_summaries_are_those_of_the_verbs() -> None:
    top: Any = get_command(app)
    assert {name: command.help for name, command in top.commands.items()} == VERBS


def test_every_file_of_a_verb_is_listed() -> None:
    import crowdwise.cli

    files = {path.stem for path in Path(crowdwise.cli.__file__).parent.glob("*.py")}
    assert files - {"__init__", "commands", "console", "options", "overview", "process"} == set(VERBS)


def test_pandas_can_be_imported_by_a_process_that_left_it_out() -> None:
    code = (
        "from crowdwise import cli; cli._leave_pandas_out(); import pandas; print(pandas.DataFrame({'a': [1]}).shape)"
    )
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 1)"
