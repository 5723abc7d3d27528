"""What a comparison found: a ranking, a recommendation with its reason, what to expect, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from crowdwise.comparison.judge import Expectation
from crowdwise.data import notebook
from crowdwise.errors import ModelFileError
from crowdwise.storage.documents import read_json, write_json

RESULT = "result.json"


@dataclass(frozen=True)
class Entry:
    """A candidate that was judged. Shares are from 0 to 1; errors are standard errors."""

    method: str
    title: str
    score: float
    error: float
    behind: float
    """How far its score is behind the best one, on the instances that both predicted."""
    behind_error: float
    at_chance: bool
    """Whether its predictions are no better than chance."""
    folds: int
    seconds: float
    """Mean of its fits."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The ranking, best first, and what follows from it; ``print`` it to read it."""

    entries: tuple[Entry, ...]
    failed: Mapping[str, str]
    """Candidates that could not be fitted, and why."""
    recommended: str
    """The name of the method to use."""
    reason: str
    expected: Expectation
    next_step: str
    """The next line of Python."""
    gold: bool
    """Whether gold labels were the judge, not held-out annotations."""
    n_judged: int
    """Instances that methods were judged by."""
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Entry:
        """The candidate with the highest score."""
        return self.entries[0]

    @property
    def at_chance(self) -> bool:
        """Whether nothing was learnt by any candidate."""
        return all(entry.at_chance for entry in self.entries)

    def __getitem__(self, method: str) -> Entry:
        """The entry of a method."""
        return next(entry for entry in self.entries if entry.method == method)

    @property
    def expectation(self) -> str:
        """What classifier and labels to expect, in words."""
        if self.at_chance:
            return "Do not expect a useful classifier."
        classifier, labels, by_vote = self.expected
        if math.isnan(classifier):
            return "How often classifier and labels are right cannot be told: no instance has two labels, and there is no gold."
        said = "was" if self.gold else "should be"
        text = f"The classifier {said} right on about {classifier:.0%} of new instances."
        if math.isnan(labels):
            return text
        return (
            f"{text} Labels from it and the annotators together {'were' if self.gold else 'should be'} right on about "
            f"{labels:.0%} of the labelled instances, majority votes on {by_vote:.0%}."
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"expected": self.expected._asdict(), "expectation": self.expectation}

    def save(self, folder: Path) -> None:
        """Put it beside the fits, for `Comparison.load`."""
        write_json(folder / RESULT, _finite(self.as_dict()))

    @classmethod
    def load(cls, folder: Path) -> Comparison:
        """The comparison that ``folder`` holds."""
        path = folder / RESULT
        found = read_json(path)
        try:
            known = {field.name: found[field.name] for field in fields(cls)}
            known |= {name: tuple(known[name]) for name in ("entries", "notes")}
            known["entries"] = tuple(Entry(**{k: _number(v) for k, v in each.items()}) for each in known["entries"])
            known["expected"] = Expectation(**{name: float(_number(v)) for name, v in known["expected"].items()})
            result = cls(**known)
            str(result)  # what cannot be shown is damaged
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelFileError(f"{path} is damaged: {type(error).__name__}: {error}") from error
        return result

    @property
    def judged_by(self) -> str:
        """What the scores are."""
        judge = "gold labels" if self.gold else "held-out annotations, weighted by their annotators' skill"
        return f"In %, with standard errors; judged by {judge}, on {self.n_judged:,} instances."

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The ranking as text: names of columns, and rows."""
        columns = ["method", "accuracy" if self.gold else "agreement", "behind the best", "folds", "seconds a fit", ""]
        rows = [
            [
                entry.title,
                f"{100 * entry.score:.1f} ± {100 * entry.error:.1f}",
                "-" if entry is self.best else f"{100 * entry.behind:.1f} ± {100 * entry.behind_error:.1f}",
                str(entry.folds),
                f"{entry.seconds:.1f}",
                "no better than chance" if entry.at_chance else "",
            ]
            for entry in self.entries
        ]
        return columns, rows

    def remarks(self) -> list[str]:
        """What to know beside the ranking: failures, notes, and warnings of single methods."""
        warned = [f"{entry.title}: {text}" for entry in self.entries for text in entry.warnings]
        return [*(f"{name}: failed: {why}" for name, why in self.failed.items()), *self.notes, *warned]

    def _repr_html_(self) -> str:
        note = " ".join([self.judged_by, *self.remarks(), self.reason, self.expectation, f"Next: {self.next_step}"])
        return notebook.table("Comparison", *self.table(), note)

    def __str__(self) -> str:
        columns, rows = self.table()
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        lines = []
        for row in (columns, *rows):
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True)),
            ]
            lines.append("  ".join([*cells, row[5]]).rstrip())
        lines += ["", self.judged_by, *self.remarks(), "", self.reason, self.expectation, f"Next: {self.next_step}"]
        return "\n".join(lines)


def _finite(value: Any) -> Any:
    """The same for JSON, which has no NaN: None instead."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    return math.nan if value is None else tuple(value) if isinstance(value, list) else value
