"""Look up the pinned versions in the database of known vulnerabilities, and say what could and could not be reached.

The exit status is 0 only if every version was looked up and none has a known vulnerability; 1 if one has; 2 if some were not
looked up.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
SERVICES = {"pypi": "pypi.org", "osv": "osv.dev"}  # the second one is asked where the first one does not answer


def install() -> str | None:
    """Install pip-audit if need be; the reason where that fails."""
    if importlib.util.find_spec("pip_audit"):
        return None
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--constraint",
        str(CONSTRAINTS),
    ]
    done = subprocess.run([*command, "pip-audit"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"pip-audit cannot be installed: {last(done.stderr)}"


def last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def summary(pinned: set[str], report: dict[str, list[dict[str, Any]]]) -> tuple[int, list[str]]:
    """Exit status, and what to print about pip-audit's report.

    >>> summary({"a", "b"}, {"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}]})
    (2, ['looked up: 1 of 2 pinned versions', 'NOT looked up: b (?)'])
    """
    looked = {item["name"].lower(): item for item in report["dependencies"] if "skip_reason" not in item}
    weak = [(item, weakness) for item in looked.values() for weakness in item["vulns"]]
    lines = [f"looked up: {len(looked)} of {len(pinned)} pinned versions"]
    for item, weakness in weak:
        fixed = ", ".join(weakness["fix_versions"]) or "-"
        lines.append(f"{item['name']} {item['version']}: {weakness['id']}, fixed in: {fixed}")
    missing = sorted(pinned - set(looked))
    reasons = {item["name"].lower(): item.get("skip_reason") for item in report["dependencies"]}
    told = {name: reasons.get(name) or "no answer" for name in missing}
    if missing and not looked:
        lines.append(f"NOTHING was audited; of {missing[0]}, say: {told[missing[0]]}")
    elif missing:
        lines.append("NOT looked up: " + "; ".join(f"{name} ({why})" for name, why in told.items()))
    return (1 if weak else 2 if missing else 0), lines


def main() -> int:
    pinned = {name.lower() for name in re.findall(r"^([\w.-]+)==", CONSTRAINTS.read_text("utf-8"), re.MULTILINE)}
    trouble = install()
    for service, address in SERVICES.items() if trouble is None else ():
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json"]
        options = ["--progress-spinner", "off", "--vulnerability-service", service, "--requirement", str(CONSTRAINTS)]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if done.stdout.strip().startswith("{"):
            status, lines = summary(pinned, json.loads(done.stdout))
        else:
            status, lines = 2, [f"NOTHING was audited: {last(done.stderr)[:200]}"]
        print("\n".join(f"audit: {address}: {line}" for line in lines))
        if status != 2 or "NOTHING" not in lines[-1]:
            return status
    if trouble is None:
        print(
            f"audit: neither {' nor '.join(SERVICES.values())} answered: 0 of {len(pinned)} pinned versions were looked up"
        )
        return 2
    print(f"audit: {trouble}\naudit: looked up: 0 of {len(pinned)} pinned versions; NOTHING was audited")
    return 2


if __name__ == "__main__":
    sys.exit(main())
