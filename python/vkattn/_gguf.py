"""Reads GGUF files: strictly, mapped, quantised tensors decoded by the library."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, NamedTuple, Tuple

import numpy as np

from ._arrays import DTYPES, FLOATS, widen
from ._blocks import dequantize
from ._config import shown
from ._device import Device, Tensor
from ._errors import FileError, InvalidError, UnsupportedError, VkattnError

MAX_NAME = 64
MAX_KEY = 65535
ALIGNMENT = "general.alignment"

# Types of metadata by their numbers, and the three that are not numbers of numpy.
_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?"}
_NUMBERS.update({10: "<u8", 11: "<i8", 12: "<f8"})
_U32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9

# Types of tensors by their numbers: name, and values and bytes of a block.
_TYPES = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    10: ("q2_K", 256, 84),
    11: ("q3_K", 256, 110),
    12: ("q4_K", 256, 144),
    13: ("q5_K", 256, 176),
    14: ("q6_K", 256, 210),
    15: ("q8_K", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
}
_LAYOUTS = {layout[0]: layout for layout in _TYPES.values()}
_DENSE = {"f32": "<f4", "f16": "<f2", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
_DENSE["f64"] = "<f8"
# Those that products take weights of.
_WEIGHTS = [
    name
    for name, values, _ in _TYPES.values()
    if name.lower() in DTYPES and (values > 1 or name in FLOATS)
]


def unsupported(path: str, name: str, kind: str) -> UnsupportedError:
    """A tensor's type is not one of the library's."""
    return UnsupportedError(
        f"{path}: {name}: type {kind} is not supported: make a file of other types by"
        f" llama-quantize ({', '.join(_WEIGHTS)}), or load the file of floats by quantize="
    )


class _Tensor(NamedTuple):
    type: str
    shape: tuple[int, ...]
    offset: int  # bytes in the file
    size: int  # bytes
    file: np.ndarray  # its bytes, mapped


class _Source:
    """The bytes of a file, read from front to back."""

    def __init__(self, path: str, data: np.ndarray) -> None:
        self.path = path
        self.bytes = data
        self.data = data.data
        self.at = 0

    def malformed(self, why: str) -> FileError:
        return FileError(f"{self.path}: not a GGUF file: {why}")

    def take(self, size: int, what: str) -> memoryview:
        if size > len(self.data) - self.at:
            raise self.malformed(f"it ends within {what}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def string(self, what: str) -> bytes:
        return self.take(self.number(8, what), what).tobytes()

    def name(self, most: int, what: str) -> str:
        text = self.string(f"the name of {what}")
        try:
            name = text.decode()
        except UnicodeError as error:
            raise self.malformed(f"the name of {what}: {error}") from error
        if not 1 <= len(text) <= most or "\0" in name:
            raise self.malformed(f"the name of {what}: expected 1 to {most} bytes, none of them 0")
        return name


class GGUF:
    """A GGUF file, versions 2 and 3, mapped into memory; or a model in several, by the path of any of
    them, NAME-00001-of-00003.gguf.

    names: its tensors, in the order of the files. metadata: int, float, bool, str, a numpy array of
    numbers, or a list of str; bytes that are not UTF-8 are decoded by "surrogateescape".

    Where metadata["general.architecture"] is "llama", rows of attn_q and attn_k are permuted within
    each head, as llama.cpp wants them: such weights need Rope(..., interleaved=True). Rows are
    returned as they are in the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fsdecode(path)
        self.metadata, self._tensors = _read_file(self.path)
        no, count, _ = _split(self.path, self.metadata)
        if count > 1:
            self.metadata, self._tensors = _read_parts(
                self.path, no, count, (self.metadata, self._tensors)
            )
        self.names = list(self._tensors)

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            raise InvalidError(f"{self.path}: there is no tensor {shown(name)}")
        return self._tensors[name]

    def type(self, name: str) -> str:
        """ "f32", "q8_0", "iq2_xs", ..."""
        return self._tensor(name).type

    def shape(self, name: str) -> tuple[int, ...]:
        """The fastest axis last: a weight is [out][in]."""
        return self._tensor(name).shape

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a tensor, mapped: uint8 [...][bytes of a row]."""
        tensor = self._tensor(name)
        part = tensor.file[tensor.offset : tensor.offset + tensor.size]
        if not tensor.shape:
            return part
        _, values, size = _LAYOUTS[tensor.type]
        return part.reshape(*tensor.shape[:-1], tensor.shape[-1] // values * size)

    def array(self, name: str) -> np.ndarray:
        """A tensor as numpy has it; bf16 and quantised ones as float32."""
        return self._decoded(name, self.raw(name)).reshape(self.shape(name))

    def rows(self, name: str, first: int, count: int) -> np.ndarray:
        """The same of some rows, of which the others are not read."""
        return self._decoded(name, self.raw(name)[first : first + count])

    def _decoded(self, name: str, raw: np.ndarray) -> np.ndarray:
        kind = self.type(name)
        if kind in _DENSE:
            return raw.view(_DENSE[kind])
        if kind == "bf16":
            return widen(raw.view("<u2"))
        if kind.lower() not in DTYPES:
            raise unsupported(self.path, name, kind)
        return dequantize(raw, kind.lower())

    def upload(self, name: str, device: Device | None = None) -> Tensor:
        """A tensor on a device in the type that it has in the file, quantised ones too."""
        kind = self.type(name).lower()
        if kind not in DTYPES:
            raise unsupported(self.path, name, self.type(name))
        made = Tensor(device, self.shape(name), kind)
        made.write_bytes(np.ascontiguousarray(self.raw(name)))
        return made


_File = Tuple[Dict[str, Any], Dict[str, _Tensor]]  # metadata and tensors


def _read_file(path: str) -> _File:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError("it is not a regular file")  # a pipe would be waited for
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise FileError(f"{path}: cannot be read: {error}") from error
    source = _Source(path, data)
    n_tensor, n_value = _read_counts(source)
    metadata: dict[str, Any] = {}
    alignment = 32
    for i in range(n_value):
        key = source.name(MAX_KEY, f"key {i}")
        kind, value = _read_value(source, key)
        if key in metadata:
            raise source.malformed(f"key {shown(key)} occurs twice")
        metadata[key] = value
        if key == ALIGNMENT:
            alignment = _check_alignment(source, kind, value)
    tensors = _read_tensors(source, n_tensor, alignment)
    _check_places(source, tensors)
    return metadata, tensors


# ---- A model in several files: the rules are those of vka_gguf_open ------------------------------


def _split(path: str, metadata: dict[str, Any]) -> tuple[int, int, int]:
    """Which part a file is, of how many, and the tensors of all of them."""

    def number(key: str, most: int) -> int:
        value = metadata.get(key, "nothing")
        if not isinstance(value, int) or not 0 <= value <= most:
            raise FileError(f"{path}: {key}: expected 0 to {most}, got {shown(value)}")
        return int(value)

    count = number("split.count", 65535) if "split.count" in metadata else 1
    if count <= 1:
        return 0, 1, 0
    return number("split.no", count - 1), count, number("split.tensors.count", 2**31 - 1)


def _read_parts(path: str, no: int, count: int, opened: _File) -> _File:
    """All parts as one file; `opened` is part `no` of them."""
    tail = f"-{no + 1:05}-of-{count:05}.gguf"
    if not path.endswith(tail):
        raise FileError(
            f"{path}: the file is part {no + 1} of {count} of a model, but its name does not end in"
            f" {tail}"
        )
    names = [f"{path[: -len(tail)]}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]
    parts = []
    for i, name in enumerate(names):
        try:
            parts.append(opened if i == no else _read_file(name))
        except VkattnError as error:
            raise type(error)(f"{error} (part {i + 1} of {count} of a model)") from error
    metadata, tensors, total = parts[0][0], {}, _split(names[0], parts[0][0])[2]
    for i, (name, part) in enumerate(zip(names, parts)):
        said = _split(name, part[0])
        if said[:2] != (i, count):
            raise FileError(
                f"{name}: the file is part {said[0] + 1} of {said[1]} by its keys, but part {i + 1}"
                f" of {count} by its name"
            )
        other = next((k for k, v in part[0].items() if not _is_shared(k, v, metadata)), None)
        if said[2] != total or other is not None:
            why = f"key {shown(other)} is not as in" if said[2] == total else "other counts than"
            raise FileError(f"{name}: the file is a part of another model: {why} part 1")
        for tensor in part[1]:
            if tensor in tensors:
                raise FileError(f"{name}: tensor {shown(tensor)} is in an earlier part too")
        tensors.update(part[1])
    if len(tensors) != total:
        raise FileError(
            f"{names[0]}: split.tensors.count is {total}, but the {count} parts have"
            f" {len(tensors)} tensors"
        )
    return metadata, tensors


def _is_shared(key: str, value: Any, first: dict[str, Any]) -> bool:
    """Whether a part may have a key: what is of the file alone, or as the first part has it."""
    if key.startswith("split.") or key == ALIGNMENT:
        return True
    same = first.get(key)
    if type(same) is not type(value):
        return False
    if isinstance(value, np.ndarray) and isinstance(same, np.ndarray):
        return bool(same.dtype == value.dtype and same.tobytes() == value.tobytes())
    return repr(same) == repr(value)  # a NaN too


def _read_counts(source: _Source) -> tuple[int, int]:
    if source.take(4, "its magic").tobytes() != b"GGUF":
        raise source.malformed("it does not begin with GGUF")
    version = source.number(4, "its version")
    if version and not version & 0xFFFF:
        raise UnsupportedError(f"{source.path}: a big-endian file is not supported")
    if version not in (2, 3):
        raise UnsupportedError(f"{source.path}: GGUF version {version} is not supported")
    return source.number(8, "its counts"), source.number(8, "its counts")


def _read_numbers(source: _Source, kind: int, count: int, what: str) -> np.ndarray:
    dtype = np.dtype(_NUMBERS[kind])
    raw = source.take(count * dtype.itemsize, what).tobytes()
    if kind == _BOOL and set(raw) - {0, 1}:
        raise source.malformed(f"{what}: expected a bool of 0 or 1")
    return np.frombuffer(raw, dtype)


def _read_value(source: _Source, key: str) -> tuple[int, Any]:
    what = f"key {shown(key)}"
    kind = item = source.number(4, what)
    count = 1
    if kind == _ARRAY:
        item, count = source.number(4, what), source.number(8, what)
    if item == _ARRAY:
        raise UnsupportedError(f"{source.path}: {what}: an array of arrays is not supported")
    if item == _STRING:
        strings = []
        for _ in range(count):  # at least 8 bytes each
            strings.append(source.string(what).decode("utf-8", "surrogateescape"))
        return kind, strings if kind == _ARRAY else strings[0]
    if item not in _NUMBERS:
        raise source.malformed(f"{what}: expected a type of 0 to 12, got {item}")
    numbers = _read_numbers(source, item, count, what)
    return kind, numbers if kind == _ARRAY else numbers[0].item()


def _check_alignment(source: _Source, kind: int, value: Any) -> int:
    if kind != _U32 or value < 8 or value & (value - 1):
        raise source.malformed(f"{ALIGNMENT}: expected a u32, a power of two from 8 up")
    return int(value)


def _read_tensors(source: _Source, count: int, alignment: int) -> dict[str, _Tensor]:
    """With offsets in the file."""
    tensors: dict[str, _Tensor] = {}
    for i in range(count):
        name = source.name(MAX_NAME, f"tensor {i}")
        if name in tensors:
            raise source.malformed(f"tensor {shown(name)} occurs twice")
        tensors[name] = _read_tensor(source, f"tensor {shown(name)}", alignment)
    begin = -(-source.at // alignment) * alignment
    return {name: t._replace(offset=t.offset + begin) for name, t in tensors.items()}


def _read_tensor(source: _Source, what: str, alignment: int) -> _Tensor:
    rank = source.number(4, what)
    if rank > 4:
        raise source.malformed(f"{what}: expected at most 4 axes, got {rank}")
    shape = tuple(source.number(8, what) for _ in range(rank))[::-1]
    number = source.number(4, what)
    if number not in _TYPES:
        raise source.malformed(f"{what}: type {number} is not known")
    name, values, size = _TYPES[number]
    if (shape or (1,))[-1] % values:
        raise source.malformed(f"{what}: expected rows of whole blocks, got {list(shape)}")
    if math.prod(max(n, 1) for n in shape) // values * size >= 2**63:
        raise source.malformed(f"{what}: its shape overflows, {list(shape)}")
    offset = source.number(8, what)
    if offset % alignment:
        raise source.malformed(f"{what}: expected an offset of whole {alignment} bytes")
    return _Tensor(name, shape, offset, math.prod(shape) // values * size, source.bytes)


def _check_places(source: _Source, tensors: dict[str, _Tensor]) -> None:
    end, last = 0, ""
    filled = [name for name in tensors if tensors[name].size]  # empty ones lie anywhere
    for name in sorted(filled, key=lambda name: tensors[name].offset):
        tensor = tensors[name]
        if tensor.offset < end:
            raise source.malformed(f"tensors {shown(last)} and {shown(name)} overlap")
        end, last = tensor.offset + tensor.size, name
        if end > len(source.data):
            raise source.malformed(f"it ends within the data of tensor {shown(name)}")
