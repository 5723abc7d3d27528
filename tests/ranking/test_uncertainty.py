"""Intervals and ranks: the sandwich against plain sums over votes, Holm's correction, draws, and coverage."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise.ranking import BradleyTerry, Votes
from crowdwise.ranking.uncertainty import holm
from ranking.test_bradley_terry import WINS, decided, drawn


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_errors_of_single_votes_by_hand() -> None:
    """Sum over votes of the outer products of their scores, between two inverses of the Hessian."""
    votes = decided(WINS)
    board = BradleyTerry(ridge=0, ties="drop", order=False).fit(votes)
    hessian, meat = np.zeros((4, 4)), np.zeros((4, 4))
    for left, right in zip(votes.left, votes.right, strict=True):
        chance = 1 / (1 + np.exp(board.scores_[right] - board.scores_[left]))
        design = np.zeros(4)
        design[left], design[right] = 1, -1
        hessian += chance * (1 - chance) * np.outer(design, design)
        meat += (1 - chance) ** 2 * np.outer(design, design)
    inverse = np.linalg.pinv(hessian)
    assert board.covariance_ == pytest.approx(inverse @ meat @ inverse, abs=1e-9)
    assert np.sqrt(np.diag(inverse)) == pytest.approx([0.54807, 0.48178, 0.52040, 0.62134], abs=1e-4)


@pytest.mark.parametrize("kinds", [("annotators",), ("annotators", "instances")])
def test_clustered_errors_by_hand(kinds: tuple[str, ...]) -> None:
    votes = drawn()
    if "instances" not in kinds:
        votes = Votes.of(
            votes.contestants.values[votes.left],
            votes.contestants.values[votes.right],
            np.array(["left", "right", "tie"])[votes.outcome],
            annotator=votes.annotator,
        )
    board = BradleyTerry(annotators="equal").fit(votes)
    assert board.clusters_ == kinds
    size = votes.size
    information, scores = 0.01 * np.diag([1.0] * size + [0, 0]), []
    tie = np.log(2 * board.tie_rate_ / (1 - board.tie_rate_))
    for left, right, outcome in zip(votes.left, votes.right, votes.outcome, strict=True):
        u = board.scores_[left] - board.scores_[right] + board.order_effect_
        odds = np.exp([u / 2, -u / 2, tie])
        chance = odds / odds.sum()
        design = np.zeros((3, size + 2))  # derivative of the three logits
        design[0, left] = design[1, right] = design[0, size] = 0.5
        design[0, right] = design[1, left] = design[1, size] = -0.5
        design[2, size + 1] = 1
        scores.append(design[outcome] - chance @ design)
        centred = design - chance @ design
        information += (chance[:, None] * centred).T @ centred
    scores = np.array(scores)

    def meat(cluster: np.ndarray) -> np.ndarray:
        sums = np.array([scores[cluster == each].sum(0) for each in np.unique(cluster)])
        return sums.T @ sums * len(sums) / (len(sums) - 1)

    middle = meat(votes.annotator)
    if "instances" in kinds:
        middle = middle + meat(votes.instance) - meat(votes.annotator.astype(int) * 1000 + votes.instance)
        values, vectors = np.linalg.eigh(middle)
        middle = (vectors * np.maximum(values, 0)) @ vectors.T
    inverse = np.linalg.inv(information)
    project = np.eye(size) - 1 / size
    expected = project @ (inverse @ middle @ inverse)[:size, :size] @ project
    assert board.covariance_ == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_fewer_than_five_annotators_are_no_clusters() -> None:
    votes = drawn(people=4)
    assert BradleyTerry().fit(votes).clusters_ == ("instances",)


def test_holms_correction_by_hand() -> None:
    assert holm(np.array([0.03, 0.2, 0.01, 0.02])).tolist() == pytest.approx([0.06, 0.2, 0.04, 0.06])
    assert holm(np.array([0.6, 0.7])).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_ranks_open_up_where_differences_are_not_significant() -> None:
    rng = np.random.default_rng(3)
    strong, equal = ["a"] * 60, rng.choice(["left", "right"], 60).tolist()
    votes = Votes.of(
        strong + ["b"] * 60 + ["a"] * 60,
        ["b"] * 60 + ["c"] * 60 + ["c"] * 60,
        ["a"] * 55 + ["b"] * 5 + equal + ["a"] * 56 + ["c"] * 4,
    )
    board = BradleyTerry(order=False).fit(votes)
    rows = {row["name"]: (row["low_rank"], row["high_rank"]) for row in board.table.to_pylist()}
    assert rows == {"a": (1, 1), "b": (2, 3), "c": (2, 3)}


def test_draws_can_be_repeated_and_agree_with_the_covariance() -> None:
    votes = drawn(n=2000, people=40)
    board = BradleyTerry(annotators="equal", n_bootstrap=150).fit(votes)
    again = BradleyTerry(annotators="equal", n_bootstrap=20).fit(votes)
    assert np.array_equal(board.draws_[:20], again.draws_)  # draw b depends on the seed and b alone
    plain = BradleyTerry(annotators="equal").fit(
        Votes.of(
            votes.contestants.values[votes.left],
            votes.contestants.values[votes.right],
            np.array(["left", "right", "tie"])[votes.outcome],
            annotator=votes.annotator,
        )
    )
    ratio = board.draws_.std(axis=0) / np.sqrt(np.diag(plain.covariance_))
    assert (ratio > 0.7).all()
    assert (ratio < 1.4).all()
    assert board.best().sum() == pytest.approx(1)
    assert board.best()[board.scores_.argmax()] > 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_intervals_hold_the_scores_where_annotators_and_items_have_tastes() -> None:
    """40 annotators with own tastes, 60 items with own difficulty, 2,400 votes on 12 contestants."""
    held, crowds = [], 60
    score = np.linspace(-1, 1, 12)
    for seed in range(crowds):
        rng = np.random.default_rng(seed)
        left = rng.integers(12, size=2400)
        right = (left + rng.integers(1, 12, 2400)) % 12
        who, item = rng.integers(40, size=2400), rng.integers(60, size=2400)
        taste, fits = rng.normal(0, 0.5, (40, 12)), rng.normal(0, 0.5, (60, 12))
        value = score + taste[who] + fits[item]
        rows = np.arange(2400)
        u = value[rows, left] - value[rows, right]
        words = np.where(rng.random(2400) < 1 / (1 + np.exp(-u)), "left", "right")
        board = BradleyTerry(annotators="equal", order=False).fit(
            Votes.of(left, right, words, annotator=who, instance=item)
        )
        codes = np.array(board.votes_.contestants.arrow.to_pylist())
        truth = score[codes] * np.polyfit(score[codes], board.scores_, 1)[0]  # votes with tastes shrink the scale
        held.append((board.interval_[:, 0] <= truth) & (truth <= board.interval_[:, 1]))
    assert 0.90 < np.mean(held) < 0.99
