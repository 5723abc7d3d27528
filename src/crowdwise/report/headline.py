"""What a report says first: how good the labels are, what would make them better, and whom to ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise import quality
from crowdwise.data.shares import wilson
from crowdwise.errors import spelled
from crowdwise.readers import MODEL
from crowdwise.report.analysis import Analysis
from crowdwise.report.overview import SPAMMER, listed

RELABELLED = 0.1  # share of the items that is relabelled in the second sentence
ENOUGH = 20  # items of known truth from which on accuracy is measured
FEW_LABELS = 10  # annotators with fewer are neither praised nor dropped
NAMED = 3
SECOND = 100  # items to label a second time, where none has been
USELESS = 0.25  # of a typical annotator's advantage over chance; who has less for certain need not be asked


def headline(
    analysis: Analysis, rows: Sequence[dict[str, Any]], suggested: Sequence[dict[str, Any]], cost: float | None = None
) -> list[dict[str, str]]:
    """Findings in plain words, each with a figure, a sentence, and the section that has the evidence."""
    crowd = analysis.source.annotations
    if not len(crowd) or crowd.n_classes < 2:
        return []
    measured = len(analysis.known()) >= ENOUGH
    if not analysis.comparable and not measured:
        return _unknown(analysis, cost)
    found = [
        *_right(analysis),
        _ask(rows, best=True, n_classes=crowd.n_classes),
        _ask(rows, best=False, n_classes=crowd.n_classes),
        _confused(analysis),
        _more(suggested, cost),
    ]
    return [finding for finding in found if finding is not None]


def _finding(figure: str, title: str, words: str, section: str) -> dict[str, str]:
    return {"figure": figure, "title": title, "words": words, "section": section}


def _right(analysis: Analysis) -> list[dict[str, str]]:
    """How many labels are right, and how many would be if the most doubtful items were relabelled.

    Measured where the truth of enough items is known, else as the posterior promises, within what such promises are worth.
    """
    crowd, truth, known = analysis.source.annotations, analysis.source.truth, analysis.known()
    labelled = np.flatnonzero(crowd.labels_per_instance > 0)
    total = len(labelled)
    k = max(1, round(RELABELLED * total))
    if truth is not None and len(known) >= ENOUGH:
        right = analysis.label[known] == truth[known]
        first = np.argsort(-analysis.doubt[known], kind="stable")[: max(1, round(RELABELLED * len(known)))]
        mended = right.copy()
        mended[first] = True
        now, then = ((float(np.mean(each)), *map(float, wilson(each.sum(), len(each)))) for each in (right, mended))
        title, basis = "of the labels are right", f", measured on {len(known):,} items of known truth"
    else:
        confidence = 1 - analysis.doubt[labelled]
        confidence = confidence[np.argsort(confidence, kind="stable")]
        all_of_them, rest = (quality.outlook(each, [], crowd.n_classes, 1.0) for each in (confidence, confidence[k:]))
        now = all_of_them.right, all_of_them.low, all_of_them.high
        low, middle, high = ((share * (total - k) + k) / total for share in (rest.low, rest.right, rest.high))
        then = middle, low, high
        title = "of the labels are expected to be right"
        basis = ". No truth was given to check it: label some items yourself to be sure"
    doubtful = f"if the {k:,} most doubtful {'item is' if k == 1 else 'items are'} relabelled"
    found = [_finding(percent(now[0]), title, f"Between {percent(now[1])} and {percent(now[2])}{basis}.", "overview")]
    if analysis.comparable:
        words = "Look at them below, or put them right with “crowdwise review”."
        found.append(
            _finding(percent(then[0]), doubtful, f"Between {percent(then[1])} and {percent(then[2])}. {words}", "items")
        )
    return found


def _unknown(analysis: Analysis, cost: float | None) -> list[dict[str, str]]:
    """Why nothing can be said, and what would change that."""
    labelled = int(np.count_nonzero(analysis.source.annotations.labels_per_instance))
    known, number = len(analysis.known()), min(SECOND, labelled)
    few = f", and the truth of only {known:,} is known" if known else ""
    price = f", for {number * cost:,.2f}" if cost is not None else ""
    return [
        _finding(
            "Unknown",
            "how many labels are right",
            f"No item has labels of two annotators{few}, so nothing tells right labels from wrong ones, good annotators from "
            f"bad ones, or classes that are confused. Label some items twice, or give the truth of {ENOUGH} items or more with "
            f"{spelled('gold', 'FILE')}.",
            "overview",
        ),
        _finding(
            "Label twice",
            f"{number:,} {'item' if number == 1 else 'items'}, drawn at random{price}",
            "How often a second annotator gives the same label tells, to within about ten points in a hundred, how good the "
            "labels are. Then make this report again.",
            "overview",
        ),
    ]


def _ask(rows: Sequence[dict[str, Any]], *, best: bool, n_classes: int) -> dict[str, str] | None:
    """Whom to ask more, or no longer: people only, with enough labels to tell."""
    people = [
        row
        for row in rows
        if row.get("kind") != MODEL and row.get("labels", 0) >= FEW_LABELS and row.get("skill") and "low" in row
    ]
    if len(people) < 2:
        return None
    if best:
        chosen = sorted(people, key=lambda row: -row["low"])[:NAMED]
        skills = f"{percent(min(row['skill'] for row in chosen))} to {percent(max(row['skill'] for row in chosen))}"
        words = f"Right in {skills} of cases; at worst in {percent(min(row['low'] for row in chosen))}."
        return _finding("Ask more", listed([row["name"] for row in chosen], NAMED), words, "annotators")
    chance, typical = 1 / n_classes, float(np.median([row["skill"] for row in people]))
    bar = chance + USELESS * max(typical - chance, 0)
    idle = [row["high"] < typical and row.get("spammer", 0) > SPAMMER for row in people]  # even at best
    weak = [row for row, spam in zip(people, idle, strict=True) if spam or row["high"] < bar]
    weak.sort(key=lambda row: row["skill"])
    if not weak:
        words = "No annotator is so weak that their labels could safely be dropped."
        return _finding("Keep asking", "everybody", words, "annotators")
    right, most = (percent(max(row[name] for row in weak)) for name in ("skill", "high"))
    labels = sum(row["labels"] for row in weak)
    words = f"Right in {right} of cases ({most} at best); a guess is right in {percent(chance)}. {labels:,} labels are theirs."
    return _finding("Stop asking", listed([row["name"] for row in weak], NAMED), words, "annotators")


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
