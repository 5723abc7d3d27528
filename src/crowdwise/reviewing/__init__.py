"""Review doubtful items in a browser: label, undo, comment; the consensus follows, and no answer is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crowdwise.reviewing.server import Review

__all__ = ["review"]


def review(
    annotations: Any,
    X: Any = None,
    folder: str | Path = "crowd.review",
    *,
    reviewers: str | Sequence[str] = "reviewer",
    method: str = "auto",
    trust: str = "gold",
    target: float = 0.97,
    root: str | Path | None = None,
    port: int = 0,
) -> Review:
    """Open a page for reviewing the items of a crowd, served by this process; in a notebook it is shown below the cell.

    ``annotations`` are an `Annotations`, anything that makes one, or what `crowdwise.read` returns; ``X`` (n,) holds the
    items in their order: texts, pictures (n, h, w) or (n, h, w, 3), or paths of pictures below ``root``. Features of other
    kinds cannot be looked at and are not shown. Answers go to the journal in ``folder``; the same folder goes on with them.

    ``trust`` says what a reviewer's label is: ``"gold"``, the truth, or ``"expert"``, the label of a good annotator.
    ``target`` is the share of right labels among those not reviewed at which the page says that it is enough.

    >>> import tempfile
    >>> import crowdwise
    >>> votes = [["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "owl", "dog"], ["owl", "owl", "owl"]]
    >>> with crowdwise.review(votes, ["meow", "woof", "purr", "hoo"], tempfile.mkdtemp()) as page:
    ...     _ = page.session.answer("reviewer", "label", item=2, label=0)  # as a click on "cat" does
    ...     page.labels.to_pylist()[2]
    {'instance': 2, 'label': 'cat', 'confidence': 1.0, 'reviewed_by': 'reviewer', 'comment': None}
    """
    from crowdwise.constraints import check_value
    from crowdwise.reviewing.consensus import Trust
    from crowdwise.reviewing.items import export_of
    from crowdwise.reviewing.server import Review

    check_value("trust", trust, Trust)
    export, pictures = export_of(annotations, X)
    return Review(
        export,
        Path(folder),
        port,
        reviewers=(reviewers,) if isinstance(reviewers, str) else tuple(reviewers),
        method=method,
        trust=trust,
        target=target,
        pictures=pictures,
        root=None if root is None else Path(root),
    )
