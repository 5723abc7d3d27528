"""`crowdwise review` without a page: exports and errors. The page is tried in tests/reviewing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdwise.cli import app
from crowdwise.readers import read
from crowdwise.reviewing.session import Session
from review_crowds import write_crowd


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_crowd(tmp_path / "animals.csv")


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["review", *map(str, arguments)])
    return result.exit_code, result.output + (result.stderr or "")


def test_what_a_review_has_found_is_written_without_a_page(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "animals.review"
    folder.mkdir()
    with Session(read(file), folder, ("maria",)) as session:
        session.answer("maria", "label", 3, 1)
    code, said = run(file, "--export", tmp_path / "all.csv", "--labels", tmp_path / "labels.csv")
    assert (code, "annotations, 1 item reviewed" in said) == (0, True)
    assert len(read(tmp_path / "all.csv").annotations) == 241
    assert "item 3,dog,1,maria," in (tmp_path / "labels.csv").read_text().replace('"', "")
    code, said = run(file, "--export", tmp_path / "back.json")
    assert code == 0
    assert len(read(tmp_path / "back.json").annotations) == 241


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trust", "blindly"], "unknown --trust 'blindly'"),
        (["--method", "dawid"], "unknown method 'dawid'"),
        (["--as", "person 1"], "choose another name with --as NAME"),
        (["--export", "animals.csv"], "would overwrite what is read"),
        (["--export", "out.xml"], "out.xml"),
        (["--port", "70000"], "--port"),
    ],
)
def test_errors_name_the_option(
    file: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    code, said = run(file.name, *arguments)
    assert code in (1, 2)
    assert message in " ".join(said.split())
    assert "Traceback" not in said
