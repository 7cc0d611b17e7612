"""What functions and modules on PyTorch's tensors ask of their arguments."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad

from . import _torch_ops as ops
from ._device import Place, pick_device
from ._errors import InvalidError, UnsupportedError
from ._masks import Sizes


def check(tensor: torch.Tensor, what: str) -> None:
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
    if tensor.layout != torch.strided:
        raise InvalidError(f"{what}: expected a dense tensor, got {tensor.layout}: give its to_dense()")
    if tensor.device.type not in ("cpu", "meta"):
        got = f"got {tensor.device}: give {what}.cpu()"
        raise InvalidError(f"{what}: expected a tensor of the CPU, {got}")


def refuse_transforms(name: str, *tensors: torch.Tensor | None) -> None:
    """What PyTorch would pass over without a word, and what it tells of in its own words: tangents,
    and the transforms of torch.func, of which vmap is told by the operators themselves."""
    if torch.compiler.is_compiling():
        return
    level: Any = torch._C._functorch.peek_interpreter_stack()
    if level is not None and level.key() != torch._C._functorch.TransformType.Vmap:
        raise UnsupportedError(
            f"vkattn.torch.{name}: torch.func.grad, jvp and their kin are not supported: gradients are"
            " those of backward() and torch.autograd.grad"
        )
    unpack: Any = torch.autograd.forward_ad.unpack_dual
    if torch.autograd.forward_ad._current_level >= 0:
        if any(x is not None and unpack(x).tangent is not None for x in tensors):
            raise UnsupportedError(
                f"vkattn.torch.{name}: gradients in forward mode are not supported: give its primal"
            )


def key_of(device: Place) -> str:
    """The device as an operator's graph names it."""
    if device is None or isinstance(device, (str, int)):
        return "" if device is None else str(device)
    if not torch.compiler.is_compiling():
        pick_device(device)  # refuses what is none, and a closed one
    return device._key


def cast(x: torch.Tensor | None) -> torch.Tensor | None:
    """To autocast's type, where that is on."""
    if x is None or not torch.is_autocast_enabled("cpu") or not x.is_floating_point():
        return x
    return x.to(torch.get_autocast_dtype("cpu"))


def learnt_mask(mask: torch.Tensor, padding: Any, sizes: Sizes) -> torch.Tensor:
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
