"""Caches."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from ._abi import ffi, lib, new_struct
from ._arrays import DTYPES, DType, check_dtype
from ._core import Child
from ._device import Device, Place, pick_device
from ._numbers import put, reals, whole, wholes


def _set_scales(info: Any, name: str, scales: Sequence[float] | None, n_kv_head: int) -> Any:
    """Returns what the struct points to."""
    if scales is None:
        return None
    floats = ffi.new("float[]", reals(scales, name, n_kv_head))
    setattr(info, name, floats)
    return floats


@dataclasses.dataclass(frozen=True)
class CacheLayer:
    """What one layer of a cache holds: keys and values, with n_kv_head and head_dim and the rest as
    `Cache` has them, or a state: n_state matrices [head_dim][value_dim] of linear attention, the last
    conv_rows rows of a causal convolution's channels, or both."""

    n_kv_head: int = 0
    head_dim: int = 0
    value_dim: int = 0
    key_dtype: DType = "f32"
    value_dtype: DType | None = None
    key_scales: Sequence[float] | None = None
    value_scales: Sequence[float] | None = None
    no_hadamard: bool = False
    n_state: int = 0
    channels: int = 0
    conv_rows: int = 0


def _write_layer(to: Any, layer: CacheLayer, name: str) -> list[Any]:
    """Returns what the struct points to."""
    if not isinstance(layer, CacheLayer):
        raise TypeError(f"{name}: expected a CacheLayer, got {type(layer).__name__}")
    to.struct_size = ffi.sizeof("struct vka_cache_layer_info")
    put(to, n_kv_head=layer.n_kv_head, head_dim=layer.head_dim, value_dim=layer.value_dim)
    put(to, n_state=layer.n_state, channels=layer.channels, conv_rows=layer.conv_rows)
    put(to, no_hadamard=layer.no_hadamard)
    value_dtype = layer.key_dtype if layer.value_dtype is None else layer.value_dtype
    to.key_dtype = DTYPES[check_dtype(layer.key_dtype, f"{name}.key_dtype")]
    to.value_dtype = DTYPES[check_dtype(value_dtype, f"{name}.value_dtype")]
    return [
        _set_scales(to, "key_scales", layer.key_scales, to.n_kv_head),
        _set_scales(to, "value_scales", layer.value_scales, to.n_kv_head),
    ]


class Cache(Child):
    """Keys and values of `batch` sequences, up to `capacity` positions each, with their lengths on
    the device: a plan with a cache appends its new keys and values and attends over all of them,
    so that one recorded plan serves every step of decoding.

    key_dtype, value_dtype: "f32", "f16", "bf16", "q8_0", "q4_0" or "f8_e4m3"; value_dtype is
    key_dtype by default. key_scales, value_scales: of f8_e4m3, one for each key head, 1 by default:
    x is kept as the nearest float8 to x / scale, up to 448. value_dim: head_dim by default.
    n_layer: layers that share the lengths, see vkattn_cache.h. layers: a CacheLayer for each of them, in
    place of n_layer and of what all layers hold; some may hold a state. page_size: 0 for
    contiguous sequences; paged, positions of a page, a multiple of 16 from 16 to 256. n_page: pages
    of the pool, by default enough.
    """

    device: Device

    def __init__(
        self,
        device: Place = None,
        *,
        batch: int,
        n_kv_head: int | None = None,
        head_dim: int | None = None,
        capacity: int,
        value_dim: int | None = None,
        n_layer: int | None = None,
        key_dtype: DType = "f32",
        value_dtype: DType | None = None,
        no_hadamard: bool = False,
        key_scales: Sequence[float] | None = None,
        value_scales: Sequence[float] | None = None,
        page_size: int = 0,
        n_page: int | None = None,
        layers: Sequence[CacheLayer] | None = None,
    ) -> None:
        device = pick_device(device)
        info = new_struct("vka_cache_info")
        put(info, batch=batch, capacity=capacity)
        kept: list[Any] = []  # until the call below returns
        if layers is None:
            if n_kv_head is None or head_dim is None:
                raise TypeError("Cache: expected n_kv_head and head_dim, or layers")
            put(info, n_kv_head=n_kv_head, head_dim=head_dim)
            # C would take a 0 in one of these for a default.
            info.n_layer = whole(1 if n_layer is None else n_layer, "n_layer", 1)
        else:
            if n_layer is not None or n_kv_head is not None or head_dim is not None:
                raise TypeError("layers: n_layer, n_kv_head and head_dim are those of each layer")
            info.n_layer = len(layers)
            info.layers = array = ffi.new("struct vka_cache_layer_info[]", len(layers))
            kept += [
                array,
                *(_write_layer(array[i], x, f"layers[{i}]") for i, x in enumerate(layers)),
            ]
        if value_dim is not None:
            info.value_dim = whole(value_dim, "value_dim", 1)
        if n_page is not None:
            info.n_page = whole(n_page, "n_page", 1)
        info.key_dtype = DTYPES[check_dtype(key_dtype, "key_dtype")]
        info.value_dtype = DTYPES[
            check_dtype(key_dtype if value_dtype is None else value_dtype, "value_dtype")
        ]
        put(info, no_hadamard=no_hadamard, page_size=page_size)
        kept += [
            _set_scales(info, "key_scales", key_scales, info.n_kv_head),
            _set_scales(info, "value_scales", value_scales, info.n_kv_head),
        ]
        self.batch = int(info.batch)
        self.capacity = int(info.capacity)
        core = device._core
        self._create(device, "cache", lambda box: lib.vka_cache_create(core.box[0], info, box))
        del kept

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<vkattn.Cache of {self.batch} x {self.capacity}{closed}>"

    def length(self, sequence: int = 0) -> int:
        """Positions that a sequence holds."""
        length, b = ffi.new("uint32_t *"), whole(sequence, "sequence")
        self.device._core.call(lambda: lib.vka_cache_length(self._pointer, b, length))
        return int(length[0])

    def truncate(self, sequence: int = 0, length: int = 0) -> None:
        """Forgets all positions from length on."""
        b, left = whole(sequence, "sequence"), whole(length, "length")
        self.device._core.call(lambda: lib.vka_cache_truncate(self._pointer, b, left))

    def fork(self, source: int, to: int) -> None:
        """Makes sequence `to` a copy of `source`; full pages of a paged cache are shared."""
        a, b = whole(source, "source"), whole(to, "to")
        self.device._core.call(lambda: lib.vka_cache_fork(self._pointer, a, b))

    def set_pages(self, sequence: int, first: int, pages: Sequence[int]) -> None:
        """Paged: sets entries first .. of a sequence's page table."""
        table = ffi.new("uint32_t[]", list(wholes(pages, "pages")))
        b, at = whole(sequence, "sequence"), whole(first, "first")
        self.device._core.call(
            lambda: lib.vka_cache_set_pages(self._pointer, b, at, len(table), table)
        )
