"""Weights of 4 bits in GPTQ's and AWQ's checkpoints, made into blocks of i4_g128."""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple

import numpy as np

from ._arrays import Array, host_array
from ._config import read_json_file, shown
from ._errors import FileError, InvalidError, UnsupportedError
from ._excluded import Excluded

FORMATS = ("gptq", "gptq_v2", "awq")
# What a config may name, the first of them where it names none.
_NAMED = {"gptq": ("gptq", "gptq_v2"), "awq": ("gemm",)}
_VALUES, _BYTES = 128, 68  # of a block: 128 values of 4 bits, a float16 scale, a zero point
# Where in a word of AWQ column j of eight lies.
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
_NAMES = ("qweight", "qzeros", "scales", "g_idx")


class Blocks(NamedTuple):
    """Rows of quantised weights on the host."""

    data: np.ndarray  # uint8 [out][bytes of a row]
    dtype: str
    columns: int
    scale: np.ndarray | None = None  # float32 [out], by which rows are multiplied

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.columns


class Packing(NamedTuple):
    """What quantization_config says of all weights of a checkpoint."""

    format: str
    group_size: int  # -1: all inputs of a row are one group
    needs_order: bool  # desc_act: only g_idx says which group an input is of
    symmetric: bool = False  # sym: every zero point is 8
    excluded: Excluded | None = None


def _words(array: Array, what: str) -> np.ndarray:
    host = host_array(array, what)
    if host.dtype != "i32" or host.data.ndim != 2:
        raise UnsupportedError(
            f"{what}: expected i32 of 2 axes, got {host.dtype} {list(host.data.shape)}"
        )
    return host.data.view(np.uint32)


def _check_bits(columns: int, out: int, what: str) -> None:
    if columns * 32 == out * 4:
        return
    if columns * 32 % out == 0:
        raise UnsupportedError(
            f"{what}.qzeros: {columns * 32 // out} bits a value are not supported, only 4"
        )
    raise FileError(
        f"{what}.qzeros: {columns} columns do not fit {out} columns of scales at 4 bits"
    )


def _find_group(group_size: int, groups: int, columns: int, what: str) -> int:
    """Inputs that share a scale."""
    size = columns if group_size == -1 else group_size or columns // groups
    if size < 1 or -(-columns // size) != groups or (not group_size and columns % groups):
        raise FileError(
            f"{what}.scales: {groups} groups do not divide {columns} inputs into groups of {size}"
        )
    if size % _VALUES:
        raise UnsupportedError(
            f"{what}.scales: groups of {size} inputs are not supported, only multiples of {_VALUES}"
        )
    return size


def _unpack_awq(words: np.ndarray) -> np.ndarray:
    """Values [rows][8 * columns] of words [rows][columns]."""
    values = np.empty((words.shape[0], words.shape[1] * 8), np.uint8)
    for j, place in enumerate(_AWQ_PLACES):
        values[:, j::8] = (words >> np.uint32(4 * place)) & 15
    return values


def _unpack_zeros(words: np.ndarray, format: str) -> np.ndarray:
    if format == "awq":
        return _unpack_awq(words)
    if format == "gptq":  # words less 0x11111111, where a zero point of 0 takes 1 of its neighbour
        words = words + np.uint32(0x11111111)
    values: np.ndarray = (words[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    return values.reshape(words.shape[0], -1)


def _pack_values(words: np.ndarray, format: str) -> np.ndarray:
    """Rows of two values a byte, the first one low."""
    if format == "awq":
        rows = _unpack_awq(words).T
        packed: np.ndarray = rows[:, ::2] | rows[:, 1::2] << 4
        return packed
    # A word is 8 neighbours of a row from the lowest bits up: four bytes of it.
    by_word = words.astype("<u4").view(np.uint8).reshape(*words.shape, 4)
    return by_word.transpose(1, 0, 2).reshape(words.shape[1], -1)


def _check_order(g_idx: Array, group: int, columns: int, what: str) -> None:
    order = host_array(g_idx, f"{what}.g_idx")
    if order.dtype != "i32" or order.data.shape != (columns,):
        raise FileError(
            f"{what}.g_idx: expected i32 [{columns}], got {order.dtype} {list(order.data.shape)}"
        )
    wrong = np.flatnonzero(order.data != np.arange(columns) // group)
    if wrong.size:
        raise UnsupportedError(
            f"{what}.g_idx: input {wrong[0]} is not of group {wrong[0] // group}: g_idx in the"
            " order of activations (desc_act) is not supported"
        )


def repack_int4(
    qweight: Array,
    qzeros: Array,
    scales: Array,
    g_idx: Array | None = None,
    *,
    format: str,
    group_size: int = 0,
    what: str = "weight",
) -> np.ndarray:
    """Blocks of i4_g128 of one linear layer of a checkpoint, uint8 [out][bytes of a row]: what
    `Tensor.write_bytes` takes. Their values are exactly those of the file.

    format: "gptq", qweight i32 [in / 8][out], qzeros i32 [groups][out / 8], words of zero
    points less 0x11111111, scales f16 [groups][out]; "gptq_v2", with zero points as they are; "awq" (version gemm), qweight i32
    [in][out / 8]. group_size: inputs that share a scale, 0 for in / groups, -1 for all; it has to
    be a multiple of 128, as has in. g_idx: i32 [in], refused where it is not the order i /
    group_size. what: the name in sentences.
    """
    if format not in FORMATS:
        raise InvalidError(f"format: expected one of {', '.join(FORMATS)}, got {format!r}")
    return _prepare(qweight, qzeros, scales, g_idx, format, group_size, what)()


def _prepare(
    qweight: Array,
    qzeros: Array,
    scales: Array,
    g_idx: Array | None,
    format: str,
    group_size: int,
    what: str,
) -> Callable[[], np.ndarray]:
    """Checks all but the values; what is returned makes the blocks."""
    weight, zeros = _words(qweight, f"{what}.qweight"), _words(qzeros, f"{what}.qzeros")
    scale = host_array(scales, f"{what}.scales")
    if scale.dtype != "f16" or scale.data.ndim != 2:
        raise UnsupportedError(
            f"{what}.scales: expected f16 of 2 axes, got {scale.dtype} {list(scale.data.shape)}"
        )
    groups, out = scale.data.shape
    _check_bits(zeros.shape[1], out, what)
    columns = weight.shape[0] * (1 if format == "awq" else 8)
    if weight.shape[1] != (out // 8 if format == "awq" else out) or zeros.shape[0] != groups:
        raise FileError(f"{what}: the shapes of qweight, qzeros and scales do not fit each other")
    if columns % _VALUES:
        raise UnsupportedError(
            f"{what}.qweight: {columns} inputs are not whole blocks of {_VALUES}"
        )
    group = _find_group(group_size, groups, columns, what)
    if g_idx is not None:
        if format == "awq":
            raise UnsupportedError(f"{what}.g_idx: AWQ has no g_idx")
        _check_order(g_idx, group, columns, what)
    if not np.isfinite(scale.data).all():
        raise FileError(f"{what}.scales: a scale is NaN or infinite")

    def pack() -> np.ndarray:
        of_block = np.arange(columns // _VALUES) * _VALUES // group
        blocks = np.empty((out, len(of_block), _BYTES), np.uint8)
        blocks[:, :, :64] = _pack_values(weight, format).reshape(out, -1, 64)
        for at, values in ((64, scale.data), (66, _unpack_zeros(zeros, format))):
            halves = values.astype("<f2" if at == 64 else "<u2")[of_block].T
            blocks[:, :, at : at + 2] = np.ascontiguousarray(halves)[:, :, None].view(np.uint8)
        return blocks.reshape(out, -1)

    return pack


# ---- Checkpoints --------------------------------------------------------------------------------


def packing_of(config: Any, where: str, method: str | None = None) -> Packing:
    """What quantization_config says, or the file of an old program, whose name says the method."""
    if not isinstance(config, dict):
        raise FileError(f"{where}: quantization_config: expected an object")

    def only(key: str, *allowed: Any) -> None:
        value = config.get(key)
        value = value.lower() if isinstance(value, str) else value
        if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
            raise UnsupportedError(f"{where}: {key} {shown(config[key])} is not supported")

    def stated(*keys: str) -> str:
        """What one or several of the keys say alike, in lower case."""
        said = {key: config[key] for key in keys if config.get(key) is not None}
        for key, value in said.items():
            if not isinstance(value, str) or value.lower() not in _NAMED[str(method)]:
                raise UnsupportedError(f"{where}: {key} {shown(value)} is not supported")
        values = {value.lower() for value in said.values()}
        if len(values) > 1:
            raise FileError(
                f"{where}: {' and '.join(said)} differ: {shown(list(said.values()))}"
            )
        return values.pop() if values else _NAMED[str(method)][0]

    method = config.get("quant_method", method)
    if method not in ("gptq", "awq"):
        raise UnsupportedError(
            f"{where}: quant_method {shown(method)} is not supported; expected gptq or awq"
        )
    for key in ("bits", "w_bit"):
        only(key, 4)
    only("pack_dtype", "int32")
    only("dynamic", {})
    only("zero_point", True)
    if method == "awq":
        stated("version", "format", "checkpoint_format")
        if str(config.get("backend")).lower() == "llm-awq":
            raise UnsupportedError(f"{where}: backend 'llm-awq' is not supported")
        format = "awq"
    else:
        format = stated("format", "checkpoint_format")
        only("is_marlin_format", False)
    only("sym", True, False)
    size = config.get("group_size", config.get("q_group_size", 128))
    if type(size) is not int or not (size == -1 or 1 <= size < 2**31):
        raise FileError(f"{where}: group_size: expected a whole number or -1, got {shown(size)}")
    symmetric = method == "gptq" and config.get("sym") is True
    order, excluded = config.get("desc_act") is True, Excluded(config, where)
    return Packing(format, size, order, symmetric, excluded)


def packing_beside(folder: str, config: Any, where: str) -> Packing:
    """config: the quantization_config of config.json, or None; then of the files that old programs
    wrote."""
    if config is not None:
        return packing_of(config, where)
    for name, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            return packing_of(read_json_file(path), path, method)
    raise UnsupportedError(
        f"{folder}: there are tensors qweight, but no quantization_config says how they are packed"
    )


def _format_of(packing: Packing, qzeros: Array, what: str) -> str:
    """The format; for symmetric weights the one in which all zero points are 8, whatever the config
    names: GPTQModel 5 writes them as gptq_v2 has them, and says gptq."""
    if not packing.symmetric:
        return packing.format
    stored = _words(qzeros, f"{what}.qzeros")
    for format, word in (("gptq", 0x77777777), ("gptq_v2", 0x88888888)):
        if (stored == word).all():
            return format
    raise UnsupportedError(
        f"{what}.qzeros: zero points other than 8, but quantization_config says sym"
    )


def prepare_int4(
    prefix: str, names: Any, array: Callable[[str], Any], packing: Packing, path: str
) -> Callable[[], Blocks]:
    """Checks the weight of the linear layer `prefix`, whose name ends in a dot or is empty; what is
    returned reads it."""
    what = f"{path}: {prefix[:-1]}" if prefix else path
    for name in _NAMES[:3]:
        if prefix + name not in names:
            raise InvalidError(f"{path}: there is no tensor {prefix}{name}")
    qweight, qzeros, scales = (array(prefix + name) for name in _NAMES[:3])
    g_idx = array(f"{prefix}g_idx") if f"{prefix}g_idx" in names else None
    if g_idx is None and packing.needs_order:
        raise UnsupportedError(f"{what}: desc_act without a tensor g_idx is not supported")
    format = _format_of(packing, qzeros, what)
    pack = _prepare(qweight, qzeros, scales, g_idx, format, packing.group_size, what)

    def read() -> Blocks:
        data = pack()
        return Blocks(data, "i4_g128", data.shape[1] // _BYTES * _VALUES)

    return read


def int4_names(prefix: str, names: Any) -> list[str]:
    """The names of the tensors that `prepare_int4` takes."""
    return [prefix + name for name in _NAMES if prefix + name in names]
