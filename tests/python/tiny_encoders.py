"""Encoders in double, a row at a time, written from the papers and config.json's words; and their tiny
checkpoints with random weights."""

import math

import numpy as np
from models_oracle import (
    HEADS,
    INNER,
    LAYERS,
    TOKENS,
    WIDTH,
    gelu,
    gelu_tanh,
    layer_norm,
    mix,
    of,
    rms,
    turn,
    weights_of,
)

BERT = {
    "model_type": "bert",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "vocab_size": TOKENS,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


def bert_shapes(config):
    at = "embeddings."
    shapes = {
        f"{at}word_embeddings.weight": (TOKENS, WIDTH),
        f"{at}position_embeddings.weight": (config["max_position_embeddings"], WIDTH),
        f"{at}token_type_embeddings.weight": (2, WIDTH),
        f"{at}LayerNorm.weight": (WIDTH,),
        f"{at}LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),
        "pooler.dense.bias": (WIDTH,),
    }
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        linears = {f"attention.self.{x}": (WIDTH, WIDTH) for x in ("query", "key", "value")}
        linears["attention.output.dense"] = (WIDTH, WIDTH)
        linears["intermediate.dense"] = (INNER, WIDTH)
        linears["output.dense"] = (WIDTH, INNER)
        for name, shape in linears.items():
            shapes[f"{at}{name}.weight"], shapes[f"{at}{name}.bias"] = shape, shape[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{at}{name}.weight"] = shapes[f"{at}{name}.bias"] = (WIDTH,)
    return shapes


def bert_rows(config, t, ids, first=0, weights=None):
    """The encoder's last rows of one text, whose positions begin with `first`. A list receives the
    attention weights of each layer [n_head][n][n]."""
    n_head = config["num_attention_heads"]

    def norm(name, x):
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], config["layer_norm_eps"])

    rows = []
    for i, token in enumerate(ids):
        x = t["embeddings.word_embeddings.weight"][token].astype(np.float64)
        x = x + t["embeddings.position_embeddings.weight"][first + i]
        rows.append(
            norm("embeddings.LayerNorm", x + t["embeddings.token_type_embeddings.weight"][0])
        )
    if "widen.weight" in t:
        rows = [of(t, "widen")(x) for x in rows]
    act = {"gelu": gelu, "gelu_new": gelu_tanh}[config["hidden_act"]]
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = (
            [of(t, f"{at}attention.self.{x}")(r).reshape(n_head, -1) for r in rows]
            for x in ("query", "key", "value")
        )
        new, seen = [], np.empty((n_head, len(ids), len(ids)))
        for i, (x, query) in enumerate(zip(rows, q)):
            for j in range(n_head):
                seen[j, i] = weights_of(query[j], [y[j] for y in k], len(query[j]) ** -0.5)
            out = [seen[j, i] @ np.array([y[j] for y in v]) for j in range(n_head)]
            x = x + of(t, f"{at}attention.output.dense")(np.concatenate(out))
            x = norm(f"{at}attention.output.LayerNorm", x)
            h = act(of(t, f"{at}intermediate.dense")(x))
            new.append(norm(f"{at}output.LayerNorm", x + of(t, f"{at}output.dense")(h)))
        rows = new
        if weights is not None:
            weights.append(seen)
    return np.array(rows)


ALBERT = {
    **{k: x for k, x in BERT.items() if k != "hidden_act"},  # gelu_new, where there is none
    "model_type": "albert",
    "embedding_size": 12,
    "num_hidden_layers": 5,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
}


def albert_shapes(config):
    narrow, at = config["embedding_size"], "embeddings."
    shapes = {
        f"{at}word_embeddings.weight": (TOKENS, narrow),
        f"{at}position_embeddings.weight": (config["max_position_embeddings"], narrow),
        f"{at}token_type_embeddings.weight": (2, narrow),
        f"{at}LayerNorm.weight": (narrow,),
        f"{at}LayerNorm.bias": (narrow,),
        "pooler.weight": (WIDTH, WIDTH),
        "pooler.bias": (WIDTH,),
    }
    linears = {"encoder.embedding_hidden_mapping_in": (WIDTH, narrow)}
    for group in range(config["num_hidden_groups"]):
        for i in range(config["inner_group_num"]):
            at = f"encoder.albert_layer_groups.{group}.albert_layers.{i}."
            for x in ("query", "key", "value", "dense"):
                linears[f"{at}attention.{x}"] = WIDTH, WIDTH
            linears[f"{at}ffn"], linears[f"{at}ffn_output"] = (INNER, WIDTH), (WIDTH, INNER)
            for x in ("attention.LayerNorm", "full_layer_layer_norm"):
                shapes[f"{at}{x}.weight"] = shapes[f"{at}{x}.bias"] = (WIDTH,)
    for name, shape in linears.items():
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
    return shapes


def albert_as_bert(config, tensors):
    """The same numbers by BERT's names, each layer written out; `widen` follows the embeddings."""
    names = {
        **{f"attention.{x}": f"attention.self.{x}" for x in ("query", "key", "value")},
        "attention.dense": "attention.output.dense",
        "attention.LayerNorm": "attention.output.LayerNorm",
        "ffn": "intermediate.dense",
        "ffn_output": "output.dense",
        "full_layer_layer_norm": "output.LayerNorm",
    }
    made = {name: x for name, x in tensors.items() if not name.startswith("encoder.")}
    layers = []
    for i in range(config["num_hidden_layers"]):
        group = int(i / (config["num_hidden_layers"] / config["num_hidden_groups"]))
        layers += [(group, j) for j in range(config["inner_group_num"])]
    for i, (group, j) in enumerate(layers):
        at = f"encoder.albert_layer_groups.{group}.albert_layers.{j}."
        for theirs, ours in names.items():
            for kind in ("weight", "bias"):
                made[f"encoder.layer.{i}.{ours}.{kind}"] = tensors[f"{at}{theirs}.{kind}"]
    for kind in ("weight", "bias"):
        made[f"widen.{kind}"] = tensors[f"encoder.embedding_hidden_mapping_in.{kind}"]
    return {**config, "num_hidden_layers": len(layers), "hidden_act": "gelu_new"}, made


MODERNBERT = {
    "model_type": "modernbert",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 4,
    "num_attention_heads": HEADS,
    "vocab_size": TOKENS,
    "max_position_embeddings": 64,
    "norm_eps": 1e-5,
    "hidden_activation": "gelu",
    "global_attn_every_n_layers": 3,
    "local_attention": 6,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
}


def modernbert_shapes(config):
    shapes = {"embeddings.tok_embeddings.weight": (TOKENS, WIDTH)}
    norms = ["embeddings.norm", "final_norm"]
    for i in range(config["num_hidden_layers"]):
        at = f"layers.{i}."
        shapes[f"{at}attn.Wqkv.weight"] = (3 * WIDTH, WIDTH)
        shapes[f"{at}attn.Wo.weight"] = (WIDTH, WIDTH)
        shapes[f"{at}mlp.Wi.weight"] = (2 * INNER, WIDTH)
        shapes[f"{at}mlp.Wo.weight"] = (WIDTH, INNER)
        norms += [f"{at}mlp_norm"] + [f"{at}attn_norm"] * (i > 0)
    return {**shapes, **{f"{name}.weight": (WIDTH,) for name in norms}}


def modernbert_rows(config, t, ids):
    n_head, near = config["num_attention_heads"], config["local_attention"] // 2

    def norm(name, x):
        return layer_norm(x, t[f"{name}.weight"], 0.0, config["norm_eps"])

    rows = [norm("embeddings.norm", t["embeddings.tok_embeddings.weight"][i]) for i in ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"layers.{layer}."
        local = bool(layer % config["global_attn_every_n_layers"])
        base = config["local_rope_theta" if local else "global_rope_theta"]
        half = WIDTH // n_head // 2
        frequencies = [base ** (-i / half) for i in range(half)]
        heads = []
        for i, x in enumerate(rows):
            x = norm(f"{at}attn_norm", x) if layer else x
            q, k, v = of(t, f"{at}attn.Wqkv")(x).reshape(3, n_head, -1)
            q, k = ([turn(y, i, frequencies, 1.0) for y in z] for z in (q, k))
            heads.append((q, k, v))
        new = []
        for i, x in enumerate(rows):
            seen = [j for j in range(len(rows)) if not local or abs(i - j) <= near]
            out = [
                mix(
                    heads[i][0][h],
                    [heads[j][1][h] for j in seen],
                    [heads[j][2][h] for j in seen],
                    (2 * half) ** -0.5,
                )
                for h in range(n_head)
            ]
            x = x + of(t, f"{at}attn.Wo")(np.concatenate(out))
            inner, gate = np.split(of(t, f"{at}mlp.Wi")(norm(f"{at}mlp_norm", x)), 2)
            new.append(x + of(t, f"{at}mlp.Wo")(gelu(inner) * gate))
        rows = new
    return np.array([norm("final_norm", x) for x in rows])


T5 = {
    "model_type": "t5",
    "d_model": WIDTH,
    "d_kv": 12,
    "d_ff": INNER,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "vocab_size": TOKENS,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "gated-gelu",
    "n_positions": 48,
}


def t5_shapes(config):
    heads = config["num_heads"] * config["d_kv"]
    shapes = {"shared.weight": (TOKENS, WIDTH), "encoder.final_layer_norm.weight": (WIDTH,)}
    ups = ("wi_0", "wi_1") if config["feed_forward_proj"].startswith("gated") else ("wi",)
    for i in range(config["num_layers"]):
        at = f"encoder.block.{i}.layer."
        for x in "qkv":
            shapes[f"{at}0.SelfAttention.{x}.weight"] = (heads, WIDTH)
        shapes[f"{at}0.SelfAttention.o.weight"] = (WIDTH, heads)
        for x in ups:
            shapes[f"{at}1.DenseReluDense.{x}.weight"] = (INNER, WIDTH)
        shapes[f"{at}1.DenseReluDense.wo.weight"] = (WIDTH, INNER)
        shapes[f"{at}0.layer_norm.weight"] = shapes[f"{at}1.layer_norm.weight"] = (WIDTH,)
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    shapes[name] = (config["relative_attention_num_buckets"], config["num_heads"])
    return shapes


def t5_bucket(distance, n_bucket, most):
    """The bucket of a key `distance` after the query; below 0: before it."""
    n_bucket //= 2
    first = n_bucket if distance > 0 else 0
    distance, near = abs(distance), n_bucket // 2
    if distance < near:
        return first + distance
    far = near + int(math.log(distance / near) / math.log(most / near) * (n_bucket - near))
    return first + min(far, n_bucket - 1)


def t5_rows(config, t, ids):
    n_head, eps = config["num_heads"], config["layer_norm_epsilon"]
    n_bucket = config["relative_attention_num_buckets"]
    most = config["relative_attention_max_distance"]
    bias = t["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    rows = [t["shared.weight"][i].astype(np.float64) for i in ids]
    for layer in range(config["num_layers"]):
        at = f"encoder.block.{layer}.layer."
        normed = [rms(x, t[f"{at}0.layer_norm.weight"], eps) for x in rows]
        q, k, v = (
            [of(t, f"{at}0.SelfAttention.{name}")(x).reshape(n_head, -1) for x in normed]
            for name in "qkv"
        )
        new = []
        for i, x in enumerate(rows):
            out = []
            for h in range(n_head):
                s = np.array([
                    k[j][h] @ q[i][h] + bias[t5_bucket(j - i, n_bucket, most), h]
                    for j in range(len(rows))
                ])
                w = np.exp(s - s.max())
                out.append(w / w.sum() @ np.array([y[h] for y in v]))
            x = x + of(t, f"{at}0.SelfAttention.o")(np.concatenate(out))
            y, dense = rms(x, t[f"{at}1.layer_norm.weight"], eps), f"{at}1.DenseReluDense."
            if config["feed_forward_proj"] == "relu":
                y = np.maximum(of(t, f"{dense}wi")(y), 0)
            else:
                y = gelu_tanh(of(t, f"{dense}wi_0")(y)) * of(t, f"{dense}wi_1")(y)
            new.append(x + of(t, f"{dense}wo")(y))
        rows = new
    return np.array([rms(x, t["encoder.final_layer_norm.weight"], eps) for x in rows])


def embedding(rows, kind="mean", normalised=True):
    x = rows.mean(0) if kind == "mean" else rows[0]
    return x / math.sqrt(x @ x) if normalised else x
