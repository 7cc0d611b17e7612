"""Checkpoints of compressed-tensors: float8, integers of 4 and 8 bits, nvfp4 and mxfp4."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import numpy as np

from ._config import shown
from ._errors import FileError, UnsupportedError
from ._excluded import expression
from ._float8 import Extent, check_scales, floats_of, open_float8, spread_scales
from ._int4 import Blocks
from ._model_opt import GROUP, factor_of, prepare_nvfp4
from ._packed import Packed, Settings, Tensors

_NAMES = (
    *("weight_packed", "weight", "weight_scale", "weight_zero_point", "weight_shape"),
    *("weight_global_scale", "weight_g_idx"),
)
_BIAS = {4: 8, 8: 128}  # what a file adds to integers


class Scheme(NamedTuple):
    """What a config group says of weights."""

    bits: int
    is_float: bool
    extent: Extent
    symmetric: bool
    targets: tuple[str, ...]
    where: str


def _scheme_of(group: Settings, targets: Any) -> Scheme:
    weights = group.section("weights")
    kind, bits = weights.only("type", "float", "int"), weights.only("num_bits", 4, 8)
    if kind is None or bits is None:
        raise FileError(f"{weights.where}: there is no num_bits or no type")
    weights.only("dynamic", False)
    weights.only("actorder", "static", "weight")  # whose groups are neighbours in the end
    given, strategy = weights.values.get("group_size"), weights.values.get("strategy")
    by_rows = type(given) is int and given == -1
    size = None if by_rows else weights.size("group_size")
    if strategy is None:
        strategy = "channel" if by_rows else "group" if size else "tensor"
    block = weights.pair("block_structure")
    extents = {
        "tensor": Extent(),
        "channel": Extent(1),
        "group": Extent(1, size),
        "tensor_group": Extent(1, size),
        "block": Extent(*block) if block else None,
    }
    extent = extents.get(strategy) if isinstance(strategy, str) else None
    if extent is None or (strategy in ("group", "tensor_group") and not size):
        raise UnsupportedError(
            f"{weights.where}: strategy {shown(strategy)} is not supported with group_size"
            f" {shown(size)} and block_structure {shown(block)}"
        )
    if not isinstance(targets, list) or not all(isinstance(x, str) for x in targets):
        raise FileError(f"{group.where}: targets: expected names, got {shown(targets)}")
    symmetric = weights.only("symmetric", True, False) is not False
    return Scheme(bits, kind == "float", extent, symmetric, tuple(targets), weights.where)


def _is_target(name: str, target: str) -> bool:
    if target.startswith("re:"):
        matches = expression(target[3:])
        return matches is not None and matches(name)
    return name == target


def _halves(scales: np.ndarray) -> np.ndarray:
    """As float16, rounded."""
    with np.errstate(over="ignore", under="ignore"):
        return scales.astype(np.float16)


def _half_scales(scales: np.ndarray, what: str) -> np.ndarray:
    """As float16, which the blocks of integers have."""
    halves = _halves(scales)
    wrong = halves.astype(np.float32) != scales
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise UnsupportedError(
            f"{what}: the scale at {at} is {float(scales[tuple(at)])!r}, which is no float16, as"
            " blocks of integers need"
        )
    return np.ascontiguousarray(halves, "<f2")


def _pack_integers(
    values: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, scheme: Scheme
) -> Blocks:
    """values: integers without a sign [out][in]; scales of blocks as float16, [out][blocks]; zeros: of
    blocks, or None."""
    out, columns = values.shape
    step = columns // scales.shape[1]
    halves = scales[:, :, None].view(np.uint8)
    if scheme.bits == 8:
        blocks = np.empty((out, columns // 32, 34), np.uint8)
        blocks[:, :, :2] = halves
        blocks[:, :, 2:] = (values ^ 0x80).reshape(out, -1, 32)
        return Blocks(blocks.reshape(out, -1), "q8_0", columns)
    if step == 128:
        blocks = np.empty((out, columns // 128, 68), np.uint8)
        pairs = values.reshape(out, -1, 64, 2)
        blocks[:, :, :64] = pairs[..., 0] | pairs[..., 1] << 4
        blocks[:, :, 64:66] = halves
        blocks[:, :, 66] = _BIAS[4] if zeros is None else zeros
        blocks[:, :, 67] = 0
        return Blocks(blocks.reshape(out, -1), "i4_g128", columns)
    blocks = np.empty((out, columns // 32, 18), np.uint8)
    sides = values.reshape(out, -1, 2, 16)
    blocks[:, :, :2] = halves
    blocks[:, :, 2:] = sides[:, :, 0] | sides[:, :, 1] << 4
    return Blocks(blocks.reshape(out, -1), "q4_0", columns)


def _unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """Integers without a sign [rows][columns of all], of integers with one, or of words of 32 bits, which
    hold them from the lowest bits on."""
    if words.dtype.itemsize == 1:
        return words.view(np.uint8) ^ np.uint8(0x80)
    raw = np.ascontiguousarray(words, "<i4").view(np.uint8).reshape(len(words), -1)
    if bits == 8:
        return raw
    values = np.empty((len(words), raw.shape[1] * 2), np.uint8)
    values[:, ::2], values[:, 1::2] = raw & 15, raw >> 4
    return values


class Compressed(Packed):
    method = "compressed-tensors"

    def __init__(self, settings: Settings) -> None:
        settings.only("quantization_status", "compressed")
        for key, plain in (("sparsity_config", "format"), ("transform_config", "config_groups")):
            value = settings.values.get(key)
            if isinstance(value, dict) and value.get(plain) not in (None, "dense", {}):
                raise UnsupportedError(f"{settings.where}: {key} {shown(value)} is not supported")
        groups = settings.section("config_groups")
        self._schemes = []
        for name in groups.values:
            group = groups.section(name)
            self._schemes.append(_scheme_of(group, group.values.get("targets")))
        if not self._schemes:
            raise FileError(f"{groups.where}: there is no group")

    def _scheme(self, prefix: str, tensors: Tensors) -> Scheme:
        """That of a group that names the layer, else that of all linear ones."""
        name = prefix[:-1]
        for scheme in self._schemes:
            if any(_is_target(name, target) for target in scheme.targets):
                return scheme
        for scheme in self._schemes:
            if "Linear" in scheme.targets:
                return scheme
        raise FileError(
            f"{tensors.path}: {name}: its weight is quantised, but no config group of"
            " quantization_config has it as a target"
        )

    def names_of(self, prefix: str, tensors: Tensors) -> list[str]:
        names = [prefix + name for name in _NAMES if prefix + name in tensors]
        weight = f"{prefix}weight"
        is_float = weight in tensors and tensors.kind(weight) not in ("F8_E4M3", "I8", "U8")
        return [] if not names or (is_float and names == [weight]) else names

    def prepare(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        scheme = self._scheme(prefix, tensors)
        if f"{prefix}weight_g_idx" in tensors:
            raise UnsupportedError(
                f"{tensors.where(f'{prefix}weight_g_idx')}: an order of activations is not supported"
            )
        if not scheme.is_float:
            return self._integers(prefix, scheme, tensors)
        if not scheme.symmetric or f"{prefix}weight_zero_point" in tensors:
            raise UnsupportedError(f"{scheme.where}: floats with zero points are not supported")
        if scheme.bits == 8:
            return open_float8(prefix, f"{prefix}weight_scale", scheme.extent, tensors, "F8_E4M3")
        return self._fours(prefix, scheme, tensors)

    def _fours(self, prefix: str, scheme: Scheme, tensors: Tensors) -> Callable[[], Blocks]:
        """nvfp4, whose scales are divided by weight_global_scale, or mxfp4."""
        name, scale = f"{prefix}weight_packed", f"{prefix}weight_scale"
        values = tensors.bytes_of(name, "U8")
        where, scale_where = tensors.where(name), tensors.where(scale)
        if scheme.extent.columns == GROUP:
            divisor = factor_of(f"{prefix}weight_global_scale", tensors)
            scales = tensors.bytes_of(scale, "F8_E4M3")
            return prepare_nvfp4(values, scales, 1 / divisor, where, scale_where)
        if scheme.extent.columns != 32:
            raise UnsupportedError(
                f"{scheme.where}: group_size {scheme.extent.columns} is not supported, only {GROUP} and 32"
            )
        scales = tensors.bytes_of(scale, "U8", "F8_E8M0")
        return prepare_mxfp4(values, scales, where, scale_where)

    def _integers(self, prefix: str, scheme: Scheme, tensors: Tensors) -> Callable[[], Blocks]:
        name, scale = f"{prefix}weight_packed", f"{prefix}weight_scale"
        if name in tensors:
            raw = tensors.bytes_of(name, "I32")
            out, columns = raw.shape[0], raw.shape[1] * 32 // scheme.bits
            shape = tensors.flat(f"{prefix}weight_shape", "I64", "I32").tolist()
            if shape != [out, columns]:
                raise FileError(
                    f"{tensors.where(name)}: {list(raw.shape)} words of {scheme.bits} bits, as"
                    f" quantization_config says, do not hold weight_shape {shape}"
                )
        elif scheme.bits == 8:
            name = f"{prefix}weight"
            raw = tensors.bytes_of(name, "I8")
            out, columns = raw.shape
        else:
            raise FileError(f"{tensors.path}: there is no tensor {name}")
        where = tensors.where(name)
        group = scheme.extent.columns or columns
        step = 128 if scheme.bits == 4 and group % 128 == 0 and columns % 128 == 0 else 32
        if columns % step:
            raise UnsupportedError(f"{where}: {columns} inputs are not whole blocks of {step}")
        floats = floats_of(tensors.array(scale), tensors.where(scale))
        spread = spread_scales(floats, scheme.extent, out, columns, step, tensors.where(scale))
        check_scales(floats, tensors.where(scale))
        zeros = self._zeros(prefix, scheme, out, columns, step, tensors)
        if zeros is not None and step != 128:
            raise UnsupportedError(
                f"{where}: zero points of {columns} inputs in groups of {scheme.extent.columns} are not"
                " supported, only of multiples of 128"
            )
        rows = None
        if scheme.extent.columns is None and (_halves(spread) != spread).any():
            # Float32 scales of rows, which blocks have not: they multiply sums.
            rows, spread = np.ascontiguousarray(spread[:, 0]), np.ones_like(spread)
        halves = _half_scales(spread, tensors.where(scale))

        def pack() -> Blocks:
            blocks = _pack_integers(_unpack(raw, scheme.bits), halves, zeros, scheme)
            return blocks._replace(scale=rows)

        return pack

    def _zeros(
        self, prefix: str, scheme: Scheme, out: int, columns: int, step: int, tensors: Tensors
    ) -> np.ndarray | None:
        """Zero points of blocks, packed along the rows; None: all are 0."""
        name = f"{prefix}weight_zero_point"
        if scheme.symmetric:
            kinds = "I32", "I8", "U8"
            if name in tensors and tensors.flat(name, *kinds).any():
                raise FileError(
                    f"{tensors.where(name)}: zero points, but quantization_config says symmetric"
                )
            return None
        if scheme.bits == 8:
            raise UnsupportedError(f"{scheme.where}: zero points of 8 bits are not supported")
        zeros = _unpack(tensors.bytes_of(name, "I32").T, 4).T
        rows, groups = scheme.extent.groups(out, columns)
        if zeros.shape != (-(-rows // 8) * 8, groups):
            raise FileError(
                f"{tensors.where(name)}: expected words of {[rows, groups]} zero points, got those of"
                f" {list(zeros.shape)}"
            )
        where = tensors.where(name)
        return spread_scales(zeros[:rows], scheme.extent, out, columns, step, where)


def prepare_mxfp4(
    values: np.ndarray, scales: np.ndarray, what: str, scales_what: str
) -> Callable[[], Blocks]:
    """Checks scales and shapes; what is returned makes the blocks. values: bytes [out][in / 2], the
    first of two neighbours low; scales: exponents [out][in / 32]."""
    out, columns = values.shape[0], values.shape[1] * 2
    if columns % 32:
        raise UnsupportedError(f"{what}: {columns} inputs are not whole blocks of 32")
    if scales.shape != (out, columns // 32):
        raise FileError(
            f"{scales_what}: expected {[out, columns // 32]} scales of 32 inputs, got"
            f" {list(scales.shape)}"
        )
    wrong = scales == 255
    if wrong.any():
        raise FileError(f"{scales_what}: the scale at {np.argwhere(wrong)[0].tolist()} is NaN")

    def pack() -> Blocks:
        nibbles = np.empty((out, columns), np.uint8)
        nibbles[:, ::2], nibbles[:, 1::2] = values & 15, values >> 4
        sides = nibbles.reshape(out, -1, 2, 16)
        blocks = np.empty((out, columns // 32, 17), np.uint8)
        blocks[:, :, 0] = scales
        blocks[:, :, 1:] = sides[:, :, 0] | sides[:, :, 1] << 4
        return Blocks(blocks.reshape(out, -1), "mxfp4", columns)

    return pack
