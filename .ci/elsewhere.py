"""Run the tests of what is computed as on another processor: ``python .ci/elsewhere.py [PYTEST ARGUMENTS]``.

Sums of floating-point numbers depend on their order, and libraries choose the order by the processor. Here every library is
told that this one is old: vectors are short, and no product is fused with a sum. What then fails is true on this machine only.
Machine code of the kernels is kept by processor, so that none of this one is used.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPUTED = [
    *("aggregation", "agreement", "comparison", "encoders", "engine", "graph", "judges", "methods"),
    *("networks", "quality", "simulate", "test_annotations_weight.py", "test_earlier_versions.py"),
    *("test_matching.py", "test_scikit_learn.py"),
]
FAST = ["-m", "not slow and not gpu", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
ANY_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",  # torch
    "NUMBA_CPU_NAME": "generic",
}
X86 = {
    "MKL_CBWR": "COMPATIBLE",  # matrix products of torch
    "ONEDNN_MAX_CPU_ISA": "SSE41",  # its convolutions
    "OPENBLAS_CORETYPE": "Nehalem",  # matrix products of numpy and scipy
}
SHOWN = """
import numpy, threadpoolctl, torch
import scipy.linalg
numpy_has = numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
blas = {each["architecture"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}
print("elsewhere: torch computes with", torch.backends.cpu.get_cpu_capability(), end="; ")
print("BLAS is for", ", ".join(sorted(blas)), end="; ")
print("numpy has", ", ".join(numpy_has) or "nothing beyond its baseline")
"""


def vectors_of_numpy() -> str:
    """What numpy found beyond its baseline on this processor."""
    code = "import numpy; print(*numpy.show_config(mode='dicts')['SIMD Extensions'].get('found', []))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def as_elsewhere() -> dict[str, str]:
    """The variables that make every library compute as on another processor."""
    variables = dict(ANY_PROCESSOR)
    if platform.machine().lower() in {"x86_64", "amd64"}:
        variables |= X86
    if features := vectors_of_numpy():
        variables["NPY_DISABLE_CPU_FEATURES"] = features
    return variables


def main(arguments: list[str]) -> int:
    variables = as_elsewhere()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""} | variables
    print("elsewhere: what is computed, tested once more as on another processor")
    print("elsewhere:", " ".join(f"{name}={value!r}" for name, value in variables.items()))
    subprocess.run([sys.executable, "-c", SHOWN], env=environment, check=True)
    tests = arguments or [*FAST, *(str(ROOT / "tests" / name) for name in COMPUTED)]
    command = [sys.executable, "-m", "pytest", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
