"""THE training loop: runs a method's stages one after the other, on any device, interruptibly."""

from __future__ import annotations

import contextlib
import functools
import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.callbacks import Callbacks
from crowdwise.engine import distributed
from crowdwise.engine.augment import Mixup, find_augment
from crowdwise.engine.average import Average
from crowdwise.engine.checkpoint import RunDirectory, SharedStages, Stored, clone_state, unprefixed
from crowdwise.engine.device import derive_seed, resolve_precision, seeded
from crowdwise.engine.evaluation import channels_last, evaluate, no_denormals, scaled_inputs
from crowdwise.engine.guard import another_try, diagnosis, lost_classes, lost_early, soft_agreement
from crowdwise.engine.optimisers import make_optimisers, restore_optimisers
from crowdwise.engine.problem import Problem, make_inputs
from crowdwise.engine.progress import Progress
from crowdwise.engine.stage import Batch, Stage, StageResult
from crowdwise.engine.stage_store import StageStore
from crowdwise.engine.step import BadNumbersError, CapturedSteps, Snapshot, Step, all_finite, batch_of, networks_of
from crowdwise.engine.tensors import Inputs, Plan, ResidentInputs, Units, make_plan, shuffled_batches
from crowdwise.engine.trouble import bad_inputs, bad_numbers, is_out_of_memory, out_of_memory
from crowdwise.errors import CrowdwiseWarning, NonFiniteError, TrainingError

R = TypeVar("R")
_ADVICE = (
    "Check that the rows of X are the instances of the annotations, in the same order; scale the inputs (prepare='auto'); "
    "train longer (epochs), or at another rate (lr)"
)
_SNAPSHOT = 1 << 30  # bytes of weights up to which a copy of them, and of momentum, is kept from every epoch's start


@dataclass
class Training:
    """What a stage trains with."""

    modules: dict[str, nn.Module]
    """By the names of their groups; ``(average)`` holds the average of weights."""
    optimisers: list[torch.optim.Optimizer]
    step: Step
    steps: CapturedSteps | None
    """Whole steps recorded for the GPU; None: step by step."""
    best: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """Weights of the epoch that agrees best, by group; empty unless the stage keeps them."""


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
        callbacks: Callbacks | None = None,
        captured: bool | None = None,
    ) -> None:
        self.problem = problem
        self.device = problem.device
        self.dtype = resolve_precision(precision, self.device)
        self.captured = captured if captured is not None else self.device.type == "cuda"
        self.run_directory = run
        self.ledger = StageStore(run, shared, self.device)
        self.callbacks = callbacks or Callbacks()
        self.stopped = False  # by a callback: what is left of the stages is passed over
        self.index = 0  # of the next stage
        self.average: Average | None = None  # of the stage at hand
        self.warnings: list[str] = []  # of classifiers that learnt nothing
        self.history: list[dict[str, Any]] = []
        self.ready = None if self.captured else scaled_inputs(problem)
        self.progress = Progress(verbose if distributed.rank() == 0 else 0, title)

    def run(self, stages: Generator[Stage, StageResult, R]) -> R:
        """Drive a method's generator to its end: train each stage it yields, and send back the result."""
        if self.run_directory is not None and distributed.rank() == 0:
            self.run_directory.rewrite_log([])  # what was finished comes back from its files
        stage: Stage | None = None
        try:
            with self.progress, self._backend():
                result: StageResult | None = None
                while self.index < 10_000:
                    try:
                        stage = next(stages) if result is None else stages.send(result)
                    except StopIteration as stop:
                        fitted: R = stop.value
                        return fitted
                    result = self._guarded(stage)
        except RuntimeError as error:
            if isinstance(error, TrainingError) or not is_out_of_memory(error):
                raise
            raise out_of_memory(stage, error) from error
        raise TrainingError("a method yielded 10,000 stages without an end")

    def evaluate(self, module: nn.Module, units: Units, function: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """``module`` (or a method of it) in evaluation mode over the raw inputs of the units: (len(units), ...).

        In a stage that averages weights, the average is evaluated.
        """
        inputs, prepare = self.prepared(units)
        with self.averaged():
            return evaluate(module, inputs, units.instance, prepare, dtype=self.dtype, function=function)

    def prepared(self, units: Units) -> tuple[Inputs, nn.Module]:
        """The inputs of the units, scaled already where they were raw and are few, and what is still to be done to them."""
        if units.inputs is not self.problem.train.inputs or self.ready is None:
            return units.inputs, self.problem.prepare
        return self.ready, nn.Identity()

    def predict(self, classifier: nn.Module, X: Any) -> np.ndarray:
        """Probabilities (len(X), C) of instances ``X`` that the classifier, as it is now, has not been trained on."""
        inputs = make_inputs(self.problem.intake(X), self.device)
        at = torch.arange(len(inputs), device=self.device)
        with self.averaged():
            logits = evaluate(classifier, inputs, at, self.problem.prepare, dtype=self.dtype)
        return np.asarray(torch.softmax(logits.double(), 1).cpu())

    def agreement(self, classifier: nn.Module, units: Units) -> float | None:
        """Soft agreement with noisy annotations: mean over instances of the share of votes for the predicted class."""
        if len(units) == 0:
            return None
        logits = self.evaluate(classifier, units)
        if not bool(torch.isfinite(logits).all()):
            raise TrainingError(
                "predictions for held-out instances became NaN or infinite: training diverges, lower lr"
            )
        return soft_agreement(logits.argmax(1), units)

    # the parts of a run

    def _guarded(self, stage: Stage) -> StageResult:
        """Run a stage, and once more by the rule of `another_try` if its classifier learnt nothing; the better counts."""
        may_retry = stage.guard == "retry" or stage.keeps_classes
        start = {name: clone_state(group.module) for name, group in stage.groups.items()} if may_retry else {}
        before = self.agreement(stage.score, self.problem.validation) if stage.keeps_classes and stage.score else None
        result = self._stage(stage, before=before)
        lost = lost_classes(self, before, result.agreement)
        wrong = lost or (diagnosis(self, stage) if stage.guard != "off" else None)
        if wrong is None or self.stopped:
            return result
        if not (lost or stage.guard == "retry"):
            self._warn(f"the classifier of stage {stage.name!r} is no better than a guess: {wrong}. {_ADVICE}")
            return result
        again, how = another_try(stage, lost is not None)
        self._warn(f"the classifier of stage {stage.name!r} is of little use: {wrong}. The stage is run again {how}")
        first = {name: clone_state(group.module) for name, group in stage.groups.items()}
        _load(stage, start)
        second = self._stage(again)
        if result.agreement is not None and second.agreement is not None and second.agreement < result.agreement:
            _load(stage, first)
        wrong = diagnosis(self, stage)
        if wrong is not None:
            self._warn(f"the classifier of stage {again.name!r} is still no better than a guess: {wrong}. {_ADVICE}")
        return second

    def _stage(self, stage: Stage, before: float | None = None) -> StageResult:
        """Run a stage; it ends early if agreement was ``before`` at its start, and classes are lost since."""
        index, self.index = self.index, self.index + 1
        self.ledger.open(index, stage)
        stored = self.ledger.result(stage)
        if stored is not None:
            return self._restored_result(stage, stored)
        with no_denormals():
            result = self._train(index, stage, self.ledger.checkpoint(stage), before)
        self.ledger.finish(stage, result)
        return result

    def _warn(self, message: str) -> None:
        self.warnings.append(message)
        if distributed.rank() == 0:
            warnings.warn(message, CrowdwiseWarning, stacklevel=3)

    def _train(self, index: int, stage: Stage, resumed: Stored | None, before: float | None) -> StageResult:
        """Train a stage from its start, or from where its checkpoint was made."""
        training = self._begin(stage)
        result = StageResult(stage.name, stage.epochs, -1, None)
        if resumed is not None:
            training.best = self._restore(training, result, resumed)
        self.progress.stage(stage.name, stage.epochs, len(result.history))
        while not (self.stopped or _finished(stage, result) or lost_early(self, stage, result, before)):
            record = self._one_epoch(index, stage, training, result)
            predict = functools.partial(self.predict, stage.score) if stage.score is not None else None
            stop = self.callbacks.epoch(record, predict)
            self.stopped = bool(distributed.as_first(int(stop), self.device))
            self._log(record)
            self.ledger.save(result, training.modules, training.optimisers, training.best)
            self.progress.epoch(record)
        self._keep_weights(stage, training, result)
        return result

    def _begin(self, stage: Stage) -> Training:
        """Make what a stage trains with: optimisers, the average of weights, and steps, recorded if they can be."""
        modules = {name: group.module for name, group in stage.groups.items()}
        for module in modules.values():
            module.train()
            if distributed.world_size() > 1:
                distributed.global_batch_norm(module)
        optimisers = make_optimisers(stage.optimiser, stage.groups.values(), stage.momentum, self.device)
        if stage.ema:
            self.average = Average((group.module for group in stage.groups.values() if group.average), stage.ema)
            modules["(average)"] = self.average.to(self.device)  # so that checkpoints hold it, and it can be taken back
        transform = self._transform(stage, modules)
        step = Step(stage.loss, transform, modules, optimisers, self.device, self.dtype, self.average)
        steps = CapturedSteps(step, stage.units, stage.batch_size) if self._captures(stage) else None
        return Training(modules, optimisers, step, steps)

    def _captures(self, stage: Stage) -> bool:
        """Return whether whole steps are recorded: their batches must be full and alike."""
        one_process = self.captured and distributed.world_size() == 1
        return one_process and stage.planner is None and len(stage.units) >= stage.batch_size

    def _one_epoch(self, index: int, stage: Stage, training: Training, result: StageResult) -> dict[str, Any]:
        """Train for an epoch, measure agreement, remember the best weights, and return the record of the epoch."""
        epoch = len(result.history)
        started = time.perf_counter()
        loss = self._checked_epoch(index, stage, training.step, training.steps, epoch)
        agreement = self.agreement(stage.score, self.problem.validation) if stage.score is not None else None
        for module in training.modules.values():
            module.train()  # measuring has put them into evaluation mode
        improved = agreement is not None and (result.agreement is None or agreement > result.agreement)
        if improved or agreement is None or result.best_epoch < 0:
            result.best_epoch = epoch
            result.agreement = agreement
            if stage.keep == "best" and agreement is not None:
                with self.averaged():
                    training.best = {name: clone_state(group.module) for name, group in stage.groups.items()}
        record = {
            "stage": stage.name,
            "index": index,
            "epoch": epoch,
            "loss": loss,
            "agreement": agreement,
            "seconds": round(time.perf_counter() - started, 4),
        }
        result.history.append(record)
        return record

    def _keep_weights(self, stage: Stage, training: Training, result: StageResult) -> None:
        """Put the weights in place that the stage keeps: their average, and those of the best or the last epoch."""
        if self.average is not None:
            self.average.adopt()
            self.average = None
        if stage.keep == "best":
            for name, state in training.best.items():
                training.modules[name].load_state_dict(state)
        elif result.history:
            result.agreement = result.history[-1]["agreement"]

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the modules of a stage that averages weights hold the average."""
        return contextlib.nullcontext() if self.average is None else self.average.in_place()

    def _checked_epoch(self, index: int, stage: Stage, step: Step, steps: CapturedSteps | None, epoch: int) -> float:
        """The mean loss of an epoch that ends with finite numbers, if need be with inputs that have left the device."""
        start, begun = None, False
        while True:
            try:
                start = start or self._snapshot(step)
                begun = True
                loss = self._epoch(index, stage, step, steps, epoch)
                break
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                trouble = out_of_memory(stage, error)
            except NonFiniteError as error:
                raise bad_inputs(stage, epoch, error, self.problem) from None
            # out here the error no longer keeps the tensors of the step alive
            if (begun and start is None) or not self._make_room(stage, step, steps):
                raise trouble
            if start is not None:
                start.restore()
        if math.isfinite(loss) and all_finite(step.parameters):
            return loss
        raise bad_numbers(stage, epoch, loss, self._find(index, stage, step, epoch, start), self.problem, self.dtype)

    def _snapshot(self, step: Step) -> Snapshot | None:
        if step.start is not None:
            step.start.renew()
            return step.start
        size = sum(tensor.nbytes for module in step.modules.values() for tensor in module.state_dict().values())
        step.start = Snapshot(step.modules, step.optimisers) if size <= _SNAPSHOT else None
        return step.start

    def _find(self, index: int, stage: Stage, step: Step, epoch: int, start: Snapshot | None) -> BadNumbersError | None:
        """The batch in which numbers went bad: the epoch once more from its start, with every step looked at."""
        if start is not None:
            start.restore()
            step.strict = True
            try:
                self._epoch(index, stage, step, None, epoch)
            except BadNumbersError as found:
                return found
            except torch.OutOfMemoryError:  # without a recording steps take more memory
                return None
        return None

    def _make_room(self, stage: Stage, step: Step, steps: CapturedSteps | None) -> bool:
        """Move inputs from the device to the host; False where there are none left, or other processes know nothing of it."""
        resident = {
            id(inputs): inputs
            for inputs in (stage.units.inputs, self.problem.train.inputs)
            if isinstance(inputs, ResidentInputs) and inputs.resident
        }
        if not resident or distributed.world_size() > 1:
            return False
        for optimiser in step.optimisers:
            optimiser.zero_grad(set_to_none=True)
        if steps is not None:
            steps.reset()
        for inputs in resident.values():
            inputs.leave_device()
        self.ready = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(
            f"stage {stage.name!r}: {self.device} has too little memory: inputs are kept on the host from now on, which is "
            "slower; a lower batch_size or a smaller backbone would leave room for them",
            CrowdwiseWarning,
            stacklevel=2,
        )
        return True

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
                for number, raw in enumerate(self.prepared(stage.units)[0].stream(mine)):
                    step.set_rates(stage.schedule(epoch + (number + 0.5) / len(batches)))
                    try:
                        step(batch_of(stage.units, plan, number, raw))
                    except BadNumbersError as found:
                        found.batch = number
                        raise
            else:
                rates = [stage.schedule(epoch + (number + 0.5) / len(batches)) for number in range(len(batches))]
                self._captured_epoch(stage.units, plan, mine, step, steps, rates)
        return float(distributed.sum_over_ranks(step.loss_sum.clone())) / max(len(batches), 1)

    def _captured_epoch(
        self,
        units: Units,
        plan: Plan,
        instances: list[Tensor],
        step: Step,
        steps: CapturedSteps,
        rates: Sequence[float],
    ) -> None:
        """Full batches through the graph, what is left over eagerly."""
        resident = units.inputs.resident
        inputs: Iterator[Tensor | None] = iter([None] * len(plan)) if resident else units.inputs.stream(instances)
        for number, raw in enumerate(inputs):
            if number == 0:
                steps.load(plan, raw)
            step.set_rates(rates[number])
            if len(instances[number]) == steps.batch_size:
                steps.run(number, raw)
            else:
                step(batch_of(units, plan, number, units.inputs.take(instances[number]) if raw is None else raw))

    def _transform(self, stage: Stage, modules: Mapping[str, nn.Module]) -> Callable[[Batch], Batch]:
        """From a raw batch to what the loss is given: prepared, once for each network, augmented and mixed."""
        raw_inputs = stage.units.inputs is self.problem.train.inputs  # not features of prepared inputs
        augment = find_augment(stage.augment, self.problem.shape) if raw_inputs else None
        mixup = Mixup(stage.mixup, self.device) if stage.mixup else None
        networks = networks_of(modules.values()) if stage.repeat else 1

        def transform(batch: Batch) -> Batch:
            if raw_inputs and self.ready is None:
                batch.x = channels_last(self.problem.prepare(batch.x))
            batch = batch.repeated(networks)
            if augment is not None:
                batch.x = channels_last(augment(batch.x))
            return mixup(batch) if mixup is not None else batch

        return transform

    @contextlib.contextmanager
    def _backend(self) -> Iterator[None]:
        if self.device.type != "cuda":
            threads = torch.get_num_threads()
            if len(self.problem.shape) == 1:
                torch.set_num_threads(1)  # small products gain nothing from threads, and lose much on a busy machine
            try:
                yield
            finally:
                torch.set_num_threads(threads)
        else:
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
                yield

    # what was done before

    def _restore(self, training: Training, result: StageResult, resumed: Stored) -> dict[str, dict[str, Tensor]]:
        """Put back what a checkpoint holds; returns the weights of the best epoch so far."""
        tensors = resumed.tensors
        for name, value in resumed.about["result"].items():
            setattr(result, name, value)
        for name, module in training.modules.items():
            module.load_state_dict(unprefixed(f"module.{name}", tensors))
        restore_optimisers(training.optimisers, unprefixed("optimiser", tensors))
        self._remember(result)
        best = {name: unprefixed(f"best.{name}", tensors) for name in training.modules}
        return {name: state for name, state in best.items() if state}

    def _restored_result(self, stage: Stage, stored: Stored) -> StageResult:
        """The result of a stage that was finished before, with its weights put in place."""
        for name, group in stage.groups.items():
            group.module.load_state_dict(unprefixed(name, stored.tensors))
        result = StageResult(**stored.about["result"])
        self._remember(result)
        self.progress.stage(stage.name, stage.epochs, stage.epochs)
        return result

    def _remember(self, result: StageResult) -> None:
        self.history.extend(result.history)
        if self.run_directory is not None and distributed.rank() == 0:
            self.run_directory.rewrite_log(self.history)

    def _log(self, record: dict[str, Any]) -> None:
        self.history.append(record)
        if self.run_directory is not None and distributed.rank() == 0:
            self.run_directory.log(record)


def _load(stage: Stage, states: Mapping[str, Mapping[str, Tensor]]) -> None:
    for name, state in states.items():
        stage.groups[name].module.load_state_dict(state)


def _finished(stage: Stage, result: StageResult) -> bool:
    """Whether a stage has had all its epochs, or too many without better agreement."""
    epochs = len(result.history)
    stale = epochs - 1 - result.best_epoch
    return epochs >= stage.epochs or (stage.patience > 0 and result.agreement is not None and stale >= stage.patience)
