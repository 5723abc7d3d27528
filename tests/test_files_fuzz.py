"""Damaged and forged files of crowdwise's own: they load as what they were, or are refused with an error of crowdwise."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crowdwise
from crowdwise import datasets, presets
from crowdwise.aggregation import DawidSkene
from crowdwise.bench import figures, rendering, runner, tables
from crowdwise.bench.experiments import load_experiment
from crowdwise.datasets.image_folder import ImageFolder
from crowdwise.engine.stage_store import StageStore
from crowdwise.errors import CrowdwiseError, ModelFileError
from crowdwise.methods.ce import CE
from crowdwise.methods.taidtm import TAIDTM
from crowdwise.streaming import preparation
from crowdwise.streaming.checkpoint import Checkpoint, packed
from crowdwise.streaming.crowd import StreamedCrowd
from crowdwise.streaming.passes import Progress, Threads
from crowdwise.streaming.store import Store
from crowdwise.tasks.info import describe
from engine_helpers import QUICK, TAIDTM_QUICK, crowd

ORDINARY, MANY = 60, 10_000
PIECES = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"=",
        b"\n",
        b"\x00",
        b"\xff",
        b"\\ud800",
        b"null",
        b"true",
        b"NaN",
        b"-1",
    ),
    *(b"1e999", b"9" * 30, b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b"../../x", b"/etc/passwd", b"inf", b"''", b'""'),
    b"{a.__class__}",
]
Files = dict[str, bytes]
X, ANNOTATIONS, _ = crowd(n=60, n_annotators=4)


@dataclass(frozen=True)
class Target:
    """A loader: how its files are made, what it makes of them, and how to forge their checksums."""

    make: Callable[[Path], object]
    load: Callable[[Path], Any]
    exact: bool
    """Whether checksums guard the content: what can be loaded is what was written."""
    seal: Callable[[Path], None] | None = None
    trains: bool = False
    """Whether each load takes a training: there are fewer of them."""


# what is loaded


def make_model(model: Any) -> Callable[[Path], object]:
    return lambda folder: model.fit(X, ANNOTATIONS).save(folder / "model")


def load_model(folder: Path) -> Any:
    model = crowdwise.load(folder / "model", device="cpu")
    return model.predict_proba(X[:5]).tolist(), model.classes_.tolist(), model.annotators_.tolist()


def seal_model(folder: Path) -> None:
    """Give a changed model the checksums of an honest one."""
    about = json.loads((folder / "model" / "model.json").read_bytes())
    about.pop("sha256", None)
    about["weights_sha256"] = hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()
    about["sha256"] = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    (folder / "model" / "model.json").write_text(json.dumps(about))


class Stop(Exception):
    pass


def make_run(folder: Path) -> None:
    """A run that stopped after the first epoch of its second stage."""
    save = StageStore.save

    def stop(self: StageStore, result: Any, *more: Any) -> None:
        save(self, result, *more)
        if (self.index, len(result.history)) == (1, 1):
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageStore, "save", stop)
        with pytest.raises(Stop):
            TAIDTM(**TAIDTM_QUICK | {"warmup_epochs": 1}).fit(X, ANNOTATIONS, run_dir=folder / "run")


def train_run(folder: Path) -> None:
    model = TAIDTM(**TAIDTM_QUICK | {"warmup_epochs": 1}).fit(X, ANNOTATIONS, resume=folder / "run")
    model.predict_proba(X[:5])


def resume_run(folder: Path) -> None:
    """Go on until the third stage begins: by then everything in the folder has been read, refused or repaired."""
    begin = StageStore.open

    def stop(self: StageStore, index: int, stage: Any) -> None:
        if index == 2:
            raise Stop
        begin(self, index, stage)

    with pytest.MonkeyPatch.context() as patch, suppress(Stop):
        patch.setattr(StageStore, "open", stop)
        train_run(folder)


def info(folder: Path) -> None:
    describe(folder / "run")


def make_store(folder: Path) -> None:
    rng = np.random.default_rng(0)
    table = {
        "task": rng.integers(40, size=200),
        "worker": rng.integers(5, size=200),
        "label": rng.integers(3, size=200),
    }
    pq.write_table(pa.table(table), folder / "crowd.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "PARTITION", 6_000)
        store = preparation.prepare(folder / "crowd.parquet", folder / "work", {}, 10**8, 1, Progress())
    (folder / "crowd.parquet").unlink()
    model = DawidSkene(max_iter=4, tol=0)
    crowd = StreamedCrowd(store, Threads(1), 10**8, Progress(), Checkpoint(folder / "work", model, "source"))
    model._crowd, model._history = crowd, None
    model._infer(crowd, np.random.default_rng(0))


def load_store(folder: Path) -> Any:
    (table,) = (folder / "work").glob("table-*")
    store = Store.open(table)
    parts = [store.load(k, check=True) for k in range(len(store))]
    arrays = [part.layout.cells.tolist() for part in parts], [part.layout.indptr.tolist() for part in parts]
    return (
        *arrays,
        [store.vocabulary(name).ids.to_pylist() for name in ("instances", "annotators", "classes")],
        store.columns,
    )


def make_state(folder: Path) -> None:
    """The state of the last round, without the one before it."""
    make_store(folder)
    (table,) = (folder / "work").glob("table-*")
    shutil.rmtree(table)
    for previous in folder.glob("work/*.previous"):
        previous.unlink()


def load_state(folder: Path) -> Any:
    found = Checkpoint(folder / "work", DawidSkene(max_iter=4, tol=0), "source").load(None)
    if found is None:
        raise ModelFileError("the state is gone")
    state, *rest = found
    about, arrays = packed([state.content(), *rest])
    return about, {name: array.tolist() for name, array in arrays.items()}


def make_records(folder: Path) -> None:
    records = [
        {
            "experiment": "mine",
            "column": column,
            "row": row,
            "seed": seed,
            "cell": f"{row}-{column}-{seed}",
            "method": "ce",
            "test_accuracy": 80.0 + seed,
            "curve": [[0, 1.5, 0.3], [1, 1.2, 0.4]],
            "seconds": 1.5,
            "simulate": {"noise_rate": 0.1 + seed},
            "parameters": {"epochs": 3, "lr": 0.01},
            "data": {"name": "digits"},
        }
        for column in ("birds", "fish")
        for row in ("CE", "TAIDTM")
        for seed in range(3)
    ]
    lines = [json.dumps(record) for record in [*records, {**records[0], "seed": 9, "error": "killed", "traceback": ""}]]
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")


def load_records(folder: Path) -> None:
    records = runner.read_records(folder)
    for make in (lambda: tables.summarise(records), lambda: tables.rank(records, ["test_accuracy"])):
        table = make()
        for render in (rendering.to_markdown, rendering.to_latex, rendering.to_csv, rendering.to_text):
            render(table)
    figures.varied(records)


def make_map(folder: Path) -> None:
    ring = np.roll(np.eye(5), 1, axis=1)
    positions = np.random.default_rng(0).normal(size=(5, 2))
    figures.write_map(folder / "map.npz", figures.AnnotatorMap("ring", positions, ring, ring, np.arange(5) % 2))


def load_map(folder: Path) -> Any:
    found = figures.read_map(folder / "map.npz")
    return found.title, found.positions.tolist(), found.before.toarray().tolist(), found.after.toarray().tolist()


def labels() -> dict[str, Any]:
    numbers = {"n_instances": np.array(5), "n_annotators": np.array(2), "n_classes": np.array(3)}
    triples = {"instance": np.arange(10) % 5, "annotator": np.arange(10) % 2, "label": np.arange(10) % 3}
    return numbers | triples | {"clean": np.arange(5) % 3}


def make_labels(folder: Path) -> None:
    np.savez(folder / "agg_rte.npz", **labels())


def forge_labels(folder: Path) -> None:
    """Other arrays under the names of the right ones, in a file whose checksums hold."""
    digest = hashlib.sha256((folder / "agg_rte.npz").read_bytes()).digest()
    rng, arrays = np.random.default_rng(list(digest)), labels()
    others = [np.array(10**12), np.array(-1), np.array("x"), np.zeros((2, 2)), np.array([np.nan]), np.zeros(0)]
    name = list(arrays)[rng.integers(len(arrays))]
    arrays[name] = [*others, arrays[list(arrays)[rng.integers(len(arrays))]]][rng.integers(len(others) + 1)]
    np.savez(folder / "agg_rte.npz", **arrays)


def load_labels(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CROWDWISE_DATA", raising=False)  # else the real set is found where this one is gone
        return repr(datasets.load("rte", root=folder))


def make_pictures(folder: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (12, 10, 3), dtype=np.uint8)
    for name in ("a.png", "a.jpg", "a.webp", "a.bmp"):
        (folder / "train" / name[2:]).mkdir(parents=True)
        Image.fromarray(pixels).save(folder / "train" / name[2:] / name)


def load_pictures(folder: Path) -> None:
    """Every picture is tried, so one that is damaged does not hide the others."""
    pictures = ImageFolder(folder / "train", size=8)
    refused = None
    for number in range(len(pictures)):
        try:
            pixels, _ = pictures[number]
            assert pixels.shape == (8, 8, 3)
        except CrowdwiseError as error:
            refused = error
    if refused is not None:
        raise refused


PRESET = """
description = "what it is"

[data]
name = "digits"

[simulate]
n_annotators = 12
noise_rate = 0.4

[parameters]
backbone = "mlp"
epochs = 3
lr = 0.01

[methods.taidtm]
gcn_epochs = 2
k = 5
"""
EXPERIMENT = """
description = "what it is"
seeds = 2
methods = ["ce", "taidtm"]

[rows."mine"]
method = "bltm"
lr = 0.5

[[columns]]
label = "digits|{noise_rate:.0%}"
preset = "digits"
simulate = { n_annotators = 12 }
vary = { "simulate.noise_rate" = [0.1, 0.2] }
parameters = { epochs = 3 }
"""


def load_preset(folder: Path) -> None:
    preset = presets.load_preset(folder / "mine.toml")
    for method in ("ce", "taidtm"):
        preset.method_parameters(method)
    describe(folder / "mine.toml")


TARGETS = {
    "model of ce": Target(make_model(CE(**QUICK)), load_model, True),
    "model of taidtm": Target(make_model(TAIDTM(**TAIDTM_QUICK)), load_model, True),
    "forged model of ce": Target(make_model(CE(**QUICK)), load_model, False, seal_model),
    "forged model of taidtm": Target(make_model(TAIDTM(**TAIDTM_QUICK)), load_model, False, seal_model),
    "run directory": Target(make_run, resume_run, False),
    "run directory, trained to the end": Target(make_run, train_run, False, trains=True),
    "run directory, described": Target(make_run, info, False),
    "store": Target(make_store, load_store, True),
    "state": Target(make_state, load_state, True),
    "records": Target(make_records, load_records, False),
    "data set": Target(make_labels, load_labels, True),
    "forged data set": Target(make_labels, load_labels, False, forge_labels),
    "map": Target(make_map, load_map, False),
    "pictures": Target(make_pictures, load_pictures, False),
    "preset": Target(lambda folder: (folder / "mine.toml").write_text(PRESET), load_preset, False),
    "experiment": Target(
        lambda folder: (folder / "mine.toml").write_text(EXPERIMENT),
        lambda folder: load_experiment(folder / "mine.toml").cells(seeds=[0, 1]),
        False,
    ),
}


each = pytest.mark.parametrize("name", TARGETS)


# how files are damaged


def damage(whole: Files, rng: np.random.Generator) -> Files:
    """Change one file of a folder: bits, bytes, words, its end, its place."""
    files = list(whole)
    path = files[rng.integers(len(files))]
    what = rng.random()
    if what < 0.04:
        return {name: content for name, content in whole.items() if name != path}
    if what < 0.1:
        other = files[rng.integers(len(files))]
        return whole | {path: whole[other], other: whole[path]}
    return whole | {path: edited(whole[path], rng)}


def edited(whole: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(rng.integers(1, 4)):
        at, width = int(rng.integers(len(whole) + 1)), int(rng.integers(1, 12))
        if rng.random() < 0.4:  # heads say what the rest is
            at = int(rng.integers(min(len(whole), 400) + 1))
        other, piece = int(rng.integers(len(whole) + 1)), PIECES[rng.integers(len(PIECES))]
        flipped = bytes([whole[at] ^ (1 << int(rng.integers(8)))]) if at < len(whole) else b""
        whole = [
            whole[:at],
            whole[:at] + flipped + whole[at + 1 :],
            whole[:at] + piece + whole[at:],
            whole[:at] + piece + whole[at + width :],
            whole[:at] + rng.bytes(width) + whole[at + width :],
            whole[:at] + whole[at + width :],
            whole[:at] + whole[other : other + width] + whole[at:],
            other_value(whole, rng),
            other_value(whole, rng),
        ][rng.integers(9)]
    return whole


def other_value(whole: bytes, rng: np.random.Generator) -> bytes:
    """One value of a JSON or TOML text in the place of another, or something else there: types get mixed up."""
    starts = [match.end() for match in re.finditer(rb'": ?|= |\[|, ', whole[:20_000])]
    if len(starts) < 2:
        return whole
    one, two = (starts[k] for k in rng.integers(len(starts), size=2))
    end, until = (k + len(re.match(rb"[^,}\]\n]*", whole[k:]).group()) for k in (one, two))  # type: ignore[union-attr]
    new = whole[two:until] if rng.random() < 0.5 else PIECES[rng.integers(len(PIECES))]
    return whole[:one] + new + whole[end:]


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def contents(folder: Path) -> Files:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def lay_out(folder: Path, files: Files, folders: set[Path]) -> None:
    """Give a folder these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    for inner in folders:
        (folder / inner).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def fuzz(folder: Path, name: str, times: int) -> None:
    target, rng = TARGETS[name], np.random.default_rng(list(TARGETS).index(name))
    (folder / "whole").mkdir()
    with quietly():
        target.make(folder / "whole")
        whole = contents(folder / "whole")
        folders = {Path(name).parent for name in whole}
        expected = target.load(folder / "whole") if target.exact else None
        refused = 0
        for number in range(times):
            lay_out(folder / "cut", damage(whole, rng), folders)
            try:
                if target.seal is not None:
                    target.seal(folder / "cut")
            except (ValueError, KeyError, AttributeError, RecursionError, OSError, TypeError):
                continue  # there is nothing left to be sealed
            try:
                found = target.load(folder / "cut")
            except CrowdwiseError:
                refused += 1
            except Exception as error:
                error.add_note(f"damage number {number} of {name}")
                raise
            else:
                assert not target.exact or found == expected, f"damage number {number} of {name} was not noticed"
    assert refused > times // 20


@each
def test_damaged_files_are_refused_by_an_error_of_crowdwise(in_memory: Path, name: str) -> None:
    fuzz(in_memory, name, ORDINARY // 4 if TARGETS[name].trains else ORDINARY)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@each
def test_ten_thousand_damaged_files_are_refused_by_an_error_of_crowdwise(in_memory: Path, name: str) -> None:
    """Ten thousand of each kind; but of runs that are trained to the end, five hundred."""
    fuzz(in_memory, name, MANY // 20 if TARGETS[name].trains else MANY)


def test_partitions_do_not_stand_in_for_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    make_store(folder)
    one, other = sorted(folder.glob("work/table-*/parts/*.arrow"))[:2]
    content = one.read_bytes(), other.read_bytes()
    one.write_bytes(content[1])
    other.write_bytes(content[0])
    with pytest.raises(ModelFileError, match="damaged"):
        load_store(folder)
