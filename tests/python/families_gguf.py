"""Decoders of families.py as GGUF files, as llama.cpp's converter writes them."""

import re
import struct
from typing import NamedTuple

import families
import numpy as np
import test_gguf

from vkattn.models._design import design_of_config
from vkattn.models._keys import Keys

U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
# Names in a layer, and outside of them.
PARTS = {
    "embed_tokens": "token_embd",
    "wte": "token_embd",
    "word_embeddings": "token_embd",
    "embed_in": "token_embd",
    "word_embeddings_layernorm": "token_embd_norm",
    "wpe": "position_embd",
    "model.norm": "output_norm",
    "ln_f": "output_norm",
    "norm_f": "output_norm",
    "final_layernorm": "output_norm",
    "final_layer_norm": "output_norm",
    "lm_head": "output",
    "embed_out": "output",
    "input_layernorm": "attn_norm",
    "ln_1": "attn_norm",
    "norm_1": "attn_norm",
    "ln_attn": "attn_norm_2",  # Falcon's, of which the first one is that of the feed-forward
    "ln_mlp": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "ln_2": "ffn_norm",
    "norm_2": "ffn_norm",
    **{f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.dense": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    **{f"{x}.query_key_value": "attn_qkv" for x in ("self_attention", "attention")},
    **{f"{x}.dense": "attn_output" for x in ("self_attention", "attention")},
    **{f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")},
    **{f"ffn.{x}_proj": f"ffn_{x}" for x in ("up", "down")},
    "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
AROUND = {  # Gemma 2 and 3
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GLM4 = {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}
SEED = {"post_attention_layernorm": "post_attention_norm"}
OWN = {
    **dict.fromkeys(("gemma2", "gemma3", "olmo2", "exaone4"), AROUND),
    "glm4": GLM4,
    "seed_oss": SEED,
}
BY_ONE_MORE = ("gemma", "gemma2", "gemma3", "nemotron")
NEIGHBOURS = ("granite", "smollm3", "arcee", "olmo")  # rows of q and k are put in pairs


class Case(NamedTuple):
    """case: of families.py, with changes of its config. keys: those besides the sizes."""

    case: str
    change: dict = {}
    keys: dict = {}


HEAD = {"attention.key_length": 8, "attention.value_length": 8}
WINDOW = {"attention.sliding_window": 11, "attention.sliding_window_pattern": [True, False]}
# The first word is general.architecture.
CASES = {
    "gemma": Case("gemma", {}, HEAD),
    "gemma2": Case(
        "gemma2",
        {"query_pre_attn_scalar": 8},
        {
            **HEAD,
            "attention.sliding_window": 11,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 4.0,
        },
    ),
    "gemma3": Case(
        "gemma3_text",
        {"query_pre_attn_scalar": 8, "sliding_window_pattern": 2},
        {
            **HEAD,
            "attention.sliding_window": 11,
            "attention.sliding_window_pattern": 2,
            "rope.freq_base_swa": 500.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
    "starcoder2": Case("starcoder2", {"sliding_window": None}),
    "nemotron": Case("nemotron", {}, {"rope.dimension_count": 4}),
    "stablelm": Case(
        "stablelm", {}, {"rope.dimension_count": 2, "use_parallel_residual": False}
    ),
    "bloom": Case("bloom"),
    "gpt2": Case("gpt2"),
    "starcoder": Case("gpt_bigcode"),
    "granite": Case(
        "granite",
        {},
        {
            "embedding_scale": 3.0,
            "attention.scale": 0.5,
            "residual_scale": 0.6,
            "logit_scale": 2.0,
            "rope.dimension_count": 8,
        },
    ),
    "smollm3": Case("smollm3", {"no_rope_layer_interval": 4, "num_hidden_layers": 4}),
    "arcee": Case("arcee"),
    "olmo": Case("olmo"),
    "olmo2": Case("olmo2"),
    "olmo2 windows": Case("olmo3", {"rope_scaling": None}, WINDOW),
    "exaone4": Case("exaone4", {}, WINDOW),
    "exaone4 without windows": Case("exaone4 without windows"),
    "hunyuan-dense": Case(
        "hunyuan_v1_dense alpha",
        {},
        {
            **HEAD,
            "rope.freq_base": 1e4 * 50 ** (8 / 6),
            "rope.scaling.type": "none",
            "rope.scaling.factor": 1.0,
        },
    ),
    "seed_oss": Case("seed_oss", {}, HEAD),
    "ernie4_5": Case("ernie4_5", {}, HEAD),
    "glm4": Case("glm4", {}, {**HEAD, "rope.dimension_count": 4}),
    "command-r": Case("cohere", {}, {"logit_scale": 0.5, "rope.scaling.type": "none"}),
    "command-r norms": Case("cohere norms", {}, {"logit_scale": 0.5}),
    "cohere2": Case(
        "cohere2",
        {"sliding_window_pattern": 4, "num_hidden_layers": 4},
        {"logit_scale": 0.5, "attention.sliding_window": 11, "rope.dimension_count": 8},
    ),
    "phi2": Case("phi", {}, {"rope.dimension_count": 4}),
    "gptneox": Case("gpt_neox", {}, {"rope.dimension_count": 4, "use_parallel_residual": True}),
    "gptneox behind": Case(
        "gpt_neox",
        {"use_parallel_residual": False},
        {"rope.dimension_count": 4, "use_parallel_residual": False},
    ),
    "falcon": Case("falcon", {}, {"tensor_data_layout": "jploski"}),
    "falcon two norms": Case("falcon new", {}, {"tensor_data_layout": "jploski"}),
    "mpt": Case("mpt", {"attn_config": {"alibi": True}}, {"attention.max_alibi_bias": 8.0}),
}


def config_of(kind):
    return {**families.config_of(CASES[kind].case), **CASES[kind].change}


def tensors_of(kind, shapes):
    """Those of the folder, by transformers' names."""
    every = families.every_layer(shapes, config_of(kind).get("num_hidden_layers", families.LAYERS))
    model_type = config_of(kind)["model_type"]
    return {name: families.value_of(name, shape, model_type) for name, shape in every.items()}


def number(name, value):
    if isinstance(value, str):
        return test_gguf.key(name, STRING, test_gguf.string(value))
    if isinstance(value, bool):
        return test_gguf.key(name, BOOL, struct.pack("<?", value))
    if isinstance(value, list):  # of bool
        packed = struct.pack(f"<IQ{len(value)}?", BOOL, len(value), *value)
        return test_gguf.key(name, ARRAY, packed)
    kind, code = ("<f", F32) if isinstance(value, float) else ("<I", U32)
    return test_gguf.key(name, code, struct.pack(kind, value))


def named(kind, name):
    """What the file calls a tensor."""
    names = {**PARTS, **OWN.get(kind.split()[0], {})}
    part, _, end = name.rpartition(".")
    layer = re.search(r"\.(\d+)\.(.*)", part)
    own = layer[2] if layer else part
    found = names.get(own) or names[own.rpartition(".")[2]]
    return f"{f'blk.{layer[1]}.' if layer else ''}{found}.{end}"


def written(kind, name, value, d):
    """The values as the file has them."""
    arch, shape = kind.split()[0], value.shape
    if "norm" in name and name.endswith("weight") and arch in BY_ONE_MORE:
        return value + np.float32(1)
    if arch == "gpt2" and len(shape) == 2 and re.search(r"\.\d+\.", name):
        return value.T
    if "query_key_value" in name:
        cut = value.reshape(d.n_kv_head, -1, d.head_dim, *shape[1:])
        parts = cut[:, :-2], cut[:, -2:-1], cut[:, -1:]
        return np.concatenate([x.reshape(-1, *shape[1:]) for x in parts])
    if arch in NEIGHBOURS and re.search(r"\.[qk]_proj\.", name):
        return value.reshape(-1, 2, d.head_dim // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    return value


def write_gguf(path, kind, shapes, **more):
    d = design_of_config(Keys(config_of(kind), "config"), config_of(kind)["model_type"])
    entries, data = [], b""
    for name, value in tensors_of(kind, shapes).items():
        value = written(kind, name, value, d)
        data += bytes(-len(data) % 32)
        entries.append(test_gguf.tensor(named(kind, name), value.shape, 0, len(data)))
        data += np.ascontiguousarray(value, "<f4").tobytes()
    rms = "_rms" if d.norm == "rms" else ""
    keys = {
        "block_count": d.n_layer,
        "context_length": 256,
        "embedding_length": d.width,
        "feed_forward_length": d.ffn_width,
        "attention.head_count": d.n_head,
        "attention.head_count_kv": d.n_kv_head,
        f"attention.layer_norm{rms}_epsilon": d.epsilon,
        **({"rope.freq_base": float(d.theta)} if d.positions == "rope" else {}),
        **CASES[kind].keys,
        **more,
    }
    arch = kind.split()[0]
    lines = [number("general.architecture", arch)]
    lines += [number(f"{arch}.{key}", value) for key, value in keys.items() if value is not None]
    path.write_bytes(test_gguf.build(entries, lines, data))
