"""Attention on host arrays, in one call."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import FLOATS, Array, HostArray, host_array
from ._device import Device, pick_device
from ._errors import InvalidError
from ._options import AttentionOptions
from ._plan import DEFAULT_TIMEOUT, Plan
from ._tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack


def float_array(array: Array, what: str, dtype: str | None, ranks: tuple[int, ...]) -> HostArray:
    host = host_array(array, what, dtype)
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


def upload(device: Device, host: HostArray) -> Tensor:
    tensor = Tensor(device, host.data.shape, host.dtype)
    tensor._write(host)
    return tensor


def result_dtype(host: HostArray) -> str:
    """float16 gives float16; what else there is, bf16 included, gives float32."""
    return "f16" if host.dtype == "f16" else "f32"


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    past: tuple[Array, Array] | None = None,
    scores: str | None = None,
    log_sum_exp: bool = False,
    dtype: str | None = None,
    path: str = "auto",
    device: Device | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    **options: Unpack[AttentionOptions],
) -> Any:
    """Multi-head attention of host arrays.

    q [batch][n_head][n_q][head_dim], k [batch][n_kv_head][n_kv][head_dim], v
    [batch][n_kv_head][n_kv][value_dim]; n_head is a multiple of n_kv_head. Without the batch axis,
    or without that of heads as well, they are 1; an array with fewer axes than another serves all
    of what it lacks. past: keys and values that stand before k and v. dtype: storage on the device,
    by default that of the arrays; float64 needs it to be said. scores: "raw", "softcap", "bias" or
    "softmax" to have them too.

    Returns the context [batch][n_head][n_q][value_dim], a numpy array of float16 where q is that
    and of float32 otherwise; with scores, the pair (context, scores), scores being float32
    [batch][n_head][n_q][n_kv]. With log_sum_exp what is returned ends with ln of the sum of e^score
    of each query, float32 [batch][n_head][n_q]. All are without the axes that q, k and v lack.
    """
    given = {"q": q, "k": k, "v": v}
    if past is not None:
        given["past_key"], given["past_value"] = past
    host = {name: float_array(array, name, dtype, (2, 3, 4)) for name, array in given.items()}
    host, n_axes = four_axes(host)
    device = pick_device(device)
    batch, n_head, n_q, _ = host["q"].data.shape
    n_kv = sum(host[name].data.shape[2] for name in ("k", "past_key") if name in host)
    with ExitStack() as stack:
        own = stack.enter_context
        t = {name: own(upload(device, array)) for name, array in host.items()}
        output = own(Tensor(device, (batch, n_head, n_q, t["v"].shape[3]), result_dtype(host["q"])))
        scores_to = own(Tensor(device, (batch, n_head, n_q, n_kv))) if scores else None
        sums = own(Tensor(device, (batch, n_head, n_q))) if log_sum_exp else None
        plan = own(Plan(device, path=path))
        plan.attention(
            t["q"],
            t["k"],
            t["v"],
            output,
            past=(t["past_key"], t["past_value"]) if past is not None else None,
            scores=scores,
            scores_to=scores_to,
            log_sum_exp=sums,
            **options,
        )
        plan.finish().run(timeout)
        results = [t.read() for t in (output, scores_to, sums) if t is not None]
        results = [x.reshape(x.shape[4 - n_axes :]) for x in results]
        return tuple(results) if len(results) > 1 else results[0]
