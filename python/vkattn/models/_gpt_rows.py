"""Decoders with GPT's names of tensors, and others with layer norms."""

from __future__ import annotations

from ._base_row import BASE, four_widths, root_width, switch
from ._llama_rows import ROPE_KEYS
from ._table import Key, Row, of

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
    ffn_width=Key("n_inner", four_widths),
    n_token=Key("vocab_size", 50257),
    positions="learned",
    max_length=Key("n_positions", 1024),
    activation=Key("activation_function", "gelu_new"),
    tied=Key("tie_word_embeddings", True),
    only={"add_cross_attention": (False,)},
    switches=switch("scale_attn_weights", True, {}, {"scale": 1.0}),
    inert=("n_ctx", "reorder_and_upcast_attn"),
)
GPT_FAMILIES: dict[str, Row] = {}
GPT_FAMILIES["gpt2"] = of(
    GPT2,
    transposed=True,
    switches=switch("scale_attn_by_inverse_layer_idx", False, {"scale_by_layer": True}),
)
GPT_FAMILIES["gpt_neox"] = of(
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
    inert=(*ROPE_KEYS, "is_decoder"),
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
GPT_FAMILIES["gptj"] = GPTJ
GPT_FAMILIES["codegen"] = of(
    GPTJ,
    names={"q": None, "k": None, "v": None, "qkv": "attn.qkv_proj"},
    qkv_order="shards",
    unused=(".attn.causal_mask", ".attn.bias", ".attn.masked_bias"),
)
GPT_FAMILIES["gpt_neo"] = of(
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
    ffn_width=Key("intermediate_size", four_widths),
    max_length=Key("max_position_embeddings", 2048),
    qkv_bias=False,
    scale=1.0,
    kinds="attention_types",
    window=Key("window_size", 256),
    switches=dict.fromkeys(GPT2["switches"]),
)
GPT_FAMILIES["gpt_bigcode"] = of(
    GPT2,
    activation=Key("activation_function", "gelu_pytorch_tanh"),
    switches=switch("multi_query", True, {"n_kv_head": 1}, {"qkv_order": "heads"}),
    inert=(
        *("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "num_key_value_heads"),
        *("inference_runner", "validate_runner_input", "pre_allocate_kv_cache", "pad_key_length"),
        *("max_sequence_length", "max_batch_size", "runner_max_sequence_length"),
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
    ffn_width=four_widths,
    activation="gelu_tanh",
    positions="alibi",
    qkv_order="heads",
    tied=Key("tie_word_embeddings", True),
    only={"apply_residual_connection_post_layernorm": (False,)},
)
GPT_FAMILIES["bloom"] = of(
    BLOOM,
    only={"n_inner": ()},
    inert=(
        *("slow_but_exact", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "offset_alibi"),
        *("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion"),
    ),
)
GPT_FAMILIES["falcon"] = of(
    BLOOM,
    names={"embed_norm": None, "ffn_norm": None},
    ffn_width=Key("ffn_hidden_size", four_widths),
    activation=Key("activation", "gelu"),
    positions="rope",
    parallel=True,
    qkv_bias=Key("bias", False),
    o_bias=lambda row: row["qkv_bias"],
    mlp_bias=lambda row: row["qkv_bias"],
    switches={
        **switch("alibi", False, {"positions": "alibi", "alibi_scaled": True}),
        **switch(
            "new_decoder_architecture",
            False,
            {
                "n_kv_head": Key(("num_kv_heads", "n_head_kv"), lambda row: row["n_head"]),
                "only": {"parallel_attn": (True,)},
                "inert": (*ROPE_KEYS, "multi_query", "rotary"),
                "switches": {
                    "num_ln_in_parallel_attn": (
                        2,
                        {2: {"names": {"attn_norm": "ln_attn", "ffn_norm": "ln_mlp"}}, 1: {}},
                    )
                },
            },
            {
                "inert": (*ROPE_KEYS, "num_kv_heads", "n_head_kv", "rotary"),
                "switches": {
                    **switch("multi_query", True, {"n_kv_head": 1, "qkv_order": ""}),
                    **switch(
                        "parallel_attn",
                        True,
                        {"only": {"num_ln_in_parallel_attn": (1,)}},
                        {
                            "parallel": False,
                            "names": {"ffn_norm": "post_attention_layernorm"},
                            "only": {"num_ln_in_parallel_attn": (1, 2)},  # read of no other kind
                        },
                    ),
                },
            },
        ),
    },
)
GPT_FAMILIES["mpt"] = of(
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
    ffn_width=four_widths,
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
        *("init_device", "init_config", "verbose", "attn_config.model_type"),
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
GPT_FAMILIES["opt"] = of(
    OPT,
    embed_width=Key("word_embed_proj_dim", lambda row: row["width"]),
    qkv_bias=Key("enable_bias", True),
    o_bias=lambda row: row["qkv_bias"],
    mlp_bias=lambda row: row["qkv_bias"],
    switches={
        **switch(
            "layer_norm_elementwise_affine", True, {}, {"norm_weight": "none", "norm_bias": False}
        ),
        **switch("_remove_final_layer_norm", False, {"names": {"norm": None}}),
        **switch(
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
GPT_FAMILIES["xglm"] = of(
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
    switches=switch("scale_embedding", True, {"embed_scale": root_width}),
)
