"""Decoders by name: tiny ones with weights that follow from their names, beside transformers.

    families.py [--write] [name ..]     prints a row for each; with PyTorch and transformers 5
    families.py --table                 the table of docs/models.md

--write: what test_families.py expects where those are not installed, families.json.
"""

import json
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
from test_layer import write_safetensors

import vkattn.models
from vkattn.models._base_row import root_width
from vkattn.models._families import FAMILIES
from vkattn.models._table import Key

EXPECTED = Path(__file__).with_name("families.json")
TOKENS, WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 96, 32, 128, 2, 4, 2
LENGTHS = (1, 5, 40, 150)
PROMPTS, NEW = (1, 7, 40, 70), 24
LEAD = 5e-4  # of each greedy id's logit, at least
COLUMNS = slice(0, 96, 12)  # of the logits that are kept

SIZES = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": TOKENS,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
HEAD = {**SIZES, "head_dim": 8}
MHA = {**SIZES, "num_key_value_heads": HEADS}
GPT = {
    "n_embd": WIDTH,
    "n_inner": INNER,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 256,
    "vocab_size": TOKENS,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
KINDS = ["sliding_attention", "full_attention"]
WINDOW = {"sliding_window": 11, "layer_types": KINDS}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
NEOX = {k: x for k, x in SIZES.items() if k != "num_key_value_heads"}
FALCON = {k: x for k, x in NEOX.items() if k != "intermediate_size"}
OPT = {**FALCON, "ffn_dim": INNER, "tie_word_embeddings": True}
DELTA = {
    **{"linear_num_key_heads": 2, "linear_key_head_dim": 8, "partial_rotary_factor": 0.5},
    **{"linear_num_value_heads": 6, "linear_value_head_dim": 12},
}
COHERE = {**SIZES, "tie_word_embeddings": True, "logit_scale": 0.5}

# The first word is the model_type.
CASES = {
    "llama": SIZES,
    "mistral": {**SIZES, "sliding_window": 11},
    "phi3": {**SIZES, "partial_rotary_factor": 0.5, "sliding_window": 11},
    "phi3 relu2": {**SIZES, "hidden_act": "relu2"},
    "qwen2": {**SIZES, "use_sliding_window": True, **WINDOW},
    "qwen3": HEAD,
    "gpt2": GPT,
    "gpt_neox": {**NEOX, "rotary_pct": 0.5},
    "gemma": {**HEAD, "tie_word_embeddings": True},
    "gemma2": {
        **HEAD,
        "tie_word_embeddings": True,
        "sliding_window": 11,
        "query_pre_attn_scalar": 6,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0,
    },
    "vaultgemma": {
        **HEAD,
        "tie_word_embeddings": True,
        "sliding_window": 11,
        "query_pre_attn_scalar": 6,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0,
    },
    "gemma3_text": {
        **HEAD,
        "tie_word_embeddings": True,
        "sliding_window": 11,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 6,
        "rope_theta": 1e5,
        "rope_local_base_freq": 500.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "granite": {
        **SIZES,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.5,
        "residual_multiplier": 0.6,
        "logits_scaling": 2.0,
        "mlp_bias": True,
        "attention_bias": True,
    },
    "smollm3": {**SIZES, "no_rope_layer_interval": 2},
    "olmo": SIZES,
    "olmo2": SIZES,
    "olmo3": {**SIZES, **WINDOW, "rope_scaling": YARN, "rope_theta": 5e5},
    "exaone4": {**SIZES, "sliding_window": 11, "sliding_window_pattern": 2},
    "exaone4 without windows": {**SIZES, "sliding_window": None, "layer_types": KINDS[1:] * 2},
    "hunyuan_v1_dense": HEAD,
    "hunyuan_v1_dense alpha": {
        **{
            **HEAD,
            "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0, "mscale": 1.0},
        },
    },
    "seed_oss": {**HEAD, "attention_out_bias": True},
    "glm": HEAD,
    "glm4": HEAD,
    "ernie4_5": {**HEAD, "use_bias": True},
    "helium": HEAD,
    "cohere": COHERE,
    "cohere norms": {**COHERE, "use_qk_norm": True},
    "cohere2": {**COHERE, "sliding_window": 11, "sliding_window_pattern": 2},
    "starcoder2": {**SIZES, "sliding_window": 11},
    "stablelm": {**SIZES, "use_qkv_bias": True},
    "stablelm parallel": {**SIZES, "use_parallel_residual": True, "qk_layernorm": True},
    "phi": MHA,
    "phi norms": {**SIZES, "qk_layernorm": True},
    "gptj": {**GPT, "rotary_dim": 4},
    "codegen": {**GPT, "rotary_dim": 4},
    "falcon": {**FALCON, "tie_word_embeddings": True, "bias": True},
    "falcon new": {**FALCON, "new_decoder_architecture": True, "num_kv_heads": KV_HEADS},
    "falcon alibi": {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False},
    "mpt": {
        "d_model": WIDTH,
        "n_heads": HEADS,
        "n_layers": LAYERS,
        "vocab_size": TOKENS,
        "max_seq_len": 256,
        "attn_config": {"alibi": True, "softmax_scale": 0.5},
    },
    "bloom": {
        **{"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": TOKENS},
        **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    },
    "opt": OPT,
    "opt behind": {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 16},
    "gpt_neo": {
        **{k: x for k, x in NEOX.items() if not k.startswith("num_")},
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 11,
        "tie_word_embeddings": True,
    },
    "gpt_bigcode": GPT,
    "gpt_bigcode heads": {**GPT, "multi_query": False},
    "xglm": {
        "d_model": WIDTH,
        "ffn_dim": INNER,
        "num_layers": LAYERS,
        "attention_heads": HEADS,
        "vocab_size": TOKENS,
        "max_position_embeddings": 256,
    },
    "persimmon": NEOX,
    "persimmon without norms": {**NEOX, "qk_layernorm": False},
    "arcee": {**SIZES, "mlp_bias": True},
    "nemotron": SIZES,
    "ministral": {**HEAD, "sliding_window": 11},
    "lfm2": {
        **{**SIZES, "num_hidden_layers": 3, "tie_word_embeddings": True},
        **{"full_attn_idxs": [1], "block_multiple_of": 32, "conv_bias": True},
    },
    "lfm2 listed": {
        **{**SIZES, "layer_types": ["conv", "full_attention"]},
        **{"block_auto_adjust_ff_dim": False, "conv_L_cache": 4},
    },
    "qwen3_5_text": {**HEAD, **DELTA, "num_hidden_layers": 3, "full_attention_interval": 2},
    "qwen3_next": {**HEAD, **DELTA, "full_attention_interval": 2, "num_experts": 0},
}


def config_of(name):
    return {"model_type": name.split()[0], **CASES[name]}


def value_of(name, shape, kind):
    """A tensor that follows from its name: rows of length 1 or so, norms around 1."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = rng.standard_normal(shape)
    if len(shape) > 1 and "norm" not in name:
        scale = 0.3 if "emb" in name or "wte" in name else 1.5 * shape[-1] ** -0.5
        return (scale * values).astype(np.float32)
    is_norm = any(word in name for word in ("norm", "ln_")) and not name.endswith("bias")
    by_one_more = kind.startswith(("gemma", "nemotron", "qwen3_")) and "linear_attn" not in name
    one = 1 if is_norm and not by_one_more else 0
    return (0.3 * values + one).astype(np.float32)


def ids_of(n, seed=0):
    return np.random.default_rng(seed).integers(3, TOKENS, n).tolist()


def prompts(seed):
    return [ids_of(n, [seed, n]) for n in PROMPTS]


def every_layer(shapes, n=LAYERS):
    """{name with {} for each of n layers: shape} as {name: shape}."""
    return {
        name.replace("{}", str(i)): shape
        for name, shape in shapes.items()
        for i in range(n if "{}" in name else 1)
    }


def write_model(folder, name, shapes):
    config = config_of(name)
    every = every_layer(shapes, config.get("num_hidden_layers", LAYERS))
    made = {n: value_of(n, s, config["model_type"]) for n, s in every.items()}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", made)
    return folder


# ---- The table of docs/models.md ----------------------------------------------------------------


def said(value):
    """A setting in words: itself, or the keys of config.json that it is read from."""
    if isinstance(value, Key):
        return " or ".join(f"`{name}`" for name in value.names if not name.startswith("_"))
    return f"{value:g}" if isinstance(value, float) else str(value)


def norms_of(row):
    kind = {"rms": "RMS", "layer": "layer"}[row["norm"]]
    more = {"weight": "", "1 + weight": " by 1 + weight", "none": " without weights"}
    before, after = "attn_norm" in row["names"], "attn_after" in row["names"]
    place = "around" if before and after else "before" if before else "behind"
    bias = ", biased" if row["norm_bias"] else ""
    heads = "; of q and k" if row["head_norm"] else ""
    rotated = " behind the rotation" if row["norm_rotated"] else ""
    whole = " over all heads" if row["head_norm"] == "rms of all" else ""
    return f"{kind}{more[row['norm_weight']]}{bias}, {place}{heads}{rotated}{whole}"


STATES = {
    "conv": "gated convolutions",
    "linear_attention": "gated delta nets behind convolutions",
}


def positions_of(row):
    words = [row["positions"]]
    if row["positions"] == "rope":
        share = row["rotary_dim"] or row["rotary_share"]
        whole = share == 1.0 or isinstance(share, Key) and share.default == 1.0
        pairs = "neighbours" if row["interleaved"] is True else "halves"
        words = [f"rope of {pairs}{'' if whole else f', {said(share)}'}"]
    if row["local_theta"] is not None:
        words.append(f"{said(row['local_theta'])} where there is a window")
    if row["no_rope"]:
        words.append("none in some layers")
    if row["state"]:
        words.append(f"{STATES[row['state']]}, {said(row['conv_width'])} wide, in some layers")
    if row["window"] is not None:
        every = row["full_every"]
        words.append(f"window {said(row['window'])}")
        words[-1] += f" but in one of {said(every)} layers" if every else ""
    return "; ".join(words)


def inner_of(row):
    gated = "gate" in row["names"] or "gate_up" in row["names"]
    kind = row["activation"].default if isinstance(row["activation"], Key) else row["activation"]
    beside = ", beside attention" if row["parallel"] is True else ""
    return f"{kind}{', gated' if gated else ''}{beside}"


def keys_of(row):
    """Keys of factors and caps, and switches."""
    names = ("embed_scale", "scale", "query_scalar", "softcap", "logit_softcap", "residual_scale")
    keys = [
        said(row[x]) for x in (*names, "logit_divisor", "logit_scale") if isinstance(row[x], Key)
    ]
    fixed = ["embedding by the root of the width"] if row["embed_scale"] is root_width else []
    unscaled = ["attention without a scale"] if row["scale"] == 1.0 else []
    gated = ["attention with a gate"] if row["attention_gate"] else []
    return ", ".join([*fixed, *unscaled, *gated, *keys, *(f"`{key}`" for key in row.get("switches", {}))])


def table_row(name):
    row = FAMILIES[name]
    return f"| {name} | {norms_of(row)} | {positions_of(row)} | {inner_of(row)} | {keys_of(row)} |"


# ---- transformers -------------------------------------------------------------------------------


def shapes_of(auto, folder, name):
    """What transformers saves: shapes by name, with {} for a layer where all have it."""
    from safetensors import safe_open

    (folder / "config.json").write_text(json.dumps(config_of(name)))
    config = auto.AutoConfig.from_pretrained(folder)
    auto.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "saved")
    shapes, some = {}, {}
    with safe_open(folder / "saved" / "model.safetensors", "np") as file:
        for full in sorted(file.keys()):
            parts = full.split(".")
            at = next((i for i, part in enumerate(parts) if part.isdigit()), None)
            if at is not None:
                parts[at] = "{}"
            shape = list(file.get_slice(full).get_shape())
            assert shapes.setdefault(".".join(parts), shape) == shape, full
            some.setdefault(".".join(parts), {})[full] = shape
    n_layer = max(len(names) for names in some.values())
    for name in [name for name in shapes if "{}" in name and len(some[name]) < n_layer]:
        del shapes[name]
        shapes.update(some[name])
    return shapes


def theirs(torch, auto, folder):
    config = auto.AutoConfig.from_pretrained(folder)
    # Falcon's eager attention in transformers 5.17 adds its slopes a second time, in the mask.
    config._attn_implementation = "sdpa" if getattr(config, "alibi", False) else "eager"
    model, info = auto.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True
    )
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    return model.eval()


def their_logits(torch, model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def their_greedy(torch, model, prompt):
    """The ids, and by how much the best logit led at least."""
    ids, gap = list(prompt), np.inf
    for _ in range(NEW):
        last = their_logits(torch, model, ids)[-1]
        best = np.sort(last)[-2:]
        gap = min(gap, float(best[1] - best[0]))
        ids.append(int(last.argmax()))
    return ids[len(prompt) :], gap


def clear_greedy(torch, model):
    """The first prompts whose ids are none by chance: a seed, the ids, the least lead."""
    for seed in range(50):
        found = [their_greedy(torch, model, prompt) for prompt in prompts(seed)]
        gap = min(gap for _, gap in found)
        if gap > LEAD:
            break
    return seed, [ids for ids, _ in found], gap


def load(path, device):
    """A model of which every key is known and every tensor used."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(path, device=device)
    assert model.unused == []
    return model


def our_greedy(model, seed):
    found = [[] for _ in PROMPTS]
    for i, token in model.generate_batch(prompts(seed), NEW, at_once=3, stop=()):
        found[i].append(token)
    return found


def main(names, write):
    import torch
    import transformers

    import vkattn.models

    torch.set_num_threads(1)
    kept = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    wrong = 0
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            shapes = shapes_of(transformers, folder, name)
            write_model(folder, name, shapes)
            judge = theirs(torch, transformers, folder)
            seed, greedy, gap = clear_greedy(torch, judge)
            want = their_logits(torch, judge, ids_of(LENGTHS[-1]))
            kept[name] = {
                "shapes": shapes,
                "logits": [[round(float(x), 5) for x in want[n - 1, COLUMNS]] for n in LENGTHS],
                "seed": seed,
                "ids": greedy,
            }
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    model = vkattn.models.load(folder)
                errors = [
                    np.abs(model.logits(ids_of(n)) - their_logits(torch, judge, ids_of(n))).max()
                    for n in LENGTHS
                ]
                found = our_greedy(model, seed)
                same = sum(a == b for x, y in zip(found, greedy) for a, b in zip(x, y))
            except Exception as error:  # the row says so
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                wrong += 1
                continue
            wrong += max(errors) > 1e-4 or same != NEW * len(PROMPTS)
            print(
                f"{name}: logits within {', '.join(f'{x:.1e}' for x in errors)} at {LENGTHS} ids, of"
                f" {np.abs(want).max():.1f}; {same} of {NEW * len(PROMPTS)} ids, led by {gap:.1e}",
                flush=True,
            )
    if write:
        rows = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in CASES if name in kept]
        EXPECTED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return wrong


if __name__ == "__main__":
    if "--table" in sys.argv:
        print("\n".join(table_row(name) for name in sorted(FAMILIES)))
        sys.exit(0)
    asked = [name for name in sys.argv[1:] if name != "--write"]
    sys.exit(main(asked, "--write" in sys.argv) != 0)
