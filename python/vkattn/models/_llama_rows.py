"""Decoders with Llama's names of tensors."""

from __future__ import annotations

from ._base_row import BASE, adjusted_width, kv_heads, root_width, switch, width_of_head
from ._table import Key, Row, of

# Keys of rotary embedding, which rope_of reads.
ROPE_KEYS = (
    *("max_position_embeddings", "original_max_position_embeddings"),
    *("rope_scaling", "rope_parameters"),
)
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
    inert=ROPE_KEYS,
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
MISTRAL = of(LLAMA, **NO_BIAS, n_kv_head=kv_heads(8), window=Key("sliding_window", 4096, None))
QWEN2 = of(
    LLAMA,
    n_kv_head=kv_heads(32),
    qkv_bias=True,
    o_bias=False,
    switches=switch(
        "use_sliding_window",
        False,
        {"window": Key("sliding_window", 4096, None), "first_window": Key("max_window_layers", 28)},
    ),
    inert=(*ROPE_KEYS, "sliding_window", "max_window_layers"),
)

LLAMA_FAMILIES: dict[str, Row] = {
    "llama": of(LLAMA, mlp_bias=Key("mlp_bias", False), only=NO_WINDOW),
    "mistral": MISTRAL,
    "phi3": of(
        LLAMA,
        **NO_BIAS,
        names=FUSED,
        kinds="all alike",
        window=Key("sliding_window"),
        epsilon=Key("rms_norm_eps", 1e-5),
        rotary_share=Key("partial_rotary_factor", 1.0),
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

# ---- Llama's names, and norms before, behind or around ------------------------------------------

GEMMA = of(
    LLAMA,
    n_kv_head=kv_heads(16),
    norm_weight="1 + weight",
    embed_scale=root_width,
    head_dim=Key("head_dim", 256),
    activation=Key("hidden_act", "gelu_pytorch_tanh"),
    tied=Key("tie_word_embeddings", True),
    only={"use_bidirectional_attention": (False,)},
    inert=(*ROPE_KEYS, "hidden_activation"),  # which transformers reads of the later ones alone
)
GEMMA2 = of(
    GEMMA,
    activation=Key("hidden_activation", "gelu_pytorch_tanh"),
    inert=(*ROPE_KEYS, "hidden_act"),
    n_kv_head=kv_heads(4),
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
    n_kv_head=kv_heads(2),
    names={"gate": None, "up": None, "gate_up": "mlp.gate_up_proj"},
    qkv_bias=Key("attention_bias", True),
    o_bias=False,
    head_dim=Key("head_dim", 128),
    rotary_share=Key("partial_rotary_factor", 0.5),
    interleaved=True,
    epsilon=Key("rms_norm_eps", 1.5625e-7),
)
LLAMA_FAMILIES["gemma"] = GEMMA
LLAMA_FAMILIES["gemma2"] = GEMMA2
LLAMA_FAMILIES["vaultgemma"] = of(GEMMA2, names={"attn_after": None, "ffn_after": None})
LLAMA_FAMILIES["gemma3_text"] = of(
    GEMMA2,
    names=HEAD_NORMS,
    head_norm="rms",
    softcap=None,
    logit_softcap=Key("final_logit_softcapping"),
    # The cap of the scores is a key that transformers reads and never applies.
    inert=(*ROPE_KEYS, "hidden_act", "attn_logit_softcapping"),
    full_every=Key(("sliding_window_pattern", "_sliding_window_pattern"), 6),
    theta=Key("rope_theta", 1e6),
    local_theta=Key("rope_local_base_freq", 1e4),
)
LLAMA_FAMILIES["granite"] = of(
    LLAMA,
    mlp_bias=Key("mlp_bias", False),
    embed_scale=Key("embedding_multiplier", 1.0),
    scale=Key("attention_multiplier", 1.0),
    residual_scale=Key("residual_multiplier", 1.0),
    logit_divisor=Key("logits_scaling", 1.0),
    logit_scale=lambda row: 1 / row["logit_divisor"],
)
LLAMA_FAMILIES["smollm3"] = of(
    LLAMA,
    n_kv_head=kv_heads(4),
    mlp_bias=Key("mlp_bias", False),
    theta=Key("rope_theta", 2e6),
    tied=Key("tie_word_embeddings", True),
    no_rope="listed",
    only={"use_sliding_window": (False,)},
    inert=(*ROPE_KEYS, "sliding_window", "max_window_layers"),
)
LLAMA_FAMILIES["olmo"] = of(
    LLAMA, norm="layer", norm_weight="none", epsilon=1e-5, only={"clip_qkv": (), "rms_norm_eps": ()}
)
LLAMA_FAMILIES["olmo2"] = OLMO2
LLAMA_FAMILIES["olmo3"] = of(
    OLMO2,
    window=Key("sliding_window", 4096, None),
    full_every=4,
    theta=Key("rope_theta", 5e5),
    local_theta=Key("rope_theta", 5e5),
)
LLAMA_FAMILIES["exaone4"] = of(
    LLAMA,
    **NO_BIAS,
    n_kv_head=kv_heads(32),
    names={**BEHIND, **HEAD_NORMS},
    head_norm="rms",
    epsilon=Key("rms_norm_eps", 1e-5),
    window=Key("sliding_window", 4096, None),
    full_every=Key("sliding_window_pattern", 4),
    no_rope=lambda row: "full_attention" if row["window"] else "",
)
LLAMA_FAMILIES["hunyuan_v1_dense"] = of(
    LLAMA,
    names={"q_norm": "self_attn.query_layernorm", "k_norm": "self_attn.key_layernorm"},
    head_norm="rms",
    norm_rotated=True,
    dynamic_alpha=True,
    epsilon=Key("rms_norm_eps", 1e-5),
    only={"use_cla": (False,), "use_qk_norm": (True,)},
)
LLAMA_FAMILIES["seed_oss"] = of(
    LLAMA,
    n_kv_head=kv_heads(8),
    head_dim=Key("head_dim", 128, width_of_head),
    qkv_bias=Key("attention_bias", True),
    o_bias=Key("attention_out_bias", False),
    mlp_bias=Key("mlp_bias", False),
)
LLAMA_FAMILIES["arcee"] = of(
    LLAMA,
    names={"gate": None},
    activation=Key("hidden_act", "relu2"),
    mlp_bias=Key("mlp_bias", False),
    epsilon=Key("rms_norm_eps", 1e-5),
)
LLAMA_FAMILIES["ministral"] = MISTRAL
LLAMA_FAMILIES["glm"] = GLM
LLAMA_FAMILIES["glm4"] = of(
    GLM,
    names={"attn_after": "post_self_attn_layernorm", "ffn_after": "post_mlp_layernorm"},
)
LLAMA_FAMILIES["ernie4_5"] = of(
    LLAMA,
    n_kv_head=kv_heads(2),
    interleaved=True,
    theta=Key("rope_theta", 5e5),
    epsilon=Key("rms_norm_eps", 1e-5),
    head_dim=Key("head_dim", 128, width_of_head),
    tied=Key("tie_word_embeddings", True),
    qkv_bias=Key("use_bias", False),
    mlp_bias=lambda row: row["qkv_bias"],
)
LLAMA_FAMILIES["helium"] = of(
    LLAMA,
    n_kv_head=kv_heads(20),
    interleaved=True,
    theta=Key("rope_theta", 1e5),
    epsilon=Key("rms_norm_eps", 1e-8),
    head_dim=Key("head_dim", 128),
    mlp_bias=Key("mlp_bias", False),
    o_bias=False,
)

# ---- Layers with a state beside those of attention ----------------------------------------------

LLAMA_FAMILIES["lfm2"] = of(
    LLAMA,
    n_kv_head=kv_heads(8),
    names={
        "norm": "embedding_norm",
        "attn_norm": "operator_norm",
        "ffn_norm": "ffn_norm",
        "q_norm": "self_attn.q_layernorm",
        "k_norm": "self_attn.k_layernorm",
        "o": "self_attn.out_proj",
        "gate": "feed_forward.w1",
        "up": "feed_forward.w3",
        "down": "feed_forward.w2",
        "state_in": "conv.in_proj",
        "conv": "conv.conv",
        "state_out": "conv.out_proj",
    },
    kinds="full_attn_idxs",
    state="conv",
    conv_width=Key("conv_L_cache", 3),
    conv_bias=Key("conv_bias", False),
    head_norm="rms",
    qkv_bias=False,
    ffn_whole=Key(("intermediate_size", "block_ff_dim")),
    ffn_adjusted=Key("block_auto_adjust_ff_dim", True),
    ffn_factor=Key("block_ffn_dim_multiplier", 1.0, None),
    ffn_multiple=Key("block_multiple_of", 256),
    ffn_width=adjusted_width,
    activation="silu",
    epsilon=Key("norm_eps", 1e-5),
    theta=Key("rope_theta", 1e6),
    tied=Key(("tie_word_embeddings", "tie_embedding"), True),
    inert=(
        *(*ROPE_KEYS, "block_dim", "block_mlp_init_scale", "block_norm_eps"),
        *("block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "conv_dim"),
        *("conv_dim_out", "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc"),
    ),
)
QWEN3_5 = of(
    LLAMA,
    n_kv_head=kv_heads(4),
    names={
        **HEAD_NORMS,
        "state_qkv": "linear_attn.in_proj_qkv",
        "state_z": "linear_attn.in_proj_z",
        "state_b": "linear_attn.in_proj_b",
        "state_a": "linear_attn.in_proj_a",
        "conv": "linear_attn.conv1d",
        "decay_log": "linear_attn.A_log",
        "decay_bias": "linear_attn.dt_bias",
        "state_norm": "linear_attn.norm",
        "state_out": "linear_attn.out_proj",
    },
    state="linear_attention",
    full_every=Key("full_attention_interval", 4),
    attention_gate=True,
    conv_width=Key("linear_conv_kernel_dim", 4),
    delta_key_heads=Key("linear_num_key_heads", 16),
    delta_value_heads=Key("linear_num_value_heads", 32),
    delta_key_dim=Key("linear_key_head_dim", 128),
    delta_value_dim=Key("linear_value_head_dim", 128),
    head_norm="rms",
    norm_weight="1 + weight",
    head_dim=Key("head_dim", 256),
    rotary_share=Key("partial_rotary_factor", 0.25),
    inert=(*ROPE_KEYS, "mlp_only_layers"),
)
LLAMA_FAMILIES["qwen3_5_text"] = QWEN3_5
LLAMA_FAMILIES["qwen3_next"] = of(
    QWEN3_5,
    n_kv_head=kv_heads(2),
    names={
        **dict.fromkeys(("state_qkv", "state_z", "state_b", "state_a")),
        "state_qkvz": "linear_attn.in_proj_qkvz",
        "state_ba": "linear_attn.in_proj_ba",
    },
    n_expert=Key("num_experts", 512),
    inert=(
        *(*ROPE_KEYS, "mlp_only_layers", "decoder_sparse_step", "moe_intermediate_size"),
        *("shared_expert_intermediate_size", "num_experts_per_tok", "norm_topk_prob"),
        *("output_router_logits", "router_aux_loss_coef"),
    ),
)

# ---- Llama's names with layer norms, or with a matrix that has no gate --------------------------

LAYER = of(LLAMA, norm="layer", norm_bias=True, epsilon=Key("layer_norm_eps", 1e-5))
LAYER_NORMS: Row = {
    "names": {"q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm"},
    "head_norm": "layer",
}
COHERE = of(
    LAYER,
    names={"ffn_norm": None},
    norm_bias=False,
    parallel=True,
    interleaved=True,
    logit_scale=Key("logit_scale", 0.0625),
    tied=Key("tie_word_embeddings", True),
)
LLAMA_FAMILIES["cohere"] = of(
    COHERE,
    theta=Key("rope_theta", 5e5),
    switches=switch("use_qk_norm", False, {"names": HEAD_NORMS, "head_norm": "layer of each"}),
)
LLAMA_FAMILIES["cohere2"] = of(
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
        *(*ROPE_KEYS, "head_dim", "use_embedding_sharing", "use_parallel_embedding"),
        *("order_of_interleaved_layers", "layer_switch"),
    ),
)
LLAMA_FAMILIES["starcoder2"] = of(
    LAYER,
    n_kv_head=kv_heads(2),
    names={"gate": None, "up": "mlp.c_fc", "down": "mlp.c_proj"},
    epsilon=Key("norm_epsilon", 1e-5),
    qkv_bias=Key("use_bias", True),
    mlp_bias=lambda row: row["qkv_bias"],
    activation=Key("hidden_act", "gelu_pytorch_tanh"),
    kinds="all alike",
    window=Key("sliding_window"),
    tied=Key("tie_word_embeddings", True),
    only={"norm_type": ("layer_norm",), "mlp_type": ("default",)},
)
LLAMA_FAMILIES["stablelm"] = of(
    LAYER,
    n_kv_head=kv_heads(32),
    qkv_bias=Key("use_qkv_bias", False),
    o_bias=False,
    rotary_share=Key(("partial_rotary_factor", "rope_pct"), 0.25),
    switches={
        **switch("use_parallel_residual", False, {"parallel": True, "names": {"ffn_norm": None}}),
        **switch("qk_layernorm", False, {**LAYER_NORMS, "head_norm": "layers"}),
    },
)
LLAMA_FAMILIES["phi"] = of(
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
    switches=switch("qk_layernorm", False, LAYER_NORMS),
)
LLAMA_FAMILIES["nemotron"] = of(
    LAYER,
    names={"gate": None},
    norm_weight="1 + weight",
    epsilon=Key("norm_eps", 1e-5),
    activation=Key("hidden_act", "relu2"),
    mlp_bias=Key("mlp_bias", False),
    rotary_share=Key(("partial_rotary_factor", "rope_percent", "rope_percentage"), 0.5),
)
LLAMA_FAMILIES["persimmon"] = of(
    LAYER,
    names={
        **dict.fromkeys(("q", "k", "v", "gate")),
        "norm": "final_layernorm",
        "qkv": "self_attn.query_key_value",
        "o": "self_attn.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    n_kv_head=lambda row: row["n_head"],
    qkv_order="heads",
    qkv_bias=True,
    mlp_bias=True,
    activation=Key("hidden_act", "relu2"),
    rotary_share=Key("partial_rotary_factor", 0.5),
    switches=switch("qk_layernorm", True, LAYER_NORMS),
)
