"""Mapping functions from the annotator graph to heads, one per file: graph convolution, graph attention, random walks."""

from __future__ import annotations

from crowdwise.graph.mappings.base import MAPPINGS, MappedHeads
from crowdwise.graph.mappings.deepwalk import DeepWalkHeads
from crowdwise.graph.mappings.gat import GATHeads
from crowdwise.graph.mappings.gcn import GCNHeads

__all__ = ["MAPPINGS", "DeepWalkHeads", "GATHeads", "GCNHeads", "MappedHeads"]
