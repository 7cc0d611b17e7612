"""GPT-2: layer norms, learned positions, one projection for queries, keys and values."""

from __future__ import annotations

from typing import Any

from .._config import shown
from .._device import Tensor
from .._errors import FileError, UnsupportedError
from ._decoder import Decoder, Inputs
from ._graph import Graph, Linear
from ._source import Keys, Weights
from ._table import ACTIVATIONS
from ._text import Text

_INERT = (".attn.bias", ".attn.masked_bias")  # the causal mask


class _Block:
    def __init__(self, weights: Weights, prefix: str, width: int, inner: int, eps: float) -> None:
        def conv1d(name: str, rows: int, columns: int) -> Linear:
            """Stored [in][out]."""
            return weights.linear(f"{prefix}{name}", rows, columns, transposed=True)

        self.attn_norm = weights.layer_norm(f"{prefix}ln_1", width, eps)
        self.ffn_norm = weights.layer_norm(f"{prefix}ln_2", width, eps)
        self.qkv = conv1d("attn.c_attn", 3 * width, width)
        self.o = conv1d("attn.c_proj", width, width)
        self.up = conv1d("mlp.c_fc", inner, width)
        self.down = conv1d("mlp.c_proj", width, inner)


class GPT2(Decoder):
    """GPT2LMHeadModel, or GPT2Model with the embedding as its head."""

    needs_positions = True

    def __init__(self, weights: Weights, keys: Keys, stop: tuple[int, ...], text: Text) -> None:
        self.device = weights.device
        self.width = keys.size("n_embd", 768)
        self.n_layer = keys.size("n_layer", 12)
        self.n_head = self.n_kv_head = keys.size("n_head", 12)
        self.n_token = keys.size("vocab_size", 50257)
        self.max_length = keys.size("n_positions", 1024)
        keys.get("n_ctx", int)  # an old name of n_positions
        self.inner = keys.size("n_inner", 4 * self.width)
        epsilon = keys.positive("layer_norm_epsilon", 1e-5)
        activation = keys.get("activation_function", str, "gelu_new")
        if activation not in ACTIVATIONS:
            raise UnsupportedError(
                f"{keys.where}: activation_function {shown(activation)} is not supported"
            )
        self.activation = ACTIVATIONS[activation]
        self.scale = 0.0 if keys.get("scale_attn_weights", bool, True) else 1.0
        self.by_layer = keys.get("scale_attn_by_inverse_layer_idx", bool, False)
        keys.get("reorder_and_upcast_attn", bool)  # float32 here anyway
        keys.only("add_cross_attention", False)
        tied = keys.get("tie_word_embeddings", bool, True)
        if self.width % self.n_head:
            raise FileError(f"{keys.where}: n_head: {self.n_head} do not divide {self.width}")
        self.head_dim = self.width // self.n_head
        self.stop_ids = stop
        self.text = text
        prefix = "transformer." if "transformer.wpe.weight" in weights else ""
        head = "lm_head.weight"
        names = [f"{prefix}wte.weight", *[head] * tied]
        self.embedding = weights.embedding(names, self.n_token, self.width)
        self.positions = weights.matrix(f"{prefix}wpe.weight", self.max_length, self.width)
        self.blocks = [
            _Block(weights, f"{prefix}h.{i}.", self.width, self.inner, epsilon)
            for i in range(self.n_layer)
        ]
        self.norm = weights.layer_norm(f"{prefix}ln_f", self.width, epsilon)
        self.head = Linear(
            self.embedding if tied else weights.matrix(head, self.n_token, self.width)
        )
        weights.finish(lambda name: name.endswith(_INERT) or (tied and name == head))
        self.unused = weights.unused

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        plan, width = graph.plan, self.width
        assert inputs.positions is not None
        x = graph.gather(self.embedding, inputs.ids)
        plan.add(x, graph.gather(self.positions, inputs.positions), x)
        normed = graph.make(width)
        qkv, context, inner = graph.make(3 * width), graph.make(width), graph.make(self.inner)
        q, k, v = (graph.heads(t, self.n_head) for t in graph.split(qkv, width, width, width))
        contexth = graph.heads(context, self.n_head)
        plan.norm(x, normed, **self.blocks[0].attn_norm)
        for i, block in enumerate(self.blocks):
            graph.linear(normed, block.qkv, qkv)
            scale = self.scale or self.head_dim**-0.5
            plan.attention(
                q,
                k,
                v,
                contexth,
                cache=inputs.cache,
                cache_layer=i,
                n_append=inputs.n_append,
                causal=True,
                scale=scale / (i + 1) if self.by_layer else scale,
            )
            graph.residual(context, block.o, x)
            plan.norm(x, normed, **block.ffn_norm)
            graph.linear(normed, block.up, inner)
            plan.activation(inner, inner, self.activation)
            graph.residual(inner, block.down, x)
            last = i + 1 == self.n_layer
            norm = self.norm if last else self.blocks[i + 1].attn_norm
            plan.norm(x, normed, **norm)
        return normed

    def add_head(self, graph: Graph, rows: Tensor) -> Tensor:
        return graph.linear(rows, self.head)
