"""Parts of the engine by their formulas: scaling, averages of weights, mixing, what goes wrong and how it is said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from crowdwise import Annotations
from crowdwise.engine import Engine, Problem, bending, guard
from crowdwise.engine.augment import Mixup, find_augment, mirrors
from crowdwise.engine.average import Average
from crowdwise.engine.evaluation import evaluate, scaled_inputs
from crowdwise.engine.prepare import Prepare
from crowdwise.engine.problem import make_units
from crowdwise.engine.stage import Batch
from crowdwise.engine.tensors import ResidentInputs, StreamedInputs, pairs_of, to_channels_first
from crowdwise.errors import ConfigError, DataError
from engine_helpers import crowd
from tolerances import SINGLE

CPU = torch.device("cpu")


# scaling


def bent(z: float) -> float:
    """Itself up to 3, then 3 + ln(1 + what exceeds it), cut at 10."""
    size = abs(z)
    return math.copysign(min(size if size <= 3 else 3 + math.log(1 + size - 3), 10), z)


def test_robust_scaling_by_its_formula() -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(5, 2, 400), rng.standard_cauchy(400), np.full(400, 7.0)], axis=1).astype(np.float32)
    values[:, 2][:3] += 1e-7
    prepare = Prepare.learn("auto", torch.from_numpy(values))
    assert prepare.mode == "robust"
    columns = []
    for column in values.T.astype(float)[:2]:
        low, median, high = np.quantile(column, [0.25, 0.5, 0.75])
        z = np.array([bent((each - median) / ((high - low) / 1.349)) for each in column])
        columns.append((z - z.mean()) / z.std())
    found = prepare(torch.from_numpy(values)).numpy()
    assert_allclose(found[:, :2], np.stack(columns, axis=1), atol=1e-3)
    assert not found[:, 2].any()
    mostly = np.zeros((100, 1), np.float32)
    mostly[:10] = 4.0  # half of the values are equal: the standard deviation is the spread
    again = Prepare.learn("robust", torch.from_numpy(mostly))
    assert again.spread.item() == pytest.approx(mostly.std())
    assert again.centre.item() == 0


def test_all_forms_of_robust_scaling_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    raw = torch.from_numpy((rng.standard_cauchy((70, 5)) * [1, 10, 1e3, 0, 1e-3]).astype(np.float32))
    prepare = Prepare.learn("robust", raw)
    expected = prepare(raw)
    many = prepare.for_many()
    torch.testing.assert_close(many(raw), expected, rtol=SINGLE, atol=SINGLE)
    out = np.empty(350, np.float32)
    constants = prepare.centre, 1 / prepare.spread, -prepare.mean / prepare.std, 1 / prepare.std
    rows = [bending.long_rows(each.numpy()) for each in constants]
    assert len(rows[0]) >= 1024
    bending.bending_kernel()(raw.view(-1).numpy(), *rows, out)
    assert_allclose(out.reshape(70, 5), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["standardise", "log1p", "none", "paper"])
def test_other_scalings_by_their_formulas(mode: str) -> None:
    values = np.abs(np.random.default_rng(2).normal(3, 2, (50, 3))).astype(np.float32)
    values[:, 2] = 4.0
    found = Prepare.learn(mode, torch.from_numpy(values))(torch.from_numpy(values)).numpy()
    expected = {"log1p": np.log1p(values), "none": values, "paper": values}.get(mode)
    if expected is None:
        expected = (values - values.mean(axis=0)) / np.where(values.std(axis=0) > 0, values.std(axis=0), 1)
    assert_allclose(found, expected, atol=1e-5)


def test_pictures_are_standardised_by_channel() -> None:
    raw = torch.randint(0, 256, (20, 2, 3, 3), dtype=torch.uint8)
    raw[:, 1] //= 4
    x = Prepare.learn("auto", raw)(raw)
    values = raw.double() / 255
    mean, std = values.mean((0, 2, 3)), values.transpose(0, 1).flatten(1).std(1, correction=0)
    assert_allclose(x, (values - mean[:, None, None]) / std[:, None, None], atol=1e-5)
    for mode, raw_, message in (
        ("robust", raw, "robust' is for feature vectors"),
        ("loud", raw, "unknown prepare='loud'"),
    ):
        with pytest.raises(ConfigError, match=message):
            Prepare.learn(mode, raw_)
    with pytest.raises(DataError, match=r"X\[1, 0\] is -2"):
        Prepare.learn("log1p", torch.tensor([[1.0], [-2.0]]))


def test_values_unlike_the_training_data_are_noticed() -> None:
    raw = torch.from_numpy(np.random.default_rng(3).normal(size=(100, 3)).astype(np.float32))
    for mode in ("robust", "standardise"):
        prepare = Prepare.learn(mode, raw)
        assert prepare.departure(raw) == ""
        assert prepare.departure(raw[:5] * 1e-6) == ""  # of few rows nothing can be said
        assert "standard deviations from the training data's centre" in prepare.departure(raw + 1e4)
        assert "varies less than" in prepare.departure(raw * 1e-6)
    assert Prepare.learn("none", raw).departure(raw + 1e9) == ""


# averages


def test_an_average_by_its_formula() -> None:
    linear = nn.Linear(2, 1)
    average = Average([linear], 0.6)
    weight, expected = linear.weight.detach().clone(), linear.weight.detach().clone()
    for step in range(1, 30):
        with torch.no_grad():
            linear.weight.copy_(weight + step)
        average.update()
        keep = min(step / (step + 9), 0.6)
        expected = keep * expected + (1 - keep) * (weight + step)
    with average.in_place():
        torch.testing.assert_close(linear.weight.detach(), expected)
        with average.in_place():  # once is enough
            torch.testing.assert_close(linear.weight.detach(), expected)
    torch.testing.assert_close(linear.weight.detach(), weight + 29)
    average.adopt()
    torch.testing.assert_close(linear.weight.detach(), expected)


# mixing and moving


def batch(n: int = 6) -> Batch:
    row = torch.tensor([0, 0, 2, 3, 5])
    x, unit = torch.arange(float(n))[:, None], torch.arange(n) + 10
    one = torch.ones(5)
    return Batch(x, unit, unit, row, torch.arange(5), torch.arange(5) % 3, one, one.sum(), torch.tensor(float(n)))


def test_mixed_batches_hold_both_by_their_shares() -> None:
    torch.manual_seed(0)
    mixed = Mixup(0.7, CPU)(batch())
    share = mixed.partner[1]
    assert bool((share >= 0.5).all())
    assert_allclose(mixed.x[:, 0], share * torch.arange(6.0) + (1 - share) * torch.arange(6.0).roll(1))
    assert mixed.partner[0].tolist() == [15, 10, 11, 12, 13, 14]
    assert mixed.row.tolist() == [0, 0, 2, 3, 5, 1, 1, 3, 4, 0]
    own, other = share[mixed.row[:5]], 1 - share[mixed.row[5:]]
    assert_allclose(mixed.weight, torch.cat([own, other]))
    assert_allclose(mixed.share, mixed.weight)
    table = torch.arange(20.0)[:, None] * torch.tensor([1.0, 2.0])
    values = mixed.of_units(table)
    assert_allclose(values[:, 0], share * mixed.unit + (1 - share) * mixed.partner[0])
    plain = batch()
    assert_allclose(plain.of_units(table)[:, 1], 2.0 * plain.unit)


def test_means_and_sums_of_batches() -> None:
    one = batch()
    one.weight = torch.tensor([1.0, 2.0, 0.0, 4.0, 1.0])
    one.total = one.weight.sum()
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    assert one.mean(losses).item() == pytest.approx((1 + 4 + 16 + 5) / 8)
    assert one.instance_mean(torch.arange(6.0)).item() == 2.5
    summed = one.instance_sum(losses[:, None], torch.tensor([1.0, 0.5, 1.0, 1.0, 0.0]))
    assert summed[:, 0].tolist() == [2.0, 0.0, 3.0, 4.0, 0.0, 0.0]
    twice = one.repeated(2)
    assert twice.row.tolist() == [0, 0, 2, 3, 5, 6, 6, 8, 9, 11]
    assert (twice.total.item(), twice.size.item(), twice.networks) == (16, 12, 2)
    assert twice.mean(losses.repeat(2)).item() == pytest.approx(one.mean(losses).item())
    assert one.repeated(1) is one


def test_what_is_done_to_pictures_follows_their_colours() -> None:
    assert find_augment("auto", (3, 8, 8)) is not None
    assert [mirrors("auto", (c, 8, 8)) for c in (1, 3)] == [False, True]
    assert [mirrors(each, (3, 8, 8)) for each in ("none", "crop", "crop-flip", "strong")] == [False, False, True, True]
    assert find_augment("none", (3, 8, 8)) is None
    assert not mirrors("auto", (5,))


def test_cropped_pictures_are_moved_and_nothing_else() -> None:
    torch.manual_seed(1)
    x = torch.rand(40, 1, 8, 8) + 1
    moved = find_augment("crop", (1, 8, 8))(x)

    def kept(move: int) -> slice:  # what stays in the picture on one axis
        return slice(max(move, 0), 8 + min(move, 0))

    seen = set()
    for before, after in zip(x[:, 0], moved[:, 0], strict=True):
        places = [
            (down, right)
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            if torch.equal(after[kept(down), kept(right)], before[kept(-down), kept(-right)])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 4


# data on the device


def test_annotations_of_units_in_any_order() -> None:
    indptr = torch.tensor([0, 2, 2, 5, 6])
    row, pair = pairs_of(indptr, torch.tensor([2, 0, 1, 2]))
    assert row.tolist() == [0, 0, 0, 1, 1, 3, 3, 3]
    assert pair.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 5), (4, 5)),
        ((4, 6, 7), (4, 1, 6, 7)),
        ((4, 6, 7, 3), (4, 3, 6, 7)),
        ((4, 6, 7, 1), (4, 1, 6, 7)),
        ((4, 3, 7, 7), (4, 3, 7, 7)),
        ((4, 3, 7, 3), (4, 3, 7, 3)),
        ((4, 1, 7, 4), (4, 1, 7, 4)),
        ((4, 6, 7, 4), (4, 4, 6, 7)),
        ((4, 5, 7, 7), (4, 5, 7, 7)),
    ],
)
def test_channels_come_first(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    found = to_channels_first(array)
    assert found.shape == expected
    assert found.ravel().sum() == array.sum()
    if shape == (4, 6, 7, 3):
        assert found[1, 2, 3, 4] == array[1, 3, 4, 2]


@pytest.mark.parametrize(
    ("shape", "message"), [((4,), r"X.reshape\(1, -1\)"), ((1, 2, 3, 4, 5), "got an array of shape")]
)
def test_other_shapes_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_channels_first(np.zeros(shape))


def test_inputs_of_a_data_set_are_those_of_an_array() -> None:
    X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)

    class Items:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> Any:
            return X[index], "and more"

    index = torch.tensor([3, 3, 8])
    for inputs in (StreamedInputs(Items(), CPU), StreamedInputs(X, CPU), ResidentInputs(torch.from_numpy(X))):
        assert len(inputs) == 9
        assert_array_equal(inputs.take(index), X[[3, 3, 8]])
        parts = list(inputs.stream([index, index[:1]]))
        assert [len(part) for part in parts] == [3, 1]
        assert_array_equal(torch.cat(parts), X[[3, 3, 8, 3]])


def test_units_are_in_order_whatever_the_order_of_annotations() -> None:
    i, j, y = np.array([2, 0, 2, 0]), np.array([1, 1, 0, 1]), np.array([0, 2, 1, 1])
    weight = np.array([0.5, 2.0, 1.0, 4.0], np.float32)
    made = Annotations.from_triples(i, j, y, n_instances=3, n_classes=3, weight=weight)
    units = make_units(ResidentInputs(torch.zeros(3, 1)), made, CPU, "instance")
    assert units.indptr.tolist() == [0, 2, 2, 4]
    assert units.annotator.tolist() == [1, 1, 0, 1]
    assert units.label.tolist() == [1, 2, 1, 0]
    assert units.given.tolist() == [4.0, 2.0, 1.0, 0.5]
    assert_allclose(units.weight, [4 / 6, 2 / 6, 1 / 1.5, 0.5 / 1.5])
    single = units.by_annotation()
    assert single.instance.tolist() == [0, 0, 2, 2]
    assert single.weight.tolist() == [4.0, 2.0, 1.0, 0.5]
    part = units.subset(torch.tensor([2, 0]), torch.tensor([1, 0]))
    assert part.label.tolist() == [1, 0, 1, 2]
    assert part.target.tolist() == [1, 0]
    cached = part.with_inputs(torch.tensor([[7.0], [8.0]]))
    assert cached.inputs.take(cached.instance).tolist() == [[7.0], [8.0]]
    assert cached.rows.tolist() == [2, 0]


def test_some_instances_are_held_out_and_the_rest_is_trained_on() -> None:
    X, annotations, _ = crowd(50)
    some = annotations.where(annotations.instance >= 10)
    made = Problem.make(X, some, device=CPU, seed=4, validation_fraction=0.25)
    train, held_out = set(made.train.instance.tolist()), set(made.validation.instance.tolist())
    assert len(held_out) == 10
    assert train | held_out == set(range(10, 50))
    assert not train & held_out
    assert made.annotations.n_instances == 30
    other = Problem.make(X, some, device=CPU, seed=5, validation_fraction=0.25)
    assert set(other.validation.instance.tolist()) != held_out
    tiny = Problem.make(X[:3], annotations.select(range(3)), device=CPU, seed=0, validation_fraction=0.9)
    assert (len(tiny.train), len(tiny.validation)) == (2, 1)


def test_evaluation_is_in_parts_and_leaves_the_module_as_it_was() -> None:
    linear, seen = nn.Linear(3, 2), []
    X = torch.randn(5_000, 3)

    def prepare(raw: torch.Tensor) -> torch.Tensor:
        seen.append(len(raw))
        return raw * 2

    at = torch.arange(5_000).flip(0)
    found = evaluate(linear.train(), ResidentInputs(X), at, prepare)
    torch.testing.assert_close(found, linear(X.flip(0) * 2).detach())
    assert linear.training
    assert sum(seen) == 5_000
    assert max(seen) <= 2_048
    everything = evaluate(linear.eval(), ResidentInputs(X), at, prepare, function=lambda x: x.sum(1), everything=True)
    torch.testing.assert_close(everything, X.mul(2).sum(1))
    assert not linear.training


def test_scaled_copies_are_of_feature_vectors_alone() -> None:
    X, annotations, _ = crowd(20)
    made = Problem.make(X, annotations, device=CPU, seed=0)
    ready = scaled_inputs(made)
    torch.testing.assert_close(ready.data, made.prepare(torch.from_numpy(X)))
    pictures, labels, _ = crowd(20, image=True)
    assert scaled_inputs(Problem.make(pictures, labels, device=CPU, seed=0)) is None


# what is wrong with a classifier


class Says(nn.Module):
    """A classifier whose logits are those of a table of instances."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table = torch.from_numpy(table).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x[:, 0].round().long()]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("right", None),
        ("flat", "nearly the same probabilities"),
        ("random", "its predictions tell nothing about them"),
        ("permuted", None),  # worse than the most frequent class, and yet it knows something
    ],
)
def test_what_is_wrong_with_predictions(kind: str, said: str | None) -> None:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(300) < 0.5, 0, rng.integers(1, 3, 300))
    labels = np.where(rng.random((300, 3)) < 0.8, y[:, None], rng.integers(0, 3, (300, 3)))
    X = np.arange(300, dtype=np.float32)[:, None]
    made = Problem.make(X, Annotations.from_dense(labels), device=CPU, seed=0, prepare="none", validation_fraction=0.3)
    table = {
        "right": 5.0 * np.eye(3)[y],
        "flat": np.tile([0.0, 1.0, 0.0], (300, 1)),
        "random": 5.0 * np.eye(3)[rng.integers(0, 3, 300)],
        "permuted": 5.0 * np.eye(3)[(y + 1) % 3],
    }[kind]
    classifier = Says(table)
    stage = type("S", (), {"score": classifier})()
    found = guard.diagnosis(Engine(made), stage)
    assert (found is None) if said is None else (said in found)
    if kind == "random":
        predicted = table.argmax(1)[made.validation.instance.numpy()]
        shares = np.stack([(labels == c).mean(axis=1) for c in range(3)], axis=1)[made.validation.instance.numpy()]
        agreement = shares[np.arange(90), predicted].mean()
        assert (
            f"agrees with {agreement:.3f} of held-out annotations, always saying 0 with {shares[:, 0].mean():.3f}"
            in found
        )


def test_nothing_is_wrong_where_nothing_can_be_told() -> None:
    X = np.arange(60, dtype=np.float32)[:, None]
    same = Annotations.from_dense(np.ones((60, 2), int).tolist())
    options: dict[str, Any] = {"device": CPU, "seed": 0, "prepare": "none", "validation_fraction": 0.0}
    flat = type("S", (), {"score": Says(np.zeros((60, 2)))})()
    two = Annotations.from_triples(same.instance, same.annotator, same.label, n_classes=2)
    always = Annotations.from_triples(two.instance, two.annotator, np.ones(120, int), n_classes=2)
    assert guard.diagnosis(Engine(Problem.make(X, always, **options)), flat) is None
    few = Annotations.from_dense(np.random.default_rng(0).integers(0, 2, (15, 2)).tolist())
    assert guard.diagnosis(Engine(Problem.make(X[:15], few, **options)), flat) is None
    assert guard.diagnosis(Engine(Problem.make(X[:15], few, **options)), type("S", (), {"score": None})()) is None
