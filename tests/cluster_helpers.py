"""A Ray of two workers on this machine, and its worker processes, to be killed one at a time."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

SOURCES = os.pathsep.join(str(Path(__file__).parents[1] / name) for name in ("src", "tests"))


@contextmanager
def two_workers(**options: object) -> Iterator[None]:
    """What `crowdwise.cluster.connect` finds already there."""
    import ray

    from crowdwise.cluster.connection import import_ray

    import_ray()
    variables = {"PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"}
    usual = {
        "num_cpus": 2,
        "include_dashboard": False,
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "object_store_memory": 200_000_000,
        "runtime_env": {"env_vars": variables},
    }
    for attempts_left in reversed(range(5)):
        try:
            ray.init("local", **usual | options)
            break
        except Exception as error:  # Ray gives itself 30 seconds, which a busy machine may need alone for its start
            ray.shutdown()
            if "timed out during startup" not in str(error) or not attempts_left:
                raise
    try:
        yield
    finally:
        ray.shutdown()


def workers(title: str) -> list[int]:
    """Processes below this one that Ray has given a title, such as the name of the function they are at."""
    parents, titles = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "status").read_text()
                titles[int(folder.name)] = (folder / "cmdline").read_text().split("\0")[0]
                parents[int(folder.name)] = int(status.partition("PPid:")[2].split()[0])
            except (OSError, IndexError):  # it has ended
                continue

    def ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and ours(parents[process]))

    return sorted(process for process, found in titles.items() if found.startswith(f"ray::{title}") and ours(process))


@contextmanager
def once(signal: int, title: str, ready: Callable[[int], bool], which: int = 0) -> Iterator[list[int]]:
    """Send a signal to one worker with a title, as soon as it is ``ready``; the list has its number."""
    sent: list[int] = []
    over: list[bool] = []

    def watch() -> None:
        while not sent and not over:
            if found := [process for process in workers(title) if ready(process)]:
                os.kill(found[which], signal)
                sent.append(found[which])
            time.sleep(0.02)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield sent
    finally:
        over.append(True)
        thread.join()
