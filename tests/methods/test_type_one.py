"""Methods that take the crowd as one source: GCE, Forward, Reweight, and BLTM as its own authors run it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import crowdwise
from crowdwise import Annotations, simulate
from crowdwise.engine import Engine, Problem
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.methods import forward
from crowdwise.methods.core.anchors import anchor_matrix, estimate_matrix
from crowdwise.methods.core.revision import Slack
from crowdwise.methods.forward import forward_loss
from crowdwise.methods.gce import generalised_cross_entropy
from crowdwise.methods.reweight import importance
from crowdwise.networks.transition import corrected_loss
from crowdwise.registry import METHODS
from engine_helpers import QUICK, crowd, fit_and_interrupt, quick, replay_static_steps
from tolerances import SINGLE

LOGITS = torch.tensor([[0.7, 0.2, 0.1]]).log().expand(3, 3)
LABELS = torch.tensor([0, 1, 2])
CROSS_ENTROPY = torch.tensor([0.356675, 1.609438, 2.302585])
MATRIX = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
EXTREME = torch.tensor([[200.0, -200.0, 0.0]]).expand(3, 3)
VARIANTS = {
    "gce": {"truncate": 0.5, "truncate_from": 1},
    "forward": {"revision": True, "revision_epochs": 3, "revision_lr": 1e-3},
    "reweight": {"revision": True, "revision_epochs": 3, "revision_lr": 1e-3},
    "bltm": {"variant": "original", "revision_lr": 1e-3},
}
each_variant = pytest.mark.parametrize("method", list(VARIANTS))


def close(actual: torch.Tensor, expected: list[float] | torch.Tensor) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected), atol=SINGLE, rtol=0)


def blobs(n: int, width: int, seed: int):
    """Three overlapping classes around the first unit vectors."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return (rng.normal(size=(n, width)) + 2.5 * np.eye(3, width)[y]).astype(np.float32), y


def stage_names(model) -> list[str]:
    return list(dict.fromkeys(record["stage"] for record in model.history_))


# generalised cross-entropy


def test_gce_lies_between_absolute_error_and_cross_entropy():
    close(generalised_cross_entropy(LOGITS, LABELS, 0.7), [0.315634, 0.965527, 1.143534])
    close(generalised_cross_entropy(LOGITS, LABELS, 1.0), [0.3, 0.8, 0.9])
    for q in (0.0, 5e-5):
        close(generalised_cross_entropy(LOGITS, LABELS, q), CROSS_ENTROPY)
    torch.testing.assert_close(generalised_cross_entropy(LOGITS, LABELS, 2e-4), CROSS_ENTROPY, atol=1e-3, rtol=0)


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_gce_is_bounded_and_has_finite_gradients(q):
    logits = EXTREME.clone().requires_grad_()
    losses = generalised_cross_entropy(logits, LABELS, q)
    assert bool(((losses >= 0) & (losses <= 1 / q)).all())
    losses.sum().backward()
    assert bool(torch.isfinite(logits.grad).all())


def test_gce_without_power_trains_like_cross_entropy():
    X, annotations, _ = crowd()
    results = [
        model.fit(X, annotations).predict_proba(X) for model in (crowdwise.CE(**QUICK), crowdwise.GCE(**QUICK, q=0))
    ]
    np.testing.assert_allclose(results[0], results[1], atol=SINGLE)


def test_truncated_labels_no_longer_pull():
    """At most 0.999 holds for all of them here, so that nothing is learned once truncation begins."""
    X, annotations, _ = crowd()
    settings = QUICK | {"epochs": 4, "weight_decay": 0.0, "momentum": 0.0}
    ceiling = (1 - 0.999**0.7) / 0.7
    for begins in (2, 0.5):
        model = crowdwise.GCE(**settings, truncate=0.999, truncate_from=begins).fit(X, annotations)
        losses = [record["loss"] for record in model.history_]
        assert min(losses[:2]) > 10 * ceiling
        assert losses[2:] == pytest.approx([ceiling, ceiling], rel=1e-3)
    shorter = crowdwise.GCE(**settings | {"epochs": 2}, milestones=()).fit(X, annotations)
    longer = crowdwise.GCE(**settings, milestones=(), truncate=0.999, truncate_from=2).fit(X, annotations)
    np.testing.assert_array_equal(longer.predict_proba(X), shorter.predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"q": 1.5}, r"q must be a number from 0 to 1, got 1\.5"), ({"truncate": 1.0}, r"truncate must be .* got 1\.0")],
)
def test_gce_refuses_what_is_out_of_range(parameters, message):
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match=message):
        crowdwise.GCE(**QUICK, **parameters).fit(X, annotations)


def test_gce_memorises_less_symmetric_noise_than_cross_entropy():
    X, y = blobs(400, 20, seed=0)
    made = simulate.one_coin(y, np.full(10, 0.6), labels_per_instance=1)
    settings = {"recipe": "paper", "epochs": 40, "batch_size": 32, "lr": 0.05, "milestones": (), "verbose": 0}
    X_test, y_test = blobs(2000, 20, seed=1)
    plain, robust, truncated = (
        model.fit(X, made.annotations).score(X_test, y_test)
        for model in (
            crowdwise.CE(**settings),
            crowdwise.GCE(**settings),
            crowdwise.GCE(**settings, truncate=0.5, truncate_from=10),
        )
    )
    assert robust > plain + 0.03
    assert truncated > robust


# anchors and forward correction


def test_rows_of_the_matrix_are_posteriors_of_anchors():
    posterior = torch.tensor([[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    close(anchor_matrix(posterior), posterior[:3])
    close(anchor_matrix(2 * posterior), posterior[:3])


def test_a_percentile_passes_over_outliers_and_changes_no_posterior():
    posterior = torch.softmax(3 * torch.randn(201, 4, generator=torch.Generator().manual_seed(0)), 1)
    before = posterior.clone()
    filtered = anchor_matrix(posterior, 97)
    assert torch.equal(posterior, before)
    for c in range(4):  # six of 201 lie above
        close(filtered[c], posterior[posterior[:, c].argsort(descending=True)[6]])
    with pytest.raises(ConfigError, match="anchor_percentile must be a number from 0 to 100, got 101"):
        anchor_matrix(posterior, 101)


def posterior_engine(posterior: torch.Tensor) -> tuple[Engine, torch.nn.Module]:
    """An engine, and a classifier that gives exactly these posteriors (n, C)."""
    n, n_classes = posterior.shape
    annotations = Annotations.from_triples(range(n), [0] * n, [0] * n, n_classes=n_classes)
    device = torch.device("cpu")
    problem = Problem.make(
        posterior.log().numpy(), annotations, device=device, seed=0, prepare="none", validation_fraction=0.0
    )
    return Engine(problem), torch.nn.Identity()


def test_a_class_that_is_never_predicted_is_half_identity():
    engine, classifier = posterior_engine(torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.45, 0.25, 0.3]]))
    with pytest.warns(CrowdwiseWarning, match=r"never predicts classes \[2\]"):
        matrix = estimate_matrix(engine, classifier)
    close(matrix, [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.225, 0.125, 0.65]])


@pytest.mark.parametrize(("n_classes", "above"), [(10, 0), (11, 6)])
def test_outliers_are_passed_over_where_there_are_more_than_ten_classes(n_classes, above):
    draws = torch.randn(201, n_classes, generator=torch.Generator().manual_seed(1))
    engine, classifier = posterior_engine(torch.softmax(3 * draws, 1))
    posterior = torch.softmax(3 * draws, 1)
    matrix = estimate_matrix(engine, classifier)
    close(matrix[0], posterior[posterior[:, 0].argsort(descending=True)[above]])


def test_forward_loss_is_that_of_the_noisy_posterior():
    close((torch.softmax(LOGITS[:1], 1) @ MATRIX)[0], [0.61, 0.24, 0.15])
    losses = forward_loss(LOGITS, MATRIX, LABELS)
    close(losses, [0.494296, 1.427116, 1.897120])
    close(losses, corrected_loss(LOGITS, MATRIX.log().expand(3, 3, 3), torch.arange(3), LABELS))


def test_identity_as_matrix_gives_cross_entropy():
    identity = torch.eye(3)
    close(forward_loss(LOGITS, identity, LABELS), CROSS_ENTROPY)
    close(importance(LOGITS, identity, LABELS), torch.ones(3))


def test_a_single_class_costs_nothing():
    logits, label = torch.randn(4, 1), torch.zeros(4, dtype=torch.int64)
    close(forward_loss(logits, torch.ones(1, 1), label), torch.zeros(4))


def test_corrected_losses_stay_finite():
    logits = EXTREME.clone().requires_grad_()
    matrix = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], requires_grad=True)  # nobody says 2
    losses = forward_loss(logits, matrix, LABELS) + crowdwise.Reweight().annotation_loss(logits, matrix, LABELS)
    losses.sum().backward()
    assert bool(torch.isfinite(losses).all())
    assert bool(torch.isfinite(logits.grad).all())
    assert bool(torch.isfinite(matrix.grad).all())


@pytest.mark.parametrize("method", [crowdwise.Forward, crowdwise.Reweight])
def test_trained_through_the_identity_they_are_cross_entropy(method, monkeypatch):
    def no_warm_up(self, engine):
        return self.new_classifier(engine, "warm-up")
        yield  # so that the classifier is trained by the first stage, as CE's is

    monkeypatch.setattr(method, "warm_up", no_warm_up)
    monkeypatch.setattr(forward, "estimate_matrix", lambda engine, *_: torch.eye(engine.problem.n_classes))
    X, annotations, _ = crowd()
    expected = crowdwise.CE(**QUICK).fit(X, annotations).predict_proba(X)
    np.testing.assert_allclose(method(**QUICK).fit(X, annotations).predict_proba(X), expected, atol=1e-5)


def test_forward_and_reweight_undo_class_dependent_noise():
    """Half of classes 0 and 2 is called 1: cross-entropy says 1 too often."""
    matrix = np.array([[0.55, 0.45, 0.0], [0.0, 1.0, 0.0], [0.0, 0.45, 0.55]])
    X, y = blobs(1000, 3, seed=0)
    made = simulate.confusion_matrices(y, np.stack([matrix] * 10), labels_per_instance=2)
    X_test, y_test = blobs(2000, 3, seed=1)
    settings = {"recipe": "paper", "prepare": "none", "epochs": 15, "batch_size": 64, "lr": 0.05, "verbose": 0}
    plain = crowdwise.CE(**settings).fit(X, made.annotations).score(X_test, y_test)
    for method in (crowdwise.Forward, crowdwise.Reweight):
        for start in ("afresh", "warm-up"):
            model = method(**settings, warmup_epochs=10, warmup_lr=0.05, classifier_start=start)
            model.fit(X, made.annotations)
            assert model.score(X_test, y_test) > plain + 0.05
        estimated = model.transition(X[:1])[0, 0]
        assert np.abs(estimated - matrix).mean() < 0.5 * np.abs(np.eye(3) - matrix).mean()


def test_one_matrix_serves_all_annotators_and_instances():
    X, annotations, _ = crowd()
    matrices = crowdwise.Forward(**quick("forward")).fit(X, annotations).transition(X[:4])
    assert matrices.shape == (4, 8, 3, 3)
    np.testing.assert_allclose(matrices, np.broadcast_to(matrices[0, 0], matrices.shape), atol=SINGLE)


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
@pytest.mark.parametrize("method", [crowdwise.GCE, crowdwise.Forward, crowdwise.Reweight])
def test_a_class_nobody_names_is_never_predicted(method):
    X, annotations, _ = crowd()
    wider = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, n_instances=len(X), n_annotators=8, n_classes=4
    )
    model = method(**quick(method.name) | {"epochs": 10}).fit(X, wider)
    assert 3 not in model.predict(X)


def test_unknown_starts_are_refused():
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match="unknown classifier_start 'random'; known: 'afresh', 'warm-up'"):
        crowdwise.Forward(**QUICK, classifier_start="random").fit(X, annotations)


# revision


def test_slack_scales_rows_not_columns():
    slack = Slack(3)
    assert torch.equal(slack(torch.eye(3)), torch.eye(3))
    with torch.no_grad():
        slack.delta[0, 1], slack.delta[2, 2] = 0.1, 0.2
    expected = [[0.727273, 0.181818, 0.090909], [0.2, 0.7, 0.1], [0.083333, 0.25, 0.666667]]
    close(slack(MATRIX), expected)
    close(slack(MATRIX.expand(2, 3, 3)), torch.tensor([expected, expected]))


@pytest.mark.parametrize("method", ["forward", "reweight"])
def test_revision_tunes_the_matrix(method):
    X, annotations, _ = crowd()
    fixed, revised = (
        METHODS[method](**quick(method), **options).fit(X, annotations) for options in ({}, VARIANTS[method])
    )
    assert stage_names(fixed) == ["warm-up", "classifier"]
    assert stage_names(revised) == ["warm-up", "classifier", "revision"]
    before, after = fixed.transition(X[:1])[0, 0], revised.transition(X[:1])[0, 0]
    assert 1e-4 < np.abs(after - before).max() < 0.1
    np.testing.assert_allclose(after.sum(1), 1, atol=SINGLE)


# reweighting


def test_weights_are_ratios_of_clean_and_noisy_probability():
    weights = importance(LOGITS, MATRIX, LABELS)
    close(weights, [1.147541, 0.833333, 0.666667])
    close(crowdwise.Reweight().annotation_loss(LOGITS, MATRIX, LABELS), [0.409299, 1.341198, 1.535057])


def test_the_classifier_gets_no_gradient_through_weights():
    logits = LOGITS.clone().requires_grad_()
    crowdwise.Reweight().annotation_loss(logits, MATRIX, LABELS).sum().backward()
    plain = LOGITS.clone().requires_grad_()
    F.cross_entropy(plain, LABELS, reduction="none").sum().backward()
    close(logits.grad, importance(LOGITS, MATRIX, LABELS)[:, None] * plain.grad)


def test_weights_are_bounded():
    never = torch.tensor([[0.0, 1.0], [0.0, 1.0]])  # nobody says 0
    logits, label = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    assert importance(logits, never, label).item() == pytest.approx(0.5e6)
    plain = F.cross_entropy(logits, label).item()
    assert crowdwise.Reweight().annotation_loss(logits, never, label).item() == pytest.approx(10 * plain)
    assert crowdwise.Reweight(weight_cap=0).annotation_loss(logits, never, label).item() == pytest.approx(0.5e6 * plain)


def test_how_often_the_bound_acts_is_told(tmp_path):
    X, annotations, _ = crowd()
    for cap, low, high in ((0.5, 0.5, 1.0), (10.0, 0.0, 0.0), (0.0, 0.0, 0.0)):
        model = crowdwise.Reweight(**quick("reweight"), weight_cap=cap).fit(X, annotations)
        assert low <= model.capped_share_ <= high
        assert crowdwise.load(model.save(tmp_path / str(cap))).capped_share_ == model.capped_share_
    with pytest.raises(ConfigError, match="weight_cap must be a number of 0 or more, got -1"):
        crowdwise.Reweight(**QUICK, weight_cap=-1).fit(X, annotations)


# BLTM as its own authors run it


def original(**options):
    X, annotations, y = crowd()
    settings = (
        quick("bltm")
        | {
            "variant": "original",
            "prepare": "none",
            "warmup_lr": 0.05,
            "backbone_options": {"hidden": 16, "batch_norm": True},
        }
        | options
    )
    return crowdwise.BLTM(**settings).fit(X, annotations), X, y


def test_the_transition_network_starts_at_parameters_of_the_warm_up_but_not_at_its_statistics():
    model, _, _ = original(transition_epochs=0, epochs=0)  # leaves the classifier as the warm-up made it
    for (name, warm), start in zip(
        model.classifier_.backbone.named_parameters(), model.transition_.backbone.parameters(), strict=True
    ):
        assert torch.equal(warm, start), name
    statistics = model.transition_.state_dict()["backbone.2.running_mean"]
    assert torch.equal(statistics, torch.zeros(16))
    assert not torch.equal(model.classifier_.state_dict()["backbone.2.running_mean"], statistics)


def test_the_last_stage_leaves_the_transition_network_alone():
    before, _, _ = original(epochs=0)
    after, _, _ = original(revision_lr=1e-3)
    assert stage_names(after) == ["warm-up", "global transition", "correction"]
    states = [model.transition_.state_dict() for model in (before, after)]
    changed = [name for name in states[0] if not torch.equal(states[0][name], states[1][name])]
    assert changed == ["slack.delta"]
    assert not torch.equal(before.classifier_.linear.weight, after.classifier_.linear.weight)


def test_transition_gives_the_revised_matrices(tmp_path):
    model, X, y = original(revision_lr=1e-2, epochs=10)
    assert model.score(X, y) > 0.9
    network = model.transition_
    assert network.head.theta.shape == (17, 3, 3)  # no bottleneck
    with torch.no_grad():
        g = network.features(model.prepare_(torch.from_numpy(X[:5])))
        plain = torch.softmax(torch.einsum("id,dpq->ipq", g, network.head.theta), 2)
        revised = (plain + network.slack.delta).abs()
        revised /= revised.sum(2, keepdim=True)
    found = model.transition(X[:5])
    assert found.shape == (5, 8, 3, 3)
    for j in range(8):
        np.testing.assert_allclose(found[:, j], revised, atol=1e-5)
    assert np.abs(found[:, 0] - plain.numpy()).max() > 1e-3
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.transition(X[:5]), found, atol=SINGLE)


def test_variants_are_checked():
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match="unknown variant 'authors'; known: 'reference', 'original'"):
        crowdwise.BLTM(**QUICK, variant="authors").fit(X, annotations)
    with pytest.raises(ConfigError, match="unknown variant 'original'; known: 'reference'"):
        crowdwise.TAIDTM(**QUICK, variant="original").fit(X, annotations)


# what the engine asks of all of them


@each_variant
def test_resumed_run_equals_uninterrupted_run(method, tmp_path):
    X, annotations, _ = crowd()
    make = lambda: METHODS[method](**quick(method) | VARIANTS[method])  # noqa: E731
    whole = make().fit(X, annotations)
    for stop_after in (len(whole.history_) // 2, len(whole.history_) - 1):
        run = tmp_path / str(stop_after)
        fit_and_interrupt(make(), X, annotations, run, stop_after)
        resumed = make().fit(X, annotations, resume=run)
        np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
        if whole.transition_ is not None:
            np.testing.assert_array_equal(resumed.transition(X[:3]), whole.transition(X[:3]))


@each_variant
def test_padded_static_steps_equal_eager_steps(method, monkeypatch):
    X, annotations, _ = crowd()
    parameters = quick(method) | VARIANTS[method] | {"batch_size": 50}
    eager = METHODS[method](**parameters).fit(X, annotations)
    replay_static_steps(monkeypatch)
    static = METHODS[method](**parameters).fit(X, annotations)
    np.testing.assert_allclose(static.predict_proba(X), eager.predict_proba(X), atol=1e-5)
