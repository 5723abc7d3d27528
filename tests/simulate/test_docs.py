from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path


def test_the_examples_of_the_guide_run():
    guide = Path(__file__).parents[2] / "docs" / "simulate.md"
    result = doctest.testfile(str(guide), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0


def test_importing_simulate_does_not_import_torch_or_frames():
    code = "import sys, crowdwise.simulate; print(sorted({'torch', 'sklearn', 'pandas', 'polars'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
