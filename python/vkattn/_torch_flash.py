"""Attention of the dispatcher of PyTorch on the CPU, where torch.nn.attention lets others take its place:

    torch.nn.attention.activate_flash_attention_impl("vkattn")

What PyTorch's own choice gives to its fused kernel then runs here, from whichever name it was called.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from . import _torch_ops as ops

FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = f"{FORWARD}_backward"


def _options(is_causal: bool, mask: Any, scale: float | None) -> list[Any]:
    given = {"mask": mask, "causal": is_causal, "scale": scale}
    return [*(given.get(name) for name in ops.OPTIONS), ""]


def _each_head(q: Any, x: Any) -> Any:
    """Keys or values, those of a group of heads once for each of its heads."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _of_group(gradient: Any, x: Any) -> Any:
    """The gradient of what `_each_head` repeated."""
    return gradient if gradient.shape == x.shape else gradient.unflatten(1, (x.shape[1], -1)).sum(2)


def _scores(q: Any, k: Any, is_causal: bool, mask: Any, scale: float | None) -> tuple[Any, float]:
    """In float64, which vkattn has not, and the scale."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.mT * factor
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    return (scores if mask is None else scores + mask), factor


def _weights(scores: Any, sums: Any) -> Any:
    return torch.exp(scores - sums[..., None]).nan_to_num(0.0)


def _attend(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    if q.dtype in ops.NAMES:
        return ops.attention(q, k, v, *_options(is_causal, attn_mask, scale))
    scores, _ = _scores(q, _each_head(q, k), is_causal, attn_mask, scale)
    sums = torch.logsumexp(scores, -1)
    return _weights(scores, sums) @ _each_head(q, v), sums


def _differentiate(
    gradient: Any, q: Any, k: Any, v: Any, output: Any, sums: Any, dropout_p: float, is_causal: bool,
    *, attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if q.dtype in ops.NAMES:
        wanted = [True] * 3 + [False] * len(ops.LEARNT)
        options = _options(is_causal, attn_mask, scale)
        return tuple(ops.attention_backward(gradient, output, sums, wanted, q, k, v, *options))
    keys, values = _each_head(q, k), _each_head(q, v)
    scores, factor = _scores(q, keys, is_causal, attn_mask, scale)
    weights = _weights(scores, sums)
    inner = gradient @ values.mT - (gradient * output).sum(-1, keepdim=True)
    of_scores = weights * inner * factor
    of_keys, of_values = of_scores.mT @ q, weights.mT @ gradient
    return of_scores @ keys, _of_group(of_keys, k), _of_group(of_values, v)


class _Handle:
    """What was registered, until it is removed."""

    def __init__(self) -> None:
        made: Any = torch.library.Library  # which PyTorch gives no types
        self.library = made("aten", "IMPL")
        for name, function in ((FORWARD, _attend), (BACKWARD, _differentiate)):
            self.library.impl(name, function, "CPU", allow_override=True)

    def remove(self) -> None:
        self.library._destroy()


def register() -> None:
    """Makes the name known where PyTorch has names of such implementations, from 2.10 on."""
    known = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if known is not None:
        known("vkattn", register_fn=_Handle)
