"""Truth inference on tables larger than memory: Parquet in, labels out, a partition at a time.

The table is read once and rewritten as partitions of instances (`preparation`); every round of a method is then a pass over
the partitions that adds up sufficient statistics (`crowd`), by threads of this process or on a cluster (`passes`). Ids of
instances and annotators must fit into memory, rows need not. The methods are those of `crowdwise.aggregation` themselves, so
the numbers are theirs.

>>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
>>> folder = tempfile.mkdtemp()
>>> table = {"task": ["t1", "t1", "t1", "t2", "t2"], "worker": ["a", "b", "c", "a", "b"], "label": [1, 1, 0, 0, 0]}
>>> pq.write_table(pa.table(table), folder + "/crowd.parquet")
>>> result = aggregate(folder + "/crowd.parquet", "majority-vote", out=folder + "/labels.parquet")
>>> result.n_instances, result.figures.ties, pq.read_table(folder + "/labels.parquet")["label"].to_pylist()
(2, 0, [1, 0])
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crowdwise import cluster
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import resolve_threads
from crowdwise.aggregation.glad import GLAD, MEMORY
from crowdwise.aggregation.ibcc import IBCC
from crowdwise.aggregation.recommend import _choose
from crowdwise.data.codes import count
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.readers import write_table
from crowdwise.registry import AGGREGATORS
from crowdwise.storage.files import rename, storing, tidy
from crowdwise.storage.limits import parse_size
from crowdwise.storage.lock import locked
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.checkpoint import Checkpoint
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.output import Figures, annotator_table, check_output, figures, write_labels
from crowdwise.streaming.passes import Threads, Workers
from crowdwise.streaming.preparation import prepare
from crowdwise.streaming.store import MANIFEST, Store
from crowdwise.streaming.table import count_rows

__all__ = ["AUTO", "Figures", "Streamed", "aggregate", "count_rows", "parse_memory", "streamable"]

AUTO = "auto"
SMALLEST = 16_000_000  # bytes of memory below which nothing sensible can be done


@dataclass(frozen=True, eq=False)
class Streamed:
    """What `aggregate` did."""

    method: str
    """Name of the method."""
    reason: str | None
    """Why it was chosen, where that was left to `aggregate`."""
    model: Aggregator
    """The method, fitted: ``confusion_``, ``skill_``, ``class_prior_``, and of iterative methods ``objective_``,
    ``n_iter_`` and ``converged_``. It has no ``labels_``, and ``posterior_`` is no array: both are in the files."""
    n_annotations: int
    n_instances: int
    n_annotators: int
    n_classes: int
    figures: Figures
    """Ties, changes against majority vote, and agreement."""
    message: str
    """One line that says what was read, and what was taken for what."""


def aggregate(
    path: str | os.PathLike[str],
    method: str | Aggregator = AUTO,
    *,
    out: str | os.PathLike[str],
    annotators_out: str | os.PathLike[str] | None = None,
    instance: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    proba: bool = False,
    memory: int | str | None = None,
    work: str | os.PathLike[str] | None = None,
    threads: int | None = -1,
    ray: str | None = None,
    workers: int | None = None,
    random_state: int = 0,
    verbose: int = 0,
) -> Streamed:
    """Infer the labels of a long table of any size, and write them to ``out``.

    ``path`` is a Parquet file or a folder of such files; columns are found as in `crowdwise.readers.read_table`.
    ``method`` is a name, an aggregator with parameters of its own, or ``"auto"``. ``out`` (.parquet, .arrow, .csv or
    .tsv) gets the columns instance, label, confidence, n_annotations and, with ``proba``, p_CLASS of every class, in
    the order in which instances first appear; ``annotators_out`` gets the table of `crowdwise.quality.annotators`.
    Both appear whole at the end, or not at all.

    ``memory`` bounds what is held at once (bytes, or such as ``"4GB"``, which is also the default where the machine has
    twice as much); ids of instances and annotators and the tables of the method must fit. ``work`` is a folder for the
    partitions and the state after each round: a run that was interrupted goes on from there, and another method on the
    same table need not prepare it again. By default it lies beside ``out`` and is removed at the end. ``threads``: -1
    is all cores. ``ray`` spreads the rounds over a Ray cluster (its address, or ``"local"`` for one that is
    started here), ``workers`` tasks at a time, by default one for each CPU; all nodes must share the folder ``work``. The
    number of workers does not change the result by a bit. ``verbose``: 1 shows a progress bar on a terminal, 2 prints
    lines.
    """
    path, out = Path(path), Path(out)
    profile = None if annotators_out is None else Path(annotators_out)
    bound, cores = parse_memory(memory), resolve_threads(threads)
    model, chosen = (None, AUTO) if method == AUTO else _model(method, random_state)
    check_output(out)
    for file in (out, profile):
        if file is not None and not file.parent.is_dir():
            raise DataError(f"{file}: the folder {file.parent} does not exist")
    folder = out.with_name(f".{out.name}.work") if work is None else Path(work)
    columns = {"instance": instance, "annotator": annotator, "label": label}
    if importlib.util.find_spec("numba") is None:
        raise ConfigError("streaming needs numba: install it, or aggregate in memory")
    with locked(folder), _workers(ray, workers, cores, folder) as team, Progress(verbose) as progress:
        tidy(folder)
        store = prepare(path, folder, columns, bound, cores, progress)
        crowd, reason = StreamedCrowd(store, team, bound, progress), None
        if model is None:
            chosen, reason = _choose(crowd)
            model, _ = _model(chosen, random_state)
        source = hashlib.sha256((store.folder / MANIFEST).read_bytes()).hexdigest()
        crowd = StreamedCrowd(store, team, bound, progress, Checkpoint(folder, model, source))
        _fit(model, crowd)
        found = _write(crowd, model, out, profile, proba=proba)
        sizes = vars(store.sizes)
        message = _describe(path, store)
    if work is None:
        (folder / "table" / MANIFEST).unlink(missing_ok=True)  # so that what a kill leaves is no damaged table
        shutil.rmtree(folder, ignore_errors=True)
    return Streamed(method=chosen, reason=reason, model=model, **sizes, figures=found, message=message)


def streamable() -> list[str]:
    """Names of the methods that can be streamed."""
    return sorted(name for name in AGGREGATORS if getattr(AGGREGATORS[name], "streams", False))


def parse_memory(memory: int | str | None) -> int:
    """Bytes from a number or a text such as ``"4GB"``; None: 4 GB, or half the memory of a smaller machine.

    >>> parse_memory("1.5 GB"), parse_memory("64MB")
    (1500000000, 64000000)
    """
    if memory is None:
        try:
            return min(4_000_000_000, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        except (AttributeError, ValueError, OSError):  # not on this platform
            return 4_000_000_000
    size = parse_size(str(memory))
    if size is None or size < SMALLEST:
        raise ConfigError(
            f"memory must be a size of {SMALLEST // 10**6}MB or more, such as 4GB or 800MB; got {memory!r}"
        )
    return size


def _model(method: str | Aggregator, random_state: int) -> tuple[Aggregator, str]:
    """The aggregator and its name; one that cannot be streamed is an error that names those that can."""
    model = AGGREGATORS[method](random_state=random_state) if isinstance(method, str) else method
    name = next((name for name in AGGREGATORS if AGGREGATORS[name] is type(model)), type(model).__name__)
    known = ", ".join(streamable())
    if not model.streams:
        raise ConfigError(f"{name} cannot be streamed: it needs all annotations at once; these can: {known}")
    if isinstance(model, IBCC) and model.method == "gibbs":
        raise ConfigError(f"ibcc with method='gibbs' cannot be streamed: use 'variational', or one of {known}")
    if model.tie != "first":
        raise ConfigError(f"tie={model.tie!r} cannot be streamed: a draw could not be repeated; use tie='first'")
    return model, name


def _fit(model: Aggregator, crowd: StreamedCrowd) -> None:
    """`Aggregator.fit` on a crowd on disk."""
    model._check()
    if isinstance(model, GLAD):
        _check_glad(crowd)
    for name in [name for name in vars(model) if name.endswith("_")]:
        delattr(model, name)
    model._crowd, model._history = crowd, None
    if crowd.n_classes > 1:
        model._warn_if_sparse(crowd)
        model.posterior_ = model._infer(crowd, np.random.default_rng(model.random_state))
    else:
        model.posterior_ = model._nothing_to_infer(crowd)


def _check_glad(crowd: StreamedCrowd) -> None:
    """GLAD has a parameter for every instance, and L-BFGS keeps the last steps of all of them."""
    needed = 8 * (crowd.n_annotators + crowd.n_instances) * (2 * MEMORY + 10)
    if needed > crowd.memory:
        raise DataError(
            f"GLAD learns the difficulty of each of the {crowd.n_instances:,} instances, which takes "
            f"{needed / 1e9:.1f} GB, and the bound on memory is {crowd.memory / 1e9:.1f}; allow more "
            f"({spelled('memory')}), or use a method that learns about annotators only, such as one-coin",
            parameter="memory",
        )


def _write(crowd: StreamedCrowd, model: Aggregator, out: Path, profile: Path | None, *, proba: bool) -> Figures:
    """Write both tables, or none."""
    posterior: object = model.posterior_
    staged = {file: file.with_name(f".partial-{file.name}") for file in (out, profile) if file is not None}
    try:
        sums = write_labels(crowd, posterior, staged[out], proba=proba)  # type: ignore[arg-type]
        table = annotator_table(crowd, model, posterior, sums)  # type: ignore[arg-type]
        if profile is not None:
            write_table(table, staged[profile])
        for file, ready in staged.items():
            with storing(file):
                rename(ready, file)
    finally:
        for ready in staged.values():
            ready.unlink(missing_ok=True)
    return figures(sums)


def _describe(path: Path, store: Store) -> str:
    taken = ", ".join(f"{role} = {name!r}" for role, name in store.columns.items())
    repeats = f"; kept {count(store.n_duplicates, 'repeats')}" if store.n_duplicates else ""
    sizes = (
        f"{count(len(store), 'annotations')} of {count(store.n_instances, 'instances')} "
        f"by {count(store.n_annotators, 'annotators')}, {count(store.n_classes, 'classes')}"
    )
    return f"{path.name}: {sizes}; {taken}{repeats}; streamed in {count(len(store.partitions), 'partitions')}"


@contextmanager
def _workers(ray: str | None, number: int | None, threads: int, folder: Path) -> Iterator[Workers]:
    """Threads of this process, or a cluster that sees the folder."""
    if ray is None:
        if number is not None:
            raise ConfigError("workers are those of a Ray cluster: say which with ray, or leave workers out")
        yield Threads(threads)
        return
    from crowdwise.streaming.ray_passes import RayWorkers

    with cluster.connect(ray, number) as found:
        cluster.check_nodes(folder)
        yield RayWorkers(found.workers)
