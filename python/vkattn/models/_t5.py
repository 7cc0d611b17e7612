"""T5's encoder: attention by learnt biases of distances, without a scale."""

from __future__ import annotations

import numpy as np

from .._device import Tensor
from .._errors import UnsupportedError
from ._encoder import Encoder, Pooling, activation_of
from ._graph import Graph
from ._source import Keys, Weights
from ._text import Text

_INERT = ("decoder.", "lm_head.", "encoder.embed_tokens.", "classification_head.", "classifier.")
_INERT_KEYS = (
    *("dropout_rate", "initializer_factor", "num_decoder_layers", "dense_act_fn", "is_gated_act"),
    *("scale_decoder_outputs", "tie_word_embeddings", "is_decoder"),
)


class _Block:
    def __init__(self, weights: Weights, at: str, model: T5Encoder) -> None:
        width, heads, inner = model.width, model.n_head * model.head_dim, model.inner
        attention, dense = f"{at}0.SelfAttention.", f"{at}1.DenseReluDense."
        self.attn_norm = model.norm_of(weights, f"{at}0.layer_norm")
        names = [attention + x for x in "qkv"]
        self.qkv = weights.linears(names, [heads] * 3, width, bias=False)
        self.o = weights.linear(f"{attention}o", width, heads, bias=False)
        self.norm = model.norm_of(weights, f"{at}1.layer_norm")
        names = [dense + x for x in (("wi_0", "wi_1") if model.gated else ("wi",))]
        self.up = weights.linears(names, [inner] * len(names), width, bias=False)
        self.down = weights.linear(f"{dense}wo", width, inner, bias=False)


def buckets(rows: int, n_bucket: int, most: int) -> np.ndarray:
    """The bias of key j for query i is that of bucket [i][j]: half are for keys after the query;
    each near distance has its own, and further ones share them by their logarithm up to `most`."""
    distance = np.arange(rows)[None, :] - np.arange(rows)[:, None]
    half, far = n_bucket // 2, np.abs(distance)
    near = half // 2
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(near))
    shared = near + (ratio / np.float32(np.log(most / near)) * (half - near)).astype(np.int64)
    return (distance > 0) * half + np.where(far < near, far, np.minimum(shared, half - 1))


class T5Encoder(Encoder):
    """The encoder of T5EncoderModel or T5ForConditionalGeneration, or a folder of
    sentence-transformers. See `vkattn.models.load`."""

    def __init__(self, weights: Weights, keys: Keys, pooling: Pooling, text: Text) -> None:
        # 512: no more was tried; the biases have no end
        super().__init__(weights, pooling, text, keys.size("n_positions", 512))
        self.width = keys.size("d_model")
        self.head_dim = keys.size("d_kv")
        self.inner = keys.size("d_ff")
        self.n_layer = keys.size("num_layers")
        self.n_head = keys.size("num_heads")
        self.n_token = keys.size("vocab_size")
        self.n_bucket = keys.size("relative_attention_num_buckets", 32)
        self.furthest = keys.size("relative_attention_max_distance", 128)
        self.epsilon = keys.positive("layer_norm_epsilon", 1e-6)
        words = keys.get("feed_forward_proj", str, "relu")
        self.gated = words.startswith("gated-")
        name = "gelu_new" if words == "gated-gelu" else words.removeprefix("gated-")
        self.activation = activation_of(keys, "feed_forward_proj", name)
        if self.n_bucket % 4 or self.furthest <= self.n_bucket // 4:
            raise UnsupportedError(
                f"{keys.where}: {self.n_bucket} relative_attention_num_buckets up to"
                f" {self.furthest} are not supported"
            )
        for key in _INERT_KEYS:
            keys.left.discard(key)
        names = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
        self.embedding = weights.embedding(names, self.n_token, self.width)
        at = "encoder.block."
        self.blocks = [_Block(weights, f"{at}{i}.layer.", self) for i in range(self.n_layer)]
        name = f"{at}0.layer.0.SelfAttention.relative_attention_bias.weight"
        self.biases = weights.matrix(name, self.n_bucket, self.n_head).read().astype(np.float32)
        self.norm = self.norm_of(weights, "encoder.final_layer_norm")
        weights.finish(lambda name: name.startswith(_INERT))
        self.unused = weights.unused

    def norm_of(self, weights: Weights, name: str) -> dict[str, object]:
        weight = weights.vector(f"{name}.weight", self.width)
        return {"kind": "rms", "epsilon": self.epsilon, "weight": weight}

    def add(self, graph: Graph, ids: Tensor, lengths: Tensor) -> Tensor:
        """The encoder's last rows [batch][rows][width]."""
        plan, width = graph.plan, self.width
        table = self.biases[buckets(graph.rows, self.n_bucket, self.furthest)]
        mask = self.device.tensor(np.ascontiguousarray(table.transpose(2, 0, 1)[None]))
        x = graph.gather(self.embedding, ids)
        y = graph.make(width)
        inside = self.n_head * self.head_dim
        qkv, context = graph.make(3 * inside), graph.make(inside)
        parts = graph.split(qkv, inside, inside, inside)
        heads = [graph.heads(t, self.n_head) for t in (*parts, context)]
        ups = graph.make((1 + self.gated) * self.inner)
        inner, *gate = graph.split(ups, *[self.inner] * (1 + self.gated))
        for block in self.blocks:
            plan.norm(x, y, **block.attn_norm)
            graph.linears(y, block.qkv, qkv)
            graph.attention(*heads, mask=mask, scale=1.0, kv_length=lengths)
            graph.residual(context, block.o, x)
            plan.norm(x, y, **block.norm)
            graph.linears(y, block.up, ups)
            plan.activation(inner, inner, self.activation, multiplier=gate[0] if gate else None)
            graph.residual(inner, block.down, x)
        plan.norm(x, y, **self.norm)
        return y
