"""A prepared table: codes instead of ids, all annotations of an instance in one partition, partitions of bounded size.

A folder of Arrow files that are mapped into memory as they are: ``table.arrow`` has the ids in the order of their codes, and
says where partitions begin; ``parts/*.arrow`` are the partitions. Each holds the instances ``borders[k]..borders[k + 1] - 1``:
where every instance begins (``indptr``), the ``cells`` of its annotations (see `crowdwise.aggregation.core.kernels`), and
their ``weight`` where the table has any.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.aggregation.core import kernels, weights
from crowdwise.aggregation.core.crowd import MemoryCrowd, Role
from crowdwise.aggregation.core.kernels import Floats, Layout
from crowdwise.data.factorise import Vocabulary
from crowdwise.errors import ModelFileError
from crowdwise.storage.files import replacing

TABLE, WEIGHT = "table.arrow", "weight"
_CHECKSUM = 4  # bytes at the end of a file


class Part(MemoryCrowd):
    """The annotations of the instances ``start..stop-1``: a crowd of its own, with the codes of the whole."""

    def __init__(self, layout: Layout, start: int, stop: int) -> None:
        super().__init__(layout)
        self.start, self.stop = start, stop


@dataclass(frozen=True)
class Store:
    """A prepared table on disk; small enough to be sent to other processes. Its length is its number of partitions."""

    folder: Path
    columns: dict[str, str]  # role -> column
    n_annotations: int
    n_instances: int
    n_annotators: int
    n_classes: int
    n_blank: int  # rows without a label, which are left out
    n_models: int  # annotators that the table calls models
    gold: str | None  # a column that looks like gold, which is not used
    borders: list[int]  # first instance of every partition, and the end
    compiled: bool  # whether the crowd as a whole is large enough for compiled kernels
    scale: float = 1.0  # of the weights: see `crowdwise.aggregation.core.weights`
    counted: bool = False  # whether all weights are 1, so that annotations are counted as those without weights are

    def __len__(self) -> int:
        return len(self.borders) - 1

    def path(self, number: int) -> Path:
        """File of a partition."""
        return self.folder / "parts" / f"{number:06d}.arrow"

    def load(self, number: int, *, check: bool = False) -> Part:
        """A partition, mapped into memory; ``check`` reads all of it."""
        arrays = read_arrays(self.path(number), check=check)
        cells, indptr = arrays["cells"].to_numpy(), arrays["indptr"].to_numpy()
        weight = None
        if "weight" in arrays and not self.counted:
            weight = self.scale * weights.as_written(arrays["weight"].to_numpy())
        layout = Layout(
            cells, indptr, np.empty(0, np.int32), (self.n_annotators, self.n_classes), 1, self.compiled, weight
        )
        return Part(layout, self.borders[number], self.borders[number + 1])

    @property
    def weighted(self) -> bool:
        """Whether the table has a column of weights, which are not all 1."""
        return WEIGHT in self.columns and not self.counted

    def scaled(self) -> Store:
        """The same table with weights in labels; reads them three times, and holds few at a time."""
        if not self.weighted:
            return self
        if all(np.all(self.load(number).layout.weight == 1.0) for number in range(len(self))):
            return replace(self, counted=True)
        number = dict[int, int]()  # of voices, by the power of two of their weight
        plain = True
        for weight in self._voice_weights():
            plain = plain and bool(np.all(weight == 1.0))
            powers, times = np.unique(np.frexp(weight)[1], return_counts=True)
            for power, count in zip(powers.tolist(), times.tolist(), strict=True):
                number[power] = number.get(power, 0) + count
        if plain:
            return self
        before, middle = 0, (sum(number.values()) - 1) // 2
        for chosen in sorted(number):
            if before + number[chosen] > middle:
                break
            before += number[chosen]
        near = np.concatenate([weight[np.frexp(weight)[1] == chosen] for weight in self._voice_weights()])
        usual = float(np.partition(near, middle - before)[middle - before])
        return replace(self, scale=weights.scale_of(usual))

    def _voice_weights(self) -> Iterator[Floats]:
        for number in range(len(self)):
            yield weights.voice_weights(self.load(number).layout)

    def vocabulary(self, of: Role) -> Vocabulary:
        """Ids of the instances, annotators or classes, mapped into memory."""
        ids = read_arrays(self.folder / TABLE)[of]
        return Vocabulary(len(ids), ids)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The store in ``folder``, of which partitions may still be missing."""
        about = json.loads(read_arrays(folder / TABLE, check=True)["about"][0].as_py())
        return cls(folder, **about, compiled=kernels.use_numba(about["n_annotations"]))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays of any lengths, each as a list, in one row of an Arrow file; it appears whole or not at all.

    A checksum of the content and the file's name follows: files cannot stand in for each other.
    """
    columns = [pa.array(values) for values in arrays.values()]
    lists = [pa.LargeListArray.from_arrays(pa.array([0, len(column)], pa.int64()), column) for column in columns]
    row = pa.record_batch(lists, names=list(arrays))
    with replacing(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, row.schema) as writer:
            writer.write_batch(row)
        with pa.memory_map(str(temporary)) as source, temporary.open("ab") as file:
            file.write(_checksum(path, source.read_buffer()))


def read_arrays(path: Path, *, check: bool = False) -> dict[str, pa.Array]:
    """What `write_arrays` wrote, mapped into memory; ``check`` reads all of it, and anything else is an error."""
    try:
        with pa.memory_map(str(path)) as source:
            content, checksum = source.read_buffer(source.size() - _CHECKSUM), source.read(_CHECKSUM)
        if check and checksum != _checksum(path, content):
            raise ValueError("its size or checksum does not match")
        row = pa.ipc.open_file(content).get_batch(0)
        return {name: lists.values for name, lists in zip(row.schema.names, row.columns, strict=True)}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error


def _checksum(path: Path, content: pa.Buffer) -> bytes:
    return zlib.crc32(content, zlib.crc32(path.name.encode())).to_bytes(_CHECKSUM, "little")
