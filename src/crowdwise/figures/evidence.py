"""Evidence: whether labels can tell right from wrong; if not, no figure about them is published, only the reason."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from crowdwise import agreement
from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.data.comparing import comparable
from crowdwise.data.model_names import models_alone
from crowdwise.errors import spelled

Kind = Literal["labels", "no labels", "one class", "one annotator", "one label", "chance", "models"]

REASONS: dict[Kind, str] = {
    "labels": "",
    "no labels": "There are no labels.",
    "one class": "All labels are the same class, so there is nothing to compare.",
    "one annotator": "All labels come from one annotator, so their quality cannot be estimated.",
    "one label": "No item has labels from two annotators, so label quality cannot be estimated.",
    "chance": "Agreement is within chance",
    "models": "Models err alike, so their agreement does not show how many labels are right.",
}
REMEDIES: dict[Kind, str] = {
    "labels": "",
    "no labels": "",
    "one class": "Check that no rows were lost in reading.",
    "one annotator": "Let a second annotator label some of the items, or give true labels of some.",
    "one label": "Label some items twice, or give true labels of some.",
    "chance": "Check that the file was read as meant, then the task and its instructions.",
    "models": "",
}
WITHIN = 0.1  # of the share that is right, to which true labels should show it
ENOUGH = 20  # true labels from which on they measure, and tell a method who labels well
HARDLY = 0.02  # alpha below which labels are worth next to nothing
CLEAR = 0.01  # p-value from which on so little agreement is taken for chance
LITTLE = 0.1  # alpha from which on agreement that may be chance is rather that of too few labels


@dataclass(frozen=True)
class Evidence:
    """What the labels of a crowd allow to say."""

    kind: Kind
    """ "labels" if the labels tell right from wrong; else what is missing."""
    chance: agreement.ChanceTest | None = None
    """The test of agreement against chance; None if there was nothing to test."""

    @property
    def enough(self) -> bool:
        """Whether shares, skills, doubts and advice may be published."""
        return self.kind == "labels"

    @property
    def reason(self) -> str:
        """Why nothing can be said, in a sentence; empty if something can."""
        test = self.chance
        if self.kind != "chance":
            return REASONS[self.kind]
        if test is None:
            return "Too few items have labels from two annotators, so label quality cannot be estimated."
        p_value = "p < 0.001" if test.p_value < 0.001 else f"p = {test.p_value:.2g}"
        labels = f"{count(test.n_labels, 'labels')} of {count(test.n, 'items')}"
        start = REASONS["chance"] if test.within_chance else "Agreement is hardly beyond chance"
        found = f"{start} (Krippendorff's alpha {test.alpha:.2f}, {p_value}, {labels})"
        if test.alpha < LITTLE:
            return f"{found}: the labels show neither which of them are right nor who labels well."
        return f"{found}: these are too few labels to estimate their quality."

    @property
    def remedy(self) -> str:
        """What to do about it, in a sentence; empty if there is nothing to do."""
        if self.kind == "models" and self.chance is not None:
            items = needed(self.chance.n)
            true = f"True labels of {count(items, 'items')} drawn at random ({spelled('gold', 'FILE')})"
            return f"{true} would tell it to within {100 * WITHIN:.0f} points; so would two labels of people for each item."
        few = self.kind == "chance" and (self.chance is None or self.chance.alpha >= LITTLE)
        return "Collect more labels, or give true labels of some items." if few else REMEDIES[self.kind]

    @property
    def sentence(self) -> str:
        """Reason and remedy."""
        return f"{self.reason} {self.remedy}".strip()

    def as_json(self) -> dict[str, object]:
        """Why figures are null, for a program."""
        return {"kind": self.kind, "enough": self.enough, "reason": self.sentence or None, "chance": self.chance}


def needed(items: int, within: float = WITHIN) -> int:
    """How many of the items, drawn at random, need a true label to show the share that is right ``within`` a distance.

    In 95 % of all draws, whatever the share is.

    >>> needed(500), needed(1_000_000)
    (81, 97)
    """
    most = 0.25 * (1.96 / within) ** 2
    return min(items, math.ceil(most / (1 + (most - 1) / max(items, 1))))


def evidence(
    crowd: Annotations, *, gold: int = 0, ordered: agreement.Ordered = "auto", models: Collection[Any] = ()
) -> Evidence:
    """Whether labels tell right from wrong: by themselves, or by the true labels of which a method was told so many.

    The agreement of ``models`` (ids of annotators) with each other is no evidence, unless people label as well.
    Agreement is that of ordered classes if they are ``ordered``: see `crowdwise.agreement.scale_of`.

    >>> evidence(Annotations.from_dense([["cat", None], [None, "dog"]])).reason
    'No item has labels from two annotators, so label quality cannot be estimated.'
    """
    if not len(crowd):
        return Evidence("no labels")
    if len(np.unique(crowd.label)) < 2:
        return Evidence("one class")
    if gold >= ENOUGH:
        return Evidence("labels")
    if comparable(crowd):
        given = by_chance_test(crowd, ordered)
        labelled = int(np.count_nonzero(crowd.labels_per_instance))
        alone = models_alone(crowd.annotators.tolist(), crowd.labels_per_annotator, labelled, models)
        return replace(given, kind="models") if alone and given.enough else given
    return Evidence("one annotator" if np.count_nonzero(crowd.labels_per_annotator) < 2 else "one label")


def by_chance_test(crowd: Annotations, ordered: agreement.Ordered = "auto") -> Evidence:
    """The evidence of labels that can be compared with each other: do they agree more often than by chance?"""
    test = agreement.chance_test(crowd, ordered=ordered)
    if not test.defined:  # the items that two annotators labelled have one class in all
        return Evidence("chance")
    hardly = test.alpha < HARDLY and test.p_value >= CLEAR
    return Evidence("chance" if test.within_chance or hardly else "labels", test)
