"""BERT and its kin, and what sentence-transformers make of them: a mean of rows, normalised."""

from __future__ import annotations

import operator
import os
from typing import Any, NamedTuple, Sequence

import numpy as np

from .._config import read_json_file, shown
from .._errors import FileError, InvalidError, UnsupportedError
from .._tensor import Tensor
from ._graph import TIMEOUT, Graph, Linear
from ._llama import ACTIVATIONS
from ._source import Keys, Weights
from ._text import Text, check_texts

AT_ONCE = 16
ROWS = 32  # lengths of a batch are rounded up to them
KEPT = 8  # recorded plans



class _Family(NamedTuple):
    """How a model_type names what all of them have."""

    prefix: str  # of its tensors below a head of training
    # Keys of config.json.
    width: str = "hidden_size"
    n_layer: str = "num_hidden_layers"
    n_head: str = "num_attention_heads"
    inner: str = "intermediate_size"
    activation: str = "hidden_act"
    # Tensors of a layer.
    layer: str = "encoder.layer."
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
        layer="transformer.layer.",
        qkv=tuple(f"attention.{x}_lin" for x in "qkv"),
        o="attention.out_lin",
        attn_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm="output_layer_norm",
    ),
}
MODEL_TYPES = tuple(_FAMILIES)
# What stands behind the encoder: heads of training, and a buffer of row numbers.
_INERT = (
    *("pooler.", "cls.", "lm_head.", "embeddings.position_ids", "qa_outputs.", "classifier."),
    *("dropout.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier."),
)


class Pooling(NamedTuple):
    kind: str = "mean"  # or "cls", the first row
    normalised: bool = True
    max_length: int | None = None


class _Block:
    def __init__(self, weights: Weights, at: str, model: Bert, names: _Family) -> None:
        width, inner, epsilon = model.width, model.inner, model.epsilon

        def linear(name: str, rows: int, columns: int) -> Linear:
            return weights.linear(at + name, rows, columns)

        self.qkv = [linear(name, width, width) for name in names.qkv]
        self.o = linear(names.o, width, width)
        self.attn_norm = weights.layer_norm(at + names.attn_norm, width, epsilon)
        self.up = linear(names.up, inner, width)
        self.down = linear(names.down, width, inner)
        self.norm = weights.layer_norm(at + names.norm, width, epsilon)


class _Recording:
    """Up to `batch` texts of up to `rows` ids."""

    def __init__(self, model: Bert, batch: int, rows: int) -> None:
        device = model.device
        graph = Graph(device, batch, rows)
        self.plan = graph.plan
        self.ids = device.empty((batch, rows), "i32")
        self.lengths = device.empty((batch,), "i32")
        hidden = model.add(graph, self.ids, self.lengths)
        self.output = device.empty((batch, model.width))
        if model.pooling.kind == "mean":
            self.plan.pool(hidden, self.output, lengths=self.lengths)
        else:
            first = hidden.slice(1, 0, 1).reshape(batch, model.width)
            self.plan.activation(first, self.output, "identity")
        if model.pooling.normalised:  # x / |x|: the RMS norm divided by sqrt(width)
            weight = device.tensor(np.full(model.width, model.width**-0.5, np.float32))
            self.plan.norm(self.output, self.output, weight=weight, epsilon=1e-24)
        self.plan.finish()

    def run(self, texts: Sequence[Sequence[int]], timeout: float) -> np.ndarray:
        ids = np.full(self.ids.shape, -1, np.int32)
        lengths = np.zeros(self.lengths.shape, np.int32)
        for b, text in enumerate(texts):
            ids[b, : len(text)] = text
            lengths[b] = len(text)
        self.ids.write(ids)
        self.lengths.write(lengths)
        self.plan.run(timeout)
        return self.output.read()[: len(texts)]


class Bert:
    """BertModel, RobertaModel, XLMRobertaModel or DistilBertModel, alone or below a head of
    training, or a folder of sentence-transformers. See `vkattn.models.load`."""

    def __init__(
        self, weights: Weights, keys: Keys, kind: str, pooling: Pooling, text: Text
    ) -> None:
        self.device = weights.device
        self.pooling = pooling
        self.text = text
        names = _FAMILIES[kind]
        self.width = keys.size(names.width)
        self.n_layer = keys.size(names.n_layer)
        self.n_head = keys.size(names.n_head)
        self.inner = keys.size(names.inner)
        self.n_token = keys.size("vocab_size")
        positions = keys.size("max_position_embeddings")
        self.epsilon = 1e-12 if kind == "distilbert" else keys.positive("layer_norm_eps", 1e-12)
        activation = keys.get(names.activation, str, "gelu")
        if activation not in ACTIVATIONS:
            raise UnsupportedError(
                f"{keys.where}: {names.activation} {shown(activation)} is not supported"
            )
        self.activation = ACTIVATIONS[activation]
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
        most = positions - self.first_position
        self.max_length = min(pooling.max_length or most, most)
        text.most = self.max_length
        at = f"{prefix}embeddings."
        self.embedding = weights.matrix(f"{at}word_embeddings.weight", self.n_token, self.width)
        self.positions = weights.matrix(f"{at}position_embeddings.weight", positions, self.width)
        self.types = None
        if kind == "distilbert":
            keys.get("sinusoidal_pos_embds", bool)  # the file has the positions that it means
        else:
            n_type = keys.size("type_vocab_size", 2)
            self.types = weights.matrix(f"{at}token_type_embeddings.weight", n_type, self.width)
        self.norm = weights.layer_norm(f"{at}LayerNorm", self.width, self.epsilon)
        self.blocks = [
            _Block(weights, f"{prefix}{names.layer}{i}.", self, names) for i in range(self.n_layer)
        ]
        weights.finish(
            lambda name: name[len(prefix) * name.startswith(prefix) :].startswith(_INERT)
        )
        self.unused = weights.unused
        self._recorded: dict[tuple[int, int], _Recording] = {}

    def add(self, graph: Graph, ids: Tensor, lengths: Tensor) -> Tensor:
        """The encoder's last rows [batch][rows][width]."""
        plan, width = graph.plan, self.width
        x = graph.gather(self.embedding, ids)
        y, added, context = (graph.make(width) for _ in range(3))
        q, k, v = (graph.make(width) for _ in range(3))
        heads = [graph.heads(t, self.n_head) for t in (q, k, v, context)]
        inner = graph.make(self.inner)
        if self.types:
            plan.add(x, self.types.slice(0, 0, 1), x)  # texts, no pairs: type 0
        plan.add(x, self.positions.slice(0, self.first_position, graph.rows), x)
        plan.norm(x, x, **self.norm)
        for block in self.blocks:
            for by, output in zip(block.qkv, (q, k, v)):
                graph.linear(x, by, output)
            plan.attention(*heads, kv_length=lengths)
            graph.linear(context, block.o, added)
            plan.norm(added, y, residual=x, **block.attn_norm)
            graph.linear(y, block.up, inner)
            plan.activation(inner, inner, self.activation)
            graph.linear(inner, block.down, added)
            plan.norm(added, x, residual=y, **block.norm)
        return x

    def encode(self, text: str) -> list[int]:
        """The ids of a text, cut to max_length, by the model's tokenizer (package tokenizers)."""
        return self.text.encode(text)

    def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        *,
        at_once: int = AT_ONCE,
        timeout: float = TIMEOUT,
    ) -> np.ndarray:
        """A float32 vector of each text [n][width]: the mean of the last rows, of length 1, or what
        the folder of a sentence-transformer says.

        A text is a str, cut to max_length ids, or ids with those that begin and end a text, of
        which there may be up to max_length. at_once: texts of a run.
        """
        ids = [self._ids_of(text, f"texts[{i}]") for i, text in enumerate(check_texts(texts))]
        if operator.index(at_once) < 1:
            raise InvalidError(f"at_once: expected at least 1, got {at_once}")
        result = np.empty((len(ids), self.width), np.float32)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for at in range(0, len(ids), at_once):
            part = order[at : at + at_once]
            rows = min(-(-len(ids[part[-1]]) // ROWS) * ROWS, self.max_length)
            recording = self._recording(min(at_once, len(ids)), rows)
            result[part] = recording.run([ids[i] for i in part], timeout)
        return result

    def _recording(self, batch: int, rows: int) -> _Recording:
        key = batch, rows
        made = self._recorded.pop(key, None) or _Recording(self, batch, rows)
        self._recorded[key] = made  # the last one used is the last one dropped
        if len(self._recorded) > KEPT:
            self._recorded.pop(next(iter(self._recorded))).plan.close()
        return made

    def _ids_of(self, text: Any, what: str) -> list[int]:
        ids = self.encode(text) if isinstance(text, str) else [operator.index(i) for i in text]
        if not 1 <= len(ids) <= self.max_length:
            raise InvalidError(f"{what}: expected 1 to {self.max_length} ids, got {len(ids)}")
        for i in ids:
            if not 0 <= i < self.n_token:
                raise InvalidError(f"{what}: the model has {self.n_token} ids, got {i}")
        if self.padding in ids:
            raise InvalidError(f"{what}: {self.padding} is the id of padding, which has no place")
        return ids


# ---- sentence-transformers ----------------------------------------------------------------------

_PARTS = {
    "sentence_transformers.models.Transformer",
    "sentence_transformers.models.Pooling",
    "sentence_transformers.models.Normalize",
}


def pooling_of(folder: str) -> Pooling:
    """As modules.json and the files it names say; without one, the mean, normalised."""
    path = os.path.join(folder, "modules.json")
    if not os.path.isfile(path):
        return Pooling()
    modules = read_json_file(path, list)
    kinds = [m.get("type") if isinstance(m, dict) else None for m in modules]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _PARTS:
            raise UnsupportedError(f"{path}: {shown(kind)} is not supported")
    chosen = "mean"
    for module in modules:
        if module["type"].endswith("Pooling"):
            chosen = _pooling_kind(folder, module.get("path"), path)
    most = None
    other = os.path.join(folder, "sentence_bert_config.json")
    if os.path.isfile(other):
        keys = Keys(read_json_file(other), other)
        most = keys.size("max_seq_length") if keys.values.get("max_seq_length") else None
        keys.only("do_lower_case", False)  # the tokenizer does what it does
    other = os.path.join(folder, "config_sentence_transformers.json")
    if os.path.isfile(other):
        Keys(read_json_file(other), other).only("default_prompt_name")
    return Pooling(chosen, any(str(k).endswith("Normalize") for k in kinds), most)


def _pooling_kind(folder: str, place: Any, path: str) -> str:
    if not isinstance(place, str) or os.path.basename(place) != place or place in ("", ".", ".."):
        raise FileError(f"{path}: expected the name of a folder beside it, got {shown(place)}")
    where = os.path.join(folder, place, "config.json")
    keys = Keys(read_json_file(where), where)
    on = [
        key for key in keys.values if key.startswith("pooling_mode_") and keys.get(key, bool, False)
    ]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(on) != 1 or on[0] not in known:
        raise UnsupportedError(f"{where}: pooling by {shown(on)} is not supported")
    return known[on[0]]
