"""Training shared by processes of which one is lost: the others end in time, and say how to go on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crowdwise.engine import distributed
from crowdwise.errors import ConfigError

FIT = """
import numpy as np
from crowdwise.methods import CE
rng = np.random.default_rng(0)
X, labels = rng.normal(size=(64, 4)).astype("float32"), rng.integers(2, size=(64, 3))

class Tell:
    def epoch(self, record, predict):
        print("epoch", flush=True)

CE(epochs=100_000, batch_size=32, device="cpu").fit(X, labels, callbacks=[Tell()])
"""


def two(tmp_path: Path, **environment: str) -> list[subprocess.Popen[str]]:
    """Two processes that train together for longer than anybody waits."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(2):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        options: Any = {"cwd": tmp_path, "env": os.environ | own | environment, **streams}
        started.append(subprocess.Popen([sys.executable, "-c", FIT], **options))
    return started


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_lost_ends_the_other_with_what_to_do(tmp_path: Path, how: signal.Signals) -> None:
    """Killed, its connection is reset; stopped, it is as silent as one whose network was cut."""
    first, other = two(tmp_path, CROWDWISE_PEER_TIMEOUT="5")
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "epoch\n", first.communicate(timeout=60)[1]
        other.send_signal(how)
        said = first.communicate(timeout=120)[1]
        assert first.returncode == 1
        assert (
            "LostProcessError: process 0 of 2: another process of this training has ended, or has not answered" in said
        )
        assert "resume=RUN_DIR" in said
    finally:
        for process in (first, other):
            process.kill()
            process.communicate()


def test_the_wait_for_other_processes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(distributed.ENVIRONMENT, raising=False)
    assert distributed.patience() == 600
    monkeypatch.setenv(distributed.ENVIRONMENT, "1800")
    assert distributed.patience() == 1800
    for bad in ("0", "-5", "ten", "nan", "inf", ""):
        monkeypatch.setenv(distributed.ENVIRONMENT, bad)
        with pytest.raises(
            ConfigError, match=f"CROWDWISE_PEER_TIMEOUT must be a number of seconds, 1 or more, got '{bad}'"
        ):
            distributed.patience()
