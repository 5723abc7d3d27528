"""`crowdwise.compare`: what it chooses, how sure it is, and that it neither forgets nor hides anything."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import parallel_config

import crowdwise
from crowdwise import CE, Annotations, GeoCrowdNet, compare
from crowdwise.comparison import fits, run
from crowdwise.comparison.candidates import LogisticRegression, choose_candidates
from crowdwise.comparison.judge import Yardstick, expectation, is_at_chance, ratio
from crowdwise.comparison.result import Comparison, Entry
from crowdwise.encoders import Tfidf
from crowdwise.errors import AnnotationError, ConfigError, DataError, ModelFileError, TrainingError
from crowdwise.methods.core.base import CrowdClassifier
from engine_helpers import crowd

PLAIN = ["logistic-majority-vote", "logistic-dawid-skene"]
FEW = {"folds": 3, "jobs": 1}
QUICK = {name: name for name in PLAIN} | {"ce": CE(steps=30)}


@pytest.fixture
def memorising(monkeypatch):
    """A stand-in for a method that does badly: it always answers the class 0 or 1, whatever it is asked."""

    def predict_proba(self, X):
        answer = np.zeros((len(X), 3))
        answer[np.arange(len(X)), np.arange(len(X)) % 2] = 1
        return answer

    monkeypatch.setattr(CE, "predict_proba", predict_proba)


def random_labels(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 5)), rng.integers(3, size=(n, 4))


def entry(method: str, score: float, behind: float = 0.0, error: float = 0.01, at_chance: bool = False) -> Entry:
    return Entry(method, method.title(), score, 0.01, behind, error, at_chance, 5, 1.0)


# what it chooses


def test_the_choice_is_close_to_the_best_on_simulated_crowds():
    for seed in (0, 1):
        X, annotations, y = crowd(300, seed=seed, rate=0.3)
        X_train, X_test, train = X[:200], X[200:], annotations.select(instances=np.arange(200))
        methods = QUICK | {"geo-crowd-net": GeoCrowdNet(steps=60)}
        found = compare(X_train, train, methods=methods, seconds=None, seed=seed, **FEW)
        accuracy = {}
        for candidate in choose_candidates(methods, X.shape[1:], seed, "cpu"):
            predicted = candidate.model.fit(X_train, train).predict_proba(X_test).argmax(1)
            accuracy[candidate.name] = (predicted == y[200:]).mean()
        assert accuracy[found.recommended] >= max(accuracy.values()) - 0.02
        assert not found.at_chance


def test_entries_are_ranked_and_differences_are_to_the_best(memorising):
    X, annotations, _ = crowd()
    found = compare(X, annotations, methods=QUICK, **FEW)
    scores = [each.score for each in found.entries]
    assert scores == sorted(scores, reverse=True)
    assert found.entries[-1].method == "ce"
    assert found.best.behind == 0
    worst = found["ce"]
    assert worst.behind == pytest.approx(found.best.score - worst.score)
    assert worst.behind > 3 * worst.behind_error > 0


def test_concord_is_preferred_within_two_standard_errors():
    close = [entry("ce", 0.70), entry("concord", 0.685, behind=0.015)]
    chosen, reason = run.recommend(close, simplest=close[0])
    assert chosen.method == "concord"
    assert "within two standard errors" in reason
    apart = [entry("ce", 0.70), entry("concord", 0.675, behind=0.025)]
    chosen, reason = run.recommend(apart, simplest=apart[0])
    assert chosen.method == "ce"
    assert "2.5 ± 1.0 points higher than Concord" in reason


def test_the_simplest_is_recommended_where_nothing_is_learnt():
    nothing = [entry("concord", 0.4, at_chance=True), entry("logistic-majority-vote", 0.3, at_chance=True)]
    chosen, reason = run.recommend(nothing, simplest=nothing[1])
    assert chosen.method == "logistic-majority-vote"
    assert "No method does better than chance" in reason


@pytest.mark.parametrize("seed", range(3))
def test_chance_does_not_pass_silently(seed):
    X, labels = random_labels(seed=seed)
    found = compare(X, labels, methods=QUICK, **FEW)
    assert found.at_chance
    assert found.recommended == PLAIN[0]
    assert str(found).count("no better than chance") == len(QUICK)
    assert "Check that the rows of X belong" in str(found)
    assert "Do not expect a useful classifier" in str(found)


def test_a_frequent_class_alone_is_chance_and_a_rare_class_found_is_not():
    rng = np.random.default_rng(0)
    rare = (rng.random(500) < 0.1).astype(int)
    yardstick, folds = Yardstick.from_gold(rare, 2), fits.make_folds(np.arange(500), 5, 0)
    assert is_at_chance(yardstick.beyond_chance(np.zeros(500, int), folds), 1)
    cautious = np.where(rng.random(500) < 0.15, 1, rare)  # less accurate than always 0, and yet it knows something
    assert yardstick.score(cautious).value < yardstick.score(np.zeros(500, int)).value
    assert not is_at_chance(yardstick.beyond_chance(cautious, folds), 1)


# how it judges


def test_labels_count_as_much_as_their_annotators_are_better_than_chance():
    _, annotations, _ = crowd(400, n_annotators=6, rate=1.0)
    guess = np.random.default_rng(0).integers(3, size=len(annotations))
    label = np.where(annotations.annotator == 5, guess, annotations.label)
    noisy = Annotations.from_triples(annotations.instance, annotations.annotator, label, n_instances=400, n_classes=3)
    support = Yardstick.from_annotations(noisy).support
    of = {
        j: support[noisy.instance[label_of], noisy.label[label_of]] for j in (5,) for label_of in [noisy.annotator == j]
    }
    assert support.sum(1).max() < 5.2  # the one who guesses adds next to nothing
    assert of[5].min() < 0.2


def test_standard_errors_are_those_of_repeated_samples():
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 4, size=(2000, 300)).astype(float)
    values = rng.binomial(weights.astype(int), 0.6).astype(float)
    estimates = [ratio(v, w, np.ones(300, bool)) for v, w in zip(values, weights, strict=True)]
    spread = np.std([each.value for each in estimates])
    assert np.mean([each.error for each in estimates]) == pytest.approx(spread, rel=0.05)


def test_paired_differences_are_surer_than_scores():
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=400)
    first = np.where(rng.random(400) < 0.7, truth, 0)
    second = np.where(rng.random(400) < 0.05, truth, first)
    yardstick = Yardstick.from_gold(truth, 3)
    assert yardstick.difference(second, first).error < 0.5 * yardstick.score(first).error


def test_gold_judges_and_never_trains(monkeypatch):
    X, annotations, y = crowd(200)
    seen = []
    original = LogisticRegression.fit

    def fit(self, X, annotations):
        seen.append(annotations)
        return original(self, X, annotations)

    monkeypatch.setattr(LogisticRegression, "fit", fit)
    wrong = (y + 1) % 3
    found = compare(X, annotations, methods=PLAIN, gold=wrong, **FEW)
    assert found.gold
    assert found.best.score < 0.2
    assert found.expected.classifier < 0.2
    without = compare(X, annotations, methods=PLAIN, **FEW)
    assert all(a == b for a, b in zip(seen[: len(seen) // 2], seen[len(seen) // 2 :], strict=True))
    assert not without.gold


def test_gold_of_some_instances_may_be_a_mapping_from_ids():
    X, annotations, y = crowd(200)
    named = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, instances=[f"i{k}" for k in range(200)],
        classes=["a", "b", "c"],
    )  # fmt: skip
    gold = {f"i{k}": "abc"[y[k]] for k in range(40)}
    found = compare(X, named, methods=PLAIN, gold=gold, **FEW)
    assert found.n_judged == 40
    series = compare(X, named, methods=PLAIN, gold=pd.Series(gold), **FEW)
    assert [each.score for each in series.entries] == [each.score for each in found.entries]
    assert "Only 40 instances have gold labels" in str(found)
    with pytest.raises(AnnotationError, match="'z' is unknown; known: 'a', 'b', 'c'"):
        compare(X, named, methods=PLAIN, gold=gold | {"i3": "z"}, **FEW)
    with pytest.raises(DataError, match="instances without a row in X: 'nobody'"):
        compare(X, named, methods=PLAIN, gold={"nobody": "a"}, **FEW)


def test_what_to_expect_is_near_the_truth():
    X, annotations, y = crowd(500, rate=0.5)
    found = compare(X, annotations, methods=PLAIN, **FEW)
    measured = compare(X, annotations, methods=PLAIN, gold=y, **FEW)
    assert found.expected.classifier == pytest.approx(measured["logistic-dawid-skene"].score, abs=0.04)
    right = measured.expected.labels
    assert right - 0.08 < found.expected.labels < right + 0.04  # cautious, as errors might not be independent
    assert "The classifier should be right on about" in found.expectation


def test_one_label_an_instance_says_nothing_of_how_often_it_is_right():
    X, annotations, y = crowd(300, rate=0.5)
    _, first = np.unique(annotations.instance, return_index=True)
    single = annotations.where(np.isin(np.arange(len(annotations)), first))
    found = compare(X, single, methods=PLAIN, **FEW)
    assert np.isnan(found.expected.classifier)
    assert "cannot be told" in found.expectation
    assert compare(X, single, methods=PLAIN, gold=y, **FEW).expected.classifier > 0.9


def test_expectation_without_labelled_instances_is_of_the_classifier_alone():
    annotations = Annotations.from_triples([0, 1], [0, 0], [0, 1], n_instances=4)
    expected = expectation(annotations, np.array([-1, -1, 0, 1]), np.array([-1, -1, 0, 0]))
    assert expected.classifier == 0.5
    assert np.isnan(expected.labels)


# how it runs


def test_an_interrupted_comparison_goes_on(tmp_path, monkeypatch):
    X, annotations, _ = crowd()
    whole = compare(X, annotations, methods=PLAIN, **FEW)
    calls = []

    def stop(fit, done, total):
        calls.append((fit.method, fit.fold, done, total))
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(X, annotations, methods=PLAIN, folder=tmp_path / "c", observer=stop, **FEW)
    assert len(list((tmp_path / "c").glob("*fold*.json"))) == 4
    done = []
    original = fits.fit_and_predict
    monkeypatch.setattr(fits, "fit_and_predict", lambda task: (done.append(task), original(task))[1])
    again = compare(X, annotations, methods=PLAIN, folder=tmp_path / "c", **FEW)
    assert len(done) == 2
    assert [each.score for each in again.entries] == [each.score for each in whole.entries]
    assert calls[0][3] == 6
    assert str(Comparison.load(tmp_path / "c")) == str(again)


def test_more_methods_can_join_a_comparison(tmp_path):
    X, annotations, _ = crowd()
    compare(X, annotations, methods=PLAIN[:1], folder=tmp_path, **FEW)
    seen = []
    compare(X, annotations, methods=PLAIN, folder=tmp_path, observer=lambda *each: seen.append(each), **FEW)
    assert len(seen) == 6


def test_folders_of_other_data_or_of_others_are_refused(tmp_path):
    X, annotations, _ = crowd()
    compare(X, annotations, methods=PLAIN, folder=tmp_path / "c", **FEW)
    with pytest.raises(ConfigError, match="holds a comparison with other data"):
        compare(X + 1, annotations, methods=PLAIN, folder=tmp_path / "c", **FEW)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="is not empty and holds no comparison"):
        compare(X, annotations, methods=PLAIN, folder=tmp_path / "mine", **FEW)


def test_records_with_impossible_classes_are_refused(tmp_path):
    X, annotations, _ = crowd()
    compare(X, annotations, methods=PLAIN, folder=tmp_path, **FEW)
    path = next(tmp_path.glob("logistic*fold0.json"))
    content = json.loads(path.read_text())
    content["predicted"][0] = 7
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match="predicted must hold classes from 0 to 2"):
        compare(X, annotations, methods=PLAIN, folder=tmp_path, **FEW)


def test_every_method_is_fitted_once_however_little_time_there_is():
    X, annotations, _ = crowd()
    found = compare(X, annotations, methods=PLAIN, seconds=1e-6, **FEW)
    assert [each.folds for each in found.entries] == [1, 1]


def test_methods_with_fewer_folds_are_compared_on_those():
    _, annotations, y = crowd(200)
    parts = fits.make_folds(np.arange(200), 4, 0)
    good, better = y.copy(), y.copy()
    good[np.concatenate(parts[1:])[::2]] = 0  # worse where the other was never tried
    all_fits = [fits.Fit("a", fold, 1.0, good[part].tolist(), []) for fold, part in enumerate(parts)]
    all_fits += [fits.Fit("b", 0, 9.0, better[parts[0]].tolist(), [])]
    candidates = [run.Candidate(name, name, CE()) for name in "ab"]
    found = run.judge(annotations, candidates, parts, all_fits, Yardstick.from_gold(y, 3), y)
    assert found["b"].score == pytest.approx(found["a"].score)
    assert found["b"].folds == 1


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_two_at_a_time_give_the_same_result_as_one(backend):
    X, annotations, _ = crowd(120)
    with parallel_config(backend):
        alone, two = (compare(X, annotations, methods=PLAIN, folds=2, jobs=jobs) for jobs in (1, 2))
    assert [each.score for each in alone.entries] == [each.score for each in two.entries]


def test_what_goes_to_other_processes_arrives_as_it_was():
    X, annotations, _ = crowd(120)
    candidates = choose_candidates(QUICK, X.shape[1:], 0, "cpu")
    tasks = run.make_tasks(X, annotations, candidates, np.arange(120), fits.make_folds(np.arange(120), 2, 0))
    for task in tasks:
        here, there = (fits.fit_and_predict(each) for each in (task, pickle.loads(pickle.dumps(task))))
        assert (here.method, here.fold, here.predicted) == (there.method, there.fold, there.predicted)


def test_a_method_that_fails_is_named_and_the_others_are_compared(monkeypatch):
    X, annotations, _ = crowd()

    def fail(self, X, annotations, **options):
        raise TrainingError("out of luck")

    monkeypatch.setattr(CrowdClassifier, "fit", fail)
    found = compare(X, annotations, methods=QUICK, **FEW)
    assert found.failed == {"ce": "crowdwise.errors.TrainingError: out of luck"}
    assert "ce: failed" in str(found)
    with pytest.raises(TrainingError, match=r"no method could be fitted; ce: .*out of luck"):
        compare(X, annotations, methods=["ce"], **FEW)


def test_inputs_of_every_kind_are_compared_alike():
    X, annotations, _ = crowd(150)
    expected = compare(X, annotations, methods=PLAIN, **FEW)
    frame = pd.DataFrame(X, columns=[f"column {k}" for k in range(X.shape[1])])
    for form in (X.tolist(), frame, sp.csr_array(X)):
        found = compare(form, annotations, methods=PLAIN, **FEW)
        assert [each.score for each in found.entries] == pytest.approx(
            [each.score for each in expected.entries], abs=0.01
        )


def test_pictures_are_compared_by_their_pixels_where_these_are_few():
    X, annotations, _ = crowd(90, image=True)
    assert not compare(X, annotations, methods=PLAIN, **FEW).at_chance
    names = [each.name for each in choose_candidates(None, (64, 64, 3), 0, "cpu")]
    assert not set(PLAIN) & set(names)


def test_methods_with_own_parameters_and_titles():
    X, annotations, _ = crowd(120)
    own = {"short": CE(steps=20), "shorter": CE(steps=2)}
    found = compare(X, annotations, methods=own, folds=2, jobs=1)
    assert {each.title for each in found.entries} == {"short", "shorter"}
    assert found.next_step in [f"model = crowdwise.CE(steps={n}).fit(X, annotations)" for n in (2, 20)]
    with pytest.raises(ConfigError, match=r"methods\['x'\] must be a name or a method such as Concord"):
        compare(X, annotations, methods={"x": 3}, **FEW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["cee"]}, "unknown method 'cee'; did you mean 'ce'?"),
        ({"methods": ["ce", "ce"]}, "methods must be different names"),
        ({"folds": 1}, "folds must be a whole number of at least 2, got 1"),
        ({"folds": 100}, "100 folds need at least 200 instances to judge by, got 60"),
        ({"seconds": 0}, "seconds must be positive, or None for no limit, got 0"),
        ({"gold": [0, 1]}, "gold has 2 labels, but this crowd has 60 instances"),
    ],
)
def test_impossible_wishes_are_named(options, message):
    X, annotations, _ = crowd(60)
    with pytest.raises((ConfigError, DataError), match=message.replace("?", r"\?")):
        compare(X, annotations, **(FEW | {"methods": PLAIN} | options))


def test_large_data_are_sampled():
    X, annotations, _ = crowd(200)
    found = compare(X, annotations, methods=PLAIN, max_instances=90, **FEW)
    assert found.n_judged <= 90
    assert "90 of 200 instances were drawn" in str(found)


def test_the_result_can_be_written_as_json():
    X, annotations, _ = crowd(90)
    found = crowdwise.compare(X, annotations, methods=PLAIN, **FEW)
    assert json.loads(json.dumps(found.as_dict()))["recommended"] == found.recommended


def test_texts_are_encoded_once_a_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=90)
    texts = [" ".join(rng.choice(["bad", "dull", "a", "b"] if t else ["good", "fine", "a", "b"], 6)) for t in truth]
    votes = np.where(rng.random((90, 3)) < 0.85, truth[:, None], 1 - truth[:, None])
    learnt: list[int] = []
    original = Tfidf.learn
    monkeypatch.setattr(
        Tfidf, "learn", lambda self, rows, seed: (learnt.append(len(rows)), original(self, rows, seed))[1]
    )
    methods = {
        "plain": "logistic-majority-vote",
        "ce": crowdwise.CE(epochs=3),
        "words": crowdwise.CE(epochs=3, encoder=Tfidf(characters=None)),
    }
    found = crowdwise.compare(texts, votes, methods=methods, folds=3, jobs=1)
    assert not found.failed
    assert (
        len(learnt) == 3 + 3
    )  # once for the two that leave it to crowdwise, and by the method with an encoder of its own
    assert found["plain"].score > 0.7
    assert found["ce"].score > 0.6
