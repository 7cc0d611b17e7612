"""BERT and its kin: RoBERTa, DistilBERT and ALBERT."""

from __future__ import annotations

from typing import NamedTuple

from .._device import Tensor
from .._errors import FileError
from ._encoder import Encoder, Pooling, activation_of
from ._graph import Graph, Linear
from ._source import Keys, Weights
from ._text import Text


class _Family(NamedTuple):
    """How a model_type names what all of them have."""

    prefix: str  # of its tensors below a head of training
    # Keys of config.json.
    width: str = "hidden_size"
    n_layer: str = "num_hidden_layers"
    n_head: str = "num_attention_heads"
    inner: str = "intermediate_size"
    activation: str = "hidden_act"
    activations: str = "gelu"  # where there is no such key
    # Tensors of a layer.
    layer: str = "encoder.layer.{}."
    qkv: tuple[str, ...] = tuple(f"attention.self.{x}" for x in ("query", "key", "value"))
    o: str = "attention.output.dense"
    attn_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    norm: str = "output.LayerNorm"


_FAMILIES = {
    "bert": _Family("bert."),
    "roberta": _Family("roberta."),
    "xlm-roberta": _Family("roberta."),
    "distilbert": _Family(
        prefix="distilbert.",
        width="dim",
        n_layer="n_layers",
        n_head="n_heads",
        inner="hidden_dim",
        activation="activation",
        layer="transformer.layer.{}.",
        qkv=tuple(f"attention.{x}_lin" for x in "qkv"),
        o="attention.out_lin",
        attn_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm="output_layer_norm",
    ),
    "albert": _Family(
        prefix="albert.",
        activations="gelu_new",
        layer="encoder.albert_layer_groups.{}.",
        qkv=tuple(f"attention.{x}" for x in ("query", "key", "value")),
        o="attention.dense",
        attn_norm="attention.LayerNorm",
        up="ffn",
        down="ffn_output",
        norm="full_layer_layer_norm",
    ),
}
MODEL_TYPES = tuple(_FAMILIES)
# What stands behind the encoder: heads of training, and a buffer of row numbers.
_INERT = (
    *("pooler.", "cls.", "lm_head.", "embeddings.position_ids", "qa_outputs.", "classifier."),
    *("dropout.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier."),
    *("predictions.", "sop_classifier."),
)


class _Block:
    def __init__(self, weights: Weights, at: str, model: Bert, names: _Family) -> None:
        width, inner, epsilon = model.width, model.inner, model.epsilon

        def linear(name: str, rows: int, columns: int) -> Linear:
            return weights.linear(at + name, rows, columns)

        self.qkv = weights.linears([at + name for name in names.qkv], [width] * 3, width)
        self.o = linear(names.o, width, width)
        self.attn_norm = weights.layer_norm(at + names.attn_norm, width, epsilon)
        self.up = linear(names.up, inner, width)
        self.down = linear(names.down, width, inner)
        self.norm = weights.layer_norm(at + names.norm, width, epsilon)


def _shared_layers(keys: Keys, n_layer: int) -> list[str]:
    """The layer of a file that each layer of an ALBERT is."""
    n_group, inner = keys.size("num_hidden_groups", 1), keys.size("inner_group_num", 1)
    if n_group > n_layer:
        raise FileError(f"{keys.where}: num_hidden_groups: {n_group} of {n_layer} layers")
    for key, without in (
        *(("net_structure_type", 0), ("gap_size", 0), ("num_memory_blocks", 0)),
        ("down_scale_factor", 1),
    ):
        keys.only(key, without)
    groups = (i * n_group // n_layer for i in range(n_layer))
    return [f"{group}.albert_layers.{i}" for group in groups for i in range(inner)]


class Bert(Encoder):
    """BertModel, RobertaModel, XLMRobertaModel, DistilBertModel or AlbertModel, alone or below a
    head of training, or a folder of sentence-transformers. See `vkattn.models.load`."""

    def __init__(
        self, weights: Weights, keys: Keys, kind: str, pooling: Pooling, text: Text
    ) -> None:
        names = _FAMILIES[kind]
        self.width = keys.size(names.width)
        self.n_layer = keys.size(names.n_layer)
        self.n_head = keys.size(names.n_head)
        self.inner = keys.size(names.inner)
        self.n_token = keys.size("vocab_size")
        positions = keys.size("max_position_embeddings")
        self.epsilon = 1e-12 if kind == "distilbert" else keys.positive("layer_norm_eps", 1e-12)
        name = keys.get(names.activation, str, names.activations)
        self.activation = activation_of(keys, names.activation, name)
        keys.only("position_embedding_type", "absolute")
        keys.only("is_decoder", False)
        keys.only("add_cross_attention", False)
        keys.get("tie_word_embeddings", bool)  # there is no head
        if self.width % self.n_head:
            raise FileError(f"{keys.where}: {names.n_head} do not divide {self.width}")
        prefix = names.prefix
        if f"{prefix}embeddings.word_embeddings.weight" not in weights:
            prefix = ""
        # RoBERTa counts from behind the id of padding on, and does not count that id.
        counted = "roberta" not in kind
        self.padding = None if counted else keys.get("pad_token_id", int, 1)
        if self.padding is not None and not 0 <= self.padding <= positions - 2:
            raise FileError(
                f"{keys.where}: pad_token_id: expected 0 to {positions - 2}, got {self.padding}"
            )
        self.first_position = 0 if self.padding is None else self.padding + 1
        super().__init__(weights, pooling, text, positions - self.first_position)
        # ALBERT's rows of embeddings are narrower, and a linear widens them.
        albert = kind == "albert"
        narrow = self.narrow = keys.size("embedding_size", 128) if albert else self.width
        at = f"{prefix}embeddings."
        self.embedding = weights.matrix(f"{at}word_embeddings.weight", self.n_token, narrow)
        self.positions = weights.matrix(f"{at}position_embeddings.weight", positions, narrow)
        self.types = None
        if kind == "distilbert":
            keys.get("sinusoidal_pos_embds", bool)  # the file has the positions that it means
        else:
            n_type = keys.size("type_vocab_size", 2)
            self.types = weights.matrix(f"{at}token_type_embeddings.weight", n_type, narrow)
        self.norm = weights.layer_norm(f"{at}LayerNorm", narrow, self.epsilon)
        self.widen = None
        if albert:
            name = f"{prefix}encoder.embedding_hidden_mapping_in"
            self.widen = weights.linear(name, self.width, narrow)
        places = _shared_layers(keys, self.n_layer) if albert else range(self.n_layer)
        made = {
            place: _Block(weights, f"{prefix}{names.layer.format(place)}", self, names)
            for place in dict.fromkeys(places)
        }
        self.blocks = [made[place] for place in places]
        self.n_layer = len(self.blocks)
        weights.finish(
            lambda name: name[len(prefix) * name.startswith(prefix) :].startswith(_INERT)
        )
        self.unused = weights.unused

    def add(self, graph: Graph, ids: Tensor, lengths: Tensor) -> Tensor:
        """The encoder's last rows [batch][rows][width]."""
        plan, width = graph.plan, self.width
        x = graph.gather(self.embedding, ids)
        qkv, context = graph.make(3 * width), graph.make(width)
        parts = graph.split(qkv, width, width, width)
        heads = [graph.heads(t, self.n_head) for t in (*parts, context)]
        inner = graph.make(self.inner)
        if self.types:
            plan.add(x, self.types.slice(0, 0, 1), x)  # texts, no pairs: type 0
        plan.add(x, self.positions.slice(0, self.first_position, graph.rows), x)
        plan.norm(x, x, **self.norm)
        if self.widen:
            x = graph.linear(x, self.widen)
        for block in self.blocks:
            graph.linears(x, block.qkv, qkv)
            graph.attention(*heads, kv_length=lengths)
            graph.residual(context, block.o, x)
            plan.norm(x, x, **block.attn_norm)
            graph.linear(x, block.up, inner)
            plan.activation(inner, inner, self.activation)
            graph.residual(inner, block.down, x)
            plan.norm(x, x, **block.norm)
        return x
