"""Encoders of texts by model_type of config.json: what their files name, and what they compute."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from .._config import Config, shown
from .._errors import FileError, UnsupportedError
from .._options import Rope
from .._rope import rope_of
from . import _heads as heads
from ._heads import Heads
from ._layers import Adapter, Layer, Size, Sizes, Words, is_on
from ._keys import Keys
from ._source import Weights


class Added(NamedTuple):
    """A table of embeddings, such as that of types of texts, whose first row each id gets."""

    name: str
    rows: tuple[str, int]
    times: int = 1
    typed: bool = False  # by the types of ids, such as those of a pair's texts


class Relative(NamedTuple):
    """Biases of scores by the distance of two ids, in buckets, for each head."""

    name: str  # of the table, below a layer where each has its own
    furthest: Size = ("relative_attention_max_distance", 128)
    each: bool = False


# Arguments of Plan.attention that layers do not share, such as windows; () if there are none.
Options = Callable[[Weights, Keys, Sizes, str], Sequence[dict[str, Any]]]


class Family(NamedTuple):
    prefix: str  # of its tensors below a head of training
    layer: Layer = Layer()
    words: Words = Words()
    embedding: tuple[str, ...] = ("embeddings.word_embeddings.weight",)  # names of one table
    scale: float = 1.0  # of it
    width: tuple[str, int] | None = None  # of its rows, where `widen` makes them as wide as others
    widen: str = ""
    added: tuple[Added, ...] = (
        Added("embeddings.token_type_embeddings.weight", ("type_vocab_size", 2), typed=True),
    )
    types_of_pairs: bool = True  # whether its tokenizers tell the texts of a pair apart
    positions: str = "embeddings.position_embeddings.weight"
    norm: str = "embeddings.LayerNorm"
    # An id that has no place in a text, as positions are counted from behind it on.
    padding: Size | None = None
    counts_padding: bool = True  # the longest text, and the table, end so much earlier
    before: int = 0  # rows of the table before that of a text's first id
    sinusoids: Callable[[int, int], Any] | None = None  # makes a table that a file may lack
    masked: tuple[str, str] | None = None  # keys of an id that has none either, and of why
    length: tuple[str, int | None] = ("max_position_embeddings", None)
    options: Options = lambda *_: ()
    relative: Relative | None = None
    attention_scale: float | None = None
    places: Callable[[Keys, int], Sequence[object] | None] = lambda *_: None
    heads: Heads = {}
    only: dict[str, tuple[Any, ...]] = {}  # values of keys that are followed, the default first
    inert: tuple[str, ...] = ()  # how the names of tensors without effect begin
    inert_words: tuple[str, ...] = ()  # what they hold somewhere
    inert_keys: tuple[str, ...] = ()
    resolve: Callable[[Keys, Family], Family] = lambda keys, family: family


# ---- BERT and its kin ---------------------------------------------------------------------------

_ENCODER = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
}
# What stands behind the encoder, as far as nothing reads it, and a buffer of row numbers.
_HEADS = (
    *("pooler.", "cls.", "lm_head.", "embeddings.position_ids", "qa_outputs.", "classifier."),
    *("dropout.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier."),
    *("predictions.", "sop_classifier.", "embeddings.token_type_ids"),
)
_BERT = Family("bert.", heads=heads.BERT, only=_ENCODER, inert=_HEADS)
_ROBERTA = _BERT._replace(
    prefix="roberta.", padding=("pad_token_id", 1), types_of_pairs=False, heads=heads.ROBERTA
)


def _albert_places(keys: Keys, n_layer: int) -> Sequence[object]:
    """The layer of a file that each layer of an ALBERT is."""
    n_group, inner = keys.size("num_hidden_groups", 1), keys.size("inner_group_num", 1)
    if n_group > n_layer:
        raise FileError(f"{keys.where}: num_hidden_groups: {n_group} of {n_layer} layers")
    groups = (i * n_group // n_layer for i in range(n_layer))
    return [f"{group}.albert_layers.{i}" for group in groups for i in range(inner)]


def _of_tasks(keys: Keys, family: Family) -> Family:
    """ERNIE's first task, where its files have tasks."""
    if not is_on(keys, ("use_task_id", False)):
        keys.left.discard("task_type_vocab_size")
        return family
    tasks = Added("embeddings.task_type_embeddings.weight", ("task_type_vocab_size", 3))
    return family._replace(added=(*family.added, tasks))


def _unless_wide(keys: Keys, family: Family) -> Family:
    """ELECTRA has no product behind embeddings that are as wide as its layers."""
    assert family.width
    if keys.size(*family.width) != keys.size("hidden_size"):
        return family
    return family._replace(width=None, widen="")


# ---- Rotary embedding and windows ---------------------------------------------------------------


_ROPE_KEYS = (
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    "original_max_position_embeddings",
)


def _rotates(base: float) -> Options:
    """base: where config.json does not state it."""

    def options(weights: Weights, keys: Keys, sizes: Sizes, prefix: str) -> Sequence[Any]:
        for key in _ROPE_KEYS:
            keys.left.discard(key)
        config = Config({"rope_theta": base, **keys.values}, keys.where)
        given = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
        kind = isinstance(given, dict) and given.get("rope_type", given.get("type"))
        if kind in ("longrope", "su"):
            raise UnsupportedError(f"{keys.where}: rope_type {shown(kind)} is not supported")
        return [{"rope": rope_of(config, sizes.head_dim)}] * sizes.n_layer

    return options


def _esm(keys: Keys, family: Family) -> Family:
    """ESM 1b has learnt positions, ESM 2 rotates."""
    kind = keys.get("position_embedding_type", str, "absolute")
    if kind not in ("absolute", "rotary"):
        raise UnsupportedError(
            f"{keys.where}: position_embedding_type {shown(kind)} is not supported"
        )
    if kind == "rotary":
        inert = (*family.inert, family.positions)
        family = family._replace(positions="", padding=None, options=_esm_options, inert=inert)
    else:
        keys.left.discard("rope_theta")
        if keys.values.get("pad_token_id") is None:
            raise FileError(f"{keys.where}: there is no pad_token_id")
    if is_on(keys, ("token_dropout", False)):
        family = family._replace(scale=1 - 0.15 * 0.8, masked=("mask_token_id", "token_dropout"))
    if not is_on(keys, ("emb_layer_norm_before", False)):
        family = family._replace(norm="")
    return family


def _esm_options(weights: Weights, keys: Keys, sizes: Sizes, prefix: str) -> Sequence[Any]:
    """The frequencies of a file come before those of its base."""
    base, dim = keys.positive("rope_theta", 10000.0), sizes.head_dim
    if dim % 2:
        raise FileError(f"{keys.where}: expected num_attention_heads of an even width")
    rope = Rope(dim, base)
    for where in ("", *(f"encoder.layer.{i}.attention.self." for i in "0*")):  # *: transformers 5
        name = f"{prefix}{where}rotary_embeddings.inv_freq"
        if name in weights:
            frequencies = tuple(weights.numbers(name, dim // 2))
            if not all(0 < x < 1e6 for x in frequencies):
                raise FileError(f"{weights.path}: {name}: expected positive numbers")
            rope = Rope(dim, 0.0, frequencies=frequencies)
            break
    return [{"rope": rope}] * sizes.n_layer


_KINDS = ("full_attention", "sliding_attention")


def _modernbert_kinds(keys: Keys, n_layer: int) -> list[str]:
    """Which layers see everything."""
    every = keys.size("global_attn_every_n_layers", 3)
    kinds: list[str] | None = keys.get("layer_types", list)
    if kinds is None:
        return [_KINDS[bool(i % every)] for i in range(n_layer)]
    if len(kinds) != n_layer or not all(kind in _KINDS for kind in kinds):
        raise UnsupportedError(f"{keys.where}: layer_types {shown(kinds)} is not supported")
    return kinds


def _modernbert_ropes(keys: Keys, dim: int) -> dict[str, Rope]:
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


def _modernbert(weights: Weights, keys: Keys, sizes: Sizes, prefix: str) -> Sequence[Any]:
    if sizes.head_dim % 2:
        raise FileError(f"{keys.where}: expected num_attention_heads of an even width")
    kinds, ropes = _modernbert_kinds(keys, sizes.n_layer), _modernbert_ropes(keys, sizes.head_dim)
    near = keys.size("local_attention", 128) // 2
    windows = {_KINDS[0]: None, _KINDS[1]: (near, near)}
    return [{"rope": ropes[kind], "window": windows[kind]} for kind in kinds]


# ---- T5 -----------------------------------------------------------------------------------------

_T5 = Family(
    prefix="",
    layer=Layer(
        at="encoder.block.{}.layer.",
        qkv=tuple(f"0.SelfAttention.{x}" for x in "qkv"),
        o="0.SelfAttention.o",
        attn_norm="0.layer_norm",
        up=("1.DenseReluDense.wi",),
        gated_up=("1.DenseReluDense.wi_0", "1.DenseReluDense.wi_1"),
        down="1.DenseReluDense.wo",
        norm="1.layer_norm",
        gated=None,
        norm_first=True,
        final_norm="encoder.final_layer_norm",
        rms=True,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
    ),
    words=Words(
        width="d_model",
        n_layer="num_layers",
        n_head="num_heads",
        inner="d_ff",
        head_dim="d_kv",
        activation="feed_forward_proj",
        activation_default="relu",
        epsilon=("layer_norm_epsilon",),
        epsilon_default=1e-6,
    ),
    embedding=("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    added=(),
    positions="",
    norm="",
    length=("n_positions", 512),  # no more was tried; the biases have no end
    relative=Relative("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    attention_scale=1.0,
    inert=(
        *("decoder.", "lm_head.", "encoder.embed_tokens.", "classification_head.", "classifier."),
        "qa_outputs.",
    ),
    inert_keys=(
        *("dropout_rate", "initializer_factor", "num_decoder_layers", "dense_act_fn"),
        *("is_gated_act", "scale_decoder_outputs", "is_decoder"),
    ),
)
_MT5 = _T5._replace(words=_T5.words._replace(activation_default="gated-gelu"))


# ---- All of them --------------------------------------------------------------------------------

FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA._replace(prefix="data2vec_text."),
    "xmod": _ROBERTA._replace(
        layer=Layer(
            norm_first=("pre_norm", False),
            final_norm="encoder.LayerNorm",
            adapter=Adapter("output.adapter_modules.", "output.adapter_layer_norm"),
        ),
        inert_words=(".adapter_modules.",),  # of other languages
    ),
    "ernie": _BERT._replace(prefix="ernie.", resolve=_of_tasks),
    "electra": _BERT._replace(
        prefix="electra.",
        heads=heads.ELECTRA,
        width=("embedding_size", 128),
        widen="embeddings_project",
        inert=(*_HEADS, "discriminator_", "generator_", "sequence_summary."),
        inert_keys=("summary_last_dropout",),
        resolve=_unless_wide,
    ),
    "megatron-bert": _BERT._replace(
        norm="",
        layer=Layer(norm_first=True, attn_norm="attention.ln", norm="ln", final_norm="encoder.ln"),
    ),
    "layoutlm": _BERT._replace(  # as if all boxes were empty
        prefix="layoutlm.",
        added=(
            *_BERT.added,
            *(
                Added(
                    f"embeddings.{x}_position_embeddings.weight",
                    ("max_2d_position_embeddings", 1024),
                    times,
                )
                for x, times in (("x", 2), ("y", 2), ("h", 1), ("w", 1))
            ),
        ),
    ),
    "distilbert": Family(
        prefix="distilbert.",
        heads=heads.DISTILBERT,
        words=Words("dim", "n_layers", "n_heads", "hidden_dim", "activation", epsilon=()),
        layer=Layer(
            at="transformer.layer.{}.",
            qkv=tuple(f"attention.{x}_lin" for x in "qkv"),
            o="attention.out_lin",
            attn_norm="sa_layer_norm",
            up=("ffn.lin1",),
            down="ffn.lin2",
            norm="output_layer_norm",
        ),
        added=(),
        only={**_ENCODER, "sinusoidal_pos_embds": (False, True)},  # the file has those it means
        inert=_HEADS,
    ),
    "albert": Family(
        prefix="albert.",
        heads=heads.ALBERT,
        words=Words(activation_default="gelu_new"),
        layer=Layer(
            at="encoder.albert_layer_groups.{}.",
            qkv=tuple(f"attention.{x}" for x in ("query", "key", "value")),
            o="attention.dense",
            attn_norm="attention.LayerNorm",
            up=("ffn",),
            down="ffn_output",
            norm="full_layer_layer_norm",
        ),
        width=("embedding_size", 128),
        widen="encoder.embedding_hidden_mapping_in",
        places=_albert_places,
        only={
            **_ENCODER,
            **dict.fromkeys(("net_structure_type", "gap_size", "num_memory_blocks"), (0,)),
            "down_scale_factor": (1,),
        },
        inert=_HEADS,
    ),
    "mpnet": Family(
        prefix="mpnet.",
        heads=heads.ROBERTA,
        layer=Layer(
            qkv=tuple(f"attention.attn.{x}" for x in "qkv"),
            o="attention.attn.o",
            attn_norm="attention.LayerNorm",
        ),
        added=(),
        padding=1,  # whatever pad_token_id says
        relative=Relative("encoder.relative_attention_bias.weight", 128),
        only={**_ENCODER, "relative_attention_num_buckets": (32,)},
        inert=_HEADS,
    ),
    "nomic_bert": Family(
        prefix="nomic_bert.",
        heads=heads.NOMIC,
        words=Words(activation_default="silu", head_dim="head_dim"),
        layer=Layer(
            at="encoder.layers.{}.",
            qkv=("attn.Wqkv",),
            o="attn.out_proj",
            attn_norm="norm1",
            up=("mlp.fc12", "mlp.fc11"),
            down="mlp.fc2",
            norm="norm2",
            gated=True,
            qkv_bias=False,
            o_bias=False,
            mlp_bias=False,
        ),
        positions="",
        norm="emb_ln",
        options=_rotates(1000.0),
        only=_ENCODER,
        inert=_HEADS,
    ),
    "esm": Family(
        prefix="esm.",
        heads=heads.ROBERTA,
        layer=Layer(
            norm_first=True,
            attn_norm="attention.LayerNorm",
            norm="LayerNorm",
            final_norm="encoder.emb_layer_norm_after",
        ),
        words=Words(activation_default="gelu"),
        added=(),
        norm="embeddings.layer_norm",
        padding=("pad_token_id", None),
        only={
            **{key: x for key, x in _ENCODER.items() if key != "position_embedding_type"},
            "is_folding_model": (False,),
            "hidden_act": ("gelu",),  # no other is computed
        },
        inert=(*_HEADS, "contact_head."),
        inert_words=("rotary_embeddings.inv_freq",),  # of other layers, which are the same
        inert_keys=("vocab_list", "esmfold_config", "mask_token_id"),
        resolve=_esm,
    ),
    "eurobert": Family(
        prefix="model.",
        heads=heads.EUROBERT,
        words=Words(
            activation_default="silu",
            epsilon=("rms_norm_eps",),
            epsilon_default=1e-5,
            n_kv_head="num_key_value_heads",
            head_dim="head_dim",
        ),
        layer=Layer(
            at="layers.{}.",
            qkv=tuple(f"self_attn.{x}_proj" for x in "qkv"),
            o="self_attn.o_proj",
            attn_norm="input_layernorm",
            up=("mlp.gate_proj", "mlp.up_proj"),
            down="mlp.down_proj",
            norm="post_attention_layernorm",
            gated=True,
            norm_first=True,
            final_norm="norm",
            rms=True,
            qkv_bias=("attention_bias", False),
            o_bias=("attention_bias", False),
            mlp_bias=("mlp_bias", False),
        ),
        embedding=("embed_tokens.weight",),
        added=(),
        positions="",
        norm="",
        options=_rotates(10000.0),
        only=_ENCODER,
        inert=("lm_head.", "classifier.", "dense."),
        inert_keys=("mask_token_id", "classifier_pooling", "clf_pooling"),
    ),
    "modernbert": Family(
        prefix="model.",
        heads=heads.MODERNBERT,
        words=Words(
            activation="hidden_activation",
            epsilon=("norm_eps", "layer_norm_eps"),
            epsilon_default=1e-5,
        ),
        layer=Layer(
            at="layers.{}.",
            qkv=("attn.Wqkv",),
            o="attn.Wo",
            attn_norm="attn_norm",
            up=("mlp.Wi",),
            down="mlp.Wo",
            norm="mlp_norm",
            gated=True,
            norm_first=True,
            first_attn_norm=False,
            final_norm="final_norm",
            qkv_bias=("attention_bias", False),
            o_bias=("attention_bias", False),
            mlp_bias=("mlp_bias", False),
            norm_bias=("norm_bias", False),
        ),
        embedding=("embeddings.tok_embeddings.weight",),
        added=(),
        positions="",
        norm="embeddings.norm",
        options=_modernbert,
        inert=("head.", "decoder.", "classifier."),
        inert_keys=(
            *("initializer_cutoff_factor", "mlp_dropout", "embedding_dropout", "decoder_bias"),
            *("classifier_bias", "classifier_activation", "classifier_pooling"),
            *("sparse_prediction", "sparse_pred_ignore_index", "deterministic_flash_attn"),
            *("reference_compile", "repad_logits", "repad_logits_with_grad"),
            "position_embedding_type",
        ),
    ),
    "t5": _T5,
    "mt5": _MT5,
    "umt5": _MT5._replace(
        relative=Relative("0.SelfAttention.relative_attention_bias.weight", each=True),
    ),
}

# Those that cannot be computed, for want of what.
REFUSED = {
    **dict.fromkeys(
        ("deberta", "deberta-v2", "xlnet"),
        "scores that add products with embeddings of distances (disentangled attention)",
    ),
    "big_bird": "attention that is sparse by blocks which are drawn",
    "longformer": "windows beside ids that see all others",
    "reformer": "attention among ids that share a hash",
    "funnel": "layers that have fewer rows than their input",
    "fnet": "Fourier transforms in place of attention",
}
