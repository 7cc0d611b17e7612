"""Functions on PyTorch's CPU tensors that run on a Vulkan device and that PyTorch trains through.

    import vkattn.torch

    y = vkattn.torch.attention(q, k, v, causal=True)
    y.sum().backward()

    with vkattn.torch.sdpa():       # models that call F.scaled_dot_product_attention
        y = model(x)

    with vkattn.torch.kept(k, v):   # on the device between calls
        y = [vkattn.torch.attention(q, k, v) for q in queries]

    torch.nn.attention.activate_flash_attention_impl("vkattn")  # from PyTorch 2.10 on

The last line reaches PyTorch's own function by any name, on the default device, where PyTorch would
run its fused kernel for the CPU.
float32, float16 and bfloat16; gradients have the types of what they belong to, and the same bits in
each run. `MultiheadAttention` stands in for PyTorch's module of that name, its weights included.
All are custom operators of PyTorch (2.5 or later): torch.compile(fullgraph=True) and torch.export
keep them, forward and backward; under torch.autocast they take its type. device: a `vkattn.Device`,
an index or a part of a device's name. torch.compile leaves vkattn's functions on arrays out of its graphs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator, Union

import torch
import torch.nn.attention

from . import _torch_flash
from . import _torch_ops as ops
from ._device import Place, Tensor, pick_device
from ._errors import InvalidError, UnsupportedError
from ._masks import Sizes
from ._numbers import flag, real, wholes
from ._option_table import check_options, takes_options
from ._options import AttentionOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MultiheadAttention", "attention", "attention_weights", "kept", "linear", "sdpa"]

_torch_flash.register()


def _check(tensor: torch.Tensor, what: str) -> None:
    """float64 is refused, not rounded without a word."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in ops.NAMES:
        got: Any = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        cure = f": give {what}.float()" if got == torch.float64 else ""
        raise InvalidError(
            f"{what}: expected a tensor of float32, float16 or bfloat16, got {got}{cure}"
        )
    if tensor.is_nested:
        cure = "to_padded_tensor makes one"
        raise InvalidError(f"{what}: expected a tensor that is not nested: {cure}")
    if tensor.device.type not in ("cpu", "meta"):
        got = f"got {tensor.device}: give {what}.cpu()"
        raise InvalidError(f"{what}: expected a tensor of the CPU, {got}")


def _key(device: Place) -> str:
    """The device as an operator's graph names it."""
    if device is None or isinstance(device, (str, int)):
        return "" if device is None else str(device)
    if not torch.compiler.is_compiling():
        pick_device(device)  # refuses what is none, and a closed one
    return device._key


def _cast(x: torch.Tensor | None) -> torch.Tensor | None:
    """To autocast's type, where that is on."""
    if x is None or not torch.is_autocast_enabled("cpu") or not x.is_floating_point():
        return x
    return x.to(torch.get_autocast_dtype("cpu"))


def _tensor(value: Any, name: str) -> torch.Tensor:
    """An option's array; what a device holds is read."""
    if isinstance(value, torch.Tensor):
        return value
    if name == "dropout_seed":  # of 64 bits, which int64 keeps
        return torch.tensor(value - 2**64 if value >= 2**63 else value)
    return torch.as_tensor(value.read() if isinstance(value, Tensor) else value)


_KINDS: dict[str, Any] = {
    "bool": flag,
    "float": real,
    "int[]": lambda x, name: list(wholes(x, name, -1, 2**31 - 1)),
    "str": lambda x, name: x,
}


def _plain(options: dict[str, Any]) -> list[Any]:
    """The options that are no tensors, in the order of an operator's."""
    given = [
        None if options.get(name) is None else _KINDS[kind](options[name], name)
        for name, kind in ops.PLAIN.items()
    ]
    rope = options.get("rope")
    if rope is None:
        return given + [None] * len(ops.ROPE)
    frequencies = None if rope.frequencies is None else list(rope.frequencies)
    return [*given, rope.dim, rope.base, rope.interleaved, frequencies, rope.attention_factor]


def _mask(mask: torch.Tensor, padding: Any, sizes: Sizes) -> torch.Tensor:
    """A mask that learns, with padding in it, as the library has gradients of."""
    batch, n_head, n_q, n_kv = sizes
    if mask.dtype not in ops.NAMES:
        mask = mask.float()
    if mask.dim() == 3 and batch > 1 and mask.shape[0] == batch * n_head:
        mask = mask.view(batch, n_head, *mask.shape[1:])
    if padding is None:
        return mask
    if padding.dtype == torch.bool:
        padding = mask.new_zeros(padding.shape).masked_fill(padding, -torch.inf)
    if padding.shape != (batch, n_kv):
        raise InvalidError(
            f"key_padding_mask: expected [batch][n_kv], [{batch}, {n_kv}], got"
            f" {list(padding.shape)}"
        )
    bias: torch.Tensor = padding.to(mask.dtype)[:, None, None, :]
    if mask.dim() and mask.shape[-1] != 1:  # keys beyond a shorter mask are hidden
        bias = bias[..., : mask.shape[-1]]
    if any(1 not in (a, b) and a != b for a, b in zip(mask.shape[::-1], bias.shape[::-1])):
        raise InvalidError(
            f"mask: expected what broadcasts against [{batch}][n_head][{n_q}][{n_kv}], got"
            f" {list(mask.shape)}"
        )
    return mask + bias


@takes_options
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    device: Place = None,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """Attention of q [batch][n_head][n_q][head_dim], k [batch][n_kv_head][n_kv][head_dim] and v
    [batch][n_kv_head][n_kv][value_dim], or of all three without batch, with the options of
    `vkattn.attention`.

    Gradients reach q, k, v, and of the options a float mask, sink, q_norm and k_norm that require
    one. dropout: dropout_seed is drawn by PyTorch where it is not given.
    """
    output: torch.Tensor = _attend(ops.attention, q, k, v, device, dict(options))
    return output


@takes_options
def attention_weights(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    device: Place = None,
    **options: Unpack[AttentionOptions],
) -> torch.Tensor:
    """What `attention` weighs values with, [batch][n_head][n_q][n_kv], without dropout. It has no
    gradient: a backward through it is refused."""
    given = {**options, "dropout": None}
    weights: torch.Tensor = _attend(ops.attention_weights, q, k, v, device, given)
    return weights


def _attend(op: Any, q: Any, k: Any, v: Any, device: Place, options: dict[str, Any]) -> Any:
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check(x, name)
        if x.dim() not in (3, 4):
            raise InvalidError(f"{name}: expected 3 or 4 axes, got {list(x.shape)}")
        if x.dim() != q.dim():
            raise InvalidError(f"{name}: expected {q.dim()} axes as q has, got {list(x.shape)}")
    given: dict[str, Any] = {name: x for name, x in options.items() if x is not None}
    check_options(given)
    _refuse_lost_gradients(given)
    if q.dim() == 3:
        return _attend(op, q[None], k[None], v[None], device, given)[0]
    q, k, v = _cast(q), _cast(k), _cast(v)
    if given.get("dropout") and "dropout_seed" not in given:
        given["dropout_seed"] = torch.randint(2**63 - 1, ())
    tensors = {name: _tensor(given[name], name) for name in ops.TENSORS if name in given}
    for name in ("sink", "q_norm", "k_norm"):  # of float32 on the device
        if name in tensors and tensors[name].dtype in ops.NAMES:
            tensors[name] = tensors[name].float()
    if "mask" in tensors and tensors["mask"].requires_grad:
        padding = tensors.pop("key_padding_mask", None)
        batch, n_head, n_q = q.shape[:3]
        sizes = Sizes(batch, n_head, n_q, k.shape[2])
        tensors["mask"] = _mask(tensors["mask"], padding, sizes)
    made = op(q, k, v, *(tensors.get(name) for name in ops.TENSORS), *_plain(given), _key(device))
    return made[0] if isinstance(made, tuple) else made


def _refuse_lost_gradients(options: dict[str, Any]) -> None:
    """Options that would learn nothing, without a word."""
    for name, value in options.items():
        learns = isinstance(value, torch.Tensor) and value.requires_grad
        if learns and name not in ops.LEARNT and torch.is_grad_enabled():
            raise UnsupportedError(f"{name}: has no gradient here: give its detach()")


def linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    device: Place = None,
) -> torch.Tensor:
    """input weight^T + bias, as torch.nn.functional.linear: input [...][in] of 1 to 4 axes, weight
    [out][in], bias [out]. Gradients reach all three."""
    given = (input, weight) if bias is None else (input, weight, bias)
    for name, x in zip(("input", "weight", "bias"), given):
        _check(x, name)
    if weight.dim() != 2:
        raise InvalidError(f"weight: expected [out][in], got {list(weight.shape)}")
    if not input.dim() or input.shape[-1] != weight.shape[1]:
        raise InvalidError(f"input: expected [..][{weight.shape[1]}], got {list(input.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InvalidError(f"bias: expected [{weight.shape[0]}], got {list(bias.shape)}")
    out: torch.Tensor = ops.linear(_cast(input), _cast(weight), _cast(bias), _key(device))
    return out


def _taken(
    q: Any, k: Any, v: Any, mask: Any, dropout: Any, causal: Any, scale: Any, gqa: bool
) -> bool:
    """Whether arguments of F.scaled_dot_product_attention are such that vkattn means the same."""
    for x in (q, k, v):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.dtype != q.dtype:
            return False
        if x.device.type != "cpu" or x.dtype not in ops.NAMES or x.dim() not in (3, 4):
            return False
    if not q.dim() == k.dim() == v.dim() or k.shape[:-1] != v.shape[:-1]:
        return False
    if q.shape[-1] != k.shape[-1] or q.shape[:-3] != k.shape[:-3]:
        return False
    if 0 in (q.shape[-1], v.shape[-1]):
        return False
    grouped = gqa and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0
    if q.shape[-3] != k.shape[-3] and not grouped:
        return False
    if not 0 <= dropout < 1 or not (scale is None or abs(scale) < 3e38):
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:  # vmap and its kin
        return False
    if mask is None:
        return True
    scores = (*q.shape[:-1], k.shape[-2])
    return mask.dtype in (torch.bool, q.dtype) and not causal and _broadcasts(mask, scores)


def _broadcasts(mask: torch.Tensor, scores: tuple[int, ...]) -> bool:
    """Whether PyTorch takes the mask. `attention` takes more: fewer axes than 2, fewer keys than
    there are, and [batch * n_head][n_q][n_kv]."""
    if not 2 <= mask.dim() <= len(scores):
        return False
    return all(n in (1, own) for n, own in zip(reversed(mask.shape), reversed(scores)))


@contextlib.contextmanager
def kept(*tensors: torch.Tensor, device: Place = None) -> Iterator[None]:
    """Keeps tensors on the device until the end of the block, such as the keys and values of a text
    that each step of a decoder attends to, or a weight: calls of this module that are given one of
    them, or the same elements with other axes of 1, copy nothing of it to the device.

    One that PyTorch writes to meanwhile is copied again by the next call. What writes to its memory
    without PyTorch's knowledge, through a numpy array or .data, is not seen. Under torch.autocast
    another type is another tensor, which is not kept.
    """
    held = []
    try:
        for i, tensor in enumerate(tensors):
            _check(tensor, f"tensors[{i}]")
            if tensor.is_inference():
                cure = "make it outside of torch.inference_mode, or clone it there"
                raise InvalidError(f"tensors[{i}]: of inference mode, whose writes no one counts: {cure}")
            if tensor.numel():
                held.append(ops.keep(_key(device), tensor, f"tensors[{i}]"))
        yield
    finally:
        for key in held:
            ops.drop(key)


@contextlib.contextmanager
def sdpa(device: Place = None) -> Iterator[None]:
    """Puts `attention` in place of torch.nn.functional.scaled_dot_product_attention in all threads
    until the end of the block, where what stood there before is put back.

    Calls that vkattn does not take go on to what stood there before: tensors that are nested or not
    on the CPU, types other than float32, float16 and bfloat16, other than 3 or 4 axes, operands
    that broadcast against each other, heads of 0 features, a scale that is not finite, dropout of
    all, torch.vmap, and arguments that PyTorch refuses. A NaN in a float mask hides its key, where
    PyTorch gives NaN. A module that imported the function by its name, and the native fast path of
    TransformerEncoderLayer in eval(), are not reached.
    """
    before = torch.nn.functional.scaled_dot_product_attention

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        given = query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        if not _taken(*given):
            return before(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                enable_gqa=enable_gqa,
            )
        options: Any = {"mask": attn_mask, "dropout": dropout_p, "scale": scale}
        return attention(query, key, value, device=device, causal=is_causal, **options)

    torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = before


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention whose products and attention run on a Vulkan device. Not with
    add_bias_kv or add_zero_attn; weights are not returned."""

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
        operands = {name: _cast(x) for name, x in operands.items()}
        if attn_mask is not None:
            mask = _torch_mask(attn_mask)
            if mask.requires_grad:
                batch, rows = (0, 1) if self.batch_first else (1, 0)
                sizes = query.shape[batch], self.num_heads, query.shape[rows], key.shape[rows]
                mask = _mask(mask, key_padding_mask, Sizes(*sizes))
                key_padding_mask = None
            operands["mask"] = mask
        for name, x in operands.items():
            if x is not None and name != "mask":
                _check(x, name)
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
            _key(self.vkattn_device),
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
