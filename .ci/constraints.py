"""Write constraints.txt: the versions that all extras resolve to in this environment, with torch as it is pinned.

    python .ci/constraints.py             # keep what is pinned, add what is missing
    python .ci/constraints.py --upgrade   # the newest of everything but torch

pip resolves and downloads nothing but metadata. Packages of CUDA are left out: which are needed depends on the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATH = ROOT / "constraints.txt"
HEAD = "# Versions that the tests were run with. torch is pinned because an open range pulls gigabytes of CUDA packages on Linux."
CUDA = re.compile(r"nvidia|cuda|triton")
OWN = {"crowdwise", "pip"}
BUILD = ("hatchling", "build", "pip-audit")  # needed by `make dist` and `make audit`, beside the extras


def pinned(text: str) -> dict[str, str]:
    """Versions by normalised name."""
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def extras() -> list[str]:
    return sorted(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def resolved(constraints: str) -> dict[str, str]:
    """What pip would install, for the project with all extras."""
    with tempfile.TemporaryDirectory() as folder:
        given, report = Path(folder, "given.txt"), Path(folder, "report.json")
        given.write_text(constraints, "utf-8")
        options = ["--quiet", "--dry-run", "--ignore-installed", "--report", str(report), "--constraint", str(given)]
        what = [f"{ROOT}[{','.join(extras())}]", *BUILD]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *what], check=True)
        found = json.loads(report.read_text("utf-8"))["install"]
    about = [item["metadata"] for item in found]
    return {
        normal(item["name"]): item["version"].partition("+")[0] for item in about
    }  # without a local version, such as +cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="the newest versions of everything but torch")
    upgrade = parser.parse_args().upgrade
    old = pinned(PATH.read_text("utf-8"))
    kept = {"torch": old["torch"]} if upgrade else old
    found = resolved("".join(f"{name}=={version}\n" for name, version in kept.items()))
    torch = found.pop("torch")
    lines = [
        f"{name}=={version}" for name, version in sorted(found.items()) if name not in OWN and not CUDA.match(name)
    ]
    PATH.write_text("\n".join([HEAD, f"torch=={torch}", *lines, ""]), "utf-8")
    print(f"{PATH.name}: {len(lines) + 1} versions, for the extras {', '.join(extras())}")


if __name__ == "__main__":
    main()
