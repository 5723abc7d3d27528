"""Networks trained on aggregated labels (DL-*) and Max-MIG."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise import Annotations, simulate
from crowdwise.aggregation.dawid_skene import DawidSkene
from crowdwise.engine import Batch
from crowdwise.errors import ConfigError
from crowdwise.methods.max_mig import DIVERGENCES, LabelAggregator, mutual_information_loss
from crowdwise.registry import METHODS
from engine_helpers import QUICK, crowd, quick
from tolerances import SINGLE

SHORT = {
    "dl-mv": "majority-vote",
    "dl-crh": "crh",
    "dl-mmsr": "mmsr",
    "dl-ds": "dawid-skene",
    "dl-ibcc": "ibcc",
    "dl-ebcc": "ebcc",
}


def spammed():
    """Three good annotators and seven who guess, four labels for each of 400 instances: (X, annotations, y)."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=400)
    X = rng.normal(size=(3, 20))[y] + rng.normal(size=(400, 20))
    made = simulate.hammer_spammer(y, 10, spammer_share=0.7, accuracy=0.95, labels_per_instance=4)
    return X, made.annotations, y


# networks on aggregated labels


@pytest.mark.parametrize("name", list(SHORT))
def test_short_names_are_deep_aggregates(name):
    X, annotations, _ = crowd(120)
    short = METHODS[name](**QUICK).fit(X, annotations)
    long = crowdwise.DeepAggregate(**QUICK, aggregator=SHORT[name]).fit(X, annotations)
    np.testing.assert_array_equal(short.predict_proba(X), long.predict_proba(X))
    assert short.name == name


@pytest.mark.parametrize("soft", [False, True])
def test_identical_annotators_make_dl_mv_equal_to_ce(soft):
    X, _, y = crowd(120)
    annotations = np.stack([y, y, y], axis=1)
    ce = crowdwise.CE(**QUICK).fit(X, annotations)
    voted = METHODS["dl-mv"](**QUICK, soft=soft).fit(X, annotations)
    np.testing.assert_allclose(
        [record["loss"] for record in voted.history_], [record["loss"] for record in ce.history_], rtol=1e-5
    )
    np.testing.assert_allclose(voted.predict_proba(X), ce.predict_proba(X), atol=1e-5)
    assert voted.tie_share_ == 0


def test_soft_votes_equal_ce_by_instance():
    """-sum_c (votes_c / r) ln f_c is the mean of -ln f_y over the instance's labels."""
    X, annotations, _ = crowd()
    ce = crowdwise.CE(**QUICK, reduction="instance").fit(X, annotations)
    voted = METHODS["dl-mv"](**QUICK, soft=True).fit(X, annotations)
    np.testing.assert_allclose(voted.predict_proba(X), ce.predict_proba(X), atol=1e-5)


def two_labels(n=60):
    """Two annotators who agree on the first two thirds of the instances."""
    X, _, y = crowd(n)
    other = np.where(np.arange(n) < 2 * n // 3, y, (y + 1) % 3)
    return X, np.stack([y, other], axis=1)


def test_share_of_ties_is_reported_and_saved(tmp_path):
    X, annotations = two_labels()
    model = METHODS["dl-mv"](**QUICK, lr=0.1, validation_fraction=0).fit(X, annotations)
    assert model.tie_share_ == pytest.approx(1 / 3)
    assert crowdwise.load(model.save(tmp_path / "model")).tie_share_ == model.tie_share_


def test_random_ties_follow_the_seed():
    X, annotations = two_labels()
    make = lambda seed, tie: METHODS["dl-mv"](  # noqa: E731
        **QUICK, validation_fraction=0, random_state=seed, aggregator_options={"tie": tie}
    )
    first, again, rule = (make(1, tie).fit(X, annotations).predict_proba(X) for tie in ("random", "random", "first"))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - rule).max() > 0


def test_options_reach_the_aggregator():
    X, annotations, _ = crowd(120)
    model = METHODS["dl-ds"](**QUICK, validation_fraction=0, aggregator_options={"prior": None})
    matrices = model.fit(X, annotations).transition(X[:1])[0]
    np.testing.assert_allclose(matrices, DawidSkene(prior=None).fit(annotations).confusion_, atol=SINGLE)
    with pytest.raises(ConfigError, match="unknown parameter 'priors' of DawidSkene; did you mean 'prior'"):
        METHODS["dl-ds"](**QUICK, aggregator_options={"priors": 1}).fit(X, annotations)
    with pytest.raises(ConfigError, match="unknown aggregator 'dawid-skeen'; did you mean 'dawid-skene'"):
        crowdwise.DeepAggregate(**QUICK, aggregator="dawid-skeen").fit(X, annotations)


# Max-MIG


def information(h, g, prior, divergence="kl"):
    h, g, prior = (torch.as_tensor(np.array(values, dtype=np.float64)) for values in (h, g, prior))
    return mutual_information_loss(h.log(), g.log(), prior.log(), torch.tensor(float(len(h))), divergence).item()


def test_information_of_the_worked_examples():
    uniform = np.full((4, 4), 1 / 4)
    assert information(uniform, uniform, uniform[0]) == pytest.approx(0)
    assert information(np.eye(4), np.eye(4), uniform[0]) == pytest.approx(-(math.log(4) + 1))
    assert information([[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.1], [0.4, 0.6]], [0.5, 0.5]) == pytest.approx(
        -0.454502, abs=SINGLE
    )


@pytest.mark.parametrize("divergence", list(DIVERGENCES))
def test_information_equals_its_definition(divergence):
    """Minus mean f'(m_aa) plus mean over a != b of f*(f'(m_ab)), pair by pair."""
    rng = np.random.default_rng(0)
    h, g = rng.dirichlet(np.ones(3), 5), rng.dirichlet(np.ones(3), 5)
    prior = np.array([0.5, 0.3, 0.2])
    slope, conjugate = {
        "kl": (lambda m: 1 + math.log(m), lambda t: math.exp(t - 1)),
        "pearson": (lambda m: 2 * (m - 1), lambda t: t**2 / 4 + t),
        "js": (lambda m: math.log(2 * m / (1 + m)), lambda t: -math.log(2 - math.exp(t))),
    }[divergence]
    m = [[sum(h[a] * g[b] / prior) for b in range(5)] for a in range(5)]
    expected = -sum(slope(m[a][a]) for a in range(5)) / 5
    expected += sum(conjugate(slope(m[a][b])) for a in range(5) for b in range(5) if a != b) / 20
    assert information(h, g, prior, divergence) == pytest.approx(expected)


@pytest.mark.parametrize("divergence", list(DIVERGENCES))
def test_knowing_nothing_of_each_other_is_worth_nothing(divergence):
    prior = np.array([0.5, 0.3, 0.2])
    assert information([prior] * 4, np.eye(3)[[0, 1, 2, 0]], prior, divergence) == pytest.approx(0)


@pytest.mark.parametrize("divergence", list(DIVERGENCES))
def test_a_batch_of_one_and_certain_errors_have_finite_gradients(divergence):
    log_h = torch.tensor([[0.0, -200.0]], requires_grad=True)
    log_g = torch.tensor([[-200.0, 0.0]])
    prior = torch.tensor([0.5, 0.5]).log()
    loss = mutual_information_loss(log_h, log_g, prior, torch.tensor(1.0), divergence)
    loss.backward()
    assert loss.item() == 0
    assert log_h.grad.eq(0).all()
    pair = torch.cat([log_h.detach(), log_h.detach()]).requires_grad_()
    mutual_information_loss(pair, log_g.expand(2, -1), prior, torch.tensor(2.0), divergence).backward()
    assert pair.grad.isfinite().all()


def batch_of_labels(row, annotator, label, weight, n):
    as_tensor = lambda values: torch.tensor(values, dtype=torch.int64)  # noqa: E731
    unit = torch.arange(n)
    return Batch(
        torch.zeros(n, 1), unit, unit, as_tensor(row), as_tensor(annotator), as_tensor(label),
        torch.tensor(weight), torch.tensor(1.0), torch.tensor(float(n)),
    )  # fmt: skip


def test_aggregator_starts_as_dawid_skene_and_ignores_padding():
    """T^0 label 0, T^1 label 1 under p = (.4, .6): (.072, .108) -> (.4, .6); an instance without labels keeps p."""
    matrices = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.1, 0.9]]])
    aggregator = LabelAggregator(matrices, torch.tensor([0.4, 0.6]), epsilon=0.0)
    batch = batch_of_labels([0, 0, 0], [0, 1, 1], [0, 1, 0], [1.0, 1.0, 0.0], n=2)
    expected = torch.tensor([[0.4 * 0.9 * 0.2, 0.6 * 0.2 * 0.9], [0.4, 0.6]])
    one = (batch.weight > 0).float()
    torch.testing.assert_close(aggregator(batch, one).exp(), expected / expected.sum(1, keepdim=True))
    half = aggregator(batch, 0.5 * one).exp()
    square_roots = torch.tensor([[0.4 * (0.9 * 0.2) ** 0.5, 0.6 * (0.2 * 0.9) ** 0.5], [0.4, 0.6]])
    torch.testing.assert_close(half, square_roots / square_roots.sum(1, keepdim=True))
    torch.testing.assert_close(aggregator.matrices(), matrices)


def test_silent_annotators_keep_uniform_matrices():
    X, annotations, _ = crowd()
    more = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, n_instances=len(X), n_annotators=10, n_classes=3
    )
    matrices = crowdwise.MaxMIG(**quick("max-mig")).fit(X, more).transition(X[:1])[0]
    np.testing.assert_allclose(matrices[8:], 1 / 3, atol=SINGLE)


@pytest.mark.parametrize("options", [{"divergence": "pearson"}, {"divergence": "js"}, {"prior": "votes"}], ids=str)
def test_variants_of_max_mig_learn(options):
    X, annotations, y = crowd(400)
    assert crowdwise.MaxMIG(epochs=25, lr=0.01, verbose=0, **options).fit(X, annotations).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divergence": "pearsn"}, "unknown divergence 'pearsn'; did you mean 'pearson'"),
        ({"prior": "flat"}, "unknown prior 'flat'; known: 'uniform', 'votes'"),
        ({"batch_size": 1}, "batch_size must be an integer of 2 or more, got 1"),
    ],
)
def test_max_mig_refuses_what_it_cannot_use(options, message):
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match=message):
        crowdwise.MaxMIG(**(QUICK | options)).fit(X, annotations)


# what they are for


@pytest.fixture(scope="module")
def ce_among_spammers():
    X, annotations, y = spammed()
    return crowdwise.CE(epochs=25, lr=0.005, batch_size=64, verbose=0).fit(X, annotations).score(X, y)


@pytest.mark.parametrize("method", ["dl-ds", "dl-ibcc", "dl-ebcc", "max-mig", "agg-net", "mbem"])
def test_models_of_annotators_beat_ce_among_spammers(method, ce_among_spammers):
    X, annotations, y = spammed()
    own = {"aggregator_lr": 0.005} if method == "max-mig" else {}
    model = METHODS[method](epochs=25, lr=0.005, batch_size=64, verbose=0, **own).fit(X, annotations)
    assert model.score(X, y) > ce_among_spammers + 0.05
    assert model.skill_[:3].min() > 0.8
    assert model.skill_[3:].max() < 0.5
