"""Functions on PyTorch's CPU tensors that run on a Vulkan device and that PyTorch trains through.

    import vkattn.torch

    y = vkattn.torch.attention(q, k, v, causal=True)
    y.sum().backward()

float32, float16 and bfloat16; gradients have the types of what they belong to, and the same bits in
each run. `MultiheadAttention` stands in for PyTorch's module of that name, its weights included.
torch.compile leaves these functions out of its graphs, and vkattn's own functions on arrays too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from ._arrays import host_array
from ._attention import attention as host_attention
from ._attention import upload
from ._device import Device, Tensor, pick_device
from ._errors import InvalidError, UnsupportedError
from ._layer import Layer
from ._options import AttentionOptions
from ._plan import Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MultiheadAttention", "attention", "linear"]

# Leaves a function out of what torch.compile compiles: a graph break, as it reads memory of the host.
_eager: Any = getattr(torch, "compiler", torch)
_eager = getattr(_eager, "disable", lambda function: function)

_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_LEARNT = ("mask", "sink", "q_norm", "k_norm")  # options that can have a gradient
_PROJECTIONS = ("query", "key", "value", "output")


def _refuse_tracing() -> None:
    if torch.jit.is_tracing():
        raise UnsupportedError("torch.jit.trace would keep this call's result as a constant")


def _name(tensor: torch.Tensor, what: str) -> str:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _NAMES:
        got = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise InvalidError(f"{what}: expected a tensor of float32, float16 or bfloat16, got {got}")
    if tensor.is_nested:
        raise InvalidError(f"{what}: expected a tensor that is not nested: to_padded_tensor makes one")
    return _NAMES[tensor.dtype]


def _upload(device: Device, tensor: torch.Tensor, what: str) -> Tensor:
    return upload(device, host_array(tensor.detach(), what, _name(tensor, what)))


def _download(tensor: Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(tensor.read()).to(like.dtype)


def _wanted(device: Device, needed: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A tensor for the gradient of each that needs one."""
    return {
        name + "_gradient": Tensor(device, tensor.shape, tensor.dtype)
        for (name, tensor), need in zip(tensors.items(), needed)
        if need
    }


def _nothing(shape: Any, like: torch.Tensor, *inputs: torch.Tensor | None) -> torch.Tensor:
    """Zeros of a shape, whose gradients, all 0, reach the inputs."""
    none = [x.flatten()[:0].sum() for x in inputs if x is not None and x.requires_grad]
    return sum(none, like.new_zeros(shape)).to(like.dtype)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, device: Device, options: Any, names: Any, *given: Any) -> torch.Tensor:
        tensors = {name: _upload(device, x, name) for name, x in zip(names, given)}
        q, k, v = (tensors[name] for name in "qkv")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if len(tensor.shape) != 4:
                raise InvalidError(f"{name}: expected 4 axes, got {list(tensor.shape)}")
        output = Tensor(device, (*q.shape[:3], v.shape[3]), q.dtype)
        sums = Tensor(device, q.shape[:3])
        options = {**options, **{name: tensors[name] for name in names[3:]}}
        plan = Plan(device)
        plan.attention(q, k, v, output, log_sum_exp=sums, **options)
        plan.finish().run()
        plan.close()
        ctx.vkattn = device, options, tensors, output, sums, given
        return _download(output, given[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        device, options, tensors, output, sums, given = ctx.vkattn
        wanted = _wanted(device, ctx.needs_input_grad[3:], tensors)
        plan = Plan(device)
        plan.attention_backward(
            *(tensors[name] for name in "qkv"),
            output,
            _upload(device, gradient, "gradient"),
            log_sum_exp=sums,
            **wanted,
            **options,
        )
        plan.finish().run()
        plan.close()
        return None, None, None, *_results(wanted, tensors, given)


def _results(wanted: dict[str, Tensor], tensors: Any, given: Any) -> list[torch.Tensor | None]:
    return [
        _download(wanted[name + "_gradient"], x) if name + "_gradient" in wanted else None
        for name, x in zip(tensors, given)
    ]


@_eager
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    device: Device | None = None,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """Attention of q [batch][n_head][n_q][head_dim], k [batch][n_kv_head][n_kv][head_dim] and v
    [batch][n_kv_head][n_kv][value_dim], with the options of `vkattn.attention`.

    Gradients reach q, k, v, and of the options a float mask, sink, q_norm and k_norm that require
    one. dropout: dropout_seed is drawn by PyTorch where it is not given.
    """
    _refuse_tracing()
    if options.get("dropout") and options.get("dropout_seed") is None:
        options["dropout_seed"] = int(torch.randint(2**63 - 1, ()))
    for name, x in (("q", q), ("k", k), ("v", v)):
        _name(x, name)
    _refuse_lost_gradients(dict(options))
    if 0 in (*q.shape, *k.shape, *v.shape) and q.dim() == k.dim() == v.dim() == 4:
        made = _empty(*(x.detach() for x in (q, k, v)), options, device)
        return _nothing(made.shape, q, q, k, v) + made
    given: dict[str, Any] = dict(options)
    learnt = {
        name: given.pop(name)
        for name in _LEARNT
        if isinstance(given.get(name), torch.Tensor) and given[name].requires_grad
    }
    names = ("q", "k", "v", *learnt)
    out: torch.Tensor = _Attention.apply(
        pick_device(device), given, names, q, k, v, *learnt.values()
    )
    return out


def _refuse_lost_gradients(options: dict[str, Any]) -> None:
    """Options that would learn nothing, without a word."""
    for name, value in options.items():
        learns = isinstance(value, torch.Tensor) and value.requires_grad
        if learns and name not in _LEARNT and torch.is_grad_enabled():
            raise UnsupportedError(f"{name}: has no gradient here: give its detach()")


def _empty(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Any, device: Device | None
) -> torch.Tensor:
    """Attention over operands with an axis of 0 elements, which no tensor has."""
    named = {name: x for name, x in options.items() if name not in _LEARNT}
    result = host_attention(q, k, v, device=device, **named)
    return torch.from_numpy(result).to(q.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, device: Device, *given: Any) -> torch.Tensor:
        names = ("input", "weight", "bias")[: len(given)]
        tensors = {name: _upload(device, x, name) for name, x in zip(names, given)}
        x, weight = tensors["input"], tensors["weight"]
        output = Tensor(device, (*x.shape[:-1], weight.shape[0]), x.dtype)
        plan = Plan(device)
        plan.linear(x, weight, output, bias=tensors.get("bias"))
        plan.finish().run()
        plan.close()
        ctx.vkattn = device, tensors, given
        return _download(output, given[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        device, tensors, given = ctx.vkattn
        wanted = _wanted(device, ctx.needs_input_grad[1:], tensors)
        plan = Plan(device)
        plan.linear_backward(
            _upload(device, gradient, "gradient"),
            input=tensors["input"],
            weight=tensors["weight"],
            **wanted,
        )
        plan.finish().run()
        plan.close()
        return None, *_results(wanted, tensors, given)


@_eager
def linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    device: Device | None = None,
) -> torch.Tensor:
    """input weight^T + bias, as torch.nn.functional.linear: input [...][in] of 1 to 4 axes, weight
    [out][in], bias [out]. Gradients reach all three."""
    _refuse_tracing()
    given = (input, weight) if bias is None else (input, weight, bias)
    for name, x in zip(("input", "weight", "bias"), given):
        _name(x, name)
    if 0 in (*input.shape, *weight.shape) and weight.dim() == 2:
        if not input.dim() or input.shape[-1] != weight.shape[1]:
            raise InvalidError(f"input: expected [..][{weight.shape[1]}], got {list(input.shape)}")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise InvalidError(f"bias: expected [{weight.shape[0]}], got {list(bias.shape)}")
        nothing = _nothing((*input.shape[:-1], weight.shape[0]), input, *given)
        return nothing if bias is None else nothing + bias.to(input.dtype)
    out: torch.Tensor = _Linear.apply(pick_device(device), *given)
    return out


class _Layer(torch.autograd.Function):
    """Operands by name: inputs, weights and biases of projections, options that learn. key and value
    may be named as the input that they are."""

    @staticmethod
    def forward(
        ctx: Any, device: Device, n_head: int, layout: str, options: Any, roles: Any, names: Any,
        *given: Any,
    ) -> torch.Tensor:
        tensors = {name: _upload(device, x, name) for name, x in zip(names, given)}
        weights: Any = {
            name: (tensors[f"{name}.weight"], tensors.get(f"{name}.bias")) for name in _PROJECTIONS
        }
        layer = Layer(device, n_head=n_head, layout=layout, **weights)
        query, key, value = (tensors[role] for role in roles)
        operands = {"key": key, "value": value, **options}
        operands.update((name, tensors[name]) for name in _LEARNT if name in tensors)
        output = Tensor(device, (*query.shape[:2], layer.output_dim), query.dtype)
        plan = Plan(device)
        plan.layer(layer, query, output, **operands)
        plan.finish().run()
        plan.close()
        ctx.vkattn = device, layer, query, output, operands, tensors, given
        return _download(output, given[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        device, layer, query, output, operands, tensors, given = ctx.vkattn
        wanted = _wanted(device, ctx.needs_input_grad[6:], tensors)
        arguments: Any = {name: tensor for name, tensor in wanted.items() if "." not in name}
        for name in _PROJECTIONS:
            pair = (wanted.get(f"{name}.{part}_gradient") for part in ("weight", "bias"))
            arguments[f"{name}_weights"] = tuple(pair)
        plan = Plan(device)
        plan.layer_backward(
            layer, query, output, _upload(device, gradient, "gradient"), **operands, **arguments
        )
        plan.finish().run()
        plan.close()
        return *(None,) * 6, *_results(wanted, tensors, given)


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention whose products and attention run on a Vulkan device. Not with
    add_bias_kv or add_zero_attn; weights are not returned."""

    vkattn_device: Device | None = None  # by default the most capable

    def _reset_parameters(self) -> None:
        # PyTorch's layers take a way of their own around `forward` where this flag is set.
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = False

    @_eager
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
        _refuse_tracing()
        if query.is_nested:
            return self._nested(query, key, value, key_padding_mask, attn_mask, is_causal), None
        if need_weights or self.bias_k is not None or self.add_zero_attn or query.dim() != 3:
            raise UnsupportedError(
                "MultiheadAttention: weights, bias_kv, zero_attn and inputs without a batch axis"
                " are not supported here; vkattn.Layer has them without gradients"
            )
        options: dict[str, Any] = {}
        given = {"query": query, "key": key, "value": value}
        roles = ["query", "query" if key is query else "key"]
        roles.append("query" if value is query else roles[1] if value is key else "value")
        operands = {role: given[role] for role in dict.fromkeys(roles)}
        operands.update(self._weights())
        if attn_mask is not None:
            learns = attn_mask.requires_grad
            (operands if learns else options)["mask"] = _torch_mask(attn_mask)
        elif is_causal:
            options["causal"] = True
        if key_padding_mask is not None:
            options["key_padding_mask"] = key_padding_mask
        if self.training and self.dropout:
            options["dropout"] = self.dropout
            options["dropout_seed"] = int(torch.randint(2**63 - 1, ()))
        if 0 in (*query.shape, *key.shape, *value.shape):
            return self._empty(query, key, value, operands), None
        layout = "bsd" if self.batch_first else "sbd"
        device = pick_device(self.vkattn_device)
        out: torch.Tensor = _Layer.apply(
            device, self.num_heads, layout, options, roles, tuple(operands), *operands.values()
        )
        return out, None

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
        return torch.nested.nested_tensor([x[:n] for x, n in zip(out, lengths.tolist())])

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
        nothing = _nothing((*query.shape[:2], self.embed_dim), query, *operands.values())
        bias = self.out_proj.bias
        return nothing if bias is None else nothing + bias.to(query.dtype)

    def _weights(self) -> dict[str, torch.Tensor]:
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        named = {
            **{f"{name}.weight": x for name, x in zip(_PROJECTIONS, weights)},
            **{f"{name}.bias": x for name, x in zip(_PROJECTIONS, biases)},
            "output.weight": self.out_proj.weight,
            "output.bias": self.out_proj.bias,
        }
        return {name: x for name, x in named.items() if x is not None}


def _torch_mask(mask: torch.Tensor) -> torch.Tensor:
    """PyTorch's boolean masks of this module are True where a key is hidden."""
    return ~mask if mask.dtype == torch.bool else mask
