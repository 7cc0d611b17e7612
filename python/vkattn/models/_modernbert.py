"""ModernBERT: an encoder with rotary embedding, gated feed-forward, and windows in most layers."""

from __future__ import annotations

from typing import Any

from .._config import shown
from .._device import Tensor
from .._errors import FileError, UnsupportedError
from .._options import Rope
from ._encoder import Encoder, Pooling, activation_of
from ._graph import Graph
from ._source import Keys, Weights
from ._text import Text

_KINDS = ("full_attention", "sliding_attention")
_INERT = ("head.", "decoder.", "classifier.")  # heads of training
_INERT_KEYS = (
    *("initializer_cutoff_factor", "mlp_dropout", "embedding_dropout", "decoder_bias"),
    *("classifier_bias", "classifier_activation", "classifier_pooling", "sparse_prediction"),
    *("sparse_pred_ignore_index", "deterministic_flash_attn", "reference_compile", "repad_logits"),
    *("repad_logits_with_grad", "tie_word_embeddings", "position_embedding_type"),
)


class _Block:
    def __init__(self, weights: Weights, at: str, model: ModernBert, first: bool) -> None:
        width, inner = model.width, model.inner
        self.attn_norm = None if first else model.norm_of(weights, f"{at}attn_norm")
        self.qkv = weights.linear(f"{at}attn.Wqkv", 3 * width, width, bias=model.attention_bias)
        self.o = weights.linear(f"{at}attn.Wo", width, width, bias=model.attention_bias)
        self.norm = model.norm_of(weights, f"{at}mlp_norm")
        self.up = weights.linear(f"{at}mlp.Wi", 2 * inner, width, bias=model.mlp_bias)
        self.down = weights.linear(f"{at}mlp.Wo", width, inner, bias=model.mlp_bias)


def _kinds_of(keys: Keys, n_layer: int) -> list[str]:
    """Which layers see everything."""
    every = keys.size("global_attn_every_n_layers", 3)
    kinds = keys.get("layer_types", list)
    if kinds is None:
        return [_KINDS[bool(i % every)] for i in range(n_layer)]
    if len(kinds) != n_layer or not all(kind in _KINDS for kind in kinds):
        raise UnsupportedError(f"{keys.where}: layer_types {shown(kinds)} is not supported")
    return kinds


def _ropes_of(keys: Keys, dim: int) -> dict[str, Rope]:
    """The rotary embedding of each kind of layer, by the keys of old and new files."""
    bases = {
        _KINDS[0]: keys.positive("global_rope_theta", 160000.0),
        _KINDS[1]: keys.positive("local_rope_theta", 10000.0),
    }
    keys.only("rope_scaling")
    given = keys.get("rope_parameters", dict, {})
    for kind, values in given.items():
        if kind not in _KINDS or not isinstance(values, dict):
            raise UnsupportedError(f"{keys.where}: rope_parameters {shown(given)} is not supported")
        below = Keys(values, f"{keys.where}: rope_parameters: {kind}")
        below.only("rope_type", "default")
        bases[kind] = below.positive("rope_theta", bases[kind])
        if below.left:
            raise UnsupportedError(f"{below.where}: {min(below.left)} is not supported")
    return {kind: Rope(dim, base) for kind, base in bases.items()}


class ModernBert(Encoder):
    """ModernBertModel, alone or below a head of training, or a folder of sentence-transformers. See
    `vkattn.models.load`."""

    def __init__(self, weights: Weights, keys: Keys, pooling: Pooling, text: Text) -> None:
        super().__init__(weights, pooling, text, keys.size("max_position_embeddings"))
        self.width = keys.size("hidden_size")
        self.n_layer = keys.size("num_hidden_layers")
        self.n_head = keys.size("num_attention_heads")
        self.inner = keys.size("intermediate_size")
        self.n_token = keys.size("vocab_size")
        self.epsilon = keys.positive("norm_eps", keys.positive("layer_norm_eps", 1e-5))
        self.norm_bias = keys.get("norm_bias", bool, False)
        self.attention_bias = keys.get("attention_bias", bool, False)
        self.mlp_bias = keys.get("mlp_bias", bool, False)
        name = keys.get("hidden_activation", str, "gelu")
        self.activation = activation_of(keys, "hidden_activation", name)
        for key in _INERT_KEYS:
            keys.left.discard(key)
        if self.width % self.n_head or self.width // self.n_head % 2:
            raise FileError(f"{keys.where}: expected num_attention_heads of an even width")
        self.kinds = _kinds_of(keys, self.n_layer)
        self.ropes = _ropes_of(keys, self.width // self.n_head)
        near = keys.size("local_attention", 128) // 2
        self.windows = {_KINDS[0]: None, _KINDS[1]: (near, near)}
        prefix = "model."
        if f"{prefix}embeddings.tok_embeddings.weight" not in weights:
            prefix = ""
        self.embedding = weights.matrix(
            f"{prefix}embeddings.tok_embeddings.weight", self.n_token, self.width
        )
        self.norm = self.norm_of(weights, f"{prefix}embeddings.norm")
        self.blocks = [
            _Block(weights, f"{prefix}layers.{i}.", self, i == 0) for i in range(self.n_layer)
        ]
        self.final_norm = self.norm_of(weights, f"{prefix}final_norm")
        weights.finish(lambda name: name.startswith(_INERT))
        self.unused = weights.unused

    def norm_of(self, weights: Weights, name: str) -> dict[str, Any]:
        if self.norm_bias:
            return weights.layer_norm(name, self.width, self.epsilon)
        weight = weights.vector(f"{name}.weight", self.width)
        return {"kind": "layer", "epsilon": self.epsilon, "weight": weight}

    def add(self, graph: Graph, ids: Tensor, lengths: Tensor) -> Tensor:
        """The encoder's last rows [batch][rows][width]."""
        plan, width = graph.plan, self.width
        x = graph.gather(self.embedding, ids)
        y, context = graph.make(width), graph.make(width)
        qkv, both = graph.make(3 * width), graph.make(2 * self.inner)
        q, k, v = (graph.heads(t, self.n_head) for t in graph.split(qkv, width, width, width))
        inner, gate = graph.split(both, self.inner, self.inner)
        plan.norm(x, x, **self.norm)
        for i, (block, kind) in enumerate(zip(self.blocks, self.kinds)):
            if i:
                plan.norm(x, y, **block.attn_norm)
            graph.linear(y if i else x, block.qkv, qkv)
            graph.attention(
                q,
                k,
                v,
                graph.heads(context, self.n_head),
                kv_length=lengths,
                rope=self.ropes[kind],
                window=self.windows[kind],
            )
            graph.residual(context, block.o, x)
            plan.norm(x, y, **block.norm)
            graph.linear(y, block.up, both)
            plan.activation(inner, inner, self.activation, multiplier=gate)
            graph.residual(inner, block.down, x)
        plan.norm(x, y, **self.final_norm)
        return y
