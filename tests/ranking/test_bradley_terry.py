"""Scores from votes: published figures, the optimum, invariances, and crowds that cannot be ranked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError
from crowdwise.ranking import BradleyTerry, Votes, fitting
from crowdwise.ranking.fitting import SPREAD, Cells, Parameters

# Ralph Bradley and Milton Terry's example as Wikipedia has it: A beat B twice, and so on.
WINS = {"AB": 2, "AD": 1, "BA": 3, "BC": 5, "CB": 3, "CD": 1, "DA": 4, "DC": 3}


def decided(wins: dict[str, int]) -> Votes:
    rows = [pair for pair, number in wins.items() for _ in range(number)]
    return Votes.of([pair[0] for pair in rows], [pair[1] for pair in rows], ["left"] * len(rows))


def drawn(seed: int = 0, n: int = 600, people: int = 6, size: int = 5, ties: float = 0.6) -> Votes:
    """Votes with ties and an order effect, of annotators who differ."""
    rng = np.random.default_rng(seed)
    score = np.linspace(-1, 1, size)
    left = rng.integers(size, size=n)
    right = (left + rng.integers(1, size, n)) % size
    who = rng.integers(people, size=n)
    u = np.exp(rng.normal(0, 0.4, people))[who] * (score[left] - score[right]) + 0.3
    odds = np.exp(np.column_stack([u / 2, -u / 2, np.log(ties) + rng.normal(0, 0.5, people)[who]]))
    outcome = (odds.cumsum(1) / odds.sum(1, keepdims=True) < rng.random((n, 1))).sum(1)
    names = np.array([f"m{code}" for code in range(size)])
    words = np.array(["left", "right", "tie"])[outcome]
    return Votes.of(
        names[left], names[right], words, annotator=[f"w{j}" for j in who], instance=rng.integers(40, size=n)
    )


def fitted(votes: Votes, **options: Any) -> BradleyTerry:
    return BradleyTerry(**options).fit(votes)


def by_name(board: BradleyTerry, values: Any) -> dict[str, Any]:
    names = board.votes_.contestants.arrow.to_pylist()
    return dict(zip(names, np.asarray(values).tolist(), strict=True))


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_the_example_of_wikipedia() -> None:
    board = fitted(decided(WINS), ridge=0, ties="drop", order=False)
    assert np.exp(board.scores_) == pytest.approx([0.63983, 1.04331, 0.65981, 2.27038], abs=1e-5)
    assert board.objective_ == pytest.approx(-13.42845, abs=1e-5)


def test_one_pair_has_a_closed_form() -> None:
    """T / sqrt(W L) is the tie parameter, log(W / L) the difference of the scores."""
    votes = Votes.of(["x"] * 6, ["y"] * 6, ["x", "x", "x", "y", "tie", "tie"])
    board = fitted(votes, ridge=0, order=False)
    assert board.scores_[0] - board.scores_[1] == pytest.approx(np.log(3), abs=1e-9)
    odds = 2 / np.sqrt(3)
    assert board.tie_rate_ == pytest.approx(odds / (2 + odds), abs=1e-9)
    assert board.win_probability("x", "y").probability == pytest.approx(0.75, abs=1e-9)


@pytest.mark.parametrize("own", [False, True])
def test_scores_are_at_the_optimum_that_a_general_optimiser_finds(own: bool) -> None:
    votes = drawn()
    board = fitted(votes, annotators="own" if own else "equal")
    cells = Cells.of(votes, own=own, ties="model")
    size, people = cells.size, cells.n_annotators

    def unpacked(values: Any) -> Parameters:
        annotator = values[size + 2 :].reshape(people, 3) if own else np.zeros((people, 3))
        return Parameters(values[:size], values[size], values[size + 1], annotator)

    def loss(values: Any) -> float:
        """Written out vote by vote."""
        at = unpacked(values)
        who = votes.annotator if own else np.zeros(len(votes), int)
        c, g, t = at.annotator[who].T
        u = np.exp(c) * (at.score[votes.left] - at.score[votes.right]) + at.order + g
        logits = np.column_stack([u / 2, -u / 2, at.tie + t])
        chosen = logits[np.arange(len(votes)), votes.outcome] - np.log(np.exp(logits).sum(1))
        return -chosen.sum() + 0.005 * (at.score**2).sum() + ((at.annotator / SPREAD) ** 2).sum() / 2

    start = np.zeros(size + 2 + people * 3 * own)
    best = optimize.minimize(loss, start, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8})
    model = board._model
    assert fitting.log_posterior(cells, unpacked(best.x), model) == pytest.approx(-best.fun, abs=1e-6)
    assert board.objective_ == pytest.approx(-best.fun, abs=0.05)
    assert board.objective_ >= -best.fun - 0.05
    found = unpacked(best.x)
    scale = 1.0
    if own:  # the board's scale is that of an annotator of average discrimination, by votes
        scale = np.exp(np.bincount(votes.annotator, minlength=people) @ found.annotator[:, 0] / len(votes))
    expected = scale * (found.score - found.score.mean())
    assert board.scores_ == pytest.approx(expected, abs=0.01)


def test_exchanging_sides_turns_the_order_effect_and_keeps_the_scores() -> None:
    votes = drawn()
    names = votes.contestants.values
    words = np.array(["right", "left", "tie"])[votes.outcome]
    people = votes.annotators.values[votes.annotator]
    turned = Votes.of(names[votes.right], names[votes.left], words, annotator=people)
    first, second = fitted(votes), fitted(turned)
    assert second.order_effect_ == pytest.approx(-first.order_effect_, abs=1e-8)
    assert first.order_effect_ > 0.1
    assert by_name(second, second.scores_) == pytest.approx(by_name(first, first.scores_), abs=1e-8)


def test_a_weight_of_two_is_two_votes() -> None:
    votes = drawn(n=200)
    rows = np.arange(len(votes))
    names = votes.contestants.values
    words = np.array(["left", "right", "tie"])[votes.outcome]
    weighted = Votes.of(names[votes.left], names[votes.right], words, weight=1 + rows % 2)
    repeated = votes.take(np.repeat(rows, 1 + rows % 2))
    once, twice = fitted(weighted), fitted(repeated, annotators="equal")
    assert by_name(once, once.scores_) == pytest.approx(by_name(twice, twice.scores_), abs=1e-8)
    assert once.counts_.sum() == pytest.approx(twice.counts_.sum())


def test_the_order_of_votes_changes_nothing() -> None:
    votes = drawn()
    first = fitted(votes, annotators="own")
    second = fitted(votes.take(np.random.default_rng(1).permutation(len(votes))), annotators="own")
    assert second.scores_ == pytest.approx(first.scores_, abs=1e-7)
    assert second.covariance_ == pytest.approx(first.covariance_, rel=1e-5, abs=1e-9)


def test_annotators_who_guess_get_little_skill_and_those_who_say_left_a_large_order_effect() -> None:
    rng = np.random.default_rng(2)
    score, n = np.linspace(-2, 2, 6), 3000
    left = rng.integers(6, size=n)
    right = (left + rng.integers(1, 6, n)) % 6
    who = rng.integers(3, size=n)
    first_wins = rng.random(n) < 1 / (1 + np.exp(score[right] - score[left]))
    first_wins[who == 1] = rng.random((who == 1).sum()) < 0.5
    first_wins[who == 2] = True
    votes = Votes.of(
        left, right, np.where(first_wins, "left", "right"), annotator=np.array(["ann", "guess", "lefty"])[who]
    )
    board = fitted(votes)
    skill = dict(zip(votes.annotators.values, board.skill_, strict=True))
    order = dict(zip(votes.annotators.values, board.annotator_order_effect_, strict=True))
    assert skill["ann"] > 2 * skill["guess"]
    assert order["lefty"] > 1 > abs(order["ann"])
    assert board.annotator_table()["annotator"].to_pylist()[0] == "ann"
    assert (np.diff(board.scores_[np.argsort(votes.contestants.values)]) > 0).all()


def test_half_a_win_for_both_is_what_a_tie_counts() -> None:
    votes = Votes.of(["a", "a", "a", "b"], ["b", "b", "b", "c"], ["a", "tie", "b", "tie"])
    rows = Votes.of(
        ["a", "a", "a", "a", "b", "b"],
        ["b", "b", "b", "b", "c", "c"],
        ["a", "a", "b", "b", "b", "c"],
        weight=[1, 0.5, 0.5, 1, 0.5, 0.5],
    )
    half, written = fitted(votes, ties="half", order=False), fitted(rows, ties="drop", order=False)
    assert half.scores_ == pytest.approx(written.scores_, abs=1e-9)
    assert half.tie_rate_ == 0


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_contestants_that_never_met_are_ranked_apart() -> None:
    votes = Votes.of(["a", "b", "a", "x", "y"], ["b", "c", "c", "y", "x"], ["a", "b", "a", "x", "tie"])
    with pytest.warns(CrowdwiseWarning, match="2 groups that never met"):
        board = fitted(votes)
    table = board.table.to_pylist()
    assert [(row["name"], row["group"], row["rank"]) for row in table] == [
        ("a", 1, 1),
        ("b", 1, 2),
        ("c", 1, 3),
        ("x", 2, 1),
        ("y", 2, 2),
    ]
    assert all(row["high_rank"] <= {1: 3, 2: 2}[row["group"]] for row in table)
    assert board.scores_[board.groups_ == 1].sum() == pytest.approx(0, abs=1e-9)
    with pytest.raises(DataError, match="never met"):
        board.win_probability("a", "x")


def test_one_who_always_wins_has_a_finite_score_and_a_note() -> None:
    votes = Votes.of(["a"] * 20 + ["b"] * 10, ["b"] * 10 + ["c"] * 20, ["left"] * 20 + ["left", "right"] * 5)
    with pytest.warns(CrowdwiseWarning, match="'a' always won"):
        board = fitted(votes, order=False)
    assert np.isfinite(board.scores_).all()
    assert board.table.to_pylist()[0]["note"] == "always won or lost"
    with pytest.raises(ConfigError, match="not finite"):
        fitted(votes, order=False, ridge=0)


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
def test_ties_alone_tell_nobody_apart() -> None:
    board = fitted(Votes.of(["a", "b", "c"] * 20, ["b", "c", "a"] * 20, ["tie"] * 60))
    assert board.scores_ == pytest.approx(0, abs=1e-6)
    assert board.rank_interval_.tolist() == [[1, 3]] * 3
    assert 0.99 < board.tie_rate_ <= 1
    with pytest.raises(DataError, match="all votes are ties"):
        fitted(Votes.of(["a"], ["b"], ["tie"]), ties="drop")


def test_new_annotators_are_average_ones_in_the_log_loss() -> None:
    votes = drawn()
    board = fitted(votes, annotators="equal")
    chance = []
    for left, right, outcome in zip(votes.left, votes.right, votes.outcome, strict=True):
        u = board.scores_[left] - board.scores_[right] + board.order_effect_
        tie = 2 * board.tie_rate_ / (1 - board.tie_rate_)
        odds = np.array([np.exp(u / 2), np.exp(-u / 2), tie])
        chance.append(odds[outcome] / odds.sum())
    assert board.log_loss(votes) == pytest.approx(-np.mean(np.log(chance)), abs=1e-9)
    own = fitted(votes, annotators="own")
    assert own.log_loss(votes) < board.log_loss(votes)


def test_what_is_no_name_or_setting_is_refused() -> None:
    board = fitted(drawn())
    with pytest.raises(DataError, match="'m9' is not a contestant"):
        board.win_probability("m1", "m9")
    with pytest.raises(ConfigError, match="n_bootstrap"):
        board.best()
    with pytest.raises(ConfigError, match="annotators"):
        fitted(Votes.of(["a"], ["b"], ["a"]), annotators="own")
    with pytest.raises(ConfigError):
        BradleyTerry(ridge=-1).fit(drawn())
    with pytest.raises(ConfigError, match="not fitted"):
        BradleyTerry().win_probability("a", "b")


DATA = Path(os.environ.get("CROWDWISE_DATA", "nowhere"))


@pytest.mark.parametrize(
    ("name", "plain", "own"), [("llmfao", 1.0141, 0.925), ("wmt13_fren", 1.0220, 0.985), ("cems", 0.8917, 0.84)]
)
def test_annotators_of_their_own_foretell_votes_better(name: str, plain: float, own: float) -> None:
    file = DATA / f"pairs_{name}.npz"
    if not file.is_file():
        pytest.skip("needs CROWDWISE_DATA")
    with np.load(file) as data:
        people = (
            data["annotator_kind"][data["annotator"]] == 0 if name == "llmfao" else np.ones(len(data["left"]), bool)
        )
        words = np.array(["left", "right", "tie"])[data["outcome"][people]]
        names = data["item_names"]
        sides = [names[data[side][people]] for side in ("left", "right")]
        votes = Votes.of(*sides, words, annotator=data["annotator"][people])
    fold = np.random.default_rng(0).integers(0, 5, len(votes))
    loss = {"equal": 0.0, "own": 0.0}
    for number in range(5):
        kept, left_out = votes.take(np.flatnonzero(fold != number)), votes.take(np.flatnonzero(fold == number))
        for kind in loss:
            board = BradleyTerry(annotators=kind, order=True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(board, "_warn", lambda votes: None)
                loss[kind] += board.fit(kept).log_loss(left_out) * len(left_out) / len(votes)
    assert loss["equal"] == pytest.approx(plain, abs=0.003)
    assert loss["own"] <= own


def test_the_table_of_the_page_is_that_of_the_record() -> None:
    root = Path(__file__).parents[2]
    record = (root / "benchmarks" / "results" / "ranking.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {row["data"]: row for row in map(json.loads, record)}
    lines = [
        f"| {name} | {row['votes']:,} | {row['contestants']} | {row['annotators']} | {row['equal']:.3f} | {row['own']:.3f} |"
        for name, row in sorted(rows.items())
    ]
    page = (root / "docs" / "ranking.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- generated: ranking -->")[2].partition("<!-- end of generated -->")[0]
    assert shown.strip().splitlines()[2:] == lines
