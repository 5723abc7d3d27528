"""The wheel works where nothing but its dependencies is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path, timeout: int = 900) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make dist` builds it: from the source distribution, so that this is complete, too."""
    pytest.importorskip("build", reason="the extra dev is not installed")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    assert len(list(folder.glob("crowdwise-*.tar.gz"))) == 1
    (found,) = folder.glob("crowdwise-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_what_it_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("crowdwise/", "crowdwise-")) for name in names)
    files = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "crowdwise").rglob("*") if path.is_file()
    }
    assert {name for name in files if "__pycache__" not in name} <= set(names)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_wheel_alone_runs_the_demo_and_the_snippets_of_the_readme(wheel: Path, tmp_path: Path) -> None:
    """An empty environment, without extras; skipped where no package index can be reached."""
    probe = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(tmp_path / "probe"),
        "narwhals",
    ]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached: the wheel was not installed")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
        cwd=tmp_path,
        timeout=900,
    )
    extras = "import importlib.util as u; print([n for n in ('altair', 'ray', 'starlette', 'transformers') if u.find_spec(n)])"
    assert run(python, "-c", extras, cwd=tmp_path).strip() == "[]"
    assert "crowdwise" in run(python, "-c", "import crowdwise; print(crowdwise.__file__)", cwd=tmp_path)
    run(home / "bin" / "crowdwise", "demo", "--quick", cwd=tmp_path)
    blocks = re.findall(r"^```python\n(>>> .*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "snippets.txt").write_text("\n".join(blocks), "utf-8")
    run(python, "-m", "doctest", "-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE", "snippets.txt", cwd=tmp_path)


def test_constraints_name_every_dependency_of_every_extra() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    pinned = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    names = {re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower() for line in wanted}  # type: ignore[index]
    assert names - normal == set(), "run: make constraints"


def test_the_audit_says_what_it_did_not_reach() -> None:
    audit = load_script("audit", ROOT / ".ci")
    good, weak = (
        {"name": "A", "version": "1", "vulns": []},
        {"name": "b", "version": "2", "vulns": [{"id": "V-1", "fix_versions": ["3"]}]},
    )
    skipped = {"name": "b", "skip_reason": "not found"}
    assert audit.summary({"a"}, {"dependencies": [good]}) == (0, ["looked up: 1 of 1 pinned versions"])
    assert audit.summary({"a", "b"}, {"dependencies": [good, weak]})[1][-1] == "b 2: V-1, fixed in: 3"
    assert audit.summary({"a", "b"}, {"dependencies": [good, skipped]}) == (
        2,
        ["looked up: 1 of 2 pinned versions", "NOT looked up: b (not found)"],
    )
    status, lines = audit.summary({"b"}, {"dependencies": [skipped]})
    assert status == 2
    assert lines[-1] == "NOTHING was audited; of b, say: not found"
