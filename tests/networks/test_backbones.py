from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from crowdwise.errors import ConfigError, DataError
from crowdwise.networks import Classifier, build_backbone
from crowdwise.networks.backbones import BACKBONES, BatchNorm
from tolerances import SINGLE


@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("resnet34", 512), ("cnn", 64), ("mlp", 128)])
def test_backbones_by_name(name, width):
    backbone, features = build_backbone(name, (3, 12, 12))
    assert features == width
    assert backbone(torch.randn(2, 3, 12, 12)).shape == (2, width)


def test_first_convolution_of_a_resnet_shrinks_the_picture_by_two_pixels():
    backbone, _ = build_backbone("resnet18", (1, 28, 28))
    assert backbone[0](torch.zeros(1, 1, 28, 28)).shape == (1, 64, 26, 26)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_adds_the_shortcut_before_relu(relu, training):
    x, shortcut = torch.randn(2, 6, 8, 3, 3)
    norm = BatchNorm(8, relu=relu).train(training)
    expected = F.batch_norm(x, torch.zeros(8), torch.ones(8), training=training) + shortcut
    assert torch.allclose(norm(x, shortcut), expected.relu() if relu else expected, atol=SINGLE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", [(6, 64, 9, 9), (5, 512, 4, 4), (300, 128, 15, 15)])
def test_fused_batch_norm_equals_the_plain_one(monkeypatch, shape, relu, with_shortcut):
    pytest.importorskip("triton")
    results = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr("crowdwise.networks.backbones._fused", lambda: None)
        torch.manual_seed(0)
        draw = lambda: (3 * torch.randn(shape, device="cuda") + 1).contiguous(memory_format=torch.channels_last)  # noqa: E731
        x, shortcut = draw().requires_grad_(), draw().requires_grad_()
        norm = BatchNorm(shape[1], relu=relu).cuda()
        nn.init.uniform_(norm.weight)
        nn.init.normal_(norm.bias)
        y = norm(x, shortcut if with_shortcut else None)
        (y * torch.randn_like(y)).sum().backward()
        with torch.no_grad():
            predicted = norm.eval()(x, shortcut if with_shortcut else None)
        others = [shortcut.grad] if with_shortcut else []
        own = [norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]
        results.append([y.detach(), predicted, x.grad, *others, *own])
    for one, other in zip(*results, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-5


def test_resnet34_is_deeper():
    sizes = [
        sum(p.numel() for p in build_backbone(name, (3, 32, 32))[0].parameters()) for name in ("resnet18", "resnet34")
    ]
    assert sizes == [11_168_832, 21_276_992]


def test_auto_takes_an_mlp_for_features_and_a_cnn_for_images():
    assert any(isinstance(layer, nn.Conv2d) for layer in build_backbone("auto", (1, 8, 8))[0].modules())
    assert not any(isinstance(layer, nn.Conv2d) for layer in build_backbone("auto", (8,))[0].modules())


def test_unknown_backbone_suggests_a_name():
    with pytest.raises(ConfigError, match="unknown backbone 'resnet81'; did you mean 'resnet18'"):
        build_backbone("resnet81", (1, 8, 8))


def test_unknown_option_is_named():
    with pytest.raises(ConfigError, match="drop"):
        build_backbone("mlp", (4,), {"drop": 0.5})


def test_images_are_needed_for_convolutions():
    with pytest.raises(DataError, match="use backbone='mlp' for feature vectors"):
        build_backbone("resnet18", (30,))


def test_own_module_must_give_feature_vectors():
    with pytest.raises(ConfigError, match=r"must map \(2, 1, 8, 8\) to \(2, d\)"):
        build_backbone(nn.Conv2d(1, 3, 3), (1, 8, 8))


def test_own_module_is_taken_as_it_is():
    classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 5)), (1, 8, 8), 4)
    assert classifier(torch.zeros(3, 1, 8, 8)).shape == (3, 4)


@pytest.mark.parametrize(
    ("name", "shape", "options"), [("mlp", (5,), {"batch_norm": True}), ("resnet18", (1, 8, 8), {})]
)
def test_a_batch_of_one_instance_is_trained_on_with_the_running_statistics(name, shape, options):
    backbone, _ = build_backbone(name, shape, options)
    one = torch.randn(1, *shape)
    backbone.train()
    backbone(torch.randn(8, *shape))
    trained = backbone(one)
    assert torch.isfinite(trained).all()
    if name == "mlp":
        torch.testing.assert_close(trained, backbone.eval()(one))


@pytest.mark.parametrize(("side", "stem", "below_the_pool"), [(224, "large", 7), (64, "large", 2), (28, "small", 4)])
def test_a_large_stem_shrinks_the_picture_by_four_before_the_blocks(side, stem, below_the_pool):
    network = BACKBONES["resnet18"]((3, side, side), stem=stem)
    above = torch.nn.Sequential(*[layer for layer in network if not isinstance(layer, torch.nn.Flatten)][:-1])
    with torch.no_grad():
        assert above.eval()(torch.zeros(1, 3, side, side)).shape == (1, 512, below_the_pool, below_the_pool)


def test_an_unknown_stem_is_named():
    with pytest.raises(ConfigError, match="stem"):
        BACKBONES["resnet18"]((3, 64, 64), stem="huge")
