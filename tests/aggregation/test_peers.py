"""Side by side with crowd-kit, where it is installed (it is no dependency), and on real sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crowds import LABEL_ONLY, accuracy, real, simulated

from crowdwise.aggregation import KOS, MMSR, DawidSkene, MajorityVote, OneCoinDawidSkene, Wawa, ZeroBasedSkill
from crowdwise.annotations import Annotations

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def crowdkit() -> Any:
    return pytest.importorskip("crowdkit.aggregation", reason="crowd-kit is not installed")


def frame(crowd: Annotations) -> Any:
    return crowd.to_frame("pandas").rename(columns={"instance": "task", "annotator": "worker"})


@pytest.mark.parametrize("labels_per_annotator", [5, 20, 100])
def test_maximum_likelihood_agrees_with_crowd_kit(crowdkit: Any, labels_per_annotator: int) -> None:
    crowd, _ = simulated(1_000, 5_000 // labels_per_annotator, 4, 5, (0.4, 0.95), seed=1)
    theirs = crowdkit.DawidSkene(n_iter=50, tol=-1e9).fit_predict(frame(crowd))
    ours = DawidSkene(prior=None, max_iter=50, tol=0).fit(crowd)
    assert (ours.labels_[theirs.index.to_numpy()] == theirs.to_numpy()).mean() >= 0.999


@pytest.mark.parametrize("name", LABEL_ONLY)
def test_as_accurate_as_crowd_kit_on_real_sets(crowdkit: Any, name: str) -> None:
    crowd, truth = real(name)
    pairs = [
        (MajorityVote(), crowdkit.MajorityVote()),
        (Wawa(), crowdkit.Wawa()),
        (ZeroBasedSkill(), crowdkit.ZeroBasedSkill()),
        (DawidSkene(), crowdkit.DawidSkene()),
        (OneCoinDawidSkene(), crowdkit.OneCoinDawidSkene()),
    ]
    if crowd.n_classes == 2:
        pairs.append((KOS(random_state=0), crowdkit.KOS()))
    if len(crowd) < 9_000:
        pairs.append((MMSR(random_state=0), crowdkit.MMSR()))
    for ours, theirs in pairs:
        labels = theirs.fit_predict(frame(crowd))
        found = np.full(crowd.n_instances, -2)
        found[labels.index.to_numpy()] = labels.to_numpy()
        score = accuracy(ours.fit_predict(crowd), truth)
        assert score >= accuracy(found, truth) - 0.5, type(ours).__name__


@pytest.mark.parametrize(("name", "expected"), [("agg_bluebird", 75.9), ("agg_rte", 91.9), ("agg_dog", 81.8)])
def test_majority_vote_on_real_sets(name: str, expected: float) -> None:
    crowd, truth = real(name)
    assert accuracy(MajorityVote().fit_predict(crowd), truth) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("name", "gain"), [("agg_bluebird", 10), ("agg_dog", 1.5), ("agg_web", 3), ("agg_rte", 0)])
def test_dawid_skene_gains_over_majority_vote_on_real_sets(name: str, gain: float) -> None:
    crowd, truth = real(name)
    vote = accuracy(MajorityVote().fit_predict(crowd), truth)
    assert accuracy(DawidSkene().fit_predict(crowd), truth) > vote + gain
