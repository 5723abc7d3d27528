"""Pictures of annotators, their matrices and the accuracy of methods, and one page with everything.

For the page, `gather` the content of a `Source`, then `write_page` or `render_page` it; or run `crowdwise report`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdwise.report.pictures import Matrices, accuracy_chart, annotator_graph, save_picture, transition_matrices

if TYPE_CHECKING:
    from crowdwise.report.content import Content, gather
    from crowdwise.report.page import render as render_page
    from crowdwise.report.page import write as write_page
    from crowdwise.report.source import Source

__all__ = [
    "Content",
    "Matrices",
    "Source",
    "accuracy_chart",
    "annotator_graph",
    "gather",
    "render_page",
    "save_picture",
    "transition_matrices",
    "write_page",
]

_LAZY = {  # what only pages need
    "Content": ("content", "Content"),
    "gather": ("content", "gather"),
    "render_page": ("page", "render"),
    "write_page": ("page", "write"),
    "Source": ("source", "Source"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(f"crowdwise.report.{module}"), attribute)
