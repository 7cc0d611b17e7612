"""What attention takes besides its operands: the same keywords everywhere."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, TypedDict, Union

from ._abi import enum_names, ffi, lib
from ._arrays import Array, host_array, host_integers, warn_of_gradient
from ._core import check_child
from ._device import Device, Tensor
from ._errors import InvalidError
from ._extra_rows import widen_mask
from ._masks import Sizes, mask_of
from ._numbers import flag, nonzero, put, whole

PATHS = enum_names("VKA_PATH_", "vka_path")
SCORES = enum_names("VKA_SCORES_", "vka_scores")
MASKED_ROWS = enum_names("VKA_MASKED_", "vka_masked_row")
LAYOUTS = {"bsd": 0, "sbd": 1}  # batch first, sequence first


@dataclasses.dataclass(frozen=True)
class Rope:
    """Rotary embedding of the first dim features: pair i turns by position * base^(-2 i / dim), or
    by position * frequencies[i], dim / 2 numbers from -1 to 1 in place of a base.

    Pairs are (i, i + dim / 2), or (2 i, 2 i + 1) where interleaved. base is at least 1.
    attention_factor, above 0, multiplies cosines and sines. `rope_from_config` makes what models
    state.
    """

    dim: int
    base: float = 10000.0
    interleaved: bool = False
    frequencies: tuple[float, ...] | None = None
    attention_factor: float = 1.0


class AttentionOptions(TypedDict, total=False):
    """Keywords of `attention`, a called `Layer`, `Plan.attention` and `Plan.layer`.

    A key j is visible to a query at position p where all of mask, key_padding_mask, kv_length,
    causal and window allow it. Arrays are uploaded once; a Tensor can be written again between
    runs.
    """

    # bool (True: visible) or float (added), 1 to 4 axes that broadcast from the right against
    # [batch][n_head][n_q][n_kv]: two axes are always [n_q][n_kv]. n_kv is the capacity of a cache.
    # An array may be [batch * n_head][n_q][n_kv] as well, float64, which becomes float32, or int64
    # of 0 (hidden) and 1 (visible).
    mask: Array | Tensor
    # PyTorch's: bool (True: hidden) or float (added), [batch][n_kv] whatever the layout. It is
    # joined to mask on the host, so neither can be a Tensor where both are given, nor this alone.
    key_padding_mask: Array
    # Visible keys of a batch element, [batch] or [1] whole numbers.
    kv_length: Array | Tensor
    # Position of query 0, [batch] or [1]; by default the number of past keys.
    query_offset: Array | Tensor
    causal: bool  # j <= p
    window: tuple[int, int]  # p - j <= left and j - p <= right; -1: unbounded
    scale: float  # by default 1 / sqrt(head_dim)
    softcap: float  # c: c * tanh(s / c)
    masked_row: str  # what a row without keys gives: "zero" (default), "uniform" or "nan"
    rope: Rope | None
    # RMS norm weights of q and k, float32 [head_dim] each, and the epsilon of the mean square.
    q_norm: Array | Tensor
    k_norm: Array | Tensor
    norm_epsilon: float
    sink: Array | Tensor  # float32 [n_head]: a logit that joins each row's denominator
    alibi: Array | Tensor  # float32 [n_head]: slopes m; -m * |p - j| is added
    dropout: float  # rate in [0, 1)
    dropout_seed: int
    exact_softmax: bool  # with twice the digits of float32, on the unfused path


_INTEGERS = ("kv_length", "query_offset")
_FLOAT32 = ("q_norm", "k_norm", "sink", "alibi")
_PLAIN = (
    *("causal", "scale", "softcap", "norm_epsilon", "dropout", "dropout_seed", "exact_softmax"),
)
# A number of these that is there counts as it is, 0 too.
_GIVEN = {"scale": int(lib.VKA_GIVEN_SCALE), "norm_epsilon": int(lib.VKA_GIVEN_EPSILON)}


def choose(choices: dict[str, int], name: str, what: str) -> int:
    if name not in choices:
        raise InvalidError(f"{what}: expected one of {', '.join(choices)}, got {name!r}")
    return choices[name]


def _tensor_option(device: Device, name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if name in _INTEGERS:
        host = host_integers(value, name)
    else:
        host = host_array(value, name, "f32" if name in _FLOAT32 else None)
    tensor = Tensor(device, host.data.shape, host.dtype)
    tensor._write(host)
    return tensor


def _write_window(options: Any, window: Any) -> None:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidError(f"window: expected (left, right), got {window!r}") from None
    options.window = True
    for name, size in (("window_left", left), ("window_right", right)):
        setattr(options, name, whole(size, f"window: {name[7:]}", -1, 2**31 - 1))


def _write_rope(options: Any, rope: Any) -> Any:
    """Returns what has to live until C has read the options."""
    check_child(rope, Rope, "rope")
    options.rope.dim = whole(rope.dim, "rope: dim")
    options.rope.interleaved = flag(rope.interleaved, "rope: interleaved")
    options.rope.attention_factor = nonzero(rope.attention_factor, "rope: attention_factor")
    if rope.frequencies is None:
        options.rope.base = nonzero(rope.base, "rope: base")
        return None
    if len(rope.frequencies) != rope.dim // 2:
        raise InvalidError(
            f"rope: expected {rope.dim // 2} frequencies for {rope.dim} features, got"
            f" {len(rope.frequencies)}"
        )
    frequencies = ffi.new("double[]", list(rope.frequencies))
    options.rope.frequencies = frequencies
    return frequencies


def check_options(given: dict[str, Any]) -> None:
    """As Python refuses a keyword that a function does not have."""
    unknown = set(given) - set(AttentionOptions.__annotations__)
    if unknown:
        raise TypeError(f"unexpected keyword argument '{min(unknown)}'")


class Prepared:
    """Options with their arrays uploaded, to be written into a struct within the device's turn."""

    def __init__(
        self,
        device: Device,
        given: dict[str, Any],
        scores: str | None,
        scores_to: Tensor | None,
        log_sum_exp: Tensor | None,
        sizes: Callable[[], Sizes],
        n_extra: int = 0,
    ) -> None:
        check_options(given)
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            warn_of_gradient(value, name)
        if "mask" in given or "key_padding_mask" in given:
            padding = given.pop("key_padding_mask", None)
            given["mask"] = mask_of(given.get("mask"), padding, sizes())
            if n_extra:
                given["mask"] = widen_mask(given["mask"], sizes(), n_extra)
        self.scores_kind = choose(SCORES, scores or "none", "scores")
        self.tensors = {
            name: _tensor_option(device, name, given[name])
            for name in ("mask", *_INTEGERS, *_FLOAT32)
            if name in given
        }
        if scores_to is not None:
            self.tensors["scores"] = check_child(scores_to, Tensor, "scores_to")
        if log_sum_exp is not None:
            self.tensors["log_sum_exp"] = check_child(log_sum_exp, Tensor, "log_sum_exp")
        self.given = given

    def write(self, options: Any) -> None:
        """Into a zeroed struct vka_attention_options."""
        given = self.given
        for name, tensor in self.tensors.items():
            setattr(options, name, tensor._pointer)
        put(options, **{name: given[name] for name in _PLAIN if name in given})
        for name, flag in _GIVEN.items():
            if name in given:
                options.given |= flag
        if "window" in given:
            _write_window(options, given["window"])
        if "rope" in given:
            self.keep = _write_rope(options, given["rope"])
        options.masked_row = choose(MASKED_ROWS, given.get("masked_row", "zero"), "masked_row")
        options.scores_kind = self.scores_kind


def pointer(tensor: Any, what: str, *, optional: bool = False) -> Any:
    """The C object of an operand; NULL for None where that is allowed. Within a turn."""
    if tensor is None and optional:
        return ffi.NULL
    return check_child(tensor, Tensor, what)._pointer


@dataclasses.dataclass(frozen=True)
class Accumulate:
    """A gradient that is added to what the tensor holds, where a Tensor alone is replaced."""

    tensor: Tensor


Gradient = Union[Tensor, Accumulate, None]  # None: not wanted


def write_gradients(op: Any, gradients: dict[str, Gradient]) -> None:
    """Into the members struct vka_gradient of a zeroed struct, within a turn."""
    for member, gradient in gradients.items():
        target = getattr(op, member)
        if isinstance(gradient, Accumulate):
            target.accumulate = True
            gradient = gradient.tensor
        target.tensor = pointer(gradient, member, optional=True)
