"""Encoders of texts with a decoder by model_type of config.json."""

from __future__ import annotations

import math
from typing import Callable, NamedTuple

import numpy as np

from ._encoder_families import FAMILIES as ENCODERS
from ._encoder_families import Family, Relative
from ._layers import Layer, Words, is_on
from ._keys import Keys


class Cross(NamedTuple):
    """Attention over the encoder's rows: tensors of a layer."""

    at: str  # before q, k, v and o
    products: tuple[str, str, str, str]
    norm: str


class Side(NamedTuple):
    """The decoder: its tensors stand below the prefix of the encoder's."""

    layer: Layer
    words: Words
    cross: Cross
    positions: str = ""
    norm: str = ""
    relative: Relative | None = None
    scaled: Callable[[Keys], bool] = lambda keys: False  # rows before the head by 1 / sqrt(width)
    own_head: bool = False  # that of the file, if it has one, whatever config.json says


# ---- BART and its kin ---------------------------------------------------------------------------

_WORDS = Words(
    width="d_model",
    n_layer="encoder_layers",
    n_head="encoder_attention_heads",
    inner="encoder_ffn_dim",
    activation="activation_function",
    epsilon=(),
    epsilon_default=1e-5,
)
_LAYER = Layer(
    at="encoder.layers.{}.",
    qkv=tuple(f"self_attn.{x}_proj" for x in "qkv"),
    o="self_attn.out_proj",
    attn_norm="self_attn_layer_norm",
    up=("fc1",),
    down="fc2",
    norm="final_layer_norm",
    final_norm="encoder.layer_norm",
)


def _scaled(default: bool) -> Callable[[Keys, Family], Family]:
    def resolve(keys: Keys, family: Family) -> Family:
        if not is_on(keys, ("scale_embedding", default)):
            return family
        return family._replace(scale=math.sqrt(keys.size("d_model")))

    return resolve


def _marian_positions(count: int, width: int) -> np.ndarray:
    """Sines in the first half, cosines in the second."""
    angles = np.arange(count)[:, None] / 10000.0 ** (2 * np.arange(-(-width // 2)) / width)
    return np.concatenate([np.sin(angles), np.cos(angles[:, : width // 2])], 1)


def _m2m_positions(count: int, width: int) -> np.ndarray:
    half = width // 2
    step = np.float32(-(math.log(10000) / max(half - 1, 1)))
    angles = np.arange(count, dtype=np.float32)[:, None] * np.exp(
        np.arange(half, dtype=np.float32) * step
    )
    rows = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    return np.pad(rows, ((0, 0), (0, width - 2 * half)))


_BART = Family(
    prefix="model.",
    layer=_LAYER,
    words=_WORDS,
    embedding=("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    added=(),
    positions="encoder.embed_positions.weight",
    before=2,
    norm="encoder.layernorm_embedding",
    only={
        "is_decoder": (False,),
        "tie_word_embeddings": (True,),
        "share_encoder_decoder_embeddings": (True,),
        "static_position_embeddings": (False, True),
    },
    resolve=_scaled(False),
    inert=(
        *("encoder.embed_tokens.", "decoder.embed_tokens.", "shared.", "classification_head."),
        *("qa_outputs.", "lm_head.", "encoder.version", "decoder.version"),
        *("encoder.embed_positions.", "decoder.embed_positions."),
    ),
    inert_keys=(
        *("encoder_layerdrop", "decoder_layerdrop", "activation_dropout", "init_std"),
        *("forced_bos_token_id", "forced_eos_token_id", "early_stopping", "min_length"),
        *("no_repeat_ngram_size", "bad_words_ids", "normalize_before", "normalize_embedding"),
        *("add_final_layer_norm", "add_bias_logits", "extra_pos_embeddings", "classif_dropout"),
        *("num_hidden_layers", "decoder_vocab_size", "force_bos_token_to_be_generated"),
        "save_step",
    ),
)


def _side(family: Family) -> Side:
    """The decoder that goes with an encoder: its names, and keys."""
    layer = family.layer._replace(at="decoder.layers.{}.", final_norm="decoder.layer_norm")
    return Side(
        layer=layer,
        words=family.words._replace(
            n_layer="decoder_layers", n_head="decoder_attention_heads", inner="decoder_ffn_dim"
        ),
        cross=Cross(
            "encoder_attn.", ("q_proj", "k_proj", "v_proj", "out_proj"), "encoder_attn_layer_norm"
        ),
        positions="decoder.embed_positions.weight",
        norm=family.norm.replace("encoder", "decoder"),
    )


_FIRST = _LAYER._replace(norm_first=True)
_FAMILIES = {
    "bart": _BART,
    "mbart": _BART._replace(layer=_FIRST),
    "marian": _BART._replace(norm="", before=0, sinusoids=_marian_positions),
    "m2m_100": _BART._replace(
        layer=_FIRST,
        norm="",
        words=_WORDS._replace(activation_default="relu"),
        before=0,
        padding=("pad_token_id", 1),
        counts_padding=False,
        sinusoids=_m2m_positions,
        resolve=_scaled(True),
    ),
}

# ---- T5 -----------------------------------------------------------------------------------------


def _t5_scaled(keys: Keys) -> bool:
    """T5 1.0 scales, 1.1 does not, which files of old say by the key of tied heads."""
    tied = keys.values.get("tie_word_embeddings") is not False
    return is_on(keys, ("scale_decoder_outputs", tied))


def _t5_side(family: Family, scaled: Callable[[Keys], bool]) -> Side:
    assert family.relative
    each = family.relative.each
    layer = family.layer._replace(
        at="decoder.block.{}.layer.",
        final_norm="decoder.final_layer_norm",
        up=tuple(x.replace("1.", "2.", 1) for x in family.layer.up),
        gated_up=tuple(x.replace("1.", "2.", 1) for x in family.layer.gated_up),
        down=family.layer.down.replace("1.", "2.", 1),
        norm=family.layer.norm.replace("1.", "2.", 1),
    )
    name = "0.SelfAttention.relative_attention_bias.weight"
    return Side(
        layer=layer,
        words=family.words._replace(n_layer="num_decoder_layers"),
        cross=Cross("1.EncDecAttention.", ("q", "k", "v", "o"), "1.layer_norm"),
        relative=Relative(name if each else f"decoder.block.0.layer.{name}", each=each),
        scaled=scaled,
        own_head=True,
    )


FAMILIES = {**_FAMILIES, **{kind: ENCODERS[kind] for kind in ("t5", "mt5", "umt5")}}
SIDES = {
    **{kind: _side(family) for kind, family in _FAMILIES.items()},
    "t5": _t5_side(ENCODERS["t5"], _t5_scaled),
    "mt5": _t5_side(ENCODERS["mt5"], lambda keys: False),
    "umt5": _t5_side(ENCODERS["umt5"], lambda keys: True),
}
