"""Tiny encoders by model_type, with weights that names and a seed make, and what transformers computes
of them, which families_encoders.json keeps for where there is no transformers.

    python families_encoders.py [NAME...]    writes that file anew, or these of it, by transformers

A family is a row of TEXTS or IMAGES: what its config.json says beyond the sizes that all share.
"""

import json
import pathlib
import sys
import tempfile
import warnings
import zlib

import models_oracle as tiny
import numpy as np

STORED = pathlib.Path(__file__).with_suffix(".json")
IDS = [5, 17, 3, 95, 2, 44, 44, 8, 31, 62, 9, 13]
TEXTS_OF_IDS = [IDS, IDS[:3], (IDS * 4)[:40]]  # none has an id of padding, 0 or 1
KEPT = 8  # numbers of a vector

BERT = {
    "hidden_size": tiny.WIDTH,
    "num_hidden_layers": tiny.LAYERS,
    "num_attention_heads": tiny.HEADS,
    "intermediate_size": tiny.INNER,
    "vocab_size": tiny.TOKENS,
    "max_position_embeddings": 48,
    **dict.fromkeys(("bos_token_id", "eos_token_id"), 2),
}
T5 = {
    "d_model": tiny.WIDTH,
    "d_kv": 8,
    "d_ff": tiny.INNER,
    "num_layers": tiny.LAYERS,
    "num_heads": tiny.HEADS,
    "vocab_size": tiny.TOKENS,
    "tokenizer_class": "T5Tokenizer",
}
MASKED, SOLE, T5_SOLE = "AutoModelForMaskedLM", "AutoModel", "AutoModelForTextEncoding"
# By name, which begins with the model_type: keys of config.json, and the class that is saved.
TEXTS = {
    "bert": (BERT, MASKED),
    "roberta": (BERT, MASKED),
    "xlm-roberta": ({**BERT, "pad_token_id": 0}, MASKED),
    "distilbert": (
        {
            **dict(zip(("dim", "n_layers", "n_heads", "hidden_dim"), BERT.values())),
            "vocab_size": tiny.TOKENS,
            "max_position_embeddings": 48,
        },
        MASKED,
    ),
    "albert": ({**BERT, "embedding_size": 12, "num_hidden_groups": 2}, MASKED),
    "modernbert": ({**BERT, "local_attention": 6, "num_hidden_layers": 4, "pad_token_id": 0}, MASKED),
    "t5": (T5, T5_SOLE),
    "camembert": (BERT, MASKED),
    "data2vec-text": (BERT, MASKED),
    "ernie": (BERT, MASKED),
    "ernie of tasks": ({**BERT, "use_task_id": True}, MASKED),
    "megatron-bert": (BERT, MASKED),
    "electra": ({**BERT, "embedding_size": 12}, MASKED),
    "electra wide": ({**BERT, "embedding_size": tiny.WIDTH, "hidden_act": "relu"}, MASKED),
    "layoutlm": ({**BERT, "max_2d_position_embeddings": 20}, MASKED),
    "xmod": ({**BERT, "languages": ["en_XX", "de_DE"], "default_language": "de_DE"}, MASKED),
    "xmod norms first": (
        {
            **BERT,
            "default_language": "en_XX",
            "pre_norm": True,
            "ln_before_adapter": False,
            "adapter_layer_norm": True,
        },
        MASKED,
    ),
    "mpnet": (BERT, MASKED),
    "nomic_bert": ({**BERT, "rope_parameters": {"rope_type": "default", "rope_theta": 700}}, MASKED),
    "esm": (
        {
            **BERT,
            "position_embedding_type": "rotary",
            "token_dropout": True,
            "pad_token_id": 1,
            "mask_token_id": 90,
        },
        MASKED,
    ),
    "esm with positions": ({**BERT, "emb_layer_norm_before": True, "pad_token_id": 1}, MASKED),
    "eurobert": ({**BERT, "num_key_value_heads": 2, "pad_token_id": 0}, MASKED),
    "eurobert with biases": (
        {
            **{**BERT, "attention_bias": True, "mlp_bias": True, "pad_token_id": 0},
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        },
        MASKED,
    ),
    "mt5": (T5, T5_SOLE),
    "umt5": ({**T5, "feed_forward_proj": "gated-silu"}, T5_SOLE),
}


def config_of(name):
    return {"model_type": name.split()[0], **TEXTS[name][0]}


def weights_of(shapes):
    """Each tensor by its name and shape alone."""
    made = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
        if name.endswith("inv_freq"):  # others than those of config.json, which are not read then
            half = shape[0]
            made[name] = (0.9 * 100.0 ** -(np.arange(half) / half)).astype(np.float32)
        elif not shape:
            made[name] = np.float32(1.5 + rng.random())
        else:
            made.update(tiny.matrices(rng, {name: shape}))
    return made


def packed(shapes):
    """Names with {n} for the numbers 0 to n - 1 of layers that all have the tensor, and with * for a
    weight and its bias."""
    kept, done = {}, set()
    for name, shape in sorted(shapes.items()):
        if name in done:
            continue
        before, zero, after = name.partition(".0.")
        run = [f"{before}.{i}.{after}" for i in range(9)]
        same = [other for other in run if shapes.get(other) == shape]
        if zero and len(same) > 1 and same == run[: len(same)]:
            done.update(same)
            name = f"{before}.{{{len(same)}}}.{after}"
        kept[name] = list(shape)
    for name in [x for x in kept if x.endswith(".weight")]:
        part = name.removesuffix("weight")
        if kept.get(f"{part}bias") == kept[name][:1]:
            kept[f"{part}*"] = kept.pop(name)
            del kept[f"{part}bias"]
    return kept


def unpacked(kept):
    shapes = {}
    for name, shape in kept.items():
        before, brace, rest = name.partition("{")
        count, _, after = rest.partition("}")
        for i in range(int(count) if brace else 1):
            whole = f"{before}{i}{after}" if brace else name
            part = whole.removesuffix("*")
            shapes.update({whole: tuple(shape)} if part == whole else {
                f"{part}weight": tuple(shape),
                f"{part}bias": tuple(shape[:1]),
            })
    return shapes


def stored():
    return json.loads(STORED.read_text())


# ---- transformers -------------------------------------------------------------------------------


def saved_shapes(name, folder):
    """The tensors of a folder as transformers saves the model, and config.json."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**config_of(name))
    torch.manual_seed(0)
    getattr(transformers, TEXTS[name][1]).from_config(config).save_pretrained(folder)
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}
    if name == "esm":  # as its files have it; transformers saves an asterisk, gamma and beta
        for old, new in ((".*.", ".0."), (".gamma", ".weight"), (".beta", ".bias")):
            shapes = {key.replace(old, new): shape for key, shape in shapes.items()}
    return shapes


def rows_of(name, folder):
    """The last rows of each text by transformers."""
    import torch
    import transformers

    auto = TEXTS[name][1] if TEXTS[name][1] == T5_SOLE else SOLE
    their, info = getattr(transformers, auto).from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    # Heads and poolers apart, every tensor of theirs is of the file.
    assert not [x for x in info["missing_keys"] if "pooler" not in x], info
    with torch.no_grad():
        return [
            their.eval()(torch.tensor([ids])).last_hidden_state[0].double().numpy()
            for ids in TEXTS_OF_IDS
        ]


def write(names):
    found = stored() if STORED.exists() else {}
    for name in names or TEXTS:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            shapes = saved_shapes(name, folder)
            (folder / "model.safetensors").unlink()
            tiny.write_folder(folder / "w", config_of(name), weights_of(shapes))
            vectors = [tiny.embedding(rows)[:KEPT] for rows in rows_of(name, folder / "w")]
        kept = packed(shapes)
        assert unpacked(kept) == shapes, name
        found[name] = {"tensors": kept, "vectors": np.round(vectors, 7).tolist()}
        print(name, len(shapes), flush=True)
    lines = [f"{json.dumps(key)}: {json.dumps(found[key], separators=(',', ':'))}" for key in found]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write(sys.argv[1:])
