"""Methods that alternate training with the steps of EM (AggNet, MBEM), and these steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crowdwise import Annotations
from crowdwise.aggregation.dawid_skene import DawidSkene
from crowdwise.engine import Engine
from crowdwise.engine.problem import make_inputs, make_units
from crowdwise.errors import ConfigError
from crowdwise.methods.core.steps import annotator_matrices, class_posterior, normalised, soft_votes
from crowdwise.registry import METHODS
from engine_helpers import crowd, fit_and_interrupt, quick, replay_static_steps
from fixtures import t1, t2
from processes import by_one_and_by_two
from tolerances import SINGLE

CPU = torch.device("cpu")
STARTS = [("agg-net", {}), ("dl-mv", {"soft": True})]


def units_of(annotations):
    return make_units(make_inputs(np.zeros((annotations.n_instances, 1)), CPU), annotations, CPU, "annotation")


# the steps


def test_soft_votes_of_the_worked_examples():
    torch.testing.assert_close(soft_votes(units_of(t1()), 2)[:, 1], torch.tensor([1 / 3, 1, 0, 2 / 3, 1 / 2]))
    votes = soft_votes(units_of(t2()), 4)
    expected = [[1 / 3, 0, 2 / 3, 0], [0, 0.5, 0.5, 0], [0.25, 0.25, 0.25, 0.25]]
    torch.testing.assert_close(votes[[2, 4, 5]], torch.tensor(expected))


def test_first_round_of_em_on_t1():
    units = units_of(t1())
    matrices = annotator_matrices(units, soft_votes(units, 2), 3)
    expected = [[[13, 2], [5, 10]], [[10, 5], [2, 13]], [[10, 5], [5, 10]]]
    torch.testing.assert_close(matrices, torch.tensor(expected) / 15)
    posterior = class_posterior(units, torch.tensor([0.5, 0.5]).log(), matrices)
    torch.testing.assert_close(
        posterior[:, 1], torch.tensor([0.133333, 0.962963, 0.037037, 0.866667, 0.5]), atol=SINGLE, rtol=0
    )


def test_many_rounds_without_features_are_dawid_skene():
    """The same E and M steps, the classes' mean as prior: the aggregator's posterior and matrices."""
    _, annotations, _ = crowd(60)
    units = units_of(annotations)
    rounds = 6
    aggregator = DawidSkene(prior=1.0, tol=0, max_iter=rounds).fit(annotations)
    posterior = soft_votes(units, 3)
    for _ in range(rounds):
        matrices = annotator_matrices(units, posterior, 8, smoothing=1.0)
        posterior = class_posterior(units, posterior.mean(0).log(), matrices)
    np.testing.assert_allclose(posterior, aggregator.raw_posterior_, atol=1e-5)
    last = annotator_matrices(units, posterior, 8, smoothing=1.0)
    np.testing.assert_allclose(last, aggregator.confusion_, atol=1e-5)


def test_the_classifier_is_a_prior_for_each_instance():
    """f = (.4, .6), T^0 says 0, T^1 says 1: (.072, .108) -> (.4, .6); an instance without labels keeps f."""
    annotations = Annotations.from_triples([0, 0], [0, 1], [0, 1], n_instances=2, n_annotators=2, n_classes=2)
    matrices = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.1, 0.9]]])
    f = torch.tensor([[0.4, 0.6], [0.3, 0.7]])
    torch.testing.assert_close(class_posterior(units_of(annotations), f.log(), matrices), f)


def test_predicted_classes_on_t1():
    """MBEM's step with t = (0, 1, 0, 1, 0): annotator 0 is always right, so instance 4 is of class 0."""
    units = units_of(t1())
    predicted = torch.eye(2)[[0, 1, 0, 1, 0]]
    matrices = annotator_matrices(units, predicted, 3)
    expected = [[[1, 0], [0, 1]], [[2 / 3, 1 / 3], [0, 1]], [[1 / 2, 1 / 2], [1 / 2, 1 / 2]]]
    torch.testing.assert_close(matrices, torch.tensor(expected))
    posterior = class_posterior(units, predicted.mean(0).log(), matrices)
    assert posterior[4, 0] > 1 - 1e-6


def test_steps_on_t2_are_finite_and_neutral_where_nothing_is_known():
    units = units_of(t2())
    matrices = annotator_matrices(units, soft_votes(units, 4), 5)
    torch.testing.assert_close(matrices.sum(2), torch.ones(5, 4))
    torch.testing.assert_close(matrices[4], torch.full((4, 4), 0.25))  # no label
    torch.testing.assert_close(matrices[:, 3], torch.full((5, 4), 0.25))  # class never seen
    prior = torch.tensor([0.4, 0.3, 0.2, 0.1])
    posterior = class_posterior(units, prior.log(), matrices)
    torch.testing.assert_close(posterior.sum(1), torch.ones(6))
    torch.testing.assert_close(posterior[5], prior)


def test_without_annotations_everything_is_uniform():
    units = units_of(Annotations.from_triples([], [], [], n_instances=2, n_annotators=3, n_classes=2))
    torch.testing.assert_close(soft_votes(units, 2), torch.full((2, 2), 0.5))
    torch.testing.assert_close(annotator_matrices(units, soft_votes(units, 2), 3), torch.full((3, 2, 2), 0.5))


def test_rows_of_zeros_become_uniform():
    torch.testing.assert_close(
        normalised(torch.tensor([[0.0, 0.0], [1.0, 3.0]])), torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    )


# the methods


def fit(method, X, annotations, **options):
    return METHODS[method](**(quick(method) | options)).fit(X, annotations)


def test_agg_net_starts_on_soft_votes():
    X, annotations, _ = crowd(120)
    losses = [fit(method, X, annotations, **own).history_[0]["loss"] for method, own in STARTS]
    assert losses[0] == pytest.approx(losses[1], rel=SINGLE)


@pytest.mark.parametrize("method", ["agg-net", "mbem"])
def test_matrices_are_those_of_the_annotators(method):
    X, annotations, y = crowd(400)
    model = fit(method, X, annotations, epochs=15, validation_fraction=0)
    truth = annotator_matrices(units_of(annotations), torch.eye(3)[y], 8)
    np.testing.assert_allclose(model.transition(X[:1])[0], truth, atol=0.12)


def test_matrices_of_agg_net_follow_from_its_last_network():
    """The last E and M step see the trained network; the E step before it fixed the targets of the last epoch."""
    X, annotations, _ = crowd(100)
    one, two = (fit("agg-net", X, annotations, epochs=epochs, milestones=()) for epochs in (1, 2))
    assert one.history_[0]["loss"] == two.history_[0]["loss"]
    assert np.abs(one.transition(X[:1]) - two.transition(X[:1])).max() > 0


def test_an_uninformative_network_leaves_dawid_skene():
    """With f uniform (floor 1) AggNet is Dawid-Skene's EM with a uniform prior, one round for each epoch."""
    X, annotations, _ = crowd(100)
    model = fit("agg-net", X, annotations, epochs=4, floor=1.0, validation_fraction=0, smoothing=0.01)
    units = units_of(annotations)
    matrices = annotator_matrices(units, soft_votes(units, 3), 8, 0.01)
    for _ in range(4):
        posterior = class_posterior(units, torch.zeros(3), matrices)
        matrices = annotator_matrices(units, posterior, 8, 0.01)
    np.testing.assert_allclose(model.transition(X[:1])[0], matrices, atol=1e-5)


def test_mbem_trains_a_new_network_each_round():
    X, annotations, _ = crowd()
    model = fit("mbem", X, annotations, rounds=3)
    assert [record["stage"] for record in model.history_] == [f"round {k}" for k in (1, 2, 3) for _ in range(3)]


def test_mbem_learns_from_one_label_for_each_instance():
    X, _, y = crowd(600, n_annotators=1)
    rng = np.random.default_rng(1)
    annotator = rng.integers(6, size=600)
    label = np.where(annotator < 3, y, rng.integers(3, size=600))
    annotations = Annotations.from_triples(
        np.arange(600), annotator, label, n_instances=600, n_annotators=6, n_classes=3
    )
    model = fit("mbem", X, annotations, epochs=15)
    assert model.score(X, y) > 0.95
    assert model.skill_[:3].min() > 0.9
    assert model.skill_[3:].max() < 0.6


def test_a_number_of_rounds_that_cannot_be_is_refused():
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match="rounds must be an integer of 1 or more, got 0"):
        fit("mbem", X, annotations, rounds=0)


# the engine's promises, beyond those that every method is tested for


@pytest.mark.parametrize("method", ["agg-net", "mbem"])
def test_matrices_of_a_resumed_run_equal_those_of_an_uninterrupted_run(method, tmp_path):
    X, annotations, _ = crowd()
    make = lambda: METHODS[method](**quick(method))  # noqa: E731
    whole = make().fit(X, annotations)
    for stop_after in {2, len(whole.history_) - 1}:
        run = tmp_path / str(stop_after)
        fit_and_interrupt(make(), X, annotations, run, stop_after)
        resumed = make().fit(X, annotations, resume=run)
        np.testing.assert_array_equal(resumed.transition(X[:1]), whole.transition(X[:1]))
        again = make().fit(X, annotations, resume=run)  # a finished run, read back
        np.testing.assert_array_equal(again.transition(X[:1]), whole.transition(X[:1]))


@pytest.mark.parametrize("method", ["dl-mv", "max-mig", "agg-net", "mbem"])
def test_padded_static_steps_equal_eager_steps(method, monkeypatch):
    X, annotations, _ = crowd()
    eager = fit(method, X, annotations, batch_size=50, lr=0.01)
    replay_static_steps(monkeypatch)
    static = fit(method, X, annotations, batch_size=50, lr=0.01)
    np.testing.assert_allclose(static.predict_proba(X), eager.predict_proba(X), atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("method", ["dl-mv", "max-mig", "agg-net", "mbem"])
def test_captured_steps_equal_eager_steps(method, monkeypatch):
    X, annotations, _ = crowd()
    original, models = Engine.__init__, []
    for captured in (False, True):
        changed = lambda self, *a, captured=captured, **k: original(self, *a, **(k | {"captured": captured}))  # noqa: E731
        monkeypatch.setattr(Engine, "__init__", changed)
        models.append(fit(method, X, annotations, lr=0.01, device="cuda", precision="fp32"))
    losses = [[record["loss"] for record in model.history_] for model in models]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2)


_WORKER = """
from engine_helpers import crowd, quick
from crowdwise.registry import METHODS
X, annotations, _ = crowd(n=101)
results = {}
for method, options in CASES:
    common = {"lr": 0.01, "batch_size": 32, "backbone_options": {"hidden": 16, "batch_norm": True}}
    model = METHODS[method](**(quick(method) | common | options)).fit(X, annotations)
    results[method + str(options)] = np.array([r["loss"] for r in model.history_])
    results[method + str(options) + " T"] = model.transition(X[:1])
"""


@pytest.mark.slow
def test_two_processes_equal_one_at_the_same_global_batch(tmp_path):
    cases = [("dl-mv", {}), ("agg-net", {}), ("mbem", {})]
    cases += [("max-mig", {"divergence": divergence}) for divergence in ("kl", "pearson", "js")]
    one, two = by_one_and_by_two(tmp_path, f"CASES = {cases!r}" + _WORKER)
    assert len(one) == 2 * len(cases)
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-3, err_msg=name)
