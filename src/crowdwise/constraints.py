"""Constraints of parameters: declared once, where a parameter is, and checked by one function.

A type says what a value may be, ``Annotated`` types and ``Literal`` what its bounds are::

    @dataclass
    class Model:
        epochs: PositiveInt = 60
        rank: PositiveInt | Literal["auto"] | None = "auto"

        def fit(self) -> None:
            check_parameters(self)  # rank must be an integer of 1 or more, 'auto' or None, got 0

A subclass that gives such a field another default keeps its constraints, unless it declares constraints of its own.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from crowdwise.errors import ConfigError, CrowdwiseError, suggest

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Interval:
    """Finite numbers from ``low`` to ``high``, without the ends where these are ``open``."""

    low: float = -math.inf
    high: float = math.inf
    open: Literal["", "low", "high", "both"] = ""

    def __contains__(self, value: Any) -> bool:
        above = value > self.low if self.open in ("low", "both") else value >= self.low
        below = value < self.high if self.open in ("high", "both") else value <= self.high
        return bool(above and below and math.isfinite(value))

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.open in ("low", "both") else f"of {self.low:g} or more"
        if math.isinf(self.high):
            return low
        if not self.open:
            return f"from {self.low:g} to {self.high:g}"
        return f"{low} and below {self.high:g}" if self.open != "low" else f"{low} and up to {self.high:g}"


PositiveInt = Annotated[int, Interval(1)]
NonNegativeInt = Annotated[int, Interval(0)]
PositiveFloat = Annotated[float, Interval(0, open="low")]
NonNegativeFloat = Annotated[float, Interval(0)]
Probability = Annotated[float, Interval(0, 1)]
OpenProbability = Annotated[float, Interval(0, 1, open="both")]


def accepts(kind: Any, value: Any) -> bool:
    """Whether a value is of a type and within the bounds that it declares; types that are not known accept everything.

    >>> accepts(PositiveInt | None, 3), accepts(PositiveInt | None, 0), accepts(Literal["a", "b"], "c")
    (True, False, False)
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is Annotated:
        return accepts(parts[0], value) and all(value in bound for bound in parts[1:])
    if origin in (Union, UnionType):
        return any(accepts(part, value) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if kind in (None, NoneType):
        return value is None
    if kind in (int, float):  # True and False are no numbers here, those of numpy are
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if origin is Callable:
        return callable(value)
    if origin in (list, tuple, Sequence):
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, str) or not isinstance(value, Sequence):
            return False
        exact = origin is tuple and parts[-1] is not ...
        kinds = parts if exact else parts[:1] * len(value)
        return len(kinds) == len(value) and all(map(accepts, kinds, value))
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            accepts(parts[0], key) and accepts(parts[1], one) for key, one in value.items()
        )
    return not isinstance(kind, type) or isinstance(value, kind)


_NOUNS = {int: "an integer", float: "a number", bool: "true or false", str: "text", None: "None", NoneType: "None"}


def described(kind: Any) -> str:
    """A type and its bounds, in words.

    >>> described(PositiveInt | Literal["auto"] | None)
    "an integer of 1 or more, 'auto' or None"
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join((described(parts[0]), *map(str, parts[1:])))
    if origin in (Union, UnionType, Literal):
        words = [repr(part) if origin is Literal else described(part) for part in parts]
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if origin in (list, tuple, Sequence):
        if origin is tuple and parts[-1] is not ...:
            return f"({', '.join(map(described, parts))})"
        if parts[0] is Any:
            return "a list"
        return f"a list, each {described(parts[0])}"
    if origin in (dict, Mapping):
        return "a table" if parts[1] is Any else f"a table, each value {described(parts[1])}"
    if is_dataclass(kind):
        return "a table"
    if origin is Callable:
        return "a function"
    return _NOUNS.get(kind) or str(getattr(kind, "__name__", kind))


def check_value(
    name: str, value: Any, kind: Any, error: type[CrowdwiseError] = ConfigError, parameter: str | None = None
) -> None:
    """Refuse a value that is not of a type, or out of its bounds.

    >>> check_value("epochs", -1, PositiveInt)
    Traceback (most recent call last):
    ...
    crowdwise.errors.ConfigError: epochs must be an integer of 1 or more, got -1
    """
    if accepts(kind, value):
        return
    if get_origin(kind) in (Union, UnionType):  # None, for a default, need not be named beside a single type
        others = [part for part in get_args(kind) if part is not NoneType]
        kind = others[0] if len(others) == 1 else kind
    choices = _choices(kind)
    if choices and isinstance(value, str):
        raise error(f"unknown {name} {shown(value)}{suggest(value, choices)}", parameter=parameter)
    raise error(f"{name} must be {described(kind)}, got {shown(value)}", parameter=parameter)


def _choices(kind: Any) -> tuple[str, ...]:
    """The words that a type allows; none if it allows other text or numbers as well."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) not in (Union, UnionType) or any(accepts(kind, other) for other in ("", 1, 0.5)):
        return ()
    return tuple(word for part in get_args(kind) for word in _choices(part))


def shown(value: object, most: int = 80) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def check_parameters(model: Any) -> None:
    """Refuse parameters of a dataclass, or of an estimator that is one, that are out of their bounds."""
    owner: Any = type(model)
    for name, kind in constraints_of(owner).items():
        check_value(name, getattr(model, name), kind)


def check_settings(where: str, given: Mapping[str, Any], owner: Any, known: Iterable[str] | None = None) -> None:
    """Refuse values that the parameters of ``owner``, a dataclass or function, do not allow, and names it does not have."""
    kinds = {**(types_of(owner) if isinstance(owner, type) else {}), **constraints_of(owner)}
    refuse_unknown(where, given, parameters_of(owner) if known is None else known)
    for name, value in given.items():
        if name in kinds:
            check_value(f"{where}: {name}", value, kinds[name], parameter=name)


def refuse_unknown(
    where: str,
    given: Iterable[str],
    known: Iterable[str],
    error: type[CrowdwiseError] = ConfigError,
    parameter: str | None = None,
) -> None:
    """Refuse names that are not known, and say which one may have been meant."""
    known = [*known]
    for name in given:
        if name not in known:
            raise error(f"{where}: unknown key {shown(name)}{suggest(str(name), known)}", parameter=parameter)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that are out of the bounds which the function's annotations declare.

    >>> @checked
    ... def draw(size: PositiveInt) -> int:
    ...     return size
    >>> draw(0)
    Traceback (most recent call last):
    ...
    crowdwise.errors.ConfigError: size must be an integer of 1 or more, got 0
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bounds = constraints_of(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in bounds:
                check_value(name, value, bounds[name])
        return function(*args, **kwargs)

    return call


@functools.cache
def parameters_of(owner: Any) -> tuple[str, ...]:
    """Names of the parameters of a dataclass or function."""
    if is_dataclass(owner):
        return tuple(field.name for field in fields(owner) if field.init)
    return tuple(inspect.signature(owner).parameters)


@functools.cache
def constraints_of(owner: Any) -> dict[str, Any]:
    """The types of those parameters of a class or function that declare bounds."""
    return {name: kind for name, kind in _annotations(owner) if _bounded(kind)}


@functools.cache
def types_of(owner: Any) -> dict[str, Any]:
    """The types of all parameters of a class or function."""
    return dict(_annotations(owner))


def _annotations(owner: Any) -> Iterator[tuple[str, Any]]:
    for part in reversed(owner.__mro__) if isinstance(owner, type) else [inspect.unwrap(owner)]:
        yield from inspect.get_annotations(part, eval_str=True).items()


def _bounded(kind: Any) -> bool:
    origin = get_origin(kind)
    return origin in (Annotated, Literal) or (origin is not ClassVar and any(map(_bounded, get_args(kind))))
