"""Decoders by model_type."""

from __future__ import annotations

from ._gpt_rows import GPT_FAMILIES
from ._llama_rows import LLAMA_FAMILIES
from ._table import Row

FAMILIES: dict[str, Row] = {**LLAMA_FAMILIES, **GPT_FAMILIES}

# What is known and not computed, for want of what.
MISSING = {
    "apertus": "its activation xielu",
    **dict.fromkeys(
        (
            *("mixtral", "qwen2_moe", "qwen3_moe", "granitemoe", "olmoe", "phimoe"),
            *("deepseek_v2", "deepseek_v3", "dbrx", "glm4_moe", "ernie4_5_moe", "hunyuan_v1_moe"),
            *("llama4", "llama4_text", "jetmoe", "minimax", "minimax_m2", "dots1", "flex_olmo"),
            *("lfm2_moe", "qwen3_5_moe", "qwen3_5_moe_text"),
        ),
        "products of chosen experts",
    ),
    **dict.fromkeys(
        ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "a state that is carried on"
    ),
    **dict.fromkeys(
        ("jamba", "bamba", "zamba2", "falcon_h1", "nemotron_h", "granitemoehybrid"),
        "layers of Mamba",
    ),
    **dict.fromkeys(
        (
            *("gemma3", "gemma3n", "gemma4", "mistral3", "mllama", "llava", "qwen2_vl", "qwen2_5_vl"),
            *("lfm2_vl", "qwen3_5"),
        ),
        "its images; a folder of its text model alone, such as gemma3_text, is read",
    ),
    "gpt_oss": "products of chosen experts, their clamped gates and their mxfp4 (*_blocks and *_scales);"
    " vkattn.transformers computes its attention, sinks too",
    "recurrent_gemma": "its recurrent layers",
}
