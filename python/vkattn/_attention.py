"""Attention on host arrays, in one call."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ._arrays import FLOATS, Array, DType, Floats, HostArray, check_dtype, host_array, host_integers, warn_of_gradient
from ._device import Device, Place, Tensor, pick_device
from ._errors import InvalidError
from ._numbers import flag
from ._option_table import check_options, takes_options
from ._options import MASKED_ROWS, AttentionOptions, asked_scores, choose
from ._plan import DEFAULT_TIMEOUT, Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack


def float_array(array: Array, what: str, dtype: DType | None, ranks: tuple[int, ...]) -> HostArray:
    warn_of_gradient(array, what)
    host = host_array(array, what, dtype, empty=True)
    if host.dtype not in FLOATS:
        raise InvalidError(f"{what}: expected {', '.join(FLOATS)}, got {host.dtype}")
    if host.data.ndim not in ranks:
        counts = " or ".join(map(str, ranks))
        raise InvalidError(f"{what}: expected {counts} axes, got {list(host.data.shape)}")
    return host


def four_axes(host: dict[str, HostArray]) -> tuple[dict[str, HostArray], int]:
    """The arrays with 4 axes each, and the most axes that one of them has.

    An axis that an array lacks and another has is that other's, the elements repeated along it; one
    that all lack is 1.
    """
    longest = max([array.data for array in host.values()], key=np.ndim)
    n_axes = longest.ndim
    wide = {}
    for name, array in host.items():
        lacks = n_axes - array.data.ndim
        shape = (*longest.shape[:lacks], *array.data.shape)
        data = np.ascontiguousarray(np.broadcast_to(array.data, shape))
        wide[name] = array._replace(data=data.reshape((1,) * (4 - n_axes) + shape))
    return wide, n_axes


def _check_sizes(shapes: dict[str, tuple[int, ...]]) -> None:
    """Checks operands that the library does not see, because one of them is empty."""
    batch, n_head, _, head_dim = shapes["q"]
    n_kv_head = shapes["k"][1]
    for name, shape in shapes.items():
        like = shapes["v" if name in ("v", "past_value") else "k"]
        wanted = shapes["q"] if name == "q" else (batch, n_kv_head, shape[2], like[3])
        if shape != wanted:
            raise InvalidError(f"{name}: expected {list(wanted)}, got {list(shape)}")
    if shapes["k"][3] != head_dim:
        raise InvalidError(f"k: expected {head_dim} features as q has, got {shapes['k'][3]}")
    for new, old in (("k", "v"), ("past_key", "past_value")):
        if new in shapes and shapes[new][2] != shapes[old][2]:
            raise InvalidError(f"{old}: expected {shapes[new][2]} keys, got {shapes[old][2]}")
    if n_head != n_kv_head and (not n_kv_head or n_head % n_kv_head):
        raise InvalidError(f"k: {n_kv_head} heads do not divide the {n_head} of q")


def _empty_results(
    host: dict[str, HostArray], scores: str | None, log_sum_exp: bool, options: dict[str, Any]
) -> list[np.ndarray] | None:
    """The results where there is no query, key or feature of values; None where there are."""
    shapes = {name: array.data.shape for name, array in host.items()}
    n_kv = sum(shapes[name][2] for name in ("k", "past_key") if name in shapes)
    size = (*shapes["q"][:3], shapes["v"][3])
    if np.prod(size) and n_kv:
        if not shapes["q"][3]:
            raise InvalidError(f"q: expected one or more features, got {list(shapes['q'])}")
        return None
    _check_sizes(shapes)
    check_options(options)
    masked = options.get("masked_row")
    masked = choose(MASKED_ROWS, "zero" if masked is None else masked, "masked_row")
    fill = np.nan if masked == MASKED_ROWS["nan"] else 0
    dtype = np.float16 if host["q"].dtype == "f16" else np.float32
    if n_kv and np.prod(size[:3]) and (scores or log_sum_exp):
        raise InvalidError("v: expected one or more features, as scores are asked for")
    results = [np.full(size, fill, dtype)]
    if scores:
        results.append(np.zeros((*size[:3], n_kv), np.float32))
    if log_sum_exp:
        results.append(np.full(size[:3], -np.inf, np.float32))
    return results


def _only_past(host: dict[str, HostArray], options: dict[str, Any]) -> None:
    """For queries over past keys alone: one new key, which their number hides."""
    for name in ("k", "v"):
        shape = list(host[name].data.shape)
        shape[2] = 1
        host[name] = host[name]._replace(data=np.zeros(shape, host[name].data.dtype))
    n_past = host["past_key"].data.shape[2]
    lengths = options.get("kv_length")
    if isinstance(lengths, Tensor):
        raise InvalidError("kv_length: expected an array, not a Tensor, as k has no keys")
    given = n_past if lengths is None else host_integers(lengths, "kv_length").data
    options["kv_length"] = np.minimum(np.atleast_1d(given), n_past)
    padding = options.get("key_padding_mask")
    if padding is not None:
        hides = host_array(padding, "key_padding_mask")
        wide = np.pad(hides.data, ((0, 0), (0, 1)))
        options["key_padding_mask"] = hides._replace(data=wide)


def upload(device: Device, host: HostArray) -> Tensor:
    tensor = Tensor(device, host.data.shape, host.dtype)
    tensor._write(host)
    return tensor


def result_dtype(host: HostArray) -> str:
    """float16 gives float16; what else there is, bf16 included, gives float32."""
    return "f16" if host.dtype == "f16" else "f32"


@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    past: tuple[Array, Array] | None = ...,
    scores: None = ...,
    log_sum_exp: Literal[False] = ...,
    dtype: DType | None = ...,
    path: str = ...,
    device: Place = ...,
    timeout: float = ...,
    **options: Unpack[AttentionOptions],
) -> Floats: ...
@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    past: tuple[Array, Array] | None = ...,
    scores: str,
    log_sum_exp: Literal[False] = ...,
    dtype: DType | None = ...,
    path: str = ...,
    device: Place = ...,
    timeout: float = ...,
    **options: Unpack[AttentionOptions],
) -> tuple[Floats, Floats]: ...
@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    past: tuple[Array, Array] | None = ...,
    scores: None = ...,
    log_sum_exp: Literal[True],
    dtype: DType | None = ...,
    path: str = ...,
    device: Place = ...,
    timeout: float = ...,
    **options: Unpack[AttentionOptions],
) -> tuple[Floats, Floats]: ...
@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    past: tuple[Array, Array] | None = ...,
    scores: str,
    log_sum_exp: Literal[True],
    dtype: DType | None = ...,
    path: str = ...,
    device: Place = ...,
    timeout: float = ...,
    **options: Unpack[AttentionOptions],
) -> tuple[Floats, Floats, Floats]: ...
@takes_options
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    past: tuple[Array, Array] | None = None,
    scores: str | None = None,
    log_sum_exp: bool = False,
    dtype: DType | None = None,
    path: str = "auto",
    device: Place = None,
    timeout: float = DEFAULT_TIMEOUT,
    **options: Unpack[AttentionOptions],
) -> Any:
    """Multi-head attention of host arrays.

    q [batch][n_head][n_q][head_dim], k [batch][n_kv_head][n_kv][head_dim], v
    [batch][n_kv_head][n_kv][value_dim]; n_head is a multiple of n_kv_head. Without the batch axis,
    or without that of heads as well, they are 1; an array with fewer axes than another serves all
    of what it lacks. past: keys and values that stand before k and v. dtype: storage on the device,
    "f32", "f16" or "bf16", by default that of the arrays; float64 needs it to be said. scores: "raw",
    "softcap", "bias" or "softmax" to have them too. path: "auto", "unfused" or "fused". device: a
    Device, an index of `devices` or a part of a name, by default the most capable. timeout: seconds.

    Returns the context [batch][n_head][n_q][value_dim], a numpy array of float16 where q is that
    and of float32 otherwise; with scores, the pair (context, scores), scores being float32
    [batch][n_head][n_q][n_kv]. With log_sum_exp what is returned ends with ln of the sum of e^score
    of each query, float32 [batch][n_head][n_q]. All are without the axes that q, k and v lack.
    Axes may have 0 elements, but features of q and k: a query without keys gives what masked_row
    says, "uniform" 0.
    """
    given = {"q": q, "k": k, "v": v}
    if past is not None:
        try:
            given["past_key"], given["past_value"] = past
        except (TypeError, ValueError) as error:
            raise TypeError(f"past: expected (keys, values): {error}") from None
    scores = asked_scores(scores)
    log_sum_exp = flag(log_sum_exp, "log_sum_exp")
    dtype = dtype if dtype is None else check_dtype(dtype, "dtype")
    host = {name: float_array(array, name, dtype, (2, 3, 4)) for name, array in given.items()}
    host, n_axes = four_axes(host)
    device = pick_device(device)
    results = _empty_results(host, scores, log_sum_exp, dict(options))
    if results is None:
        results = _run(host, scores, log_sum_exp, path, device, timeout, dict(options))
    results = [x.reshape(x.shape[4 - n_axes :]) for x in results]
    return tuple(results) if len(results) > 1 else results[0]


def _run(
    host: dict[str, HostArray],
    scores: str | None,
    log_sum_exp: bool,
    path: str,
    device: Device,
    timeout: float,
    options: dict[str, Any],
) -> list[np.ndarray]:
    """The results with 4 axes each, log_sum_exp with 3. A past may be empty, and so may new keys."""
    if "past_key" in host and not host["past_key"].data.shape[2]:
        del host["past_key"], host["past_value"]
    n_kv = sum(host[name].data.shape[2] for name in ("k", "past_key") if name in host)
    if not host["k"].data.shape[2]:
        _only_past(host, options)
    batch, n_head, n_q, _ = host["q"].data.shape
    width = sum(host[name].data.shape[2] for name in ("k", "past_key") if name in host)
    with ExitStack() as stack:
        own = stack.enter_context
        t = {name: own(upload(device, array)) for name, array in host.items()}
        output = own(Tensor(device, (batch, n_head, n_q, t["v"].shape[3]), result_dtype(host["q"])))
        scores_to = own(Tensor(device, (batch, n_head, n_q, width))) if scores else None
        sums = own(Tensor(device, (batch, n_head, n_q))) if log_sum_exp else None
        plan = own(Plan(device, path=path))
        plan.attention(
            t["q"],
            t["k"],
            t["v"],
            output,
            past=(t["past_key"], t["past_value"]) if "past_key" in t else None,
            scores=scores,
            scores_to=scores_to,
            log_sum_exp=sums,
            **options,
        )
        plan.finish().run(timeout)
        results = [t.read() for t in (output, scores_to, sums) if t is not None]
        if scores_to is not None:
            results[1] = results[1][..., :n_kv]
        return results
