"""crowdwise: learning from crowds of unreliable annotators.

Everything public is exported lazily, so that ``import crowdwise`` stays fast and does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crowdwise import _moved

__version__ = "0.2.0"

_EXPORTS = {
    "Annotations": "crowdwise.annotations",
    "read": "crowdwise.readers",
    "load": "crowdwise.methods.core.saving",
    "CrowdClassifier": "crowdwise.methods.core.base",
    "compare": "crowdwise.comparison",
    "review": "crowdwise.reviewing",
    "Comparison": "crowdwise.comparison",
    "Concord": "crowdwise.methods.concord",
    "AnnotMix": "crowdwise.methods.annot_mix",
    "CE": "crowdwise.methods.ce",
    "GCE": "crowdwise.methods.gce",
    "Forward": "crowdwise.methods.forward",
    "Reweight": "crowdwise.methods.reweight",
    "BLTM": "crowdwise.methods.bltm",
    "TAIDTM": "crowdwise.methods.taidtm",
    "DeepAggregate": "crowdwise.methods.deep_aggregate",
    "CoNAL": "crowdwise.methods.conal",
    "CrowdLayer": "crowdwise.methods.crowd_layer",
    "GeoCrowdNet": "crowdwise.methods.geo_crowd_net",
    "TraceReg": "crowdwise.methods.trace_reg",
    "UnionNet": "crowdwise.methods.union_net",
    "MaxMIG": "crowdwise.methods.max_mig",
    "AggNet": "crowdwise.methods.agg_net",
    "MBEM": "crowdwise.methods.mbem",
}
_MODULES = (
    "aggregation",
    "agreement",
    "bench",
    "comparison",
    "datasets",
    "encoders",
    "engine",
    "errors",
    "graph",
    "judges",
    "methods",
    "networks",
    "presets",
    "quality",
    "ranking",
    "readers",
    "report",
    "reviewing",
    "simulate",
    "streaming",
    "tasks",
)

__all__ = ["__version__", *_EXPORTS, *_MODULES]

_moved.install()

if TYPE_CHECKING:
    from crowdwise.annotations import Annotations as Annotations
    from crowdwise.comparison import Comparison as Comparison
    from crowdwise.comparison import compare as compare
    from crowdwise.methods.agg_net import AggNet as AggNet
    from crowdwise.methods.annot_mix import AnnotMix as AnnotMix
    from crowdwise.methods.bltm import BLTM as BLTM
    from crowdwise.methods.ce import CE as CE
    from crowdwise.methods.conal import CoNAL as CoNAL
    from crowdwise.methods.concord import Concord as Concord
    from crowdwise.methods.core.base import CrowdClassifier as CrowdClassifier
    from crowdwise.methods.core.saving import load as load
    from crowdwise.methods.crowd_layer import CrowdLayer as CrowdLayer
    from crowdwise.methods.deep_aggregate import DeepAggregate as DeepAggregate
    from crowdwise.methods.forward import Forward as Forward
    from crowdwise.methods.gce import GCE as GCE
    from crowdwise.methods.geo_crowd_net import GeoCrowdNet as GeoCrowdNet
    from crowdwise.methods.max_mig import MaxMIG as MaxMIG
    from crowdwise.methods.mbem import MBEM as MBEM
    from crowdwise.methods.reweight import Reweight as Reweight
    from crowdwise.methods.taidtm import TAIDTM as TAIDTM
    from crowdwise.methods.trace_reg import TraceReg as TraceReg
    from crowdwise.methods.union_net import UnionNet as UnionNet
    from crowdwise.readers import read as read
    from crowdwise.reviewing import review as review


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name in _MODULES or f"crowdwise.{name}" in _moved.MOVED:
        return importlib.import_module(f"crowdwise.{name}")
    raise AttributeError(f"module 'crowdwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
