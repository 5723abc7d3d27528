"""The parts of a comparison by hand: what predictions are held against, errors, folds, records, what is recommended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise import CE, Annotations, GeoCrowdNet
from crowdwise.aggregation import HierarchicalDawidSkene, MajorityVote
from crowdwise.comparison import fits, run
from crowdwise.comparison.candidates import Candidate, LogisticRegression, choose_candidates
from crowdwise.comparison.judge import Estimate, Expectation, Yardstick, expectation, is_at_chance, ratio
from crowdwise.comparison.result import Comparison, Entry
from crowdwise.errors import ConfigError, DataError, ModelFileError
from engine_helpers import crowd

SUPPORT = np.array([[2.0, 0.5], [0.0, 1.0], [0.0, 0.0], [1.5, 1.5], [3.0, 0.0]])
PREDICTED = np.array([0, 0, 1, 1, -1])


def linearised(values: list[float], weights: list[float]) -> tuple[float, float]:
    """A ratio and its standard error, from the formula of the docstring."""
    n, share = len(values), sum(values) / sum(weights)
    squares = sum((v - share * w) ** 2 for v, w in zip(values, weights, strict=True))
    return share, math.sqrt(squares * n / (n - 1)) / sum(weights)


def test_scores_differences_and_chance_by_hand() -> None:
    yardstick = Yardstick(SUPPORT)
    assert yardstick.hits(PREDICTED).tolist() == [2, 0, 0, 1.5, 0]
    assert yardstick.weight.tolist() == [2.5, 1, 0, 3, 3]
    assert yardstick.score(PREDICTED) == pytest.approx(linearised([2, 0, 1.5], [2.5, 1, 3]))
    other = np.array([1, 1, 0, -1, 0])
    assert yardstick.difference(PREDICTED, other) == pytest.approx(linearised([2 - 0.5, 0 - 1.0], [2.5, 1]))
    folds = [np.array([0, 2]), np.array([1, 3, 4])]
    expected = [0.5 * 2.0 + 0.5 * 0.5, 0.5 * 0 + 0.5 * 1, 0.5 * 1.5 + 0.5 * 1.5]
    found = yardstick.beyond_chance(PREDICTED, folds)
    assert found == pytest.approx(linearised([2 - expected[0], 0 - expected[1], 1.5 - expected[2]], [2.5, 1, 3]))
    nothing = ratio(np.ones(3), np.zeros(3), np.ones(3, bool))
    assert math.isnan(nothing.value)
    assert ratio(np.ones(1), np.ones(1), np.ones(1, bool)) == (1.0, 0.0)


def test_gold_counts_one_each() -> None:
    yardstick = Yardstick.from_gold(np.array([1, -1, 0]), 2)
    assert yardstick.support.tolist() == [[0, 1], [0, 0], [1, 0]]
    assert yardstick.gold
    assert not Yardstick(SUPPORT).gold


def test_chance_is_harder_to_leave_the_more_methods_are_tried() -> None:
    assert is_at_chance(Estimate(2.30, 1.0), 1)
    assert not is_at_chance(Estimate(2.35, 1.0), 1)
    assert is_at_chance(Estimate(2.35, 1.0), 2)
    assert is_at_chance(Estimate(2.55, 1.0), 2)
    assert not is_at_chance(Estimate(2.60, 1.0), 2)
    assert is_at_chance(Estimate(math.nan, math.nan), 1)


def joined_fit(annotations: Annotations, predicted: Any, weight: Any = None) -> HierarchicalDawidSkene:
    """Dawid-Skene with the predictions as the labels of one more annotator."""
    triples = [*zip(annotations.instance, annotations.annotator, annotations.label, strict=True)]
    triples += [(i, annotations.n_annotators, y) for i, y in enumerate(predicted) if y >= 0]
    return HierarchicalDawidSkene(random_state=0).fit(
        Annotations.from_triples(*zip(*triples, strict=True), n_instances=len(predicted), n_classes=3, weight=weight)
    )


def test_what_to_expect_is_what_labels_and_predictions_say_together() -> None:
    _, annotations, y = crowd(80)
    annotations = annotations.where(annotations.instance > 4)  # five have no labels
    rng = np.random.default_rng(0)
    predicted = np.where(rng.random(80) < 0.8, y, (y + 1) % 3)
    predicted[60:] = -1
    together = joined_fit(annotations, predicted)
    votes = MajorityVote().fit(annotations).posterior_.argmax(1)
    at = np.arange(5, 60)
    found = expectation(annotations, predicted, None)
    assert found.classifier == pytest.approx(together.skill_[-1])
    assert found.labels == pytest.approx(together.posterior_[at].max(1).mean())
    assert found.by_vote == pytest.approx(together.posterior_[at, votes[at]].mean())
    gold = np.where(np.arange(80) % 3 > 0, y, -1)
    known = np.flatnonzero((gold >= 0) & (predicted >= 0))
    both = known[known > 4]
    found = expectation(annotations, predicted, gold)
    assert found.classifier == pytest.approx((predicted == y)[known].mean())
    assert found.labels == pytest.approx((together.posterior_.argmax(1) == y)[both].mean())
    assert found.by_vote == pytest.approx((votes == y)[both].mean())


@pytest.mark.filterwarnings("ignore:.*usually weigh")
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_predictions_weigh_as_much_as_labels_usually_do(scale: float) -> None:
    _, annotations, y = crowd(80)
    weight = scale * np.random.default_rng(1).choice([0.5, 1.0, 1.0, 2.0], len(annotations))
    sizes = {"n_instances": 80, "n_annotators": 8, "n_classes": 3}
    heavy = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, **sizes, weight=weight
    )
    predicted = np.where(np.arange(80) % 4 > 0, y, (y + 1) % 3)
    together = joined_fit(annotations, predicted, np.append(weight / scale, np.ones(80)))
    assert expectation(heavy, predicted, None).classifier == pytest.approx(together.skill_[-1], abs=1e-4)


def test_soft_labels_of_one_annotator_each_cannot_be_compared() -> None:
    soft = Annotations.from_triples([0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], weight=[0.9, 0.1, 0.2, 0.8])
    assert math.isnan(expectation(soft, np.array([0, 1]), None).classifier)


# fits


def test_fingerprints_tell_all_data_apart() -> None:
    X = np.arange(6.0).reshape(3, 2)
    triples = [0, 1, 2], [0, 1, 0], [0, 1, 1]
    plain = Annotations.from_triples(*triples)
    others = [
        (X + 1, plain),
        (X, Annotations.from_triples(*triples, weight=[1.0, 2.0, 1.0])),
        (X, Annotations.from_triples(*triples, weight=[2.0, 1.0, 1.0])),
        (X, Annotations.from_triples([0, 1, 2], [0, 1, 1], [0, 1, 1])),
        (X, Annotations.from_triples(*triples, classes=["a", "b"])),
        (X, Annotations.from_triples(*triples, n_annotators=3)),
        (["a", "b", "c"], plain),
        (["a", "b", "d"], plain),
    ]
    found = [fits.fingerprint(X, plain), *(fits.fingerprint(*each) for each in others)]
    assert len(set(found)) == len(found)
    assert fits.fingerprint(X.copy(), Annotations.from_triples(*triples)) == found[0]


def test_a_model_of_other_parameters_is_another() -> None:
    def described(**parameters: Any) -> str:
        return fits.describe(Candidate("ce", "CE", CE(**parameters)))

    assert described(steps=3) != described(steps=4)
    assert described(steps=3) == described(steps=3, verbose=2, device="cpu")


def tasks_of(n: int = 12, folds: int = 3) -> tuple[list[fits.Task], list[Any]]:
    X, annotations, _ = crowd(n)
    parts = fits.make_folds(np.arange(n), folds, 0)
    candidates = choose_candidates(["logistic-majority-vote", "ce"], (6,), 0, "cpu")
    return run.make_tasks(X, annotations, candidates, np.arange(n), parts), parts


def test_tasks_train_on_labelled_rows_of_the_other_folds() -> None:
    X, annotations, _ = crowd(12)
    some = annotations.where(annotations.instance != 3)
    parts = fits.make_folds(np.arange(2, 12), 3, 1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(2, 12))
    assert all(np.all(np.diff(part) > 0) for part in parts)
    candidates = choose_candidates(["logistic-majority-vote", "ce"], (6,), 0, "cpu")
    tasks = run.make_tasks(X, some, candidates, np.arange(2, 12), parts)
    assert [(task.candidate.name, task.fold) for task in tasks[:3]] == [
        ("ce", 0),
        ("logistic-majority-vote", 0),
        ("ce", 1),
    ]
    for task in tasks:
        assert task.test.tolist() == parts[task.fold].tolist()
        assert task.train.tolist() == sorted(set(range(2, 12)) - {3} - set(task.test.tolist()))


def test_records_are_read_where_they_fit(tmp_path: Path) -> None:
    (task, *_), _ = tasks_of()
    records = fits.Records(tmp_path / "c", {"seed": 0})
    assert records.read(task) is None
    fit = fits.Fit(task.candidate.name, task.fold, 1.5, [0] * len(task.test), ["slow"])
    records.write(fit, task.candidate)
    assert fits.Records(tmp_path / "c", {"seed": 0}).read(task) == fit
    (path,) = (tmp_path / "c").glob("ce-*fold0.json")
    good = json.loads(path.read_text())
    for wrong in (
        {"model": "another"},
        {"error": "it failed"},
        {"predicted": [0] * (len(task.test) + 1)},
    ):
        path.write_text(json.dumps(good | wrong))
        assert records.read(task) is None
    path.write_text(json.dumps({key: value for key, value in good.items() if key != "warnings"}))
    assert records.read(task) is None
    for wrong_class in (-1, 3, 0.5):
        path.write_text(json.dumps(good | {"predicted": [wrong_class] * len(task.test)}))
        with pytest.raises(ModelFileError, match="classes from 0 to 2"):
            records.read(task)
    other = fits.Fit("ce fold", 0, 1.0, [], [])
    records.write(other, task.candidate)
    records.write(fits.Fit("ce-fold", 0, 2.0, [], []), task.candidate)
    assert len(list((tmp_path / "c").glob("ce-fold-*"))) == 2  # names that look alike as files


def test_time_is_spent_fold_by_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fit takes four seconds: within ten there is room for both methods, and for one more fit."""
    tasks, _ = tasks_of()
    now = [0.0]

    def fit(task: fits.Task) -> fits.Fit:
        now[0] += 4.0
        return fits.Fit(task.candidate.name, task.fold, 4.0, [0] * len(task.test), [])

    monkeypatch.setattr(fits, "fit_and_predict", fit)
    monkeypatch.setattr(fits.time, "monotonic", lambda: now[0])
    seen: list[tuple[str, int, int, int]] = []

    def observer(fit: fits.Fit, done: int, total: int) -> None:
        seen.append((fit.method, fit.fold, done, total))

    found = fits.run_all(tasks[::-1], records=None, seconds=12.5, jobs=1, observer=observer)
    assert sorted((each.method, each.fold) for each in found) == [
        ("ce", 0),
        ("ce", 1),
        ("logistic-majority-vote", 0),
    ] or (
        sorted((each.method, each.fold) for each in found)
        == [("ce", 0), ("logistic-majority-vote", 0), ("logistic-majority-vote", 1)]
    )
    assert [each[2] for each in seen] == [1, 2, 3]
    assert seen[0][3] == 6
    assert len(fits.run_all(tasks, records=None, seconds=None, jobs=1, observer=None)) == 6


def test_logistic_regression_knows_classes_that_no_label_has() -> None:
    X, annotations, _ = crowd(40)
    some = annotations.where(annotations.label < 2)
    few = Annotations.from_triples(some.instance, some.annotator, some.label, n_instances=40, n_classes=4)
    model = LogisticRegression("majority-vote", 0).fit(X, few)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.all(proba[:, 2:] == 0)
    one = Annotations.from_triples(np.arange(40), [0] * 40, [1] * 40, n_classes=2)
    assert LogisticRegression("majority-vote", 0).fit(X, one).predict_proba(X)[:, 1].tolist() == [1] * 40


# what is said


def entry(method: str, score: float, behind: float = 0.0, error: float = 0.01, **options: Any) -> Entry:
    return Entry(method, method.title(), score, 0.01, behind, error, options.get("at_chance", False), 5, 1.25)


def test_recommendations_by_hand() -> None:
    alone = [entry("concord", 0.8), entry("ce", 0.7, 0.1)]
    assert run.recommend(alone, alone[1])[1] == "Recommended: Concord, which has the highest score."
    exactly = [entry("ce", 0.8), entry("concord", 0.75, behind=0.02, error=0.01)]
    assert run.recommend(exactly, exactly[0])[0].method == "concord"
    lost = [entry("ce", 0.8), entry("concord", 0.79, behind=0.01, at_chance=True)]
    assert run.recommend(lost, lost[0])[0].method == "ce"
    without = [entry("ce", 0.8), entry("bltm", 0.79, behind=0.001)]
    assert run.recommend(without, without[1])[0].method == "ce"


def test_lines_of_python_are_those_that_train_it() -> None:
    votes, ds = choose_candidates(["logistic-majority-vote", "logistic-dawid-skene"], (3,), 0, "cpu")
    start = "model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, crowdwise.aggregation."
    assert run.next_line(votes) == start + "MajorityVote().fit_predict(annotations))"
    assert run.next_line(ds) == start + "HierarchicalDawidSkene().fit_predict(annotations))"
    assert "TfidfVectorizer()" in run.next_line(ds, text=True)
    own = Candidate("mine", "Mine", GeoCrowdNet(steps=9, verbose=0))
    assert run.next_line(own) == "model = crowdwise.GeoCrowdNet(steps=9).fit(X, annotations)"


def comparison(**changes: Any) -> Comparison:
    entries = (entry("ce", 0.812), entry("bltm", 0.75, 0.062, 0.02), entry("agg-net", 0.5, 0.312, at_chance=True))
    found = {
        "entries": entries,
        "failed": {"forward": "it broke"},
        "recommended": "ce",
        "reason": "Recommended: Ce.",
        "expected": Expectation(0.81, 0.9, 0.85),
        "next_step": "go",
        "gold": False,
        "n_judged": 1200,
        "notes": ("a note",),
    }
    return Comparison(**(found | changes))


def test_a_ranking_as_text_and_as_a_file(tmp_path: Path) -> None:
    found = comparison()
    columns, rows = found.table()
    assert columns[1] == "agreement"
    assert rows[0] == ["Ce", "81.2 ± 1.0", "-", "5", "1.2", ""]
    assert rows[1] == ["Bltm", "75.0 ± 1.0", "6.2 ± 2.0", "5", "1.2", ""]
    assert rows[2][5] == "no better than chance"
    assert found.remarks() == ["forward: failed: it broke", "a note"]
    assert found["bltm"].behind == 0.062
    assert not found.at_chance
    assert found.judged_by.endswith("on 1,200 instances.")
    assert comparison(gold=True).table()[0][1] == "accuracy"
    found.save(tmp_path)
    assert Comparison.load(tmp_path) == found
    blind = comparison(expected=Expectation(math.nan, math.nan, math.nan))
    blind.save(tmp_path)
    assert str(Comparison.load(tmp_path)) == str(blind)
    (tmp_path / "result.json").write_text('{"entries": []}')
    with pytest.raises(ModelFileError, match="is damaged"):
        Comparison.load(tmp_path)


def test_expectations_in_words() -> None:
    said = comparison().expectation
    assert said.startswith("The classifier should be right on about 81% of new instances. Labels from it")
    assert said.endswith("should be right on about 90% of the labelled instances, majority votes on 85%.")
    assert "was right on about 81%" in comparison(gold=True).expectation
    assert comparison(expected=Expectation(0.5, math.nan, math.nan)).expectation.endswith("50% of new instances.")
    assert "cannot be told" in comparison(expected=Expectation(math.nan, 0.5, 0.5)).expectation
    lost = comparison(entries=(entry("ce", 0.3, at_chance=True),))
    assert lost.at_chance
    assert lost.expectation == "Do not expect a useful classifier."


def test_samples_take_gold_first() -> None:
    annotations = Annotations.from_triples([0, 1, 2, 4, 5, 6], [0] * 6, [0, 1, 0, 1, 0, 1], n_instances=8)
    gold = np.array([-1, -1, -1, 1, -1, -1, 0, -1])
    rows, notes = run._sample(annotations, gold, 3, 0)
    assert {3, 6} <= set(rows.tolist()) <= {0, 1, 2, 3, 4, 5, 6}
    assert rows.tolist() == sorted(rows.tolist())
    assert notes == ["3 of 7 instances were drawn for the comparison."]
    assert run._sample(annotations, None, 6, 0) == (pytest.approx([0, 1, 2, 4, 5, 6]), [])
    assert run._sample(annotations, None, None, 0)[0].tolist() == [0, 1, 2, 4, 5, 6]
    first, other = (run._sample(annotations, None, 3, seed)[0].tolist() for seed in (0, 5))
    assert first != other


def test_candidates_are_named_by_the_caller_or_by_the_size_of_pictures() -> None:
    plain = [each.name for each in choose_candidates(None, (32, 32), 0, "cpu")]
    assert plain[:2] == ["logistic-majority-vote", "logistic-dawid-skene"]
    assert [each.name for each in choose_candidates(None, (32, 33), 0, "cpu")] == plain[2:]
    assert [each.name for each in choose_candidates(None, (5000,), 0, "cpu")] == plain
    (own,) = choose_candidates({"Mine": "ce"}, (3,), 7, "cpu")
    assert (own.name, own.title, own.model.random_state) == ("Mine", "Mine", 7)
    with pytest.raises(ConfigError, match="must be different names"):
        choose_candidates([], (3,), 0, "cpu")


def test_gold_must_be_known_for_some_instance() -> None:
    annotations = Annotations.from_triples([0, 1], [0, 0], [0, 1], n_instances=3)
    assert run.known_truth([None, 1, None], annotations).tolist() == [-1, 1, -1]
    with pytest.raises(DataError, match="gold has no class for any instance"):
        run.known_truth([None, None, None], annotations)
