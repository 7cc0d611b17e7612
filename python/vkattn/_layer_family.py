"""What a family of models computes with a layer's tensors, by model_type of config.json."""

from __future__ import annotations

import warnings

from ._config import Config, shown
from ._errors import UnsupportedError
from ._rope import default_of, row_of

# Families that have the tensors of an ordinary layer and compute something else with them.
_OTHER = {
    **dict.fromkeys(("mra", "nystromformer", "yoso", "pegasus_x"), "its layers approximate attention"),
    "autoformer": "its layers correlate queries and keys over time",
    **dict.fromkeys(
        ("bros", "layoutlmv2", "layoutlmv3", "speecht5"),
        "its scores have biases that stand outside the layer",
    ),
}
# Those that attend to all keys where attention_type says so; the default.
_SPARSE = {
    **dict.fromkeys(("big_bird", "bigbird_pegasus"), ("original_full", "block_sparse")),
    "informer": ("full", "prob"),
}
# Those whose layers were compared with transformers, beside the decoders of models/_families.py.
_KNOWN = {
    *("bert", "bert-generation", "camembert", "data2vec-text", "distilbert", "dpr", "electra", "ernie"),
    *("layoutlm", "markuplm", "rembert", "roberta", "splinter", "tapas", "visual_bert", "xlm-roberta"),
    *("bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mvp", "nllb-moe"),
    *("pegasus", "plbart", "trocr", "whisper", "biogpt", "openai-gpt", "clip", "clip_text_model"),
    *("clip_vision_model", "chinese_clip_vision_model", "siglip_vision_model", "dinov2", "deit", "vit"),
    *("dinov2_with_registers", "dpt", "ijepa", "vilt", "vit_mae", "vit_msn", "data2vec-audio", "hubert"),
    *("audio-spectrogram-transformer", "unispeech", "wav2vec2"),
}


def _refuse_other_attention(config: Config) -> None:
    family = config.values.get("model_type")
    if family in _OTHER:
        raise UnsupportedError(f"{config.where}: model_type {shown(family)}: {_OTHER[family]}")
    if family in _SPARSE:
        whole, default = _SPARSE[family]
        kind = config.values.get("attention_type", default)
        if kind != whole:
            raise UnsupportedError(
                f"{config.where}: attention_type {shown(kind)} of {shown(family)} is not supported:"
                f" a Layer attends to all keys, which {shown(whole)} says"
            )


def _warn_of_unknown(config: Config) -> None:
    family = config.values.get("model_type")
    if family is None or family in _KNOWN or family in _SPARSE or row_of(config):
        return
    warnings.warn(
        f"{config.where}: model_type {shown(family)}: it is not known whether its layers compute more"
        " than their tensors say: computed without",
        stacklevel=5,
    )


def refuse_family(config: Config) -> None:
    """Scales, caps and windows that a family has where config.json does not name them."""
    _refuse_other_attention(config)
    _warn_of_unknown(config)
    row = row_of(config) or {}
    for name in ("scale", "softcap", "window"):
        setting = row.get(name)
        names = getattr(setting, "names", ())
        stated = any(key in config.values for key in names)  # as refuse_unread sees it
        if setting is None or stated or default_of(setting) is None:
            continue
        family, more = shown(config.values["model_type"]), ""
        if names:
            more = f", where {names[0]} is missing; null says that there is none"
        raise UnsupportedError(
            f"{config.where}: model_type {family}: its {name} is not supported{more}"
        )
