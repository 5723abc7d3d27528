"""Machine code of the kernels, compiled once for a user and kept on disk.

Files are named after the source, the numba and the processor they belong to, so that an update of crowdwise compiles anew
only what has changed, and processes that compile at the same time write the same files. Where nothing can be kept (no home,
a full disk), and when a file is broken, kernels are compiled in memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def folder() -> Path:
    """``NUMBA_CACHE_DIR``, else ``CROWDWISE_CACHE`` (by default ``~/.cache/crowdwise``), folder ``kernels``."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("CROWDWISE_CACHE") or "~/.cache/crowdwise"
    return Path(os.path.expanduser(base)) / "kernels"  # unlike Path.expanduser, it never fails for want of a home


def kept(function: str, file: str) -> bool:
    """Whether an earlier process has left machine code of a function in a source file, by its qualified name."""
    name = f"{Path(file).stem}.{function}".replace("<", "").replace(">", "")
    try:
        return any(folder().glob(f"{name}-{_digest(file)}-*.nbi"))
    except OSError:
        return False


@functools.cache
def jit() -> Callable[[Any], Any]:
    """Decorator of kernels: compiled by numba, free of the interpreter lock, kept on disk.

    A kernel may call other kernels of its file, and numbers in its closure are built into its code.
    """
    import numba

    plain = numba.njit(nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")

    def compiled(function: Any) -> Any:
        dispatcher: Any = plain(function)
        with contextlib.suppress(ImportError, AttributeError, TypeError, OSError):  # numba may keep code in another way
            dispatcher._cache = _cache()(function)
        return dispatcher

    return compiled


@functools.cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


@functools.cache
def _cache() -> Any:
    """numba's cache with other places: `folder`, and a file for each function, closure, signature and processor.

    numba itself has one index for all signatures of a function, which two processes cannot write at once.
    """
    import numba

    caching: Any = importlib.import_module("numba.core.caching")

    class Locator(caching._CacheLocator):  # type: ignore[misc]
        def __init__(self, function: Any, file: str) -> None:
            self._py_file = file  # numba names it in warnings
            numbers = [cell.cell_contents for cell in function.__closure__ or ()]
            inside = "-".join(str(number) for number in numbers if isinstance(number, int))
            self._name = "-".join([_digest(file), numba.__version__, *([inside] if inside else [])])

        def get_cache_path(self) -> str:
            return str(folder())

        def get_source_stamp(self) -> str:
            return self._name

        def get_disambiguator(self) -> str:
            return self._name

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            return cls(function, inspect.getfile(function))

    class Place(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = [Locator]  # noqa: RUF012

    class Kept(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Place

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # whatever a broken file makes unpickling raise
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)

        def _load_overload(self, sig: Any, target_context: Any) -> Any:
            key, file = self._file(sig, target_context.codegen())
            found = file.load(key)
            return None if found is None else self._impl.rebuild(target_context, found)

        def _save_overload(self, sig: Any, data: Any) -> None:
            if self._impl.check_cachable(data):
                self._impl.locator.ensure_cache_path()
                key, file = self._file(sig, data.codegen)
                file.save(key, self._impl.reduce(data))

        def _file(self, sig: Any, codegen: Any) -> tuple[str, Any]:
            key = repr((str(sig), codegen.magic_tuple()))
            name = f"{self._impl.filename_base}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
            place = {"cache_path": self._cache_path, "filename_base": name}
            return key, caching.IndexDataCacheFile(**place, source_stamp=self._impl.locator.get_source_stamp())

    return Kept
