"""What a report says first: how good the labels are, what would make them better, and whom to ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data.shares import wilson
from crowdwise.errors import spelled
from crowdwise.figures import ENOUGH, Person, Verdict, Yardstick, estimated, ordered_by_cost, shared_hits
from crowdwise.report.analysis import Analysis
from crowdwise.report.overview import listed

RELABELLED = 0.1  # share of the items that is relabelled in the second sentence
NAMED = 3
SECOND = 100  # items to label a second time, where none has been
PAIR = 0.05  # of all errors; two classes that are taken for each other less often are not worth a sentence
MORE_THAN_FAIR = 1.5  # times the errors of an average pair, likewise


def headline(
    analysis: Analysis, people: Sequence[Person], suggested: Sequence[dict[str, Any]], cost: float | None = None
) -> list[dict[str, str]]:
    """Findings in plain words, each with a figure, a sentence, and the section that has the evidence."""
    crowd = analysis.source.annotations
    if not len(crowd) or crowd.n_classes < 2:
        return []
    if analysis.worth.right is None:
        return _unknown(analysis, cost)
    found = [_right(analysis), _relabelled(analysis)]
    if analysis.comparable:
        found += [_rely(people), _stop(people, analysis.worth.yardstick)]
    found += [_confused(analysis), _more(suggested, cost)]
    return [finding for finding in found if finding is not None]


def _finding(figure: str, title: str, words: str, section: str) -> dict[str, str]:
    return {"figure": figure, "title": title, "words": words, "section": section}


def _right(analysis: Analysis) -> dict[str, str]:
    """How many labels are right: measured or estimated, whichever is to be believed, with what to compare it with."""
    worth = analysis.worth
    right, stick = worth.right, worth.yardstick
    assert right is not None, "there is a share to show"
    title = "of the labels are right" if right.basis == "measured" else "of the labels are expected to be right"
    compared = "" if stick is None else f" For comparison, {stick}."
    near = "" if worth.near is None else f" {percent(worth.near.share)} are right or one step off."
    words = f"Between {percent(right.low)} and {percent(right.high)}.{near} {worth.why}{compared}"
    return _finding(percent(right.share), title, words, "overview")


def _relabelled(analysis: Analysis) -> dict[str, str] | None:
    """How many labels would be right if the most doubtful items were relabelled, on the same basis."""
    crowd, right = analysis.source.annotations, analysis.worth.right
    if not analysis.comparable or right is None:
        return None
    labelled, known = np.flatnonzero(crowd.labels_per_instance > 0), analysis.known()
    total = len(labelled)
    k = max(1, round(RELABELLED * total))
    if right.basis == "measured":
        truth = np.asarray(analysis.source.truth)[known]
        mended = shared_hits(analysis.posterior[known], truth)
        first = np.argsort(-analysis.doubt[known], kind="stable")[: max(1, round(RELABELLED * len(known)))]
        mended[first] = 1.0
        low, high = (float(end) for end in wilson(mended.sum(), len(mended)))
        middle = float(mended.mean())
    else:
        confidence = np.sort(1 - analysis.doubt[labelled])[k:]
        rest = estimated(confidence, crowd.n_classes)
        shares = (1.0, 1.0, 1.0) if rest is None else (rest.low, rest.share, rest.high)
        low, middle, high = ((share * (total - k) + k) / total for share in shares)
    doubtful = f"if the {k:,} most doubtful {'item is' if k == 1 else 'items are'} relabelled"
    words = f"Between {percent(low)} and {percent(high)}. Look at them below, or correct them with “crowdwise review”."
    return _finding(percent(middle), doubtful, words, "items")


def _unknown(analysis: Analysis, cost: float | None) -> list[dict[str, str]]:
    """Why nothing can be said, and what would change that."""
    given, why = analysis.evidence, analysis.worth.why
    found = [_finding("Unknown", "how many labels are right", why, "overview")]
    if given.kind not in ("one label", "one annotator"):
        return found
    number = min(SECOND, analysis.worth.votes.labelled)
    price = f", for {number * cost:,.2f}" if cost is not None else ""
    title = f"{number:,} {'item' if number == 1 else 'items'}, drawn at random{price}"
    words = (
        "A second annotator's agreement estimates label quality to about ten points. Then rebuild this report. Or give the "
        f"true labels of {ENOUGH} items or more with {spelled('gold', 'FILE')}."
    )
    return [*found, _finding("Label twice", title, words, "overview")]


def _rely(people: Sequence[Person]) -> dict[str, str] | None:
    """Whom to ask more: people who are for certain as good as the typical one."""
    chosen = [each for each in people if each.verdict == Verdict.RELY]
    chosen.sort(key=lambda each: -each.low)
    named = chosen[:NAMED]
    if not named:
        return None
    skills = sorted(each.skill for each in named)
    about = percent(skills[0]) if len(named) == 1 else f"{percent(skills[0])} to {percent(skills[-1])}"
    words = f"Right in {about} of cases; at worst in {percent(min(each.low for each in named))}."
    return _finding("Ask more", listed([each.name for each in named], NAMED), words, "annotators")


def _stop(people: Sequence[Person], stick: Yardstick | None) -> dict[str, str] | None:
    """Whom to ask no longer, the costliest first."""
    if sum(each.verdict is not None for each in people) < 2:
        return None
    weak = [each for each in ordered_by_cost(people) if each.verdict == Verdict.STOP]
    if not weak:
        words = "No annotator is so weak that their labels could safely be dropped."
        return _finding("Keep asking", "everybody", words, "annotators")
    labels = sum(each.labels for each in weak)
    right = sum(each.labels * each.skill for each in weak) / labels
    compared = "" if stick is None else f" {sentence(str(stick))}."
    words = f"Together right in {percent(right)} of {labels:,} labels.{compared}"
    return _finding("Stop asking", listed([each.name for each in weak], NAMED), words, "annotators")


def _confused(analysis: Analysis) -> dict[str, str] | None:
    """The two classes that people take for each other."""
    crowd, c = analysis.source.annotations, analysis.source.annotations.n_classes
    if c > 2_000:
        return None
    belief, own = analysis.judging, np.ones(len(crowd), dtype=bool)
    if not analysis.comparable:
        truth = np.asarray(analysis.source.truth)
        belief, own = np.eye(c)[truth], truth[crowd.instance] >= 0  # rows of unknown truth are not used
    counts = np.zeros((c, c))  # [label, true class]
    np.add.at(counts, crowd.label[own], belief[crowd.instance[own]])
    wrong = counts + counts.T
    np.fill_diagonal(wrong, 0)
    errors = wrong.sum() / 2
    if errors < 1:
        return None
    one, other = sorted(np.unravel_index(int(wrong.argmax()), wrong.shape))
    names = [str(crowd.classes[code]) for code in (one, other)]
    share = wrong[one, other] / errors
    fair = 2 / (c * (c - 1))  # of all pairs of classes
    if c > 2 and share < max(PAIR, MORE_THAN_FAIR * fair):
        return None
    seen = counts.sum(axis=0)  # labels on items of each class
    ways = [
        f"{percent(counts[label, true] / seen[true])} of the labels on “{crowd.classes[true]}” say “{crowd.classes[label]}”"
        for true, label in ((one, other), (other, one))
        if seen[true] > 0
    ]
    words = f"{percent(share)} of all wrong labels; {', '.join(ways)}." if c > 2 else f"{sentence(', '.join(ways))}."
    return _finding("Confused", listed(names, 2), words, "annotators")


def _more(suggested: Sequence[dict[str, Any]], cost: float | None) -> dict[str, str] | None:
    """What further labels bring, and what they cost."""
    number = min(len(suggested), 100)
    if not number:
        return None
    right = sum(row["better"] for row in suggested[:number])
    price = f", for {number * cost:,.2f}" if cost is not None else ""
    each = f" ({number * cost / right:,.2f} each)" if cost is not None and right >= 0.05 else ""
    words = (
        f"So many items would be put right{each} by asking the annotators who know best about the most doubtful items."
    )
    return _finding(f"+ {right:.1f}", f"right labels expected from {number:,} more{price}", words, "next")


def percent(share: float) -> str:
    """A share in words, with a digit more near the ends.

    >>> percent(0.931), percent(0.996), percent(0.99999), percent(1.0)
    ('93%', '99.6%', '>99.9%', '100%')
    """
    if share in (0, 1) or 0.005 <= share < 0.995:
        return f"{share:.0%}"
    return "<0.1%" if share < 0.001 else ">99.9%" if share >= 0.9995 else f"{share:.1%}"


def sentence(text: str) -> str:
    """Text that begins with a capital letter."""
    return text[:1].upper() + text[1:]
