"""GGUF files: opened by the library's reader, quantised tensors decoded by the library."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ._abi import ffi, lib, text_of
from ._arrays import DTYPES, widen
from ._blocks import dequantize
from ._config import shown
from ._device import Device, Tensor
from ._errors import InvalidError
from ._opened import Opened, check, encoded

# Types of metadata that are numbers of numpy, by their numbers.
_NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?"}
_NUMBERS.update({10: "<u8", 11: "<i8", 12: "<f8"})

# Types of tensors that are numbers of numpy.
_DENSE = {"f32": "<f4", "f16": "<f2", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
_DENSE["f64"] = "<f8"


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
        self._file = Opened("gguf", self.path)
        pointer = self._file.pointer
        values = [
            lib.vka_gguf_metadata_at(pointer, i)
            for i in range(lib.vka_gguf_metadata_count(pointer))
        ]
        self.metadata = {text_of(value.key): _value_of(value) for value in values}
        tensors = [lib.vka_gguf_at(pointer, i) for i in range(lib.vka_gguf_count(pointer))]
        self._tensors = {text_of(tensor.name): tensor for tensor in tensors}
        self.names = list(self._tensors)

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            raise InvalidError(f"{self.path}: there is no tensor {shown(name)}")
        return self._tensors[name]

    def type(self, name: str) -> str:
        """ "f32", "q8_0", "iq2_xs", ..."""
        return text_of(self._tensor(name).type)

    def shape(self, name: str) -> tuple[int, ...]:
        """The fastest axis last: a weight is [out][in]."""
        tensor = self._tensor(name)
        return tuple(tensor.shape[i] for i in range(tensor.rank))

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a tensor, mapped: uint8 [...][bytes of a row]."""
        tensor = self._tensor(name)
        stored = self._file.bytes_at(tensor.data, tensor.size)
        shape = self.shape(name)
        if not shape:
            return stored
        return stored.reshape(*shape[:-1], -1 if stored.size else 0)

    def array(self, name: str) -> np.ndarray:
        """A tensor as numpy has it; bf16 and quantised ones as float32."""
        if not self._tensor(name).size:
            return np.empty(self.shape(name), _DENSE.get(self.type(name), np.float32))
        return self._decoded(name, self.raw(name)).reshape(self.shape(name))

    def rows(self, name: str, first: int, count: int) -> np.ndarray:
        """The same of some rows, of which the others are not read."""
        return self._decoded(name, self.raw(name)[first : first + count])

    def check_type(self, name: str) -> None:
        """Raises where the library does not have the type of a tensor."""
        tensor = self._tensor(name)
        check(lambda error: lib.vka_gguf_check_type(tensor, encoded(self.path), error))

    def check_types(self) -> None:
        """The same of all that have data."""
        file = self._file.pointer
        check(lambda error: lib.vka_gguf_check_types(file, encoded(self.path), error))

    def _decoded(self, name: str, raw: np.ndarray) -> np.ndarray:
        kind = self.type(name)
        if kind in _DENSE:
            return raw.view(_DENSE[kind])
        if kind == "bf16":
            return widen(raw.view("<u2"))
        self.check_type(name)
        return dequantize(raw, kind.lower())

    def upload(self, name: str, device: Device | None = None) -> Tensor:
        """A tensor on a device in the type that it has in the file, quantised ones too."""
        self.check_type(name)
        made = Tensor(device, self.shape(name), self.type(name).lower())
        made.write_bytes(np.ascontiguousarray(self.raw(name)))
        return made


def _value_of(value: Any) -> Any:
    """What an item of metadata holds."""
    is_array, item = value.type == lib.VKA_GGUF_ARRAY, int(value.item)
    raw = bytes(ffi.buffer(value.data, value.size)) if value.size else b""
    if item != lib.VKA_GGUF_STRING:
        numbers = np.frombuffer(raw, _NUMBERS[item]) if raw else np.empty(0, _NUMBERS[item])
        return numbers if is_array else numbers[0].item()
    if not is_array:
        return raw.decode("utf-8", "surrogateescape")
    strings, at = [], 0
    while at < len(raw):  # each after its length
        end = at + 8 + int.from_bytes(raw[at : at + 8], "little")
        strings.append(raw[at + 8 : end].decode("utf-8", "surrogateescape"))
        at = end
    return strings
