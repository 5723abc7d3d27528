"""All models on one page: figures by hand, and advice that follows from them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from crowdwise import Annotations, judges
from crowdwise.errors import ConfigError, DataError
from crowdwise.judges import JudgedModel, Sides
from crowdwise.judges._people import likeliest, people_consensus, reference_of
from crowdwise.judges._summary import MissedClass, Share


def crowd_of(n: int = 120, seed: int = 0) -> tuple[Annotations, np.ndarray]:
    """Four people right in 9 of 10 items; a good model, one that never says c, and one that labels every other item."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, n, p=[0.5, 0.3, 0.2])

    def said(right: float) -> np.ndarray:
        return np.where(rng.random(n) < right, truth, (truth + rng.integers(1, 3, n)) % 3)

    blind = np.where(truth == 2, 0, said(0.95))
    blind[blind == 2] = 0
    half = np.where(np.arange(n) % 2 == 0, said(0.6), -1)
    columns = np.stack([*(said(0.9) for _ in range(4)), said(0.95), blind, half], axis=1)
    rows, who = np.nonzero(columns >= 0)
    names = ["p0", "p1", "p2", "p3", "good", "blind", "half"]
    return Annotations.from_triples(rows, who, columns[rows, who], annotators=names, classes=["a", "b", "c"]), truth


MODELS = ["good", "blind", "half"]


def gold_of(truth: np.ndarray, every: int = 1) -> dict[int, str]:
    return {i: "abc"[truth[i]] for i in range(0, len(truth), every)}


def labels_of(crowd: Annotations, name: str) -> dict[int, int]:
    mine = crowd.annotator == crowd.annotators.tolist().index(name)
    return dict(zip(crowd.instance[mine].tolist(), crowd.label[mine].tolist(), strict=True))


def test_shares_are_counted_against_gold_and_against_people() -> None:
    crowd, truth = crowd_of()
    gold = gold_of(truth, every=3)
    found = judges.summary(crowd, gold, models=MODELS)
    votes = np.zeros((len(truth), 3))
    for name in ("p0", "p1", "p2", "p3"):
        for i, y in labels_of(crowd, name).items():
            votes[i, y] += 1
    clear = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) == 1
    assert found.n_people == 4
    for model in found.models:
        said = labels_of(crowd, model.model)
        assert model.n_labels == len(said)
        known = [i for i in said if i % 3 == 0]
        assert model.gold is not None
        assert model.people is not None
        assert (model.gold.right, model.gold.total) == (sum(said[i] == truth[i] for i in known), len(known))
        assert model.people.total == len(said)
        by_votes = sum(said[i] == votes[i].argmax() for i in said if clear[i])
        assert abs(model.people.right - by_votes) <= (~clear).sum()  # ties are told apart by who labels well
    assert [model.model for model in found.models] == MODELS
    without = judges.summary(crowd, models=MODELS)
    assert all(model.gold is None for model in without.models)
    assert any("100 gold labels" in line for line in without.advice)
    assert not any("gold labels" in line for line in found.advice)


def test_the_test_is_that_of_alt_test() -> None:
    crowd, truth = crowd_of()
    found = judges.summary(crowd, gold_of(truth), models=MODELS, people="skilled")
    test = judges.alt_test(crowd, MODELS, people="skilled", random_state=0)
    assert found.epsilon == test.epsilon == 0.15
    for model, row, needed in zip(found.models, test.table.to_pylist(), test.needed.to_pylist(), strict=True):
        assert (model.passed, model.winning_rate) == (row["passed"], row["winning_rate"])
        assert model.advantage == row["advantage_probability"]
        assert (model.needed_epsilon, model.needed_instances) == (needed["epsilon"], needed["n_instances"])
    assert [model.passed for model in found.models] == [True, False, False]
    assert judges.summary(crowd, models=MODELS, epsilon=0.9).models[2].passed
    assert judges.summary(crowd, models=MODELS, epsilon=0.9).epsilon == 0.9


def test_classes_that_a_model_never_finds_are_named() -> None:
    crowd, truth = crowd_of()
    c = int(np.sum(truth == 2))
    for gold in (gold_of(truth), None):
        by_name = {model.model: model for model in judges.summary(crowd, gold, models=MODELS).models}
        assert by_name["good"].missed == by_name["half"].missed == ()
        (missed,) = by_name["blind"].missed
        assert (missed.name, missed.found) == ("c", 0)
        assert missed.total == c if gold else abs(missed.total - c) <= 5
    few = gold_of(truth) | {int(i): "a" for i in np.flatnonzero(truth == 2)[3:]}
    by_name = {model.model: model for model in judges.summary(crowd, few, models=MODELS).models}
    assert by_name["blind"].missed == ()  # three items of a class are too few to say so
    assert str(MissedClass("c", 0, 8)) == "'c' (0 of 8 found)"


def model_of(**given: Any) -> JudgedModel:
    plain: dict[str, Any] = {"model": "m", "n_labels": 50, "people": None, "gold": None, "passed": False}
    plain |= {"winning_rate": 0.2, "advantage": 0.6, "needed_epsilon": None, "needed_instances": None}
    return JudgedModel(**(plain | given))


def test_the_verdict_says_what_to_do() -> None:
    missed = (MissedClass("c", 0, 8),)
    assert model_of(passed=None).verdict == "cannot be determined"
    assert model_of().verdict == "keep people"
    assert model_of(needed_epsilon=0.234).verdict == "keep people (passes at 0.23)"
    assert model_of(passed=True).verdict == "may replace a person"
    assert model_of(passed=True, missed=missed).verdict == "may replace a person, but misses a class"
    assert model_of(passed=False, missed=missed).verdict == "keep people"


def page(models: list[JudgedModel], dependence: Any = None, no_test: str | None = None) -> judges.JudgedModels:
    return judges.JudgedModels(models, 4, 0.1, dependence, no_test)


def test_advice_names_the_best_of_the_models_that_pass() -> None:
    models = [
        model_of(model="worst", passed=False, advantage=0.99),
        model_of(model="good", passed=True, advantage=0.8),
        model_of(model="best", passed=True, advantage=0.9, gold=Share(9, 10)),
    ]
    assert page(models).advice[0].startswith("best may label in place of a person")
    assert not any("gold" in line for line in page(models).advice)
    assert page(models[:1]).advice[0].startswith("No model may replace people")
    assert "Some 100 gold labels" in page(models[:1]).advice[-1]
    reason = page(models, no_test="people gave a single class").advice[0]
    assert reason == "Whether a model may replace people cannot be determined: people gave a single class."
    missing = [model_of(model="m", missed=(MissedClass("c", 0, 8), MissedClass("d", 1, 9)))]
    assert "m finds hardly any of 'c' (0 of 8 found), 'd' (1 of 9 found)" in page(missing).advice[1]


def test_models_that_err_alike_are_said_to() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    common = np.where(rng.random(300) < 0.75, truth, 1 - truth)
    own = np.where(rng.random((300, 4)) < 0.75, truth[:, None], 1 - truth[:, None])
    for labels, alike in ((np.stack([common] * 3, axis=1), True), (own[:, :3], False)):
        found = judges.summary(labels, truth, models=[0, 1, 2])
        assert any("err alike" in line for line in found.advice) == alike
        assert found.dependence is not None
        votes = found.dependence.effective_votes
        expected = f"3 models count as {votes:.1f} votes (errors against gold correlate by"
        assert found.votes is not None
        assert found.votes.startswith(expected)
        assert votes == (pytest.approx(1, abs=0.01) if alike else pytest.approx(3, abs=0.5))
    assert judges.summary(own, truth, models=[0]).votes is None
    few = judges.summary(own[:10], truth[:10], models=[0, 1])
    assert few.votes is None  # too few instances in common


def test_the_table_has_a_row_per_model() -> None:
    crowd, truth = crowd_of()
    found = judges.summary(crowd, gold_of(truth), models=MODELS)
    for model, row in zip(found.models, found.to_table().to_pylist(), strict=True):
        assert model.gold is not None
        assert model.people is not None
        assert row["accuracy_gold"] == model.gold.right / model.gold.total
        assert row["accuracy_people"] == model.people.value
        assert (row["gold_low"], row["gold_high"]) == model.gold.interval
        assert (row["people_low"], row["people_high"]) == model.people.interval
        assert (row["advantage_probability"], row["winning_rate"]) == (model.advantage, model.winning_rate)
        assert (row["passed"], row["verdict"], row["n_labels"]) == (model.passed, model.verdict, model.n_labels)
        assert row["missed"] == (", ".join(map(str, model.missed)) or None)
        assert (row["needed_epsilon"], row["needed_instances"]) == (model.needed_epsilon, model.needed_instances)
    nothing = page([model_of(people=Share(3, 4))]).to_table().to_pylist()[0]
    assert nothing["accuracy_gold"] is nothing["gold_low"] is nothing["missed"] is None
    ends = stats.binomtest(20, 40).proportion_ci(0.95, "wilson")
    assert Share(20, 40).interval == pytest.approx((ends.low, ends.high))
    assert str(Share(20, 40)) == "50.0% [35%, 65%]"


def test_no_verdict_where_labels_of_people_tell_nothing() -> None:
    rng = np.random.default_rng(1)
    chance = rng.integers(0, 2, (80, 4))
    single = np.zeros((60, 4), int)
    alone = rng.integers(0, 2, (60, 2))
    for labels, reason in (
        (chance, "no more than by chance"),
        (single, "a single class, '0'"),
        (alone, "can be compared"),
    ):
        found = judges.summary(Annotations.from_dense(labels, classes=[0, 1]), models=[labels.shape[1] - 1])
        assert found.models[0].passed is None
        assert found.no_test is not None
        assert reason in found.no_test
        assert found.models[0].verdict == "cannot be determined"
    assert found.n_people == 1
    assert found.models[0].people is None


# -- who is a model, and what people say ----------------------------------------------------------------------------


def test_models_are_named_by_id_code_or_kind() -> None:
    crowd, _ = crowd_of(30)
    for models, kinds in (
        (["blind", "good"], None),
        ([5, 4], None),
        (None, ["person"] * 4 + ["model"] * 2 + ["person"]),
    ):
        sides = Sides.of(crowd, models, kinds)
        assert sorted(sides.models.tolist()) == [4, 5]
        assert sides.people.tolist() == [0, 1, 2, 3, 6]
    assert Sides.of(crowd, "half").models.tolist() == [6]
    for models, message in ((["good", 4], "no annotator is called"), ([7], "no annotator"), ([-1], "no annotator")):
        with pytest.raises(ConfigError, match=message):
            Sides.of(crowd, models)
    with pytest.raises(ConfigError, match="names an annotator twice"):
        Sides.of(crowd, ["good", "good"])
    with pytest.raises(DataError, match=r"kinds has shape \(2,\)"):
        Sides.of(crowd, kinds=["person", "model"])
    with pytest.raises(DataError, match="kinds must be 'person' or 'model'"):
        Sides.of(crowd, kinds=["person"] * 6 + ["robot"])


def test_the_label_of_a_model_is_its_most_frequent_one() -> None:
    crowd = Annotations.from_triples([0, 0, 0, 1, 1, 3], [0, 0, 0, 0, 0, 1], [1, 2, 2, 0, 1, 1], n_instances=4)
    said = {tuple(Sides.of(crowd, [0]).labels_of(0, np.random.default_rng(k)).tolist()) for k in range(20)}
    assert said == {(2, 0, -1, -1), (2, 1, -1, -1)}  # a tie may go either way
    people = Sides.of(crowd, [1]).of_people()
    assert (people.instance.tolist(), people.label.tolist()) == ([0, 1], [2, 1])  # the last label counts


def test_a_consensus_needs_two_people() -> None:
    rows = [("x", "ann", 0), ("x", "bob", 0), ("y", "ann", 1), ("z", "bob", 1), ("z", "ann", 0), ("z", "gpt", 0)]
    crowd = Annotations.from_frame(
        {name: [row[k] for row in rows] for k, name in enumerate(("item", "worker", "label"))}
    )
    consensus = people_consensus(Sides.of(crowd, ["gpt"]))
    assert likeliest(consensus)[:2].tolist() == [0, -1]
    assert np.isnan(consensus[1]).all()
    assert consensus[2] == pytest.approx([0.5, 0.5])  # two people vote


def test_a_reference_is_gold_probabilities_or_people() -> None:
    crowd, truth = crowd_of(30)
    sides = Sides.of(crowd, MODELS)
    known, source = reference_of(sides, {0: "b", 7: "c"})
    assert source == "gold"
    assert likeliest(known).tolist() == [1, *[-1] * 6, 2, *[-1] * 22]
    assert known[7].tolist() == [0, 0, 1]
    given = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    same, source = reference_of(sides, given)
    assert source == "given"
    np.testing.assert_array_equal(same, given)
    with pytest.raises(DataError, match=r"shape \(30, 2\), but the annotations need \(30, 3\)"):
        reference_of(sides, given[:, :2])
    consensus, source = reference_of(sides, None)
    assert source == "people"
    assert np.mean(likeliest(consensus) == truth) > 0.9


def test_nothing_is_warned_about_without_a_reason() -> None:
    crowd, truth = crowd_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judges.summary(crowd, gold_of(truth), models=MODELS)
