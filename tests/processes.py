"""One program, run by one process and by two under torchrun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parent

_BEGIN = f"""
import sys
sys.path[:0] = {[str(TESTS), str(TESTS.parent / "src")]!r}
import numpy as np
import torch.distributed as dist
out, folder, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
"""

_END = """
if not dist.is_initialized() or dist.get_rank() == 0:
    np.savez(out, **results)
if dist.is_initialized():
    assert dist.get_world_size() == workers
    dist.destroy_process_group()
else:
    assert workers == 1
"""


def by_one_and_by_two(folder: Path, program: str) -> list[dict[str, np.ndarray]]:
    """The arrays that a program leaves in ``results``; ``folder`` is one of its own, the same for all of its processes."""
    script = folder / "program.py"
    script.write_text(_BEGIN + program + _END)
    found = []
    for workers in (1, 2):
        out, own = folder / f"{workers}.npz", folder / f"of {workers}"
        launcher = [] if workers == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [sys.executable, *launcher, str(script), str(out), str(own), str(workers)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(out) as arrays:
            found.append(dict(arrays))
    return found
