"""Rotary embedding as config.json states it: against formulas of this file, in double, and against
transformers where that is installed."""

import copy
import json
import math

import numpy as np
import pytest

import oracle
import vkattn
from test_layer import write_safetensors

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.125, 1.25, 1.5],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
}
CONFIG = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "rope_theta": 1e4,
    "max_position_embeddings": 2048,
}
CASES = {
    "default": {},
    "base": {"rope_theta": 5e5, "head_dim": 32},
    "partial": {"partial_rotary_factor": 0.5, "head_dim": 40},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.5}},
    "partial linear": {
        "rope_scaling": {"type": "linear", "factor": 2.5},
        "partial_rotary_factor": 0.5,
        "head_dim": 40,
    },
    "llama3": {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}, "head_dim": 64},
    "yarn": {"rope_scaling": YARN, "head_dim": 128, "rope_theta": 1e6},
    "yarn mscale": {
        "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.707, "beta_fast": 16},
        "head_dim": 64,
    },
    "yarn factor": {"rope_scaling": {**YARN, "attention_factor": 1.25, "truncate": False}},
    "yarn length": {
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_slow": 2},
        "head_dim": 64,
    },
    "longrope": {"rope_scaling": {**LONG, "original_max_position_embeddings": 1024}},
    "su": {
        "rope_scaling": {**LONG, "type": "longrope", "factor": 16.0},
        "original_max_position_embeddings": 128,
    },
}
LENGTHS = (100, 2000)


def formulas(config, length):
    """Frequencies and attention factor, one pair at a time."""
    found = {**config, **config.get("rope_scaling", {}), **config.get("rope_parameters", {})}
    dim = config.get("head_dim", 8)
    dim = int(dim * found.get("partial_rotary_factor", 1))
    plain = [math.exp(-2 * i / dim * math.log(found["rope_theta"])) for i in range(dim // 2)]
    kind = found.get("rope_type", found.get("type", "default"))
    original = config.get(
        "original_max_position_embeddings",
        found.get("original_max_position_embeddings", config["max_position_embeddings"]),
    )
    factor = found.get("factor", config["max_position_embeddings"] / original)
    turns = [original * f / (2 * math.pi) for f in plain]
    scale, result = 1.0, plain
    if kind == "linear":
        result = [f / factor for f in plain]
    elif kind == "llama3":
        low, high = found["low_freq_factor"], found["high_freq_factor"]
        keep = [min(max((t - low) / (high - low), 0), 1) for t in turns]
        result = [f * (k + (1 - k) / factor) for f, k in zip(plain, keep)]
    elif kind == "yarn":
        ends = []
        for beta, name, towards in ((32, "beta_fast", math.floor), (1, "beta_slow", math.ceil)):
            pair = math.log(turns[0] / found.get(name, beta)) / math.log(found["rope_theta"])
            ends.append(towards(pair * dim / 2) if found.get("truncate", True) else pair * dim / 2)
        low, high = max(ends[0], 0), min(ends[1], dim - 1)
        ramp = [min(max((i - low) / (high - low), 0), 1) for i in range(dim // 2)]
        result = [f * (1 - r) + f / factor * r for f, r in zip(plain, ramp)]
        many = [0.1 * found.get(m, 0) * math.log(factor) + 1 for m in ("mscale", "mscale_all_dim")]
        scale = many[0] / many[1] if "mscale" in found else 0.1 * math.log(factor) + 1
    elif kind == "longrope":
        by = found["long_factor" if length > original else "short_factor"]
        result = [f / b for f, b in zip(plain, by)]
        scale = math.sqrt(1 + math.log(factor) / math.log(original))
    return result, found.get("attention_factor", scale)


def of(rope):
    if rope.frequencies is not None:
        return list(rope.frequencies), rope.attention_factor
    return [rope.base ** (-2 * i / rope.dim) for i in range(rope.dim // 2)], rope.attention_factor


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_formulas(name, length):
    config = {**CONFIG, **CASES[name]}
    got, factor = of(vkattn.rope_from_config(config, length=length))
    want, want_factor = formulas(config, length)
    assert np.allclose(got, want, rtol=1e-12, atol=0)
    assert abs(factor - want_factor) < 1e-6


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", [name for name in CASES if name != "partial"])  # not of Llama
def test_transformers(name, length):
    """float32 there: to 4e-6 of each."""
    reason = "transformers WITH torch IS NOT INSTALLED: ROTARY EMBEDDING WAS NOT COMPARED WITH IT"
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils", reason=reason)
    pytest.importorskip("torch", reason=reason)
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = {**CONFIG, **CASES[name]}
    their = LlamaConfig(**copy.deepcopy(config), num_key_value_heads=4)  # which writes to dicts
    their.standardize_rope_params()
    kind = their.rope_parameters["rope_type"]
    if kind == "default":
        embedding = LlamaRotaryEmbedding(their)
        want, want_factor = embedding.inv_freq, embedding.attention_scaling
    else:
        make = rope_utils.ROPE_INIT_FUNCTIONS[kind]
        want, want_factor = make(their, "cpu", seq_len=length)
    got, factor = of(vkattn.rope_from_config(config, length=length))
    assert np.allclose(got, want.numpy(), rtol=4e-6, atol=0)
    assert abs(factor - want_factor) < 1e-6


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type 'dynamic' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "type 'linear': expected factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor is 0.5"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor: expected a positive"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor is 1"),
        ({"rope_scaling": {**LLAMA3, "beta_fast": 3}}, "'beta_fast' of rotary embedding"),
        ({"rope_scaling": {**YARN, "truncate": 0}}, "truncate: expected a boolean"),
        ({"rope_scaling": {**LONG, "long_factor": [1.0] * 3}}, "expected 4 positive numbers"),
        ({"rope_scaling": {**LONG, "long_factor": [1.0, 1, 0, 1]}}, "expected 4 positive numbers"),
        ({"rope_scaling": {"factor": 2.0}}, "'factor' of rotary embedding"),
        ({"rope_parameters": {"full_attention": {}}}, "'full_attention' of rotary embedding"),
        ({"hidden_size": None}, "expected head_dim, or hidden_size"),
        ({"head_dim": 0}, "head_dim: expected a whole number"),
        ({"head_dim": 7}, "rotary embedding of 7 features"),
        ({"rope_theta": -1}, "rope_theta: expected a positive"),
        ({"rope_scaling": YARN, "rope_theta": 0.5}, "base is 0.5"),
        ({"text_config": {"rope_scaling": YARN}}, "text_config: rotary embedding of type 'yarn'"),
    ],
)
def test_refused(change, sentence):
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.rope_from_config({**CONFIG, **change}, length=100)


def test_longrope_needs_a_length():
    config = {**CONFIG, "rope_scaling": LONG}
    with pytest.raises(vkattn.InvalidError, match="length="):
        vkattn.rope_from_config(config)
    for length in (0, 1.5, 2**32):
        with pytest.raises(vkattn.InvalidError, match="length: expected"):
            vkattn.rope_from_config(config, length=length)
    with pytest.raises(TypeError):
        vkattn.rope_from_config("config.json")


def turned(x, rope):
    """x [b][h][n][d] at positions 0 .. n - 1, pairs (i, i + dim / 2)."""
    frequencies, factor = of(rope)
    half = rope.dim // 2
    angle = np.arange(x.shape[2])[:, None] * np.array(frequencies)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    c, s = factor * np.cos(angle), factor * np.sin(angle)
    return np.concatenate([a * c - b * s, a * s + b * c, rest], -1)


def test_attention(device, rng):
    """The frequencies and the factor reach the kernels, of a part of the features too."""
    q, k, v = (rng.standard_normal((2, 2, 9, 12), np.float32) for _ in range(3))
    rope = vkattn.Rope(8, frequencies=(1.0, -0.5, 0.0, 1e-3), attention_factor=1.25)
    got = vkattn.attention(q, k, v, rope=rope, causal=True, device=device)
    q, k = (turned(x.astype(np.float64), rope) for x in (q, k))
    want, _ = oracle.attention(q, k, v, visible=oracle.causal(9, 9))
    assert oracle.nmse(got, want) < 1e-10
    with pytest.raises(vkattn.InvalidError, match="frequencies: expected 4 numbers"):
        vkattn.attention(v, v, v, rope=vkattn.Rope(8, frequencies=(1.0,)), device=device)


@pytest.mark.parametrize("name", ["linear", "llama3", "longrope"])
def test_layer(device, rng, tmp_path, name):
    """A checkpoint whose config scales: computed as it says."""
    config = {**CONFIG, **CASES[name], "head_dim": 8, "hidden_size": 16, "num_attention_heads": 2}
    w = [rng.standard_normal((16, 16), np.float32) / 4 for _ in range(4)]
    tensors = {f"a.{x}_proj.weight": m for x, m in zip("qkvo", w)}
    path = write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps(config))
    x = rng.standard_normal((1, 7, 16), np.float32)
    rope = vkattn.rope_from_config(config, length=2000)
    if name == "longrope":
        with pytest.raises(vkattn.InvalidError, match="length="):
            vkattn.Layer.from_safetensors(path, "a.", device=device)
        layer = vkattn.Layer.from_safetensors(path, "a.", rope=rope, device=device)
    else:
        layer = vkattn.Layer.from_safetensors(path, "a.", device=device)
        with pytest.raises(vkattn.UnsupportedError, match="rope_from_config"):
            vkattn.Layer.from_safetensors(path, "a.", rope=vkattn.Rope(8), device=device)
    assert layer.options["rope"] == rope
    q, k, v = (oracle.split_heads(x.astype(np.float64) @ m.T, 2) for m in w[:3])
    want, _ = oracle.attention(turned(q, rope), turned(k, rope), v)
    assert oracle.nmse(layer(x), oracle.join_heads(want) @ w[3].T) < 1e-9
