"""Checkpoints of NVIDIA's ModelOpt: float8 with a scale of the tensor or of blocks, and nvfp4 whose scales
are multiplied by weight_scale_2."""

from __future__ import annotations

from typing import Callable

import numpy as np

from ._config import shown
from ._errors import FileError, UnsupportedError
from ._float8 import Extent, check_scales, floats_of, open_float8
from ._int4 import Blocks
from ._packed import Packed, Settings, Tensors

ALGORITHMS = ("FP8", "FP8_PB_WO", "NVFP4")
GROUP = 16  # inputs that share a scale of nvfp4
_TILE = 128  # rows and columns of FP8_PB_WO


def pack_fours(values: np.ndarray) -> np.ndarray:
    """Bytes [out][columns / 2] whose low nibble is the first of two neighbours: [out][columns /
    16][8], the low nibbles of which are the first eight of sixteen."""
    out = values.shape[0]
    nibbles = np.empty((out, values.shape[1] * 2), np.uint8)
    nibbles[:, ::2], nibbles[:, 1::2] = values & 15, values >> 4
    sixteen = nibbles.reshape(out, -1, 2, 8)
    packed: np.ndarray = sixteen[:, :, 0] | sixteen[:, :, 1] << 4
    return packed


def prepare_nvfp4(
    values: np.ndarray, scales: np.ndarray, factor: float, what: str, scales_what: str
) -> Callable[[], Blocks]:
    """Checks scales and shapes; what is returned makes the blocks. values: bytes [out][in / 2]; scales:
    e4m3 bytes [out][in / 16]; factor: what all are multiplied by."""
    out, columns = values.shape[0], values.shape[1] * 2
    if columns % 64:
        raise UnsupportedError(f"{what}: {columns} inputs are not whole blocks of 64")
    if scales.shape != (out, columns // GROUP):
        raise FileError(
            f"{scales_what}: expected {[out, columns // GROUP]} scales of {GROUP} inputs, got"
            f" {list(scales.shape)}"
        )
    wrong = scales >= 0x7F
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise FileError(f"{scales_what}: the scale at {at} is NaN or below 0")

    def pack() -> Blocks:
        blocks = np.empty((out, columns // 64, 36), np.uint8)
        blocks[:, :, :4] = scales.reshape(out, -1, 4)
        blocks[:, :, 4:] = pack_fours(values).reshape(out, -1, 32)
        factors = np.full(out, factor, np.float32)
        return Blocks(blocks.reshape(out, -1), "nvfp4", columns, factors)

    return pack


def factor_of(name: str, tensors: Tensors) -> float:
    """The only number of a tensor."""
    scale = floats_of(tensors.array(name), tensors.where(name))
    if scale.size != 1:
        raise FileError(f"{tensors.where(name)}: expected one scale, got {list(scale.shape)}")
    check_scales(scale, tensors.where(name))
    return float(scale.reshape(-1)[0])


class ModelOpt(Packed):
    method = "modelopt"

    def __init__(self, settings: Settings) -> None:
        algorithm = settings.values.get("quant_algo")
        if algorithm not in ALGORITHMS:
            raise UnsupportedError(
                f"{settings.where}: quant_algo {shown(algorithm)} is not supported; expected one of"
                f" {', '.join(ALGORITHMS)}"
            )
        self._algorithm = algorithm
        if algorithm == "NVFP4":
            settings.only("group_size", GROUP)

    def names_of(self, prefix: str, tensors: Tensors) -> list[str]:
        names = [f"{prefix}weight", f"{prefix}weight_scale"]
        if self._algorithm == "NVFP4":
            names.append(f"{prefix}weight_scale_2")
        if names[0] not in tensors:
            return []
        is_float = tensors.kind(names[0]) not in ("F8_E4M3", "F8_E5M2", "U8")
        return [] if is_float and not any(name in tensors for name in names[1:]) else names

    def prepare(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        weight, scale = f"{prefix}weight", f"{prefix}weight_scale"
        if self._algorithm != "NVFP4":
            extent = Extent() if self._algorithm == "FP8" else Extent(_TILE, _TILE)
            return open_float8(prefix, scale, extent, tensors, "F8_E4M3")
        values, scales = tensors.bytes_of(weight, "U8"), tensors.bytes_of(scale, "F8_E4M3")
        factor = factor_of(f"{prefix}weight_scale_2", tensors)
        return prepare_nvfp4(values, scales, factor, tensors.where(weight), tensors.where(scale))
