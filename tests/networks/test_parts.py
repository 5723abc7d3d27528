"""Networks against the same layers by hand, and the several forms in which a network computes one function."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from crowdwise.errors import ConfigError, DataError
from crowdwise.networks import (
    Classifier,
    ConstantTransition,
    GlobalHead,
    IndividualHeads,
    Stacked,
    TransitionNetwork,
    build_backbone,
    layers,
    transition,
)
from crowdwise.networks.backbones import BasicBlock, BatchNorm, RowNorm, name_of, takes_dropout
from crowdwise.networks.layers import in_turn, product
from crowdwise.networks.stacked import MeanFeatures, StackedRows
from crowdwise.networks.transition import append_one, stretches, take_row
from tolerances import SINGLE


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=SINGLE, atol=SINGLE)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_an_mlp_is_a_linear_layer_and_relu() -> None:
    x = torch.randn(6, 2, 3)
    backbone, width = build_backbone("mlp", (2, 3), {"hidden": 4})
    linear = next(layer for layer in backbone if isinstance(layer, nn.Linear))
    assert width == 4
    close(backbone(x), torch.relu(x.flatten(1) @ linear.weight.T + linear.bias))
    normed, _ = build_backbone("mlp", (6,), {"hidden": 4, "batch_norm": True, "dropout": 0.5})
    assert [type(layer).__name__ for layer in normed] == ["Flatten", "Linear", "RowNorm", "ReLU", "ByteDropout"]
    assert normed[4].p == 0.5


def test_a_row_alone_is_normed_by_what_was_seen_before() -> None:
    norm, x = RowNorm(3), torch.randn(5, 3) + 2
    by_batch = norm(x)
    close(by_batch.mean(0), torch.zeros(3))
    mean, variance = 0.1 * x.mean(0), 0.9 + 0.1 * x.var(0)
    close(norm(x[:1]), (x[:1] - mean) / (variance + norm.eps).sqrt())
    close(norm.eval()(x), (x - mean) / (variance + norm.eps).sqrt())


def test_a_channel_with_a_single_value_is_normed_by_what_was_seen_before() -> None:
    norm, x = BatchNorm(2), torch.randn(4, 2, 3, 3) + 1
    close(norm(x).mean((0, 2, 3)), torch.zeros(2))
    mean, variance = 0.1 * x.mean((0, 2, 3)), 0.9 + 0.1 * x.transpose(0, 1).flatten(1).var(1)
    one = torch.randn(1, 2, 1, 1)
    expected = (one[0, :, 0, 0] - mean) / (variance + norm.eps).sqrt()
    close(norm(one)[0, :, 0, 0], expected)
    close(BatchNorm(2, relu=True)(x), torch.relu(BatchNorm(2)(x)))


@pytest.mark.parametrize(("channels", "stride"), [(4, 1), (4, 2), (6, 1)])
def test_a_block_is_two_convolutions_and_a_shortcut(channels: int, stride: int) -> None:
    block = BasicBlock(4, channels, stride)
    x = torch.randn(3, 4, 6, 6)
    first, norm, _, second, last = block.body
    middle = torch.relu(F.batch_norm(F.conv2d(x, first.weight, stride=stride, padding=1), None, None, training=True))
    end = F.batch_norm(F.conv2d(middle, second.weight, padding=1), None, None, training=True)
    shortcut = x
    if (channels, stride) != (4, 1):
        shortcut = F.batch_norm(F.conv2d(x, block.shortcut[0].weight, stride=stride), None, None, training=True)
    assert norm.relu
    assert last.relu
    close(block(x), torch.relu(end + shortcut))


def test_strides_of_residual_networks() -> None:
    backbone, _ = build_backbone("resnet18", (3, 18, 18))
    x, sides = torch.randn(2, 3, 18, 18), []
    with torch.no_grad():
        for layer in backbone.eval():
            x = layer(x)
            if isinstance(layer, BasicBlock):
                sides.append((x.shape[1], x.shape[2]))
    assert sides == [(64, 16), (64, 16), (128, 8), (128, 8), (256, 4), (256, 4), (512, 2), (512, 2)]
    with_dropout, _ = build_backbone("resnet18", (3, 8, 8), {"dropout": 0.25})
    assert with_dropout[-1].p == 0.25


def test_a_cnn_layer_by_layer() -> None:
    backbone, width = build_backbone("cnn", (1, 6, 9), {"channels": 2, "hidden": 5, "dropout": 0.4})
    assert width == 5
    x = torch.randn(3, 1, 6, 9)
    first, second, linear = backbone[0], backbone[4], backbone[9]
    h = F.max_pool2d(torch.relu(F.batch_norm(F.conv2d(x, first.weight, padding=1), None, None, training=True)), 2)
    h = torch.relu(F.batch_norm(F.conv2d(h, second.weight, padding=1), None, None, training=True))
    h = torch.relu(linear(F.adaptive_max_pool2d(h, 3).flatten(1)))
    close(backbone[:-1](x), h)
    assert backbone[-1].p == 0.4
    assert build_backbone("cnn", (1, 4, 4))[0][7].output_size == 2
    assert build_backbone("cnn", (1, 20, 20))[0][7].output_size == 4
    with pytest.raises(DataError, match="at least 4x4 pixels"):
        build_backbone("cnn", (1, 3, 9))


def test_names_and_options_of_backbones() -> None:
    assert [name_of("auto", shape) for shape in ((3,), (1, 4, 4))] == ["mlp", "cnn"]
    assert name_of("resnet18", (3,)) == "resnet18"
    assert takes_dropout("auto", (3,))
    own = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    module, width = build_backbone(own, (4,), {"dropout": 0.3})
    assert (width, module[1].p) == (3, 0.3)
    assert build_backbone(own, (4,))[0] is own
    assert own.training
    with pytest.raises(ConfigError, match=r"backbone_options \{'hidden': 3\} go with a backbone's name"):
        build_backbone(own, (4,), {"hidden": 3, "dropout": 0.3})


@pytest.mark.parametrize("options", [{}, {"batch_norm": True}, {"dropout": 0.3}])
def test_several_networks_in_all_their_forms(options: dict[str, object]) -> None:
    classifiers = [Classifier("mlp", (4,), 3, {"hidden": 5, **options}) for _ in range(3)]
    for number, each in enumerate(classifiers):  # statistics of their own
        each.train()(torch.randn(9, 4) * (number + 1) + number)
        each.eval()
    stacked = Stacked(classifiers).eval()
    x = torch.randn(300, 4)
    with torch.no_grad():
        logits = torch.stack([each(x) for each in classifiers])  # (K, B, C)
        close(stacked.member_logits(x), logits.transpose(0, 1))
        close(stacked.member_function()(x), logits.permute(0, 2, 1))
        for number in range(3):
            close(stacked.one_logits(number, x), logits[number])
        close(stacked(x), torch.softmax(logits, 2).mean(0).log())
        close(stacked.features(x), torch.stack([each.features(x) for each in classifiers]).mean(0))
        close(MeanFeatures(stacked.backbone, 3)(x), stacked.features(x))
        close(classifiers[0].for_many()(x), logits[0])
    assert stacked.width == 5


def test_networks_of_any_kind_are_run_one_after_the_other() -> None:
    classifiers = [Classifier("cnn", (1, 8, 8), 3, {"channels": 2, "hidden": 4}).eval() for _ in range(2)]
    stacked, x = Stacked(classifiers).eval(), torch.randn(5, 1, 8, 8)
    assert not isinstance(stacked.backbone, StackedRows)
    with torch.no_grad():
        logits = torch.stack([each(x) for each in classifiers])
        close(stacked.member_logits(x), logits.transpose(0, 1))
        close(stacked.member_function()(x), logits.permute(0, 2, 1))
        close(stacked.one_logits(1, x), logits[1])
        close(stacked(x), torch.softmax(logits, 2).mean(0).log())
        stacked.train()
        for each in classifiers:
            each.train()
        both = torch.cat([x, x + 1])
        close(stacked(both), torch.cat([classifiers[0](x), classifiers[1](x + 1)]))


def test_what_can_be_stacked() -> None:
    assert StackedRows.fits(nn.Sequential(nn.Flatten(), nn.Linear(3, 2), nn.Tanh(), nn.BatchNorm1d(2)))
    for other in (
        nn.Linear(3, 2),
        nn.Sequential(nn.Linear(3, 2, bias=False)),
        nn.Sequential(nn.BatchNorm1d(2, affine=False)),
        nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)),
        nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)),
    ):
        assert not StackedRows.fits(other)


def test_sharpening_multiplies_logits() -> None:
    classifier, x = Classifier("mlp", (4,), 3), torch.randn(5, 4)
    before = classifier(x)
    classifier.sharpen(2.5)
    close(classifier(x), 2.5 * before)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("relu", [False, True])
def test_products_by_any_library(wide: bool, rows: int, relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if wide and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(layers, "_wide_vectors", lambda: wide)
    x, weight, bias = torch.randn(rows, 6), torch.randn(4, 6), torch.randn(4)
    expected = x @ weight.T + bias
    expected = torch.relu(expected) if relu else expected
    close(product(x, weight, bias, relu), expected)
    close(product(x, weight, bias, relu, out=torch.empty(rows, 4)), expected)
    close(product(x[None], weight, bias, relu), expected[None])
    close(product(x.double(), weight.double(), bias.double(), relu).float(), expected)


def test_a_sequence_in_evaluation() -> None:
    backbone = nn.Sequential(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 4), nn.ReLU(), nn.Identity(), nn.Linear(4, 4, bias=False), nn.ReLU(),
        nn.Linear(4, 3), nn.Tanh(), nn.ReLU(),
    ).eval()  # fmt: skip
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        close(in_turn(backbone)(x), backbone(x))
    other = nn.Linear(6, 2)
    assert in_turn(other) is other


def test_heads_and_rows_by_hand() -> None:
    head, g = GlobalHead(3, 2), append_one(torch.randn(4, 3))
    assert g[:, 3].tolist() == [1, 1, 1, 1]
    logits = torch.einsum("bd,dpq->bpq", g, head.theta)
    close(head.logits(g), logits)
    row, annotator, target = torch.tensor([0, 2, 2]), torch.tensor([1, 0, 1]), torch.tensor([1, 0, 0, 1])
    close(head.pair_logits(g, row, annotator), logits[row])
    close(head.row_logits(g, target, row, annotator), logits[row, target[row]])
    close(take_row(logits, target), logits[range(4), target])
    heads = IndividualHeads.from_global(head, 3)
    close(heads.theta, head.theta.expand(3, 4, 2, 2))
    heads.theta.data += torch.randn(3, 4, 2, 2)
    every = torch.einsum("bd,jdpq->bjpq", g, heads.theta)
    close(heads.pair_logits(g, row, annotator), every[row, annotator])
    close(heads.row_logits(g, target, row, annotator), every[row, annotator, target[row]])
    flat, origin = heads.coordinates(head.theta)
    assert flat.shape == (3, 16)
    assert origin.shape == (16,)
    assert heads.l1_norms() == pytest.approx(abs(flat).sum(axis=1))


def test_transitions_in_parts_are_those_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition, "_PAIRS_AT_ONCE", 4)
    network = TransitionNetwork("mlp", (5,), bottleneck=3, options={"hidden": 6})
    network.head = IndividualHeads.from_global(GlobalHead(3, 2), 4)
    network.head.theta.data += torch.randn(4, 4, 2, 2)
    g = network.features(torch.randn(6, 5))
    assert g.shape == (6, 4)
    row, annotator = torch.randint(6, (11,)), torch.randint(4, (11,))
    found = torch.empty(11, 2, 2)
    parts = []
    for part, logits in stretches(network, g, row, annotator):
        found[part] = logits
        parts.append(len(logits))
    assert parts == [4, 4, 3]
    close(found, torch.einsum("pd,pdab->pab", g[row], network.head.theta[annotator]).detach())
    assert TransitionNetwork("mlp", (5,), bottleneck=0, options={"hidden": 6}).width == 6


def test_constant_matrices_are_of_one_or_of_all() -> None:
    matrices = torch.tensor([[[0.9, 0.1], [0.0, 1.0]], [[0.5, 0.5], [0.2, 0.8]]])
    row, annotator = torch.tensor([0, 0, 1]), torch.tensor([1, 0, 1])
    each = ConstantTransition(matrices)
    g = each.features(torch.zeros(2, 7))
    assert g.shape == (2, 0)
    close(torch.softmax(each.pair_logits(g, row, annotator), 2), matrices[annotator])
    close(torch.softmax(ConstantTransition(matrices[1:]).pair_logits(g, row, annotator), 2), matrices[[1, 1, 1]])
