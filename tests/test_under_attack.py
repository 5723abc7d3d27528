"""Faults that were found by attacking the library: each has been one of the numbered items of a list, and stays mended."""

from __future__ import annotations

import datetime
import decimal
import http.client
import os
import resource
import socket
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import crowdwise
from crowdwise import Annotations
from crowdwise.aggregation import MajorityVote
from crowdwise.cli import app
from crowdwise.errors import ConfigError, CrowdwiseError, CrowdwiseWarning, DataError, ModelFileError, StorageError
from crowdwise.methods.core.files import save_model
from crowdwise.readers import load_columns, read_table, write_table
from crowdwise.storage.arrays import read_npy
from crowdwise.storage.lock import locked
from engine_helpers import QUICK, crowd, quick
from growth import assert_about_linear
from tolerances import SINGLE, TRAINED

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")
X, CROWD, Y = crowd(60)


def ce(**changed: Any) -> crowdwise.CE:
    return crowdwise.CE(**quick("ce") | changed)


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result.output


# 1. rows with the wrong labels: tests/test_matching.py


def test_01_a_shuffled_frame_trains_the_same_classifier() -> None:
    frame = CROWD.to_frame("pandas")
    first, second, third = (
        ce(epochs=20).fit(X, each).score(X, Y)
        for each in (frame, frame.sample(frac=1, random_state=0), frame.sort_values("annotator"))
    )
    assert first == second == third > 0.8


# 2. folders of the user


@pytest.mark.parametrize("precious", ["table/mine.csv", "state-1.npz", ".tmpmine", "notes.txt"])
def test_02_a_folder_that_is_not_ours_is_neither_used_nor_cleared(precious: str, tmp_path: Path) -> None:
    pq.write_table(CROWD.to_frame(), tmp_path / "labels.parquet")
    file = tmp_path / "work" / precious
    file.parent.mkdir(parents=True)
    file.write_text("keep me")
    options = ("aggregate", tmp_path / "labels.parquet", "-o", tmp_path / "out.csv", "--stream")
    assert "holds other files" in run(*options, "--work", tmp_path / "work", code=1)
    assert file.read_text() == "keep me"
    run(*options, "--work", tmp_path / "new")
    run(*options, "--work", tmp_path / "new")  # its own


# 3. missing labels


def test_03_minus_one_is_a_class_where_it_may_be_one() -> None:
    sign = np.where(Y > 0, 1, -1)
    assert ce().fit(X, sign).classes_.tolist() == [-1, 1]
    assert Annotations.from_dense(np.stack([sign, sign], 1)).classes.tolist() == [-1, 1]
    assert Annotations.from_dense([[0, 2, -1]]).classes.tolist() == [0, 2]
    with pytest.warns(
        CrowdwiseWarning, match="-1 is taken for a missing label in 50 of 150 cells, beside the labels 0 and 1"
    ):
        assert Annotations.from_dense([[0, 1, -1]] * 50).classes.tolist() == [0, 1]
    assert Annotations.from_dense([[0, 1, -1]], missing=[]).classes.tolist() == [-1, 0, 1]
    with pytest.warns(CrowdwiseWarning, match="all labels are 1: there is nothing to tell apart"):
        ce().fit(X, np.ones(60, int))


# 4. memory

BIG = "x" * 1_000_000


def bombs(folder: Path) -> dict[str, Path]:
    """Small files that decode to more than they may."""
    long = pa.table({"task": pa.array([BIG]).take(pa.array(np.zeros(300, np.int64))), "worker": ["w"] * 300})
    different = pa.table({"task": [BIG + str(number) for number in range(300)]})
    codes = pa.DictionaryArray.from_arrays(pa.array(np.zeros(300, np.int32)), pa.array([BIG]))
    zstd = pa.ipc.IpcWriteOptions(compression="zstd")
    pq.write_table(long, folder / "dictionary.parquet", compression="zstd")
    pq.write_table(different, folder / "packed.parquet", compression="zstd", use_dictionary=False)
    prefixes = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
    pq.write_table(different, folder / "prefixes.parquet", compression="zstd", **prefixes)
    for name, table, options in (("packed", long, zstd), ("codes", pa.table({"task": codes}), None)):
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema, options=options) as writer:
            writer.write_table(table)
    with pa.ipc.new_stream(str(folder / "stream.arrow"), long.schema, options=zstd) as writer:
        writer.write_table(long)
    return {file.name: file for file in folder.iterdir()}


def test_04_small_tables_do_not_fill_the_memory(tmp_path: Path) -> None:
    for name, file in bombs(tmp_path).items():
        pool = pa.default_memory_pool()
        before = pool.bytes_allocated()
        with pytest.raises(DataError, match="unpacks to more than 268,435,456 bytes"):
            load_columns(file, list)
        assert pool.bytes_allocated() - before < 1e8, name


def test_04_tables_of_every_layout_are_read_as_before(tmp_path: Path) -> None:
    table = pa.table({"task": [f"t{k % 50}" for k in range(5000)], "label": np.arange(5000) % 3})
    table = table.append_column("worker", table["task"].dictionary_encode())
    pq.write_table(table, tmp_path / "a.parquet")
    plain = table.set_column(2, "worker", table["task"])
    prefixes = {
        "use_dictionary": False,
        "column_encoding": {"task": "DELTA_BYTE_ARRAY", "worker": "PLAIN", "label": "PLAIN"},
    }
    pq.write_table(plain, tmp_path / "b.parquet", **prefixes)
    for name, made in (("c", pa.ipc.new_file), ("d", pa.ipc.new_stream)):
        for packed in (None, "zstd", "lz4"):
            options = pa.ipc.IpcWriteOptions(compression=packed)
            with made(str(tmp_path / f"{name}{packed}.arrow"), table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=1000)
    for file in tmp_path.iterdir():
        found = load_columns(file, list)
        assert {name: column.to_pylist() for name, column in found.items()} == table.to_pydict(), file.name


# 5. what is left of another run, and changed data


def test_05_stages_without_their_run_are_not_taken_up(tmp_path: Path) -> None:
    ce().fit(X, CROWD, run_dir=tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(ConfigError, match=r"parts of a run whose run\.json is missing"):
        ce(lr=0.5).fit(X, CROWD, run_dir=tmp_path / "run")


@pytest.mark.parametrize("what", ["one row of X", "names of classes", "names of annotators"])
def test_05_a_run_goes_on_with_the_same_data_only(what: str, tmp_path: Path) -> None:
    many, triples = np.repeat(X, 10, axis=0), (np.arange(600), np.arange(600) % 3, np.repeat(Y, 10))
    names = {"classes": list("abc"), "annotators": list("uvw")}
    ce(epochs=1).fit(many, Annotations.from_triples(*triples, **names), run_dir=tmp_path / "run")
    if what == "one row of X":
        many = many.copy()
        many[7] += 1  # which a sample of 256 rows misses
    else:
        names[what.rpartition(" ")[2]] = list("xyz")
    with pytest.raises(ConfigError, match="another data: content="):
        ce(epochs=1).fit(many, Annotations.from_triples(*triples, **names), resume=tmp_path / "run")


# 6. links


def test_06_locks_and_stages_follow_no_links(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious.txt")
    with pytest.raises(StorageError, match="is a symbolic link"), locked(tmp_path / "run"):
        pass
    assert (tmp_path / "precious.txt").read_text() == "keep me"
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "stages").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="stages is a symbolic link"):
        ce().fit(X, CROWD, run_dir=tmp_path / "run")
    assert not list((tmp_path / "elsewhere").iterdir())


# 7. masks and columns


def test_07_masked_labels_are_missing() -> None:
    matrix = np.ma.masked_array([[0, 1], [1, 2]], [[False, True], [False, False]])
    assert Annotations.from_dense(matrix).votes().tolist() == [[1, 0, 0], [0, 1, 1]]
    labels = np.ma.masked_array(Y, np.arange(60) < 10)
    assert ce().fit(X, labels).posterior_.shape == (60, 3)
    assert crowdwise.data.matching.match(X, labels).annotations.labels_per_instance[:11].tolist() == [0] * 10 + [1]
    masked = np.ma.masked_array([0, 1], [False, True])
    with pytest.raises(CrowdwiseError, match="row 1: the value is masked"):
        Annotations.from_triples([0, 1], [0, 0], masked)
    with pytest.warns(CrowdwiseWarning, match="left out: 1 row without a label"):
        assert len(Annotations.from_frame({"item": ["a", "b"], "worker": ["u", "u"], "label": masked})) == 1


def test_07_columns_in_another_order_are_matched_by_name() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = ce().fit(frame, CROWD)
    turned = frame[list("fedcba")]
    np.testing.assert_allclose(model.predict_proba(turned), model.predict_proba(frame), atol=SINGLE)


# 8. labels that cannot be saved

UNSAVABLE = {
    "dates": datetime.date(2026, 1, 1),
    "times": datetime.datetime(2026, 1, 1),
    "bytes": b"a",
    "decimals": decimal.Decimal("1.5"),
    "infinity": float("inf"),
}


@pytest.mark.parametrize("kind", UNSAVABLE)
def test_08_labels_that_cannot_be_saved_are_refused_before_training(kind: str) -> None:
    matrix = np.full((60, 2), None, dtype=object)
    matrix[:, 0] = UNSAVABLE[kind]
    with pytest.raises(DataError, match=r"cannot be saved|must be finite"):
        ce(epochs=10**6).fit(X, matrix)


def test_08_zeros_and_final_nuls() -> None:
    assert Annotations.from_dense([[-0.0, 0.5], [0.0, 1.5]]).n_classes == 3
    names = Annotations.from_frame({"item": ["a", "a\0"], "worker": ["u", "u"], "label": ["x", "x\0"]})
    assert names.instances.tolist() == ["a", "a\0"]
    assert names.classes.tolist() == ["x", "x\0"]


def test_08_a_model_with_a_final_nul_in_a_class_comes_back(tmp_path: Path) -> None:
    named = Annotations.from_triples(
        CROWD.instance, CROWD.annotator, CROWD.label, n_instances=60, classes=["x", "x\0", "y"]
    )
    model = ce().fit(X, named)
    assert crowdwise.load(model.save(tmp_path / "model")).classes_.tolist() == ["x", "x\0", "y"]


# 9. threads


def test_09_fits_in_threads_equal_fits_one_after_the_other() -> None:
    def fit(seed: int) -> np.ndarray:
        model = crowdwise.CE(**QUICK | {"epochs": 8}, dropout=0.5, random_state=seed)
        return model.fit(X, CROWD).predict_proba(X)

    alone = [fit(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        np.testing.assert_allclose(list(pool.map(fit, range(4))), alone, atol=TRAINED)  # BLAS may take fewer threads


# 10. what names can do


def test_10_names_move_no_cursor(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"item": ["a", "a", "b"], "worker": ["\x1b[31mred", "v", "v"], "label": ["\x1b]0;t\x07", "y", "y"]}
    )
    table.to_csv(tmp_path / "labels.csv", index=False)
    for command in (
        ("annotators", tmp_path / "labels.csv"),
        ("aggregate", tmp_path / "labels.csv", "-o", tmp_path / "o.csv"),
    ):
        output = run(*command)
        assert "\x1b]" not in output
        assert "\x1b[31mred" not in output
        assert "\x07" not in output


FORMULAS = ["=cmd()", "+1 way", "-no", "@sum", "\ttab", "'=quoted", "'plain", "-1", "+1.5e3", "yes"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_10_no_cell_is_a_formula_and_ids_come_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"labels.{suffix}"
    write_table(pa.table({"item": FORMULAS, "worker": ["w"] * 10, "label": ["=a", "b"] * 5}), path)
    cells = pd.read_csv(path, sep="\t" if suffix == "tsv" else ",", dtype=str)["item"]
    assert not cells[~cells.isin(["-1", "+1.5e3"])].str.match(r"[=+\-@\t]").any()
    found = read_table(path).annotations
    assert found.instances.tolist() == FORMULAS
    assert found.classes.tolist() == ["=a", "b"]


# 11. servers


@pytest.fixture
def server() -> Any:
    from crowdwise.report import serve

    page = '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;">'
    made = serve.ReportServer(0, lambda: page, dict)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def test_11_the_policy_is_a_header_too(server: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", "/", headers={"Host": f"localhost:{server.server_port}"})
    answer = connection.getresponse()
    assert answer.getheader("Content-Security-Policy") == "default-src 'none'; frame-ancestors 'none'"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"


def test_11_half_open_and_aborted_clients(server: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    from crowdwise.report import serve

    assert serve._Handler.timeout == serve.TIMEOUT == 10
    monkeypatch.setattr(serve._Handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port)) as half_open:
        half_open.sendall(b"GET / HTTP/1.1\r\nHost: ")
        half_open.settimeout(60)
        assert half_open.recv(100) == b"", "the server hangs up"
    for _ in range(5):
        aborted = socket.create_connection(("127.0.0.1", server.server_port))
        aborted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        aborted.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{server.server_port}\r\n\r\n".encode())
        aborted.close()
    while any("process_request_thread" in thread.name for thread in threading.enumerate()):
        time.sleep(0.01)
    assert capfd.readouterr().err == ""


def test_11_ray_on_this_machine_listens_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdwise.cluster import connection

    asked: dict[str, Any] = {}

    class Ray:
        @staticmethod
        def init(address: str, **options: Any) -> None:
            asked.update(options, address=address)

    connection._start(Ray, "local", 1)
    assert asked["_node_ip_address"] == "127.0.0.1"
    assert asked["include_dashboard"] is False


# 12. parameters, ids and files that ended in a traceback or in nothing


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", -1), ("lr", -1.0), ("momentum", 2.0), ("batch_size", 0), ("weight_decay", -0.1)]
)
def test_12_parameters_out_of_bounds_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        ce(**{name: value}).fit(X, CROWD)


def test_12_continuous_labels_are_refused() -> None:
    with pytest.raises(DataError, match=r"Unknown label type: y holds continuous values such as \d\.5"):
        ce().fit(X, Y + 0.5)


def test_12_uuids_are_ids() -> None:
    names = [uuid.UUID(int=number) for number in range(60)]
    table = pd.DataFrame({"item": np.array(names)[CROWD.instance], "worker": CROWD.annotator, "label": CROWD.label})
    model = ce().fit(pd.DataFrame(X, index=names), table)
    assert model.instances_.tolist() == [str(name) for name in names]


def test_12_a_million_classes_are_refused() -> None:
    rows = np.arange(1_000_000)
    labels = Annotations.from_triples(rows, np.zeros_like(rows), rows)
    for fit in (lambda: MajorityVote().fit(labels), lambda: ce().fit(np.zeros((1_000_000, 1)), labels)):
        with pytest.raises(CrowdwiseError, match="1,000,000 instances by 1,000,000 classes need 24,000 GB"):
            fit()


def test_12_nothing_many_times_is_no_array(tmp_path: Path) -> None:
    with (tmp_path / "X.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 0)})
    with pytest.raises(DataError, match="which is nothing, 1,000,000,000,000 times"):
        read_npy(tmp_path / "X.npy")


@pytest.mark.parametrize("classes", [[0, "a", 1], [[0], [1], [2]], [0, 0, 1], [None, 1, 2], [{}, 1, 2]])
def test_12_forged_classes_are_refused(classes: list[Any], tmp_path: Path) -> None:
    from crowdwise.methods.core.files import load_model

    tensors, about = load_model(ce().fit(X, CROWD).save(tmp_path / "model"))
    about = {
        key: value for key, value in about.items() if key not in ("version", "crowdwise", "sha256", "weights_sha256")
    }
    save_model(tmp_path / "forged", tensors, about | {"classes": classes})
    with pytest.raises(ModelFileError, match="classes"):
        crowdwise.load(tmp_path / "forged")


@pytest.mark.parametrize("kind", ["device", "fifo"])
@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_12_model_files_without_an_end_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    path = ce().fit(X, CROWD).save(tmp_path / "model")
    (path / name).unlink()
    (path / name).symlink_to("/dev/zero") if kind == "device" else os.mkfifo(path / name)
    with pytest.raises(ModelFileError, match="not a regular file"):
        crowdwise.load(path)


def test_12_work_grows_with_the_number_of_columns_not_with_its_square(tmp_path: Path) -> None:
    def refuse(columns: int) -> None:
        names = ",".join(f"c{number}" for number in range(columns))
        (tmp_path / "wide.csv").write_text(f"{names}\n{names}\n")
        with pytest.raises(CrowdwiseError):
            read_table(tmp_path / "wide.csv")

    assert_about_linear(refuse, 10_000, 100_000)


def test_12_a_full_disk_names_the_file(tmp_path: Path) -> None:
    CROWD.to_frame("pandas").to_csv(tmp_path / "labels.csv", index=False)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        for verb, out in (("aggregate", "o.csv"), ("report", "r.html")):
            output = run(verb, tmp_path / "labels.csv", "-o", tmp_path / out, code=1)
            assert f"{out} cannot be written" in output
            assert not (tmp_path / out).exists()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


# 13. scikit-learn's checks: tests/test_scikit_learn.py


def forged(model: Any, path: Path, change: Any) -> Path:
    """A saved model with another description, and the right checksums."""
    from crowdwise.methods.core.files import load_model

    tensors, about = load_model(model.save(path / "model"))
    ours = ("version", "crowdwise", "sha256", "weights_sha256")
    about = {key: value for key, value in about.items() if key not in ours}
    change(about)
    return save_model(path / "forged", tensors, about)


@pytest.mark.parametrize("networks", [10**9, 3, 1, True, "2", None])
def test_12_a_forged_number_of_networks_is_refused_before_any_is_built(
    networks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crowdwise.methods.core import base

    path = forged(ce(networks=2).fit(X, CROWD), tmp_path, lambda about: about["parameters"].update(networks=networks))
    monkeypatch.setattr(base, "Classifier", lambda *_: pytest.fail("a network was built"))
    with pytest.raises(ModelFileError, match="networks, but has the weights of 2"):
        crowdwise.load(path)


def test_12_a_model_of_tables_cannot_claim_to_mirror_pictures(tmp_path: Path) -> None:
    path = forged(ce().fit(X, CROWD), tmp_path, lambda about: about.update(mirrored=True))
    with pytest.raises(ModelFileError, match=r"mirrored pictures, but its instances have the shape \("):
        crowdwise.load(path)
