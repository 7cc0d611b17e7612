"""The projections of a layer: weights [out][in] of the host, of blocks or in tensors, and their bias."""

from __future__ import annotations

from typing import Any, Sequence, Union

from . import _extra_rows
from ._abi import ffi
from ._arrays import FLOATS, Array, DType, host_array
from ._core import check_child
from ._device import Tensor
from ._errors import InvalidError, UnsupportedError
from ._int4 import Blocks
from ._options import pointer

# A weight [out][in] as PyTorch stores it, or (weight, bias [out]); a bias may be None.
Linear = Union[
    Array, "tuple[Array, Array | None]", Tensor, "tuple[Tensor, Tensor | None]"
]


class HostLinear:
    """A projection on the host, in the layer's element type."""

    weight: Any  # an array of the host, blocks or a Tensor
    bias: Any

    def __init__(self, given: Linear, what: str, dtype: DType | None) -> None:
        weight, bias = given if isinstance(given, (tuple, list)) else (given, None)
        self.what = what
        self.weight = host_array(weight, f"{what}.weight", dtype)
        self.bias = None if bias is None else host_array(bias, f"{what}.bias", dtype)
        if self.weight.data.ndim != 2:
            raise InvalidError(
                f"{what}.weight: expected [out][in], got {list(self.weight.data.shape)}"
            )
        self.rows, self.columns = self.weight.data.shape
        self._check_bias()

    def _check_bias(self) -> None:
        if self.bias is not None and self.bias.data.shape != (self.rows,):
            raise InvalidError(
                f"{self.what}.bias: expected [{self.rows}], got {list(self.bias.data.shape)}"
            )

    def _shape(self) -> list[int]:
        return [self.rows, self.columns]

    def heads(self, n_head: int, what: str) -> int:
        """Features of a head."""
        if n_head < 1 or self.rows % n_head:
            raise InvalidError(
                f"{self.what}.weight: expected rows for {n_head} {what}, got {self._shape()}"
            )
        return int(self.rows // n_head)

    def widen(self, row: Array | None, what: str) -> None:
        """The bias and the row that bias_kv appends become columns of the weight."""
        self.weight = _extra_rows.widen_weight(self.weight, self.bias, row, what)
        self.bias = None

    def write(self, info: Any) -> None:
        """Into a struct vka_layer_info, within a turn; the arrays must outlive the call it is for."""
        weights = getattr(info, self.what)
        weights.weight = ffi.from_buffer(self.weight.data)
        if self.bias is not None:
            weights.bias = ffi.from_buffer(self.bias.data)


class TensorLinear(HostLinear):
    """A projection whose weights lie in tensors, which the library reads when a plan runs."""

    def __init__(self, given: Any, what: str) -> None:
        weight, bias = given if isinstance(given, (tuple, list)) else (given, None)
        self.what = what
        self.weight = check_child(weight, Tensor, f"{what}.weight")
        self.bias = None if bias is None else check_child(bias, Tensor, f"{what}.bias")
        if len(weight.shape) != 2:
            raise InvalidError(f"{what}.weight: expected [out][in], got {list(weight.shape)}")
        self.rows, self.columns = weight.shape

    def widen(self, row: Array | None, what: str) -> None:
        raise UnsupportedError(f"{what}: not supported in a layer whose weights are tensors")

    def write(self, info: Any) -> None:
        weights = getattr(info, f"{self.what}_tensors")
        weights.weight = pointer(self.weight, f"{self.what}.weight")
        weights.bias = pointer(self.bias, f"{self.what}.bias", optional=True)


class BlockLinear(HostLinear):
    """A projection of quantised blocks on the host; its bias is float32."""

    def __init__(self, given: Any, what: str, dtype: DType | None) -> None:
        weight, bias = given if isinstance(given, (tuple, list)) else (given, None)
        if dtype is not None:
            raise InvalidError(f"dtype: expected none, as {what}.weight is {weight.dtype} already")
        self.what = what
        self.weight = weight
        self.bias = None if bias is None else host_array(bias, f"{what}.bias", "f32")
        self.rows, self.columns = weight.shape
        self._check_bias()

    def widen(self, row: Array | None, what: str) -> None:
        raise UnsupportedError(f"{what}: not supported in a layer of quantised weights")


def linear_of(given: Linear, what: str, dtype: DType | None) -> HostLinear:
    first = given[0] if isinstance(given, (tuple, list)) and given else given
    if isinstance(first, Blocks):
        return BlockLinear(given, what, dtype)
    return TensorLinear(given, what) if isinstance(first, Tensor) else HostLinear(given, what, dtype)


def dtype_of(linears: Sequence[HostLinear]) -> str:
    dtype: str = linears[0].weight.dtype
    if any(isinstance(linear, BlockLinear) for linear in linears):
        return _one_block_dtype(linears)
    if dtype not in FLOATS:
        raise InvalidError(f"query.weight: expected {', '.join(FLOATS)}, got {dtype}")
    for linear in linears:
        for array in (linear.weight, linear.bias):
            if array is not None and array.dtype != dtype:
                raise InvalidError(
                    f"{linear.what}: expected {dtype} as query.weight is, got {array.dtype};"
                    " dtype= converts all"
                )
    return dtype


def _one_block_dtype(linears: Sequence[HostLinear]) -> str:
    for linear in linears:
        if linear.weight.dtype != linears[0].weight.dtype:
            raise UnsupportedError(
                f"{linear.what}.weight: expected {linears[0].weight.dtype} as query.weight is, got"
                f" {linear.weight.dtype}; a layer has one type of weights"
            )
    return str(linears[0].weight.dtype)
