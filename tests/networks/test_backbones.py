from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdwise.errors import ConfigError, DataError
from crowdwise.networks import Classifier, build_backbone


@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("resnet34", 512), ("cnn", 64), ("mlp", 128)])
def test_backbones_by_name(name, width):
    backbone, features = build_backbone(name, (3, 12, 12))
    assert features == width
    assert backbone(torch.randn(2, 3, 12, 12)).shape == (2, width)


def test_first_convolution_of_a_resnet_shrinks_the_picture_by_two_pixels():
    backbone, _ = build_backbone("resnet18", (1, 28, 28))
    assert backbone[0](torch.zeros(1, 1, 28, 28)).shape == (1, 64, 26, 26)


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
