"""Reads safetensors files: strictly, mapped, and with bfloat16, which numpy readers refuse."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np

from ._arrays import HostArray, check_shape
from ._config import read_json_file, shown
from ._errors import FileError, UnsupportedError

# The format's own limit on the header.
MAX_HEADER = 100_000_000

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
        try:
            if os.path.exists(self.path) and not os.path.isfile(self.path):
                raise OSError("it is not a regular file")  # a pipe would be waited for
            self._bytes = np.memmap(self.path, np.uint8, "r")
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise FileError(f"{self.path}: cannot be read: {error}") from error
        header = self._read_header()
        self.metadata = header.pop("__metadata__", {})
        if not isinstance(self.metadata, dict):
            raise self._malformed("__metadata__ is not an object")
        # save_model of safetensors keeps one of several names of a tensor, and says the others here.
        self.aliases = {
            name: kept
            for name, kept in self.metadata.items()
            if isinstance(kept, str) and kept in header and name not in header
        }
        self._entries = {**header, **{name: header[kept] for name, kept in self.aliases.items()}}
        self.names = sorted(self._entries)

    def _malformed(self, why: str) -> FileError:
        return FileError(f"{self.path}: not a safetensors file: {why}")

    def _read_header(self) -> dict[str, Any]:
        size = self._bytes.size
        length = int.from_bytes(bytes(self._bytes[:8]), "little")
        if size < 8 or length > MAX_HEADER or length > size - 8:
            raise self._malformed(f"a header of {length} bytes in a file of {size}")
        self._begin = 8 + length
        try:
            text = bytes(self._bytes[8 : self._begin]).decode("utf-8")
            header = json.loads(text, object_pairs_hook=pairs_once)
        except (ValueError, RecursionError) as error:
            raise self._malformed(f"its header: {error}") from error
        if not isinstance(header, dict):
            raise self._malformed("its header is not an object")
        return header

    def _range(self, name: str, count: int, itemsize: int) -> tuple[int, int]:
        offsets = self._entries[name].get("data_offsets")
        room = self._bytes.size - self._begin
        if not _are_numbers(offsets) or len(offsets) != 2:
            raise self._malformed(f"{name}: its data_offsets")
        begin, end = offsets
        if not begin <= end <= room or end - begin != count * itemsize:
            raise self._malformed(f"{name}: data_offsets {shown(offsets)} of {room} bytes")
        return self._begin + begin, self._begin + end

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that vkattn can have."""
        return check_shape(self._axes(name), f"{self.path}: {name}")

    def count(self, name: str) -> int:
        """Elements of any tensor, a scalar or an empty one too."""
        return math.prod(self._axes(name))

    def _axes(self, name: str) -> list[int]:
        entry = self._entries[name]
        if not isinstance(entry, dict) or not _are_numbers(entry.get("shape")):
            raise self._malformed(f"{name}: its shape")
        axes: list[int] = entry["shape"]
        return axes

    def array(self, name: str) -> np.ndarray | HostArray:
        """A tensor, mapped where it is aligned; bfloat16 as the halves that a HostArray holds."""
        return self._array(name, self.shape(name))

    def kind(self, name: str) -> str:
        """Its type as the file names it."""
        entry = self._entries[name]
        kind = entry.get("dtype") if isinstance(entry, dict) else None
        return kind if isinstance(kind, str) else shown(kind)

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
        kind, types = self._entries[name].get("dtype"), {**_TYPES, **(more or {})}
        if isinstance(kind, str) and kind in _BYTES and kind not in types:
            raise UnsupportedError(
                f"{self.path}: {name}: dtype {kind} is supported as a packed weight alone: there is no"
                " quantization_config that says what its scales are, or it names this tensor as floats"
            )
        if not isinstance(kind, str) or kind not in types:
            raise UnsupportedError(
                f"{self.path}: {name}: dtype {shown(kind)} is not supported: save it as one of"
                f" {', '.join(_TYPES)}"
            )
        dtype = np.dtype(types[kind])
        count = math.prod(shape)
        begin, _ = self._range(name, count, dtype.itemsize)
        return np.frombuffer(self._bytes, dtype, count, begin).reshape(shape)

    def _aligned(self, name: str, array: np.ndarray) -> np.ndarray | HostArray:
        array = np.require(array, requirements="A")
        return HostArray(array, "bf16") if self._entries[name]["dtype"] == "BF16" else array


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)


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
