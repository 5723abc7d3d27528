"""Methods that train a classifier from crowd annotations. One paper, one file; a method is a generator of stages."""

from __future__ import annotations

from crowdwise.registry import METHODS

__all__ = [
    "BLTM",
    "CE",
    "GCE",
    "MBEM",
    "METHODS",
    "TAIDTM",
    "AggNet",
    "AnnotMix",
    "CoNAL",
    "Concord",
    "CrowdClassifier",
    "CrowdLayer",
    "DeepAggregate",
    "Forward",
    "GeoCrowdNet",
    "MaxMIG",
    "Reweight",
    "TraceReg",
    "UnionNet",
    "load",
]


def __getattr__(name: str) -> object:
    import crowdwise

    if name in __all__:
        return getattr(crowdwise, name)
    raise AttributeError(f"module 'crowdwise.methods' has no attribute {name!r}")
