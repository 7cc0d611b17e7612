"""torch.compile keeps vkattn's attention as an operator of one graph, forward and backward; sdpa() puts
it into a model that calls PyTorch's own function. Needs PyTorch 2.5 or later.

    python torch_compile.py

SPDX-License-Identifier: MIT"""

import torch
from torch.nn.functional import scaled_dot_product_attention

import vkattn.torch


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    q, k, v = (x @ w).unflatten(-1, (4, 3, -1)).transpose(1, 2).unbind(-2)
    y = vkattn.torch.attention(q, k, v, causal=True)
    return torch.nn.functional.silu(y).transpose(1, 2).flatten(2)


def own_block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    q, k, v = (x @ w).unflatten(-1, (4, 3, -1)).transpose(1, 2).unbind(-2)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.nn.functional.silu(y).transpose(1, 2).flatten(2)


def main(backend: str = "inductor") -> float:
    torch.manual_seed(1)
    x, w = torch.randn(2, 10, 32), torch.randn(32, 96, requires_grad=True)
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    (compiled(x, w) ** 2).sum().backward()
    got, w.grad = w.grad, None
    (own_block(x, w) ** 2).sum().backward()
    error = ((got - w.grad).norm() / w.grad.norm()).item()
    print(f"relative error of the gradient, compiled: {error:.1e}")

    with vkattn.torch.sdpa():  # models that are not yours
        inside = torch.nn.functional.scaled_dot_product_attention is not scaled_dot_product_attention
        print("within sdpa() it is vkattn's:", inside, torch.equal(own_block(x, w), block(x, w)))
    return error


if __name__ == "__main__":
    main()
