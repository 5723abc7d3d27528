"""Parameters declare their bounds, and one function refuses what is out of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from crowdwise.constraints import (
    Interval,
    NonNegativeFloat,
    OpenProbability,
    PositiveInt,
    Probability,
    accepts,
    check_parameters,
    check_settings,
    checked,
    constraints_of,
    described,
)
from crowdwise.errors import ConfigError, suggest
from crowdwise.registry import AGGREGATORS, METHODS


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (PositiveInt, [1, np.int64(3)], [0, 1.0, True, "1", None, np.float64(2)]),
        (NonNegativeFloat, [0, 0.5, np.float32(2)], [-1e-9, float("nan"), float("inf"), True, "0"]),
        (Probability, [0, 1, 0.5], [-0.1, 1.1]),
        (OpenProbability, [0.5], [0, 1]),
        (Annotated[float, Interval(0, 1, open="high")], [0], [1]),
        (Annotated[float, Interval(0, 1, open="low")], [1], [0]),
        (PositiveInt | Literal["auto"] | None, [1, "auto", None], [0, "none"]),
        (Literal[1, 2], [1, 2], [3, True, "1"]),
        (tuple[float, float], [(1, 2), [1, 2], np.ones(2)], [(1,), (1, 2, 3), "ab", 1]),
        (list[str], [[], ["a"]], ["a", [1], None]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, {1: 1}, []]),
        (Any, [None, object()], []),
    ],
)
def test_values_of_a_kind_are_known(kind: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not accepts(kind, value)] == []
    assert [value for value in bad if accepts(kind, value)] == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (PositiveInt | None, "an integer of 1 or more or None"),
        (Probability, "a number from 0 to 1"),
        (OpenProbability, "a number above 0 and below 1"),
        (Annotated[float, Interval(0, 1, open="high")], "a number of 0 or more and below 1"),
        (Annotated[float, Interval(0, 1, open="low")], "a number above 0 and up to 1"),
        (tuple[float, float] | Literal["auto"], "(a number, a number) or 'auto'"),
        (list[str], "a list, each text"),
        (dict[str, Any], "a table"),
    ],
)
def test_bounds_are_said_in_words(kind: Any, words: str) -> None:
    assert described(kind) == words


@dataclass
class Base:
    size: PositiveInt = 1
    kind: Literal["a", "b"] = "a"
    anything: Any = None


@dataclass
class Larger(Base):
    size: int = 5


@dataclass
class Looser(Base):
    size: PositiveInt | None = None  # type: ignore[assignment]


def test_a_subclass_with_another_default_keeps_the_bounds_and_may_declare_its_own() -> None:
    check_parameters(Larger())
    with pytest.raises(ConfigError, match="size must be an integer of 1 or more, got 0"):
        check_parameters(Larger(size=0))
    with pytest.raises(ConfigError, match="unknown kind 'c'; known: 'a', 'b'"):
        check_parameters(Larger(kind="c"))  # type: ignore[arg-type]
    check_parameters(Looser())


def test_arguments_are_checked_where_they_are_given() -> None:
    @checked
    def draw(size: PositiveInt, share: Probability = 0.5) -> float:
        return size * share

    assert draw(2) == 1
    for call in (lambda: draw(0), lambda: draw(size=0)):
        with pytest.raises(ConfigError, match="size must be an integer of 1 or more, got 0"):
            call()
    with pytest.raises(ConfigError, match="share must be a number from 0 to 1, got 2"):
        draw(1, 2)


def test_settings_name_where_they_stand_and_what_may_have_been_meant() -> None:
    with pytest.raises(ConfigError, match="preset x: unknown key 'siz'; did you mean 'size'"):
        check_settings("preset x", {"siz": 1}, Base)
    with pytest.raises(ConfigError, match="preset x: size must be an integer of 1 or more, got 'many'"):
        check_settings("preset x", {"size": "many"}, Base)


@pytest.mark.parametrize("name", [*METHODS, *AGGREGATORS])
def test_the_defaults_of_everything_registered_are_within_their_bounds(name: str) -> None:
    member = METHODS[name] if name in METHODS else AGGREGATORS[name]
    check_parameters(member())
    known = constraints_of(member)
    assert {"epochs", "lr", "momentum"} <= set(known) if name in METHODS else "tie" in known


def test_a_wrong_number_is_answered_by_the_known_ones():
    assert suggest(7, (1, 2)) == "; known: 1, 2"
    assert suggest("cee", ("ce", 1)) == "; did you mean 'ce'?"
