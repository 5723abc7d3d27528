"""Neural networks: backbones, the classifier, and noise-transition networks."""

from crowdwise.networks.backbones import BACKBONES, build_backbone
from crowdwise.networks.classifier import Classifier
from crowdwise.networks.factored import FactoredHeads, ProductHeads
from crowdwise.networks.stacked import MeanFeatures, Stacked
from crowdwise.networks.transition import ConstantTransition, GlobalHead, IndividualHeads, Transition, TransitionNetwork

__all__ = [
    "BACKBONES",
    "Classifier",
    "ConstantTransition",
    "FactoredHeads",
    "GlobalHead",
    "IndividualHeads",
    "MeanFeatures",
    "ProductHeads",
    "Stacked",
    "Transition",
    "TransitionNetwork",
    "build_backbone",
]
