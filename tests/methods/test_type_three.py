"""CrowdLayer, UnionNet, CoNAL, GeoCrowdNet and TraceReg: fixtures, limits in which they meet, crowds they suit."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import crowdwise
from crowdwise import Annotations, CoNAL, CrowdLayer, GeoCrowdNet, TraceReg, UnionNet
from crowdwise.engine import Batch, Engine, Problem
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.methods import trace_reg
from crowdwise.methods.conal import CommonNoise, CommonNoiseTransition
from crowdwise.methods.core.joint import label_losses
from crowdwise.methods.crowd_layer import AnnotatorLayer
from crowdwise.methods.geo_crowd_net import stacked_gram, volume_loss
from crowdwise.methods.union_net import losses_a, losses_b
from crowdwise.networks import ConstantTransition
from crowdwise.registry import METHODS
from engine_helpers import crowd, quick, replay_static_steps
from processes import by_one_and_by_two
from tolerances import SINGLE

TYPE_THREE = ["conal", "crowd-layer", "geo-crowd-net", "trace-reg", "union-net"]
CONFIGURATIONS = [
    *[("crowd-layer", {"variant": variant}) for variant in ("MW", "VW", "VB", "VW+B", "SW")],
    *[("union-net", {"variant": variant, "start": start}) for variant in "AB" for start in ("identity", "votes")],
    *[("geo-crowd-net", {"regulariser": regulariser}) for regulariser in ("F", "W", "none")],
    ("geo-crowd-net", {"start": "votes"}),
    ("trace-reg", {}),
    ("trace-reg", {"warm_start": 2}),
    ("conal", {}),
]
every_configuration = pytest.mark.parametrize(("method", "options"), CONFIGURATIONS)


def batch_of(row: list[int], annotator: list[int], label: list[int]) -> Batch:
    """A batch whose inputs do not matter."""
    weight, size = torch.ones(len(row)), max(row) + 1
    unit = torch.arange(size)
    pairs = [torch.tensor(part) for part in (row, annotator, label)]
    return Batch(torch.zeros(size, 1), unit, unit, *pairs, weight, weight.sum(), torch.tensor(float(size)))


def logits_of(*f: list[float]) -> torch.Tensor:
    return torch.tensor(f).log()


# CrowdLayer


def test_crowd_layer_of_a_matrix():
    f = torch.tensor([[0.7, 0.2, 0.1]])
    layer = AnnotatorLayer("MW", torch.tensor([[[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]))
    z = layer(f, torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    torch.testing.assert_close(z, torch.tensor([[0.7, 0.55, 0.1]]).expand(3, -1))
    losses = F.cross_entropy(z, torch.arange(3), reduction="none")
    torch.testing.assert_close(losses, torch.tensor([0.879427, 1.029427, 1.479427]), atol=SINGLE, rtol=0)


@pytest.mark.parametrize("variant", ["MW", "VW", "VB", "VW+B", "SW"])
def test_every_crowd_layer_starts_with_the_probabilities_and_gives_the_rows_of_its_matrices(variant):
    f = torch.softmax(torch.randn(4, 3), 1)
    layer = AnnotatorLayer(variant, torch.eye(3).repeat(2, 1, 1))
    row, annotator = torch.tensor([0, 1, 2, 3, 3]), torch.tensor([0, 1, 0, 1, 0])
    torch.testing.assert_close(layer(f, row, annotator), f[row])
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    rows = layer(torch.eye(3), torch.arange(3).repeat(2), torch.arange(2).repeat_interleave(3))
    torch.testing.assert_close(layer.logits(3).expand(2, -1, -1).reshape(6, 3), rows)


def test_a_crowd_layer_with_diagonal_matrices_is_the_layer_of_weights():
    weights, f = torch.randn(2, 3), torch.softmax(torch.randn(4, 3), 1)
    matrix, vector = AnnotatorLayer("MW", torch.diag_embed(weights)), AnnotatorLayer("VW", torch.eye(3).repeat(2, 1, 1))
    vector.weight.data.copy_(weights)
    row, annotator = torch.arange(4), torch.tensor([0, 1, 1, 0])
    torch.testing.assert_close(matrix(f, row, annotator), vector(f, row, annotator))


# UnionNet


def near_identity(n_annotators: int, n_classes: int, epsilon: float = 1e-5) -> torch.Tensor:
    error = epsilon / (n_classes - 1)
    return (error + (1 - epsilon - error) * torch.eye(n_classes)).repeat(n_annotators, 1, 1)


@pytest.mark.parametrize(
    ("losses", "union", "total"),
    [(losses_a, [0.344986, 0.155014], 2.928490), (losses_b, [0.342422, 0.157578], 2.919546)],
)
def test_union_of_two_annotators(losses, union, total):
    theta, f = near_identity(2, 2), logits_of([0.9, 0.1])
    everything = torch.exp(-losses(f, theta, batch_of([0] * 4, [0, 0, 1, 1], [0, 1, 0, 1])))
    torch.testing.assert_close(everything, torch.tensor(union * 2), atol=SINGLE, rtol=0)
    given = losses(f, theta, batch_of([0, 0], [0, 1], [0, 1]))
    assert given.sum().item() == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("losses", [losses_a, losses_b])
def test_the_union_sums_to_one_whatever_theta_is(losses):
    n_annotators, n_classes = 4, 3
    theta, f = 3 * torch.randn(n_annotators, n_classes, n_classes), torch.randn(1, n_classes)
    annotator = torch.arange(n_annotators).repeat_interleave(n_classes).tolist()
    batch = batch_of([0] * len(annotator), annotator, list(range(n_classes)) * n_annotators)
    assert torch.exp(-losses(f, theta, batch)).sum().item() == pytest.approx(1, abs=SINGLE)


def test_the_union_of_certain_classifiers_is_the_same_in_both_variants():
    theta, f = torch.randn(4, 3, 3), logits_of([1.0, 0.0, 0.0])
    batch = batch_of([0, 0, 0], [0, 1, 3], [0, 2, 1])
    torch.testing.assert_close(losses_a(f, theta, batch), losses_b(f, theta, batch))


def test_union_net_weighs_instances_by_their_labels_unless_asked_to_divide():
    """First loss with a learning rate of 0: mean over instances of the sum, or the mean, over their annotations."""
    X, annotations, _ = crowd(60)
    first = {}
    for reduction in ("annotation", "instance"):
        still = {"recipe": "paper", "prepare": "none", "epochs": 1, "lr": 0, "annotator_lr": 0}
        model = UnionNet(**still, batch_size=60, validation_fraction=0, reduction=reduction, verbose=0)
        first[reduction] = model.fit(X, annotations).history_[0]["loss"]
        f = torch.from_numpy(model.predict_proba(X)).float().log()
    pairs = [part.tolist() for part in (annotations.instance, annotations.annotator, annotations.label)]
    losses = losses_b(f, near_identity(8, 3), batch_of(*pairs)).numpy()
    counts = annotations.labels_per_instance
    assert first["annotation"] == pytest.approx(losses.sum() / 60, rel=1e-5)
    assert first["instance"] == pytest.approx((losses / counts[annotations.instance]).sum() / 60, rel=1e-5)


# CoNAL


def noise_of(common: list[list[float]], individual: list[list[float]]) -> CommonNoise:
    noise = CommonNoise(4, 2, torch.tensor([individual]))
    noise.common.data.copy_(torch.tensor(common))
    return noise


def test_common_and_individual_noise_are_mixed(monkeypatch):
    noise = noise_of([[2.0, 0.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]])
    monkeypatch.setattr(noise, "omega", lambda v, row, annotator: torch.full((len(row), 1), 0.25))
    zero = torch.zeros(2, dtype=torch.int64)
    o = noise(torch.tensor([[0.9, 0.1]]), torch.zeros(1, 2), zero, zero)
    torch.testing.assert_close(o, torch.tensor([[1.825, 0.175]]).expand(2, -1))
    losses = F.cross_entropy(o, torch.tensor([0, 1]), reduction="none")
    torch.testing.assert_close(losses, torch.tensor([0.175674, 1.825674]), atol=SINGLE, rtol=0)
    assert noise.distances().item() == pytest.approx(1.414214, abs=SINGLE)


@pytest.mark.parametrize("omega", [0.0, 1.0])
def test_without_common_noise_conal_is_a_crowd_layer_of_matrices(omega, monkeypatch):
    noise = CommonNoise(4, 2, torch.randn(3, 5, 5))
    monkeypatch.setattr(noise, "omega", lambda v, row, annotator: torch.full((len(row), 1), omega))
    f, row, annotator = torch.softmax(torch.randn(6, 5), 1), torch.arange(6), torch.tensor([0, 1, 2, 0, 1, 2])
    kernel = noise.individual if omega == 0 else noise.common.expand(3, -1, -1)
    expected = AnnotatorLayer("MW", kernel.detach().clone())(f, row, annotator)
    torch.testing.assert_close(noise(f, torch.zeros(6, 2), row, annotator), expected)


def test_conals_matrices_are_what_it_makes_of_certain_predictions():
    torch.manual_seed(0)
    noise = CommonNoise(4, 2, torch.randn(3, 5, 5))
    v = CommonNoiseTransition(torch.nn.Identity(), noise).features(torch.randn(1, 4))
    for p in range(5):
        logits = CommonNoiseTransition(torch.nn.Identity(), noise).pair_logits(
            v, torch.zeros(3).long(), torch.arange(3)
        )
        certain = F.one_hot(torch.tensor([p]), 5).float()
        torch.testing.assert_close(logits[:, p], noise(certain, v, torch.zeros(3).long(), torch.arange(3)))


def test_conals_norm_has_a_finite_gradient_at_the_start():
    noise = CommonNoise(4, 2, 2 * torch.eye(3).repeat(5, 1, 1))
    noise.distances().sum().backward()
    assert torch.isfinite(noise.individual.grad).all()
    assert torch.isfinite(noise.common.grad).all()


def test_conals_matrices_differ_between_instances():
    X, annotations, _ = crowd()
    matrices = CoNAL(epochs=10, verbose=0).fit(X, annotations).transition(X[:20])
    assert np.ptp(matrices, axis=0).max() > 1e-4


# GeoCrowdNet and TraceReg


def test_matrices_of_identity_give_cross_entropy():
    batch, logits = batch_of([0, 1, 1, 2], [0, 1, 0, 1], [0, 2, 1, 0]), torch.randn(3, 3)
    identity = torch.eye(3).clamp_min(1e-30).log().expand(2, -1, -1)
    expected = F.cross_entropy(logits[batch.row], batch.label, reduction="none")
    torch.testing.assert_close(label_losses(logits, identity, batch), expected)


def test_label_losses_stay_finite_where_the_classifier_is_certain_and_wrong():
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = label_losses(logits, torch.eye(2).clamp_min(1e-30).log()[None], batch_of([0], [0], [1])).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


def test_volumes_of_predictions_and_of_matrices():
    f = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(f.T @ f, torch.tensor([[1.1, 0.5], [0.5, 0.9]], dtype=torch.float64))
    assert volume_loss(f.T @ f).item() == pytest.approx(0.301105, abs=1e-5)
    assert volume_loss(stacked_gram(torch.softmax(torch.eye(2).repeat(2, 1, 1), 2))).item() == pytest.approx(
        0.157579, abs=1e-5
    )


@pytest.mark.parametrize("n_classes", [3, 30])
def test_the_volume_of_collapsed_predictions_has_a_finite_gradient(n_classes):
    f = F.one_hot(torch.zeros(64, dtype=torch.int64), n_classes).double().requires_grad_()
    value = volume_loss(f.T @ f)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(f.grad).all()
    if n_classes == 30:  # 29 ln(1e6) is above the guard
        assert value == 0
        assert not f.grad.any()


def test_predictions_that_are_not_numbers_have_no_volume():
    gram = torch.full((2, 2), torch.nan, dtype=torch.float64, requires_grad=True)
    volume_loss(gram).backward()
    assert volume_loss(gram) == 0
    assert not gram.grad.any()


def test_batches_smaller_than_the_number_of_classes_warn():
    X, annotations, _ = crowd(60)
    with pytest.warns(CrowdwiseWarning, match="batch_size of at least the number of classes, 3, got 2"):
        GeoCrowdNet(epochs=1, batch_size=2, verbose=0).fit(X, annotations)


def test_trace_reg_starts_near_the_identity():
    values = (6 * torch.eye(3) - 5)[None].requires_grad_()
    matrix = trace_reg.log_matrices(values).exp()[0]
    torch.testing.assert_close(matrix.diagonal(), torch.full((3,), 0.989877), atol=SINGLE, rtol=0)
    assert matrix[0, 1].item() == pytest.approx(0.005062, abs=SINGLE)
    assert matrix.trace().item() == pytest.approx(2.969630, abs=1e-5)
    trace_reg.log_matrices(values - 1000).sum().backward()
    assert torch.isfinite(values.grad).all()


def test_the_trace_is_made_small_after_the_warm_start():
    X, annotations, _ = crowd()
    parameters = {"epochs": 6, "lam": 3.0, "annotator_lr": 0.1, "verbose": 0}
    models = [TraceReg(**parameters, warm_start=warm).fit(X, annotations) for warm in (0, 6)]
    traces = [np.trace(model.transition(X[:1])[0].mean(0)) for model in models]
    assert traces[0] < traces[1] - 0.05


# what all of them promise


def with_silent_annotators():
    X, annotations, _ = crowd(120)
    more = Annotations.from_triples(
        annotations.instance, annotations.annotator, annotations.label, n_instances=120, n_annotators=10, n_classes=3
    )
    return X, annotations, more


@pytest.mark.parametrize(
    ("method", "options"), [each for each in CONFIGURATIONS if each[0] not in ("union-net", "conal")]
)
def test_annotators_without_labels_stay_as_they_were_and_nobody_notices_them(method, options):
    X, annotations, more = with_silent_annotators()

    def matrices(crowd, **rates):
        return METHODS[method](**(quick(method) | options | rates)).fit(X, crowd).transition(X[:1])[0]

    trained, untrained = (matrices(more, annotator_lr=rate) for rate in (0.1, 0.0))
    np.testing.assert_array_equal(trained[8:], untrained[8:])
    assert (np.abs(trained[:8] - untrained[:8]).max((1, 2)) > 1e-5).all()
    np.testing.assert_allclose(trained[:8], matrices(annotations, annotator_lr=0.1), atol=1e-4)


def test_conal_leaves_annotators_without_labels_alone():
    X, _, more = with_silent_annotators()
    noise = CoNAL(**quick("conal"), lam=0.1).fit(X, more).transition_.noise
    torch.testing.assert_close(noise.individual[8:], 2 * torch.eye(3).repeat(2, 1, 1))
    assert (noise.individual[:8] - 2 * torch.eye(3)).abs().amax((1, 2)).min() > 1e-3


def test_columns_of_annotators_without_labels_only_shrink_in_the_union():
    theta = near_identity(3, 3).requires_grad_()
    losses_b(torch.randn(4, 3), theta, batch_of([0, 1, 2, 3], [0, 1, 0, 1], [0, 2, 1, 1])).sum().backward()
    assert (theta.grad[2] > 0).all()


@every_configuration
def test_confusion_is_recovered_and_the_classifier_is_better_than_with_cross_entropy(method, options):
    """Four experts, three annotators who mostly say the next class, two who guess."""
    X, annotations, y, matrices = shifted_crowd()
    model = METHODS[method](**SHIFTED, **options, annotator_lr=0.05).fit(X, annotations)
    accuracy, estimated, baseline = model.score(X, y), model.transition(X[:1])[0].argmax(2), cross_entropy()
    np.testing.assert_array_equal(estimated[:4], matrices[:4].argmax(2))
    if method == "crowd-layer" and options["variant"] != "MW":  # weights and biases cannot say "the next class"
        assert accuracy > baseline
    else:
        assert accuracy > baseline + 0.05
        np.testing.assert_array_equal(estimated[4:7], matrices[4:7].argmax(2))


SHIFTED = {
    "recipe": "paper",
    "prepare": "none",
    "epochs": 25,
    "batch_size": 64,
    "validation_fraction": 0.0,
    "verbose": 0,
    "lr": 0.005,
}


@functools.cache
def cross_entropy() -> float:
    """The accuracy that all configurations are compared with."""
    X, annotations, y, _ = shifted_crowd()
    return crowdwise.CE(**SHIFTED, optimiser="adam").fit(X, annotations).score(X, y)


def shifted_crowd(n: int = 400, n_classes: int = 4):
    rng = np.random.default_rng(3)
    y = rng.integers(n_classes, size=n)
    X = (rng.normal(scale=2.0, size=(n_classes, 8))[y] + rng.normal(size=(n, 8))).astype(np.float32)
    identity, uniform = np.eye(n_classes), np.full((n_classes, n_classes), 1 / n_classes)
    expert, shifted = 0.9 * identity + 0.1 * uniform, 0.75 * np.roll(identity, 1, axis=1) + 0.25 * uniform
    matrices = np.stack([expert] * 4 + [shifted] * 3 + [uniform] * 2)
    instance, annotator = np.nonzero(rng.random((n, 9)) < 0.4)
    cumulative = matrices[annotator, y[instance]].cumsum(1)
    label = (rng.random((len(instance), 1)) > cumulative[:, :-1]).sum(1)
    crowd = Annotations.from_triples(instance, annotator, label, n_instances=n, n_annotators=9, n_classes=n_classes)
    return X, crowd, y, matrices


@every_configuration
def test_one_annotator_one_label_each_and_unseen_classes_are_legal(method, options):
    """Six instances, five annotators (one with a single label, one with none), four classes of which one is never seen."""
    triples = [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1), (1, 2, 1), (2, 0, 2), (2, 1, 2), (2, 2, 0), (3, 0, 0),
               (3, 2, 0), (3, 3, 0), (4, 1, 1), (4, 2, 2)]  # fmt: skip
    annotations = Annotations.from_triples(*zip(*triples, strict=True), n_instances=6, n_annotators=5, n_classes=4)
    X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    model = METHODS[method](epochs=5, verbose=0, **options).fit(X, annotations)
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_allclose(model.transition(X).sum(3), 1, atol=1e-5)
    assert np.isnan(model.skill_[4])


@every_configuration
def test_padded_static_steps_equal_eager_steps(method, options, monkeypatch):
    X, annotations, _ = crowd(120)
    parameters = quick(method) | {"batch_size": 50, "lr": 0.01} | options
    eager = METHODS[method](**parameters).fit(X, annotations)
    replay_static_steps(monkeypatch)
    static = METHODS[method](**parameters).fit(X, annotations)
    np.testing.assert_allclose(static.predict_proba(X), eager.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(static.transition(X[:2]), eager.transition(X[:2]), atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@every_configuration
def test_steps_captured_on_a_gpu_equal_eager_steps(method, options, monkeypatch):
    X, annotations, _ = crowd(240)
    original = Engine.__init__
    losses = []
    for captured in (False, True):
        with monkeypatch.context() as patch:
            changed = {"captured": captured}
            patch.setattr(Engine, "__init__", lambda self, *a, _k=changed, **k: original(self, *a, **(k | _k)))
            model = METHODS[method](**(quick(method) | options | {"lr": 0.001, "device": "cuda"})).fit(X, annotations)
        losses.append([record["loss"] for record in model.history_])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.01)


@pytest.mark.parametrize("method", TYPE_THREE)
def test_the_classifier_starts_like_that_of_cross_entropy_and_costs_one_pass_of_the_backbone(method):
    X, annotations, _ = crowd(60)
    problem = Problem.make(X, annotations, device=torch.device("cpu"), seed=0)
    model = METHODS[method](**quick(method))
    stage = next(model.stages(Engine(problem)))
    expected = next(crowdwise.CE(**quick("ce")).stages(Engine(problem))).groups["classifier"].module.state_dict()
    classifier = stage.groups["classifier"].module
    for name, tensor in classifier.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])
    passes = []
    classifier.backbone.register_forward_hook(lambda *_: passes.append(1))
    if stage.before_epoch is not None:
        stage.before_epoch(0)
    batch = batch_of([0, 1, 1], [0, 3, 7], [0, 2, 1])
    batch.x = torch.from_numpy(X[:2])
    stage.loss(batch).backward()
    assert len(passes) == 1
    assert stage.groups["annotators"].weight_decay == 0
    for group in stage.groups.values():
        assert all(torch.isfinite(parameter.grad).all() for parameter in group.module.parameters())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CrowdLayer(variant="XY"), "unknown variant 'XY'; known: 'MW', 'VW', 'VB', 'VW\\+B', 'SW'"),
        (UnionNet(variant="C"), "unknown variant 'C'; known: 'A', 'B'"),
        (UnionNet(start="here"), "unknown start 'here'; known: 'identity', 'votes'"),
        (GeoCrowdNet(regulariser="G"), "unknown regulariser 'G'; known: 'F', 'W', 'none'"),
    ],
)
def test_unknown_variants_are_named(model, message):
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match=message):
        model.fit(X, annotations)


def test_constant_matrices_are_saved_as_such():
    X, annotations, _ = crowd(60)
    assert isinstance(CrowdLayer(**quick("crowd-layer")).fit(X, annotations).transition_, ConstantTransition)
    assert isinstance(CoNAL(**quick("conal")).fit(X, annotations).transition_, CommonNoiseTransition)


_WORKER = """
from engine_helpers import crowd
from crowdwise.registry import METHODS
X, annotations, _ = crowd(n=120)
results = {}
for number, (method, options) in enumerate(CONFIGURATIONS):
    model = METHODS[method](recipe="paper", epochs=2, batch_size=30, verbose=0, **options).fit(X, annotations)
    results[str(number)] = model.predict_proba(X)
"""


@pytest.mark.slow
def test_two_processes_equal_one_at_the_same_global_batch(tmp_path):
    configurations = [
        ("conal", {"lam": 1e-2}), ("crowd-layer", {}), ("union-net", {}), ("trace-reg", {"lam": 0.1}),
        ("geo-crowd-net", {"lam": 0.1}), ("geo-crowd-net", {"lam": 0.1, "regulariser": "W"}),
    ]  # fmt: skip
    one, two = by_one_and_by_two(tmp_path, f"CONFIGURATIONS = {configurations!r}" + _WORKER)
    assert len(one) == len(configurations)
    for number in one:
        np.testing.assert_allclose(one[number], two[number], atol=1e-4)
