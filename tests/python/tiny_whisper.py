"""Whisper in double, a row at a time; and a tiny checkpoint of it."""

import math

import numpy as np
from models_oracle import INNER, TOKENS, WIDTH, gelu, layer_norm, mix, of

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
