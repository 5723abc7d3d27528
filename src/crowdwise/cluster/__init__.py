"""Everything that knows Ray: connecting to it, streamed aggregation (`RayPasses`), and benchmarks (`RayPool`) on it.

What runs on a cluster shares a folder with all of its nodes, such as one of a network file system: partitions, records and
run directories lie there. So no result is lost with the node it was computed on, and whatever is run again finds them. Ray is
an extra, and nothing here imports it until it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crowdwise.cluster.connection import LOCAL, RETRIES, Cluster, check_nodes, connect, remote

if TYPE_CHECKING:
    from crowdwise.cluster.passes import RayPasses as RayPasses
    from crowdwise.cluster.pool import RayPool as RayPool

__all__ = ["LOCAL", "RETRIES", "Cluster", "RayPasses", "RayPool", "check_nodes", "connect", "remote"]

_LATER = {"RayPasses": "crowdwise.cluster.passes", "RayPool": "crowdwise.cluster.pool"}  # import much else


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
