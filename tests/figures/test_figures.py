"""Figures: ties shared, the share to believe, evidence, and verdicts that weigh how much a person labelled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crowdwise import agreement, figures, quality
from crowdwise.aggregation import HierarchicalDawidSkene
from crowdwise.annotations import Annotations
from crowdwise.figures import Evidence, Person, RightShare, Verdict, by_chance_test, evidence, needed, worth


def dense(n: int, skill: list[float], classes: int = 3, seed: int = 0) -> tuple[Annotations, np.ndarray]:
    """Everybody labels everything; nobody depends on anybody else."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    wrong = (truth[:, None] + rng.integers(1, classes, (n, len(skill)))) % classes
    return Annotations.from_dense(np.where(rng.random((n, len(skill))) < skill, truth[:, None], wrong)), truth


# ties


def test_shared_ties_are_the_mean_over_every_way_to_break_them() -> None:
    """A second implementation: all combinations of first places, one after the other."""
    votes = np.array([[2, 2, 0], [1, 1, 1], [0, 3, 1], [2, 0, 2]])
    truth = np.array([0, 2, 1, 1])
    choices = [np.flatnonzero(row == row.max()) for row in votes]
    accuracy = [np.mean(np.array(chosen) == truth) for chosen in itertools.product(*choices)]
    found = figures.measured(votes, truth)
    assert found is not None
    assert found.share == pytest.approx(np.mean(accuracy))
    assert found.low < found.share < found.high


def test_items_of_unknown_truth_are_not_counted() -> None:
    votes, truth = np.array([[1, 0], [0, 1], [1, 0]]), np.array([0, -1, 1])
    found = figures.measured(votes, truth)
    assert found is not None
    assert (found.share, found.items) == (0.5, 2)
    assert figures.measured(votes, np.full(3, -1)) is None


def test_a_label_that_shares_a_tie_does_not_differ_from_the_votes() -> None:
    votes = np.array([[2, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 2]])
    found = figures.vote_figures(votes, np.array([1, 1, 2, 2, 2]))
    assert (found.labelled, found.tied, found.differing) == (4, 2, 2)


# the yardstick


def test_the_yardstick_is_the_best_constant_answer() -> None:
    proportions = np.array([0.1, 0.72, 0.18])
    found = figures.yardstick(proportions, ["R", "G", "PG"])
    assert found is not None
    assert (found.answer, found.share) == ("G", pytest.approx(max(proportions)))
    even = figures.yardstick(np.array([5.0, 5.0]), ["no", "yes"])
    assert even is not None
    assert (even.answer, even.share) == (None, 0.5)
    assert figures.yardstick(np.array([4.0]), ["x"]) is None


# which share to believe


def share(value: float, low: float, high: float, items: int, basis: str = "measured") -> RightShare:
    return RightShare(value, low, high, basis, items)  # type: ignore[arg-type]


def test_from_twenty_true_labels_on_the_measured_share_is_believed() -> None:
    estimate = share(0.92, 0.85, 0.97, 300, "estimated")
    few, many = share(0.7, 0.48, 0.85, 19), share(0.7, 0.48, 0.85, 20)
    enough = Evidence("labels")
    assert figures.believed(estimate, few, enough)[0] is estimate
    assert "contradict the estimate" in figures.believed(estimate, few, enough)[1]
    right, why = figures.believed(estimate, many, enough)
    assert right is many
    assert "too high" in why
    assert "Believe the measured share" in why
    fits = share(0.9, 0.7, 0.97, 25)
    assert figures.believed(estimate, fits, enough)[1].endswith("fits.")
    assert "too low" in figures.believed(share(0.6, 0.5, 0.7, 300, "estimated"), fits, enough)[1]


def test_without_evidence_only_what_was_measured_is_believed() -> None:
    many = share(0.7, 0.48, 0.85, 20)
    assert figures.believed(None, many, Evidence("one label"))[0] is many
    right, why = figures.believed(None, share(0.5, 0.2, 0.8, 6), Evidence("one label"))
    assert right is None
    assert "3 of 6 items with a true label are right; 20 are needed" in why


def test_the_estimate_is_the_mean_confidence_and_about_right() -> None:
    crowd, truth = dense(400, [0.85, 0.8, 0.75, 0.7])
    posterior = quality.majority_posterior(crowd)
    found = figures.worth(crowd, posterior, np.asarray(truth))
    assert found.estimated is not None
    assert found.measured is not None
    assert found.estimated.share == pytest.approx(posterior.max(axis=1).mean())
    assert found.right is found.measured
    assert found.estimated.low < found.measured.share < found.estimated.high


# evidence


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("one class", [["x", "x"], ["x", None], ["x", "x"]]),
        ("one annotator", [["x"], ["y"], ["x"]]),
        ("one label", [["x", None], [None, "y"], ["y", None]]),
        ("chance", [["x", None], [None, "y"], ["y", "y"]]),
        ("labels", [["x", "x"], ["y", "y"], ["z", "z"]] * 10),
        ("chance", [["x", "y"], ["y", "x"], ["z", "z"]] * 10),
    ],
)
def test_what_labels_cannot_tell_has_a_reason(kind: str, rows: list[list[str | None]]) -> None:
    crowd = Annotations.from_dense(rows)
    found = figures.worth(crowd, quality.majority_posterior(crowd))
    assert found.evidence.kind == kind
    assert (found.right is None) == (kind != "labels")
    assert (found.why == found.evidence.sentence) == (kind != "labels")
    if kind != "labels":
        assert not np.any(
            [each.is_valid for each in figures.annotator_profiles(crowd, None, found.evidence)["annotator_quality"]]
        )


def test_noise_is_found_out_nineteen_times_in_twenty() -> None:
    """Random labels of 300 items by 12 people, and labels that are hardly better."""
    noise = [figures.evidence(dense(300, [0.25] * 12, 4, seed)[0]).enough for seed in range(40)]
    assert np.mean(noise) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 40)
    assert figures.evidence(dense(300, [0.35] * 12, 4)[0]).enough


def test_twenty_true_labels_tell_a_method_more_than_agreement() -> None:
    crowd = dense(60, [0.25] * 4, 4)[0]
    assert not figures.evidence(crowd, gold=19).enough
    assert figures.evidence(crowd, gold=20).enough


# verdicts


def person(name: str, labels: int, skill: float, width: float = 0.04, spammer: float = 0.2) -> Person:
    return Person(name, labels, skill, skill - width / 2, skill + width / 2, spammer)


def judged(*everybody: Person, classes: int = 2) -> dict[str, Verdict | None]:
    return {each.name: each.verdict for each in figures.verdicts(everybody, classes)}


def test_who_costs_most_comes_first() -> None:
    """1,486 labels of which half are wrong cost more than 10 labels, whatever the skill."""
    few = Person("w066", 10, 0.55, 0.3, 0.7, 0.95)
    many = Person("w193", 1486, 0.48, 0.46, 0.51, 0.98)
    crowd = [few, *(person(f"good{k}", 900, 0.9) for k in range(3)), many]
    found = figures.ordered_by_cost(figures.verdicts(crowd, 2))
    assert [each.name for each in found[:2]] == ["w193", "w066"]
    assert [each.verdict for each in found[:2]] == [Verdict.STOP, Verdict.STOP]


def test_nobody_is_named_whose_interval_allows_that_they_are_fine() -> None:
    found = judged(
        person("ann", 900, 0.9, spammer=0.1),
        person("bob", 900, 0.8, spammer=0.3),
        Person("new", 20, 0.66, 0.42, 0.9, 0.95),
        person("same", 900, 0.5, spammer=0.99),
        Person("nine", 9, 0.3, 0.1, 0.5, 0.99),
        person("odd", 900, 0.7, spammer=0.3),
    )
    assert found["same"] == Verdict.STOP
    assert found["new"] == found["nine"] == Verdict.FEW
    assert found["ann"] == Verdict.RELY
    assert found["odd"] == Verdict.FINE


def test_two_people_are_told_apart_only_if_their_intervals_part() -> None:
    assert set(judged(person("a", 200, 0.8, 0.1), person("b", 200, 0.75, 0.1)).values()) == {Verdict.FINE}
    apart = judged(person("a", 200, 0.9, 0.1), person("b", 200, 0.4, 0.1, spammer=0.95))
    assert apart == {"a": Verdict.RELY, "b": Verdict.STOP}


def test_models_get_no_verdict_and_set_no_bar() -> None:
    model = Person("gpt", 900, 0.99, 0.98, 1.0, 0.0, model=True)
    found = judged(model, person("ann", 900, 0.8), person("bob", 900, 0.8), person("cy", 900, 0.79))
    assert found["gpt"] is None
    assert Verdict.STOP not in found.values()


# ordered classes


def test_labels_one_step_off_are_counted_on_a_scale_only() -> None:
    """By hand: of four items with one clear class each, two are right and one is a step off."""
    grades = ["mild", "none", "severe"]  # in the order of the vocabulary
    rows = [["none", "none"], ["mild", "mild"], ["severe", "severe"], ["none", "none"]] * 10
    crowd = Annotations.from_dense(rows)
    assert crowd.classes.tolist() == sorted(grades)
    code = {name: place for place, name in enumerate(crowd.classes.tolist())}
    truth = np.array([code[name] for name in ["none", "severe", "severe", "severe"]] * 10)
    found = figures.worth(crowd, quality.majority_posterior(crowd), truth)
    assert str(found.scale) == "none < mild < severe"
    assert found.right is not None
    assert found.near is not None
    assert (found.right.share, found.near.share) == (0.5, 0.75)
    names = figures.worth(crowd, quality.majority_posterior(crowd), truth, ordered="no")
    assert (names.scale, names.near) == (None, None)


def panel_of_models(people: int = 0, n: int = 60) -> Annotations:
    """Five models that label everything and agree mostly, and some people."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, n)
    names = [*(f"model {number}" for number in range(5)), *(f"person {number}" for number in range(people))]
    answers = np.where(rng.random((n, len(names))) < 0.85, truth[:, None], 1 - truth[:, None])
    rows = {"item": np.repeat(np.arange(n), len(names)), "annotator": names * n, "label": answers.ravel()}
    return Annotations.coerce({name: np.asarray(values).tolist() for name, values in rows.items()})


def test_agreement_of_models_alone_is_no_evidence() -> None:
    crowd = panel_of_models()
    models = [name for name in crowd.annotators.tolist() if name.startswith("model")]
    found = worth(crowd, crowd.votes() / 5, models=models)
    assert found.right is None
    assert found.estimated is None
    assert found.evidence.kind == "models"
    assert "True labels of 38 items drawn at random" in found.why
    assert worth(crowd, crowd.votes() / 5).right is not None  # of people, it is


def test_two_labels_of_people_or_gold_make_evidence_of_models() -> None:
    for people, kind in ((1, "models"), (2, "labels")):
        crowd = panel_of_models(people)
        models = [name for name in crowd.annotators.tolist() if name.startswith("model")]
        assert evidence(crowd, models=models).kind == kind
        assert evidence(crowd, models=models, gold=20).kind == "labels"
    truth = np.where(np.arange(60) < 30, crowd.votes().argmax(axis=1), -1)
    found = worth(panel_of_models(), panel_of_models().votes() / 5, truth, models=models)
    assert found.right is found.measured is not None


def test_as_many_true_labels_as_are_needed_show_a_share_to_within_ten_points() -> None:
    rng = np.random.default_rng(0)
    for items in (50, 400, 5_000):
        right = rng.permutation(items) < items // 2  # a share of one half is the hardest to tell
        number = needed(items)
        draws = np.array([rng.choice(right, number, replace=False).mean() for _ in range(2_000)])
        assert np.mean(np.abs(draws - right.mean()) <= 0.1) >= 0.92  # shares come in steps


def test_the_estimate_for_votes_is_true_of_crowds_whose_errors_are_independent() -> None:
    """Skilled annotators among poor ones: labels are better than the votes, and both estimates say how good they are."""
    for seed in range(3):
        crowd, truth = dense(600, [0.95, 0.9, 0.9, 0.4, 0.4, 0.4], seed=seed)
        model = HierarchicalDawidSkene(calibration="none").fit(crowd)
        found = worth(crowd, model.posterior_)
        assert found.votes_estimated is not None
        assert found.estimated is not None
        votes = figures.shared_hits(crowd.votes(), truth).mean()
        assert found.votes_estimated.share == pytest.approx(votes, abs=0.04)  # 2 standard errors of 600 items
        assert found.votes_estimated.holds(votes)
        assert found.estimated.share > found.votes_estimated.share + 0.03


def test_votes_are_as_good_as_labels_that_follow_them() -> None:
    crowd, _ = dense(100, [0.8] * 5)
    posterior = quality.majority_posterior(crowd)
    found = worth(crowd, posterior)
    assert found.votes_estimated is not None
    assert found.estimated is not None
    assert found.votes_estimated.share == pytest.approx(found.estimated.share)


@pytest.mark.parametrize(
    ("alpha", "p_value", "kind", "words"),
    [
        (0.012, 0.3, "chance", "Agreement is within chance"),
        (0.012, 0.03, "chance", "Agreement is hardly beyond chance"),
        (0.012, 0.005, "labels", ""),
        (0.2, 0.03, "labels", ""),
        (0.2, 0.06, "chance", "these are too few labels"),
    ],
)
def test_next_to_no_agreement_must_be_clear(
    alpha: float, p_value: float, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One noisy crowd in twenty agrees beyond chance; of so little agreement, more certainty is asked for."""
    test = agreement.ChanceTest(alpha, p_value, 300, 3600)
    monkeypatch.setattr(agreement, "chance_test", lambda *_, **__: test)
    found = by_chance_test(Annotations.from_dense([[0, 1], [1, 0]]))
    assert found.kind == kind
    assert words in found.reason
    assert bool(found.reason) == (kind == "chance")
