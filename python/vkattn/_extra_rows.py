"""Keys and values that a layer has besides those projected from its inputs.

PyTorch's add_bias_kv appends one learnt row to the projected keys and one to the projected values;
add_zero_attn appends a row of zeros to both. Here both are projections of appended input rows: an
input row has COLUMNS more features, the first 1 in the caller's rows, the second 1 in the row of
bias_kv, and a weight has the projection's bias and the learnt row as columns there. So the row of
zeros is all 0, no rounding is added, and the library sees a layer as any other.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ._arrays import STORED, Array, HostArray, host_array
from ._core import check_child
from ._device import Device, Tensor
from ._errors import InvalidError, UnsupportedError
from ._masks import Sizes
from ._weights import Layer

COLUMNS = 2

# What counts positions or keys, among which an appended row has no place.
_BY_POSITION = ("kv_length", "query_offset", "causal", "window", "rope", "k_norm", "alibi")


def widen_weight(
    weight: HostArray, bias: HostArray | None, row: Array | None, what: str
) -> HostArray:
    """weight [out][in + COLUMNS]; row: [out], None for zeros."""
    rows = weight.data.shape[0]
    columns = np.zeros((rows, COLUMNS), STORED[weight.dtype])
    if bias is not None:
        columns[:, 0] = bias.data
    if row is not None:
        learnt = host_array(row, what, weight.dtype).data
        if learnt.shape != (rows,):
            raise InvalidError(f"{what}: expected [{rows}], got {list(learnt.shape)}")
        columns[:, 1] = learnt
    return weight._replace(data=np.concatenate([weight.data, columns], 1))


def check_options(given: dict[str, Any], cache: Any) -> None:
    """UnsupportedError for options that have no meaning for an appended row."""
    for name in (*_BY_POSITION, "cache"):
        value = cache if name == "cache" else given.get(name)
        if value is not None and value is not False:
            raise UnsupportedError(f"{name}: not supported in a layer with bias_kv or zero_attn")


def widen_mask(mask: Any, sizes: Sizes, n_extra: int) -> Any:
    """The host mask with n_extra visible keys more; a Tensor as it is."""
    if isinstance(mask, Tensor):
        return mask
    shape = mask.data.shape
    if not shape or shape[-1] not in (1, sizes.n_kv):
        raise InvalidError(f"mask: expected {sizes.n_kv} keys, got {list(shape)}")
    data = np.broadcast_to(mask.data, (*shape[:-1], sizes.n_kv))
    shows = np.full((*shape[:-1], n_extra), mask.dtype == "bool", data.dtype)
    return mask._replace(data=np.concatenate([data, shows], -1))


def append_rows(
    device: Device,
    layer: Layer,
    row_axis: int,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    *,
    add_copy: Callable[[Tensor, Tensor], None],
) -> tuple[Tensor, Tensor]:
    """Adds the copies of key and value into tensors that have the appended rows. add_copy: adds a
    copy of one tensor to another to the plan."""
    key = query if key is None else key
    value = key if value is None else value
    for name, tensor, width in (
        ("key", key, layer.key_dim),
        ("value", value, layer.value_input_dim),
    ):
        shape = check_child(tensor, Tensor, name).shape
        if len(shape) != 3 or shape[2] != width:
            raise InvalidError(f"{name}: expected 3 axes, the last {width}, got {list(shape)}")
    if key.shape[:2] != value.shape[:2]:
        raise InvalidError(
            f"value: expected batch and rows of key {list(key.shape)}, got {list(value.shape)}"
        )
    wide = _wide(device, layer, row_axis, key, add_copy)
    return wide, wide if value is key else _wide(device, layer, row_axis, value, add_copy)


def _wide(
    device: Device,
    layer: Layer,
    row_axis: int,
    source: Tensor,
    add_copy: Callable[[Tensor, Tensor], None],
) -> Tensor:
    shape = list(source.shape)
    n, width = shape[row_axis], shape[2]
    shape[row_axis] += layer.n_extra
    shape[2] += COLUMNS
    values = np.zeros(shape, np.float32)
    rows = np.moveaxis(values, row_axis, 0)
    rows[:n, :, width] = 1
    if layer.bias_kv:
        rows[n, :, width + 1] = 1
    wide = Tensor(device, shape, source.dtype)
    wide.write(values, source.dtype)
    add_copy(source, wide.slice(row_axis, 0, n).slice(2, 0, width))
    return wide
