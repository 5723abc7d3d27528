"""Options of training that every method has: averages of weights, mixup, augmentation, several networks, patience."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import crowdwise
from crowdwise import constraints
from crowdwise.engine.augment import Mixup, crop, crop_flip, find_augment, strong
from crowdwise.engine.average import Average
from crowdwise.engine.recipe import FEATURES, PAPER, PICTURES, Recipe, find_recipe
from crowdwise.engine.stage import Batch
from crowdwise.errors import ConfigError
from crowdwise.networks import Classifier, Stacked, layers
from crowdwise.tasks import train
from engine_helpers import QUICK, crowd, fit_and_interrupt, replay_static_steps
from tolerances import SINGLE

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
SMALL = {"backbone_options": {"hidden": 16}, "verbose": 0, "batch_size": 64, "epochs": 6}
EVERYTHING = SMALL | {"ema": 0.9, "mixup": 0.4, "networks": 2, "dropout": 0.3, "patience": 5, "lr": 0.01}
PICTURE_OPTIONS = SMALL | {"backbone_options": {"channels": 4, "hidden": 16}, "ema": 0.9, "networks": 2, "epochs": 3}


def weights(model: crowdwise.CrowdClassifier) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in model.classifier_.state_dict().values()]


# recipes


def test_values_override_the_recipe_and_none_does_not():
    recipe = FEATURES.with_values({"lr": 0.5, "momentum": None})
    assert (recipe.lr, recipe.momentum, recipe.optimiser) == (0.5, FEATURES.momentum, FEATURES.optimiser)


def test_few_instances_get_more_epochs():
    assert FEATURES.for_instances(640).epochs == FEATURES.steps // 10
    assert FEATURES.for_instances(10**6).epochs == FEATURES.epochs
    assert FEATURES.with_values({"epochs": 7}).for_instances(10).epochs == 7
    assert FEATURES.with_values({"steps": 20}).for_instances(640).epochs == 2


def test_another_optimiser_comes_with_its_usual_rate_and_milestones_with_their_schedule():
    assert FEATURES.with_values({"optimiser": "sgd"}).lr == 0.01
    assert PICTURES.with_values({"optimiser": "adam"}).lr == 1e-3
    assert PICTURES.with_values({"milestones": [3]}).schedule == "steps"


def test_batches_of_large_data_are_larger_and_rates_and_averages_go_with_them():
    small, middle, large = (PICTURES.for_instances(n) for n in (16_383, 16_384, 50_000))
    assert (small.batch_size, small.lr, small.ema) == (128, 0.05, 0.999)
    assert (middle.batch_size, middle.lr, middle.early_lr) == (256, 0.1, 2 * PICTURES.early_lr)
    assert (large.batch_size, large.lr, large.epochs) == (512, 0.2, PICTURES.epochs)
    assert large.ema == pytest.approx(0.999**4)


@pytest.mark.parametrize("given", [{"batch_size": 128}, {"lr": 0.05}, {"ema": 0.999}, {"optimiser": "adam"}])
def test_batches_are_as_asked_for_where_something_that_depends_on_their_size_is_given(given):
    assert PICTURES.with_values(given).for_instances(50_000).batch_size == 128


def test_inputs_decide_the_recipe():
    assert find_recipe("auto", (5,)) is FEATURES
    assert find_recipe("auto", (3, 32, 32)) is PICTURES
    assert find_recipe("paper", (5,)) is PAPER


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": -1}, "epochs must be an integer of 0 or more, got -1"),
        ({"lr": -1.0}, "lr must be a number of 0 or more, got -1.0"),
        ({"momentum": 2}, "momentum must be a number of 0 or more and below 1, got 2"),
        ({"batch_size": 0.5}, "batch_size must be an integer of 1 or more"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'?"),
        ({"augment": "corp"}, "unknown augment 'corp'; did you mean 'crop'?"),
        ({"networks": 0}, "networks must be an integer of 1 or more, got 0"),
        ({"recipe": "papers"}, "unknown recipe 'papers'; did you mean 'paper'?"),
        ({"gamma": 2.0}, "gamma must be a number from 0 to 1, got 2.0"),
        ({"ema": 0.999995}, "ema must be a number from 0 to 0.99999, got 0.999995"),
        ({"mixup": 200}, "mixup must be a number from 0 to 100, got 200"),
        ({"milestones": [-1]}, "milestones must be a list"),
        ({"augment": "crop"}, r"augment='crop' is for pictures .*, not instances of shape \(6,\)"),
    ],
)
def test_impossible_values_are_refused_by_name(values, message):
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match=message):
        crowdwise.CE(**QUICK | values).fit(X, annotations)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Recipe)])
def test_a_setting_has_the_same_bounds_in_a_method_and_in_a_recipe(name):
    parameter = constraints.types_of(crowdwise.CE).get(name)
    if parameter is None:
        pytest.skip("a setting of recipes alone")
    probes = [-1, 0, 0.5, 0.95, 0.96, 0.99999, 0.999995, 1, 1.5, 100, 200, 1e9, True, "sgd", "steps", "crop", "x"]
    setting = constraints.types_of(Recipe)[name]
    for value in [*probes, [0.5, 3], [-1], abs]:
        assert constraints.accepts(parameter, value) == constraints.accepts(setting, value), value


@pytest.mark.parametrize(
    "settings", [{"gamma": 2}, {"ema": 0.999995}, {"mixup": 200}, {"momentum": 1}, {"schedule": "cosin"}]
)
def test_impossible_settings_are_refused_before_data_are_read(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        train.plan("ce", inputs="no-such-file.csv", annotations="nor-this.csv", settings=settings)
    with pytest.raises(ConfigError, match=next(iter(settings))):
        crowdwise.CE(**settings).fit("no such folder", None)


# averages of weights


def test_an_average_forgets_its_start_and_follows_the_weights():
    layer = nn.Linear(2, 2)
    average = Average([layer], decay=0.9)
    expected = layer.weight.detach().clone()
    for step in range(1, 30):
        with torch.no_grad():
            layer.weight.add_(1.0)
        average.update()
        keep = min(0.9, step / (step + 9))
        expected = keep * expected + (1 - keep) * layer.weight.detach()
    own = layer.weight.detach().clone()
    with average.in_place():
        torch.testing.assert_close(layer.weight.detach(), expected)
    torch.testing.assert_close(layer.weight.detach(), own)


def test_the_average_takes_in_batch_norm_and_is_what_predicts():
    X, annotations, y = crowd(300)
    options = SMALL | {"backbone_options": {"hidden": 16, "batch_norm": True}, "dropout": 0.0, "lr": 0.05}
    plain, averaged = (crowdwise.CE(**options, ema=ema).fit(X, annotations) for ema in (0.0, 0.95))
    differing = [not np.array_equal(a, b) for a, b in zip(weights(plain), weights(averaged), strict=True)]
    assert sum(differing) == len(differing) - 1  # all but the number of batches
    assert averaged.score(X, y) > 0.9


# mixup


def batch(n: int = 3) -> Batch:
    row = torch.tensor([0, 0, 1, 2])
    label, weight = torch.tensor([0, 1, 1, 0]), torch.tensor([1.0, 1.0, 1.0, 0.0])  # the last one is padding
    unit = torch.arange(n) + 10
    x = torch.eye(n)
    return Batch(x, unit, torch.full((n,), -1), row, row, label, weight, torch.tensor(3.0), torch.tensor(3.0))


def test_mixup_gives_an_instance_the_annotations_of_both_by_their_shares():
    mixed = Mixup(0.4, torch.device("cpu"))(batch())
    share = mixed.x.diagonal()
    assert ((share >= 0.5) & (share <= 1)).all()
    torch.testing.assert_close(mixed.x.sum(1), torch.ones(3))
    assert mixed.row.tolist() == [0, 0, 1, 2, 1, 1, 2, 0]
    expected = torch.stack([share[0], share[0], share[1], 0 * share[0]])
    expected = torch.cat([expected, torch.stack([1 - share[1], 1 - share[1], 1 - share[2], 0 * share[0]])])
    torch.testing.assert_close(mixed.weight, expected)
    table = torch.arange(13.0)[:, None]
    torch.testing.assert_close(mixed.of_units(table)[:, 0], mixed.x @ torch.arange(10.0, 13.0))


# several networks


def test_each_network_of_a_stack_computes_what_it_would_alone():
    torch.manual_seed(0)
    for options in ({"hidden": 5}, {"hidden": 5, "batch_norm": True}):
        members = [Classifier("mlp", (4,), 3, options) for _ in range(3)]
        stacked, x = Stacked(members), torch.randn(3 * 7, 4)
        alone = torch.cat([member(part) for member, part in zip(members, x.chunk(3), strict=True)])
        torch.testing.assert_close(stacked(x), alone)
        mean = torch.stack([torch.softmax(member.eval()(x), 1) for member in members]).mean(0)
        torch.testing.assert_close(stacked.eval()(x).exp(), mean)


@pytest.mark.parametrize("options", [{}, {"batch_norm": True}, {"dropout": 0.5}])
def test_logits_of_stacked_networks_in_few_products(options):
    members = [Classifier("mlp", (4,), 3, {"hidden": 8, **options}) for _ in range(3)]
    stacked, x = Stacked(members).eval(), torch.randn(700, 4)
    with torch.no_grad():
        logits = stacked.member_function()
        torch.testing.assert_close(logits(x), stacked.member_logits(x).permute(1, 2, 0))
        torch.testing.assert_close(logits(x)[1].T, members[1].eval()(x))
        assert logits(x[:0]).shape == (3, 3, 0)


BACKBONES = [
    "mlp",
    nn.Flatten(),
    nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(4, 5)),
    nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6, bias=False), nn.ReLU(), nn.ReLU(), nn.Linear(6, 2)),
]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("rows", [50, 300])
def test_logits_of_many_batches_are_those_of_one(rows, backbone, wide, monkeypatch):
    if not wide:
        monkeypatch.setattr(layers, "_wide_vectors", lambda: False)
    classifier, x = Classifier(backbone, (4,), 3, {"dropout": 0.5}), torch.randn(rows, 4)
    before = x.clone()
    with torch.no_grad():
        for each in (x, torch.randn(4, rows).T):
            torch.testing.assert_close(classifier.eval().for_many()(each), classifier(each))
        assert classifier.for_many()(x[:0]).shape == (0, 3)
    assert x.equal(before)
    assert classifier.train().for_many() is classifier  # dropout is at work


def test_layers_of_more_than_rows_are_products_too():
    backbone = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Flatten()).eval()
    x = torch.randn(300, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(layers.in_turn(backbone)(x), backbone(x))


@pytest.mark.parametrize("image", [False, True])
def test_networks_train_together_as_they_would_alone(image):
    X, annotations, _ = crowd(200, image=image)
    small = {"channels": 4, "hidden": 16} if image else {"hidden": 16}
    options = QUICK | {"backbone_options": small, "lr": 0.05}
    one, two = (crowdwise.CE(**options, networks=networks).fit(X, annotations) for networks in (1, 2))
    first = two.classifier_.backbone.members[0].state_dict() if image else None
    if image:
        expected = one.classifier_.backbone.state_dict()
        assert all(torch.allclose(first[name], value, atol=1e-5) for name, value in expected.items())
    else:
        np.testing.assert_allclose(weights(two)[0][0].T, weights(one)[0], atol=1e-5)
    np.testing.assert_allclose(
        two.classifier_.linear.weight[0].T.detach(), one.classifier_.linear.weight.detach(), atol=1e-5
    )


@pytest.mark.parametrize("method", ["bltm", "taidtm"])
def test_networks_share_the_matrices_of_inputs_that_they_have_in_common(method):
    """An augmentation that leaves inputs as they are has them evaluated for every network."""
    X, annotations, _ = crowd(200)
    options = SMALL | {"networks": 3, "dropout": 0.0, "warmup_epochs": 5, "min_examples": 5}
    options = {key: value for key, value in options.items() if (method, key) != ("bltm", "min_examples")}
    shared, each = (
        crowdwise.registry.METHODS[method](**options, augment=augment).fit(X, annotations).predict_proba(X)
        for augment in (None, torch.clone)
    )
    np.testing.assert_allclose(shared, each, atol=1e-4)


def test_a_stack_is_saved_and_loaded(tmp_path):
    X, annotations, _ = crowd(200)
    for method in ("ce", "conal", "taidtm"):
        options = {"warmup_epochs": 5, "min_examples": 5} if method == "taidtm" else {}
        model = crowdwise.registry.METHODS[method](**SMALL, networks=2, **options).fit(X, annotations)
        loaded = crowdwise.load(model.save(tmp_path / method))
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


# augmentation


@pytest.mark.parametrize("augment", [crop, crop_flip, strong])
@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_pictures_differ_and_keep_their_size(augment, channels):
    torch.manual_seed(0)
    x = torch.randn(16, channels, 12, 12)
    moved = augment(x)
    assert moved.shape == x.shape
    assert (moved != x).flatten(1).any(1).sum() > 8
    assert torch.isfinite(moved).all()


def test_a_crop_moves_pictures_by_at_most_an_eighth():
    x = torch.zeros(200, 1, 16, 16)
    x[:, :, 8, 8] = 1
    at = crop(x).flatten(2).argmax(2)[:, 0]
    rows, columns = at // 16, at % 16
    assert set(rows.tolist()) == set(columns.tolist()) == {6, 7, 8, 9, 10}


def test_colour_pictures_are_mirrored_by_default_and_grey_ones_are_not():
    assert find_augment("auto", (3, 32, 32)) is crop_flip
    assert find_augment("auto", (1, 28, 28)) is crop
    assert find_augment("auto", (7,)) is None


def test_a_function_augments_prepared_batches():
    X, annotations, _ = crowd(100)
    shapes = []

    def note(x):
        shapes.append(tuple(x.shape))
        return x

    crowdwise.CE(**SMALL, augment=note).fit(X, annotations)
    assert shapes[0] == (64, 6)


# all of it with what the engine promises


@pytest.mark.parametrize("method", ["ce", "max-mig", "taidtm", "agg-net"])
def test_a_resumed_run_with_every_option_equals_an_uninterrupted_one(method, tmp_path):
    X, annotations, _ = crowd(200)
    options = EVERYTHING | ({"warmup_epochs": 5, "min_examples": 5} if method == "taidtm" else {})
    whole = crowdwise.registry.METHODS[method](**options).fit(X, annotations)
    fit_and_interrupt(crowdwise.registry.METHODS[method](**options), X, annotations, tmp_path, stop_after=4)
    resumed = crowdwise.registry.METHODS[method](**options).fit(X, annotations, resume=tmp_path)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_a_resumed_run_of_augmented_pictures_equals_an_uninterrupted_one(tmp_path):
    X, annotations, _ = crowd(150, image=True)
    whole = crowdwise.CE(**PICTURE_OPTIONS, augment="strong").fit(X, annotations)
    fit_and_interrupt(crowdwise.CE(**PICTURE_OPTIONS, augment="strong"), X, annotations, tmp_path, stop_after=2)
    resumed = crowdwise.CE(**PICTURE_OPTIONS, augment="strong").fit(X, annotations, resume=tmp_path)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


@pytest.mark.parametrize("method", ["ce", "geo-crowd-net", "max-mig", "dl-ds"])
def test_static_steps_with_every_option_equal_eager_ones(method, monkeypatch):
    X, annotations, _ = crowd(200)
    eager = crowdwise.registry.METHODS[method](**EVERYTHING).fit(X, annotations)
    replay_static_steps(monkeypatch)
    static = crowdwise.registry.METHODS[method](**EVERYTHING).fit(X, annotations)
    np.testing.assert_allclose(static.predict_proba(X), eager.predict_proba(X), atol=1e-4)


def test_patience_ends_a_stage_that_no_longer_improves():
    X, annotations, _ = crowd(300)
    model = crowdwise.CE(**SMALL | {"epochs": 200, "schedule": "constant"}, lr=0.05, patience=3).fit(X, annotations)
    agreement = [record["agreement"] for record in model.history_]
    assert len(agreement) < 200
    assert len(agreement) - 1 - int(np.argmax(agreement)) == 3


def test_models_of_mirrored_pictures_do_not_care_which_way_round_they_are(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8, 8, 3)).astype(np.float32)
    y = (X[:, :, :4, 0].mean((1, 2)) > 0).astype(int)
    mirrored = crowdwise.CE(**PICTURE_OPTIONS, augment="crop-flip").fit(X, y)
    plain = crowdwise.CE(**PICTURE_OPTIONS, augment="crop").fit(X, y)
    np.testing.assert_allclose(mirrored.predict_proba(X), mirrored.predict_proba(X[:, :, ::-1].copy()), atol=SINGLE)
    assert np.abs(plain.predict_proba(X) - plain.predict_proba(X[:, :, ::-1].copy())).max() > 1e-4
    mirrored.save(tmp_path / "model")
    np.testing.assert_array_equal(crowdwise.load(tmp_path / "model").predict_proba(X), mirrored.predict_proba(X))
