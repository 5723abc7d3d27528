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

import importlib
import importlib.util
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.aggregation.core import weights
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import resolve_threads
from crowdwise.aggregation.recommend import suitable_method
from crowdwise.data.codes import count
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, shorten, spelled
from crowdwise.readers import write_table
from crowdwise.registry import AGGREGATORS
from crowdwise.storage.files import replacing_all
from crowdwise.storage.limits import parse_size
from crowdwise.streaming.checkpoint import Checkpoint
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.folder import working_in
from crowdwise.streaming.output import Figures, annotator_table, check_output, evidence_of, figures, write_labels
from crowdwise.streaming.passes import Passes, Progress, Threads
from crowdwise.streaming.preparation import prepare
from crowdwise.streaming.store import Store
from crowdwise.streaming.table import AUTO, SUFFIXES, count_rows, other_tables
from crowdwise.system import total_memory

__all__ = ["AUTO", "Figures", "Streamed", "aggregate", "count_rows", "parse_memory", "streamable"]

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
    classes: tuple[Any, ...]
    """The classes, in the order of ``figures.chosen``."""
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
    weight: str | None = None,
    format: str = AUTO,
    proba: bool = False,
    memory: int | str | None = None,
    work: str | os.PathLike[str] | None = None,
    threads: int | None = -1,
    passes: Passes | None = None,
    random_state: int = 0,
    verbose: int = 0,
    ray: str | None = None,
    workers: int | None = None,
) -> Streamed:
    """Infer the labels of a long table of any size, and write them to ``out``.

    ``path`` is a Parquet file or a folder of such files; their ``format`` ("table", "crowd-kit" or "auto") and columns are
    found as in `crowdwise.read`, and a column called weight says how much of a label each row is (``weight`` names another
    one). Rows without a label are left out.
    ``method`` is a name, an aggregator with parameters of its own, or ``"auto"``. ``out`` (.parquet, .arrow, .csv or
    .tsv) gets the columns instance, label, confidence, n_annotations and, with ``proba``, p_CLASS of every class, in
    the order in which instances first appear; ``annotators_out`` gets the table of `crowdwise.quality.annotators`.
    Both appear whole at the end, or not at all.

    ``memory`` bounds what is held at once (bytes, or such as ``"4GB"``, which is also the default where the machine has
    twice as much); ids of instances and annotators and the tables of the method must fit. ``work`` is a folder for the
    partitions and the state after each round: a run that was interrupted goes on from there, and another method on the
    same table need not prepare it again. By default it lies beside ``out`` and is removed at the end. ``threads``: -1
    is all cores. ``passes`` says where the rounds are run if not by threads of this process: `crowdwise.cluster.RayPasses`
    runs them on Ray; ``ray`` and ``workers`` are its address and workers, by their old names. ``verbose``: 1 shows a
    progress bar on a terminal, 2 prints lines.
    """
    path, out = Path(path), Path(out)
    profile = None if annotators_out is None else Path(annotators_out)
    bound, cores = parse_memory(memory), resolve_threads(threads)
    passes = _on_ray(ray, workers) if ray is not None or workers is not None else passes or Threads(cores)
    model, chosen = (None, AUTO) if method == AUTO else _model(method, random_state)
    check_output(out)
    for file in (out, profile):
        if file is not None and not file.parent.is_dir():
            raise DataError(f"{file}: the folder {file.parent} does not exist")
        if file is not None and file.suffix.lower() in SUFFIXES and path.resolve() in file.resolve().parents:
            raise DataError(
                f"{file}: this lies in the folder that is read, and would be part of it; write it elsewhere"
            )
    folder = out.with_name(f".{out.name}.work") if work is None else Path(work)
    columns = {"instance": instance, "annotator": annotator, "label": label, "weight": weight}
    if importlib.util.find_spec("numba") is None:
        raise ConfigError("streaming needs numba: install it, or aggregate in memory")
    with working_in(folder, keep=work is not None), passes.start(folder) as team, Progress(verbose) as progress:
        store = prepare(path, folder, columns, bound, cores, progress, format).scaled()
        if store.weighted and (said := weights.remark(store.scale)):
            warnings.warn(said, CrowdwiseWarning, stacklevel=2)
        crowd, reason = StreamedCrowd(store, team, bound, progress), None
        if store.n_models > 1:
            _check_models(store.n_models, chosen)
        if model is None:
            chosen, reason = suitable_method(crowd)
            model, _ = _model(AGGREGATORS[chosen](random_state=random_state, calibration="crowd"), random_state)
        crowd.checkpoint = Checkpoint(folder, model, store.folder.name)
        model.fit_crowd(crowd)
        found, repeats = _write(crowd, model, out, profile, proba=proba)
        classes = tuple(store.vocabulary("classes").arrow.to_pylist())  # the folder may be removed now
    return Streamed(
        method=chosen,
        reason=reason,
        model=model,
        n_annotations=store.n_annotations,
        n_instances=store.n_instances,
        n_annotators=store.n_annotators,
        n_classes=store.n_classes,
        classes=classes,
        figures=found,
        message=_describe(path, store, repeats, own=[file for file in (out, profile, folder) if file is not None]),
    )


def streamable() -> list[str]:
    """Names of the methods that can be streamed."""
    return sorted(name for name in AGGREGATORS if getattr(AGGREGATORS[name], "streams", False))


def parse_memory(memory: int | str | None) -> int:
    """Bytes from a number or a text such as ``"4GB"``; None: 4 GB, or half the memory of a smaller machine.

    >>> parse_memory("1.5 GB"), parse_memory("64MB")
    (1500000000, 64000000)
    """
    if memory is None:
        return min(4_000_000_000, (total_memory() or 8_000_000_000) // 2)
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
    if not model.streams:
        known = ", ".join(streamable())
        raise ConfigError(f"{name} cannot be streamed: it needs all annotations at once; these can: {known}")
    model.check_streams()
    return model, name


def _check_models(number: int, method: str) -> None:
    """Say that models err together; where nobody chose a method, the one that knows about it cannot be taken."""
    about = f"{number:,} annotators are models, which err together"
    if method == AUTO:
        raise ConfigError(
            f"{about}, and panel, the method for them, cannot be streamed: name another method ({spelled('method', 'NAME')}), "
            "or aggregate in memory",
            parameter="method",
        )
    warnings.warn(
        f"{about}, and {method} takes errors for independent: its labels and confidence lean on them too much",
        CrowdwiseWarning,
        stacklevel=3,
    )


def _write(
    crowd: StreamedCrowd, model: Aggregator, out: Path, profile: Path | None, *, proba: bool
) -> tuple[Figures, int]:
    """Write both tables, or none; returns figures and the number of repeats."""
    posterior: Any = model.posterior_  # questions to the partitions
    judging: Any = model.judging_posterior_
    raw: Any = None if model.holds_shares or model.calibration == "none" else model.raw_posterior_
    given = evidence_of(crowd, model)
    shares = model.holds_shares and model.calibration == "none"
    with replacing_all(file for file in (out, profile) if file is not None) as staged:
        told = given.enough or shares
        sums = write_labels(crowd, posterior, judging, staged[out], proba=proba, raw=raw, told=told)
        table = annotator_table(crowd, model, judging, sums, given)
        if profile is not None:
            write_table(table, staged[profile])
    return figures(sums, crowd.n_labelled, given, shares=shares)


def _describe(path: Path, store: Store, repeats: int, own: Sequence[Path]) -> str:
    taken = ", ".join(f"{role} = {name!r}" for role, name in store.columns.items())
    kept = f"; kept {count(repeats, 'repeats')}" if repeats else ""
    blank = f"; left out: {store.n_blank:,} without a label" if store.n_blank else ""
    gold = f"; gold in {store.gold!r} is not used" if store.gold else ""
    others = [str(file.relative_to(path)) for file in other_tables(path, own)]
    aside = f"; not read, as not Parquet: {shorten(others, 3)}" if others else ""
    sizes = (
        f"{count(store.n_annotations, 'annotations')} of {count(store.n_instances, 'instances')} "
        f"by {count(store.n_annotators, 'annotators')}, {count(store.n_classes, 'classes')}"
    )
    return f"{path.name}: {sizes}; {taken}{kept}{blank}{gold}{aside}; streamed in {count(len(store), 'partitions')}"


def _on_ray(ray: str | None, workers: int | None) -> Passes:
    """What ``ray`` and ``workers`` stood for."""
    if ray is None:
        raise ConfigError("workers are those of a Ray cluster; leave workers out, or name the cluster")
    warnings.warn(
        "ray and workers are deprecated; use passes=crowdwise.cluster.RayPasses(ray, workers)",
        DeprecationWarning,
        stacklevel=3,
    )
    passes: Passes = importlib.import_module("crowdwise.cluster").RayPasses(ray, workers)  # lies above this layer
    return passes
