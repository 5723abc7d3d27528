"""Plugins: modules of the user's that register methods, aggregators, encoders or backbones.

Three sources name them: `use` (the command line's ``--plugin``), the environment variable ``CROWDWISE_PLUGINS``, and entry
points of installed packages in the group ``crowdwise.plugins``. They are imported when a registry is first read, in every
process: the environment carries their names to worker processes.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from crowdwise.errors import ConfigError, CrowdwiseWarning

VARIABLE = "CROWDWISE_PLUGINS"
"""Names of modules, or paths of Python files, separated as in ``PATH``."""
GROUP = "crowdwise.plugins"

_imported: set[str] = set()


def use(plugins: Iterable[str]) -> None:
    """Import plugins, names of modules or paths of Python files, here and in processes that are started later."""
    names = [str(Path(plugin).absolute()) if _is_file(plugin) else plugin for plugin in plugins]
    known = [*filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))]
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*known, *names]))
    load()


def load() -> None:
    """Import all plugins that are not imported yet."""
    for plugin in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if plugin not in _imported:
            _imported.add(plugin)  # first: a plugin may read a registry while it is imported
            try:
                _import(plugin)
            except ConfigError:
                _imported.discard(plugin)
                raise
    for point in metadata.entry_points(group=GROUP):
        if point.value not in _imported:
            _imported.add(point.value)
            try:
                point.load()
            except Exception as error:  # somebody else's package: whatever it raises, crowdwise works without it
                warnings.warn(
                    f"plugin {point.name!r} was not loaded: {type(error).__name__}: {error}",
                    CrowdwiseWarning,
                    stacklevel=2,
                )


def _is_file(plugin: str) -> bool:
    return plugin.endswith(".py")


def _import(plugin: str) -> None:
    """Import a module by name, or a file as the module of its name."""
    name, path = plugin, Path(plugin)
    if _is_file(plugin):
        if not path.is_file():
            raise ConfigError(f"plugin {plugin}: no such file", parameter="plugin")
        name = path.stem
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))  # worker processes have the same path, so they find its classes
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a user's code may raise anything
        raise ConfigError(
            f"plugin {plugin} cannot be imported: {type(error).__name__}: {error}", parameter="plugin"
        ) from error
    found = getattr(module, "__file__", None)
    if _is_file(plugin) and (found is None or Path(found).resolve() != path.resolve()):
        raise ConfigError(
            f"plugin {plugin}: a module called {name!r} exists already; rename the file", parameter="plugin"
        )
