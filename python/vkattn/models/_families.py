"""Decoders by model_type: what a family has that others have not. docs/models.md, "Add a family",
says what the settings mean; _design.py reads them."""

from __future__ import annotations

from typing import Any

from ._table import Key, Row, of


def _root(row: Row) -> float:
    return float(row["width"]) ** 0.5


def _four(row: Row) -> int:
    return 4 * int(row["width"])


def _switch(key: str, default: bool, yes: Row, no: Row | None = None) -> dict[str, Any]:
    return {key: (default, {True: yes, False: no or {}})}


BASE: Row = {
    # Names of tensors: those of the model begin with `prefix`, those of a layer with `layers` too.
    "prefix": "model.",
    "layers": "layers.{}.",
    "names": {},
    "unused": ("rotary_emb.inv_freq",),  # tensors that are known to be without effect, by their ends
    # Objects of config.json whose keys are read as object.key; keys that change nothing here.
    "nested": (),
    "inert": (),
    # Sizes.
    "width": Key("hidden_size"),
    "n_layer": Key("num_hidden_layers"),
    "n_head": Key("num_attention_heads"),
    "n_kv_head": Key("num_key_value_heads", lambda row: row["n_head"]),
    "head_dim": Key("head_dim", lambda row: max(row["width"] // row["n_head"], 1)),
    "ffn_width": Key("intermediate_size"),
    "n_token": Key("vocab_size"),
    "embed_width": lambda row: row["width"],
    "max_length": None,
    # Norms: "rms" or "layer"; weights as they are, "1 + weight" or "none".
    "norm": "rms",
    "norm_weight": "weight",
    "norm_bias": False,
    "epsilon": Key("rms_norm_eps", 1e-6),
    # Norms of queries and keys, and whether they stand behind the rotation: see _causal.py.
    "head_norm": "",
    "norm_rotated": False,
    # Products: biases; weights stored [in][out]; the order of rows of a fused matrix.
    "qkv_bias": False,
    "o_bias": False,
    "mlp_bias": False,
    "head_bias": False,
    "transposed": False,
    "qkv_order": "",
    "tied": Key("tie_word_embeddings", False),
    "parallel": False,
    "activation": Key("hidden_act", "silu"),
    # Attention: windows by layer (`kinds` of _design.py), scale of the products, cap of the scores.
    "kinds": "",
    "window": None,
    "first_window": 0,
    "full_every": 0,
    "scale": None,
    "scale_by_layer": False,
    "softcap": None,
    # Positions: "rope", "learned", "sinusoidal", "alibi".
    "positions": "rope",
    "position_offset": 0,
    "theta": Key("rope_theta", 10000.0),
    "local_theta": None,
    "rotary_share": Key("partial_rotary_factor", 1.0),
    "rotary_dim": None,
    "interleaved": False,
    "no_rope": "",
    "alibi_scaled": False,
    # Factors.
    "query_scalar": None,
    "logit_divisor": None,
    "embed_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "logit_softcap": None,
}

LLAMA = of(
    BASE,
    names={
        "embedding": "embed_tokens",
        "norm": "norm",
        "head": "lm_head",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    qkv_bias=Key("attention_bias", False),
    o_bias=lambda row: row["qkv_bias"],
    interleaved=Key("rope_interleaved", False),
    inert=(
        *("max_position_embeddings", "rope_scaling", "rope_parameters"),
        "original_max_position_embeddings",
    ),
)
NO_BIAS: Row = {"only": {"attention_bias": (False,)}, "qkv_bias": False}
FUSED = {
    **dict.fromkeys(("q", "k", "v", "gate", "up")),
    "qkv": "self_attn.qkv_proj",
    "gate_up": "mlp.gate_up_proj",
}
HEAD_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
NO_WINDOW: Row = {
    "sliding_window": (),
    "use_sliding_window": (False,),
    "max_window_layers": (),
}
QWEN2 = of(
    LLAMA,
    qkv_bias=True,
    o_bias=False,
    switches=_switch(
        "use_sliding_window",
        False,
        {"window": Key("sliding_window", 4096, None), "first_window": Key("max_window_layers", 28)},
    ),
    inert=(*LLAMA["inert"], "sliding_window", "max_window_layers"),
)

FAMILIES: dict[str, Row] = {
    "llama": of(LLAMA, mlp_bias=Key("mlp_bias", False), only=NO_WINDOW),
    "mistral": of(LLAMA, **NO_BIAS, window=Key("sliding_window", 4096, None)),
    "phi3": of(
        LLAMA,
        **NO_BIAS,
        names=FUSED,
        window=Key("sliding_window"),
        epsilon=Key("rms_norm_eps", 1e-5),
    ),
    "qwen2": QWEN2,
    "qwen3": of(
        QWEN2,
        names=HEAD_NORMS,
        head_norm="rms",
        head_dim=Key("head_dim", 128),
        qkv_bias=Key("attention_bias", False),
        o_bias=lambda row: row["qkv_bias"],
    ),
}

# ---- Layer norms, and matrices without a gate ---------------------------------------------------

GPT = of(
    BASE,
    norm="layer",
    norm_bias=True,
    epsilon=Key("layer_norm_epsilon", 1e-5),
    n_kv_head=lambda row: row["n_head"],
    head_dim=lambda row: row["width"] // row["n_head"],
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
)
GPT2 = of(
    GPT,
    prefix="transformer.",
    layers="h.{}.",
    names={
        "embedding": "wte",
        "positions": "wpe",
        "norm": "ln_f",
        "head": "lm_head",
        "attn_norm": "ln_1",
        "ffn_norm": "ln_2",
        "qkv": "attn.c_attn",
        "o": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
    unused=(".attn.bias", ".attn.masked_bias"),  # the causal mask
    width=Key("n_embd", 768),
    n_layer=Key("n_layer", 12),
    n_head=Key("n_head", 12),
    ffn_width=Key("n_inner", _four),
    n_token=Key("vocab_size", 50257),
    positions="learned",
    max_length=Key("n_positions", 1024),
    activation=Key("activation_function", "gelu_new"),
    tied=Key("tie_word_embeddings", True),
    only={"add_cross_attention": (False,)},
    switches=_switch("scale_attn_weights", True, {}, {"scale": 1.0}),
    inert=("n_ctx", "reorder_and_upcast_attn"),
)
FAMILIES["gpt2"] = of(
    GPT2,
    transposed=True,
    switches=_switch("scale_attn_by_inverse_layer_idx", False, {"scale_by_layer": True}),
)
FAMILIES["gpt_neox"] = of(
    GPT,
    prefix="gpt_neox.",
    names={
        "embedding": "embed_in",
        "norm": "final_layer_norm",
        "head": "embed_out",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "qkv": "attention.query_key_value",
        "o": "attention.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    unused=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
    epsilon=Key("layer_norm_eps", 1e-5),
    qkv_order="heads",
    qkv_bias=Key("attention_bias", True),
    o_bias=lambda row: row["qkv_bias"],
    activation=Key("hidden_act", "gelu"),
    parallel=Key("use_parallel_residual", True),
    theta=Key(("rope_theta", "rotary_emb_base"), 10000.0),
    rotary_share=Key(("partial_rotary_factor", "rotary_pct"), 0.25),
    inert=(*LLAMA["inert"], "is_decoder"),
)

# ---- Llama's names, and norms before, behind or around ------------------------------------------

GEMMA = of(
    LLAMA,
    norm_weight="1 + weight",
    embed_scale=_root,
    head_dim=Key("head_dim", 256),
    activation=Key(("hidden_act", "hidden_activation"), "gelu_pytorch_tanh"),
    tied=Key("tie_word_embeddings", True),
    only={"use_bidirectional_attention": (False,)},
)
GEMMA2 = of(
    GEMMA,
    names={
        "attn_after": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "ffn_after": "post_feedforward_layernorm",
    },
    query_scalar=Key("query_pre_attn_scalar", 256),
    scale=lambda row: row["query_scalar"] ** -0.5,
    softcap=Key("attn_logit_softcapping", 50.0, None),
    logit_softcap=Key("final_logit_softcapping", 30.0, None),
    window=Key("sliding_window", 4096, None),
    full_every=2,
)
BEHIND: Row = {
    "attn_norm": None,
    "ffn_norm": None,
    "attn_after": "post_attention_layernorm",
    "ffn_after": "post_feedforward_layernorm",
}
OLMO2 = of(
    LLAMA,
    names={**BEHIND, **HEAD_NORMS},
    head_norm="rms of all",
    epsilon=Key("rms_norm_eps", 1e-5),
)
GLM = of(
    LLAMA,
    names={"gate": None, "up": None, "gate_up": "mlp.gate_up_proj"},
    qkv_bias=Key("attention_bias", True),
    o_bias=False,
    head_dim=Key("head_dim", 128),
    rotary_share=Key("partial_rotary_factor", 0.5),
    interleaved=True,
    epsilon=Key("rms_norm_eps", 1.5625e-7),
)
FAMILIES["gemma"] = GEMMA
FAMILIES["gemma2"] = GEMMA2
FAMILIES["gemma3_text"] = of(
    GEMMA2,
    names=HEAD_NORMS,
    head_norm="rms",
    softcap=Key("attn_logit_softcapping"),
    logit_softcap=Key("final_logit_softcapping"),
    full_every=Key(("sliding_window_pattern", "_sliding_window_pattern"), 6),
    theta=Key("rope_theta", 1e6),
    local_theta=Key("rope_local_base_freq", 1e4),
)
FAMILIES["granite"] = of(
    LLAMA,
    mlp_bias=Key("mlp_bias", False),
    embed_scale=Key("embedding_multiplier", 1.0),
    scale=Key("attention_multiplier", 1.0),
    residual_scale=Key("residual_multiplier", 1.0),
    logit_divisor=Key("logits_scaling", 1.0),
    logit_scale=lambda row: 1 / row["logit_divisor"],
)
FAMILIES["smollm3"] = of(
    LLAMA,
    mlp_bias=Key("mlp_bias", False),
    theta=Key("rope_theta", 2e6),
    tied=Key("tie_word_embeddings", True),
    no_rope="listed",
    only={"use_sliding_window": (False,)},
    inert=(*LLAMA["inert"], "sliding_window", "max_window_layers"),
)
FAMILIES["olmo"] = of(
    LLAMA, norm="layer", norm_weight="none", epsilon=1e-5, only={"clip_qkv": (), "rms_norm_eps": ()}
)
FAMILIES["olmo2"] = OLMO2
FAMILIES["olmo3"] = of(
    OLMO2,
    window=Key("sliding_window", 4096, None),
    full_every=4,
    theta=Key("rope_theta", 5e5),
    local_theta=Key("rope_theta", 5e5),
)
FAMILIES["exaone4"] = of(
    LLAMA,
    **NO_BIAS,
    names={**BEHIND, **HEAD_NORMS},
    head_norm="rms",
    epsilon=Key("rms_norm_eps", 1e-5),
    window=Key("sliding_window", 4096, None),
    full_every=Key("sliding_window_pattern", 4),
    no_rope=lambda row: "full_attention" if row["window"] else "",
)
FAMILIES["hunyuan_v1_dense"] = of(
    LLAMA,
    names={"q_norm": "self_attn.query_layernorm", "k_norm": "self_attn.key_layernorm"},
    head_norm="rms",
    norm_rotated=True,
    epsilon=Key("rms_norm_eps", 1e-5),
    only={"use_cla": (False,), "use_qk_norm": (True,)},
)
FAMILIES["seed_oss"] = of(
    LLAMA,
    head_dim=Key("head_dim", 128),
    qkv_bias=Key("attention_bias", True),
    o_bias=Key("attention_out_bias", False),
    mlp_bias=Key("mlp_bias", False),
)
FAMILIES["arcee"] = of(
    LLAMA,
    names={"gate": None},
    activation=Key("hidden_act", "relu2"),
    mlp_bias=Key("mlp_bias", False),
    epsilon=Key("rms_norm_eps", 1e-5),
)
FAMILIES["ministral"] = of(LLAMA, **NO_BIAS, window=Key("sliding_window", 4096, None))
FAMILIES["glm"] = GLM
FAMILIES["glm4"] = of(
    GLM,
    names={"attn_after": "post_self_attn_layernorm", "ffn_after": "post_mlp_layernorm"},
)
FAMILIES["ernie4_5"] = of(
    LLAMA,
    interleaved=True,
    theta=Key("rope_theta", 5e5),
    epsilon=Key("rms_norm_eps", 1e-5),
    head_dim=Key("head_dim", 128),
    tied=Key("tie_word_embeddings", True),
    qkv_bias=Key("use_bias", False),
    mlp_bias=lambda row: row["qkv_bias"],
)
FAMILIES["helium"] = of(
    LLAMA,
    interleaved=True,
    theta=Key("rope_theta", 1e5),
    epsilon=Key("rms_norm_eps", 1e-8),
    head_dim=Key("head_dim", 128),
    mlp_bias=Key("mlp_bias", False),
    o_bias=False,
)

# ---- Llama's names with layer norms, or with a matrix that has no gate --------------------------

LAYER = of(LLAMA, norm="layer", norm_bias=True, epsilon=Key("layer_norm_eps", 1e-5))
COHERE = of(
    LAYER,
    names={"ffn_norm": None},
    norm_bias=False,
    parallel=True,
    interleaved=True,
    logit_scale=Key("logit_scale", 0.0625),
    tied=Key("tie_word_embeddings", True),
)
FAMILIES["cohere"] = of(
    COHERE,
    theta=Key("rope_theta", 5e5),
    switches=_switch("use_qk_norm", False, {"names": HEAD_NORMS, "head_norm": "layer of each"}),
)
FAMILIES["cohere2"] = of(
    COHERE,
    head_dim=lambda row: row["width"] // row["n_head"],
    window=Key("sliding_window", 4096, None),
    full_every=Key(("sliding_window_pattern", "_sliding_window_pattern"), 4),
    no_rope="full_attention",
    only={
        "position_embedding_type": ("rope_gptj",),
        "rotary_pct": (1, 1.0),
        "use_gated_activation": (True,),
        "use_parallel_block": (True,),
        "use_qk_norm": (False,),
    },
    inert=(
        *(*LLAMA["inert"], "head_dim", "use_embedding_sharing", "use_parallel_embedding"),
        *("order_of_interleaved_layers", "layer_switch"),
    ),
)
FAMILIES["starcoder2"] = of(
    LAYER,
    names={"gate": None, "up": "mlp.c_fc", "down": "mlp.c_proj"},
    epsilon=Key("norm_epsilon", 1e-5),
    qkv_bias=Key("use_bias", True),
    mlp_bias=lambda row: row["qkv_bias"],
    activation=Key("hidden_act", "gelu_pytorch_tanh"),
    window=Key("sliding_window"),
    tied=Key("tie_word_embeddings", True),
    only={"norm_type": ("layer_norm",), "mlp_type": ("default",)},
)
FAMILIES["stablelm"] = of(
    LAYER,
    qkv_bias=Key("use_qkv_bias", False),
    o_bias=False,
    rotary_share=Key("partial_rotary_factor", 0.25),
    switches={
        **_switch("use_parallel_residual", False, {"parallel": True, "names": {"ffn_norm": None}}),
        **_switch(
            "qk_layernorm",
            False,
            {
                "names": {"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
                "head_norm": "layers",
            },
        ),
    },
)
FAMILIES["phi"] = of(
    LAYER,
    names={
        "norm": "final_layernorm",
        "ffn_norm": None,
        "o": "self_attn.dense",
        "gate": None,
        "up": "mlp.fc1",
        "down": "mlp.fc2",
    },
    parallel=True,
    qkv_bias=True,
    mlp_bias=True,
    head_bias=True,
    activation=Key("hidden_act", "gelu_new"),
    rotary_share=Key("partial_rotary_factor", 0.5),
    switches=_switch(
        "qk_layernorm",
        False,
        {
            "names": {"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
            "head_norm": "layer",
        },
    ),
)
FAMILIES["nemotron"] = of(
    LAYER,
    names={"gate": None},
    norm_weight="1 + weight",
    epsilon=Key("norm_eps", 1e-5),
    activation=Key("hidden_act", "relu2"),
    mlp_bias=Key("mlp_bias", False),
    rotary_share=Key(("partial_rotary_factor", "rope_percent", "rope_percentage"), 0.5),
)

# ---- GPT's names --------------------------------------------------------------------------------

GPTJ = of(
    GPT2,
    names={
        "positions": None,
        "ffn_norm": None,
        "qkv": None,
        "q": "attn.q_proj",
        "k": "attn.k_proj",
        "v": "attn.v_proj",
        "o": "attn.out_proj",
        "up": "mlp.fc_in",
        "down": "mlp.fc_out",
    },
    positions="rope",
    theta=10000.0,
    rotary_share=1.0,
    rotary_dim=Key("rotary_dim", 64, None),
    interleaved=True,
    max_length=None,
    parallel=True,
    qkv_bias=False,
    o_bias=False,
    head_bias=True,
    tied=Key("tie_word_embeddings", False),
    switches=dict.fromkeys(GPT2["switches"]),
    inert=("n_positions", "n_ctx", "rotary", "scale_attn_weights"),
)
FAMILIES["gptj"] = GPTJ
FAMILIES["codegen"] = of(
    GPTJ,
    names={"q": None, "k": None, "v": None, "qkv": "attn.qkv_proj"},
    qkv_order="shards",
    unused=(".attn.causal_mask", ".attn.bias", ".attn.masked_bias"),
)
FAMILIES["gpt_neo"] = of(
    GPT2,
    names={
        "qkv": None,
        "q": "attn.attention.q_proj",
        "k": "attn.attention.k_proj",
        "v": "attn.attention.v_proj",
        "o": "attn.attention.out_proj",
    },
    unused=(".attn.attention.bias", ".attn.attention.masked_bias"),
    width=Key("hidden_size", 2048),
    n_layer=Key("num_layers", 24),
    n_head=Key("num_heads", 16),
    ffn_width=Key("intermediate_size", _four),
    max_length=Key("max_position_embeddings", 2048),
    qkv_bias=False,
    scale=1.0,
    kinds="attention_types",
    window=Key("window_size", 256),
    switches=dict.fromkeys(GPT2["switches"]),
)
FAMILIES["gpt_bigcode"] = of(
    GPT2,
    activation=Key("activation_function", "gelu_pytorch_tanh"),
    switches=_switch("multi_query", True, {"n_kv_head": 1}, {"qkv_order": "heads"}),
    inert=(
        *("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "num_key_value_heads"),
        *("inference_runner", "validate_runner_input", "pre_allocate_kv_cache", "pad_key_length"),
        *("max_sequence_length", "max_batch_size"),
    ),
)
BLOOM = of(
    GPT,
    prefix="transformer.",
    layers="h.{}.",
    names={
        "embedding": "word_embeddings",
        "embed_norm": "word_embeddings_layernorm",
        "norm": "ln_f",
        "head": "lm_head",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    width=Key(("hidden_size", "n_embed")),
    n_layer=Key(("n_layer", "num_hidden_layers")),
    n_head=Key(("n_head", "num_attention_heads")),
    ffn_width=_four,
    activation="gelu_tanh",
    positions="alibi",
    qkv_order="heads",
    tied=Key("tie_word_embeddings", True),
    only={"apply_residual_connection_post_layernorm": (False,)},
)
FAMILIES["bloom"] = of(
    BLOOM,
    only={"n_inner": ()},
    inert=(
        *("slow_but_exact", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "offset_alibi"),
        *("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion"),
    ),
)
FAMILIES["falcon"] = of(
    BLOOM,
    names={"embed_norm": None, "ffn_norm": None},
    ffn_width=Key("ffn_hidden_size", _four),
    activation=Key("activation", "gelu"),
    positions="rope",
    parallel=True,
    qkv_bias=Key("bias", False),
    o_bias=lambda row: row["qkv_bias"],
    mlp_bias=lambda row: row["qkv_bias"],
    switches={
        **_switch("alibi", False, {"positions": "alibi", "alibi_scaled": True}),
        **_switch(
            "new_decoder_architecture",
            False,
            {
                "n_kv_head": Key(("num_kv_heads", "n_head_kv"), lambda row: row["n_head"]),
                "only": {"parallel_attn": (True,)},
                "inert": (*LLAMA["inert"], "multi_query", "rotary"),
                "switches": {
                    "num_ln_in_parallel_attn": (
                        2,
                        {2: {"names": {"attn_norm": "ln_attn", "ffn_norm": "ln_mlp"}}, 1: {}},
                    )
                },
            },
            {
                "inert": (*LLAMA["inert"], "num_kv_heads", "n_head_kv", "rotary"),
                "switches": {
                    **_switch("multi_query", True, {"n_kv_head": 1, "qkv_order": ""}),
                    **_switch(
                        "parallel_attn",
                        True,
                        {"only": {"num_ln_in_parallel_attn": (1,)}},
                        {"parallel": False, "names": {"ffn_norm": "post_attention_layernorm"}},
                    ),
                },
            },
        ),
    },
)
FAMILIES["mpt"] = of(
    GPT,
    prefix="transformer.",
    layers="blocks.{}.",
    names={
        "embedding": "wte",
        "norm": "norm_f",
        "head": "lm_head",
        "attn_norm": "norm_1",
        "ffn_norm": "norm_2",
        "qkv": "attn.Wqkv",
        "o": "attn.out_proj",
        "up": "ffn.up_proj",
        "down": "ffn.down_proj",
    },
    nested=("attn_config",),
    width=Key("d_model", 2048),
    n_layer=Key("n_layers", 24),
    n_head=Key("n_heads", 16),
    ffn_width=_four,
    activation="gelu",
    norm_bias=False,
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    positions="alibi",
    scale=Key("attn_config.softmax_scale"),
    tied=Key("tie_word_embeddings", True),
    only={
        "no_bias": (True,),
        "expansion_ratio": (4,),
        "logit_scale": (),
        "embedding_fraction": (1.0,),
        "norm_type": ("low_precision_layernorm", "layernorm"),
        "attn_config.alibi": (True,),
        "attn_config.alibi_bias_max": (8,),
        "attn_config.attn_type": ("multihead_attention",),
        "attn_config.clip_qkv": (),
        "attn_config.qk_ln": (False,),
        "attn_config.prefix_lm": (False,),
        "attn_config.attn_uses_sequence_id": (False,),
    },
    inert=(
        *("learned_pos_emb", "max_seq_len", "attn_config.attn_pdrop", "attn_config.attn_impl"),
        *("init_device", "verbose", "attn_config.model_type"),
    ),
)
OPT = of(
    GPT,
    prefix="model.decoder.",
    names={
        "embedding": "embed_tokens",
        "positions": "embed_positions",
        "project_in": "project_in",
        "project_out": "project_out",
        "norm": "final_layer_norm",
        "head": "lm_head",
        "attn_norm": "self_attn_layer_norm",
        "ffn_norm": "final_layer_norm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.out_proj",
        "up": "fc1",
        "down": "fc2",
    },
    epsilon=1e-5,
    ffn_width=Key("ffn_dim"),
    activation=Key("activation_function", "relu"),
    positions="learned",
    position_offset=2,
    max_length=Key("max_position_embeddings", 2048),
    tied=Key("tie_word_embeddings", True),
)
FAMILIES["opt"] = of(
    OPT,
    embed_width=Key("word_embed_proj_dim", lambda row: row["width"]),
    qkv_bias=Key("enable_bias", True),
    o_bias=lambda row: row["qkv_bias"],
    mlp_bias=lambda row: row["qkv_bias"],
    switches={
        **_switch("layer_norm_elementwise_affine", True, {}, {"norm_weight": "none", "norm_bias": False}),
        **_switch("_remove_final_layer_norm", False, {"names": {"norm": None}}),
        **_switch(
            "do_layer_norm_before",
            True,
            {},
            {
                "names": {
                    **dict.fromkeys(("norm", "attn_norm", "ffn_norm")),
                    "attn_sum": "self_attn_layer_norm",
                    "ffn_sum": "final_layer_norm",
                }
            },
        ),
    },
)
FAMILIES["xglm"] = of(
    OPT,
    prefix="model.",
    names={"positions": None, "norm": "layer_norm"},
    unused=("embed_positions.weights",),
    width=Key("d_model", 1024),
    n_layer=Key("num_layers", 24),
    n_head=Key("attention_heads", 16),
    ffn_width=Key("ffn_dim", 4096),
    activation=Key("activation_function", "gelu"),
    positions="sinusoidal",
    only={"add_cross_attention": (False,), "pad_token_id": (0, 1)},  # whose row is zeros
    switches=_switch("scale_embedding", True, {"embed_scale": _root}),
)

# ---- What is known and not computed -------------------------------------------------------------

MISSING = {
    "apertus": "its activation xielu",
    **dict.fromkeys(
        (
            *("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "granitemoe", "olmoe", "phimoe"),
            *("deepseek_v2", "deepseek_v3", "dbrx", "glm4_moe", "ernie4_5_moe", "hunyuan_v1_moe"),
            *("llama4", "llama4_text", "jetmoe", "minimax", "minimax_m2", "dots1", "flex_olmo"),
        ),
        "products of chosen experts",
    ),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "a state that is carried on"),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "jamba", "bamba", "zamba2", "falcon_h1", "nemotron_h", "lfm2"),
        "layers with a state or a convolution",
    ),
    **dict.fromkeys(
        ("gemma3", "gemma3n", "gemma4", "mistral3", "mllama", "llava", "qwen2_vl", "qwen2_5_vl"),
        "its images; a folder of its text model alone, such as gemma3_text, is read",
    ),
    "persimmon": "its order of norms",
    "recurrent_gemma": "its recurrent layers",
}
