"""Modules that have moved: their old names still import, with a warning, in this release."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_AGGREGATION = (
    *("base", "bayes_kernels", "compiled", "confidence", "crowd", "estimator", "gold", "history", "intervals"),
    "kernels",
)
_METHODS = (
    *("anchors", "annotator_graph", "base", "files", "heads", "joint", "prediction", "revision", "skill", "steps"),
)
MOVED = {
    **{f"crowdwise.aggregation.{name}": f"crowdwise.aggregation.core.{name}" for name in _AGGREGATION},
    **{f"crowdwise.methods.{name}": f"crowdwise.methods.core.{name}" for name in _METHODS},
    "crowdwise.bench.ray_pool": "crowdwise.cluster.pool",
    "crowdwise.bench.remarks": "crowdwise.bench.tables",
    "crowdwise.bench.table_notes": "crowdwise.bench.tables",
    "crowdwise.datasets.progress": "crowdwise.progress",
    "crowdwise.engine.ledger": "crowdwise.engine.stage_store",
    "crowdwise.material": "crowdwise.data.training",
    "crowdwise.report.people": "crowdwise.report.annotators",
    "crowdwise.report.wording": "crowdwise.report.overview",
    "crowdwise.streaming.ray_passes": "crowdwise.cluster.passes",
    "crowdwise.tasks.results": "crowdwise.cli.console",
    "crowdwise.theory": "crowdwise.bench.paper.theory",
}
"""Old name -> new name."""


class _Moved:
    """Finds a module by its old name, once no file has been found for it.

    A finder and a loader by its methods: their base classes, in ``importlib.abc``, are slow to import.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None  # an ordinary one

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warnings.warn(f"{name} is now {MOVED[name]}", DeprecationWarning, stacklevel=2)  # where it is imported
        sys.modules[name] = importlib.import_module(MOVED[name])


def install() -> None:
    """Let the old names be imported."""
    sys.meta_path.append(_Moved())
