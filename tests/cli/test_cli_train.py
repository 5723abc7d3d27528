"""`crowdwise train` and `predict`: from files and data sets, checked settings, run directories, Ctrl-C and resume."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import crowdwise
from crowdwise.engine import Engine
from crowdwise.readers import load_columns, read_table, write_table
from crowdwise.tasks.train import Plan

Files = dict[str, Path]
SHORT = ("--set", "warmup_epochs=8", "--set", "transition_epochs=1", "--set", "gcn_epochs=1", "--set", "min_examples=2")


def labels(path: Path) -> list[Any]:
    return load_columns(path, lambda names: names)["label"].to_pylist()


def test_from_array_and_table_to_predictions(cli: Any, files: Files) -> None:
    output = cli(
        "train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 20, "-o", "run"
    ).output
    assert "classifier" in output
    assert "validation agreement" in output
    cli("predict", "run", files["X"], "-o", "new/predictions.csv", "--proba")
    columns = load_columns(Path("new/predictions.csv"), lambda names: names)
    assert list(columns) == ["instance", "label", "p_cat", "p_dog"]
    assert columns["instance"].to_pylist() == [str(row) for row in range(80)]
    assert np.mean(np.array(columns["label"].to_pylist()) == np.load(files["y"])) > 0.9
    sums = np.array(columns["p_cat"].to_pylist(), dtype=float) + np.array(columns["p_dog"].to_pylist(), dtype=float)
    np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_ids_in_any_place_mean_the_same_rows(cli: Any, files: Files) -> None:
    common = ("train", "-m", "ce", "--epochs", 3)
    cli(*common, "--inputs", files["X"], "--annotations", files["rows"], "-o", "by-row")
    cli(*common, "--inputs", files["X"], "--annotations", files["named"], "--ids", files["ids"], "-o", "by-file")
    table = ("--inputs", files["table"], "--annotations", files["named"])
    cli(*common, *table, "--ids", "picture_id", "-o", "by-column")
    for run in ("by-row", "by-file", "by-column"):
        cli("predict", run, files["X"], "-o", f"{run}.csv", "--proba")
    assert Path("by-file.csv").read_bytes() == Path("by-column.csv").read_bytes()
    order = np.argsort(np.array(files["ids"].read_text().split()))  # rows with ids are trained on in their order
    np.save("sorted.npy", np.load(files["X"])[order])
    rows = load_columns(files["rows"], lambda names: names)
    rows["instance"] = np.argsort(order)[np.array(rows["instance"].to_pylist(), int)]
    write_table(pa.table(rows), Path("places.csv"))
    cli(*common, "--inputs", "sorted.npy", "--annotations", "places.csv", "-o", "by-place")
    cli("predict", "by-place", files["X"], "-o", "by-place.csv", "--proba")
    assert Path("by-place.csv").read_bytes() == Path("by-file.csv").read_bytes()
    by_row, by_id = (np.genfromtxt(f"{run}.csv", delimiter=",", skip_header=1)[:, 2:] for run in ("by-row", "by-file"))
    assert (by_row.argmax(1) == by_id.argmax(1)).mean() > 0.9, "trained on the same pairs, in another order"


def test_a_column_called_id_is_found_and_comes_back_with_the_predictions(cli: Any, files: Files) -> None:
    files["table"].write_text(files["table"].read_text().replace("picture_id", "id", 1))
    output = cli("train", "-m", "ce", "--inputs", files["table"], "--annotations", files["named"], "--epochs", 1).output
    assert "ids from column 'id'" in output
    assert Path("runs/table-ce-seed0/model").is_dir()
    cli("predict", "runs/table-ce-seed0", files["table"])
    assert load_columns(Path("predictions.csv"), lambda names: names)["instance"][0].as_py() == "pic079"


def test_an_npz_file_may_hold_several_arrays(cli: Any, files: Files, tmp_path: Path) -> None:
    X = np.load(files["X"])
    np.savez(tmp_path / "all.npz", first=X[:, :2], second=X, names=np.array(files["ids"].read_text().split()))
    common = ("train", "-m", "ce", "--epochs", 1, "--annotations", files["named"])
    output = cli(*common, "--inputs", "all.npz", "--ids", "names", code=1).output
    assert "all.npz holds 3 arrays" in output
    cli(*common, "--inputs", "all.npz:second", "--ids", "names", "-o", "run")
    assert crowdwise.load("run").n_features_in_ == 3


def test_an_export_of_an_annotation_tool_is_as_good_as_a_table(cli: Any, files: Files) -> None:
    """The same labels as Label Studio exports them, beside another question: the same classifier."""
    cli("convert", files["rows"], "export.json")
    tasks = json.loads(Path("export.json").read_text())
    for task in tasks:
        answer = {"from_name": "size", "to_name": "text", "type": "choices", "value": {"choices": ["large"]}}
        task["annotations"][0]["result"].append(answer)
    Path("export.json").write_text(json.dumps(tasks))
    common = ("train", "-m", "ce", "--epochs", 3, "--inputs", files["X"])
    output = cli(*common, "--annotations", "export.json", "-o", "tool", code=1).output
    assert "2 questions were answered: 'label', 'size'; choose one with --question NAME" in output
    assert not Path("tool").exists()
    output = cli(*common, "--annotations", "export.json", "--question", "label", "-o", "tool").output
    assert "export.json: label-studio, as its tasks have 'annotations' (--format NAME" in output
    assert json.loads(Path("tool/run.json").read_text())["source"]["reading"] == {"question": "label"}
    cli(*common, "--annotations", files["rows"], "-o", "table")
    for run in ("tool", "table"):
        cli("predict", run, files["X"], "-o", f"{run}.csv", "--proba")
    assert Path("tool.csv").read_bytes() == Path("table.csv").read_bytes()
    assert "this run is finished" in cli("train", "--resume", "tool").output
    assert (
        "how --annotations are read" in cli("train", "-m", "ce", "--data", "digits", "--format", "dense", code=2).output
    )


@pytest.mark.parametrize("name", ["taidtm", "taidtm-ft"])
def test_a_run_of_taidtm_leaves_pictures(cli: Any, files: Files, name: str) -> None:
    cli("train", "-m", name, "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, *SHORT, "-o", "run")
    pictures = {path.name for path in Path("run/pictures").iterdir()}
    assert pictures == {"transition-matrices.png"} | ({"annotator-graph.png"} if name == "taidtm" else set())


def test_a_data_set_with_a_simulated_crowd_is_judged_by_its_test_labels(cli: Any) -> None:
    output = cli(
        *("train", "--data", "digits", "-m", "ce", "--set", "backbone=mlp", "--epochs", 3, "--seed", 5, "-o", "run"),
        *("--set", "simulate.noise_rate=0.2", "--set", "simulate.n_annotators=10"),
    ).output
    assert "test accuracy" in output
    results = json.loads(Path("run/results.json").read_text())
    assert 0.3 < results["test_accuracy"] <= 1
    assert crowdwise.load("run").annotators_.size == 10


def test_a_table_may_take_the_place_of_a_data_sets_crowd(cli: Any) -> None:
    cli("simulate", "digits", "-o", "crowd.csv", "--noise-rate", 0.2, "--annotators", 10, "--seed", 5)
    common = ("train", "--data", "digits", "-m", "ce", "--set", "backbone=mlp", "--epochs", 2, "--seed", 5)
    cli(*common, "--annotations", "crowd.csv", "-o", "table")
    simulated = {"n_annotators": 10, "noise_rate": 0.2, "labels_per_instance": 3.0}
    cli(
        *common,
        *(part for key, value in simulated.items() for part in ("--set", f"simulate.{key}={value}")),
        "-o",
        "crowd",
    )
    one, other = (json.loads(Path(run, "results.json").read_text()) for run in ("table", "crowd"))
    assert one["test_accuracy"] == other["test_accuracy"]


def test_gold_labels_in_the_table_are_reported_and_not_learned_from(cli: Any, files: Files) -> None:
    lines = files["rows"].read_text().splitlines()
    truth = np.load(files["y"])
    gold = [lines[0] + ',"gold"', *(f'{line},"{truth[int(line.split(",")[0])]}"' for line in lines[1:])]
    Path("gold.csv").write_text("\n".join(gold) + "\n")
    output = cli(
        "train", "-m", "ce", "--inputs", files["X"], "--annotations", "gold.csv", "--epochs", 5, "-o", "run"
    ).output
    assert "of 80 instances" in output


# settings


def test_settings_come_from_the_preset_then_from_the_command_line(cli: Any, files: Files, tmp_path: Path) -> None:
    preset = "[parameters]\nepochs = 1\nlr = 0.05\nk = 3\n[methods.ce]\nbackbone_options = { hidden = 8 }\n"
    (tmp_path / "mine.toml").write_text(preset)
    cli(
        *("train", "-m", "ce", "--preset", "mine.toml", "--inputs", files["X"], "--annotations", files["rows"]),
        *("--set", "epochs=2", "--set", 'optimiser="adam"', "--set", "milestones=[1]", "-o", "run"),
    )
    found = json.loads(Path("run/run.json").read_text())["parameters"]
    expected = {"epochs": 2, "lr": 0.05, "backbone_options": {"hidden": 8}, "optimiser": "adam", "milestones": [1]}
    assert {key: found[key] for key in expected} == expected
    assert "k" not in found  # a parameter of another method


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", "cee"), "unknown method 'cee'; did you mean 'ce'?"),
        (("-m", "ce", "--set", "epoch=3"), "unknown key 'epoch'; did you mean 'epochs'?"),
        (("-m", "ce", "--set", "epochs=ten"), "method 'ce': epochs must be an integer of 0 or more, got 'ten'"),
        (("-m", "ce", "--set", "epochs=true"), "method 'ce': epochs must be an integer of 0 or more, got True"),
        (("-m", "ce", "--set", "lr"), "--set takes key=value, got 'lr'"),
        (("-m", "ce", "--set", "milestones=[1,"), "the value is neither TOML nor JSON"),
        (("-m", "ce", "--set", "simulate.noise_rat=1"), "unknown key 'noise_rat'; did you mean 'noise_rate'?"),
        (("-m", "ce", "--set", "data.part=1"), "data set 'digits' has no option 'part'"),
        (("-m", "ce", "--preset", "digit"), "unknown preset 'digit'; did you mean 'digits'?"),
        (("-m", "ce"), "data set 'digits' has no annotations"),
    ],
)
def test_a_wrong_setting_is_one_line_and_leaves_no_run(cli: Any, arguments: tuple[str, ...], message: str) -> None:
    output = cli("train", "--data", "digits", *arguments, "-o", "run", code=1).output
    assert output.startswith("error: ")
    assert message in output
    assert output.count("\n") == 1
    assert not Path("run").exists()


def test_an_unknown_key_in_a_preset_is_an_error_with_a_suggestion(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[parameters]\nepoch = 1\n")
    output = cli("train", "-m", "ce", "--data", "digits", "--preset", "mine.toml", code=1).output
    assert "[parameters]: unknown key 'epoch'; did you mean 'epochs'?" in output


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "ce", "--inputs", "X.npy"),
        ("-m", "ce", "--data", "digits", "--inputs", "X.npy", "--annotations", "rows.csv"),
        ("-m", "ce", "--data", "digits", "--ids", "id"),
        ("--resume", "run", "-m", "ce"),
    ],
)
def test_options_that_do_not_go_together_are_usage_errors(cli: Any, arguments: tuple[str, ...]) -> None:
    cli("train", *arguments, code=2)


# files that do not fit


def test_annotations_of_rows_that_are_not_there(cli: Any, files: Files) -> None:
    rows = files["rows"].read_text()
    common = ("train", "-m", "ce", "--inputs", files["X"], "-o", "run")
    Path("bad.csv").write_text(rows + "80,0,cat\n")
    assert (
        "bad.csv: 1 of 81 instances are no rows of X.npy, which are numbered 0..79: 80;"
        in cli(*common, "--annotations", "bad.csv", code=1).output
    )
    assert (
        "have ids ('pic079', 'pic078', 'pic077', ...), the rows of X.npy have none: say with --ids"
        in cli(*common, "--annotations", files["named"], code=1).output
    )
    Path("bad.csv").write_text(files["named"].read_text() + "pic999,0,cat\n")
    output = cli(*common, "--annotations", "bad.csv", "--ids", files["ids"], code=1).output
    assert "bad.csv: 1 of 81 instances are not among the 80 ids of X.npy: 'pic999'; its ids are 'pic079'" in output
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.npy", None, "missing.npy: no such file"),
        ("bad.npy", b"no array", "bad.npy is not a readable npy file"),
        ("bad.npz", b"PK no archive", "bad.npz is not a readable npz file"),
        ("bad.xyz", b"1 2 3", "bad.xyz: unknown format"),
        ("bad.csv", b"a,b\n1,2\n3,four\n", "record 2: column 'b' holds 'four', features must be numbers"),
        ("bad.csv", b"a,b\n1,2\n,4\n", "record 2: column 'a' is empty"),
        ("bad.csv", b"id\n1\n2\n", "no columns with features"),
    ],
)
def test_inputs_that_cannot_be_read(cli: Any, files: Files, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    output = cli("train", "-m", "ce", "--inputs", name, "--annotations", files["rows"], code=1).output
    assert message in output
    assert output.count("\n") == 1


def test_pickled_arrays_are_refused(cli: Any, files: Files) -> None:
    np.save("bad.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    output = cli("train", "-m", "ce", "--inputs", "bad.npy", "--annotations", files["rows"], code=1).output
    assert "it holds pickled objects, which are never loaded" in output


def test_ids_must_be_one_for_each_row_and_differ(cli: Any, files: Files) -> None:
    common = ("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["named"])
    Path("ids.txt").write_text("a\nb\n")
    assert "80 instances, but there are ids of shape (2,)" in cli(*common, "--ids", "ids.txt", code=1).output
    Path("ids.txt").write_text("a\n" * 80)
    assert "row 1: id 'a' occurs twice" in cli(*common, "--ids", "ids.txt", code=1).output
    assert "neither a column of X.npy nor a file" in cli(*common, "--ids", "nothing", code=1).output


def test_labels_that_are_no_classes_of_the_data_set(cli: Any, files: Files) -> None:
    output = cli("train", "-m", "ce", "--data", "digits", "--annotations", files["rows"], code=1).output
    assert "label 'cat' is no class of data set 'digits'" in output


# run directories


def test_a_directory_with_a_run_is_not_overwritten(cli: Any, files: Files) -> None:
    arguments = ("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1)
    cli(*arguments, "-o", "run")
    assert (
        "run already holds a run: go on with it (--resume run), or choose another folder (--out)"
        in cli(*arguments, "-o", "run", code=1).output
    )
    cli(*arguments)
    cli(*arguments)
    assert {path.name for path in Path("runs").iterdir()} == {"X-ce-seed0", "X-ce-seed0-2"}


def test_resuming_a_finished_run_repeats_its_summary(cli: Any, files: Files) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 2, "-o", "run")
    weights = Path("run/model/weights.safetensors").read_bytes()
    output = cli("train", "--resume", "run").output
    assert "this run is finished" in output
    assert "validation agreement" in output
    assert Path("run/model/weights.safetensors").read_bytes() == weights


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")  # of a training that is much too short
def test_only_a_run_of_this_program_can_be_resumed(cli: Any, files: Files, tmp_path: Path) -> None:
    assert "nowhere: there is no such run directory" in cli("train", "--resume", "nowhere", code=1).output
    assert "holds no run: it has no run.json" in cli("train", "--resume", tmp_path, code=1).output
    X, read = np.load(files["X"]), read_table(files["rows"])
    crowdwise.CE(epochs=1, verbose=0).fit(X, read.annotations, run_dir=tmp_path / "mine")
    assert "started from Python: go on with fit(..., resume=...)" in cli("train", "--resume", "mine", code=1).output
    Path("mine/invocation.json").write_text('{"version": 1, "metod": "ce"}')
    assert (
        "invocation.json: unknown key 'metod'; did you mean 'method'?"
        in cli("train", "--resume", "mine", code=1).output
    )
    Path("mine/invocation.json").write_text('{"version": 7}')
    assert "invocation.json: version must be 1, got 7" in cli("train", "--resume", "mine", code=1).output


def test_the_source_in_a_run_is_checked(cli: Any, files: Files) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, "-o", "run")
    about = json.loads(Path("run/run.json").read_text())
    Path("run/run.json").write_text(json.dumps(about | {"source": {"file": "X.npy"}}))
    assert "run.json: source: unknown key 'file'" in cli("train", "--resume", "run", code=1).output
    Path("run/run.json").write_text('{"source": {}}')
    assert "run.json is damaged: method, parameters or data" in cli("train", "--resume", "run", code=1).output


def test_a_run_is_described_once_and_goes_on_as_it_was_started(cli: Any, files: Files) -> None:
    data = ("--inputs", files["X"], "--annotations", files["rows"])
    cli("train", "-m", "ce", *data, "--epochs", 1, "--device", "cpu", "--set", "lr=0.05", "-o", "run")
    assert {path.name for path in Path("run").iterdir()} >= {"run.json", "metrics.jsonl", "results.json", "model"}
    assert not Path("run/invocation.json").exists()
    about = json.loads(Path("run/run.json").read_text())
    assert set(about) == {"version", "method", "parameters", "data", "source"}
    plan = Plan.read(Path("run"))
    assert plan.method == "ce"
    assert plan.inputs == str(files["X"])
    assert (plan.parameters["epochs"], plan.parameters["lr"], plan.parameters["device"]) == (1, 0.05, "cpu")


@pytest.mark.parametrize("started", [True, False])
def test_a_run_of_an_earlier_version_goes_on(cli: Any, files: Files, started: bool) -> None:
    """It has an ``invocation.json``, and a ``run.json`` that does not say where the data come from."""
    data = ("--inputs", files["X"], "--annotations", files["rows"])
    cli("train", "-m", "ce", *data, "--epochs", 3, "-o", "run")
    weights = Path("run/model/weights.safetensors").read_bytes()
    about = json.loads(Path("run/run.json").read_text())
    given = {"method": "ce", **about.pop("source"), "parameters": {"epochs": 3}}
    Path("run/invocation.json").write_text(json.dumps({"version": 1, "crowdwise": "0.1.0", **given}))
    Path("run/run.json").write_text(json.dumps(about))
    assert "this run is finished" in cli("train", "--resume", "run").output
    assert "inputs" not in cli("report", "run", "-o", "page.html").output  # the data are found
    for leftover in ("model", "stages"):
        shutil.rmtree(Path("run", leftover))
    Path("run/metrics.jsonl").unlink()
    if not started:
        Path("run/run.json").unlink()
    assert "go on with  crowdwise train --resume run" in cli("info", "run").output
    cli("train", "--resume", "run")
    assert Path("run/model/weights.safetensors").read_bytes() == weights


def test_changed_data_cannot_be_resumed(cli: Any, files: Files) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, "-o", "run")
    for leftover in ("model/model.json", "model/weights.safetensors", "stages/00.safetensors"):
        Path("run", leftover).unlink()
    np.save(files["X"], np.load(files["X"]) + 1)
    assert "was started with another data" in cli("train", "--resume", "run", code=1).output


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in the processes that ``start`` starts: sums come out the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


CUT = ("train", "-m", "taidtm", "--inputs", "X.npy", "--annotations", "rows.csv", *SHORT, "--epochs")


def check_that_it_goes_on(arguments: Sequence[Any], cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ``cut`` goes on by `--resume` alone, from another folder, and ends as one that was not interrupted."""
    assert "not finished" in cli("info", "cut").output
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    cli("train", "--resume", folder / "cut")
    monkeypatch.chdir(folder)
    cli(*arguments, "-o", "whole")
    for run in ("cut", "whole"):
        cli("predict", run, folder / "X.npy", "-o", f"{run}.csv", "--proba")
    assert Path("cut.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert Path("cut/metrics.jsonl").read_text().count("\n") == Path("whole/metrics.jsonl").read_text().count("\n")


@pytest.mark.usefixtures("one_thread", "files")
def test_an_interrupted_run_goes_on_to_the_same_predictions(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C in the middle of `train`."""
    metrics = tmp_path / "cut" / "metrics.jsonl"

    def epoch(self: Engine, *arguments: Any, **options: Any) -> Any:
        if metrics.exists() and metrics.read_text().count('"correction"') == 3:
            raise KeyboardInterrupt
        return original(self, *arguments, **options)

    original = Engine._checked_epoch
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_checked_epoch", epoch)
        errors = cli(*CUT, 6, "-o", "cut", code=130).stderr
    assert errors.strip().splitlines()[-1] == "interrupted: go on with  crowdwise train --resume cut"
    check_that_it_goes_on((*CUT, 6), cli, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "files")
def test_a_process_interrupted_by_a_signal_goes_on_to_the_same_predictions(
    cli: Any, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(*CUT, 120, "-o", "cut")
    metrics = tmp_path / "cut" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and '"correction"' in metrics.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "interrupted: go on with  crowdwise train --resume cut"
    check_that_it_goes_on((*CUT, 120), cli, tmp_path, monkeypatch)


# predict


def test_predict_refuses_what_does_not_fit(cli: Any, files: Files) -> None:
    assert "nowhere is not a model directory" in cli("predict", "nowhere", files["X"], code=1).output
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, "-o", "run")
    np.save("wide.npy", np.zeros((2, 7), dtype=np.float32))
    assert "instances of shape (3,), X has (7,)" in cli("predict", "run", "wide.npy", code=1).output
    assert "unknown format" in cli("predict", "run", files["X"], "-o", "predictions.xyz", code=1).output
    assert not Path("predictions.xyz").exists()


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "parquet", "arrow"])
def test_predictions_in_other_formats(cli: Any, files: Files, suffix: str) -> None:
    cli("train", "-m", "ce", "--inputs", files["X"], "--annotations", files["rows"], "--epochs", 1, "-o", "run")
    cli("predict", "run", files["X"], "-o", f"p.{suffix}")
    assert labels(Path(f"p.{suffix}")) == crowdwise.load("run").predict(np.load(files["X"])).tolist()


def test_a_classifier_at_chance_is_named_in_the_results(cli: Any, files: Files) -> None:
    rng = np.random.default_rng(0)
    np.save("noise.npy", rng.normal(size=(80, 3)).astype(np.float32))
    table = ("--inputs", "noise.npy", "--annotations", files["rows"], "--method", "ce", "--epochs", 2)
    output = cli("train", *table, "--set", "lr=0.0", "-o", "run").output
    warned = json.loads(Path("run/results.json").read_text())["warnings"]
    assert warned
    assert warned[0] in output
    assert warned[0] in cli("info", "run").output
