"""Extras that tests need, looked up without importing them: all test files are collected by every process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(module: str, reason: str | None = None) -> None:
    """Skip the file that says so where ``module`` is not installed."""
    if find_spec(module) is None:
        pytest.skip(reason or f"{module} is not installed", allow_module_level=True)
