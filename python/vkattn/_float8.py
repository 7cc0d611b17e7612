"""Weights of 8 bits that are floats, with scales of a tensor, of rows or of blocks, made into blocks of
f8_e4m3_g64 and f8_e5m2_g64, whose values are the same."""

from __future__ import annotations

from typing import Callable, NamedTuple

import numpy as np

from ._arrays import Array, any_array, widen
from ._errors import FileError, InvalidError, UnsupportedError
from ._int4 import Blocks
from ._packed import Packed, Settings, Tensors

_VALUES, _BYTES = 64, 68  # of a block: a float32 scale, then 64 values
_LEAST = float(np.finfo(np.float32).tiny)  # below it a device may take a scale for 0
FORMATS = ("f8_e4m3", "f8_e5m2")


class Extent(NamedTuple):
    """Rows and columns of a matrix that share a scale; None: all of them."""

    rows: int | None = None
    columns: int | None = None

    def groups(self, out: int, columns: int) -> tuple[int, int]:
        return -(-out // (self.rows or out)), -(-columns // (self.columns or columns))

    def __str__(self) -> str:
        if self.rows is None and self.columns is None:
            return "of the tensor"
        if self.columns is None:
            return "of rows" if self.rows == 1 else f"of {self.rows} rows"
        return f"of {self.rows or 'all'} x {self.columns} values"


def floats_of(scales: Array, what: str) -> np.ndarray:
    """Scales as float32: float32, float16, bfloat16, or exponents of 8 bits, uint8."""
    view, name = any_array(scales, what)
    if name == "bf16":
        return widen(view)
    if name == "uint8":  # e8m0: 2^(x - 127), of which 0xff is NaN
        powers = np.ldexp(np.float32(1), view.astype(np.int32) - 127)
        return np.where(view == 255, np.float32(np.nan), powers).astype(np.float32)
    if name not in ("f32", "f16"):
        raise UnsupportedError(f"{what}: expected scales of f32, f16 or bf16, got {name}")
    return view.astype(np.float32)


def check_scales(scales: np.ndarray, what: str, zero: bool = False) -> None:
    """zero: 0 is allowed, as that of values which all are 0."""
    wrong = ~np.isfinite(scales)
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise FileError(f"{what}: the scale at {at} is NaN or infinite")
    wrong = np.abs(scales) < _LEAST
    if zero:
        wrong &= scales != 0
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise FileError(f"{what}: the scale at {at} is {float(scales[tuple(at)]):g}, too small a one")


def spread_scales(
    scales: np.ndarray, extent: Extent, out: int, columns: int, step: int, what: str
) -> np.ndarray:
    """[out][columns / step], of scales that have the shape that extent says."""
    groups = extent.groups(out, columns)
    shapes: list[tuple[int, ...]] = [groups]
    if groups == (1, 1):
        shapes += [(), (1,)]
    elif groups[1] == 1:
        shapes += [groups[:1]]
    if scales.shape not in shapes:
        raise FileError(
            f"{what}: expected {list(groups)} scales {extent} for a weight"
            f" {[out, columns]}, got {list(scales.shape)}"
        )
    if extent.columns is not None and groups[1] > 1 and extent.columns % step:
        raise UnsupportedError(
            f"{what}: scales of {extent.columns} inputs are not supported, only of multiples of {step}"
        )
    rows = np.arange(out) // (extent.rows or out)
    starts = np.arange(columns // step) * step // (extent.columns or columns)
    return scales.reshape(groups)[rows][:, starts]


def _check_values(values: np.ndarray, format: str, what: str) -> None:
    """Row by row, as the whole may be gigabytes."""
    mask, least = (0x7F, 0x7F) if format == "f8_e4m3" else (0x7F, 0x7C)
    for i, row in enumerate(values):
        wrong = (row & np.uint8(mask)) >= least
        if wrong.any():
            column = int(np.argmax(wrong))
            raise FileError(f"{what}: the value at {[i, column]} is NaN or infinite")


def prepare_float8(
    values: np.ndarray, scales: Array, extent: Extent, format: str, what: str, scales_what: str
) -> Callable[[], np.ndarray]:
    """Checks all but the values, bytes [out][in]; what is returned makes blocks, uint8 [out][bytes of a
    row]."""
    if values.dtype != np.uint8 or values.ndim != 2:
        raise InvalidError(
            f"{what}: expected uint8 of 2 axes, got {values.dtype} {list(values.shape)}"
        )
    out, columns = values.shape
    if columns % _VALUES:
        raise UnsupportedError(f"{what}: {columns} inputs are not whole blocks of {_VALUES}")
    scale = floats_of(scales, scales_what)
    spread = spread_scales(scale, extent, out, columns, _VALUES, scales_what)
    check_scales(scale, scales_what)

    def pack() -> np.ndarray:
        _check_values(values, format, what)
        blocks = np.empty((out, columns // _VALUES, _BYTES), np.uint8)
        blocks[:, :, :4] = np.ascontiguousarray(spread, "<f4")[:, :, None].view(np.uint8)
        blocks[:, :, 4:] = values.reshape(out, -1, _VALUES)
        return blocks.reshape(out, -1)

    return pack


def repack_float8(
    values: Array,
    scales: Array,
    *,
    format: str = "f8_e4m3",
    block: tuple[int, int] | None = None,
    what: str = "weight",
) -> np.ndarray:
    """Blocks of f8_e4m3_g64 or f8_e5m2_g64, uint8 [out][bytes of a row]: what `Tensor.write_bytes` takes.
    Their values are those of the bytes times their scale, rounded once to float32.

    values: the bytes, uint8 [out][in], in a multiple of 64. format: "f8_e4m3" or "f8_e5m2". scales: floats,
    one for the tensor, [out] or [out][1] for its rows, or, with block=(rows, columns), [out / rows][in /
    columns], rounded up. FileError where a value or scale is NaN or infinite, or a scale is 0.
    """
    if format not in FORMATS:
        raise InvalidError(f"format: expected one of {', '.join(FORMATS)}, got {format!r}")
    view, _ = any_array(values, what)
    shape = np.shape(any_array(scales, f"{what}_scale")[0])
    extent = Extent(*block) if block else Extent(1) if np.prod(shape) > 1 else Extent()
    return prepare_float8(view, scales, extent, format, what, f"{what}_scale")()


# ---- Checkpoints --------------------------------------------------------------------------------

_KINDS = {"F8_E4M3": "f8_e4m3", "F8_E5M2": "f8_e5m2"}
_SCALES = ("weight_scale_inv", "weight_scale")
_TILE = 128  # rows and columns of a scale, where scales have two axes and nothing says of how many


def open_float8(
    prefix: str, scale_name: str, extent: Extent, tensors: Tensors, *kinds: str
) -> Callable[[], Blocks]:
    """Checks a weight; what is returned reads it. kinds: the types that it may have, as safetensors
    names them."""
    name = f"{prefix}weight"
    values = tensors.bytes_of(name, *kinds)
    format = _KINDS[tensors.kind(name)]
    pack = prepare_float8(
        values,
        tensors.array(scale_name),
        extent,
        format,
        tensors.where(name),
        tensors.where(scale_name),
    )
    return lambda: Blocks(pack(), f"{format}_g64", values.shape[1])


class Float8(Packed):
    """quant_method fp8, of DeepSeek, Qwen and Mistral: a weight and weight_scale_inv, which it is
    multiplied by; AutoFP8 and vLLM name it weight_scale."""

    method = "fp8"

    def __init__(self, settings: Settings) -> None:
        format = settings.only("fmt", "e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2")
        self._kind = "F8_E5M2" if format and "e5m2" in format else "F8_E4M3"
        settings.only("activation_scheme", "dynamic", "static")
        settings.only("scale_fmt", "float", "ue8m0")
        settings.only("dequantize", False, True)
        block = settings.pair("weight_block_size")
        self._extent = Extent(*block) if block else Extent()
        self._is_stated = "weight_block_size" in settings.values

    def names_of(self, prefix: str, tensors: Tensors) -> list[str]:
        weight = f"{prefix}weight"
        if weight not in tensors:
            return []
        scales = [f"{prefix}{x}" for x in _SCALES if f"{prefix}{x}" in tensors]
        if not scales and not tensors.kind(weight).startswith("F8_"):
            return []
        return [weight, *(scales or [f"{prefix}{_SCALES[0]}"])]

    def prepare(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        _, scale, *others = self.names_of(prefix, tensors)
        if others:
            raise FileError(f"{tensors.where(scale)}: there is {others[0]} as well")
        extent = self._extent
        if not self._is_stated and scale in tensors:
            shape = np.shape(any_array(tensors.array(scale), tensors.where(scale))[0])
            extent = Extent(_TILE, _TILE) if len(shape) == 2 and max(shape) > 1 else extent
        return open_float8(prefix, scale, extent, tensors, self._kind)
