"""Llama and its relatives: RMS norms, rotary embedding, grouped heads, a gated product."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._config import Config, shown
from .._device import Tensor
from .._errors import FileError, UnsupportedError
from .._gguf import GGUF
from .._options import Rope
from .._rope import rope_of
from ._decoder import Decoder, Inputs
from ._graph import Graph, Linear
from ._source import Keys, Weights
from ._table import ACTIVATIONS
from ._text import Text

@dataclasses.dataclass
class Sizes:
    """What the metadata says, of either kind of file."""

    width: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    ffn_width: int
    n_token: int
    epsilon: float
    rope: Any  # a Rope, or the Config that rope_of reads when the length is known
    windows: list[int | None]  # keys that a layer sees, its own included
    activation: str = "silu"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False  # of queries and keys
    tied: bool = False
    interleaved: bool = False
    fused: bool = False  # q, k and v in one matrix, gate and up in another


# Names of tensors: safetensors, GGUF.
_NAMES = {
    "embedding": ("model.embed_tokens", "token_embd"),
    "norm": ("model.norm", "output_norm"),
    "head": ("lm_head", "output"),
    "attn_norm": ("input_layernorm", "attn_norm"),
    "ffn_norm": ("post_attention_layernorm", "ffn_norm"),
    "qkv": ("self_attn.qkv_proj", "attn_qkv"),
    "q": ("self_attn.q_proj", "attn_q"),
    "k": ("self_attn.k_proj", "attn_k"),
    "v": ("self_attn.v_proj", "attn_v"),
    "o": ("self_attn.o_proj", "attn_output"),
    "q_norm": ("self_attn.q_norm", "attn_q_norm"),
    "k_norm": ("self_attn.k_norm", "attn_k_norm"),
    "gate_up": ("mlp.gate_up_proj", "ffn_up"),
    "gate": ("mlp.gate_proj", "ffn_gate"),
    "up": ("mlp.up_proj", "ffn_up"),
    "down": ("mlp.down_proj", "ffn_down"),
}


class _Block:
    def __init__(self, weights: Weights, s: Sizes, prefix: str, kind: int) -> None:
        def linear(part: str, rows: int, columns: int, bias: bool) -> Linear:
            return weights.linear(prefix + _NAMES[part][kind], rows, columns, bias=bias)

        def linears(bias: bool, **rows: int) -> list[Linear]:
            names = [prefix + _NAMES[part][kind] for part in rows]
            return weights.linears(names, list(rows.values()), s.width, bias=bias)

        def norm(part: str, size: int) -> Tensor:
            return weights.vector(f"{prefix}{_NAMES[part][kind]}.weight", size)

        heads, kv = s.n_head * s.head_dim, s.n_kv_head * s.head_dim
        self.attn_norm = norm("attn_norm", s.width)
        self.ffn_norm = norm("ffn_norm", s.width)
        if s.fused:
            self.qkv = linears(False, qkv=heads + 2 * kv)
            self.gate_up = linears(False, gate_up=2 * s.ffn_width)
        else:
            self.qkv = linears(s.qkv_bias, q=heads, k=kv, v=kv)
            self.gate_up = linears(s.mlp_bias, gate=s.ffn_width, up=s.ffn_width)
        self.o = linear("o", s.width, heads, s.output_bias)
        self.down = linear("down", s.width, s.ffn_width, s.mlp_bias)
        self.norms: dict[str, Any] = {}
        if s.head_norms:
            self.norms = {name: norm(name, s.head_dim) for name in ("q_norm", "k_norm")}
            self.norms["norm_epsilon"] = s.epsilon


class Llama(Decoder):
    """The CausalLM of Llama, Mistral, Phi 3, Qwen 2 and Qwen 3; or their GGUF."""

    max_length = None

    def __init__(
        self, weights: Weights, sizes: Sizes, kind: int, stop: tuple[int, ...], text: Text
    ) -> None:
        s = self.sizes = sizes
        self.device = weights.device
        self.n_token, self.n_layer = s.n_token, s.n_layer
        self.n_kv_head, self.head_dim = s.n_kv_head, s.head_dim
        self.stop_ids = stop
        self.text = text
        head = f"{_NAMES['head'][kind]}.weight"
        names = [f"{_NAMES['embedding'][kind]}.weight", *[head] * s.tied]
        self.embedding = weights.embedding(names, s.n_token, s.width)
        self.norm = weights.vector(f"{_NAMES['norm'][kind]}.weight", s.width)
        self.head = Linear(self.embedding if s.tied else weights.matrix(head, s.n_token, s.width))
        prefixes = ("model.layers.{}.", "blk.{}.")
        self.blocks = [_Block(weights, s, prefixes[kind].format(i), kind) for i in range(s.n_layer)]
        # Old checkpoints have frequencies, which the config says again, and a copy of tied weights.
        weights.finish(
            lambda name: name.endswith("rotary_emb.inv_freq") or (s.tied and name == head)
        )
        self.unused = weights.unused

    def _rope(self, capacity: int) -> Rope:
        rope = self.sizes.rope
        if isinstance(rope, Config):
            rope = rope_of(rope, self.sizes.head_dim, capacity)
        return dataclasses.replace(rope, interleaved=self.sizes.interleaved)

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        s, plan = self.sizes, graph.plan
        rope = self._rope(inputs.capacity)
        windows: list[dict[str, Any]] = [{"window": (w - 1, -1)} if w else {} for w in s.windows]
        x = graph.gather(self.embedding, inputs.ids)
        normed = graph.make(s.width)
        heads, kv = s.n_head * s.head_dim, s.n_kv_head * s.head_dim
        qkv, context = graph.make(heads + 2 * kv), graph.make(heads)
        q, k, v = graph.split(qkv, heads, kv, kv)
        qh, contexth = (graph.heads(t, s.n_head) for t in (q, context))
        kh, vh = (graph.heads(t, s.n_kv_head) for t in (k, v))
        gate_up = graph.make(2 * s.ffn_width)
        gate, up = graph.split(gate_up, s.ffn_width, s.ffn_width)
        plan.norm(x, normed, weight=self.blocks[0].attn_norm, epsilon=s.epsilon)
        for i, block in enumerate(self.blocks):
            graph.linears(normed, block.qkv, qkv)
            plan.attention(
                qh,
                kh,
                vh,
                contexth,
                cache=inputs.cache,
                cache_layer=i,
                n_append=inputs.n_append,
                causal=True,
                rope=rope,
                **windows[i],
                **block.norms,
            )
            graph.residual(context, block.o, x)
            plan.norm(x, normed, weight=block.ffn_norm, epsilon=s.epsilon)
            graph.linears(normed, block.gate_up, gate_up)
            plan.activation(gate, gate, s.activation, multiplier=up)
            graph.residual(gate, block.down, x)
            last = i + 1 == s.n_layer
            weight = self.norm if last else self.blocks[i + 1].attn_norm
            plan.norm(x, normed, weight=weight, epsilon=s.epsilon)
        return normed

    def add_head(self, graph: Graph, rows: Tensor) -> Tensor:
        return graph.linear(rows, self.head)


# ---- config.json --------------------------------------------------------------------------------

MODEL_TYPES = ("llama", "mistral", "phi3", "qwen2", "qwen3")


def _layer_kinds(keys: Keys, kind: str, n_layer: int) -> list[int | None]:
    """The window of each layer."""
    if kind == "llama":
        keys.only("sliding_window")
        keys.only("use_sliding_window", False)
        keys.only("max_window_layers")
        keys.only("layer_types", ["full_attention"] * n_layer)
        return [None] * n_layer
    # Where the key is missing, not null, transformers has a window, but for Phi 3.
    missing = "sliding_window" not in keys.values and kind != "phi3"
    window = keys.get("sliding_window", int, 4096 if missing else None)
    every_layer = kind in ("mistral", "phi3")
    if not every_layer:
        on = keys.get("use_sliding_window", bool, False)
        window = window if on else None
    first = keys.get("max_window_layers", int, 0 if every_layer else 28)
    kinds = keys.get("layer_types", list)
    if window is not None and window < 1:
        raise FileError(f"{keys.where}: sliding_window: expected at least 1, got {window}")
    if kinds is None:
        return [window if i >= first else None for i in range(n_layer)]
    if len(kinds) != n_layer or any(
        k not in ("full_attention", "sliding_attention") for k in kinds
    ):
        raise UnsupportedError(f"{keys.where}: layer_types {shown(kinds)} is not supported")
    if "sliding_attention" in kinds and window is None:
        raise FileError(f"{keys.where}: layer_types: expected a sliding_window, there is none")
    return [window if k == "sliding_attention" else None for k in kinds]


ROPE_KEYS = (
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    *("max_position_embeddings", "original_max_position_embeddings"),
)


def sizes_of_config(keys: Keys, kind: str) -> Sizes:
    width, n_head = keys.size("hidden_size"), keys.size("num_attention_heads")
    n_layer = keys.size("num_hidden_layers")
    attention_bias = kind == "qwen2" or keys.get("attention_bias", bool, False)
    if kind in ("mistral", "phi3") and attention_bias:
        raise UnsupportedError(f"{keys.where}: attention_bias true is not supported")
    activation = keys.get("hidden_act", str, "silu")
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"{keys.where}: hidden_act {shown(activation)} is not supported")
    for key in ROPE_KEYS:
        keys.left.discard(key)
    head_dim = keys.size("head_dim", 128 if kind == "qwen3" else max(width // n_head, 1))
    rope_of(keys.config, head_dim, 1)  # so that what is not supported is refused now
    n_kv_head = keys.size("num_key_value_heads", n_head)
    if n_head % n_kv_head:
        raise FileError(f"{keys.where}: num_key_value_heads: {n_kv_head} do not divide {n_head}")
    return Sizes(
        width=width,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=n_kv_head,
        head_dim=head_dim,
        ffn_width=keys.size("intermediate_size"),
        n_token=keys.size("vocab_size"),
        epsilon=keys.positive("rms_norm_eps", 1e-5 if kind == "phi3" else 1e-6),
        rope=keys.config,
        windows=_layer_kinds(keys, kind, n_layer),
        activation=ACTIVATIONS[activation],
        qkv_bias=attention_bias,
        output_bias=attention_bias and kind != "qwen2",
        mlp_bias=kind == "llama" and keys.get("mlp_bias", bool, False),
        head_norms=kind == "qwen3",
        tied=keys.get("tie_word_embeddings", bool, False),
        interleaved=keys.get("rope_interleaved", bool, False),
        fused=kind == "phi3",
    )


# ---- GGUF ---------------------------------------------------------------------------------------

ARCHITECTURES = ("llama", "phi3", "qwen2", "qwen3")


def sizes_of_gguf(keys: Keys, kind: str, file: GGUF, weights: Weights) -> Sizes:
    width = keys.size(f"{kind}.embedding_length")
    n_head = keys.size(f"{kind}.attention.head_count")
    head_dim = keys.size(f"{kind}.attention.key_length", max(width // n_head, 1))
    keys.only(f"{kind}.attention.value_length", head_dim)
    n_layer = keys.size(f"{kind}.block_count")
    dim = keys.size(f"{kind}.rope.dimension_count", head_dim)
    n_token = keys.size(f"{kind}.vocab_size", (file.shape("token_embd.weight") or (1,))[0])
    keys.get(f"{kind}.context_length", int)
    window = 0
    if kind == "phi3":
        window = keys.get("phi3.attention.sliding_window", int, 0)  # 0: none
        if window < 0:
            raise FileError(f"{keys.where}: phi3.attention.sliding_window: {window} is negative")
        # It belongs to the tensors rope_factors_long and _short, which are refused.
        keys.get("phi3.rope.scaling.original_context_length", int)
    return Sizes(
        width=width,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=keys.size(f"{kind}.attention.head_count_kv", n_head),
        head_dim=head_dim,
        ffn_width=keys.size(f"{kind}.feed_forward_length"),
        n_token=n_token,
        epsilon=keys.positive(f"{kind}.attention.layer_norm_rms_epsilon", 1e-5),
        rope=_gguf_rope(keys, kind, weights, dim),
        windows=[window or None] * n_layer,
        qkv_bias="blk.0.attn_q.bias" in weights,
        output_bias="blk.0.attn_output.bias" in weights,
        mlp_bias="blk.0.ffn_down.bias" in weights,
        head_norms=kind == "qwen3",
        tied="output.weight" not in weights,
        interleaved=kind == "llama",  # as llama.cpp's converter permutes rows of q and k
        fused=kind == "phi3",
    )


def _gguf_rope(keys: Keys, kind: str, weights: Weights, dim: int) -> Rope:
    base = keys.positive(f"{kind}.rope.freq_base", 10000.0)
    scaling = keys.get(f"{kind}.rope.scaling.type", str, "none")
    factor = keys.positive(f"{kind}.rope.scaling.factor", 1.0)
    if scaling not in ("none", "linear") or (scaling == "none" and factor != 1):
        raise UnsupportedError(
            f"{keys.where}: {kind}.rope.scaling.type {shown(scaling)} with a factor of {factor:g}"
            " is not supported"
        )
    if dim % 2:
        raise FileError(f"{keys.where}: {kind}.rope.dimension_count: expected an even number")
    divisors = [factor] * (dim // 2)
    if "rope_freqs.weight" in weights:  # of Llama 3.1
        found = weights.numbers("rope_freqs.weight", dim // 2)
        divisors = [factor * x for x in found]
    if all(x == 1 for x in divisors):
        return Rope(dim, base)
    if not all(x >= 1 for x in divisors):
        raise UnsupportedError(f"{keys.where}: rope_freqs.weight below 1 is not supported")
    frequencies = tuple(base ** (-2 * i / dim) / x for i, x in enumerate(divisors))
    return Rope(dim, 0.0, frequencies=frequencies)
