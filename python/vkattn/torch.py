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
from ._device import Place, Tensor
from ._errors import InvalidError, UnsupportedError
from ._masks import Sizes
from ._numbers import flag, real, wholes
from ._option_table import check_options, takes_options
from ._options import AttentionOptions
from ._torch_check import cast, check, key_of, learnt_mask, refuse_transforms
from ._torch_module import MultiheadAttention

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MultiheadAttention", "attention", "attention_weights", "kept", "linear", "sdpa"]

_torch_flash.register()


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
        check(x, name)
        if x.dim() not in (3, 4):
            raise InvalidError(f"{name}: expected 3 or 4 axes, got {list(x.shape)}")
        if x.dim() != q.dim():
            raise InvalidError(f"{name}: expected {q.dim()} axes as q has, got {list(x.shape)}")
    given: dict[str, Any] = {name: x for name, x in options.items() if x is not None}
    check_options(given)
    _refuse_lost_gradients(given)
    refuse_transforms("attention", q, k, v, *(x for x in given.values() if isinstance(x, torch.Tensor)))
    if q.dim() == 3:
        return _attend(op, q[None], k[None], v[None], device, given)[0]
    q, k, v = cast(q), cast(k), cast(v)
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
        tensors["mask"] = learnt_mask(tensors["mask"], padding, sizes)
    made = op(q, k, v, *(tensors.get(name) for name in ops.TENSORS), *_plain(given), key_of(device))
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
        check(x, name)
    refuse_transforms("linear", *given)
    if weight.dim() != 2:
        raise InvalidError(f"weight: expected [out][in], got {list(weight.shape)}")
    if not input.dim() or input.shape[-1] != weight.shape[1]:
        raise InvalidError(f"input: expected [..][{weight.shape[1]}], got {list(input.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InvalidError(f"bias: expected [{weight.shape[0]}], got {list(bias.shape)}")
    out: torch.Tensor = ops.linear(cast(input), cast(weight), cast(bias), key_of(device))
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
            check(tensor, f"tensors[{i}]")
            if tensor.is_inference():
                cure = "make it outside of torch.inference_mode, or clone it there"
                raise InvalidError(f"tensors[{i}]: of inference mode, whose writes no one counts: {cure}")
            if tensor.numel():
                held.append(ops.keep(key_of(device), tensor, f"tensors[{i}]"))
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
