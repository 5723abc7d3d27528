"""Connecting to Ray: started on this machine, or a running cluster."""

from __future__ import annotations

import logging
import math
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crowdwise
from crowdwise.errors import ConfigError

LOCAL = "local"
RETRIES = 3  # times that a task is run again when its worker is lost
ANSWER = 5.0  # seconds within which a cluster takes a connection
STARTUP = 120.0  # seconds within which a node runs its first task
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # what has no GPU sees none
}


@dataclass(frozen=True)
class Cluster:
    """What Ray offers to the process that is connected to it."""

    address: str
    workers: int
    """How many tasks run at a time."""
    cpus: int
    gpus: int
    nodes: int

    @property
    def per_node(self) -> int:
        """Workers of a node, if they are spread evenly."""
        return math.ceil(self.workers / self.nodes)


@contextmanager
def connect(address: str, workers: int | None = None) -> Iterator[Cluster]:
    """Start Ray with ``workers`` processes on this machine (``"local"``), or join the cluster at ``address``.

    ``address`` is ``HOST:PORT`` of a cluster of which this machine is a node. By default there is one worker for each CPU.
    A process that is connected to Ray already keeps that connection, whatever the address.
    """
    ray = import_ray()
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be 1 or more, got {workers}")
    own = not ray.is_initialized()
    if own:
        _start(ray, address, workers)
    try:
        found = ray.cluster_resources()
        cpus = int(found.get("CPU", 0))
        if (workers or 1) > cpus:
            raise _too_many(workers or 1, address, cpus)
        yield Cluster(address, workers or cpus, cpus, int(found.get("GPU", 0)), len(_nodes(ray)))
    finally:
        if own:
            ray.shutdown()


def check_nodes(folder: Path) -> None:
    """Refuse a folder that is not on all nodes of the cluster, and nodes that have another crowdwise or none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    token = folder.absolute() / f".{uuid.uuid4().hex}.tmp"
    token.write_text("", encoding="utf-8")
    try:
        asked = {
            node["NodeManagerAddress"]: remote(
                _look, num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(token)
            for node in _nodes(ray)
        }
        for name, answer in asked.items():
            _check(ray, name, answer, folder)
    finally:
        token.unlink()


def remote(function: Callable[..., Any], **options: Any) -> Any:
    """A function as a task that is run again elsewhere when its worker is lost."""
    import ray

    return ray.remote(**{"num_cpus": 1, "max_retries": RETRIES, **options})(function)


def import_ray() -> Any:
    """Ray, with our settings."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed: pip install 'crowdwise[ray]'") from None
    return ray


def parallel_on_ray() -> Any:
    """A context in which scikit-learn's parallel work runs on Ray, to which this process is connected."""
    from ray.util.joblib import register_ray
    from sklearn.utils import parallel

    register_ray()
    return parallel.joblib.parallel_config("ray")


def _start(ray: Any, address: str, workers: int | None) -> None:
    quiet = {"include_dashboard": False} if address == LOCAL else {}
    options = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True, **quiet}
    passed = SETTINGS | {name: value for name, value in os.environ.items() if name.startswith("CROWDWISE_")}
    if address == LOCAL:
        have = os.cpu_count() or 1
        if workers is not None and workers > have:
            raise _too_many(workers, address, have)
        paths = [str(Path(crowdwise.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        passed["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # the workers' crowdwise is this one
        own = {"_node_ip_address": "127.0.0.1"}  # nobody else can reach it
        ray.init("local", num_cpus=workers or have, runtime_env={"env_vars": passed}, **own, **options)
        return
    _knock(address)
    try:
        ray.init(address, runtime_env={"env_vars": passed}, **options)
    except Exception as error:
        ray.shutdown()
        raise ConfigError(f"cannot join a Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error


def _knock(address: str) -> None:
    """Find out at once whether anybody is there: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        raise ConfigError(f"{address!r} is no address of a Ray cluster: use local or HOST:PORT, as in 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except OSError as error:
        raise ConfigError(f"no Ray cluster answers at {address}: {error.strerror or error}") from None


def _nodes(ray: Any) -> list[dict[str, Any]]:
    """Nodes that tasks can run on."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def _look(path: Path) -> tuple[bool, str]:
    """Whether a file is there, and which crowdwise."""
    return path.exists(), crowdwise.__version__


def _check(ray: Any, name: str, answer: Any, folder: Path) -> None:
    try:
        there, version = ray.get(answer, timeout=STARTUP)
    except ray.exceptions.GetTimeoutError:
        raise ConfigError(f"node {name} of the Ray cluster has run nothing for {STARTUP:.0f} s") from None
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ConfigError(
            f"node {name} of the Ray cluster cannot run crowdwise; is it installed there? {reason}"
        ) from error
    if version != crowdwise.__version__:
        raise ConfigError(f"node {name} of the Ray cluster has crowdwise {version}, this is {crowdwise.__version__}")
    if not there:
        raise ConfigError(
            f"node {name} of the Ray cluster does not see {folder.absolute()}: use a folder that all nodes share"
        )


def _too_many(workers: int, address: str, cpus: int) -> ConfigError:
    where = "this machine" if address == LOCAL else f"the Ray cluster at {address}"
    return ConfigError(f"{workers} workers were asked for, and {where} has {cpus} CPUs; ask for no more than that")
