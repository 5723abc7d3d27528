"""Runs on one GPU are counted, whichever commands started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crowdwise.bench.measure import commit
from crowdwise.bench.sharing import counted

OTHER = """
import sys
from pathlib import Path
from crowdwise.bench.sharing import counted
with counted("gpu", root=Path(sys.argv[1])):
    print("there", flush=True)
    sys.stdin.read()
"""


def another(root: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", OTHER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    return process


def test_runs_of_other_commands_are_counted_until_they_end_or_are_killed(tmp_path: Path) -> None:
    first, second = another(tmp_path), another(tmp_path)
    with counted("gpu", root=tmp_path) as company:
        assert company.most == 3
    first.kill()
    first.communicate()
    with counted("gpu", root=tmp_path) as company:
        assert company.most == 2
    second.communicate()
    with counted("gpu", root=tmp_path) as company:
        assert company.most == 1


def test_a_run_that_begins_later_is_noticed_when_they_are_counted_again(tmp_path: Path) -> None:
    with counted("gpu", root=tmp_path) as company:
        with counted("gpu", root=tmp_path):
            company.count()
        assert company.most == 2
    assert company.most == 2


def test_other_devices_do_not_count_and_the_command_may_know_more(tmp_path: Path) -> None:
    with counted("gpu", root=tmp_path), counted("other", 4, tmp_path) as company:
        assert company.most == 4
    with counted(None, 2, tmp_path) as company:
        assert company.most == 2


def test_an_error_of_the_run_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), counted("gpu", root=tmp_path):
        raise FileNotFoundError("of the run")
    assert not list(tmp_path.rglob("*.run"))


def test_a_record_names_the_commit_of_the_source_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDWISE_COMMIT", raising=False)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.py").write_text("")
    (tmp_path / "installed").mkdir()
    for command in (["init", "-q"], ["add", "source"], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert commit(tmp_path / "source") == {"commit": head[:12]}
    assert commit(tmp_path / "installed") == {}
    monkeypatch.setenv("CROWDWISE_COMMIT", "abc")
    assert commit(tmp_path / "installed") == {"commit": "abc"}
