"""Tiny encoders by model_type, with weights that names and a seed make, and what transformers
computes of them, which families_encoders.json keeps for where there is no transformers.

    python families_encoders.py [NAME...]    writes that file again, or these of it, by transformers

A family is a row of a table: what its config.json says beyond the sizes that all share.
"""

import json
import pathlib
import sys
import tempfile
import warnings
import zlib

import models_oracle as tiny
import numpy as np
import tiny_encoders

STORED = pathlib.Path(__file__).with_suffix(".json")
IDS = [5, 17, 3, 95, 2, 44, 44, 8, 31, 62, 9, 13]
TEXTS_OF_IDS = [IDS, IDS[:3], (IDS * 4)[:40]]  # none has an id of padding, 0 or 1
KEPT = 8  # numbers of a vector
N_DRAWN = 8

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
    "modernbert": (
        {**BERT, "local_attention": 6, "num_hidden_layers": 4, "pad_token_id": 0},
        MASKED,
    ),
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
    "nomic_bert": (
        {**BERT, "rope_parameters": {"rope_type": "default", "rope_theta": 700}},
        MASKED,
    ),
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
VIT = {
    **{key: BERT[key] for key in list(BERT)[:4]},
    "image_size": 12,
    "patch_size": 4,
    "num_labels": 3,
}
DINO = {**{key: x for key, x in VIT.items() if key != "intermediate_size"}, "mlp_ratio": 2}
IMAGE = "AutoModelForImageClassification"
IMAGES = {
    "vit": (VIT, IMAGE),
    "deit": (VIT, "DeiTForImageClassification"),
    "deit with a teacher": (VIT, "DeiTForImageClassificationWithTeacher"),
    "dinov2": (DINO, IMAGE),
    "dinov2 gated": ({**DINO, "use_swiglu_ffn": True, "qkv_bias": False}, IMAGE),
}
_TEXT = {**BERT, "max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2}
PAIRS = {
    "clip": ({"text_config": _TEXT, "vision_config": VIT, "projection_dim": 24}, "CLIPModel"),
    "siglip": (
        {
            "text_config": {**_TEXT, "projection_size": 24},
            "vision_config": {**VIT, "hidden_size": 24},
        },
        "SiglipModel",
    ),
}
_BART = {
    "d_model": tiny.WIDTH,
    **{f"{side}_layers": tiny.LAYERS for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": tiny.HEADS for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": tiny.INNER for side in ("encoder", "decoder")},
    "vocab_size": tiny.TOKENS,
    "max_position_embeddings": 48,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"), 2),
    "pad_token_id": 1,
    "forced_eos_token_id": None,
}
_T5_START = {**T5, "decoder_start_token_id": 0}
S2S = "AutoModelForSeq2SeqLM"
SEQ2SEQ = {
    "bart": (_BART, S2S),
    "bart scaled": ({**_BART, "scale_embedding": True, "decoder_layers": 3}, S2S),
    "mbart": (_BART, S2S),
    "marian": ({**_BART, "decoder_ffn_dim": 48}, S2S),
    "m2m_100": (_BART, S2S),
    "t5 whole": ({**_T5_START, "num_decoder_layers": 3}, S2S),
    "t5 1.1": ({**_T5_START, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, S2S),
    "mt5 whole": (_T5_START, S2S),
    "umt5 whole": ({**_T5_START, "feed_forward_proj": "gated-silu"}, S2S),
}
# Heads, by the name of a row of TEXTS and of a task: what config.json says besides, and the class.
_CLASSES = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "question": "AutoModelForQuestionAnswering",
}
HEADS = {
    f"{name} {task}": ({**TEXTS[name][0], **more}, _CLASSES[task.split()[0]])
    for name, task, more in (
        ("bert", "sequence", {"num_labels": 1}),
        ("bert", "token", {"num_labels": 5}),
        ("bert", "question", {}),
        ("roberta", "sequence", {"num_labels": 3}),
        ("electra", "sequence", {}),
        ("distilbert", "sequence", {}),
        ("albert", "sequence", {}),
        ("mpnet", "sequence", {}),
        ("mpnet", "token", {}),
        ("nomic_bert", "sequence", {}),
        ("eurobert", "sequence", {}),
        ("eurobert", "sequence mean", {"classifier_pooling": "mean"}),
        ("modernbert", "sequence", {"classifier_pooling": "mean", "classifier_bias": True}),
        ("modernbert", "token", {"classifier_activation": "silu", "norm_bias": True}),
    )
}
ALL = {**TEXTS, **IMAGES, **PAIRS, **SEQ2SEQ, **HEADS}
ANSWER = [2, 9, 44, 7, 31, 5, 60, 3, 12, 90, 4, 71]  # what a decoder has
PIXELS = np.random.default_rng(4).standard_normal((2, 3, 12, 12)).astype(np.float32)
ENDED = [[1, *ids[:30], 2] for ids in ([5, 17, 3], IDS[5:], [9] * 33)]  # texts of pairs


def task_of(name):
    """The head that is tested: of the vocabulary, where it is that of the class that is saved."""
    if name in HEADS:
        return name.split()[1]
    return "masked" if name in TEXTS and ALL[name][1] == MASKED else ""


def config_of(name):
    kind = name.split()[0]
    said = {"masked": "MaskedLM", "sequence": "SequenceClassification"}
    said |= {"token": "TokenClassification", "question": "QuestionAnswering"}
    task = task_of(name)
    named = {"architectures": [f"AutoModelFor{said[task]}"]} if task else {}
    config = {"model_type": kind, **named, **ALL[name][0]}
    count = config.pop("num_labels", None) if task else None
    if count:
        config["id2label"] = {str(i): f"label {i}" for i in range(count)}
    return config


def types_of(ids):
    """Those of a pair, whose second text is the second half."""
    return [int(i >= len(ids) // 2) for i in range(len(ids))]


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
    """Names with {n} for the numbers 0 to n - 1 of layers that all have the tensor, and with * for
    a weight and its bias."""
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
            shapes.update(
                {whole: tuple(shape)}
                if part == whole
                else {
                    f"{part}weight": tuple(shape),
                    f"{part}bias": tuple(shape[:1]),
                }
            )
    return shapes


def stored():
    """Rows by name; that of a head has what differs from its encoder's row, None for none."""
    found = json.loads(STORED.read_text())
    for name in HEADS:
        if name in found:
            both = {**found[name.split()[0]]["tensors"], **found[name]["tensors"]}
            found[name]["tensors"] = {key: x for key, x in both.items() if x is not None}
    return found


# ---- transformers -------------------------------------------------------------------------------


def saved_shapes(name, folder):
    """The tensors of a folder as transformers saves the model, and config.json."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**config_of(name))
    torch.manual_seed(0)
    made = getattr(transformers, ALL[name][1])
    their = made.from_config(config) if ALL[name][1].startswith("Auto") else made(config)
    their.save_pretrained(folder)
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}
    if name == "esm":  # as its files have it; transformers saves an asterisk, gamma and beta
        for old, new in ((".*.", ".0."), (".gamma", ".weight"), (".beta", ".bias")):
            shapes = {key.replace(old, new): shape for key, shape in shapes.items()}
    if name == "t5 1.1":  # its files have a head, though transformers has no other any more
        shapes["lm_head.weight"] = (tiny.TOKENS, tiny.WIDTH)
    return shapes


def theirs(name, folder):
    """What `ours` gives, by transformers."""
    import torch
    import transformers

    if name in SEQ2SEQ:
        return their_answers(name, folder)
    if name in HEADS:
        return their_logits(name, folder)
    auto = SOLE if ALL[name][1] == MASKED else ALL[name][1]
    model, info = getattr(transformers, auto).from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    # Poolers apart, every tensor of theirs is of the file.
    assert not [x for x in info["missing_keys"] if "pooler" not in x], info
    model = model.eval()
    with torch.no_grad():
        if name in TEXTS:
            rows = [model(torch.tensor([x])).last_hidden_state[0].numpy() for x in TEXTS_OF_IDS]
            vectors = np.array([tiny_encoders.embedding(x.astype(float)) for x in rows])
            words = their_logits(name, folder) if task_of(name) else {}
            return {"vectors": vectors, **words}
        pixels = torch.tensor(PIXELS)
        if name in IMAGES:
            rows = model.base_model(pixels).last_hidden_state
            return {"rows": rows.numpy(), "logits": model(pixels).logits.numpy()}
        said = [model(input_ids=torch.tensor([x]), pixel_values=pixels) for x in ENDED]
        return {
            "images": said[0].image_embeds.numpy(),
            "texts": np.array([x.text_embeds[0].numpy() for x in said]),
            "logits": np.concatenate([x.logits_per_image.numpy() for x in said], 1),
        }


def their_logits(name, folder):
    """By the head that config.json names, of texts with types where the family has them."""
    import torch
    import transformers

    model, info = getattr(transformers, ALL[name][1]).from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"], info
    model = model.eval()
    result = []
    with torch.no_grad():
        for ids in TEXTS_OF_IDS:
            more = {"token_type_ids": torch.tensor([types_of(ids)])} if has_types(name) else {}
            said = model(input_ids=torch.tensor([ids]), **more)
            if task_of(name) == "question":
                result.append(torch.stack([said.start_logits[0], said.end_logits[0]], 1).numpy())
            else:
                result.append(said.logits[0].numpy())
    return {"words" if task_of(name) != "sequence" else "logits": joined(result)}


def has_types(name):
    return name in ("bert sequence", "electra sequence", "albert sequence", "nomic_bert sequence")


def joined(results):
    """Logits of texts, or of their rows one text after the other."""
    return np.array(results) if results[0].ndim == 1 else np.concatenate(results)


def their_answers(name, folder):
    import torch
    import transformers

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, attn_implementation="eager"
    ).eval()
    ids, answer = torch.tensor([IDS]), torch.tensor([ANSWER])
    with torch.no_grad():
        said = model(input_ids=ids, decoder_input_ids=answer)
        drawn = [2]
        for _ in range(N_DRAWN):
            logits = model(input_ids=ids, decoder_input_ids=torch.tensor([drawn])).logits
            drawn.append(int(logits[0, -1].argmax()))
    rows = said.encoder_last_hidden_state[0].numpy()
    return {
        "vectors": tiny_encoders.embedding(rows.astype(float))[None],
        "logits": said.logits[0].numpy(),
        "ids": np.array([drawn[1:]]),
    }


def ours(name, model):
    if name in SEQ2SEQ:
        drawn = list(model.generate(IDS, N_DRAWN, [2], stop=()))
        logits = model.logits(IDS, ANSWER)
        return {"vectors": model.embed([IDS]), "logits": logits, "ids": np.array([drawn])}
    if name in TEXTS or name in HEADS:
        found = {} if name in HEADS else {"vectors": model.embed(TEXTS_OF_IDS)}
        if task_of(name):
            types = [types_of(x) for x in TEXTS_OF_IDS] if has_types(name) else None
            logits = model.logits(TEXTS_OF_IDS, types=types)
            key = "logits" if task_of(name) == "sequence" else "words"
            found[key] = joined([np.asarray(x) for x in logits])
        return found
    if name in IMAGES:
        return {"rows": model.encode(PIXELS), "logits": model.logits(PIXELS)}
    images, texts = model.embed_images(PIXELS), model.embed_texts(ENDED)
    return {"images": images, "texts": texts, "logits": model.scale * images @ texts.T + model.bias}


def kept(results):
    """The first numbers of each vector, and of the first rows."""
    return {key: part_of(key, x) for key, x in results.items()}


def part_of(key, x):
    if key == "words":
        return x[::18, :KEPT]
    if len(x) > 3:
        return x[::4, :KEPT]
    return x[..., :KEPT] if x.ndim == 2 else x[:, :2, :KEPT]


def write(names):
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in names or ALL:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            shapes = saved_shapes(name, folder)
            (folder / "model.safetensors").unlink()
            tiny.write_folder(folder / "w", config_of(name), weights_of(shapes))
            results = kept(theirs(name, folder / "w"))
        names = packed(shapes)
        assert unpacked(names) == shapes, name
        if name in HEADS:
            base = found[name.split()[0]]["tensors"]
            names = {
                **{key: x for key, x in names.items() if base.get(key) != x},
                **{key: None for key in base if key not in names},
            }
        numbers = {key: np.round(x.astype(float), 7).tolist() for key, x in results.items()}
        found[name] = {"tensors": names, **numbers}
        print(name, len(shapes), flush=True)
    lines = [f"{json.dumps(key)}: {json.dumps(found[key], separators=(',', ':'))}" for key in ALL]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write(sys.argv[1:])
