"""Attention of models of Hugging Face's transformers, on a Vulkan device.

    import vkattn.transformers

    vkattn.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="vkattn")

Or `model.set_attn_implementation("vkattn")` of a model that is there. Tensors stay on the CPU, and
attention alone runs on the device: masks, windows, sinks, softcap, position biases, grouped heads,
every cache, training, torch.compile. Weights are returned where a call says output_attentions=True;
they have no gradient. A query that sees no key, as a row of padding, gives zeros.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ._device import Place
from ._errors import UnsupportedError
from .torch import attention, attention_weights

__all__ = ["register"]

_collected: Any = None  # in older releases, which tell each attention what is wanted
with contextlib.suppress(ImportError):
    from transformers.utils.output_capturing import _active_collector

    _collected = _active_collector

# What some models give and attention over all keys of its operands does not mean.
_REFUSED = ("cache", "indices", "block_indices")


def _with_bias(mask: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor | None:
    """The one mask that means both."""
    if bias is None or mask is None:
        return mask if bias is None else bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask


def _weights_wanted(given: dict[str, Any]) -> bool:
    """By the call itself, or by the model's around it, which some models do not pass on."""
    names = _collected.get() if _collected is not None else None
    return bool(given.get("output_attentions")) or any("attentions" in name for name in names or ())


def _function(device: Place) -> Any:
    def vkattn_attention(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        position_bias: torch.Tensor | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        **given: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        for name in _REFUSED:
            if given.get(name) is not None:
                raise UnsupportedError(f"vkattn.transformers: {name} is not supported")
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        options: dict[str, Any] = {
            "mask": _with_bias(attention_mask, position_bias),
            # Without a mask a single query sees all keys, and the first of several the first key.
            "causal": bool(causal) and attention_mask is None and query.shape[2] > 1,
            "scale": scaling,
            "softcap": softcap,
            "sink": s_aux,
            "device": device,
        }
        output = attention(query, key, value, dropout=dropout, **options)
        weights = None
        if _weights_wanted(given):
            weights = attention_weights(query, key, value, **options)
        return output.transpose(1, 2).contiguous(), weights

    return vkattn_attention


def register(name: str = "vkattn", *, device: Place = None) -> None:
    """Makes attn_implementation=name known to transformers. device: a `vkattn.Device`, or a part of
    a device's name; by default the most capable."""
    AttentionInterface.register(name, _function(device))
    AttentionMaskInterface.register(name, sdpa_mask)
