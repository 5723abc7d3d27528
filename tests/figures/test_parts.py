"""The parts of figures by second implementations: verdicts, reasons, which items count, and labels one step off."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import Any

import numpy as np
import pytest

from crowdwise import agreement, figures, quality
from crowdwise.annotations import Annotations
from crowdwise.figures import Evidence, Person, RightShare, Verdict, people
from crowdwise.figures.evidence import LITTLE
from crowdwise.figures.people import FEW, SMALL, SPAMMER, USELESS, WIDE


def share(value: float, low: float, high: float, items: int, basis: Any = "measured") -> RightShare:
    return RightShare(value, low, high, basis, items)


class TestVerdicts:
    @staticmethod
    def by_hand(everybody: list[Person], n_classes: int) -> list[Verdict | None]:
        """The rules of `verdicts`, one person after the other."""
        judged = [one for one in everybody if not one.model and one.labels >= FEW]
        found: list[Verdict | None] = []
        for one in everybody:
            others = [other for other in judged if other is not one]
            if one.model:
                found.append(None)
                continue
            if one not in judged or not others:
                found.append(Verdict.FEW)
                continue
            typical, guess = median(other.skill for other in judged), 1 / n_classes
            hardly = guess + USELESS * max(0.0, typical - guess)
            worse, better = one.high < typical, one.low >= typical
            if len(judged) <= SMALL:
                worse = worse and all(one.high < other.low for other in others)
                better = better and all(one.low > other.high for other in others)
            if worse and (one.spammer > SPAMMER or one.high < hardly):
                found.append(Verdict.STOP)
            elif better:
                found.append(Verdict.RELY)
            else:
                found.append(Verdict.FEW if one.high - one.low > WIDE else Verdict.FINE)
        return found

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
    def test_follow_the_rules_for_every_crowd(self, size: int) -> None:
        rng, seen = np.random.default_rng(size), set()
        for _ in range(150):
            everybody = []
            for k in range(size):
                skill, half = float(rng.choice([0.2, 0.3, 0.5, 0.8, 0.9])), float(rng.choice([0.02, 0.1, 0.16]))
                labels, spammer = int(rng.choice([9, 10, 500])), float(rng.choice([0.1, 0.9, 0.95]))
                model = bool(rng.random() < 0.2)
                everybody.append(Person(f"w{k}", labels, skill, skill - half, skill + half, spammer, model))
            classes = int(rng.integers(2, 5))
            expected = self.by_hand(everybody, classes)
            assert [each.verdict for each in figures.verdicts(everybody, classes)] == expected
            seen.update(expected)
        assert size < 4 or seen == {None, *Verdict}

    def test_a_crowd_worse_than_a_guess_has_its_bar_at_a_guess(self) -> None:
        low = [Person(f"w{k}", 500, 0.3, 0.28, 0.32, 0.5) for k in range(4)]
        worst = Person("worst", 500, 0.2, 0.18, 0.25, 0.5)
        found = figures.verdicts([*low, worst], 2)  # a guess is right in half of the items
        assert [each.verdict for each in found] == [Verdict.FINE] * 4 + [Verdict.STOP]

    def test_who_is_known_is_a_row_with_a_skill(self) -> None:
        row = {"annotator": 7, "num_examples_labeled": 12, "annotator_quality": 0.8, "spammer_score": None}
        row |= {"annotator_quality_low": 0.7, "annotator_quality_high": 0.85}
        rows = [
            row,
            row | {"annotator": "gpt", "spammer_score": 0.25},
            row | {"annotator": "x", "annotator_quality": None},
        ]
        found = people(rows, models=["gpt"])
        assert found[0] == Person("7", 12, 0.8, 0.7, 0.85, 0.0)
        assert found[1:] == [Person("gpt", 12, 0.8, 0.7, 0.85, 0.25, model=True)]
        assert found[0].cost == pytest.approx(12 * 0.15)

    def test_of_equal_costs_names_decide(self) -> None:
        one, two = (Person(name, 100, 0.8, 0.7, 0.9, 0.1, verdict=Verdict.FINE) for name in "ba")
        stop = Person("z", 10, 0.1, 0.05, 0.15, 0.99, verdict=Verdict.STOP)
        assert [each.name for each in figures.ordered_by_cost([one, two, stop])] == ["z", "a", "b"]


class TestReasons:
    @pytest.mark.parametrize(
        ("rows", "reason", "remedy"),
        [
            ([["x", "x"], ["x", None]], "All labels are the same class", "Check that no rows were lost in reading."),
            ([["x"], ["y"]], "All labels come from one annotator", "Let a second annotator label"),
            ([["x", None], [None, "y"]], "No item has labels from two annotators", "Label some items twice"),
            ([["x", None], [None, "y"], ["y", "y"]], "Too few items have labels from two", "Collect more labels"),
            ([["x", "x"], ["y", "y"]], "Agreement is within chance (Krippendorff's alpha 1.00", "Collect more labels"),
            (
                [["x", "y"], ["y", "x"]] * 10,
                "Agreement is within chance (Krippendorff's alpha -0.95",
                "Check that the file",
            ),
            ([["x", "x"], ["y", "y"]] * 20, "", ""),
        ],
    )
    def test_say_what_is_missing_and_what_to_do(self, rows: Any, reason: str, remedy: str) -> None:
        found = figures.evidence(Annotations.from_dense(rows))
        assert found.reason.startswith(reason)
        assert found.remedy.startswith(remedy)
        assert found.sentence == " ".join(filter(None, [found.reason, found.remedy]))
        assert (found.reason == "") is found.enough is (reason == "")
        assert found.as_json()["reason"] == (found.sentence or None)

    def test_of_no_labels(self) -> None:
        found = figures.evidence(Annotations.from_triples([], [], [], n_instances=2, n_classes=2))
        assert (found.kind, found.reason, found.remedy) == ("no labels", "There are no labels.", "")

    def test_agreement_is_that_of_the_scale_if_classes_are_ordered(self) -> None:
        rng = np.random.default_rng(0)
        grades = np.clip(rng.integers(1, 6, (60, 1)) + rng.integers(-1, 2, (60, 3)), 1, 5)
        crowd = Annotations.from_dense(grades)
        found = {ordered: figures.evidence(crowd, ordered=ordered).chance for ordered in ("auto", "no")}
        for ordered, test in found.items():
            assert test.alpha == pytest.approx(agreement.chance_test(crowd, ordered=ordered).alpha)
        assert found["auto"].alpha > found["no"].alpha + 0.1

    def test_too_few_labels_are_told_from_labels_that_show_nothing(self) -> None:
        test = agreement.chance_test(Annotations.from_dense([["x", "x"], ["y", "y"]]))
        for alpha, p_value, end in (
            (
                LITTLE,
                0.0004,
                "p < 0.001, 4 labels of 2 items): these are too few labels",
            ),
            (0.0999, 0.0123, "p = 0.012, 4 labels of 2 items): the labels show neither which of them are right"),
        ):
            given = Evidence("chance", dataclasses.replace(test, alpha=alpha, p_value=p_value))
            assert end in given.reason
            assert given.remedy.startswith("Collect" if alpha >= 0.1 else "Check that the file was read as meant")

    def test_annotators_keep_what_was_counted(self) -> None:
        rng = np.random.default_rng(0)
        crowd = Annotations.from_dense(rng.integers(3, size=(40, 3)))
        posterior = quality.majority_posterior(crowd)
        graded = figures.annotator_profiles(crowd, posterior, Evidence("labels"))
        assert graded == quality.annotators(crowd, posterior)
        bare = figures.annotator_profiles(crowd, posterior, Evidence("chance"))
        assert bare["num_examples_labeled"].to_pylist() == [40] * 3
        assert bare["annotator_quality"].null_count == 3


class TestWorth:
    """Ninety items of two classes, labelled by three people who agree on most; the last item has no label."""

    @staticmethod
    def crowd(n: int = 90) -> tuple[Annotations, np.ndarray]:
        rng = np.random.default_rng(1)
        truth = (np.arange(n) % 3 == 0).astype(int)  # a third of class 1
        labels = np.where(rng.random((n, 3)) < 0.85, truth[:, None], 1 - truth[:, None])
        labels[-1] = -1
        return Annotations.from_dense(labels, missing=[-1], classes=[0, 1]), truth

    def test_what_is_believed_is_compared_with_the_best_answer_for_the_same_items(self) -> None:
        crowd, _ = self.crowd()
        posterior = quality.majority_posterior(crowd)
        estimated = figures.worth(crowd, posterior)
        ones = posterior[:-1].argmax(axis=1).mean()
        assert estimated.yardstick.answer == "0"
        assert estimated.yardstick.share == pytest.approx(1 - ones)
        gold = np.full(90, -1)
        gold[:24] = (np.arange(24) % 8 > 0).astype(int)  # mostly class 1
        gold[-1] = 1  # an item without labels
        checked = figures.worth(crowd, posterior, gold)
        assert (checked.measured.items, checked.right) == (24, checked.measured)
        assert (checked.yardstick.answer, checked.yardstick.share) == ("1", pytest.approx(7 / 8))
        few = np.where(np.arange(90) < 5, 1, -1)
        assert figures.worth(crowd, posterior, few).yardstick == estimated.yardstick

    def test_only_labelled_items_count(self) -> None:
        crowd, truth = self.crowd()
        posterior = quality.majority_posterior(crowd)
        found = figures.worth(crowd, posterior, truth)
        assert (found.votes.labelled, found.measured.items, found.estimated.items) == (89, 89, 89)
        assert found.estimated.share == pytest.approx(posterior[:-1].max(axis=1).mean())
        assert found.majority.share == pytest.approx(np.mean(crowd.votes()[:-1].argmax(axis=1) == truth[:-1]))

    def test_labels_confidence_and_scores_may_be_others_than_the_posterior_has(self) -> None:
        crowd, truth = self.crowd()
        posterior = quality.majority_posterior(crowd)
        other = 1 - posterior.argmax(axis=1)
        found = figures.worth(crowd, posterior, truth, label=other, confidence=np.full(90, 0.625))
        assert found.votes.differing == 89
        assert found.estimated.share == pytest.approx(0.625)
        told = figures.worth(crowd, posterior, truth, scores=np.eye(2)[truth])
        assert (told.measured.share, told.majority.share < 1) == (1, True)

    def test_vote_shares_are_no_estimate(self) -> None:
        crowd, truth = self.crowd()
        found = figures.worth(
            crowd, quality.majority_posterior(crowd), np.where(np.arange(90) < 3, truth, -1), estimate=False
        )
        assert (found.right, found.estimated, found.yardstick) == (None, None, None)
        assert found.why.startswith("Vote shares are not probabilities of being right. ")
        assert "of 3 items with a true label are right; 20 are needed to measure." in found.why

    def test_without_evidence_that_is_the_reason_also_for_vote_shares(self) -> None:
        for shares in (True, False):
            lacking = Evidence("one label")
            assert figures.believed(None, None, lacking, shares=shares) == (None, lacking.sentence)

    def test_an_estimate_outside_of_what_was_measured_is_contradicted(self) -> None:
        crowd, truth = self.crowd()
        posterior = quality.majority_posterior(crowd)
        for confidence, contradicted in ((0.5, True), (None, False)):
            given = None if confidence is None else np.full(90, confidence)
            assert figures.worth(crowd, posterior, truth, confidence=given).contradicted is contradicted
        assert figures.worth(crowd, posterior).contradicted is False

    def test_which_figure_is_believed_is_said_in_words(self) -> None:
        enough, estimate = Evidence("labels"), share(0.9, 0.8, 0.95, 300, "estimated")
        one = share(1.0, 0.2, 1.0, 1)
        assert figures.believed(estimate, one, enough)[1].endswith(
            "1 of 1 item with a true label are right; 20 are needed to measure."
        )
        assert (
            figures.believed(estimate, share(0.25, 0.1, 0.4, 6), enough)[1].split(". ")[1].startswith("1.5 of 6 items")
        )
        alone = figures.believed(estimate, None, enough)
        assert alone == (
            estimate,
            "Estimated from agreement, not checked against true labels: errors that annotators share stay unseen.",
        )
        only = share(0.7, 0.5, 0.85, 1200)
        assert figures.believed(None, only, enough) == (only, "Measured on 1,200 items with a true label.")
        assert only.holds(0.5)
        assert only.holds(0.85)
        assert not only.holds(0.499)
        assert not only.holds(0.851)

    def test_the_share_to_believe_is_said_with_its_interval_and_reason(self) -> None:
        crowd, _ = self.crowd()
        found = figures.worth(crowd, quality.majority_posterior(crowd))
        estimate = share(0.875, 0.8, 0.925, 40, "estimated")
        said = dataclasses.replace(found, right=estimate, near=None, why="Because.").sentence
        assert said == "about 87.5% of the labels, between 80.0% and 92.5%. Because."
        near = dataclasses.replace(
            found, right=share(0.5, 0.4, 0.6, 40), near=share(0.75, 0.7, 0.8, 40), why="Because."
        )
        assert near.sentence == (
            "50.0% of the labels, between 40.0% and 60.0%. 75.0% are right or one step off. Because."
        )
        assert dataclasses.replace(found, right=None, near=None, why="Because.").sentence == "unknown. Because."

    def test_labels_one_step_off_are_estimated_by_their_neighbours(self) -> None:
        """The names are in another order than the steps: mild, none, severe."""
        rng = np.random.default_rng(3)
        rows = [[name] * 3 for name in ("none", "mild", "severe")] * 8
        crowd = Annotations.from_dense([*rows, ["none", "mild", "mild"]])
        posterior = rng.dirichlet([1, 1, 1], 25)
        found = figures.worth(crowd, posterior)
        step = [1, 0, 2]
        label = posterior.argmax(axis=1)
        near = [
            sum(row[c] for c in range(3) if abs(step[c] - step[y]) <= 1)
            for row, y in zip(posterior, label, strict=True)
        ]
        assert found.near.basis == found.right.basis == "estimated"
        assert found.near.share == pytest.approx(np.mean(near))
        assert found.near.share > found.right.share
