"""Masks: PyTorch's padding mask, made one of the library's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._arrays import FLOATS, HostArray, any_array, host_array, warn, widen
from ._device import Tensor
from ._errors import InvalidError

_BF16_MINUS_INFINITY = np.uint16(0xFF80)
_warned = False


class Sizes(NamedTuple):
    """The shape of the scores that a mask broadcasts against. n_kv counts past keys, and is the
    capacity where there is a cache."""

    batch: int
    n_head: int
    n_q: int
    n_kv: int


def mask_of(mask: Any, padding: Any, sizes: Sizes) -> Any:
    """The one mask, an array or a Tensor, that means both where both are given."""
    if mask is not None and not isinstance(mask, Tensor):
        mask = host_mask(mask, sizes)
    if padding is None:
        if mask is not None:
            _warn_of_padding(mask.shape if isinstance(mask, Tensor) else mask.data.shape, sizes)
        return mask
    if isinstance(padding, Tensor):
        raise InvalidError(
            "key_padding_mask: expected an array, not a Tensor, as True hides here and shows in a"
            " mask; a Tensor [batch][1][1][n_kv] can be mask="
        )
    hides = host_array(padding, "key_padding_mask")
    if hides.dtype not in ("bool", *FLOATS):
        raise InvalidError(f"key_padding_mask: expected bool or floats, got {hides.dtype}")
    if hides.data.shape != (sizes.batch, sizes.n_kv):
        raise InvalidError(
            f"key_padding_mask: expected [batch][n_kv], [{sizes.batch}, {sizes.n_kv}], got"
            f" {list(hides.data.shape)}"
        )
    rows = hides.data[:, None, None, :]
    alone = HostArray(~rows, "bool") if hides.dtype == "bool" else HostArray(rows, hides.dtype)
    return alone if mask is None else _both(mask, alone, sizes)


def host_mask(mask: Any, sizes: Sizes) -> HostArray:
    """The mask in an element type of the library, float64 as float32, whole numbers as bool; of
    PyTorch's [batch * n_head][n_q][n_kv] the first axis is split."""
    view, name = any_array(mask, "mask")
    if name == "float64":
        host = host_array(view, "mask", "f32")
    elif name == "int64":
        if not np.isin(view, (0, 1)).all():
            raise InvalidError("mask: expected 0 (hidden) and 1 (visible) of int64")
        host = host_array(view != 0, "mask")
    else:
        host = host_array(mask, "mask")
    shape = host.data.shape
    if len(shape) == 3 and sizes.batch > 1 and shape[0] == sizes.batch * sizes.n_head:
        host = host._replace(data=host.data.reshape(sizes.batch, sizes.n_head, *shape[1:]))
    return host


def _both(mask: Any, padding: HostArray, sizes: Sizes) -> HostArray:
    """padding [batch][1][1][n_kv], True shows. The result has as many elements as the two need."""
    if isinstance(mask, Tensor):
        raise InvalidError(
            "mask: expected an array beside key_padding_mask, not a Tensor: the two are joined on"
            " the host"
        )
    n = mask.data.shape[-1]
    if n != 1:  # keys beyond a shorter mask are hidden
        padding = padding._replace(data=padding.data[..., :n])
    try:
        np.broadcast_shapes(mask.data.shape, padding.data.shape)
    except ValueError:
        raise InvalidError(
            f"mask: expected what broadcasts against [{sizes.batch}][n_head][{sizes.n_q}]"
            f"[{sizes.n_kv}], got {list(mask.data.shape)}"
        ) from None
    if mask.dtype == padding.dtype == "bool":
        return HostArray(mask.data & padding.data, "bool")
    if mask.dtype == "bool":
        return _hidden(padding, mask)
    if padding.dtype == "bool":
        return _hidden(mask, padding)
    floats = [widen(x.data) if x.dtype == "bf16" else x.data for x in (mask, padding)]
    return HostArray(np.add(*floats, dtype=np.float32), "f32")


def _hidden(bias: HostArray, shows: HostArray) -> HostArray:
    """bias where shows is True, else -inf."""
    if bias.dtype not in FLOATS:
        raise InvalidError(f"mask: expected bool or floats, got {bias.dtype}")
    lowest = _BF16_MINUS_INFINITY if bias.dtype == "bf16" else bias.data.dtype.type(-np.inf)
    return HostArray(np.where(shows.data, bias.data, lowest), bias.dtype)


def _warn_of_padding(shape: tuple[int, ...], sizes: Sizes) -> None:
    """Once a process: [n_q][n_kv] that has the shape of a padding mask as well."""
    global _warned
    if _warned or len(shape) != 2 or not 1 < shape[0] == sizes.n_q == sizes.batch:
        return
    _warned = True
    warn(
        f"mask: {list(shape)} is taken for [n_q][n_kv], and batch is {sizes.batch} too; a padding"
        " mask [batch][n_kv] is key_padding_mask=, where True hides; [1][1][n_q][n_kv] cannot be"
        " mistaken"
    )
