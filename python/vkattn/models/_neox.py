"""GPT-NeoX and Pythia: attention and feed-forward side by side, a part of each head turned."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._config import Config, shown
from .._device import Tensor
from .._errors import FileError, UnsupportedError
from .._rope import rope_of
from ._decoder import Decoder, Inputs
from ._graph import Graph, Linear
from ._llama import ROPE_KEYS
from ._source import Keys, Weights
from ._table import ACTIVATIONS
from ._text import Text

# The causal mask, and frequencies that the config says again.
_INERT = (".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")


@dataclasses.dataclass
class Sizes:
    width: int
    ffn_width: int
    epsilon: float
    attention_bias: bool


class _Block:
    def __init__(self, weights: Weights, prefix: str, s: Sizes) -> None:
        def linear(name: str, rows: int, columns: int, bias: bool = True) -> Linear:
            return weights.linear(f"{prefix}{name}", rows, columns, bias=bias)

        def norm(name: str) -> dict[str, Any]:
            return weights.layer_norm(f"{prefix}{name}", s.width, s.epsilon)

        self.attn_norm = norm("input_layernorm")
        self.ffn_norm = norm("post_attention_layernorm")
        # Rows [n_head][q, k, v][head_dim].
        self.qkv = linear("attention.query_key_value", 3 * s.width, s.width, s.attention_bias)
        self.o = linear("attention.dense", s.width, s.width, s.attention_bias)
        self.up = linear("mlp.dense_h_to_4h", s.ffn_width, s.width)
        self.down = linear("mlp.dense_4h_to_h", s.width, s.ffn_width)


class GPTNeoX(Decoder):
    """GPTNeoXForCausalLM."""

    max_length = None

    def __init__(self, weights: Weights, keys: Keys, stop: tuple[int, ...], text: Text) -> None:
        self.device = weights.device
        s = self.sizes = Sizes(
            width=keys.size("hidden_size"),
            ffn_width=keys.size("intermediate_size"),
            epsilon=keys.positive("layer_norm_eps", 1e-5),
            attention_bias=keys.get("attention_bias", bool, True),
        )
        self.n_layer = keys.size("num_hidden_layers")
        self.n_head = self.n_kv_head = keys.size("num_attention_heads")
        self.n_token = keys.size("vocab_size")
        if s.width % self.n_head:
            raise FileError(
                f"{keys.where}: num_attention_heads: {self.n_head} do not divide {s.width}"
            )
        self.head_dim = s.width // self.n_head
        activation = keys.get("hidden_act", str, "gelu")
        if activation not in ACTIVATIONS:
            raise UnsupportedError(f"{keys.where}: hidden_act {shown(activation)} is not supported")
        self.activation = ACTIVATIONS[activation]
        self.parallel = keys.get("use_parallel_residual", bool, True)
        keys.get("is_decoder", bool)  # causal anyway
        tied = keys.get("tie_word_embeddings", bool, False)
        self.rope_config = _rope_config(keys)
        rope_of(self.rope_config, self.head_dim, 1)  # so that what is not supported is refused now
        self.stop_ids = stop
        self.text = text
        head = "embed_out.weight"
        names = ["gpt_neox.embed_in.weight", *[head] * tied]
        self.embedding = weights.embedding(names, self.n_token, s.width)
        self.blocks = [_Block(weights, f"gpt_neox.layers.{i}.", s) for i in range(self.n_layer)]
        self.norm = weights.layer_norm("gpt_neox.final_layer_norm", s.width, s.epsilon)
        self.head = Linear(self.embedding if tied else weights.matrix(head, self.n_token, s.width))
        weights.finish(lambda name: name.endswith(_INERT) or (tied and name == head))
        self.unused = weights.unused

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        plan, s = graph.plan, self.sizes
        rope = rope_of(self.rope_config, self.head_dim, inputs.capacity)
        x = graph.gather(self.embedding, inputs.ids)
        normed, context = graph.make(s.width), graph.make(s.width)
        qkv, inner = graph.make(3 * s.width), graph.make(s.ffn_width)
        heads, dim = graph.heads(qkv, self.n_head), self.head_dim
        q, k, v = (heads.slice(3, i * dim, dim) for i in range(3))
        contexth = graph.heads(context, self.n_head)
        plan.norm(x, normed, **self.blocks[0].attn_norm)
        for i, block in enumerate(self.blocks):
            graph.linear(normed, block.qkv, qkv)
            plan.attention(
                q,
                k,
                v,
                contexth,
                cache=inputs.cache,
                cache_layer=i,
                n_append=inputs.n_append,
                causal=True,
                rope=rope,
            )
            if self.parallel:  # of x without what attention adds
                plan.norm(x, normed, **block.ffn_norm)
            graph.residual(context, block.o, x)
            if not self.parallel:
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


def _rope_config(keys: Keys) -> Config:
    """With the names that other models have."""
    values = dict(keys.values)
    for old, new, default in (
        ("rotary_pct", "partial_rotary_factor", 0.25),
        ("rotary_emb_base", "rope_theta", 10000.0),
    ):
        given = keys.get(old, float)
        if values.get(new) is None:
            values[new] = default if given is None else given
    for key in ROPE_KEYS:
        keys.left.discard(key)
    return Config(values, keys.where)
