"""The parts of a review against second implementations: the queue, what is expected of it, what is shown, and exports."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.quality import measured, outlook
from crowdwise.readers import read
from crowdwise.reviewing import consensus
from crowdwise.reviewing import session as sessions
from crowdwise.reviewing.answers import Answer, Answers
from crowdwise.reviewing.app import KEYS, class_keys
from crowdwise.reviewing.consensus import EXPERT, EXPERT_LABELS, Consensus, merged, refit
from crowdwise.reviewing.exporting import all_annotations, consensus_labels
from crowdwise.reviewing.guard import Guard
from crowdwise.reviewing.items import export_of
from crowdwise.reviewing.queue import ORDERS, View, pinned, queue, scores

N, R, C = 30, 5, 3


def drawn(seed: int = 0, *, comparable: bool = True) -> Consensus:
    """A consensus of no method: random labels, some of them twice, and random posteriors, some of them equal."""
    rng = np.random.default_rng(seed)
    i, j, y = (rng.integers(size, size=80) for size in (N - 2, R - 1, C))  # two items and an annotator without labels
    crowd = Annotations.from_triples(i, j, y, n_instances=N, n_annotators=R, n_classes=C)
    posterior = rng.dirichlet(np.ones(C), N)
    posterior[5:9] = posterior[4]
    return Consensus(3, "", "", crowd, posterior, rng.random(N) < 0.3, comparable)


def entropy(shares: Any) -> float:
    return -sum(share * math.log2(share) for share in shares if share > 0)


def told(posterior: Any) -> float:
    """Bits that the label of an expert tells about the class, from the joint distribution."""
    joint = [
        [q * (EXPERT if c == label else (1 - EXPERT) / (C - 1)) for label in range(C)] for c, q in enumerate(posterior)
    ]
    labels = [sum(row[label] for row in joint) for label in range(C)]
    return entropy(labels) + entropy(posterior) - entropy([share for row in joint for share in row])


def score(now: Consensus, item: int, view: View) -> float:
    crowd = now.annotations
    rows = np.flatnonzero(crowd.instance == item).tolist()
    if view.order == "doubt" and view.of_annotator is not None:
        return max(1 - now.posterior[item, crowd.label[k]] for k in rows if crowd.annotator[k] == view.of_annotator)
    if view.order == "doubt":
        return 1 - max(now.posterior[item])
    if view.order == "gain":
        return told(now.posterior[item])
    pairs = [(k, m) for k in rows for m in rows if k < m]
    differ = sum(crowd.label[k] != crowd.label[m] for k, m in pairs)
    return differ / len(pairs) if view.order == "disagreement" and pairs else 0.0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("of_class", [None, 0, 2])
@pytest.mark.parametrize("of_annotator", [None, 1, 4])
def test_a_queue_holds_what_a_view_asks_for_best_first(order: Any, of_class: Any, of_annotator: Any) -> None:
    now, view = drawn(), View(order, of_class, of_annotator)
    crowd = now.annotations
    expected = []
    for item in range(N):
        rows = np.flatnonzero(crowd.instance == item)
        chosen = of_class in crowd.label[rows] or now.posterior[item].argmax() == of_class
        if now.reviewed[item] or (of_class is not None and not chosen):
            continue
        if of_annotator is None or of_annotator in crowd.annotator[rows]:
            expected.append(item)
    expected.sort(key=lambda item: (-round(score(now, item, view), 9), item))
    assert queue(now, view).tolist() == expected
    assert len(expected) > 3 or of_annotator == 4  # who has labelled nothing


def test_the_gain_of_an_item_is_what_an_expert_would_tell_of_it() -> None:
    now = drawn()
    np.testing.assert_allclose(now.information, [told(row) for row in now.posterior], atol=1e-9)
    sure = dataclasses.replace(now, posterior=np.eye(C)[np.zeros(N, int)])
    np.testing.assert_allclose(sure.information, 0, atol=1e-9)


def test_only_a_page_for_a_notebook_may_be_framed_and_only_by_this_machine() -> None:
    policies = [Guard(("ann",), 8080, framed).headers["Content-Security-Policy"] for framed in (False, True)]
    frames = [policy.partition("frame-ancestors ")[2].partition(";")[0] for policy in policies]
    assert frames == ["'none'", "http://127.0.0.1:* http://localhost:*"]


def test_nothing_is_more_doubtful_where_nothing_can_be_compared() -> None:
    now = drawn(comparable=False)
    in_order = np.flatnonzero(~now.reviewed).tolist()
    assert queue(now, View("file")).tolist() == in_order
    for view in (View("doubt"), View("gain"), View("disagreement")):
        assert sorted(queue(now, view).tolist()) == in_order
        assert queue(now, view).tolist() != in_order
        assert np.array_equal(scores(now, view.order), scores(drawn(1, comparable=False), view.order))
    own = queue(now, View("doubt", of_annotator=1)).tolist()
    assert own == [item for item in queue(now, View("doubt")).tolist() if item in own]  # drawn like the others


def test_an_item_is_put_in_front_whether_it_is_in_the_queue_or_not() -> None:
    items = np.array([4, 2, 7])
    assert [pinned(items, first).tolist() for first in (2, 9, None)] == [[2, 4, 7], [9, 4, 2, 7], [4, 2, 7]]


def test_the_label_of_a_reviewer_comes_before_gold_and_gold_before_the_crowd() -> None:
    i, j, y = np.repeat(np.arange(6), 3), np.tile(np.arange(3), 6), np.tile([0, 0, 1], 6)
    crowd = Annotations.from_triples(i, j, y, n_classes=3)
    answers = Answers(crowd)
    for item, label, who in ((0, 2, "ann"), (1, 2, "ann"), (1, 1, "bob"), (4, 1, "ann")):
        answers.play(Answer(who, "label", item, label))
    known = np.array([1, -1, 2, -1, 2, -1], np.int32)
    now = refit(merged(crowd, answers), 3, answers.agreed(), known, version=7, method="dawid-skene")
    assert now.posterior[[0, 2, 4], [2, 2, 1]].tolist() == [1, 1, 1]
    assert 0 < now.posterior[1].max() < 1  # two reviewers who disagree
    assert now.reviewed.tolist() == [True, True, False, False, True, False]
    assert (now.version, now.method) == (7, "dawid-skene")
    expert = refit(merged(crowd, answers), 3, answers.agreed(), known, method="dawid-skene", trust="expert")
    assert expert.posterior[[0, 2, 4], [1, 2, 2]].tolist() == [1, 1, 1]  # of reviewers only gold is certain
    plain = refit(crowd, 3, np.full(6, -1, np.int32), np.full(6, -1, np.int32), method="dawid-skene")
    assert plain.posterior[[0, 3, 5]].argmax(axis=1).tolist() == [0, 0, 0]


def test_reviewers_alone_start_with_a_good_record() -> None:
    crowd = Annotations.from_triples([0, 0, 1, 1, 0], [0, 1, 0, 1, 2], [0, 1, 2, 2, 1], n_classes=3)
    history = consensus._experts(crowd, 2)
    assert history.shape == (3, 3, 3)
    assert not history[:2].any()
    for one in range(3):
        for other in range(3):
            share = EXPERT if one == other else (1 - EXPERT) / 2
            assert history[2, one, other] == pytest.approx(EXPERT_LABELS * share)


def test_who_asks_again_gets_the_same_item_and_others_get_another(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, view = make(reviewers=("ann", "bob")), View("file")
    clock = [1000.0]
    monkeypatch.setattr(sessions.time, "monotonic", lambda: clock[0])
    assert [session.next_item(who, view) for who in ("ann", "ann", "bob", "ann", "bob")] == [0, 0, 1, 0, 1]
    session.hold("ann", 7)  # looks at another one, which lets the first go
    assert session.next_item("bob", view) == 0
    session.hold("ann", 7)
    session.answer("bob", "label", 3, 0)  # an answer lets go of what its reviewer held
    assert session.next_item("ann", view) == 0
    clock[0] += sessions.HELD - 1
    assert session.next_item("bob", view) == 1
    clock[0] += 2  # ann has gone home; bob has just asked
    assert session.next_item("bob", view) == 0
    session.answer("ann", "skip", 1)
    assert session.next_item("ann", view) == 2


def test_an_item_put_aside_first_comes_back_first(make: Any) -> None:
    session, view = make(reviewers=("ann", "bob")), View("file")
    for item in (2, 0):
        session.answer("ann", "skip", item)
    for item in range(60):
        if item not in (0, 2):
            session.answer("bob", "label", item, 0)
    assert session.next_item("ann", view) == 2
    assert session.next_item("bob", view) == 0  # who has put nothing aside, and ann looks at 2
    session.hold("bob", 2)
    assert session.next_item("ann", view) == 0


def test_progress_counts_every_kind_of_answer_once(make: Any) -> None:
    session = make(reviewers=("ann", "bob"), target=0.9)
    before = session.consensus
    right = np.flatnonzero(before.label == 0)[:3].tolist()
    wrong = np.flatnonzero(before.label == 1)[:2].tolist()
    promised = []
    for who, items in (("ann", right), ("bob", wrong)):
        for item in items:
            promised.append(
                (round(float(session.settle().confidence[item]), 4), int(session.consensus.label[item]) == 0)
            )
            session.answer(who, "label", item, 0)
    session.answer("bob", "label", right[0], 0)  # a second opinion
    promised.append((1.0, True))
    session.answer("ann", "skip", 50)
    now, reviewed = session.settle(), np.isin(np.arange(60), right + wrong)
    found = {who: session.progress(who) for who in ("ann", "bob")}
    agreeing = sum(so for _, so in promised)
    assert 0 < agreeing < len(promised) == 6
    for who, mine, skipped in (("ann", 3, 1), ("bob", 3, 0)):
        progress = found[who]
        assert (progress.reviewed, progress.left, progress.mine, progress.skipped) == (5, 55, mine, skipped)
        assert (progress.agreeing, progress.checked, progress.target) == (agreeing, 6, 0.9)
        expected = outlook(now.confidence[~reviewed], promised, 3, 0.9)
        assert progress.outlook is not None
        for name in ("right", "low", "high", "more"):
            assert getattr(progress.outlook, name) == pytest.approx(getattr(expected, name), rel=1e-3)


def test_it_is_enough_where_the_rest_reaches_the_target_or_there_is_none(make: Any) -> None:
    session = make()
    expected = session.progress("reviewer").outlook.right
    for target, enough in ((expected - 1e-6, True), (expected, True), (expected + 1e-6, False)):
        session.target = target
        assert session.progress("reviewer").enough is enough
    for item in range(60):
        session.answer("reviewer", "label", item, 0)
    assert session.progress("reviewer").enough


def test_gold_and_answers_measure_together_where_nothing_can_be_compared(make: Any, tmp_path: Any) -> None:
    """One annotator: 23 of 30 labels are those of gold, and 2 of 3 those of the reviewer."""
    path = tmp_path / "gold.csv"
    truth = ["ab"[(k + (k < 7)) % 2] if k < 30 else "" for k in range(90)]
    lines = [f"{k},ann,{'ab'[k % 2]},{gold}" for k, gold in enumerate(truth)]
    path.write_text("\n".join(["item,annotator,label,gold", *lines]))
    session = make(export=read(path))
    assert session.progress("reviewer").outlook == measured(23, 30, 90, 0.97)
    for item, label in ((40, 0), (41, 1), (42, 1)):
        session.answer("reviewer", "label", item, label)
        session.settle()
    assert session.progress("reviewer").outlook == measured(25, 33, 87, 0.97)
    session.target = 0.5
    assert session.progress("reviewer").outlook.more == 0


def test_what_is_shown_of_an_item(make: Any) -> None:
    others = [item for item in range(2, 14) for _ in "ab"]  # on which all agree, so that labels tell right from wrong
    labels = {
        "item": [0] * 5 + [1] * 2 + others,
        "worker": list("abcdeab") + list("ab") * 12,
        "label": list("xyyyzxx") + ["xyz"[item % 3] for item in others],
    }
    crowd = Annotations.from_frame(labels)
    export, _ = export_of(crowd, ["the text of it", *[None] * 13])
    export.kinds[2] = "model"
    session = make(export=export, reviewers=("ann", "bob"))
    session.answer("ann", "label", 0, 1, comment="of ann")
    session.answer("bob", "label", 0, 2, comment="of bob")
    session.answer("bob", "comment", 1, comment="elsewhere")
    now = session.settle()
    shown = {who: session.shown(0, who) for who in ("ann", "bob", "cem")}
    assert [shown[who]["label"] for who in shown] == [1, 2, None]
    assert [shown[who]["comment"] for who in shown] == ["of ann", "of bob", ""]
    assert [shown[who]["comments"] for who in shown] == [
        [("bob", "of bob")],
        [("ann", "of ann")],
        [("ann", "of ann"), ("bob", "of bob")],
    ]
    votes = {name: [(each["name"], each["kind"]) for each in people] for name, people in shown["ann"]["votes"]}
    assert list(votes) == ["y", "z", "x"]  # most labels first
    assert {name: sorted(people) for name, people in votes.items()} == {
        "x": [("a", "")],
        "y": [("ann", "reviewer"), ("b", ""), ("c", "model"), ("d", "")],
        "z": [("bob", "reviewer"), ("e", "")],
    }
    for _, people in shown["ann"]["votes"]:
        skills = [each["skill"] or 0.0 for each in people]
        assert skills == sorted(skills, reverse=True)
        for each in people:
            own = list("abcde").index(each["name"]) if each["kind"] != "reviewer" else None
            assert each["skill"] == (None if own is None else pytest.approx(now.skill[own]))
    likely = sorted(((q, "xyz"[c]) for c, q in enumerate(now.posterior[0].tolist()) if q >= 0.005), reverse=True)
    assert shown["ann"]["likely"] == [(name, pytest.approx(q)) for q, name in likely]
    assert (shown["ann"]["id"], shown["ann"]["text"], session.shown(1, "ann")["text"]) == ("0", "the text of it", None)
    assert session.shown(1, "ann")["comments"] == [("bob", "elsewhere")]


def test_lines_of_the_list(make: Any) -> None:
    session = make(reviewers=("ann", "bob"))
    session.answer("bob", "label", 7, 2)
    now = session.settle()
    for who, mine in (("ann", None), ("bob", "owl")):
        rows = session.rows(np.array([9, 7]), who)
        assert [row["item"] for row in rows] == [9, 7]
        assert [row["id"] for row in rows] == ["item 9", "item 7"]
        assert [row["mine"] for row in rows] == [None, mine]
        assert [row["done"] for row in rows] == [False, True]
        assert [row["label"] for row in rows] == [("cat", "dog", "owl")[now.label[9]], "owl"]
        assert rows[0]["doubt"] == pytest.approx(1 - now.confidence[9], abs=6e-4)
        assert rows[1]["text"] == "a picture of number 7"


@pytest.mark.parametrize("length", [sessions.EXCERPT - 1, sessions.EXCERPT, sessions.EXCERPT + 1])
def test_a_long_text_is_cut_in_the_list_only(make: Any, length: int) -> None:
    session = make(export=export_of([[0, 1], [1, 1]], ["x" * length, "short"])[0])
    found = session.rows(np.array([0]), "reviewer")[0]["text"]
    assert len(found) == min(length, sessions.EXCERPT)
    assert found.endswith("…") == (length > sessions.EXCERPT)
    assert session.shown(0, "reviewer")["text"] == "x" * length


def test_answers_are_played_in_order_and_undone_from_the_last() -> None:
    """Random answers of three reviewers against a list of all that holds, from which the last is taken."""
    rng = np.random.default_rng(0)
    crowd = Annotations.from_triples([0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 0])
    answers, histories = Answers(crowd), {who: [] for who in "abc"}
    for k in range(300):
        who, item, label = "abc"[rng.integers(3)], int(rng.integers(5)), int(rng.integers(4))  # some do not exist
        action = ("label", "label", "skip", "comment", "undo")[rng.integers(5)]
        comment = ("", f"note {k}")[rng.integers(2)]
        answers.play(Answer(who, action, item, label, comment, time=float(k)))
        if action == "undo":
            histories[who] = histories[who][:-1]
        elif item < 4 and (action != "label" or label < 3):
            histories[who] = [*histories[who], (k, action, item, label, comment)]
        labels, skipped, comments = {}, {who: {} for who in "abc"}, {}
        for one, history in histories.items():
            for time, act, thing, said, note in history:
                if act == "label":
                    labels[one, thing] = said
                    skipped[one].pop(thing, None)
                elif act == "skip":
                    skipped[one][thing] = float(time)
                if note or act == "comment":
                    comments[one, thing] = note
        assert {key: verdict.label for key, verdict in answers.labels.items()} == labels
        assert {who: answers.skipped.get(who, {}) for who in "abc"} == skipped
        assert answers.comments == {key: note for key, note in comments.items() if note}
        times = np.bincount([item for _, item in labels], minlength=4)
        assert answers.reviewed.tolist() == times.tolist()
        agreed = [{label for (_, thing), label in labels.items() if thing == item} for item in range(4)]
        assert answers.agreed().tolist() == [one.pop() if len(one) == 1 else -1 for one in agreed]
        items, names, codes, given = answers.triples()
        assert dict(zip(zip(names, items.tolist(), strict=True), codes.tolist(), strict=True)) == labels
        assert [(one.reviewer, one.item, one.label) for one in given] == list(zip(names, items, codes, strict=True))
        undone = answers.undone(who)
        assert (None if undone is None else undone[1].time) == (histories[who][-1][0] if histories[who] else None)


def test_annotations_of_reviewers_follow_those_of_the_crowd_by_name() -> None:
    crowd = Annotations.from_frame({"item": [5, 5, 9], "worker": [20, 10, 20], "label": list("yxy")})
    answers = Answers(crowd)
    for who, item, label in (("zoe", 9, "x"), ("ann", 5, "y"), ("ann", 9, "y")):
        answers.play(Answer(who, "label", item, label))
    rows = merged(crowd, answers).to_frame().to_pylist()
    assert [tuple(map(str, row.values())) for row in rows] == [
        ("5", "20", "y"),
        ("5", "10", "x"),
        ("9", "20", "y"),
        ("9", "zoe", "x"),
        ("5", "ann", "y"),
        ("9", "ann", "y"),
    ]
    assert merged(crowd, answers).annotators.tolist() == ["20", "10", "ann", "zoe"]
    assert merged(crowd, Answers(crowd)) is crowd


def test_labels_name_all_reviewers_and_whose_remarks_are_whose(make: Any) -> None:
    session = make(reviewers=("ann", "bob"))
    session.answer("bob", "label", 3, 1, comment="first")
    assert consensus_labels(session).to_pylist()[3]["comment"] == "first"
    session.answer("ann", "label", 3, 1, comment="second")
    session.answer("ann", "label", 4, 2)
    rows = consensus_labels(session).to_pylist()
    assert [(row["reviewed_by"], row["comment"], row["label"]) for row in rows[2:6]] == [
        (None, None, rows[2]["label"]),
        ("bob; ann", "bob: first; ann: second", "dog"),
        ("ann", None, "owl"),
        (None, None, rows[5]["label"]),
    ]
    now = session.settle()
    assert [row["confidence"] for row in rows] == now.confidence.tolist()
    assert [row["label"] for row in rows] == [("cat", "dog", "owl")[label] for label in now.label]


def test_times_of_the_file_stay_and_those_of_answers_follow(make: Any, tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{k},{who},{'xy'[k % 2]},2020-01-0{k + 1}T00:00:00Z,{k}.5" for k in range(3) for who in "ab"]
    path.write_text("\n".join(["item,worker,label,timestamp,duration", *rows]))
    session = make(export=read(path))
    session.answer("reviewer", "label", 2, 1, seconds=3.25)
    session.answer("reviewer", "label", 0, 1)
    found = all_annotations(session)
    assert found.timestamps[:6].astype("datetime64[D]").astype(str).tolist() == [
        f"2020-01-0{k // 2 + 1}" for k in range(6)
    ]
    given = [session.answers.labels["reviewer", item].answer.time for item in (2, 0)]
    assert (found.timestamps[6:].astype(np.int64) / 1e6).tolist() == pytest.approx(given, abs=1e-3)
    np.testing.assert_array_equal(found.durations, [0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.25, np.nan])
    assert found.kinds.tolist() == ["person"] * 3
    assert found.n_rows == len(found.annotations) == 8


@pytest.mark.parametrize("seconds", [-1.0, 1e6, None])
def test_a_time_that_cannot_be_is_not_kept(make: Any, seconds: float | None) -> None:
    session = make()
    session.answer("reviewer", "label", 2, 1, seconds=seconds)
    assert session.answers.labels["reviewer", 2].answer.seconds is None


def test_an_answer_says_what_was_believed_before_it(make: Any) -> None:
    session = make()
    item, before = 4, session.consensus
    other = (int(before.label[item]) + 1) % 3
    session.answer("reviewer", "label", item, other, seconds=1.239)
    kept = session.answers.labels["reviewer", item].answer
    assert (kept.item, kept.label, kept.consensus) == (
        "item 4",
        *(("cat", "dog", "owl")[k] for k in (other, before.label[item])),
    )
    assert kept.confidence == kept.promised == round(float(before.confidence[item]), 4)
    assert kept.seconds == 1.24
    assert Answer.of("somewhere", kept.record()) == kept


def test_a_record_holds_what_was_said_and_nothing_else() -> None:
    assert Answer("ann", "skip", 3, time=1.5).record() == {"reviewer": "ann", "action": "skip", "item": 3, "time": 1.5}
    assert Answer("ann", "label", 0, 0, seconds=0.0).record().items() >= {"item": 0, "label": 0, "seconds": 0.0}.items()


def test_keys_are_names_where_all_names_are_keys() -> None:
    assert class_keys(["a", "X"]) == ["a", "x"]
    assert class_keys(["a", "A"]) == ["1", "2"]  # both would be the same key
    assert class_keys(["a", "s"]) == ["1", "2"]  # s skips
    assert class_keys(["a", "bc"]) == ["1", "2"]
    many = class_keys([f"class {k}" for k in range(len(KEYS) + 3)])
    assert many == [*KEYS, None, None, None]


def test_items_of_python_are_texts_or_pictures_of_the_right_number() -> None:
    votes = [[0, 1], [1, 1], [0, 0]]
    pixels = [np.zeros((4, 4)), np.zeros((5, 4)), np.zeros((4, 6))]
    assert export_of(votes, pixels)[1] is pixels
    assert export_of(votes, [1, 2.5, None])[0].texts.to_pylist() == ["1", "2.5", None]
    assert export_of(votes, ["a.png", "b.png", "no picture"])[0].texts.to_pylist() == ["a.png", "b.png", "no picture"]
    assert export_of(votes, None)[0].texts is None
    features = export_of(votes, [np.zeros(3)] * 3)
    assert (features[0].texts, features[1]) == (None, None)
    read_before, _ = export_of(votes, ["x", "y", "z"])
    assert export_of(read_before, None)[0] is read_before
    with pytest.raises(DataError, match="X has 4 items, but the annotations cover 3 instances"):
        export_of(votes, list("abcd"))


def test_texts_or_pictures_for_other_items_are_refused(make: Any) -> None:
    export, _ = export_of([[0, 1], [1, 1], [0, 0]], None)
    with pytest.raises(DataError, match="there are 2 texts, but the annotations cover 3 items"):
        make(export=dataclasses.replace(export, texts=pa.array(["a", "b"])))
    with pytest.raises(DataError, match="there are 1 pictures"):
        make(export=export, pictures=["a.png"])
    for name in ("", "  ", "x" * 201, "a\x1b"):
        with pytest.raises(ConfigError, match="name of a reviewer"):
            make(export=export, reviewers=("fine", name))
    make(export=export, reviewers=("x" * 200,))


def test_labels_within_chance_get_no_doubt_in_a_review(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [f"{item},w{who},{rng.choice(list('abcd'))}" for item in range(60) for who in range(6)]
    (tmp_path / "noise.csv").write_text("\n".join(["item,worker,label", *rows]))
    (tmp_path / "folder").mkdir()
    with sessions.Session(read(tmp_path / "noise.csv"), tmp_path / "folder") as session:
        assert not session.consensus.comparable
        assert session.progress("reviewer").outlook is None
        session.answer("reviewer", "label", 0, 0)
        assert not session.settle().comparable
