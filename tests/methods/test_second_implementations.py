"""Baselines beside plain second implementations, written from the formulas of their papers alone.

A method takes one step of plain gradient descent on all instances at once. Its loss, the step of the
classifier and that of annotators' matrices must be those of the formula, which loops over annotations
in float64. Inputs go to a linear layer as they are, so that the whole model fits in a few lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from crowdwise import Annotations
from crowdwise.aggregation import CRH, MMSR
from crowdwise.aggregation.mmsr import Factors
from crowdwise.registry import METHODS
from tolerances import DOUBLE, SINGLE

pytestmark = pytest.mark.filterwarnings("ignore:the classifier of stage")  # one step teaches little

N, R, C, D = 40, 5, 3, 4
RATE = 0.5
PLAIN = {
    "recipe": "paper",
    "prepare": "none",
    "optimiser": "sgd",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "milestones": (),
    "batch_size": N,
    "validation_fraction": 0.0,
    "verbose": 0,
}
Labels = list[tuple[int, int, int]]
Formula = Callable[[Tensor, Labels, dict[str, Tensor]], Tensor]


def small_crowd(seed: int = 0) -> tuple[np.ndarray, Annotations, Labels]:
    """Instances with one to four labels, of annotators who err in their own ways."""
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=N)
    X = (2 * np.eye(C, D)[y] + rng.normal(size=(N, D))).astype(np.float32)
    said = rng.dirichlet(np.ones(C), size=(R, C)) + np.eye(C)
    labels = [
        (i, j, int(rng.choice(C, p=said[j, y[i]] / said[j, y[i]].sum())))
        for i in range(N)
        for j in sorted(rng.choice(R, size=rng.integers(1, R), replace=False))
    ]
    triples = np.array(labels).T
    return X, Annotations.from_triples(*triples, n_instances=N, n_annotators=R, n_classes=C), labels


def fitted(method: str, lr: float, **options: Any) -> Any:
    X, annotations, _ = small_crowd()
    known = METHODS[method].__dataclass_fields__
    own = {"annotator_lr": lr} if "annotator_lr" in known else {}
    epochs = options.pop("epochs", 1)
    settings = PLAIN | own | options
    return METHODS[method](**settings, backbone=nn.Identity(), lr=lr, epochs=epochs).fit(X, annotations)


def layer_of(model: Any) -> dict[str, Tensor]:
    """Weight and bias of the classifier, in float64."""
    linear = model.classifier_.linear
    return {"weight": linear.weight.detach().double(), "bias": linear.bias.detach().double()}


def softmax(z: Tensor) -> Tensor:
    powers = torch.exp(z - z.max(-1, keepdim=True).values)
    return powers / powers.sum(-1, keepdim=True)


def one_step(
    start: dict[str, Tensor], formula: Formula, annotators: dict[str, Tensor]
) -> tuple[float, dict[str, Tensor]]:
    """Loss at the start, and all parameters after a step against its gradient."""
    X, _, labels = small_crowd()
    parameters = {name: value.clone().requires_grad_() for name, value in {**start, **annotators}.items()}
    f = softmax(torch.from_numpy(X).double() @ parameters["weight"].T + parameters["bias"])
    loss = formula(f, labels, parameters)
    loss.backward()
    after = {
        name: value.detach() - RATE * (torch.zeros_like(value) if value.grad is None else value.grad)
        for name, value in parameters.items()
    }
    return loss.item(), after


def assert_same_step(
    method: str, formula: Formula, annotators: dict[str, Tensor] | None = None, **options: Any
) -> tuple[Any, dict[str, Tensor]]:
    before, model = fitted(method, 0.0, **options), fitted(method, RATE, **options)
    loss, after = one_step(layer_of(before), formula, annotators or {})
    assert model.history_[-1]["loss"] == pytest.approx(loss, rel=SINGLE)
    found, start = layer_of(model), layer_of(before)
    for name in ("weight", "bias"):
        moved = (after[name] - start[name]).abs().max()
        assert moved > 100 * SINGLE  # else there would be nothing to compare
        torch.testing.assert_close(found[name], after[name], atol=SINGLE, rtol=SINGLE)
    return model, after


def assert_matrices(model: Any, expected: Tensor) -> None:
    """T^j (R, C, C) of the fitted model."""
    X, _, _ = small_crowd()
    found = torch.from_numpy(np.asarray(model.transition(X[:1])[0], np.float64))
    torch.testing.assert_close(found, expected, atol=SINGLE, rtol=0)


# one source


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_gce(q: float) -> None:
    """Zhang and Sabuncu 2018, equation 6: (1 - f_y^q) / q."""

    def formula(f: Tensor, labels: Labels, _: dict[str, Tensor]) -> Tensor:
        return sum(((1 - f[i, y] ** q) / q for i, _j, y in labels), torch.zeros(())) / len(labels)

    assert_same_step("gce", formula, q=q)


def anchors(model: Any) -> Tensor:
    """Patrini et al. 2017, equations 12 and 13: row c is the posterior of the instance that is surest to be c."""
    X, _, _ = small_crowd()
    layer = layer_of(model)
    p = softmax(torch.from_numpy(X).double() @ layer["weight"].T + layer["bias"])
    assert set(p.argmax(1).tolist()) == set(range(C))
    return torch.stack([p[p[:, c].argmax()] for c in range(C)])


WARM = {"warmup_epochs": 8, "warmup_lr": 1.0, "classifier_start": "warm-up"}


def test_forward() -> None:
    """Patrini et al. 2017, section 4.2: -ln of (T' f)_y."""
    t = anchors(fitted("forward", 0.0, **WARM))

    def formula(f: Tensor, labels: Labels, _: dict[str, Tensor]) -> Tensor:
        losses = [-torch.log(sum((f[i, p] * t[p, y] for p in range(C)), torch.zeros(()))) for i, _j, y in labels]
        return torch.stack(losses).mean()

    model, _ = assert_same_step("forward", formula, **WARM)
    assert_matrices(model, t.expand(R, C, C))


def test_reweight() -> None:
    """Liu and Tao 2016, equation 4: cross-entropy times P(Y = y | x) / P(noisy = y | x), a weight without gradient."""
    t = anchors(fitted("reweight", 0.0, **WARM))

    def formula(f: Tensor, labels: Labels, _: dict[str, Tensor]) -> Tensor:
        losses = []
        for i, _j, y in labels:
            beta = f[i, y].item() / sum(f[i, p].item() * t[p, y].item() for p in range(C))
            losses.append(-min(beta, 10.0) * torch.log(f[i, y]))
        return torch.stack(losses).mean()

    model, _ = assert_same_step("reweight", formula, **WARM)
    assert_matrices(model, t.expand(R, C, C))


# a layer or a matrix for each annotator


@pytest.mark.parametrize("variant", ["MW", "VW", "VB", "VW+B", "SW"])
def test_crowd_layer(variant: str) -> None:
    """Rodrigues and Pereira 2018, section 4: cross-entropy of the softmax of W^j f, v^j f, f + b^j, ..."""
    annotators = {
        "MW": {"w": torch.eye(C).expand(R, C, C)},
        "VW": {"v": torch.ones(R, C)},
        "VB": {"b": torch.zeros(R, C)},
        "VW+B": {"v": torch.ones(R, C), "b": torch.zeros(R, C)},
        "SW": {"v": torch.ones(R, 1)},
    }[variant]

    def scores(f: Tensor, j: int, own: dict[str, Tensor]) -> Tensor:
        z = f @ own["w"][j] if "w" in own else f
        z = z * own["v"][j] if "v" in own else z
        return z + own["b"][j] if "b" in own else z

    def formula(f: Tensor, labels: Labels, own: dict[str, Tensor]) -> Tensor:
        return torch.stack([-torch.log(softmax(scores(f[i], j, own))[y]) for i, j, y in labels]).mean()

    doubles = {name: value.double().contiguous() for name, value in annotators.items()}
    model, after = assert_same_step("crowd-layer", formula, doubles, variant=variant)
    certain = torch.eye(C, dtype=torch.float64)
    rows = [[softmax(scores(certain[p], j, after)) for p in range(C)] for j in range(R)]
    assert_matrices(model, torch.stack([torch.stack(row) for row in rows]))


@pytest.mark.parametrize("variant", ["A", "B"])
def test_union_net(variant: str) -> None:
    """Wei et al. 2023: one softmax over the R C pairs of annotator and label, and one loss for each instance."""
    error = 1e-5 / (C - 1)
    theta = (error + (1 - 1e-5 - error) * torch.eye(C, dtype=torch.float64)).expand(R, C, C).contiguous()

    def formula(f: Tensor, labels: Labels, own: dict[str, Tensor]) -> Tensor:
        wide = torch.cat([own["theta"][j] for j in range(R)], dim=1)  # (C, R C)
        if variant == "A":
            union = softmax(f @ wide)
        else:
            union = f @ softmax(wide)
        return sum((-torch.log(union[i, j * C + y]) for i, j, y in labels), torch.zeros(())) / N

    model, after = assert_same_step("union-net", formula, {"theta": theta}, variant=variant)
    assert_matrices(model, softmax(after["theta"]))


def cross_entropy_through(f: Tensor, t: Tensor, labels: Labels) -> Tensor:
    return torch.stack([-torch.log(f[i] @ t[j, :, y]) for i, j, y in labels]).mean()


@pytest.mark.parametrize("regulariser", ["F", "W", "none"])
def test_geo_crowd_net(regulariser: str) -> None:
    """Ibrahim et al. 2023, equations 9 and 10: coupled cross-entropy minus lambda ln det of F'F or W'W."""
    lam = 0.1

    def formula(f: Tensor, labels: Labels, own: dict[str, Tensor]) -> Tensor:
        t = softmax(own["logits"])
        wide = torch.cat([t[j].T for j in range(R)])  # W: (R C, C)
        volume = {"F": f.T @ f, "W": wide.T @ wide, "none": torch.eye(C, dtype=torch.float64)}[regulariser]
        return cross_entropy_through(f, t, labels) - lam * torch.log(torch.det(volume))

    start = {"logits": torch.eye(C, dtype=torch.float64).repeat(R, 1, 1)}
    model, after = assert_same_step("geo-crowd-net", formula, start, regulariser=regulariser, lam=lam)
    assert_matrices(model, softmax(after["logits"]))


def test_trace_reg() -> None:
    """Tanno et al. 2019, equation 6: cross-entropy through the matrices plus lambda times their (mean) trace."""
    lam = 0.3

    def matrices(own: dict[str, Tensor]) -> Tensor:
        positive = torch.log(1 + torch.exp(own["values"]))
        return positive / positive.sum(2, keepdim=True)

    def formula(f: Tensor, labels: Labels, own: dict[str, Tensor]) -> Tensor:
        t = matrices(own)
        traces = torch.stack([torch.trace(t[j]) for j in range(R)])
        return cross_entropy_through(f, t, labels) + lam * traces.mean()

    start = {"values": (6 * torch.eye(C, dtype=torch.float64) - 5).repeat(R, 1, 1)}
    model, after = assert_same_step("trace-reg", formula, start, lam=lam)
    assert_matrices(model, matrices(after))


def test_agg_net() -> None:
    """Albarqouni et al. 2016: two rounds of EM, each an epoch of the network on the posterior of the true class."""
    X, _, labels = small_crowd()
    smoothing, floor = 0.02, 0.05
    start = layer_of(fitted("agg-net", 0.0))
    posterior = np.zeros((N, C))
    for i, _j, y in labels:
        posterior[i, y] += 1
    posterior /= posterior.sum(1, keepdims=True)

    def confusion(mu: np.ndarray) -> np.ndarray:
        counts = np.full((R, C, C), smoothing)
        for i, j, y in labels:
            counts[j, :, y] += mu[i]
        return counts / counts.sum(2, keepdims=True)

    def predicted(layer: dict[str, Tensor]) -> Tensor:
        return softmax(torch.from_numpy(X).double() @ layer["weight"].T + layer["bias"])

    def e_step(layer: dict[str, Tensor], t: np.ndarray) -> np.ndarray:
        mu = np.maximum(predicted(layer).detach().numpy(), floor)
        for i, j, y in labels:
            mu[i] *= t[j, :, y]
        return mu / mu.sum(1, keepdims=True)

    layer, t = start, confusion(posterior)
    for epoch in range(2):
        if epoch:
            posterior = e_step(layer, t)
            t = confusion(posterior)
        target = torch.from_numpy(posterior)
        parameters = {name: value.clone().requires_grad_() for name, value in layer.items()}
        loss = -(target * torch.log(predicted(parameters))).sum(1).mean()
        loss.backward()
        layer = {name: value.detach() - RATE * value.grad for name, value in parameters.items()}
    t = confusion(e_step(layer, t))

    model = fitted("agg-net", RATE, epochs=2, smoothing=smoothing, floor=floor)
    assert model.history_[-1]["loss"] == pytest.approx(loss.item(), rel=SINGLE)
    for name, value in layer_of(model).items():
        torch.testing.assert_close(value, layer[name], atol=SINGLE, rtol=SINGLE)
    assert_matrices(model, torch.from_numpy(t))


# aggregation behind DL-CRH and DL-MMSR


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("normaliser", ["max", "sum"])
def test_crh(seed: int, normaliser: str) -> None:
    """Q. Li et al. 2014, equations 3 and 5 for labels: weighted votes, and w_j = -ln of the share of j's disagreements."""
    _, annotations, labels = small_crowd(seed)
    truth = {i: [0.0] * C for i in range(N)}
    for i, _j, y in labels:
        truth[i][y] += 1
    for _ in range(10):
        said = [y_of_i.index(max(y_of_i)) for y_of_i in (truth[i] for i in range(N))]
        tied = {i: [c for c in range(C) if math.isclose(truth[i][c], max(truth[i]))] for i in range(N)}
        losses = []
        for j in range(R):
            mine = [(i, y) for i, other, y in labels if other == j]
            agreed = sum(1 / len(tied[i]) for i, y in mine if y in tied[i])  # ties share an instance
            losses.append(max(len(mine) - agreed, 1e-8 * len(mine)) / len(mine))
        total = max(losses) if normaliser == "max" else sum(losses)
        weights = [max(-math.log(loss / total + 1e-7), 0.0) for loss in losses]
        truth = {i: [0.0] * C for i in range(N)}
        for i, j, y in labels:
            weightless = not any(weights[other] for at, other, _y in labels if at == i)
            truth[i][y] += 1.0 if weightless else weights[j]  # then they count alike
    model = CRH(normaliser=normaliser, max_iter=10).fit(annotations)
    np.testing.assert_allclose(model.weight_, weights, rtol=DOUBLE, atol=DOUBLE)
    sure = [i for i in range(N) if sorted(truth[i])[-1] - sorted(truth[i])[-2] > DOUBLE]
    said = [truth[i].index(max(truth[i])) for i in range(N)]
    assert [int(model.labels_[i]) for i in sure] == [said[i] for i in sure]


@pytest.mark.parametrize(("seed", "n_annotators"), [(0, 4), (1, 4), (2, 6), (3, 8)])
def test_mmsr(seed: int, n_annotators: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ma and Olshevsky 2020, algorithm 1 with the weights of section 2: from the same draw of u and v, round by round."""
    rng = np.random.default_rng(seed)
    n, skills = 200, rng.uniform(0.45, 0.9, n_annotators)
    y = rng.integers(C, size=n)
    right = rng.random((n, n_annotators)) < skills
    said = np.where(right, y[:, None], (y[:, None] + rng.integers(1, C, size=right.shape)) % C)
    said[rng.random(said.shape) < 0.3] = -1
    started: list[Factors] = []
    original = MMSR._start

    def watched(self: MMSR, crowd: Any, generator: Any) -> Factors:
        started.append(original(self, crowd, generator))
        return started[-1]

    monkeypatch.setattr(MMSR, "_start", watched)
    model = MMSR(random_state=seed, max_iter=6, tol=0.0).fit(said)
    x = np.zeros((n_annotators, n_annotators))
    for a in range(n_annotators):
        for b in range(n_annotators):
            both = (said[:, a] >= 0) & (said[:, b] >= 0)
            if a != b:
                agreement = (said[both, a] == said[both, b]).mean()
                x[a, b] = (C * agreement - 1) / (C - 1)
    trim = max((n_annotators - 1) // 2 - 1, 0)

    def trimmed_mean(values: list[float], now: float) -> float:
        below, above = sorted(v for v in values if v < now), sorted(v for v in values if v > now)
        kept = below[trim:] + [v for v in values if v == now] + above[: max(len(above) - trim, 0)]
        return sum(kept) / len(kept) if kept else now

    u, v = started[0].u.copy(), started[0].v.copy()
    for _ in range(6):
        others = [[b for b in range(n_annotators) if b != a] for a in range(n_annotators)]
        v = np.array([trimmed_mean([abs(x[a, b]) / u[a] for a in others[b]], v[b]) for b in range(n_annotators)])
        u = np.array([trimmed_mean([abs(x[a, b]) / v[b] for b in others[a]], u[a]) for a in range(n_annotators)])
    s = u / math.sqrt(np.linalg.norm(u) / np.linalg.norm(v))  # skills above chance: all signs are positive
    s = np.clip(s, -1 / (C - 1) + 1 / math.sqrt(n), 1 - 1 / math.sqrt(n))
    accuracy = s * (C - 1) / C + 1 / C
    np.testing.assert_allclose(model.skill_, accuracy, rtol=DOUBLE)
    np.testing.assert_allclose(model.weight_, np.log(accuracy * (C - 1) / (1 - accuracy)), atol=DOUBLE)
    votes = np.zeros((n, C))
    for j in range(n_annotators):
        given = said[:, j] >= 0
        votes[given, said[given, j]] += model.weight_[j]
    top = np.sort(votes, axis=1)
    sure = top[:, -1] - top[:, -2] > 1e-6
    np.testing.assert_array_equal(model.labels_[sure], votes.argmax(1)[sure])
