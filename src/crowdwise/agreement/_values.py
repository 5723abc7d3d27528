"""The numbers classes stand for, for measures that need an order or a distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats
from crowdwise.errors import AnnotationError, ConfigError, spelled

Values = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer]
Weights = Literal["linear", "quadratic"]


def class_values(annotations: Annotations, values: Values | None, need: str | None = None) -> Floats:
    """The number of every class, (C,): ``values``, else the class itself if all are numbers, else its code.

    ``need`` names a measure for which codes will not do: classes that are not numbers are then an error.

    >>> crowd = Annotations.from_frame({"item": [1, 2], "worker": [1, 1], "label": ["2", "10"]})
    >>> class_values(crowd, None)
    array([ 2., 10.])
    """
    if values is not None:
        given = np.asarray(values, np.float64)
        if given.shape != (annotations.n_classes,) or not np.isfinite(given).all():
            raise ConfigError(
                f"values must hold one finite number for each of the {annotations.n_classes} classes, got {values!r}"
            )
        return given
    classes = annotations.classes
    numbers = np.array([_number(label) for label in classes.tolist()], np.float64)
    if np.isfinite(numbers).all():
        return numbers
    if need:
        label = classes[np.argmax(~np.isfinite(numbers))]
        raise AnnotationError(
            f"{need} needs classes that are numbers, but class {str(label)!r} is not; give values, a number for each "
            f"class of {[str(label) for label in classes[:8]]}{', ...' if len(classes) > 8 else ''}, or read each class "
            f"as a number ({spelled('map', f'{label}=1')})"
        )
    return np.arange(annotations.n_classes, dtype=np.float64)


def class_credit(number: Floats, weights: Weights) -> Floats:
    """Credit for confusing two classes, (C, C): 1 if they are the same, 0 for the two farthest apart."""
    distance = np.abs(number[:, None] - number)
    scaled = distance / (distance.max(initial=0) or 1)
    return np.asarray(1 - (scaled if weights == "linear" else scaled**2))


def _number(label: object) -> float:
    try:
        return float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
