"""Side by side with crowd-kit, which only tests need, and on real sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crowds import LABEL_ONLY, accuracy, real, simulated
from sklearn.base import BaseEstimator

from crowdwise.aggregation import (
    GLAD,
    KOS,
    MMSR,
    DawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    Wawa,
    ZeroBasedSkill,
)
from crowdwise.annotations import Annotations

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def crowdkit() -> Any:
    peers = pytest.importorskip("crowdkit.aggregation", reason="crowd-kit is not installed")
    for peer in vars(peers).values():  # newer versions of scikit-learn ask every estimator for tags
        if isinstance(peer, type) and not hasattr(peer, "__sklearn_tags__"):
            peer.__sklearn_tags__ = BaseEstimator.__sklearn_tags__
    return peers


def frame(crowd: Annotations) -> Any:
    return crowd.to_frame("pandas").rename(columns={"instance": "task", "annotator": "worker"})


@pytest.mark.parametrize("labels_per_annotator", [5, 20, 100])
def test_maximum_likelihood_agrees_with_crowd_kit(crowdkit: Any, labels_per_annotator: int) -> None:
    crowd, _ = simulated(400, 2_000 // labels_per_annotator, 4, 5, (0.4, 0.95), seed=1)
    theirs = labels_of(crowdkit.DawidSkene(n_iter=25, tol=-1e9), crowd)
    ours = DawidSkene(prior=None, max_iter=25, tol=0).fit(crowd)
    decided = ~tied(ours.posterior_)
    assert decided.mean() > 0.9
    assert (ours.labels_ == theirs)[decided].mean() >= 0.999


def tied(posterior: np.ndarray) -> np.ndarray:
    """Where crowd-kit lets rounding decide: whether the two likeliest classes are as likely, (n,)."""
    second, first = np.sort(posterior, axis=1)[:, -2:].T
    return first - second <= 1e-6


def backwards(crowd: Annotations) -> Annotations:
    """The same crowd with its classes in the other order."""
    label = crowd.n_classes - 1 - crowd.label
    sizes = {"n_instances": crowd.n_instances, "n_annotators": crowd.n_annotators, "n_classes": crowd.n_classes}
    return Annotations.from_triples(crowd.instance, crowd.annotator, label, **sizes)


def labels_of(peer: Any, crowd: Annotations) -> np.ndarray:
    """What a method of crowd-kit finds, (n,) class codes; -2 where it has no answer."""
    found = np.full(crowd.n_instances, -2)
    labels = peer.fit_predict(frame(crowd))
    found[labels.index.to_numpy()] = labels.to_numpy()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("model", [DawidSkene, OneCoinDawidSkene])
def test_maximum_likelihood_agrees_on_many_small_crowds(crowdkit: Any, model: Any) -> None:
    agree, ours_right, theirs_right = [], [], []
    for seed in range(40):  # crowd-kit takes its time
        rng = np.random.default_rng(seed)
        n_classes, votes = int(rng.integers(2, 5)), int(rng.integers(2, 6))
        crowd, truth = simulated(60, int(rng.integers(6, 15)), n_classes, votes, (0.4, 0.95), seed=seed)
        peer = getattr(crowdkit, model.__name__)(n_iter=10, tol=-1e9)
        ours, theirs = model(prior=None, max_iter=10, tol=0).fit(crowd), labels_of(peer, crowd)
        agree.append((ours.labels_ == theirs)[~tied(ours.posterior_)])
        ours_right.append(accuracy(ours.labels_, truth))
        theirs_right.append(accuracy(theirs, truth))
    assert np.concatenate(agree).mean() >= 0.999
    assert np.mean(ours_right) >= np.mean(theirs_right) - 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (MajorityVote(), "MajorityVote"),
        (Wawa(), "Wawa"),
        (ZeroBasedSkill(), "ZeroBasedSkill"),
        (DawidSkene(), "DawidSkene"),
        (OneCoinDawidSkene(), "OneCoinDawidSkene"),
        (GLAD(), "GLAD"),
        (KOS(random_state=0), "KOS"),
        (MMSR(random_state=0), "MMSR"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_as_accurate_as_crowd_kit_on_real_sets(crowdkit: Any, ours: Any, theirs: str) -> None:
    """On no set worse beyond chance (two standard deviations of what the two disagree on), and better in the mean.

    Of classes with as many votes crowd-kit takes the first, which is luck: its votes are counted under two orders.
    """
    scores = []
    for name in LABEL_ONLY:
        crowd, truth = real(name)
        if (theirs == "KOS" and crowd.n_classes > 2) or (theirs in ("GLAD", "MMSR") and len(crowd) > 9_000):
            continue  # crowd-kit's KOS is binary, the others take minutes
        mine, peer = ours.fit_predict(crowd), getattr(crowdkit, theirs)
        found = [labels_of(peer(), crowd)]
        if theirs in ("MajorityVote", "Wawa", "ZeroBasedSkill"):
            last = crowd.n_classes - 1
            found.append(last - labels_of(peer(), backwards(crowd)))
        only_mine = np.mean([np.sum((mine == truth) & (each != truth)) for each in found])
        only_theirs = np.mean([np.sum((mine != truth) & (each == truth)) for each in found])
        assert only_theirs - only_mine <= 2 * np.sqrt(only_theirs + only_mine), name
        scores.append((accuracy(mine, truth), np.mean([accuracy(each, truth) for each in found])))
    mean, their_mean = np.mean(scores, axis=0)
    assert mean >= their_mean - 0.1


@pytest.mark.parametrize(("name", "expected"), [("agg_bluebird", 75.9), ("agg_rte", 91.9), ("agg_dog", 81.8)])
def test_majority_vote_on_real_sets(name: str, expected: float) -> None:
    crowd, truth = real(name)
    assert accuracy(MajorityVote().fit_predict(crowd), truth) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("name", "gain"), [("agg_bluebird", 10), ("agg_dog", 1.5), ("agg_web", 3), ("agg_rte", 0)])
def test_dawid_skene_gains_over_majority_vote_on_real_sets(name: str, gain: float) -> None:
    crowd, truth = real(name)
    vote = accuracy(MajorityVote().fit_predict(crowd), truth)
    assert accuracy(DawidSkene().fit_predict(crowd), truth) > vote + gain
