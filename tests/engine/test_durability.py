"""A run survives damaged files, full disks and a device without memory: it goes on, or says what to do."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise.callbacks import FromObserver
from crowdwise.engine import checkpoint, loop, problem, stage_store, step
from crowdwise.engine.checkpoint import RunDirectory, read_tensors, stage_of, write_tensors
from crowdwise.engine.tensors import ResidentInputs
from crowdwise.engine.trouble import is_out_of_memory
from crowdwise.errors import CrowdwiseWarning, InUseError, ModelFileError, StorageError, TrainingError
from crowdwise.methods.ce import CE
from crowdwise.methods.core.base import CrowdClassifier
from crowdwise.storage import files
from engine_helpers import QUICK, TAIDTM_QUICK, crowd

X, CROWD, _ = crowd()
DROPOUT = {"backbone_options": {"hidden": 16, "dropout": 0.3}}


class Cut(BaseException):
    """Stands for the end of the process: nothing catches it."""


def bltm() -> CrowdClassifier:
    keys = {key: value for key, value in TAIDTM_QUICK.items() if key in crowdwise.BLTM.__dataclass_fields__}
    return crowdwise.BLTM(**keys, **DROPOUT, prepare="none")


@pytest.fixture(scope="module")
def whole() -> CrowdClassifier:
    return bltm().fit(X, CROWD)


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every epoch, however slow the disk is."""
    monkeypatch.setattr(stage_store, "_SLOW_WRITE", 60)


def cut_after(stage: str, epoch: int, run: Path) -> Path:
    """A run that stopped in the epoch after this one."""

    def observer(record: dict[str, Any], _: Any) -> None:
        if (record["stage"], record["epoch"]) == (stage, epoch + 1):
            raise Cut

    with pytest.raises(Cut):
        bltm().fit(X, CROWD, run_dir=run, callbacks=[FromObserver(observer)])
    return run


def resume(run: Path) -> tuple[CrowdClassifier, list[tuple[str, int]]]:
    """The model, and the epochs that were trained."""
    trained: list[tuple[str, int]] = []
    model = bltm().fit(
        X, CROWD, resume=run, callbacks=[FromObserver(lambda r, _: trained.append((r["stage"], r["epoch"])))]
    )
    return model, trained


def same(one: CrowdClassifier, other: CrowdClassifier) -> bool:
    weights = [model.classifier_.state_dict() for model in (one, other)]
    losses = [[record["loss"] for record in model.history_] for model in (one, other)]
    return losses[0] == losses[1] and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def flip(path: Path, at: int) -> None:
    """One bit of a file changes."""
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


# files


def test_every_changed_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {
        "a": torch.arange(3.0),
        "empty": torch.zeros(0, 2),
        "one": torch.tensor(1),
        "half": torch.ones(2).bfloat16(),
    }
    digest = write_tensors(path, tensors, {"index": 3, "text": "ä"})
    stored = read_tensors(path)
    assert stored.digest == digest
    assert stored.about == {"index": 3, "text": "ä"}
    assert all(torch.equal(stored.tensors[name], tensor) for name, tensor in tensors.items())
    whole = path.read_bytes()
    for at in range(len(whole)):
        flip(path, at)
        with pytest.raises(
            ModelFileError, match=r"x\.safetensors (is damaged: its checksum does not match|cannot be read)"
        ):
            read_tensors(path)
        path.write_bytes(whole)
    for length in (0, 7, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"x\.safetensors"):
            read_tensors(path)


@pytest.mark.parametrize("text", ["[" * 3000, '{"index": 1e999}', '{"index": null}', "{}", "[]"])
def test_a_header_that_makes_no_sense_is_of_no_stage(tmp_path: Path, text: str) -> None:
    checkpoint.save_file({"a": torch.zeros(1)}, tmp_path / "x.safetensors", metadata={"about": f"sum sum {text}"})
    assert stage_of(tmp_path / "x.safetensors") is None


def test_a_file_is_the_same_whenever_it_is_written(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tensors(tmp_path / name, {"x": torch.ones(3), "y": torch.zeros(2)}, {"index": 0})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_checksums_of_large_tensors_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {str(number): torch.full((1000,), float(number)) for number in range(9)}
    alone = checkpoint._digest(tensors)
    monkeypatch.setattr(checkpoint, "_LARGE", 0)
    assert checkpoint._digest(dict(reversed(tensors.items()))) == alone


# damaged runs


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "header"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    whole: CrowdClassifier, tmp_path: Path, damage: str
) -> None:
    run = cut_after("correction", 1, tmp_path / "run")
    last = run / "checkpoint.safetensors"
    content = last.read_bytes()
    changed = {"flipped": None, "cut": content[:-9], "empty": b"", "header": b"\xff" * 8 + content[8:]}[damage]
    last.write_bytes(changed) if changed is not None else flip(last, len(content) - 5)
    with pytest.warns(
        CrowdwiseWarning,
        match=r"run/checkpoint\.safetensors (is damaged|cannot be read).*using what was written before",
    ):
        model, trained = resume(run)
    assert trained == [("correction", 1), ("correction", 2)]
    assert same(model, whole)
    assert not list(run.glob("checkpoint*"))


def test_a_damaged_checkpoint_never_takes_the_place_of_the_good_one(whole: CrowdClassifier, tmp_path: Path) -> None:
    run = cut_after("correction", 1, tmp_path / "run")
    flip(run / "checkpoint.safetensors", -5)
    good = (run / "checkpoint.previous.safetensors").read_bytes()

    def at_once(record: dict[str, Any], _: Any) -> None:
        raise Cut

    with pytest.warns(CrowdwiseWarning, match="damaged"), pytest.raises(Cut):
        bltm().fit(X, CROWD, resume=run, callbacks=[FromObserver(at_once)])
    assert (run / "checkpoint.previous.safetensors").read_bytes() == good
    model, _ = resume(run)  # without a warning
    assert same(model, whole)


def test_two_damaged_checkpoints_cost_the_stage(whole: CrowdClassifier, tmp_path: Path) -> None:
    run = cut_after("correction", 1, tmp_path / "run")
    for path in RunDirectory(run).checkpoint_files:
        flip(path, -5)
    with pytest.warns(CrowdwiseWarning) as caught:
        model, trained = resume(run)
    assert len(caught) == 2
    assert trained == [("correction", epoch) for epoch in range(3)]
    assert same(model, whole)


def test_a_checkpoint_that_was_just_being_renamed_is_found(whole: CrowdClassifier, tmp_path: Path) -> None:
    """The instant in which the last checkpoint has become the previous one, and the new one has no name yet."""
    run = cut_after("correction", 1, tmp_path / "run")
    last, previous = RunDirectory(run).checkpoint_files
    os.replace(last, previous)
    model, trained = resume(run)
    assert trained == [("correction", 2)]
    assert same(model, whole)


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_stage_is_trained_again_and_those_after_it_kept(
    whole: CrowdClassifier, tmp_path: Path, number: int
) -> None:
    run = cut_after("correction", 1, tmp_path / "run")
    flip(run / "stages" / f"{number:02d}.safetensors", -5)
    with pytest.warns(CrowdwiseWarning, match=rf"stages/{number:02d}\.safetensors is damaged"):
        model, trained = resume(run)
    names = ["warm-up", "global transition"]
    again = [(record["stage"], record["epoch"]) for record in whole.history_ if record["stage"] == names[number]]
    assert trained == [*again, ("correction", 2)]
    assert same(model, whole)


def test_the_last_stage_comes_back_from_the_checkpoint_of_its_last_epoch(
    whole: CrowdClassifier, tmp_path: Path
) -> None:
    def stopped(*_: Any) -> None:
        raise Cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrowdClassifier, "save", stopped)
        with pytest.raises(Cut):
            bltm().fit(X, CROWD, run_dir=tmp_path / "run")
    flip(tmp_path / "run" / "stages" / "02.safetensors", -5)
    with pytest.warns(CrowdwiseWarning, match=r"02\.safetensors is damaged"):
        model, trained = resume(tmp_path / "run")
    assert trained == []
    assert same(model, whole)


def test_what_was_built_upon_other_weights_is_not_used(tmp_path: Path) -> None:
    """As where a stage is trained again on a GPU, and comes out a little different."""
    run = cut_after("correction", 1, tmp_path / "run")
    first = run / "stages" / "00.safetensors"
    stored = read_tensors(first)
    write_tensors(first, {name: tensor + 1e-3 for name, tensor in stored.tensors.items()}, stored.about)
    with pytest.warns(CrowdwiseWarning, match="was trained on other weights of the previous stage") as caught:
        _, trained = resume(run)
    assert [str(warning.message).split(" was")[0] for warning in caught] == [str(run / "stages" / "01.safetensors")]
    assert {stage for stage, _ in trained} == {"global transition", "correction"}


def test_damaged_shared_stages_are_trained_again(whole: CrowdClassifier, tmp_path: Path) -> None:
    bltm().fit(X, CROWD, share=tmp_path)
    shared = sorted(tmp_path.iterdir())
    assert len(shared) == 2
    for path in shared:
        flip(path, -5)
    with pytest.warns(CrowdwiseWarning, match="is damaged"):
        assert same(bltm().fit(X, CROWD, share=tmp_path), whole)
    assert same(bltm().fit(X, CROWD, share=tmp_path), whole)  # whole again


def test_a_damaged_description_says_what_to_do(tmp_path: Path) -> None:
    run = cut_after("correction", 1, tmp_path / "run")
    (run / "run.json").write_text("{")
    with pytest.raises(ModelFileError, match=r"run\.json is damaged.*start a new one in another folder"):
        resume(run)


def test_a_run_that_stops_at_any_system_call_goes_on_to_the_same_end(whole: CrowdClassifier, tmp_path: Path) -> None:
    """Before every renaming and every fsync of a whole run, one after the other."""
    countdown = [0]

    def counted(usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            countdown[0] -= 1
            if countdown[0] == 0:
                raise Cut
            return usual(*arguments)

        return call

    def attempt(run: Path) -> CrowdClassifier:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "fsync"):
                patch.setattr(files.os, name, counted(getattr(os, name)))
            started = (run / "run.json").exists()
            return bltm().fit(X, CROWD, **{"resume" if started else "run_dir": run})

    attempt(tmp_path / "counted")
    calls = -countdown[0]
    assert calls > 50
    run = tmp_path / "run"
    for stop in range(1, calls, 7):
        countdown[0] = stop
        with pytest.raises(Cut):
            attempt(run)
        countdown[0] = 0
        assert same(attempt(run), whole)
        assert not [path for path in run.rglob("*") if ".tmp" in path.name]
        shutil.rmtree(run)


# one at a time


def test_a_run_in_use_is_refused_and_left_alone(whole: CrowdClassifier, tmp_path: Path) -> None:
    run = tmp_path / "run"
    refused: list[BaseException | None] = []

    def intrude(record: dict[str, Any], _: Any) -> None:
        if (record["stage"], record["epoch"]) == ("correction", 1):
            with ThreadPoolExecutor(1) as pool:
                refused.append(pool.submit(bltm().fit, X, CROWD, resume=run).exception())

    model = bltm().fit(X, CROWD, run_dir=run, callbacks=[FromObserver(intrude)])
    assert isinstance(refused[0], InUseError)
    assert f"{run} is in use by process {os.getpid()}" in str(refused[0])
    assert same(model, whole)


# full disks


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "02.safetensors", "weights.safetensors", "metrics.jsonl"])
def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(
    whole: CrowdClassifier, tmp_path: Path, name: str
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    save, written = checkpoint.save_file, [0]

    def fill(tensors: Any, path: Path, **options: Any) -> None:
        written[0] += name in path.name
        if name in path.name and written[0] >= min(4, 1 + 3 * name.startswith("checkpoint")):
            path.write_bytes(b"half")
            raise full
        save(tensors, path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save_file", fill)
        if name == "metrics.jsonl":
            patch.setattr(checkpoint, "open", lambda *_, **__: Path("/dev/full").open("a"), raising=False)  # noqa: SIM115
        with pytest.raises(
            StorageError, match=rf"{name} cannot be written: No space left on device; .* MB are free in "
        ):
            bltm().fit(X, CROWD, run_dir=tmp_path / "run")
    assert not [path for path in (tmp_path / "run").rglob("*") if ".tmp" in path.name]
    model, _ = resume(tmp_path / "run")
    assert same(model, whole)


def test_a_run_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # who may write anywhere

        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match=r"run/\.lock cannot be written: Permission denied; this user may not"):
        CE(**QUICK).fit(X, CROWD, run_dir=tmp_path / "run")


# memory


def scarce(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, Any], bool]) -> list[bool]:
    """The device has no memory left in the steps that ``fails`` picks; whether inputs were resident, by step."""
    steps: list[bool] = []
    usual = step.Step.__call__

    def call(self: Any, batch: Any) -> None:
        steps.append(seen[0].resident)
        usual(self, batch)
        if fails(len(steps), seen[0]):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    seen: list[Any] = []
    made = problem.make_inputs

    def make(data: Any, device: torch.device) -> Any:
        inputs = made(data, device)
        seen[:] = seen or [inputs]
        return inputs

    monkeypatch.setattr(problem, "make_inputs", make)
    monkeypatch.setattr(step.Step, "__call__", call)
    return steps


def test_inputs_leave_a_device_without_memory_and_training_goes_on(
    whole: CrowdClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = scarce(monkeypatch, lambda number, inputs: inputs.resident and number == 7)
    with pytest.warns(
        CrowdwiseWarning, match=r"stage 'warm-up': cpu has too little memory: inputs are kept on the host"
    ):
        model = bltm().fit(X, CROWD)
    assert steps[:7] == [True] * 7
    assert not any(steps[7:])
    assert same(model, whole)  # the epoch began anew


def test_where_nothing_can_leave_the_device_it_is_said_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce(monkeypatch, lambda number, inputs: True)
    with pytest.warns(CrowdwiseWarning, match="kept on the host"), pytest.raises(TrainingError) as error:
        CE(**QUICK).fit(X, CROWD)
    assert (
        "stage 'classifier': the device has too little memory: lower batch_size (now 64), choose a smaller backbone"
        in str(error.value)
    )
    assert str(error.value).endswith("torch says: CUDA out of memory")


def test_a_device_that_has_no_memory_for_the_copy_of_the_weights_gives_up_inputs_first(
    whole: CrowdClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, tries = step.Snapshot.__init__, [0]

    def init(self: Any, *arguments: Any) -> None:
        tries[0] += 1
        if tries[0] == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        usual(self, *arguments)

    monkeypatch.setattr(step.Snapshot, "__init__", init)
    with pytest.warns(CrowdwiseWarning, match="inputs are kept on the host"):
        assert same(bltm().fit(X, CROWD), whole)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("CUDA error: out of memory, says a parameter"), False),
    ],
    ids=str,
)
def test_memory_errors_are_known_by_what_libraries_say(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
    hidden = RuntimeError("operation failed due to a previous error during capture")
    hidden.__context__ = error
    assert is_out_of_memory(hidden) is expected


def test_memory_that_is_short_between_stages_is_explained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(crowdwise.BLTM, "distil", full)
    with pytest.raises(TrainingError, match=r"stage 'warm-up': the device has too little memory: lower batch_size"):
        bltm().fit(X, CROWD)


def test_evaluation_uses_smaller_batches_where_memory_is_short() -> None:
    sizes: list[int] = []

    class Hungry(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            if len(x) > 16:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return 2 * x

    inputs = ResidentInputs(torch.arange(600.0).reshape(300, 2))
    result = loop.evaluate(Hungry(), inputs, torch.arange(300), torch.nn.Identity())
    assert torch.equal(result, 2 * inputs.data)
    assert sizes[:3] == [300, 256, 16]


def test_inputs_that_do_not_fit_on_the_device_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.Tensor, "to", full)
    with pytest.warns(CrowdwiseWarning, match=r"X \(0\.00 GB\) does not fit into the memory of cpu"):
        inputs = problem.make_inputs(X, torch.device("cpu"))
    monkeypatch.undo()
    assert not inputs.resident
    np.testing.assert_array_equal(inputs.take(torch.tensor([3, 1])).numpy(), X[[3, 1]])


def test_inputs_on_the_host_are_those_that_were_on_the_device() -> None:
    inputs = ResidentInputs(torch.arange(60.0).reshape(10, 2, 3))
    batches = [torch.tensor([4, 2]), torch.tensor([9])]
    before = [batch.clone() for batch in inputs.stream(batches)]
    inputs.leave_device()
    assert not inputs.resident
    assert len(inputs) == 10
    for one, other in zip(before, inputs.stream(batches), strict=True):
        assert torch.equal(one, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(inputs.take(torch.tensor([4, 2])), before[0])
