"""A review: items, answers, the journal they are kept in, and a consensus that is fitted anew in the background."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.data.types import Ints
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.quality import Outlook, measured, outlook
from crowdwise.readers import MODEL, Export
from crowdwise.registry import AGGREGATORS
from crowdwise.reviewing.answers import COMMENT, HEADER, VERSION, Action, Answer, Answers, Asked, kept
from crowdwise.reviewing.consensus import Consensus, Trust, merged, refit, tells
from crowdwise.reviewing.queue import View, pinned, queue
from crowdwise.storage.journal import Journal

JOURNAL = "answers.jsonl"
HELD = 120.0  # seconds for which an item that one reviewer looks at is not given to another
QUEUES = 16  # queues that are remembered, so that a list does not change while somebody scrolls
EXCERPT = 90  # characters of a text in the list


@dataclass(frozen=True)
class Progress:
    """How far the review is."""

    version: int
    reviewed: int
    """Items that anybody has labelled, and ``mine`` of one reviewer."""
    mine: int
    skipped: int
    left: int
    agreeing: int
    """Labels, out of ``checked``, that were the consensus before they were given."""
    checked: int
    outlook: Outlook | None
    """What to expect of the rest; None where nothing tells: no item has labels of two annotators, and nothing was checked."""
    target: float

    @property
    def enough(self) -> bool:
        """Whether the rest is expected to be as good as asked for."""
        return self.left == 0 or (self.outlook is not None and self.outlook.right >= self.target)


class Session:
    """A review that several reviewers take part in; safe for threads.

    ``folder`` holds the journal; whoever creates a session holds the folder's lock. ``pictures`` are pixels or, as in the
    export, paths below ``root``.
    """

    def __init__(
        self,
        export: Export,
        folder: Path,
        reviewers: Sequence[str] = ("reviewer",),
        *,
        method: str = "auto",
        trust: Trust = "gold",
        target: float = 0.97,
        pictures: Sequence[Any] | None = None,
        root: Path | None = None,
        seed: int = 0,
    ) -> None:
        self.export, self.crowd, self.root = export, export.annotations, root
        self.reviewers, self.target = tuple(reviewers), target
        self.texts = export.texts
        self.pictures: Any = export.pictures if pictures is None else pictures
        _check(self, method)
        gold = gold_codes(self.crowd, export.gold) if export.gold else None
        self._known = np.full(self.crowd.n_instances, -1, np.int32) if gold is None else gold
        self._how: dict[str, Any] = {"method": method, "trust": trust, "seed": seed, "told": tells(self.crowd)}
        self.answers = Answers(self.crowd)
        self.journal = Journal(folder / JOURNAL)
        self._replay()
        self._lock, self._changed = threading.RLock(), threading.Condition()
        self._changes = self._fitted = 0
        self._closed = False
        self._held: dict[int, tuple[str, float]] = {}
        self._queues: OrderedDict[Any, Ints] = OrderedDict()
        self.consensus = self._refit(0)
        self._thread = threading.Thread(target=self._work, name="crowdwise-review", daemon=True)
        self._thread.start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the background work and close the journal."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self.journal.close()

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer(
        self,
        reviewer: str,
        action: Action,
        item: int | None = None,
        label: int | None = None,
        *,
        comment: str = "",
        seconds: float | None = None,
        key: str = "",
    ) -> int | None:
        """Write an answer to the journal, then apply it; the item that it was about.

        When this returns the answer survives whatever happens. ``key`` names the request: one that comes again, because
        its sender did not learn that it had arrived, changes nothing. With another action, item, label or comment it is
        another request, whatever its key: who got no reply may have thought better of it.
        """
        if action != "undo" and (item is None or not 0 <= item < self.crowd.n_instances):
            raise DataError(f"item {item} is out of range: there are {self.crowd.n_instances:,} items")
        if action == "label" and (label is None or not 0 <= label < self.crowd.n_classes):
            raise DataError(f"label {label} is out of range: there are {self.crowd.n_classes:,} classes")
        if len(comment) > COMMENT:
            raise DataError(f"the comment has {len(comment):,} characters; {COMMENT:,} are the most")
        comment = comment.encode("utf-8", "replace").decode()  # without halves of surrogate pairs
        if action == "undo":
            comment = ""
        request = Asked.of(reviewer, action, item, label, comment)
        with self._lock:
            if self.answers.repeated(key, request):
                return self.answers.touched(key)
            if action == "undo" and self.answers.undone(reviewer) is None:
                return item
            made = Answer(reviewer, action, key=key, time=round(time.time(), 3), comment=comment)
            if item is not None and action != "undo":
                made = self._described(made, item, label, seconds)
            self.journal.append(made.record())
            item = self.answers.play(made)
            self._held = {one: held for one, held in self._held.items() if held[0] != reviewer}
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        return item

    def _described(self, answer: Answer, item: int, label: int | None, seconds: float | None) -> Answer:
        """The answer with ids, and with what was believed before it."""
        now, values = self.consensus, vars(answer) | {"item": self._id(item)}
        if seconds is not None and 0 <= seconds < 1e6:
            values["seconds"] = round(seconds, 2)
        if answer.action == "label":
            assert label is not None
            values |= {"label": self.class_id(label), "consensus": self.class_id(int(now.label[item]))}
            if now.comparable:
                confidence = round(float(now.confidence[item]), 4)
                values |= {"confidence": confidence, "promised": confidence}
        return Answer(**values)

    def _replay(self) -> None:
        first = True
        for place, record in self.journal.records():
            if first and record.get("journal") != HEADER["journal"]:
                raise DataError(
                    f"{place} does not begin a journal of reviews; choose another folder with {spelled('out')}"
                )
            if first and record.get("version") != VERSION:
                raise DataError(f"{place}: version {record.get('version')!r} is unknown; this one reads {VERSION}")
            if not first:
                self.answers.play(Answer.of(place, record))
            first = False
        if first:
            self.journal.append(HEADER)

    # -- the consensus -----------------------------------------------------------------------------------------------

    def _refit(self, version: int) -> Consensus:
        with self._lock:
            annotations, agreed = merged(self.crowd, self.answers), self.answers.agreed()
        return refit(annotations, self.crowd.n_annotators, agreed, self._known, version=version, **self._how)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._changes > self._fitted)
                if self._closed:
                    return
                changes = self._changes
            consensus = self._refit(changes)
            with self._changed:
                self.consensus, self._fitted = consensus, changes
                self._changed.notify_all()

    def settle(self, seconds: float = 60.0) -> Consensus:
        """Wait until the consensus knows of all answers."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fitted >= self._changes, seconds)
        return self.consensus

    # -- the queue ---------------------------------------------------------------------------------------------------

    def next_item(self, reviewer: str, view: View) -> int | None:
        """The item to show to a reviewer, who holds it for a while; items put aside come last, None at the end."""
        _, items = self.queue(view)
        with self._lock:
            now = time.monotonic()
            self._held = {item: held for item, held in self._held.items() if now - held[1] < HELD}
            taken = [item for item, (who, _) in self._held.items() if who != reviewer]
            open_items = items[self.answers.reviewed[items] == 0]
            aside = self.answers.skipped.get(reviewer, {})
            chosen = next((int(item) for item in open_items if item not in aside and item not in taken), None)
            if chosen is None and aside:  # the first that was put aside
                waiting = set(open_items.tolist()) - set(taken)
                chosen = min((item for item in aside if item in waiting), key=aside.__getitem__, default=None)
            if chosen is not None:
                self.hold(reviewer, chosen)
            return chosen

    def hold(self, reviewer: str, item: int) -> None:
        """Note that a reviewer looks at an item."""
        with self._lock:
            self._held = {one: held for one, held in self._held.items() if held[0] != reviewer}
            self._held[item] = reviewer, time.monotonic()

    def queue(self, view: View, version: int | None = None, first: int | None = None) -> tuple[int, Ints]:
        """A version of a queue, by default the latest, with one item in front; versions that are gone are the latest."""
        consensus = self.consensus
        with self._lock:
            for wanted in (version, consensus.version):
                found = self._queues.get((view, wanted, first))
                if found is not None and wanted is not None:
                    self._queues.move_to_end((view, wanted, first))
                    return wanted, found
        items = pinned(queue(consensus, view), first)
        with self._lock:
            self._queues[view, consensus.version, first] = items
            while len(self._queues) > QUEUES:
                self._queues.popitem(last=False)
        return consensus.version, items

    # -- what is shown -----------------------------------------------------------------------------------------------

    def rows(self, items: Ints, reviewer: str, *, blind: bool = False) -> list[dict[str, Any]]:
        """Lines of the list, one for each item; ``blind`` ones do not say what the crowd thinks."""
        now = self.consensus
        ids, mine = self.crowd.instance_vocabulary.take(np.asarray(items)).to_pylist(), self.answers.labels
        return [
            {
                "item": item,
                "id": str(name),
                "text": self.text(item, EXCERPT),
                "label": None if blind else self.class_name(int(now.label[item])),
                "doubt": round(1 - float(now.confidence[item]), 3) if now.comparable and not blind else None,
                "done": bool(self.answers.reviewed[item]),
                "mine": self.class_name(mine[reviewer, item].label) if (reviewer, item) in mine else None,
            }
            for item, name in zip(items.tolist(), ids, strict=True)
        ]

    def shown(self, item: int, reviewer: str) -> dict[str, Any]:
        """Everything the page says about an item."""
        now, answers = self.consensus, self.answers
        crowd = now.annotations
        own = crowd.by_instance[item]
        names = crowd.annotator_vocabulary.take(crowd.annotator[own]).to_pylist()
        votes: dict[int, list[dict[str, Any]]] = {}
        for name, who, label in zip(names, crowd.annotator[own].tolist(), crowd.label[own].tolist(), strict=True):
            model = who < self.crowd.n_annotators and self.export.kinds[who] == MODEL
            kind = "reviewer" if who >= self.crowd.n_annotators else "model" if model else ""
            skill = float(now.skill[who]) if now.comparable and kind != "reviewer" else None
            votes.setdefault(label, []).append({"name": str(name), "kind": kind, "skill": skill})
        belief, picture = now.posterior[item], None if self.pictures is None else self.pictures[item]
        with self._lock:
            verdict, comment = answers.labels.get((reviewer, item)), answers.comments.get((reviewer, item), "")
            others = [(who, said) for (who, code), said in answers.comments.items() if code == item and who != reviewer]
        return {
            "item": item,
            "id": str(self._id(item)),
            "text": self.text(item),
            "picture": picture is not None and getattr(picture, "is_valid", True),
            "likely": [
                (self.class_name(label), float(belief[label]))
                for label in np.argsort(-belief, kind="stable")[:5].tolist()
                if belief[label] >= 0.005 and now.comparable
            ],
            "votes": [
                (self.class_name(label), sorted(people, key=lambda each: -(each["skill"] or 0.0)))
                for label, people in sorted(votes.items(), key=lambda pair: -len(pair[1]))
            ],
            "label": None if verdict is None else verdict.label,
            "comment": comment,
            "comments": others,
        }

    def progress(self, reviewer: str) -> Progress:
        """How far the review is, for one of the reviewers."""
        now = self.consensus
        with self._lock:
            verdicts = [verdict.answer for verdict in self.answers.labels.values()]
            mine = sum(answer.reviewer == reviewer for answer in verdicts)
            reviewed = self.answers.reviewed > 0
            skipped = len(self.answers.skipped.get(reviewer, {}))
        checked = [answer for answer in verdicts if answer.consensus is not None]
        right = [answer.label == answer.consensus for answer in checked]
        left = int(np.count_nonzero(~reviewed))
        rest: Outlook | None
        if now.comparable:
            pairs = [(each.promised, so) for each, so in zip(checked, right, strict=True) if each.promised is not None]
            rest = outlook(now.confidence[~reviewed], pairs, self.crowd.n_classes, self.target)
        else:  # gold tells as much as reviews do
            known = np.flatnonzero(self._known[self.crowd.instance] >= 0)
            by_gold = self.crowd.label[known] == self._known[self.crowd.instance[known]]
            rest = measured(sum(right) + int(by_gold.sum()), len(right) + len(known), left, self.target)
        return Progress(
            now.version, len(reviewed) - left, mine, skipped, left, sum(right), len(right), rest, self.target
        )

    def last(self, reviewer: str) -> tuple[int, Answer] | None:
        """What the next undo of a reviewer takes back."""
        with self._lock:
            return self.answers.undone(reviewer)

    def text(self, item: int, most: int | None = None) -> str | None:
        """The text of an item, or its beginning."""
        value: Any = None if self.texts is None else self.texts[item]
        value = value.as_py() if hasattr(value, "as_py") else value
        if value is None:
            return None
        text = str(value)
        return text if most is None or len(text) <= most else text[: most - 1] + "…"

    def class_name(self, label: int) -> str:
        """A class as it is shown."""
        return str(self.class_id(label))

    def class_id(self, label: int) -> Any:
        """A class in the user's vocabulary, as the journal keeps it."""
        return kept(self.crowd.class_vocabulary.arrow[label].as_py())

    def _id(self, item: int) -> Any:
        return kept(self.crowd.instance_vocabulary.take(np.array([item]))[0].as_py())


def _check(session: Session, method: str) -> None:
    """Refuse what cannot be reviewed."""
    crowd = session.crowd
    if crowd.n_classes < 2:
        raise DataError(f"there is nothing to decide: the annotations have {crowd.n_classes} class")
    if method != "auto" and method not in AGGREGATORS:
        raise ConfigError(f"unknown method {method!r}", parameter="method")
    names = set(map(str, crowd.annotator_vocabulary.arrow.to_pylist()))
    for name in session.reviewers:
        if not name.strip() or len(name) > 200 or not name.isprintable():
            raise ConfigError(f"{name!r} cannot be the name of a reviewer", parameter="reviewers")
        if name in names:
            raise ConfigError(
                f"{name!r} is already an annotator of this crowd; choose another name with {spelled('reviewers', 'NAME')}",
                parameter="reviewers",
            )
    for what, values in (("texts", session.texts), ("pictures", session.pictures)):
        if values is not None and len(values) != crowd.n_instances:
            raise DataError(f"there are {len(values):,} {what}, but the annotations cover {crowd.n_instances:,} items")
