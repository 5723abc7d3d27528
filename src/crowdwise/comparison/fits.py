"""The fits of a comparison: each candidate without one fold of the instances at a time, in processes, and on record."""

from __future__ import annotations

import copy
import hashlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from crowdwise import encoders
from crowdwise.annotations import Annotations
from crowdwise.comparison.candidates import Candidate, LogisticRegression
from crowdwise.data.frames import frame_columns, is_frame, take_columns
from crowdwise.data.types import Array
from crowdwise.engine.intake import Intake, is_sparse
from crowdwise.errors import ConfigError, CrowdwiseWarning, ModelFileError
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.storage.documents import read_json, write_json

MARKER = "comparison.json"


@dataclass(frozen=True)
class Fit:
    """How one candidate fared without one fold: the classes it predicts for that fold's instances, or why it failed."""

    method: str
    fold: int
    seconds: float
    predicted: list[int]
    warnings: list[str]
    error: str = ""


Observer = Callable[[Fit, int, int], None]
"""Called after each fit with it, the number of fits so far, and the number that is expected."""


@dataclass(frozen=True)
class Task:
    """A fit to be done. It holds all that it needs, so that any process can do it."""

    X: Any
    annotations: Annotations
    candidate: Candidate
    fold: int
    train: Array
    test: Array

    def rows(self) -> tuple[Any, Any, Candidate]:
        """Training rows, test rows, and the candidate as it takes them."""
        return take_rows(self.X, self.train), take_rows(self.X, self.test), self.candidate


@dataclass(frozen=True)
class EncodedTask(Task):
    """A fit on texts, pictures or a table that are encoded already: X are the training rows, then those of the test."""

    prepare: str  # how methods scale what the encoder gives
    plain: int  # columns that the encoder learnt without votes: all that logistic regression gets

    def rows(self) -> tuple[Any, Any, Candidate]:
        X, model = self.X, self.candidate.model
        if isinstance(model, LogisticRegression):
            X, model = X[:, : self.plain], LogisticRegression(model.aggregator, model.seed, self.prepare)
        elif isinstance(model, CrowdClassifier):
            prepare = self.prepare if model.prepare == "auto" else model.prepare
            model = clone(model).set_params(encoder="none", prepare=prepare)
        n = len(self.train)
        return X[:n], X[n:], replace(self.candidate, model=model)


class Encoding:
    """Encodes each fold once for all candidates that leave the encoder to crowdwise; ``seed`` is that of the candidates."""

    def __init__(self, X: Any, seed: int) -> None:
        self.needed = not is_sparse(X) and encoders.kind_of(X) != "numbers"
        self.seed, self.fold, self.found = seed, -1, (None, "", 0)

    def __call__(self, task: Task) -> Task:
        """The task with its rows encoded; as it is where there is nothing to encode, or that fails."""
        if not self.needed or getattr(task.candidate.model, "encoder", "auto") != "auto":
            return task
        if task.fold != self.fold:
            self.fold, self.found = task.fold, (None, "", 0)
            with suppress(Exception):  # each candidate then says what is wrong
                self.found = self._encode(task)
        X, prepare, plain = self.found
        if X is None:
            return task
        return EncodedTask(X, task.annotations, task.candidate, task.fold, task.train, task.test, prepare, plain)

    def _encode(self, task: Task) -> tuple[Any, str, int]:
        crowd, rows = task.annotations.select(instances=task.train), np.arange(len(task.train))
        labelled = rows[crowd.labels_per_instance > 0]
        both = take_rows(task.X, np.concatenate([task.train, task.test]))
        intake, encoded = Intake.learn(both, labelled, self.seed, votes=crowd.votes)
        heard = intake.encoder is not None and "opinions" in intake.encoder.facts_
        plain = encoded.shape[-1] - crowd.n_classes * heard
        return encoded, intake.prepare("auto"), plain


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks use one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()  # several of them share the processors
def fit_and_predict(task: Task) -> Fit:
    """Fit the candidate on the training instances, and predict the others."""
    started, said, error = time.perf_counter(), [], ""
    predicted: list[int] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            training, test, candidate = task.rows()
            model = copy.copy(candidate.model)  # another thread may fit it to another fold
            model.fit(training, task.annotations.select(instances=task.train))
            predicted = model.predict_proba(test).argmax(1).tolist()
        said = list(dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, CrowdwiseWarning)))
    except Exception as problem:  # one candidate that fails must not end the comparison
        error = "".join(traceback.format_exception_only(problem)).strip()
    return Fit(task.candidate.name, task.fold, round(time.perf_counter() - started, 3), predicted, said, error)


def take_rows(X: Any, rows: Array) -> Any:
    """Some instances of X."""
    if is_sparse(X) or encoders.kind_of(X) != "numbers":
        return encoders.take_rows(X, rows)
    if hasattr(X, "shape") and hasattr(X, "__getitem__"):
        return X[rows]
    from torch.utils.data import Subset

    return Subset(X, rows.tolist())


def make_folds(rows: Array, folds: int, seed: int) -> list[Array]:
    """Instances divided at random into folds of about equal size, each in ascending order.

    >>> [fold.tolist() for fold in make_folds(np.arange(5), 2, seed=0)]
    [[2, 3, 4], [0, 1]]
    """
    shuffled = np.random.default_rng(seed).permutation(rows)
    return [np.sort(fold) for fold in np.array_split(shuffled, folds)]


class Records:
    """A folder with a JSON file for each fit that is done, so that an interrupted comparison can go on."""

    def __init__(self, folder: str | Path, about: dict[str, Any]) -> None:
        self.folder = Path(folder)
        marker = self.folder / MARKER
        if marker.exists():
            found = read_json(marker)
            if found != about:
                raise ConfigError(
                    f"{self.folder} holds a comparison with other data, folds or seed: choose another folder"
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise ConfigError(f"{self.folder} is not empty and holds no comparison: choose another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(marker, about)

    def read(self, task: Task) -> Fit | None:
        """The fit of an earlier run; None where there is none, or it failed."""
        path = self._path(task.candidate.name, task.fold)
        if not path.exists():
            return None
        found = read_json(path)
        names = {field.name for field in fields(Fit)}
        valid = isinstance(found, dict) and names <= set(found) and found["model"] == describe(task.candidate)
        if not valid or found["error"] or len(found["predicted"]) != len(task.test):
            return None
        codes = found["predicted"]
        if not all(isinstance(code, int) and 0 <= code < task.annotations.n_classes for code in codes):
            raise ModelFileError(f"{path}: predicted must hold classes from 0 to {task.annotations.n_classes - 1}")
        return Fit(**{name: found[name] for name in names})

    def write(self, fit: Fit, candidate: Candidate) -> None:
        """Put a fit on record, whole or not at all."""
        write_json(self._path(fit.method, fit.fold), asdict(fit) | {"model": describe(candidate)})

    def _path(self, method: str, fold: int) -> Path:
        name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in method)
        return self.folder / f"{name}-{hashlib.sha256(method.encode()).hexdigest()[:6]}-fold{fold}.json"


def describe(candidate: Candidate) -> str:
    """What decides a candidate's fits beside the data: its parameters."""
    parameters: dict[str, Any] = getattr(candidate.model, "get_params", dict)()
    return repr(sorted((name, repr(value)) for name, value in parameters.items() if name not in ("verbose", "device")))


def fingerprint(X: Any, annotations: Annotations) -> str:
    """A checksum of all inputs and annotations."""
    found = hashlib.sha256()
    for part in (annotations.instance, annotations.annotator, annotations.label):
        found.update(np.ascontiguousarray(part).tobytes())
    if annotations.weight is not None:
        found.update(np.ascontiguousarray(annotations.weight).tobytes())
    found.update(repr((annotations.classes.tolist(), annotations.n_annotators, annotations.n_instances)).encode())
    if is_sparse(X):
        matrix = X.tocsr()
        for values in (matrix.data, matrix.indices, matrix.indptr):
            found.update(np.ascontiguousarray(values).tobytes())
    elif isinstance(X, encoders.Pictures):
        found.update(repr([(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in X.files]).encode())
    elif encoders.kind_of(X) != "numbers":
        table = not isinstance(X, np.ndarray | list) and is_frame(X)
        columns = [column.data.to_pylist() for column in take_columns(X, frame_columns(X))] if table else [list(X)]
        found.update(repr((frame_columns(X) if table else None, columns)).encode())
    elif hasattr(X, "shape"):
        found.update(np.ascontiguousarray(np.asarray(X)).tobytes())
    return found.hexdigest()


def run_all(
    tasks: Sequence[Task],
    *,
    records: Records | None,
    seconds: float | None,
    jobs: int,
    observer: Observer | None,
    encode: Callable[[Task], Task] = lambda task: task,
) -> list[Fit]:
    """Do the tasks, several at a time, fold by fold; after the first fold, only those that fit into the time.

    ``encode`` prepares each of them, in this process.
    """
    from sklearn.utils.parallel import Parallel, delayed

    done, fits, started = {}, [], time.monotonic()
    took: dict[str, list[float]] = {}
    skipped = 0
    for task in tasks:
        earlier = records.read(task) if records is not None else None
        if earlier is not None:
            done[task.candidate.name, task.fold] = earlier

    def add(fit: Fit) -> None:
        fits.append(fit)
        took.setdefault(fit.method, []).append(fit.seconds)
        if observer is not None:
            observer(fit, len(fits), len(tasks) - skipped)

    for fit in done.values():
        add(fit)

    def affordable() -> Iterator[Any]:
        nonlocal skipped
        for task in sorted(tasks, key=lambda task: task.fold):
            name = task.candidate.name
            if (name, task.fold) in done:
                continue
            expected = float(np.mean(took[name])) if name in took else 0.0
            if seconds is not None and name in took and time.monotonic() - started + expected > seconds:
                skipped += 1
                continue
            yield delayed(fit_and_predict)(encode(task))

    candidates = {task.candidate.name: task.candidate for task in tasks}
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch=jobs, batch_size=1)
    for fit in parallel(affordable()):
        if records is not None:
            records.write(fit, candidates[fit.method])
        add(fit)
    return fits
