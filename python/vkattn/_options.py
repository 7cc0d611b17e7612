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
from ._numbers import flag, nonzero, put, reals, whole
from ._option_table import check_options, takes_options

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


@takes_options
class AttentionOptions(TypedDict, total=False):
    """Keywords of `attention`, a called `Layer`, `Plan.attention` and `Plan.layer`."""

    mask: Array | Tensor
    key_padding_mask: Array
    kv_length: Array | Tensor
    query_offset: Array | Tensor
    causal: bool
    window: tuple[int, int]
    scale: float
    softcap: float
    masked_row: str
    rope: Rope | None
    q_norm: Array | Tensor
    k_norm: Array | Tensor
    norm_epsilon: float
    sink: Array | Tensor
    alibi: Array | Tensor
    dropout: float
    dropout_seed: int
    exact_softmax: bool


_INTEGERS = ("kv_length", "query_offset")
_FLOAT32 = ("q_norm", "k_norm", "sink", "alibi")
# The annotation of each option as it is written above. Numbers are copied as they are.
ANNOTATIONS: dict[str, str] = {
    name: hint.__forward_arg__ for name, hint in AttentionOptions.__annotations__.items()
}
_PLAIN = [name for name, kind in ANNOTATIONS.items() if kind in ("bool", "int", "float")]
# A number of these that is there counts as it is, 0 too.
_GIVEN = {"scale": int(lib.VKA_GIVEN_SCALE), "norm_epsilon": int(lib.VKA_GIVEN_EPSILON)}


def choose(choices: dict[str, int], name: str, what: str) -> int:
    if not isinstance(name, str) or name not in choices:
        raise InvalidError(f"{what}: expected one of {', '.join(choices)}, got {name!r}")
    return choices[name]


def asked_scores(scores: str | None) -> str | None:
    """The kind of scores to return; None where none are, which "none" says too."""
    kind = choose(SCORES, "none" if scores is None else scores, "scores")
    return scores if kind else None


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
    numbers = reals(rope.frequencies, "rope: frequencies", options.rope.dim // 2)
    frequencies = ffi.new("double[]", numbers)
    options.rope.frequencies = frequencies
    return frequencies


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
        self.scores_kind = choose(SCORES, "none" if scores is None else scores, "scores")
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
