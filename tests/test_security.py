"""Files are data: nothing in them is run, nothing is written outside, and none takes more memory than it may."""

from __future__ import annotations

import ast
import gzip
import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crowdwise
from crowdwise.bench.runner import read_records
from crowdwise.data.inputs import read_inputs
from crowdwise.datasets import cifar10
from crowdwise.datasets.idx import read_idx
from crowdwise.datasets.image_folder import ImageFolder
from crowdwise.engine.checkpoint import read_tensors
from crowdwise.errors import ConfigError, CrowdwiseError, DataError, DatasetError, ModelFileError, ReadError
from crowdwise.presets import load_preset
from crowdwise.readers import read, read_table
from crowdwise.storage import limits
from crowdwise.storage.arrays import read_npy, read_npz
from crowdwise.storage.documents import read_json

SOURCE = Path(crowdwise.__file__).parent
HUGE = 10**13  # elements that no machine has room for


# nothing is run

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "ruamel", "code", "runpy"}
BUILT_IN = {"eval", "exec", "compile", "__import__"}
CALLS = {  # the end of a dotted name
    *("np.load", "numpy.load", "torch.load", "torch.save", "pd.read_pickle", "torch.jit.load", "torch.hub.load"),
    *("os.system", "os.popen", "os.execv", "tempfile.mktemp"),
}
METHODS = {"extract", "extractall", "unpack_archive", "read_pickle", "to_pickle"}  # of whatever object


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def forbidden(source: str) -> list[str]:
    """What a source does that could run code from a file, or write where a file says."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in MODULES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in BUILT_IN or name in CALLS or method in METHODS:
                found.append(name or method)
            for keyword in node.keywords:
                unsafe = keyword.arg in ("allow_pickle", "shell") and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                )
                found += [f"{keyword.arg}="] if unsafe else []
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_can_run_what_a_file_holds(path: Path) -> None:
    assert forbidden(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "eval(text)",
        "torch.load(path)",
        "np.load(path, allow_pickle=False)",
        "np.save(path, x, allow_pickle=True)",
        "archive.extractall(folder)",
        "subprocess.run(command, shell=True)",
        "import yaml.loader",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert len(forbidden(source)) == 1


def test_pickled_arrays_are_refused_everywhere(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "sprung").write_text, ("x",))

    trap = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "a.npy", trap)
    np.savez(tmp_path / "a.npz", X=trap)
    for load in (lambda: read(tmp_path / "a.npy"), lambda: read_inputs(tmp_path / "a.npz")):
        with pytest.raises(CrowdwiseError, match="pickled objects, which are never loaded"):
            load()
    assert not (tmp_path / "sprung").exists()


def test_pictures_reach_no_decoder_that_runs_programs(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")
    with pytest.raises(DatasetError, match=r"a\.png cannot be decoded as an image"):
        ImageFolder(tmp_path)[0]


# nothing is written outside


@pytest.mark.parametrize("name", ["../out.jsonl", "/out.jsonl", "a/../../out.jsonl", "C:\\out.jsonl", "..\\out.jsonl"])
def test_zip_files_that_name_files_outside_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with zipfile.ZipFile(folder / "export.zip", "w") as file:
        file.writestr("ann.jsonl", '{"id": 1, "label": ["x"]}\n')
        file.writestr(name, "{}")
    with pytest.raises(ReadError, match=r"export\.zip: the zip file has a path outside of itself"):
        read(folder / "export.zip")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "export.zip"]


def test_links_in_zip_files_are_text_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text('{"id": 1, "label": ["secret"]}\n')
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as file:
        link = zipfile.ZipInfo("ann.jsonl")
        link.external_attr = 0o120777 << 16
        file.writestr(link, str(tmp_path / "secret.jsonl"))
    with pytest.raises(ReadError, match=r"ann\.jsonl, line 1"):
        read(tmp_path / "export.zip", "doccano")


def test_tar_archives_are_read_in_memory_by_exact_names(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../out.bin", "/out.bin", "cifar-10-batches-bin/../test_batch.bin"):
            member = tarfile.TarInfo(name)
            member.size = cifar10.ROW
            archive.addfile(member, io.BytesIO(bytes(cifar10.ROW)))
        for name in cifar10.BATCHES:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises(DatasetError, match=r"lacks cifar-10-batches-bin/data_batch_1\.bin"):
        cifar10._archive_contents(path)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_records_cannot_name_folders_elsewhere(tmp_path: Path) -> None:
    record = {"row": "CE", "column": "x", "cell": "../../elsewhere"}
    (tmp_path / "records.jsonl").write_text(json.dumps(record))
    with pytest.raises(ModelFileError, match=r"line 1: cell must be a plain name, got '../../elsewhere'"):
        read_records(tmp_path)


# nothing swells


def test_the_limit_comes_from_the_environment_or_from_the_size_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(limits.VARIABLE, raising=False)
    (tmp_path / "a").write_bytes(bytes(10))
    assert limits.unpack_limit(tmp_path / "a") == 2**28
    monkeypatch.setattr(limits, "SMALL", 100)
    assert limits.unpack_limit(tmp_path / "a") == 2000
    monkeypatch.setenv(limits.VARIABLE, "1.5kB")
    assert limits.unpack_limit(tmp_path / "a") == limits.largest() == 1500
    monkeypatch.setenv(limits.VARIABLE, "much")
    with pytest.raises(ConfigError, match="CROWDWISE_UNPACK_LIMIT must be a size such as 64GB, not 'much'"):
        limits.unpack_limit(tmp_path / "a")


def bombs(folder: Path) -> dict[str, Any]:
    """Small files that unpack to megabytes, each with what reads it."""
    rows = b'{"id": 1, "task": 1, "worker": 2, "label": 3}\n' * 40_000
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(rows))
    (folder / "a.jsonl.zst").write_bytes(pa.compress(rows, "zstd", asbytes=True))
    pq.write_table(
        pa.table({name: np.zeros(10**5, np.int8) for name in ("task", "worker", "label")}), folder / "a.parquet"
    )
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("ann.jsonl", rows)
    np.savez_compressed(folder / "a.npz", X=np.zeros((10**3, 10**3), np.uint8))
    (folder / "a.gz").write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 100, 100, 100) + bytes(10**6)))
    return {
        "a.jsonl.gz": read,
        "a.jsonl.zst": read,
        "a.parquet": read_table,
        "a.zip": read,
        "a.npz": read_inputs,
        "a.gz": lambda path: read_idx(path, 3),
    }


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.zip", "a.npz", "a.gz"])
def test_bombs_are_refused_with_the_limit_and_how_to_raise_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    load = bombs(tmp_path)[name]
    monkeypatch.setattr(limits, "SMALL", 10**5)
    monkeypatch.setattr(limits, "RATIO", 2)
    with pytest.raises(CrowdwiseError, match=rf"{name}: unpacks to more than 100,000 bytes; .*CROWDWISE_UNPACK_LIMIT="):
        load(tmp_path / name)
    monkeypatch.setenv(limits.VARIABLE, "1GB")
    load(tmp_path / name)


def test_a_tar_archive_that_swells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "MOST_ROWS", 1)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("zeros")
        member.size = 10**6
        archive.addfile(member, io.BytesIO(bytes(10**6)))
    with pytest.raises(DatasetError, match="unpacks to more than"):
        cifar10._archive_contents(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("shape", [(HUGE,), (HUGE, HUGE), (-1,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", ["<f8", "<U0", "|O", "<U1000000"])
def test_arrays_that_claim_another_shape_are_refused_before_memory_is_taken(
    tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
    file.write(bytes(24))
    (tmp_path / "a.npy").write_bytes(file.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", file.getvalue())
    for load in (
        lambda: read_npy(tmp_path / "a.npy"),
        lambda: read_npy(tmp_path / "a.npy", mapped=True),
        lambda: read_npz(tmp_path / "a.npz"),
    ):
        with pytest.raises(
            DataError, match=r"not a readable np[yz] file: (.* holds 24 bytes of values|it holds pickled)"
        ):
            load()


def test_an_archive_of_arrays_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.arange(1000))
    content = (tmp_path / "a.npz").read_bytes()
    size = (8128).to_bytes(4, "little")
    assert content.count(size) >= 2
    (tmp_path / "a.npz").write_bytes(content.replace(size, (2**31).to_bytes(4, "little")))
    with pytest.raises(DataError):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]},
        {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]},
    ],
)
def test_tensors_that_claim_another_shape_are_refused(tmp_path: Path, tensor: dict[str, Any]) -> None:
    header = json.dumps({"a": tensor}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ModelFileError, match=r"a\.safetensors cannot be read"):
        read_tensors(tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes((2**62).to_bytes(8, "little") + header)
    with pytest.raises(ModelFileError, match=r"a\.safetensors cannot be read"):
        read_tensors(tmp_path / "a.safetensors")


def test_values_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    deep = "[" * 200_000
    (tmp_path / "a.json").write_text(deep)
    with pytest.raises(ReadError, match=r"a\.json: not usable JSON"):
        read(tmp_path / "a.json")
    with pytest.raises(ModelFileError, match=r"a\.json is damaged"):
        read_json(tmp_path / "a.json")
    (tmp_path / "records.jsonl").write_text(deep)
    with pytest.raises(ModelFileError, match="line 1 is not JSON: it is nested too deeply"):
        read_records(tmp_path)
    (tmp_path / "a.toml").write_text(f"description = {deep}")
    with pytest.raises(ConfigError, match=r"a\.toml: it is nested too deeply"):
        load_preset(tmp_path / "a.toml")
