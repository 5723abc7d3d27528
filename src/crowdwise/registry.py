"""Name -> object, for aggregators, methods, data sets and other families.

Members register themselves where they are defined, so that adding one touches one file. The registry imports the modules
of its package on first use, not before.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from crowdwise import plugins
from crowdwise.errors import ConfigError, suggest

T = TypeVar("T")


class Registry(Generic[T]):
    """Named members that live in the modules of one package.

    >>> tools: Registry[type] = Registry("tool")
    >>> @tools.register("hammer")
    ... class Hammer: ...
    >>> tools["hammer"].__name__
    'Hammer'
    >>> tools["hamer"]
    Traceback (most recent call last):
    ...
    crowdwise.errors.ConfigError: unknown tool 'hamer'; did you mean 'hammer'?
    """

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._members: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: registers a member as ``name``."""

        def add(member: T) -> T:
            existing = self._members.get(name)
            same = getattr(existing, "__qualname__", None) == getattr(member, "__qualname__", "")
            if existing is not None and not same:
                raise ConfigError(f"{self.kind} {name!r} is registered twice")
            self._members[name] = member
            return member

        return add

    def _import_package(self) -> None:
        if self._package is None:
            return
        plugins.load()
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, self._package + "."):
            importlib.import_module(module.name)
        self._package = None

    def __getitem__(self, name: str) -> T:
        self._import_package()
        if name not in self._members:
            raise ConfigError(f"unknown {self.kind} {name!r}{suggest(name, self._members)}")
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        self._import_package()
        return iter(sorted(self._members))

    def __len__(self) -> int:
        self._import_package()
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        self._import_package()
        return name in self._members


AGGREGATORS: Registry[type] = Registry("aggregator", "crowdwise.aggregation")
METHODS: Registry[type] = Registry("method", "crowdwise.methods")
