"""Whether a judge of pairs prefers the one it is shown first."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from scipy import stats

from crowdwise.constraints import OpenProbability, checked
from crowdwise.data import frames
from crowdwise.data.shares import wilson
from crowdwise.errors import DataError, suggest

COLUMNS = ("item", "judge", "first", "second", "winner")
TIE = "tie"
Inconsistent = Literal["half", "tie", "drop"]


@dataclass(frozen=True, eq=False)
class Order:
    """Result of `order`."""

    table: pa.Table
    """A row per judge: judge, n_pairs (judged in both orders), consistency, low, high, n_inconsistent (without ties),
    first_share (of these, the share that chose the first place both times), first_low, first_high, p_value (of no
    preference for a place), tie_rate, n_single (judged in one order only)."""
    verdicts: pa.Table
    """A row per verdict: item, judge, first, second, winner."""

    @checked
    def to_table(self, inconsistent: Inconsistent = "half") -> pa.Table:
        """Verdicts to aggregate: instance, annotator, label (the winner, or tie) and weight.

        The two orders of a pair weigh a half each. Where they differ, "half" keeps both, "tie" makes a tie of them, and
        "drop" leaves them out.
        """
        rows = []
        for (item, judge, pair), said in _pairs(self.verdicts.to_pylist()).items():
            instance = f"{item}: {pair[0]} vs {pair[1]}"
            places = [places for places in said.values() if places]
            if len({winner for winners in places for winner in winners}) > 1 and inconsistent != "half":
                rows += [(instance, judge, TIE, 1.0)] if inconsistent == "tie" else []
                continue
            for winners in places:
                rows += [(instance, judge, winner, 1 / len(places) / len(winners)) for winner in winners]
        names = ("instance", "annotator", "label", "weight")
        return pa.table({name: [row[k] for row in rows] for k, name in enumerate(names)})


@checked
def order(table: Any, *, level: OpenProbability = 0.95) -> Order:
    """Position bias of judges who saw pairs in both orders.

    ``table`` has the columns item, judge, first, second and winner: the name of the winner, "first", "second" or "tie".

    >>> verdicts = {"item": [1, 1, 2, 2], "judge": ["j"] * 4, "first": ["a", "b", "a", "b"], "second": ["b", "a", "b", "a"],
    ...             "winner": ["first", "first", "a", "a"]}
    >>> row = order(verdicts).table.to_pylist()[0]
    >>> row["n_pairs"], row["consistency"], row["n_inconsistent"], row["first_share"]
    (2, 0.5, 1, 1.0)
    """
    names = frames.frame_columns(table)
    for name in COLUMNS:
        if name not in names:
            raise DataError(f"the table has no column {name!r}{suggest(name, map(str, names))}")
    columns = [column.data.to_pylist() for column in frames.take_columns(table, COLUMNS)]
    rows = [_verdict(k, dict(zip(COLUMNS, row, strict=True))) for k, row in enumerate(zip(*columns, strict=True))]
    if not rows:
        raise DataError("the table has no verdicts")
    tallies: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        tallies[row["judge"]].update(["verdicts", *(["ties"] if row["winner"] == TIE else [])])
    for (_, judge, pair), said in _pairs(rows).items():
        tallies[judge].update(_counted(pair, said))
    found = pa.Table.from_pylist([{"judge": judge} | _summed(tally, level) for judge, tally in tallies.items()])
    return Order(found, pa.Table.from_pylist(rows))


def _counted(pair: tuple[Any, Any], said: dict[int, list[Any]]) -> list[str]:
    """What a pair counts as, by its winners when its first name, and when its second name, was shown first."""
    if not (said[0] and said[1]):
        return ["single"]
    one, other = said[0][-1], said[1][-1]
    if one == other:
        return ["pairs", "same"]
    if TIE in (one, other):
        return ["pairs"]
    return ["pairs", "first" if one == pair[0] else "second"]  # shown first (or second), and chosen, both times


def _summed(tally: Counter[str], level: float) -> dict[str, Any]:
    """The columns of `Order.table`."""
    pairs, first, decisive = tally["pairs"], tally["first"], tally["first"] + tally["second"]
    low, high = wilson(tally["same"], pairs, level)
    first_low, first_high = wilson(first, decisive, level)
    return {
        "n_pairs": pairs,
        "consistency": tally["same"] / pairs if pairs else None,
        "low": float(low),
        "high": float(high),
        "n_inconsistent": decisive,
        "first_share": first / decisive if decisive else None,
        "first_low": float(first_low),
        "first_high": float(first_high),
        "p_value": float(stats.binomtest(first, decisive).pvalue) if decisive else None,
        "tie_rate": tally["ties"] / tally["verdicts"],
        "n_single": tally["single"],
    }


def _verdict(row: int, given: dict[str, Any]) -> dict[str, Any]:
    """A row with the winner by name."""
    first, second, winner = str(given["first"]), str(given["second"]), str(given["winner"])
    if first == second:
        raise DataError(f"row {row}: {first!r} is compared with itself")
    named = {first: first, second: second, "first": first, "second": second, TIE: TIE}
    if winner not in named:
        raise DataError(
            f"row {row}: the winner {winner!r} is neither {first!r}, {second!r}, 'first', 'second' nor 'tie'"
        )
    return {"item": given["item"], "judge": given["judge"], "first": first, "second": second, "winner": named[winner]}


def _pairs(rows: list[dict[str, Any]]) -> dict[Any, dict[int, list[Any]]]:
    """(item, judge, pair in order of name) -> winners where the first of the pair was shown first (0), and last (1)."""
    found: dict[Any, dict[int, list[Any]]] = {}
    for row in rows:
        pair = tuple(sorted((row["first"], row["second"])))
        said = found.setdefault((row["item"], row["judge"], pair), {0: [], 1: []})
        said[int(row["first"] != pair[0])].append(row["winner"])
    return found
