"""Checkpoints of bitsandbytes: nf4 in blocks of 64, whose scales may be quantised in turn."""

from __future__ import annotations

import json
from typing import Any, Callable

import numpy as np

from ._config import shown
from ._errors import FileError, UnsupportedError
from ._float8 import check_scales
from ._int4 import Blocks
from ._model_opt import pack_fours
from ._packed import Packed, Settings, Tensors

_VALUES, _BYTES = 64, 36  # of a block: a float32 scale, then 64 values of 4 bits
_STATE = "weight.quant_state.bitsandbytes__nf4"
_TABLE = np.array(
    [
        *(-1, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0),
        *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1),
    ],
    np.float32,
)


class _State:
    """The object in JSON that a tensor of bytes holds."""

    def __init__(self, name: str, tensors: Tensors) -> None:
        self.where = tensors.where(name)
        try:
            values = json.loads(bytes(tensors.flat(name, "U8")).decode())
        except (ValueError, TypeError, RecursionError) as error:
            raise FileError(f"{self.where}: not an object in JSON: {error}") from error
        if not isinstance(values, dict):
            raise FileError(f"{self.where}: not an object in JSON")
        self.values: dict[str, Any] = values
        if values.get("quant_type") != "nf4":
            kind = shown(values.get("quant_type"))
            raise UnsupportedError(f"{self.where}: quant_type {kind} is not supported, only nf4")
        self.block = self.size(values.get("blocksize"), "blocksize")
        if self.block % _VALUES:
            raise UnsupportedError(
                f"{self.where}: blocksize {self.block} is not supported, only multiples of {_VALUES}"
            )
        shape = values.get("shape")
        if not isinstance(shape, list) or len(shape) != 2:
            raise FileError(f"{self.where}: shape: expected two numbers, got {shown(shape)}")
        self.out, self.columns = (self.size(n, "shape") for n in shape)

    def size(self, value: Any, key: str) -> int:
        if type(value) is not int or not 1 <= value < 2**31:
            raise FileError(f"{self.where}: {key}: expected 1 to 2^31 - 1, got {shown(value)}")
        return value

    @property
    def nested(self) -> int | None:
        value = self.values.get("nested_blocksize")
        return None if value is None else self.size(value, "nested_blocksize")

    @property
    def offset(self) -> np.float32:
        value = self.values.get("nested_offset")
        if type(value) not in (int, float):
            raise FileError(f"{self.where}: nested_offset: expected a number, got {shown(value)}")
        return np.float32(value)


def _flat(name: str, count: int, tensors: Tensors) -> np.ndarray:
    """float32 [count]."""
    values = tensors.flat(name, "F32")
    if len(values) != count:
        raise FileError(f"{tensors.where(name)}: expected {[count]}, got {[len(values)]}")
    return values


def _scales_of(prefix: str, state: _State, tensors: Tensors) -> np.ndarray:
    """One of each block of the file; with nested ones, a table's value times a scale of many blocks,
    and an offset."""
    name, count = f"{prefix}weight.absmax", -(-state.out * state.columns // state.block)
    many = state.nested
    if many is None:
        scales = _flat(name, count, tensors)
    else:
        codes = tensors.flat(name, "U8")
        if len(codes) != count:
            raise FileError(f"{tensors.where(name)}: expected {[count]}, got {[len(codes)]}")
        table = _flat(f"{prefix}weight.nested_quant_map", 256, tensors)
        outer = _flat(f"{prefix}weight.nested_absmax", -(-count // many), tensors)
        check_scales(outer, tensors.where(f"{prefix}weight.nested_absmax"), zero=True)
        scales = table[codes] * outer[np.arange(count) // many] + state.offset
    check_scales(scales, tensors.where(name), zero=True)
    return scales


def _pack(values: np.ndarray, scales: np.ndarray, state: _State) -> Blocks:
    """values: bytes of all rows, one after the other; scales: of the file's blocks."""
    rows = values.reshape(state.out, -1)
    blocks = np.empty((state.out, state.columns // _VALUES, _BYTES), np.uint8)
    of_block = np.arange(blocks.shape[0] * blocks.shape[1]) * _VALUES // state.block
    blocks[:, :, :4] = scales[of_block].astype("<f4").reshape(*blocks.shape[:2], 1).view(np.uint8)
    # The first of two neighbours is the high nibble.
    blocks[:, :, 4:] = pack_fours(rows >> 4 | rows << 4).reshape(*blocks.shape[:2], 32)
    return Blocks(blocks.reshape(state.out, -1), "nf4_g64", state.columns)


class Nf4(Packed):
    method = "bitsandbytes"
    rows_are_outputs = True

    def __init__(self, settings: Settings) -> None:
        if settings.values.get("load_in_4bit") is not True:
            raise UnsupportedError(
                f"{settings.where}: load_in_4bit is not true: 8 bits of bitsandbytes are not supported"
            )
        settings.only("load_in_8bit", False)
        if settings.only("bnb_4bit_quant_type", "nf4") is None:
            raise UnsupportedError(f"{settings.where}: bnb_4bit_quant_type fp4 is not supported")
        settings.only("bnb_4bit_quant_storage", "uint8")
        self._nested = settings.only("bnb_4bit_use_double_quant", False, True)

    def names_of(self, prefix: str, tensors: Tensors) -> list[str]:
        names = [f"{prefix}weight", *(f"{prefix}weight.{x}" for x in ("absmax", "quant_map"))]
        if names[0] not in tensors:
            return []
        if tensors.kind(names[0]) != "U8" and names[1] not in tensors:
            return []
        more = [f"{prefix}weight.nested_{x}" for x in ("absmax", "quant_map")]
        return [*names, f"{prefix}{_STATE}", *(name for name in more if name in tensors)]

    def prepare(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        state = _State(f"{prefix}{_STATE}", tensors)
        where = tensors.where(f"{prefix}weight")
        if state.columns % _VALUES:
            raise UnsupportedError(f"{where}: {state.columns} inputs are not whole blocks of {_VALUES}")
        if (state.nested is not None) != bool(self._nested):
            raise FileError(
                f"{state.where}: scales are {'' if state.nested else 'not '}quantised, but"
                f" bnb_4bit_use_double_quant is {shown(self._nested)}"
            )
        if (_flat(f"{prefix}weight.quant_map", 16, tensors) != _TABLE).any():
            raise FileError(f"{tensors.where(f'{prefix}weight.quant_map')}: not the 16 values of nf4")
        values = tensors.bytes_of(f"{prefix}weight", "U8")
        if values.shape != (state.out * state.columns // 2, 1):
            raise FileError(
                f"{where}: expected {[state.out * state.columns // 2, 1]} for a weight"
                f" {[state.out, state.columns]}, got {list(values.shape)}"
            )
        scales = _scales_of(prefix, state, tensors)
        return lambda: _pack(values, scales, state)
