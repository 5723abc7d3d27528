"""A review without a browser: answers, the queue, the consensus, what is kept and what is exported."""

from __future__ import annotations

import json
import threading
from datetime import date
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crowdwise
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.recommend import suitable_method
from crowdwise.annotations import Annotations
from crowdwise.data.factorise import Vocabulary
from crowdwise.errors import ConfigError, DataError, InUseError, StorageError
from crowdwise.quality import measured, outlook
from crowdwise.readers import Export, read
from crowdwise.registry import AGGREGATORS
from crowdwise.reviewing.answers import HEADER, VERSION, IdFinder
from crowdwise.reviewing.consensus import FAST, SLOW, Consensus
from crowdwise.reviewing.exporting import all_annotations, consensus_labels, save
from crowdwise.reviewing.items import export_of
from crowdwise.reviewing.queue import ORDERS, View, queue
from crowdwise.reviewing.session import JOURNAL, Session
from crowdwise.storage.lock import locked
from review_crowds import tasks

ME = "reviewer"


def triples(crowd: Annotations) -> set[tuple[str, str, str]]:
    return {tuple(map(str, row.values())) for row in crowd.to_frame().to_pylist()}


def test_the_most_doubtful_item_comes_first_and_answered_ones_leave_the_queue(make):
    session = make()
    first = session.next_item(ME, View())
    assert first == int(session.consensus.confidence.argmin())
    session.answer(ME, "label", first, 0)
    assert session.next_item(ME, View()) != first
    now = session.settle()
    assert first not in queue(now, View())
    assert now.posterior[first, 0] == 1


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_holds_every_item_once(make, order):
    session = make()
    items = queue(session.consensus, View(order))
    assert sorted(items.tolist()) == list(range(60))


def test_filters_keep_a_class_or_an_annotator(make):
    session = make()
    crowd = session.crowd
    of_class = queue(session.consensus, View(of_class=1))
    voted = set(crowd.instance[crowd.label == 1].tolist())
    assert set(of_class.tolist()) >= voted
    of_annotator = queue(session.consensus, View(of_annotator=2))
    assert set(of_annotator.tolist()) == set(crowd.instance[crowd.annotator == 2].tolist())
    own = {int(crowd.instance[k]): int(crowd.label[k]) for k in np.flatnonzero(crowd.annotator == 2)}
    wrong = [1 - session.consensus.posterior[item, own[item]] for item in of_annotator.tolist()]
    assert wrong == sorted(wrong, reverse=True)


def test_skipped_items_come_last_and_undo_brings_the_last_answer_back(make):
    session = make()
    first = session.next_item(ME, View())
    session.answer(ME, "skip", first)
    second = session.next_item(ME, View())
    assert second != first
    session.answer(ME, "label", second, 2, comment="sure?")
    assert session.answer(ME, "undo") == second
    assert (session.answers.reviewed[second], session.answers.comments) == (0, {})
    assert session.answer(ME, "undo") == first
    assert session.next_item(ME, View()) == first
    assert session.answer(ME, "undo") is None  # nothing is left to undo
    session.answer(ME, "skip", first)
    for item in range(60):
        if item != first:
            session.answer(ME, "label", item, 0)
    assert session.next_item(ME, View()) == first
    session.answer(ME, "label", first, 0)
    assert session.next_item(ME, View()) is None


def test_an_answer_is_changed_by_a_later_one_and_undo_restores_the_first(make):
    session = make()
    session.answer(ME, "label", 5, 0)
    session.answer(ME, "label", 5, 1)
    assert session.answers.agreed()[5] == 1
    session.answer(ME, "undo")
    assert (session.answers.agreed()[5], session.answers.reviewed[5]) == (0, 1)


def test_a_request_that_comes_twice_counts_once(make):
    session = make()
    for _ in range(2):
        session.answer(ME, "label", 5, 0, key="abc")
    session.answer(ME, "undo", key="def")
    session.answer(ME, "undo", key="def")
    session.answer(ME, "label", 5, 0, key="abc")  # a late copy of what was undone
    assert session.answers.reviewed[5] == 0


@pytest.mark.parametrize(
    ("action", "label", "comment", "expected"),
    [("label", 1, "", 1), ("undo", None, "", None), ("label", 0, "unsure", 0), ("skip", None, "", 0)],
)
def test_another_request_with_the_same_key_counts(make, action, label, comment, expected):
    """A reply that got lost leaves the page with the key of an answer that was kept; what is sent next may be another."""
    session = make()
    session.answer(ME, "label", 5, 0, key="abc")
    touched = [session.answer(ME, action, 5, label, comment=comment, key="abc") for _ in range(2)]
    assert touched == [5, 5]  # also where the second one is a copy
    assert session.answers.agreed()[5] == (-1 if expected is None else expected)
    assert session.answers.comments.get((ME, 5), "") == comment
    assert list(session.answers.skipped.get(ME, ())) == ([5] if action == "skip" else [])
    assert session.answer(ME, "label", 6, 0, key="abc") == 6
    assert (session.answers.agreed()[6], session.answers.reviewed.sum()) == (0, 1 + (expected is not None))
    kept = session.answers
    session.close()
    again = make()
    assert again.answers.agreed().tolist() == kept.agreed().tolist()
    assert again.answer(ME, "label", 6, 0, key="abc") == 6
    assert len(again.answers.last[ME]) == len(kept.last[ME])  # a copy is known also after a restart


def test_an_answer_that_is_changed_twice_with_one_key_is_the_last(make):
    session = make()
    for label in (0, 1, 0):
        session.answer(ME, "label", 5, label, key="abc")
    assert session.answers.agreed()[5] == 0


def test_two_reviewers_get_different_items_and_disagreement_is_not_gold(make):
    session = make(reviewers=("ann", "bob"))
    one, other = session.next_item("ann", View()), session.next_item("bob", View())
    assert one != other
    session.answer("ann", "label", 7, 0)
    session.answer("bob", "label", 7, 1)
    now = session.settle()
    assert session.answers.agreed()[7] == -1
    assert 0 < now.posterior[7, 0] < 1
    assert session.progress("ann").mine == 1
    assert session.progress("ann").reviewed == 1


def test_an_expert_persuades_and_gold_decides(make):
    session = make(trust="expert")
    item = session.next_item(ME, View())
    other = int((session.consensus.label[item] + 1) % 3)
    before = session.consensus.posterior[item, other]
    session.answer(ME, "label", item, other)
    assert before < session.settle().posterior[item, other] < 1


@pytest.mark.parametrize("method", ["majority-vote", "dawid-skene", "glad", "one-coin"])
def test_every_kind_of_method_takes_answers(make, method):
    session = make(method=method)
    session.answer(ME, "label", 3, 2)
    assert session.settle().posterior[3, 2] > 0.99


def test_started_again_it_goes_on(make, export, tmp_path):
    session = make(reviewers=("ann", "bob"))
    session.answer("ann", "label", 3, 1, comment="unsure", seconds=2.5)
    session.answer("bob", "skip", 4)
    session.answer("ann", "label", 5, 1)
    session.answer("ann", "undo")
    before = session.settle(), session.progress("ann")
    session.close()
    again = make(reviewers=("ann", "bob"))
    assert again.answers.comments == {("ann", 3): "unsure"}
    assert again.progress("ann").reviewed == 1
    assert again.answers.skipped["bob"].keys() == {4}
    np.testing.assert_array_equal(again.consensus.posterior, before[0].posterior)
    assert again.progress("ann").outlook == before[1].outlook
    assert again.answer("ann", "undo") == 3


def as_labels(rows: list[tuple[object, str, object]], path: Path) -> Export:
    """Labels as they are read from a table with such values."""
    columns = {name: pa.array([row[k] for row in rows]) for k, name in enumerate(("item", "worker", "label"))}
    pq.write_table(pa.table(columns), path)
    return read(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda k: k + 1, lambda k: str(k + 1)),
        (lambda k: k + 1, lambda k: f"{k + 1}.0"),
        (lambda k: k + 1, lambda k: k + 1.0),
        (lambda k: k + 1.0, lambda k: str(k + 1)),
        (lambda k: k + 0.5, lambda k: f"{k}.5"),
        (lambda k: str(k + 1), lambda k: k + 1),
        (lambda k: k > 0, lambda k: ("false", "true", "other")[k]),
        (lambda k: k > 0, lambda k: ("False", "True", "other")[k]),
        (lambda k: date(2020, 1, 1 + k), lambda k: f"2020-01-0{k + 1}"),
    ],
)
def test_answers_survive_a_change_of_the_type_of_ids(make, tmp_path, before, after):
    """One id that is no number makes texts of all others, and so does another file format."""
    rows = [(k, who, (k + at) % 2) for k in range(2) for at, who in enumerate("aab")]
    first = as_labels([(before(item), who, before(label)) for item, who, label in rows], tmp_path / "a.parquet")
    session = make(export=first)
    session.answer(ME, "label", 1, 0, comment="why")
    session.answer(ME, "skip", 0)
    session.close()
    more = [(2, "a", 1), (2, "b", 0)]  # another item comes first
    rows = [(after(item), who, after(label)) for item, who, label in [*more, *rows]]
    again = make(export=as_labels(rows, tmp_path / "b.parquet"))
    crowd = again.crowd
    item = crowd.instances.tolist().index(after(1))
    assert again.answers.strange == 0
    assert crowd.classes[again.answers.agreed()[item]] == after(0)
    assert again.answers.comments == {(ME, item): "why"}
    assert again.answers.skipped[ME].keys() == {crowd.instances.tolist().index(after(0))}


def test_ids_that_look_alike_are_not_taken_for_each_other():
    codes = IdFinder(Vocabulary.of(["1", "01", "1.0", "2.0", "1e0"], "instances"))
    assert [codes.find(one) for one in ("1", "01", "1.0", "2.0", "1e0")] == [0, 1, 2, 3, 4]
    assert codes.find(1) is None  # is it the first, or the third?
    assert codes.find(2) == 3
    assert codes.find("+1") is None
    assert IdFinder(Vocabulary.of([3, 1, 2], "instances")).find("1") == 1


def test_answers_about_what_the_file_lost_are_kept_and_counted(make, export, tmp_path):
    session = make()
    session.answer(ME, "label", 3, 1)
    session.close()
    path = tmp_path / "review" / JOURNAL
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1].replace("item", "gone").replace('"gone":', '"item":')]) + "\n")
    again = make()
    assert again.answers.strange == 1
    assert again.progress(ME).reviewed == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"reviewer": "a", "action": "dance"}, "unknown action 'dance'"),
        ({"reviewer": "a", "action": "skip", "surprise": 1}, "surprise"),
        ({"reviewer": 3, "action": "skip"}, "reviewer cannot be 3"),
        ({"action": "skip"}, "reviewer"),
        ({"reviewer": "a", "action": "skip", "item": [1]}, "item cannot be"),
    ],
)
def test_a_forged_journal_is_refused(make, tmp_path, line, message):
    make().close()
    with open(tmp_path / "review" / JOURNAL, "a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize("what", ["removed", "replaced", "folder"])
def test_answers_are_refused_where_their_journal_is_gone(make, tmp_path, what):
    session = make()
    session.answer(ME, "label", 3, 1)
    path = tmp_path / "review" / JOURNAL
    content = path.read_bytes()
    if what == "folder":
        (tmp_path / "review").rename(tmp_path / "elsewhere")
    else:
        path.rename(tmp_path / "elsewhere.jsonl")
    if what == "replaced":
        path.write_bytes(content)
    with pytest.raises(StorageError, match="was replaced" if what == "replaced" else "was removed"):
        session.answer(ME, "label", 4, 1)
    assert session.answers.agreed()[[3, 4]].tolist() == [1, -1]
    if what == "removed":
        (tmp_path / "elsewhere.jsonl").rename(path)  # put back
        session.answer(ME, "label", 4, 2)
        session.close()
        assert make().answers.agreed()[[3, 4]].tolist() == [1, 2]


def test_other_files_are_no_journal(make, tmp_path):
    (tmp_path / "review").mkdir()
    (tmp_path / "review" / JOURNAL).write_text('{"mine": 1}\n')
    with pytest.raises(DataError, match="does not begin a journal"):
        make()


def test_a_journal_of_the_first_version_is_read(make, tmp_path):
    lines = [
        {"journal": "crowdwise review", "version": 1},
        {"reviewer": ME, "action": "label", "item": "item 3", "label": "dog", "time": 1.5, "consensus": "cat"},
        {"reviewer": ME, "action": "skip", "item": "item 4", "time": 2.5},
    ]
    (tmp_path / "review").mkdir()
    (tmp_path / "review" / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = make().answers
    assert {key: verdict.label for key, verdict in answers.labels.items()} == {(ME, 3): 1}
    assert answers.skipped == {ME: {4: 2.5}}


def test_a_journal_of_a_later_version_is_refused(make, tmp_path):
    (tmp_path / "review").mkdir()
    (tmp_path / "review" / JOURNAL).write_text(json.dumps(HEADER | {"version": VERSION + 1}) + "\n")
    with pytest.raises(DataError, match=f"version {VERSION + 1} is unknown; this one reads {VERSION}"):
        make()


def test_one_process_at_a_time(file, tmp_path):
    export = read(file)
    with crowdwise.review(export, folder=tmp_path / "r") as page:
        with pytest.raises(InUseError):
            crowdwise.review(export, folder=tmp_path / "r")
        assert page.links[ME].startswith("http://127.0.0.1:")
        assert "localhost" in page._repr_html_()
    with locked(tmp_path / "r"):
        pass  # it was released


def test_what_cannot_be_reviewed_is_refused(make, export):
    with pytest.raises(ConfigError, match="already an annotator"):
        make(reviewers=("person 1",))
    with pytest.raises(ConfigError, match="name of a reviewer"):
        make(reviewers=("a\nb",))
    with pytest.raises(ConfigError, match="unknown method"):
        make(method="dawid")
    with pytest.raises(DataError, match="nothing to decide"):
        make(export=export_of([["a", "a"], ["a", "a"]], None)[0])
    with pytest.raises(DataError, match="2 items, but the annotations cover 3"):
        export_of([[0, 1], [1, 1], [0, 0]], ["a", "b"])
    session = make()
    for wrong in ({"item": 60, "label": 0}, {"item": None, "label": 0}, {"item": 3, "label": 3}, {"item": 3}):
        with pytest.raises(DataError, match="out of range"):
            session.answer(ME, "label", **wrong)
    with pytest.raises(DataError, match="are the most"):
        session.answer(ME, "comment", 3, comment="x" * 3000)


def test_items_from_python(tmp_path):
    votes = [[0, 1], [1, 1], [0, 0]]
    assert export_of(votes, ["a", "b", None])[0].texts.to_pylist() == ["a", "b", None]
    assert export_of(votes, np.array(["a", "b", "c"]))[0].texts.to_pylist() == ["a", "b", "c"]
    assert export_of(votes, ["a.png", "b.jpg", "c.png"])[1] == ["a.png", "b.jpg", "c.png"]
    pixels = np.zeros((3, 8, 8))
    assert export_of(votes, pixels)[1] is pixels
    export, pictures = export_of(votes, np.zeros((3, 5)))
    assert (export.texts, pictures) == (None, None)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.arrow"])
@pytest.mark.parametrize("to", ["table", "crowd-kit"])
def test_an_export_reads_back_equal(make, tmp_path, name, to):
    session = make(reviewers=("ann", "=bob"))
    for item in range(10):
        session.answer("ann", "label", item, item % 3, seconds=1.5)
    session.answer("=bob", "label", 3, 1)
    save(session, tmp_path / name, to=to)
    back = read(tmp_path / name)
    assert triples(back.annotations) == triples(session.settle().annotations)
    assert len(back.annotations) == 240 + 11
    assert np.isnat(back.timestamps[:240]).all()
    assert not np.isnat(back.timestamps[240:]).any()
    assert back.durations[240] == 1.5


def test_label_studio_gets_annotations_and_predictions(make, tmp_path):
    session = make(export=tasks(tmp_path / "tasks.json"))
    session.answer(ME, "label", 0, 0)
    save(session, tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    assert len(written[0]["annotations"]) == 4
    assert written[0]["predictions"][0]["model_version"].startswith("crowdwise")
    assert written[0]["predictions"][0]["result"][0]["from_name"] == "kind"
    back = read(tmp_path / "out.json")
    assert triples(back.annotations) == triples(session.settle().annotations)  # the consensus is not read as a label


def test_the_labels_say_who_reviewed_and_what_was_remarked(make, tmp_path):
    session = make()
    session.answer(ME, "label", 3, 1, comment='=1+1 "quoted"')
    rows = consensus_labels(session).to_pylist()
    assert rows[3]["reviewed_by"] == ME
    assert rows[3]["comment"] == '=1+1 "quoted"'
    assert rows[4]["reviewed_by"] is None
    save(session, tmp_path / "labels.csv", "labels")
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 61


WEIGHTED = [("a", "x", 5.0), ("b", "y", 1.0), ("c", "y", 1.5)]


@pytest.fixture
def weighted(tmp_path):
    """Six items with three labels of different weights each; with a column that nobody knows, and one of confidences."""
    lines = [f"{k},{who},{label},{weight},{who}{k},0.5" for k in range(6) for who, label, weight in WEIGHTED]
    path = tmp_path / "weighted.csv"
    path.write_text("\n".join(["item,worker,label,weight,batch,confidence", *lines]))
    return read(path)


def test_weights_of_the_crowd_stay_after_an_answer(make, weighted):
    session = make(export=weighted, method="majority-vote")
    assert session.consensus.label.tolist() == [0] * 6
    session.answer(ME, "label", 2, 1)
    now = session.settle()
    assert now.label.tolist() == [0, 0, 1, 0, 0, 0]
    crowd = now.annotations
    pairs = zip(crowd.instance.tolist(), crowd.annotator.tolist(), strict=True)
    weight = dict(zip(pairs, crowd.weight.tolist(), strict=True))
    assert weight == {(k, who): w for k in range(6) for who, (_, _, w) in enumerate(WEIGHTED)} | {(2, 3): 1.0}


def test_weights_and_other_columns_are_exported_with_the_answers(make, weighted, tmp_path):
    session = make(export=weighted)
    session.answer(ME, "label", 2, 1, seconds=2.0)
    save(session, tmp_path / "out.csv")
    back = read(tmp_path / "out.csv")
    crowd = back.annotations
    rows = {
        (int(item), str(who)): float(w)
        for item, who, w in zip(
            crowd.instances[crowd.instance], crowd.annotators[crowd.annotator], crowd.weight, strict=True
        )
    }
    assert rows == {(k, who): w for k in range(6) for who, _, w in WEIGHTED} | {(2, ME): 1.0}
    assert back.extra["batch"].to_pylist() == [f"{who}{k}" for k in range(6) for who, _, _ in WEIGHTED] + [None]
    np.testing.assert_array_equal(back.confidences, [0.5] * 18 + [np.nan])


def test_skill_and_disagreement_count_weights():
    posterior = np.array([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5], [1.0, 0.0]])
    rows = [(0, 0, 0, 2.0), (0, 1, 1, 0.5), (0, 2, 0, 1.0), (1, 0, 1, 0.25), (1, 1, 0, 4.0), (2, 0, 1, 3.0)]
    i, j, y, w = (np.array(column) for column in zip(*rows, strict=True))
    sizes = {"n_instances": 4, "n_annotators": 4, "n_classes": 2}
    for weight in (w, None):
        crowd = Annotations.from_triples(i, j, y, weight=weight, **sizes)
        given = np.ones(len(rows)) if weight is None else w
        now = Consensus(0, "", "", crowd, posterior, np.zeros(4, bool))
        for who in range(3):
            own = j == who
            assert now.skill[who] == pytest.approx(np.average(posterior[i[own], y[own]], weights=given[own]))
        assert np.isnan(now.skill[3])
        for item in range(4):
            pairs = list(combinations(np.flatnonzero(i == item).tolist(), 2))
            all_pairs = sum(given[k] * given[m] for k, m in pairs)
            differing = sum(given[k] * given[m] * (y[k] != y[m]) for k, m in pairs)
            assert now.disagreement[item] == pytest.approx(differing / all_pairs if pairs else 0)


def test_without_answers_the_export_is_the_file(make, export):
    assert all_annotations(make()) is export


def test_reviews_that_find_more_errors_than_promised_lower_the_outlook():
    confidence = np.full(100, 0.9)
    fresh = outlook(confidence, [], 2, 0.97)
    assert fresh.low < fresh.right < fresh.high
    assert fresh.right == pytest.approx(0.9)
    assert fresh.more == 100
    worse = outlook(confidence, [(0.9, False)] * 20, 2, 0.97)
    better = outlook(confidence, [(0.9, True)] * 100, 2, 0.97)
    assert worse.right < fresh.right < better.right
    assert better.high - better.low < fresh.high - fresh.low
    mixed = outlook(np.array([0.5] * 10 + [0.99] * 90), [], 2, 0.97)
    assert 0 < mixed.more <= 10


def test_checks_of_doubtful_items_tell_less_about_the_rest_than_checks_at_random():
    rest, found = np.full(1000, 0.95), [(0.5, False)] * 20 + [(0.5, True)] * 5
    doubtful = outlook(rest, found, 2, 0.97)
    at_random = outlook(rest, [(0.95, False)] * 5 + [(0.95, True)] * 20, 2, 0.97)
    assert doubtful.right > 0.94  # although four of five were wrong
    assert at_random.right < 0.94


def test_where_nothing_can_be_compared_only_reviews_tell_how_good_the_rest_is(make, tmp_path):
    crowd = Annotations.from_triples(range(200), [0] * 200, [0, 1] * 100, annotators=["ann"], classes=["ok", "fraud"])
    session = make(export=export_of(crowd, None)[0], target=0.9)
    fresh = session.progress(ME)
    assert fresh.outlook is None
    assert not fresh.enough
    items = [session.next_item(ME, View())]
    shown = session.shown(items[0], ME)
    assert shown["likely"] == []
    assert shown["votes"][0][1] == [{"name": "ann", "kind": "", "skill": None}]
    assert session.rows(np.array(items), ME)[0]["doubt"] is None
    for _ in range(12):
        session.answer(ME, "label", items[-1], items[-1] % 2)  # as ann said
        session.settle()
        items.append(session.next_item(ME, View()))
    assert items != sorted(items)  # drawn at random, so that they speak for the rest
    now = session.progress(ME)
    assert (now.agreeing, now.checked) == (12, 12)
    assert now.outlook == measured(12, 12, 188, 0.9)
    assert now.enough
    assert session.answers.labels[ME, items[0]].answer.confidence is None


def test_an_answer_costs_one_fit_of_a_quick_method(make, monkeypatch):
    """What keeps the page quick: a committee would fit several methods, and again for its weights."""
    quick = AGGREGATORS[FAST]
    rounds: list[int] = []
    fit = quick.fit_crowd

    def counted(self, crowd):
        fitted = fit(self, crowd)
        rounds.append(fitted.n_iter_)
        return fitted

    monkeypatch.setattr(quick, "fit_crowd", counted)
    rng = np.random.default_rng(0)
    truth, instance = rng.integers(4, size=3_334), np.repeat(np.arange(3_334), 3)
    label = np.where(rng.random(len(instance)) < 0.7, truth[instance], rng.integers(4, size=len(instance)))
    crowd = Annotations.from_triples(instance, rng.integers(50, size=len(instance)), label)
    assert suitable_method(MemoryCrowd.of(crowd))[0] == SLOW  # what the other commands would take
    session = make(export=export_of(crowd, None)[0])
    for item in range(4):
        before = len(rounds)
        session.answer(ME, "label", item, 0)
        assert session.settle().method == FAST
        assert len(rounds) == before + 1
    assert max(rounds) <= quick().max_iter


def test_many_threads_answer_at_once(make):
    names = tuple(f"r{k}" for k in range(8))
    session: Session = make(reviewers=names)

    def work(name: str) -> None:
        for _ in range(5):
            item = session.next_item(name, View())
            assert item is not None
            session.answer(name, "label", item, 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.settle()
    assert session.progress("r0").reviewed == 40
    session.close()
    assert make(reviewers=names).progress("r0").reviewed == 40
