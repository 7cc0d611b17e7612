"""torch.nn.MultiheadAttention on a Vulkan device."""

from __future__ import annotations

from typing import Any

import torch

from . import _torch_ops as ops
from ._device import Place
from ._errors import InvalidError, UnsupportedError
from ._masks import Sizes
from ._torch_check import cast, check, key_of, learnt_mask, refuse_transforms


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention whose products and attention run on a Vulkan device. Not with
    add_bias_kv or add_zero_attn; weights are not returned."""

    __module__ = "vkattn.torch"
    vkattn_device: Place = None  # by default the most capable

    def _reset_parameters(self) -> None:
        # PyTorch's layers take a way of their own around `forward` where this flag is set.
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = False

    def forward(  # type: ignore[override]
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = False,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, None]:
        """As PyTorch's, with 3 axes and need_weights=False. is_causal alone makes a causal mask."""
        if query.is_nested:
            return self._nested(query, key, value, key_padding_mask, attn_mask, is_causal), None
        if need_weights or self.bias_k is not None or self.add_zero_attn or query.dim() != 3:
            raise UnsupportedError(
                "MultiheadAttention: weights, bias_kv, zero_attn and inputs without a batch axis"
                " are not supported here; vkattn.Layer has them without gradients"
            )
        same_key, same_value = key is query, value is key
        operands: dict[str, torch.Tensor | None] = {
            "query": query,
            "key": None if same_key and (same_value or value is query) else key,
            "value": None if same_value or (same_key and value is query) else value,
            **self._weights(),
        }
        operands = {name: cast(x) for name, x in operands.items()}
        for name, x in operands.items():
            if x is not None:
                check(x, name)
        refuse_transforms("MultiheadAttention", *operands.values(), attn_mask, key_padding_mask)
        operands["mask"], key_padding_mask = self._masks(query, key, attn_mask, key_padding_mask)
        if 0 in (*query.shape, *key.shape, *value.shape):
            return self._empty(query, key, value, operands), None
        rate = self.dropout if self.training else 0.0
        out: torch.Tensor = ops.layer(
            *(operands.get(name) for name in ops.OPERANDS),
            key_padding_mask,
            torch.randint(2**63 - 1, ()) if rate else None,
            is_causal and attn_mask is None,
            rate,
            self.num_heads,
            "bsd" if self.batch_first else "sbd",
            key_of(self.vkattn_device),
        )
        return out, None

    def _masks(self, query: Any, key: Any, mask: Any, padding: Any) -> tuple[Any, Any]:
        """The mask, and the padding that is not in it: one that learns is."""
        for name, x in (("attn_mask", mask), ("key_padding_mask", padding)):
            if x is not None and x.dtype != torch.bool and not x.is_floating_point():
                raise InvalidError(
                    f"{name}: expected bool, True where a key is hidden, or floats, got {x.dtype}"
                )
        if key.dim() != 3:
            raise InvalidError(f"key: expected 3 axes as query has, got {list(key.shape)}")
        batch, rows = (0, 1) if self.batch_first else (1, 0)
        sizes = Sizes(query.shape[batch], self.num_heads, query.shape[rows], key.shape[rows])
        if mask is not None:
            _check_shape(mask, sizes)
            mask = _torch_mask(mask)
        if padding is not None and padding.dtype == torch.float64:
            padding = padding.float()
        if padding is not None and padding.requires_grad:
            if mask is None:
                mask = padding.new_zeros(1, 1)
            elif mask.dtype == torch.bool:
                mask = padding.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
        elif mask is None or not mask.requires_grad:
            return mask, padding
        return learnt_mask(mask, padding, sizes), None

    def _nested(
        self, query: Any, key: Any, value: Any, padding: Any, mask: Any, causal: bool
    ) -> torch.Tensor:
        """Sequences of different lengths, as TransformerEncoder makes them of a padding mask."""
        if key is not query or value is not query or padding is not None or mask is not None:
            raise UnsupportedError(
                "MultiheadAttention: nested tensors are supported as query, key and value alike,"
                " without masks"
            )
        lengths = torch.tensor([len(x) for x in query.unbind()])
        rows = query.to_padded_tensor(0.0)
        hidden = torch.arange(rows.shape[1]) >= lengths[:, None]
        if not self.batch_first:
            raise UnsupportedError("MultiheadAttention: nested tensors need batch_first=True")
        out, _ = self.forward(rows, rows, rows, key_padding_mask=hidden, is_causal=causal)
        each = [x[:n] for x, n in zip(out, lengths.tolist())]
        made: torch.Tensor = torch.nested.as_nested_tensor(each, layout=query.layout)
        return made

    def _empty(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, operands: Any
    ) -> torch.Tensor:
        """Without rows, or over no keys, where rows are the output's bias, as PyTorch's."""
        batch, rows = (0, 1) if self.batch_first else (1, 0)
        widths = (self.embed_dim, self.kdim, self.vdim)
        for name, x, width in zip(("query", "key", "value"), (query, key, value), widths):
            if x.dim() != 3 or x.shape[2] != width or x.shape[batch] != query.shape[batch]:
                raise InvalidError(
                    f"{name}: expected {width} features in a batch of {query.shape[batch]}, got"
                    f" {list(x.shape)}"
                )
        if key.shape[rows] != value.shape[rows]:
            raise InvalidError(f"value: expected {key.shape[rows]} rows, got {value.shape[rows]}")
        given = [x for x in operands.values() if x is not None]
        # Zeros whose gradients, all 0, reach the operands.
        none = [x.flatten()[:0].sum() for x in given if x.requires_grad]
        nothing = sum(none, query.new_zeros((*query.shape[:2], self.embed_dim))).to(query.dtype)
        bias = self.out_proj.bias
        return nothing if bias is None else nothing + bias.to(query.dtype)

    def _weights(self) -> dict[str, torch.Tensor]:
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        named = {
            **{f"{name}.weight": x for name, x in zip(ops.PROJECTIONS, weights)},
            **{f"{name}.bias": x for name, x in zip(ops.PROJECTIONS, biases)},
            "output.weight": self.out_proj.weight,
            "output.bias": self.out_proj.bias,
        }
        return {name: x for name, x in named.items() if x is not None}


def _torch_mask(mask: torch.Tensor) -> torch.Tensor:
    """PyTorch's boolean masks of this module are True where a key is hidden."""
    return ~mask if mask.dtype == torch.bool else mask


def _check_shape(mask: torch.Tensor, sizes: Sizes) -> None:
    """PyTorch's two: others, which `attention` takes, would mean what it refuses."""
    scores = sizes.n_q, sizes.n_kv
    if tuple(mask.shape) not in (scores, (sizes.batch * sizes.n_head, *scores)):
        raise InvalidError(
            f"attn_mask: expected [n_q][n_kv], {list(scores)}, or [batch * n_head][n_q][n_kv], got"
            f" {list(mask.shape)}"
        )
