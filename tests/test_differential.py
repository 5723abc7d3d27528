"""Generated files of labels: every road of crowdwise against a second reader, in `differential`, that shares no code with it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import differential
from differential.cases import generate
from differential.compare import REFUSED, SAME, judge

FAST, STEP, SLOW = 300, 50, 3000
ROADS = 3  # of each case: reading it, and two others by turns
MOST_REFUSED = 0.06  # share of roads that may refuse what the reference reads: errors must not become the way out


def tried(first: int, cases: int) -> Counter[str]:
    """Outcomes of some cases; one with a fault ends the test, and says how to look at it."""
    outcomes: Counter[str] = Counter()
    for number in range(first, first + cases):
        case = generate(number)
        verdicts = judge(case, ROADS)
        outcomes.update(each.outcome for each in verdicts.roads)
        for each in verdicts.faults:
            pytest.fail(
                f"case {number} ({verdicts.case.kind}, {verdicts.case.form}; {verdicts.case.options}), {each.road}: "
                f"{each.outcome}: {each.why or verdicts.refusal}\n"
                f"PYTHONPATH=src:tests python -m differential --show {number}"
            )
    return outcomes


@pytest.mark.parametrize("first", range(0, FAST, STEP))
def test_every_road_reads_what_the_reference_reads(first: int) -> None:
    tried(first, STEP)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FAST, FAST + SLOW, 300))
def test_every_road_reads_what_the_reference_reads_in_many_more_files(first: int) -> None:
    outcomes = tried(first, 300)
    assert outcomes[REFUSED] <= MOST_REFUSED * outcomes.total()
    assert outcomes[SAME] > 0.6 * outcomes.total()


def test_the_same_number_is_the_same_case() -> None:
    for number in range(20):
        one, other = generate(number), generate(number)
        assert one.files == other.files
        assert one.options == other.options


def test_the_reference_uses_nothing_of_crowdwise() -> None:
    folder = Path(differential.__path__[0])
    for name in ("values", "opening", "rules", "tools", "reference"):
        assert not re.search(r"^\s*(from|import) crowdwise", (folder / f"{name}.py").read_text(), re.MULTILINE)
