"""The process that the program runs in: its standard streams, and the signals that end it."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it
_received: list[int] = []


def prepare() -> None:
    """Make the streams safe to write to, and let signals that end the process end its workers, too."""
    _open_streams()
    _catch_signals()


def stopped() -> tuple[str, int]:
    """How the process was stopped, in a word, and its exit status."""
    return ("terminated", 128 + _received[0]) if _received else ("interrupted", INTERRUPTED)


def _open_streams() -> None:
    """Streams that the caller has closed lead nowhere, and what a stream cannot encode is written as ``\\u...``.

    The number of a closed stream would go to the next file that is opened, and messages into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", errors="backslashreplace", closefd=False))  # noqa: SIM115
        elif getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _catch_signals() -> None:
    """SIGTERM and SIGHUP unwind the stack as Ctrl-C does; left alone, they would leave workers behind."""
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        if os.getpid() != owner:  # a child that has inherited this
            os.kill(os.getpid(), number)
            return
        _received.append(number)
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, stop)
