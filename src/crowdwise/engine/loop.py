"""THE training loop: runs a method's stages one after the other, on any device, interruptibly."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.engine import distributed
from crowdwise.engine.checkpoint import (
    RunDirectory,
    SharedStages,
    clone_state,
    prefixed,
    read_tensors,
    unprefixed,
    write_tensors,
)
from crowdwise.engine.device import derive_seed, resolve_precision, seeded
from crowdwise.engine.optimisers import make_optimisers, optimiser_tensors, restore_optimisers, set_rates
from crowdwise.engine.problem import Problem, make_inputs
from crowdwise.engine.progress import Progress
from crowdwise.engine.stage import Stage, StageResult
from crowdwise.engine.step import CapturedSteps, Step, batch_of
from crowdwise.engine.tensors import Inputs, Plan, Units, make_plan, pairs_of, shuffled_batches
from crowdwise.errors import ModelFileError, TrainingError

R = TypeVar("R")
Predict = Callable[[Any], np.ndarray]
Observer = Callable[[dict[str, Any], Predict | None], None]
_EVALUATION_BATCH = 4096
_SLOW_WRITE = 0.05  # seconds from which a checkpoint is not written after every epoch


class Engine:
    """Runs stages. ``captured``: put whole steps into CUDA graphs; by default on GPUs, with one process."""

    def __init__(
        self,
        problem: Problem,
        *,
        precision: str = "auto",
        verbose: int = 0,
        title: str = "",
        run: RunDirectory | None = None,
        shared: SharedStages | None = None,
        observer: Observer | None = None,
        captured: bool | None = None,
    ) -> None:
        self.problem = problem
        self.device = problem.device
        self.dtype = resolve_precision(precision, self.device)
        self.captured = captured if captured is not None else self.device.type == "cuda"
        self.run_directory = run
        self.shared = shared
        self.observer = observer
        self.history: list[dict[str, Any]] = []
        self.progress = Progress(verbose if distributed.rank() == 0 else 0, title)
        self._written, self._writing = -math.inf, 0.0  # when the last checkpoint was written, and how long it took

    def run(self, stages: Generator[Stage, StageResult, R]) -> R:
        """Drive a method's generator to its end: train each stage it yields, and send back the result."""
        resumed = self._checkpoint()
        if self.run_directory is not None and distributed.rank() == 0:
            self.run_directory.rewrite_log([])  # what was finished comes back from its files
        with self.progress, self._backend():
            result: StageResult | None = None
            for index in range(10_000):
                try:
                    stage = next(stages) if result is None else stages.send(result)
                except StopIteration as stop:
                    fitted: R = stop.value
                    return fitted
                files = self._result_files(index, stage)
                finished = self._finished(stage, files)
                if finished is None:
                    finished = self._train(index, stage, resumed if resumed and resumed[1]["index"] == index else None)
                    self._finish(index, stage, finished, files)
                result = finished
        raise TrainingError("a method yielded 10,000 stages without an end")

    def evaluate(self, module: nn.Module, units: Units, function: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """``module`` (or a method of it) in evaluation mode over the raw inputs of the units: (len(units), ...)."""
        prepare = self.problem.prepare
        return evaluate(module, units.inputs, units.instance, prepare, dtype=self.dtype, function=function)

    def predict(self, classifier: nn.Module, X: Any) -> np.ndarray:
        """Probabilities (len(X), C) of instances ``X`` that the classifier, as it is now, has not been trained on."""
        inputs = make_inputs(X, self.device)
        at = torch.arange(len(inputs), device=self.device)
        logits = evaluate(classifier, inputs, at, self.problem.prepare, dtype=self.dtype)
        return np.asarray(torch.softmax(logits.double(), 1).cpu())

    def agreement(self, classifier: nn.Module, units: Units) -> float | None:
        """Soft agreement with noisy annotations: mean over instances of the share of votes for the predicted class."""
        if len(units) == 0:
            return None
        predicted = self.evaluate(classifier, units).argmax(1)
        row, pair = pairs_of(units.indptr, torch.arange(len(units), device=self.device))
        agrees = (predicted[row] == units.label[pair]).double()
        votes = units.indptr.diff().double()
        share = torch.zeros(len(units), dtype=torch.float64, device=self.device).index_add_(0, row, agrees) / votes
        return float(share.mean())

    # the parts of a run

    def _train(self, index: int, stage: Stage, resumed: tuple[dict[str, Tensor], dict[str, Any]] | None) -> StageResult:
        modules = {name: group.module for name, group in stage.groups.items()}
        for module in modules.values():
            module.train()
            if distributed.world_size() > 1:
                distributed.global_batch_norm(module)
        groups = [(group.module, group.lr, group.weight_decay, group.rows) for group in stage.groups.values()]
        optimisers = make_optimisers(stage.optimiser, groups, stage.momentum, self.device)
        prepare = self._prepare(stage)
        step = Step(stage.loss, prepare, modules, optimisers, self.device, self.dtype)
        steps = None
        if (
            self.captured
            and stage.planner is None
            and distributed.world_size() == 1
            and len(stage.units) >= stage.batch_size
        ):
            steps = CapturedSteps(step, stage.units, stage.batch_size)
        result = StageResult(stage.name, stage.epochs, -1, None)
        best: dict[str, dict[str, Tensor]] = {}
        if resumed is not None:
            best = self._restore(stage, modules, optimisers, result, resumed)
        self.progress.stage(stage.name, stage.epochs, len(result.history))
        for epoch in range(len(result.history), stage.epochs):
            started = time.perf_counter()
            set_rates(optimisers, stage.schedule(epoch))
            loss = self._epoch(index, stage, step, steps, epoch)
            if not math.isfinite(loss):
                raise TrainingError(
                    f"the loss of stage {stage.name!r} became {loss} in epoch {epoch + 1}: lower lr "
                    f"(now {next(iter(stage.groups.values())).lr:g}), and check X for extreme values (prepare='standardise')"
                )
            agreement = self.agreement(stage.score, self.problem.validation) if stage.score is not None else None
            for module in modules.values():
                module.train()
            improved = agreement is not None and (result.agreement is None or agreement > result.agreement)
            if improved or agreement is None or result.best_epoch < 0:
                result.best_epoch, result.agreement = epoch, agreement
                if stage.keep == "best" and agreement is not None:
                    best = {name: clone_state(module) for name, module in modules.items()}
            record = {
                "stage": stage.name,
                "index": index,
                "epoch": epoch,
                "loss": loss,
                "agreement": agreement,
                "seconds": round(time.perf_counter() - started, 4),
            }
            result.history.append(record)
            if self.observer is not None:
                self.observer(record, functools.partial(self.predict, stage.score) if stage.score is not None else None)
            self._save_checkpoint(index, result, modules, optimisers, best)
            self.progress.epoch(record)
        if stage.keep == "best":
            for name, state in best.items():
                modules[name].load_state_dict(state)
        elif result.history:
            result.agreement = result.history[-1]["agreement"]
        return result

    def _epoch(self, index: int, stage: Stage, step: Step, steps: CapturedSteps | None, epoch: int) -> float:
        if stage.before_epoch is not None:
            stage.before_epoch(epoch)
        generator = torch.Generator().manual_seed(derive_seed(self.problem.seed, index, epoch, "order"))
        if stage.planner is not None:
            batches = list(stage.planner(generator))
        else:
            batches = shuffled_batches(len(stage.units), stage.batch_size, generator, self.device)
        plan = make_plan(stage.units, batches)
        world, rank = distributed.world_size(), distributed.rank()
        mine = [stage.units.instance[batch[rank::world]] for batch in batches]
        step.loss_sum.zero_()
        with seeded(derive_seed(self.problem.seed, index, epoch, "noise", rank), self.device):
            if steps is None:
                for number, raw in enumerate(stage.units.inputs.stream(mine)):
                    step(batch_of(stage.units, plan, number, raw))
            else:
                self._captured_epoch(stage.units, plan, mine, step, steps)
        return float(distributed.sum_over_ranks(step.loss_sum.clone())) / max(len(batches), 1)

    def _captured_epoch(
        self, units: Units, plan: Plan, instances: list[Tensor], step: Step, steps: CapturedSteps
    ) -> None:
        """Full batches through the graph, what is left over eagerly."""
        resident = units.inputs.resident
        inputs: Iterator[Tensor | None] = iter([None] * len(plan)) if resident else units.inputs.stream(instances)
        for number, raw in enumerate(inputs):
            if number == 0:
                steps.load(plan, raw)
            if len(instances[number]) == steps.batch_size:
                steps.run(number, raw)
            else:
                step(batch_of(units, plan, number, units.inputs.take(instances[number]) if raw is None else raw))

    def _prepare(self, stage: Stage) -> Callable[[Tensor], Tensor]:
        if stage.units.inputs is self.problem.train.inputs:
            return lambda raw: channels_last(self.problem.prepare(raw))
        return lambda raw: raw  # features that were computed from prepared inputs

    @contextlib.contextmanager
    def _backend(self) -> Iterator[None]:
        if self.device.type != "cuda":
            # reconstructions of low rank leave tiny numbers, and denormals slow CPUs down
            torch.set_flush_denormal(True)
            threads = torch.get_num_threads()
            if len(self.problem.shape) == 1:
                torch.set_num_threads(1)  # small products gain nothing from threads, and lose much on a busy machine
            try:
                yield
            finally:
                torch.set_flush_denormal(False)
                torch.set_num_threads(threads)
        else:
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
                yield

    # checkpoints

    def _checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if self.run_directory is None or not self.run_directory.checkpoint_file.exists():
            return None
        return read_tensors(self.run_directory.checkpoint_file)

    def _save_checkpoint(
        self,
        index: int,
        result: StageResult,
        modules: Mapping[str, nn.Module],
        optimisers: list[torch.optim.Optimizer],
        best: Mapping[str, Mapping[str, Tensor]],
    ) -> None:
        self.history.append(result.history[-1])
        if self.run_directory is None or distributed.rank() != 0:
            return
        self.run_directory.log(result.history[-1])
        started = time.perf_counter()
        if self._writing > _SLOW_WRITE and started - self._written < 20 * self._writing:
            return  # large networks with short epochs: at most a twentieth of the time goes into checkpoints
        tensors = prefixed("optimiser", optimiser_tensors(optimisers))
        for name, module in modules.items():
            tensors |= prefixed(f"module.{name}", module.state_dict())
            tensors |= prefixed(f"best.{name}", best.get(name, {}))
        about = {"index": index, "result": _as_json(result)}
        write_tensors(self.run_directory.checkpoint_file, tensors, about)
        self._written = time.perf_counter()
        self._writing = self._written - started

    def _restore(
        self,
        stage: Stage,
        modules: Mapping[str, nn.Module],
        optimisers: list[torch.optim.Optimizer],
        result: StageResult,
        resumed: tuple[dict[str, Tensor], dict[str, Any]],
    ) -> dict[str, dict[str, Tensor]]:
        tensors, about = resumed
        self._match(stage, about)
        for name, value in about["result"].items():
            setattr(result, name, value)
        for name, module in modules.items():
            module.load_state_dict(unprefixed(f"module.{name}", tensors))
        restore_optimisers(optimisers, unprefixed("optimiser", tensors))
        self._remember(result)
        best = {name: unprefixed(f"best.{name}", tensors) for name in modules}
        return {name: state for name, state in best.items() if state}

    def _result_files(self, index: int, stage: Stage) -> list[Path]:
        """Where the stage's result is kept: in the run's own directory, and where other methods may take it from."""
        shared = self.shared.file(stage.name, index, stage.shared) if self.shared is not None else None
        own = self.run_directory.stage_file(index) if self.run_directory is not None else None
        return [path for path in (own, shared) if path is not None]

    def _finish(self, index: int, stage: Stage, result: StageResult, files: list[Path]) -> None:
        if not files or distributed.rank() != 0:
            return
        tensors: dict[str, Tensor] = {}
        for name, group in stage.groups.items():
            tensors |= prefixed(name, group.module.state_dict())
        for path in files:
            write_tensors(path, tensors, {"index": index, "result": _as_json(result)})

    def _finished(self, stage: Stage, files: list[Path]) -> StageResult | None:
        """The result of a stage that was finished before, with its weights put in place."""
        path = next((path for path in files if path.exists()), None)
        if path is None:
            return None
        tensors, about = read_tensors(path)
        self._match(stage, about)
        for name, group in stage.groups.items():
            group.module.load_state_dict(unprefixed(name, tensors))
        result = StageResult(**about["result"])
        self._remember(result)
        self.progress.stage(stage.name, stage.epochs, stage.epochs)
        return result

    def _remember(self, result: StageResult) -> None:
        self.history.extend(result.history)
        if self.run_directory is not None and distributed.rank() == 0:
            self.run_directory.rewrite_log(self.history)

    def _match(self, stage: Stage, about: Mapping[str, Any]) -> None:
        if about.get("result", {}).get("name") != stage.name:
            raise ModelFileError(
                f"the run directory has stage {about.get('result', {}).get('name')!r} where this fit has {stage.name!r}; "
                "start a new run"
            )


def evaluate(
    module: nn.Module,
    inputs: Inputs,
    instance: Tensor,
    prepare: nn.Module,
    *,
    dtype: torch.dtype = torch.float32,
    function: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = _EVALUATION_BATCH,
) -> Tensor:
    """``function`` (by default the module itself) in evaluation mode over the given instances: (len(instance), ...)."""
    was_training = module.training
    module.eval()
    function = function or module
    with torch.no_grad(), torch.autocast(instance.device.type, dtype=dtype, enabled=dtype != torch.float32):
        batches = list(instance.split(batch_size))
        parts = [function(channels_last(prepare(raw))) for raw in inputs.stream(batches)]
    module.train(was_training)
    return torch.cat(parts) if parts else torch.zeros(0, device=instance.device)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 and x.is_cuda else x


def _as_json(result: StageResult) -> dict[str, Any]:
    return dict(vars(result))
