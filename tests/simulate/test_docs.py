from __future__ import annotations

import doctest
from pathlib import Path


def test_the_examples_of_the_guide_run():
    guide = Path(__file__).parents[2] / "docs" / "simulate.md"
    result = doctest.testfile(str(guide), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10
    assert result.failed == 0
