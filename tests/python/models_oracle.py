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
