"""Safetensors files, opened by the library's reader; with bfloat16, which numpy has not."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from ._abi import lib, text_of
from ._arrays import HostArray, check_shape
from ._config import read_json_file, shown
from ._errors import FileError, UnsupportedError
from ._opened import Opened

_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "<u1",
    "BOOL": "?",
}
# What only packed weights have: floats of 8 bits, as their bytes.
_BYTES = {"F8_E4M3": "<u1", "F8_E5M2": "<u1", "F8_E8M0": "<u1"}


def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


class SafetensorsFile:
    """An open file. names: its tensors; metadata: its __metadata__; aliases: names that it says are
    other names of its tensors, which are names too."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fsdecode(path)
        self._file = Opened("safetensors", self.path)
        file = self._file.pointer
        items = [
            lib.vka_safetensors_metadata_at(file, i)
            for i in range(lib.vka_safetensors_metadata_count(file))
        ]
        self.metadata = {text_of(item.key): text_of(item.value) for item in items}
        arrays = [lib.vka_safetensors_at(file, i) for i in range(lib.vka_safetensors_count(file))]
        found = {text_of(array.name): array for array in arrays}
        # save_model of safetensors keeps one of several names of a tensor, and says the others here.
        self.aliases = {
            name: kept
            for name, kept in self.metadata.items()
            if kept in found and name not in found
        }
        self._arrays = {**found, **{name: found[kept] for name, kept in self.aliases.items()}}
        self.names = sorted(self._arrays)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that vkattn can have."""
        return check_shape(self._axes(name), f"{self.path}: {name}")

    def count(self, name: str) -> int:
        """Elements of any tensor, a scalar or an empty one too."""
        return math.prod(self._axes(name))

    def _axes(self, name: str) -> list[int]:
        array = self._arrays[name]
        return [array.shape[i] for i in range(array.rank)]

    def array(self, name: str) -> np.ndarray | HostArray:
        """A tensor, mapped where it is aligned; bfloat16 as the halves that a HostArray holds."""
        return self._array(name, self.shape(name))

    def kind(self, name: str) -> str:
        """Its type as the file names it."""
        return text_of(self._arrays[name].type)

    def packed(self, name: str) -> np.ndarray | HostArray:
        """A tensor with any number of axes, 0 too; floats of 8 bits as their bytes."""
        return self._aligned(name, self._mapped(name, tuple(self._axes(name)), _BYTES))

    def rows(self, name: str, first: int, count: int, transposed: bool) -> np.ndarray | HostArray:
        """Some rows of a matrix, of which the others are not read. transposed: of the file's columns."""
        whole = self._mapped(name, self.shape(name))
        return self._aligned(name, (whole.T if transposed else whole)[first : first + count])

    def scalar(self, name: str) -> np.ndarray | HostArray:
        """A tensor without axes, as one of one element."""
        if self._axes(name):
            raise FileError(
                f"{self.path}: {name}: expected a scalar, got {shown(self._axes(name))}"
            )
        return self._array(name, (1,))

    def _array(self, name: str, shape: tuple[int, ...]) -> np.ndarray | HostArray:
        return self._aligned(name, self._mapped(name, shape))

    def _mapped(
        self, name: str, shape: tuple[int, ...], more: dict[str, str] | None = None
    ) -> np.ndarray:
        """In the bytes of the file, which may lie anywhere. more: types that may be had besides."""
        kind, types = self.kind(name), {**_TYPES, **(more or {})}
        if kind not in types and kind not in _BYTES:
            raise UnsupportedError(f"{self.path}: {name}: dtype {shown(kind)} is not supported")
        if kind not in types:
            raise UnsupportedError(
                f"{self.path}: {name}: dtype {kind} is supported as a packed weight alone: there is no"
                " quantization_config that says what its scales are, or it names this tensor as floats"
            )
        array = self._arrays[name]
        return self._file.bytes_at(array.data, array.size).view(types[kind]).reshape(shape)

    def _aligned(self, name: str, array: np.ndarray) -> np.ndarray | HostArray:
        array = np.require(array, requirements="A")
        return HostArray(array, "bf16") if self.kind(name) == "BF16" else array


def whole_or_index(folder: str) -> str:
    """A whole file comes first, as for transformers: an index beside it is of an older state."""
    whole, index = (os.path.join(folder, f"model.safetensors{x}") for x in ("", ".index.json"))
    return whole if os.path.isfile(whole) or not os.path.isfile(index) else index


def open_checkpoint(path: str | os.PathLike[str], name: str) -> SafetensorsFile:
    """The file that holds the tensors whose names begin with `name`: path itself, or what a folder
    or an index names."""
    place = os.fsdecode(path)
    if os.path.isdir(place):
        place = whole_or_index(place)
    if not place.endswith(".json"):
        return SafetensorsFile(place)
    files = read_json_file(place).get("weight_map")
    if not isinstance(files, dict):
        raise FileError(f"{place}: not a checkpoint's index: expected an object weight_map")
    found = {_file_name(files[x], place) for x in files if x.startswith(name)}
    if len(found) != 1:
        raise UnsupportedError(
            f"{place}: expected the tensors {name}* in one file, they are in {shown(sorted(found))}"
        )
    return SafetensorsFile(os.path.join(os.path.dirname(place), found.pop()))


def _file_name(file: Any, place: str) -> str:
    """What an index names, which must lie beside it."""
    if not isinstance(file, str) or os.path.basename(file) != file or file in ("", ".", ".."):
        raise FileError(
            f"{place}: weight_map: expected names of files beside it, got {shown(file)}"
        )
    return file
