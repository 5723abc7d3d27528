"""Neural networks: backbones, the classifier, and noise-transition networks."""

from crowdwise.networks.backbones import BACKBONES, build_backbone
from crowdwise.networks.classifier import Classifier
from crowdwise.networks.transition import GlobalHead, IndividualHeads, TransitionNetwork

__all__ = ["BACKBONES", "Classifier", "GlobalHead", "IndividualHeads", "TransitionNetwork", "build_backbone"]
