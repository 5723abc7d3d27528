"""Callbacks: what is told of a fit while it runs, and may stop it.

A callback is any object with some of the methods of `Callback`:

>>> class Patient:
...     def epoch(self, record, predict):
...         return record["loss"] < 0.1  # True stops training: the model is fitted with what it has
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.errors import ConfigError

Predict = Callable[[Any], np.ndarray]
Record = dict[str, Any]
Observer = Callable[[Record, Predict | None], Any]


class Callback:
    """The protocol, with methods that do nothing. Each of several processes calls its own; the first decides when to stop."""

    in_every_process: bool = True
    """False: only that of the first process is called, for what writes files."""

    def begin(self, about: Mapping[str, Any]) -> None:
        """Before training: the ``method``, its ``parameters``, and numbers of ``instances``, ``annotators`` and ``classes``."""

    def epoch(self, record: Record, predict: Predict | None) -> bool | None:
        """After each epoch: ``stage``, ``epoch``, ``loss``, ``agreement`` (with held-out annotations, or None), ``seconds``.

        What is added to the record is kept in ``history_``. ``predict`` gives probabilities (n, C) of instances by the
        classifier as it is now, None in stages that train none. True stops training.
        """
        return None

    def end(self, model: Any) -> None:
        """After training, with the fitted model."""


class Callbacks:
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        for callback in callbacks:
            if not any(callable(getattr(callback, name, None)) for name in ("begin", "epoch", "end")):
                raise ConfigError(f"a callback must have a method begin, epoch or end; {callback!r} has none")
        first = os.environ.get("RANK", "0") == "0"
        self.callbacks = [each for each in callbacks if first or getattr(each, "in_every_process", True)]

    def begin(self, about: Mapping[str, Any]) -> None:
        self._call("begin", about)

    def epoch(self, record: Record, predict: Predict | None) -> bool:
        """Whether any of them asks to stop; all are called."""
        return any(map(bool, self._call("epoch", record, predict)))

    def end(self, model: Any) -> None:
        self._call("end", model)

    def _call(self, name: str, *arguments: Any) -> list[Any]:
        methods = [getattr(callback, name, None) for callback in self.callbacks]
        return [method(*arguments) for method in methods if method is not None]


class FromObserver(Callback):
    """A function that is called after each epoch, as ``fit(observer=...)`` took it; what it returns is ignored."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def epoch(self, record: Record, predict: Predict | None) -> None:
        self.observer(record, predict)


class TensorBoard(Callback):
    """Curves of loss and agreement in a folder for TensorBoard. Needs the extra ``crowdwise[track]``."""

    in_every_process = False

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(f"TensorBoard is not installed ({error}): pip install 'crowdwise[track]'") from error
        self.open: Callable[[], Any] = lambda: SummaryWriter(str(folder))

    def begin(self, about: Mapping[str, Any]) -> None:
        self.writer = self.open()
        lines = [
            f"    {name}: {value}" for name, value in {**about, **about["parameters"]}.items() if name != "parameters"
        ]
        self.writer.add_text("crowdwise", "\n".join(lines))

    def epoch(self, record: Record, predict: Predict | None) -> None:
        for name, value in _numbers(record).items():
            self.writer.add_scalar(f"{record['stage']}/{name}", value, record["epoch"])

    def end(self, model: Any) -> None:
        self.writer.close()


class MLflow(Callback):
    """A run in MLflow with parameters, and loss and agreement of each epoch. Needs the extra ``crowdwise[track]``.

    ``tracking_uri`` and ``experiment`` are MLflow's own settings unless given. A run that is already active is used; a
    new one is called ``run_name``, or as the method.
    """

    in_every_process = False

    def __init__(
        self, experiment: str | None = None, tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ConfigError(f"MLflow is not installed ({error}): pip install 'crowdwise[track]'") from error
        self.mlflow, self.run_name, self.own, self.steps = mlflow, run_name, False, 0
        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        if experiment is not None:
            mlflow.set_experiment(experiment)

    def begin(self, about: Mapping[str, Any]) -> None:
        self.own = self.mlflow.active_run() is None
        if self.own:
            self.mlflow.start_run(run_name=self.run_name or about["method"])
        shown = {**{name: value for name, value in about.items() if name != "parameters"}, **about["parameters"]}
        self.mlflow.log_params({name: str(value)[:500] for name, value in shown.items() if value is not None})

    def epoch(self, record: Record, predict: Predict | None) -> None:
        values = {f"{record['stage']}/{name}".replace(",", ""): value for name, value in _numbers(record).items()}
        self.mlflow.log_metrics(values, step=self.steps)
        self.steps += 1

    def end(self, model: Any) -> None:
        if self.own:
            self.mlflow.end_run()


def _numbers(record: Record) -> dict[str, float]:
    """What can be drawn of an epoch."""
    return {
        name: float(value)
        for name, value in record.items()
        if name not in ("epoch", "index") and isinstance(value, int | float) and not isinstance(value, bool)
    }
