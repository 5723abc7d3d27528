"""What this machine has: memory and cores, without a library beyond Python's own."""

from __future__ import annotations

import os


def total_memory() -> int | None:
    """Bytes of memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def n_cores() -> int:
    """Cores, 1 where the system does not say."""
    return os.cpu_count() or 1
