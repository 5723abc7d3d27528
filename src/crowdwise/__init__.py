"""crowdwise: learning from crowds of unreliable annotators.

Everything public is exported lazily, so that ``import crowdwise`` stays fast and does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Annotations": "crowdwise.annotations",
    "load": "crowdwise.methods.base",
    "CrowdClassifier": "crowdwise.methods.base",
    "CE": "crowdwise.methods.ce",
    "BLTM": "crowdwise.methods.bltm",
    "TAIDTM": "crowdwise.methods.taidtm",
    "DeepAggregate": "crowdwise.methods.deep_aggregate",
}
_MODULES = (
    "aggregation",
    "agreement",
    "datasets",
    "engine",
    "errors",
    "graph",
    "methods",
    "networks",
    "presets",
    "quality",
    "readers",
    "report",
    "simulate",
    "streaming",
)

__all__ = ["__version__", *_EXPORTS, *_MODULES]

if TYPE_CHECKING:
    from crowdwise.annotations import Annotations as Annotations
    from crowdwise.methods.base import CrowdClassifier as CrowdClassifier
    from crowdwise.methods.base import load as load
    from crowdwise.methods.bltm import BLTM as BLTM
    from crowdwise.methods.ce import CE as CE
    from crowdwise.methods.deep_aggregate import DeepAggregate as DeepAggregate
    from crowdwise.methods.taidtm import TAIDTM as TAIDTM


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"crowdwise.{name}")
    raise AttributeError(f"module 'crowdwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
