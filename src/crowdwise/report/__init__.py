"""Results to look at: pictures of annotators, of their matrices and of methods compared."""

from __future__ import annotations

from crowdwise.report.pictures import Matrices, accuracy_chart, annotator_graph, save_picture, transition_matrices

__all__ = ["Matrices", "accuracy_chart", "annotator_graph", "save_picture", "transition_matrices"]
