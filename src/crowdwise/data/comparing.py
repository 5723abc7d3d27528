"""Whether labels can be compared with anything at all."""

from __future__ import annotations

from typing import Any

import numpy as np


def comparable(crowd: Any, known: bool = False) -> bool:
    """Whether anything tells right labels of annotations, or of a crowd, from wrong ones.

    That is what is ``known`` (gold, a history), or a second opinion.

    It is true where there is nothing to tell: without labels, or with a single class.

    >>> from crowdwise import Annotations
    >>> comparable(Annotations.from_dense([["cat", None], [None, "dog"]]))
    False
    """
    people = np.asarray(crowd.annotators_per_instance)
    if known or crowd.n_classes < 2 or not np.any(people):
        return True
    return bool(np.any(people > 1))
