"""What stands behind the rows of an encoder by a family's row: labels of texts or of ids, the
vocabulary, or narrower rows."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Union

from .._config import shown
from .._device import Tensor
from .._errors import FileError, UnsupportedError
from ._graph import Graph, Linear
from ._layers import Sizes, Switch, activation_of, is_on
from ._keys import Keys
from ._source import Weights

# How the name of a class in `architectures` ends, and the head that it has.
_ENDS = {
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "question",
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "HF_ColBERT": "colbert",
}
# The rows that a head reads by what config.json calls them; "late": its results are averaged.
_POOLS = {"cls": "first", "bos": "first", "mean": "mean", "late": "late"}

Named = Union[str, tuple[str, str]]  # or a key of config.json with its default


class Head(NamedTuple):
    """A product, an activation and a norm, each of which may be absent, and the product that ends
    it. {} in a name is the prefix of the encoder's tensors."""

    out: str
    pool: Named = ""  # "first", "mean" or "late" of the rows; "": each row by itself
    dense: str = ""
    activation: Named = ""  # "": that of the layers
    norm: str = ""
    dense_bias: Switch = True
    norm_bias: Switch = True
    bias: tuple[str, ...] = ()  # names that a file may have it by, besides that of `out`
    out_bias: Switch = True
    tied: Switch | None = None  # logits of the vocabulary, by the embedding unless it is off


Heads = Mapping[str, Head]
TIED = ("tie_word_embeddings", True)


def masked(at: str, norm: str, out: str, *bias: str, activation: str = "") -> Head:
    """A head over the vocabulary: `at` is its first product, `bias` names the last one's bias."""
    return Head(out, dense=at, activation=activation, norm=norm, bias=bias, tied=TIED)


_ROWS = {"token": Head("classifier"), "question": Head("qa_outputs")}
BERT: Heads = {
    **_ROWS,
    "sequence": Head("classifier", "first", "{}pooler.dense", "tanh"),
    "masked": masked(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    ),
    "colbert": Head("linear", out_bias=False),
}
NOMIC: Heads = {
    **BERT,
    "masked": BERT["masked"]._replace(norm="cls.predictions.transform.layer_norm"),
}
ROBERTA: Heads = {
    **_ROWS,
    "sequence": Head("classifier.out_proj", "first", "classifier.dense", "tanh"),
    "masked": masked(
        "lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", activation="gelu"
    ),
    "colbert": Head("linear", out_bias=False),
}
ELECTRA: Heads = {
    **_ROWS,
    "sequence": Head("classifier.out_proj", "first", "classifier.dense", "gelu"),
    "masked": masked(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        "generator_lm_head",
        activation="gelu",
    ),
}
DISTILBERT: Heads = {
    **_ROWS,
    "sequence": Head("classifier", "first", "pre_classifier", "relu"),
    "masked": masked("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    "colbert": Head("linear", out_bias=False),
}
ALBERT: Heads = {
    **_ROWS,
    "sequence": Head("classifier", "first", "{}pooler", "tanh"),
    "masked": masked(
        "predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"
    ),
}
_EUROBERT = Head("classifier", ("classifier_pooling", "late"), "dense", "gelu")
EUROBERT: Heads = {
    "token": Head("classifier"),
    "sequence": _EUROBERT,
    "masked": Head("lm_head", out_bias=("mlp_bias", False), tied=("tie_word_embeddings", False)),
}
_MODERNBERT = Head(
    "classifier",
    dense="head.dense",
    activation=("classifier_activation", "gelu"),
    norm="head.norm",
    dense_bias=("classifier_bias", False),
    norm_bias=("norm_bias", False),
)
MODERNBERT: Heads = {
    "token": _MODERNBERT,
    "question": _MODERNBERT,
    "sequence": _MODERNBERT._replace(pool=("classifier_pooling", "cls")),
    "masked": _MODERNBERT._replace(out="decoder", out_bias=("decoder_bias", True), tied=TIED),
    "colbert": Head("linear", out_bias=False),
}


def kind_of_head(keys: Keys) -> str:
    """Which head architectures in config.json names; "" where it is none."""
    named = keys.get("architectures", list, [])
    for end, kind in _ENDS.items():
        if any(isinstance(name, str) and name.endswith(end) for name in named):
            return kind
    return ""


def labels_of(keys: Keys) -> list[str]:
    count = keys.size("num_labels", 2)
    named = keys.get("id2label", dict, {str(i): f"LABEL_{i}" for i in range(count)})
    try:
        return [str(named[str(i)]) for i in range(len(named))]
    except KeyError as error:
        raise FileError(f"{keys.where}: id2label: there is no {error}") from None


class HeadLayers:
    """The head of a file, over rows [n][width]."""

    def __init__(
        self,
        weights: Weights,
        keys: Keys,
        prefix: str,
        head: Head,
        sizes: Sizes,
        embedding: Tensor,
        size: int | None,
    ) -> None:
        """size: of what it gives; None: as many as the file has rows."""
        named = _chosen(keys, head.pool)
        if named and named not in (*_POOLS, *_POOLS.values()):
            raise UnsupportedError(f"{keys.where}: {head.pool[0]} {shown(named)} is not supported")
        self.pool = _POOLS.get(named, named)
        width = sizes.width
        self.dense = self.norm = None
        if head.dense:
            inner = embedding.shape[1] if head.tied is not None else width
            bias = is_on(keys, head.dense_bias)
            self.dense = weights.linear(head.dense.format(prefix), inner, width, bias=bias)
            key = "hidden_act" if isinstance(head.activation, str) else head.activation[0]
            kind = _chosen(keys, head.activation)
            self.activation = sizes.activation
            if kind:
                known = kind if kind == "tanh" else activation_of(keys, key, kind)
                self.activation = {"kind": known}
            width = inner
        if head.norm:
            self.norm = _norm_of(weights, keys, head, sizes, width)
        self.out = self._read_out(weights, keys, head, embedding, width, size)
        self.size = self.out.size

    def _read_out(
        self,
        weights: Weights,
        keys: Keys,
        head: Head,
        embedding: Tensor,
        width: int,
        size: int | None,
    ) -> Linear:
        name = f"{head.out}.weight"
        if head.tied is not None and is_on(keys, head.tied):  # a copy in the file is not read
            weight = embedding
        else:
            rows = weights.shape(name)[0] if size is None and name in weights else size
            weight = weights.matrix(name, rows or 0, width, product=True)
        names = [x for x in (f"{head.out}.bias", *head.bias) if x in weights]
        if not is_on(keys, head.out_bias):
            return Linear(weight)
        return Linear(weight, weights.vector((names or [f"{head.out}.bias"])[-1], weight.shape[0]))

    def add(self, graph: Graph, rows: Tensor) -> Tensor:
        if self.dense:
            rows = graph.linear(rows, self.dense)
            graph.plan.activation(rows, rows, **self.activation)
        if self.norm:
            read, rows = rows, graph.device.empty(rows.shape)
            graph.plan.norm(read, rows, **self.norm)
        return graph.linear(rows, self.out)


def _chosen(keys: Keys, named: Named) -> str:
    return named if isinstance(named, str) else str(keys.get(named[0], str, named[1]))


def _norm_of(
    weights: Weights, keys: Keys, head: Head, sizes: Sizes, width: int
) -> dict[str, Any]:
    if is_on(keys, head.norm_bias):
        return weights.layer_norm(head.norm, width, sizes.epsilon)
    weight = weights.vector(f"{head.norm}.weight", width)
    return {"kind": "layer", "epsilon": sizes.epsilon, "weight": weight}


def read_head(
    weights: Weights,
    keys: Keys,
    prefix: str,
    heads: Heads,
    sizes: Sizes,
    embedding: Tensor,
) -> tuple[str, HeadLayers | None]:
    """Its kind, and its layers where the file has them: a folder may name the class that an encoder
    was trained in, and have the encoder alone."""
    kind = kind_of_head(keys)
    head = heads.get(kind)
    if head is None:
        return kind, None
    names = [head.dense.format(prefix)] if head.dense else []
    names += [] if head.tied is not None and is_on(keys, head.tied) else [head.out]
    if not all(f"{name}.weight" in weights for name in names):
        return kind, None
    size = {"question": 2, "masked": embedding.shape[0]}.get(kind)
    if kind in ("sequence", "token"):
        size = len(labels_of(keys))
    return kind, HeadLayers(weights, keys, prefix, head, sizes, embedding, size)
