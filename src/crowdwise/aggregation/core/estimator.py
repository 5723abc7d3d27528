"""Parameters in the manner of scikit-learn, without importing it.

scikit-learn takes more than a second to import, most of the time of a first fit; what it asks of an estimator is
little. ``sklearn.base.clone``, ``get_params``, ``set_params`` and ``check_is_fitted`` work on these classes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from crowdwise.data import notebook
from crowdwise.errors import ConfigError, suggest


class Estimator:
    """A dataclass whose fields are its parameters.

    >>> @dataclasses.dataclass(kw_only=True, repr=False)
    ... class Model(Estimator):
    ...     depth: int = 3
    ...     name: str = "tree"
    >>> Model(depth=4)
    Model(depth=4)
    >>> Model().set_params(name="bush").get_params()
    {'depth': 3, 'name': 'bush'}
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in sorted(self._defaults())}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown one is an error."""
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ConfigError(f"unknown parameter {name!r} of {type(self).__name__}{suggest(name, known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __repr__(self) -> str:
        values = ((name, getattr(self, name), default) for name, default in self._defaults().items())
        changed = [
            f"{name}={value!r}"
            for name, value, default in values
            if value is not default and repr(value) != repr(default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        if "posterior_" not in vars(self):
            return notebook.plain(repr(self))
        fitted: Any = self
        confidence = fitted.posterior_.max(axis=1)
        note = f"{len(confidence):,} instances" + (
            f", mean confidence {confidence.mean():.1%}." if len(confidence) else "."
        )
        return notebook.skills(repr(self), fitted.annotators_.tolist(), fitted.skill_, note)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
