"""Run tests with the oldest versions that pyproject.toml allows, in .venv-oldest: ``python .ci/oldest.py [PYTEST ARGUMENTS]``.

uv resolves (``pip install uv``). torch is taken without CUDA: where the oldest one cannot be had like that, the pinned one is
taken in its place, and the output says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-oldest"
CUDA = re.compile(r"(nvidia|cuda|triton|torch$)")
FAST = ["-m", "not slow and not gpu", "-n", "2", "--dist", "loadscope"]
FAST += ["--ignore", "tests/cli/test_golden.py"]  # help and usage are recorded as the pinned typer lays them out


def bounds(lines: list[str]) -> dict[str, str]:
    """Lower bounds by name.

    >>> bounds(["numpy>=1.26", "ray[train]>=2.43", "pandas-stubs"])
    {'numpy': '1.26', 'ray': '2.43'}
    """
    found = (re.match(r"([\w.-]+)(?:\[.*?\])?>=([\w.]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def wanted(resolved: str) -> list[str]:
    """The lines of a resolution that are installed as they are: all but torch and what only CUDA needs.

    >>> wanted("# by uv\\nnumpy==1.26.0\\nnvidia-nccl-cu12==2.21.5\\ntorch==2.6.0\\ntriton==3.1.0\\n")
    ['numpy==1.26.0']
    """
    names = (line.strip() for line in resolved.splitlines())
    return [line for line in names if "==" in line and not CUDA.match(line.partition("==")[0])]


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=ROOT, text=True, **options)  # type: ignore[call-overload, no-any-return]


def install(uv: str, python: Path) -> str:
    """Set the environment up; the version of torch that it has."""
    run(uv, "venv", "--quiet", "--clear", "--seed", "--python", "3.11", HOME, check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lowest = bounds(project["dependencies"])["torch"]
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)[1]  # type: ignore[index]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    cpu = ["--index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0", "--timeout", "15"]
    torch = lowest
    if run(*pip, *cpu, f"torch=={lowest}.*", capture_output=True).returncode:
        torch = pinned
        print(f"oldest: torch {lowest} without CUDA cannot be had here: {pinned} is taken, {lowest} is NOT tested")
        run(*pip, f"torch=={pinned}", check=True)
    override, resolved = HOME / "override.txt", HOME / "resolved.txt"
    override.write_text(f"torch=={torch}\n", "utf-8")
    given = ["--extra", "dev", "--override", override, "pyproject.toml"]
    run(
        uv,
        "pip",
        "compile",
        "--quiet",
        "--python",
        python,
        "--resolution",
        "lowest-direct",
        *given,
        "-o",
        resolved,
        check=True,
    )
    resolved.write_text("\n".join(wanted(resolved.read_text("utf-8"))) + "\n", "utf-8")
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "-r", resolved, "-e", ".", check=True)
    return torch


def main(arguments: list[str]) -> int:
    uv = shutil.which("uv")
    if uv is None:
        print("oldest: uv is missing (pip install uv): the oldest versions were NOT tested")
        return 1
    python = HOME / "bin" / "python"
    torch = install(uv, python)
    names = sorted(bounds(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]))
    show = (
        f"from importlib.metadata import version; print('oldest:', ', '.join(f'{{n}} {{version(n)}}' for n in {names}))"
    )
    run(python, "-c", show, check=True)
    done = run(python, "-m", "pytest", *(arguments or FAST), env=os.environ | {"OMP_NUM_THREADS": "1"})
    print(f"oldest: torch was {torch}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
