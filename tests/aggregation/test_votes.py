"""Majority vote and its weighted relatives, against hand-computed results."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise.aggregation import CRH, GoldMajorityVote, MajorityVote, Wawa, ZeroBasedSkill
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError
from fixtures import t1, t2


def test_majority_vote_shares_the_votes() -> None:
    np.testing.assert_allclose(MajorityVote().fit(t1()).posterior_[:, 1], [1 / 3, 1, 0, 2 / 3, 1 / 2])
    posterior = MajorityVote().fit(t2()).posterior_
    np.testing.assert_allclose(posterior[2], [1 / 3, 0, 2 / 3, 0])
    np.testing.assert_allclose(posterior[4], [0, 1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(posterior[5], 1 / 4)


def test_ties_go_to_the_first_class_or_to_a_random_one() -> None:
    crowd = Annotations.from_triples(np.repeat(np.arange(200), 2), [0, 1] * 200, [1, 2] * 200, n_classes=3)
    assert set(MajorityVote().fit_predict(crowd)) == {1}
    chosen = MajorityVote(tie="random", random_state=0).fit_predict(crowd)
    assert set(chosen) == {1, 2}
    assert 70 < (chosen == 1).sum() < 130
    with pytest.raises(ConfigError, match="unknown tie 'last'"):
        MajorityVote(tie="last").fit(crowd)  # type: ignore[arg-type]


def test_majority_vote_refuses_a_history_that_it_cannot_use() -> None:
    with pytest.raises(ConfigError, match="MajorityVote has no parameters of annotators"):
        MajorityVote().fit(t1(), history=Wawa().fit(t1()))


def test_gold_majority_vote_weighs_by_accuracy_on_gold() -> None:
    model = GoldMajorityVote().fit(t1(), gold={0: 1, 1: 1, 4: 0})
    np.testing.assert_allclose(model.skill_, [2 / 3, 1 / 3, 1])  # annotator 2 did not label instance 4
    np.testing.assert_allclose(model.posterior_[3], [1 / 2, 1 / 2])
    np.testing.assert_allclose(model.posterior_[0], [0, 1])


def test_without_gold_it_is_majority_vote_and_annotators_without_gold_get_the_mean() -> None:
    np.testing.assert_allclose(GoldMajorityVote().fit(t1()).posterior_, MajorityVote().fit(t1()).posterior_)
    model = GoldMajorityVote().fit(t2(), gold={3: 0})  # labelled by annotators 0, 2 and 3, all right
    np.testing.assert_allclose(model.skill_, 1.0)
    model = GoldMajorityVote().fit(t2(), gold={2: 2})  # 0 and 1 right, 2 wrong
    np.testing.assert_allclose(model.skill_, [1, 1, 0, 2 / 3, 2 / 3])


def test_wawa_weighs_by_agreement_with_majority_vote() -> None:
    model = Wawa().fit(t1())
    np.testing.assert_allclose(model.skill_, [0.9, 0.9, 0.5])  # instance 4 is a tie: half an agreement for either
    np.testing.assert_allclose(model.posterior_[:, 1], [0.217391, 1, 0, 0.782609, 0.5], atol=1e-6)


def test_wawa_knows_annotators_by_their_history() -> None:
    liar = Annotations.from_triples([0, 1, 2, 3] * 3, np.repeat([0, 1, 2], 4), [0, 1, 0, 1] * 2 + [1, 0, 1, 0])
    past = Wawa().fit(liar)
    np.testing.assert_allclose(past.skill_, [1, 1, 0])
    split = Annotations.from_triples([0, 0], [0, 2], [0, 1], n_annotators=3)
    now = Wawa().fit(split, history=past)
    assert now.posterior_[0, 0] > 0.7


def test_votes_without_weight_count_alike() -> None:
    crowd = Annotations.from_triples([0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 1, 1])
    model = Wawa().fit(crowd)  # annotator 2 never agrees, but is alone nowhere
    np.testing.assert_allclose(model.skill_, [1, 1, 0, 1])
    alone = Annotations.from_triples([0, 0, 0, 0, 1], [0, 1, 2, 3, 4], [0, 0, 0, 1, 1], n_instances=3)
    np.testing.assert_allclose(CRH().fit(alone).posterior_[1], [0, 1])


def test_zero_based_skill_settles_on_t1_after_one_round() -> None:
    for rounds in (1, 5, 100):
        np.testing.assert_allclose(ZeroBasedSkill(max_iter=rounds, tol=0).fit(t1()).skill_, [0.9, 0.9, 0.5])
    assert ZeroBasedSkill().fit(t1()).n_iter_ == 2


def test_crh_on_t1() -> None:
    mean, total = CRH().fit(t1()), CRH(loss="sum").fit(t1())
    np.testing.assert_array_equal(mean.labels_, [0, 1, 0, 1, 0])
    np.testing.assert_allclose(mean.weight_, [1.609437, 1.609437, 0], atol=1e-6)
    np.testing.assert_allclose(total.weight_, [1.386294, 1.386294, 0], atol=1e-6)
    shares = CRH(loss="sum", normaliser="sum").fit(t1())
    np.testing.assert_allclose(shares.weight_, [1.791759, 1.791759, 0.405465], atol=1e-6)


def test_crh_with_a_milder_floor_lets_others_speak() -> None:
    assert CRH(floor="half").fit(t1()).weight_[0] < 2
    for wrong in ({"floor": 0.0}, {"loss": "median"}, {"normaliser": "min"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            CRH(**wrong).fit(t1())  # type: ignore[arg-type]


def test_crh_with_equally_bad_annotators_is_majority_vote() -> None:
    crowd = Annotations.from_dense([[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(CRH().fit(crowd).posterior_, MajorityVote().fit(crowd).posterior_)
