"""Whole models in double, a row at a time, written from the papers and config.json's words; and
tiny checkpoints of each family with random weights."""

import json
import math

import numpy as np
from test_layer import write_safetensors
from test_rope import formulas

WIDTH, LAYERS, HEADS, KV_HEADS, INNER, TOKENS = 32, 2, 4, 2, 64, 96
erf = np.vectorize(math.erf)


# ---- Checkpoints --------------------------------------------------------------------------------


def matrices(rng, shapes):
    """Weights that keep rows at length 1 or so; norms around 1; embeddings of 1."""
    made = {}
    for name, shape in shapes.items():
        scale = 1.0 if "embed" in name or "wte" in name else 1.5 / math.sqrt(shape[-1])
        if len(shape) == 1:
            scale = 0.3
        made[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
        if len(shape) == 1 and ("norm" in name.lower() or "ln_" in name) and "bias" not in name:
            made[name] += 1
    return made


LLAMA = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

PHI3 = {**LLAMA, "model_type": "phi3", "pad_token_id": 0}  # its default has no row in the embedding


def llama_shapes(config):
    head_dim = config.get("head_dim", WIDTH // HEADS)
    kind = config["model_type"]
    biases = {x: kind == "qwen2" or config.get("attention_bias", False) for x in "qkv"}
    biases["o"] = config.get("attention_bias", False)
    shapes = {"model.embed_tokens.weight": (TOKENS, WIDTH), "model.norm.weight": (WIDTH,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (TOKENS, WIDTH)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        kv = config["num_key_value_heads"] * head_dim
        rows = {"q": HEADS * head_dim, "k": kv, "v": kv}
        mlp = {"gate": INNER, "up": INNER}
        if kind == "phi3":
            rows, mlp = {"qkv": sum(rows.values())}, {"gate_up": 2 * INNER}
        for x, n in rows.items():
            shapes[f"{at}self_attn.{x}_proj.weight"] = (n, WIDTH)
        shapes[f"{at}self_attn.o_proj.weight"] = (WIDTH, HEADS * head_dim)
        for x in "qkvo":
            if biases[x]:
                shapes[f"{at}self_attn.{x}_proj.bias"] = (rows.get(x, WIDTH),)
        if kind == "qwen3":
            shapes[f"{at}self_attn.q_norm.weight"] = (head_dim,)
            shapes[f"{at}self_attn.k_norm.weight"] = (head_dim,)
        for x, shape in {**{x: (n, WIDTH) for x, n in mlp.items()}, "down": (WIDTH, INNER)}.items():
            shapes[f"{at}mlp.{x}_proj.weight"] = shape
            if config.get("mlp_bias"):
                shapes[f"{at}mlp.{x}_proj.bias"] = shape[:1]
        shapes[f"{at}input_layernorm.weight"] = (WIDTH,)
        shapes[f"{at}post_attention_layernorm.weight"] = (WIDTH,)
    return shapes


GPT2 = {
    "model_type": "gpt2",
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 96,
    "n_inner": None,
    "vocab_size": TOKENS,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    "bos_token_id": 2,
    "eos_token_id": 2,
}


def gpt2_shapes(config):
    del config
    shapes = {"transformer.wte.weight": (TOKENS, WIDTH), "transformer.wpe.weight": (96, WIDTH)}
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        for name, rows, columns in (
            ("attn.c_attn", WIDTH, 3 * WIDTH),
            ("attn.c_proj", WIDTH, WIDTH),
            ("mlp.c_fc", WIDTH, 4 * WIDTH),
            ("mlp.c_proj", 4 * WIDTH, WIDTH),
        ):
            shapes[f"{at}{name}.weight"] = (rows, columns)
            shapes[f"{at}{name}.bias"] = (columns,)
        for x in ("ln_1", "ln_2"):
            shapes[f"{at}{x}.weight"] = shapes[f"{at}{x}.bias"] = (WIDTH,)
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (WIDTH,)
    return shapes


NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "vocab_size": TOKENS,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "rotary_pct": 0.5,
    "rotary_emb_base": 5000,
    "max_position_embeddings": 256,
    "use_parallel_residual": True,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def neox_shapes(config):
    at = "gpt_neox."
    shapes = {f"{at}embed_in.weight": (TOKENS, WIDTH), "embed_out.weight": (TOKENS, WIDTH)}
    for i in range(LAYERS):
        at = f"gpt_neox.layers.{i}."
        for name, rows, columns in (
            ("attention.query_key_value", 3 * WIDTH, WIDTH),
            ("attention.dense", WIDTH, WIDTH),
            ("mlp.dense_h_to_4h", INNER, WIDTH),
            ("mlp.dense_4h_to_h", WIDTH, INNER),
        ):
            shapes[f"{at}{name}.weight"] = (rows, columns)
            if "mlp" in name or config.get("attention_bias", True):
                shapes[f"{at}{name}.bias"] = (rows,)
        for x in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{x}.weight"] = shapes[f"{at}{x}.bias"] = (WIDTH,)
    at = "gpt_neox.final_layer_norm."
    shapes[f"{at}weight"] = shapes[f"{at}bias"] = (WIDTH,)
    return shapes


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


def write_folder(folder, config, tensors):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


# ---- Mathematics --------------------------------------------------------------------------------


def rms(x, weight, epsilon):
    return x / math.sqrt(x @ x / len(x) + epsilon) * weight


def layer_norm(x, weight, bias, epsilon):
    centered = x - x.mean()
    return centered / math.sqrt(centered @ centered / len(x) + epsilon) * weight + bias


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def silu(x):
    return x / (1 + np.exp(-x))


def weights_of(q, keys, scale):
    s = np.array([k @ q for k in keys]) * scale
    w = np.exp(s - s.max())
    return w / w.sum()


def mix(q, keys, values, scale):
    """One query head over the keys it sees."""
    return weights_of(q, keys, scale) @ np.array(values)


def turn(x, position, frequencies, factor, interleaved=False):
    half = len(frequencies)
    y = x.copy()
    for i, f in enumerate(frequencies):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        c, s = factor * math.cos(position * f), factor * math.sin(position * f)
        y[a], y[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
    return y


def parted(config, tensors):
    """Phi 3's fused matrices as Llama's."""
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    made = dict(tensors)
    for name, x in tensors.items():
        if "qkv_proj" in name:
            dim = len(x) // (heads + 2 * kv)
            parts = dict(zip("qkv", np.split(x, [heads * dim, (heads + kv) * dim])))
            made.update({name.replace("qkv", part): y for part, y in parts.items()})
        elif "gate_up" in name:
            parts = dict(zip(("gate", "up"), np.split(x, 2)))
            made.update({name.replace("gate_up", part): y for part, y in parts.items()})
    return made


def of(tensors, name):
    """A linear of the tensors: x -> W x + b."""
    weight = np.asarray(tensors[f"{name}.weight"], np.float64)
    bias = tensors.get(f"{name}.bias", np.zeros(1))
    return lambda x: weight @ x + bias


class LlamaOracle:
    """Logits a token at a time, as a cache would have it."""

    def __init__(self, config, tensors, length=64):
        self.c, self.t = config, parted(config, tensors)
        self.head_dim = config.get(
            "head_dim", config["hidden_size"] // config["num_attention_heads"]
        )
        self.frequencies, self.factor = formulas({**config, "head_dim": self.head_dim}, length)
        self.reset()

    def reset(self):
        self.seen = [([], []) for _ in range(self.c["num_hidden_layers"])]

    def window(self, i):
        c = self.c
        if "layer_types" in c:
            return c["sliding_window"] if c["layer_types"][i] == "sliding_attention" else None
        return c.get("sliding_window") if c["model_type"] in ("mistral", "phi3") else None

    def attend(self, i, h, position):
        c, t = self.c, self.t
        at = f"model.layers.{i}.self_attn."
        heads = c["num_attention_heads"], c["num_key_value_heads"], c["num_key_value_heads"]
        q, k, v = (of(t, f"{at}{x}_proj")(h).reshape(n, -1) for x, n in zip("qkv", heads))
        if f"{at}q_norm.weight" in t:
            q = np.array([rms(x, t[f"{at}q_norm.weight"], c["rms_norm_eps"]) for x in q])
            k = np.array([rms(x, t[f"{at}k_norm.weight"], c["rms_norm_eps"]) for x in k])
        mixed = c.get("rope_interleaved", False)
        q, k = (
            [turn(x, position, self.frequencies, self.factor, mixed) for x in y] for y in (q, k)
        )
        keys, values = self.seen[i]
        keys.append(k)
        values.append(v)
        first = max(0, len(keys) - (self.window(i) or len(keys)))
        group = heads[0] // heads[1]
        out = []
        for j, x in enumerate(q):
            seen = [[one[j // group] for one in all_of[first:]] for all_of in (keys, values)]
            out.append(mix(x, *seen, self.head_dim**-0.5))
        return of(t, f"{at}o_proj")(np.concatenate(out))

    def step(self, token):
        c, t = self.c, self.t
        position = len(self.seen[0][0])
        x = t["model.embed_tokens.weight"][token].astype(np.float64)
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            h = rms(x, t[f"{at}input_layernorm.weight"], c["rms_norm_eps"])
            x = x + self.attend(i, h, position)
            h = rms(x, t[f"{at}post_attention_layernorm.weight"], c["rms_norm_eps"])
            g = silu(of(t, f"{at}mlp.gate_proj")(h)) * of(t, f"{at}mlp.up_proj")(h)
            x = x + of(t, f"{at}mlp.down_proj")(g)
        h = rms(x, t["model.norm.weight"], c["rms_norm_eps"])
        tied = c["tie_word_embeddings"]
        head = t["model.embed_tokens.weight" if tied else "lm_head.weight"]
        return np.asarray(head, np.float64) @ h


class GPT2Oracle:
    def __init__(self, config, tensors):
        self.c = config
        self.t = {name.replace("transformer.", ""): x for name, x in tensors.items()}
        for name, x in self.t.items():
            if x.ndim == 2 and name.startswith("h."):
                self.t[name] = x.T
        self.reset()

    def reset(self):
        self.seen = [([], []) for _ in range(LAYERS)]

    def norm(self, name, x):
        t = self.t
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], self.c["layer_norm_epsilon"])

    def step(self, token):
        t = self.t
        position = len(self.seen[0][0])
        x = t["wte.weight"][token].astype(np.float64) + t["wpe.weight"][position]
        for i in range(LAYERS):
            at = f"h.{i}."
            qkv = of(t, f"{at}attn.c_attn")(self.norm(f"{at}ln_1", x)).reshape(3, HEADS, -1)
            keys, values = self.seen[i]
            keys.append(qkv[1])
            values.append(qkv[2])
            scale = (WIDTH // HEADS) ** -0.5 if self.c.get("scale_attn_weights", True) else 1
            if self.c.get("scale_attn_by_inverse_layer_idx"):
                scale /= i + 1
            out = [
                mix(q, [k[j] for k in keys], [v[j] for v in values], scale)
                for j, q in enumerate(qkv[0])
            ]
            x = x + of(t, f"{at}attn.c_proj")(np.concatenate(out))
            h = gelu_tanh(of(t, f"{at}mlp.c_fc")(self.norm(f"{at}ln_2", x)))
            x = x + of(t, f"{at}mlp.c_proj")(h)
        return t["wte.weight"].astype(np.float64) @ self.norm("ln_f", x)


class NeoXOracle:
    def __init__(self, config, tensors):
        self.c = config
        self.t = {name.replace("gpt_neox.", ""): x for name, x in tensors.items()}
        dim = int(WIDTH // HEADS * config["rotary_pct"])
        self.frequencies = [config["rotary_emb_base"] ** (-2 * i / dim) for i in range(dim // 2)]
        self.reset()

    def reset(self):
        self.seen = [([], []) for _ in range(LAYERS)]

    def norm(self, name, x):
        t = self.t
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], self.c["layer_norm_eps"])

    def attend(self, i, h):
        """Heads one by one: each has its own rows of q, k and v in the fused matrix."""
        at = f"layers.{i}.attention."
        keys, values = self.seen[i]
        position = len(keys)
        fused = of(self.t, f"{at}query_key_value")(h).reshape(HEADS, 3, -1)
        q, k = ([turn(x, position, self.frequencies, 1.0) for x in fused[:, j]] for j in (0, 1))
        keys.append(k)
        values.append(fused[:, 2])
        out = [
            mix(q[j], [x[j] for x in keys], [x[j] for x in values], len(q[j]) ** -0.5)
            for j in range(HEADS)
        ]
        return of(self.t, f"{at}dense")(np.concatenate(out))

    def step(self, token):
        t = self.t
        x = t["embed_in.weight"][token].astype(np.float64)
        for i in range(LAYERS):
            at = f"layers.{i}."
            a = self.attend(i, self.norm(f"{at}input_layernorm", x))
            before = x if self.c["use_parallel_residual"] else x + a
            h = self.norm(f"{at}post_attention_layernorm", before)
            h = of(t, f"{at}mlp.dense_4h_to_h")(gelu(of(t, f"{at}mlp.dense_h_to_4h")(h)))
            x = x + a + h
        return t["embed_out.weight"].astype(np.float64) @ self.norm("final_layer_norm", x)


def logits(oracle, ids):
    oracle.reset()
    return np.array([oracle.step(token) for token in ids])


def greedy(oracle, prompt, count):
    """The ids, and how much the largest logit leads at least."""
    oracle.reset()
    found, gap, ids = [], math.inf, list(prompt)
    for _ in range(count):
        for token in ids:
            row = oracle.step(token)
        best = np.sort(row)[-2:]
        gap = min(gap, best[1] - best[0])
        ids = [int(row.argmax())]
        found += ids
    return found, gap


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


# ---- Whisper ------------------------------------------------------------------------------------

MEL, SOURCE, TARGET = 6, 11, 40
WHISPER = {
    "model_type": "whisper",
    "d_model": WIDTH,
    "num_mel_bins": MEL,
    "max_source_positions": SOURCE,
    "max_target_positions": TARGET,
    "vocab_size": TOKENS,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": 48,
    "activation_function": "gelu",
    "decoder_start_token_id": 5,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "begin_suppress_tokens": None,
}


def whisper_shapes(config):
    shapes = {}

    def linear(name, rows, columns, bias=True):
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)

    def norm(name):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (WIDTH,)

    for name, features in (("conv1", config["num_mel_bins"]), ("conv2", WIDTH)):
        shapes[f"model.encoder.{name}.weight"] = (WIDTH, features, 3)
        shapes[f"model.encoder.{name}.bias"] = (WIDTH,)
    for side, length in (
        ("encoder", config["max_source_positions"]),
        ("decoder", config["max_target_positions"]),
    ):
        shapes[f"model.{side}.embed_positions.weight"] = (length, WIDTH)
        norm(f"model.{side}.layer_norm")
        for i in range(config[f"{side}_layers"]):
            at = f"model.{side}.layers.{i}."
            for name in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{at}{name}.{part}", WIDTH, WIDTH, part != "k_proj")
                norm(f"{at}{name}_layer_norm")
            linear(f"{at}fc1", config[f"{side}_ffn_dim"], WIDTH)
            linear(f"{at}fc2", WIDTH, config[f"{side}_ffn_dim"])
            norm(f"{at}final_layer_norm")
    shapes["model.decoder.embed_tokens.weight"] = (config["vocab_size"], WIDTH)
    return shapes


def whisper_norm(t, name, x):
    return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)


def whisper_heads(t, name, x, n_head):
    return of(t, name)(x).reshape(n_head, -1)


def whisper_mix(t, at, x, keys, values, n_head):
    """What attention over keys and values, [row][head][dim] each, adds to a row."""
    q = whisper_heads(t, f"{at}.q_proj", x, n_head)
    heads = [
        mix(q[h], [k[h] for k in keys], [v[h] for v in values], q.shape[1] ** -0.5)
        for h in range(n_head)
    ]
    return of(t, f"{at}.out_proj")(np.concatenate(heads))


def whisper_feed_forward(t, at, x):
    y = gelu(of(t, f"{at}fc1")(whisper_norm(t, f"{at}final_layer_norm", x)))
    return x + of(t, f"{at}fc2")(y)


def whisper_convolve(t, name, rows, stride):
    weight, bias = t[f"{name}.weight"].astype(np.float64), t[f"{name}.bias"]
    zero = np.zeros((1, rows.shape[1]))
    rows = np.concatenate([zero, rows, zero])
    starts = range(0, len(rows) - 2, stride)
    return gelu(np.array([np.einsum("jf,ofj->o", rows[s : s + 3], weight) + bias for s in starts]))


def whisper_rows(config, t, mel):
    """The encoder's last rows of mel [n_mel][frames]."""
    rows = whisper_convolve(t, "model.encoder.conv1", mel.T.astype(np.float64), 1)
    rows = whisper_convolve(t, "model.encoder.conv2", rows, 2)
    rows = rows + t["model.encoder.embed_positions.weight"]
    n_head = config["encoder_attention_heads"]
    for i in range(config["encoder_layers"]):
        at = f"model.encoder.layers.{i}."
        normed = [whisper_norm(t, f"{at}self_attn_layer_norm", x) for x in rows]
        keys, values = (
            [whisper_heads(t, f"{at}self_attn.{part}", y, n_head) for y in normed]
            for part in ("k_proj", "v_proj")
        )
        rows = [
            whisper_feed_forward(
                t, at, x + whisper_mix(t, f"{at}self_attn", y, keys, values, n_head)
            )
            for x, y in zip(rows, normed)
        ]
    return np.array([whisper_norm(t, "model.encoder.layer_norm", x) for x in rows])


class WhisperOracle:
    """The decoder over one sound."""

    def __init__(self, config, tensors, mel):
        self.config, self.t = config, tensors
        self.n_head = config["decoder_attention_heads"]
        rows = whisper_rows(config, tensors, mel)
        self.memory = [
            [
                [whisper_heads(tensors, f"{at}encoder_attn.{part}", x, self.n_head) for x in rows]
                for part in ("k_proj", "v_proj")
            ]
            for at in self.blocks()
        ]
        self.reset()

    def blocks(self):
        return [f"model.decoder.layers.{i}." for i in range(self.config["decoder_layers"])]

    def reset(self):
        self.position = 0
        self.past = [([], []) for _ in self.blocks()]

    def step(self, token):
        t = self.t
        embedding = t["model.decoder.embed_tokens.weight"].astype(np.float64)
        scale = math.sqrt(WIDTH) if self.config.get("scale_embedding") else 1
        x = embedding[token] * scale + t["model.decoder.embed_positions.weight"][self.position]
        self.position += 1
        for at, past, memory in zip(self.blocks(), self.past, self.memory):
            y = whisper_norm(t, f"{at}self_attn_layer_norm", x)
            for kept, part in zip(past, ("k_proj", "v_proj")):
                kept.append(whisper_heads(t, f"{at}self_attn.{part}", y, self.n_head))
            x = x + whisper_mix(t, f"{at}self_attn", y, *past, self.n_head)
            y = whisper_norm(t, f"{at}encoder_attn_layer_norm", x)
            x = x + whisper_mix(t, f"{at}encoder_attn", y, *memory, self.n_head)
            x = whisper_feed_forward(t, at, x)
        x = whisper_norm(t, "model.decoder.layer_norm", x)
        return t.get("proj_out.weight", embedding) @ x


def embedding(rows, kind="mean", normalised=True):
    x = rows.mean(0) if kind == "mean" else rows[0]
    return x / math.sqrt(x @ x) if normalised else x
