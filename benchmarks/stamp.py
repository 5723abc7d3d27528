"""What every record of a benchmark says of the code and the machine."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np


def commit() -> str:
    """The last commit of the source."""
    import crowdwise
    from crowdwise.bench import measure

    return measure.commit(Path(crowdwise.__file__).parent).get("commit", "unknown")


def stamp() -> dict[str, Any]:
    versions = {"commit": commit(), "python": platform.python_version(), "numpy": np.__version__}
    return versions | {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "when": time.strftime("%Y-%m-%dT%H:%M:%S")}
