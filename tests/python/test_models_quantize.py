"""load(quantize=): floats made into blocks as they are read, by the rules of llama-quantize."""

import tracemalloc

import models_oracle as tiny
import numpy as np
import pytest
import tiny_encoders
from test_gguf import build, tensor
from test_models_gguf import IDS, gguf_name, keys_of, made, number, permuted

import vkattn
import vkattn.models

NUMBERS = {"q8_0": 8, "q4_0": 2, "q5_0": 6, "q4_k": 12, "q6_k": 14, "f32": 0, "f16": 1}
WIDE, INNER = 256, 512
HEADS = ("num_key_value_heads", "num_attention_heads")


def write(path, config, tensors, kinds, kind="f32"):
    """A GGUF file of a Llama whose matrices have the types of `kinds`, by name."""
    entries, data = [], b""
    for name, array in tensors.items():
        stored = array
        if "q_proj" in name or "k_proj" in name:
            stored = permuted(array, config[HEADS["q_proj" in name]])
        own = kinds.get(name, kind if array.ndim == 2 else "f32")
        floats = "<f2" if own == "f16" else "<f4"
        raw = stored.astype(floats) if own in ("f32", "f16") else vkattn.quantize(stored, own)
        data += bytes(-len(data) % 32)
        entries.append(tensor(gguf_name(name), array.shape, NUMBERS[own], len(data)))
        data += raw.tobytes()
    keys = [number(*item) for item in keys_of(config, "llama").items()]
    path.write_bytes(build(entries, keys, data))


def model_of(tied, wide):
    config, tensors = made("llama", tie_word_embeddings=tied)
    if wide:
        config = {**config, "hidden_size": WIDE, "intermediate_size": INNER, "head_dim": 64}
        sizes = {tiny.WIDTH: WIDE, tiny.INNER: INNER, 16: 128}  # 2 heads of keys and values
        shapes = {
            name: tuple(n if n == tiny.TOKENS else sizes[n] for n in array.shape)
            for name, array in tensors.items()
        }
        tensors = tiny.matrices(np.random.default_rng(9), shapes)
    return config, tensors


# The type of other matrices and of the one that gives logits, in rows of 256, then in rows of 32.
RULES = {
    "q8_0": ("q8_0", "q8_0", "q8_0", "q8_0"),
    "q4_0": ("q4_0", "q6_k", "q4_0", "q8_0"),
    "q4_K": ("q4_k", "q6_k", "q5_0", "q8_0"),
    "q6_K": ("q6_k", "q6_k", "q8_0", "q8_0"),
}


@pytest.mark.parametrize("wide", [True, False], ids=["256", "32"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "head"])
@pytest.mark.parametrize("quantize", RULES)
def test_as_a_file(device, tmp_path, quantize, tied, wide):
    """The bits of the same weights in a file of blocks."""
    config, tensors = model_of(tied, wide)
    others, head = RULES[quantize][0 if wide else 2 :][:2]
    kinds = {name: others for name, array in tensors.items() if array.ndim == 2}
    kinds["model.embed_tokens.weight" if tied else "lm_head.weight"] = head
    write(tmp_path / "blocks.gguf", config, tensors, kinds)
    write(tmp_path / "floats.gguf", config, tensors, {})
    want = vkattn.models.load(tmp_path / "blocks.gguf", device=device)
    got = vkattn.models.load(tmp_path / "floats.gguf", device=device, quantize=quantize)
    assert got.embedding.dtype == want.embedding.dtype == (head if tied else others)
    assert got.head.weight.dtype == head and got.norm["weight"].dtype == "f32"
    for a, b in zip(got.blocks, want.blocks):
        for x, y in zip([*a.qkv, a.o, *a.gate_up, a.down], [*b.qkv, b.o, *b.gate_up, b.down]):
            assert x.weight.dtype == y.weight.dtype == others
            assert x.weight.read_bytes() == y.weight.read_bytes()
    assert got.head.weight.read_bytes() == want.head.weight.read_bytes()
    if quantize == "q4_K" and wide and tied:  # bits of weights are those of ids
        assert list(got.generate(IDS, 4, stop=())) == list(want.generate(IDS, 4, stop=()))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_folder(device, tmp_path, dtype):
    """A folder's floats give the blocks of the same floats in a GGUF file; what is added stays."""
    config, tensors = model_of(False, False)
    stored = {"f32": "<f4", "f16": "<f2"}[dtype]
    tensors = {name: array.astype(stored) for name, array in tensors.items()}
    folder = tiny.write_folder(tmp_path / "folder", config, tensors)
    write(tmp_path / "floats.gguf", config, tensors, {}, kind=dtype)
    a = vkattn.models.load(folder, device=device, quantize="q8_0")
    b = vkattn.models.load(tmp_path / "floats.gguf", device=device, quantize="q8_0")
    for x, y in ((a.embedding, b.embedding), (a.head.weight, b.head.weight)):
        assert x.dtype == "q8_0" and x.read_bytes() == y.read_bytes()
    down = a.blocks[1].down.weight
    assert down.read_bytes() == b.blocks[1].down.weight.read_bytes()
    want = vkattn.quantize(tensors["model.layers.1.mlp.down_proj.weight"])
    assert down.read_bytes() == want.tobytes()


def test_transposed_and_positions(device, tmp_path):
    """GPT-2 has its matrices the other way round, and positions that are added."""
    tensors = tiny.matrices(np.random.default_rng(5), tiny.gpt2_shapes(tiny.GPT2))
    folder = tiny.write_folder(tmp_path / "gpt2", tiny.GPT2, tensors)
    model = vkattn.models.load(folder, device=device, quantize="q4_K")
    up = tensors["transformer.h.0.mlp.c_fc.weight"]
    want = vkattn.quantize(np.ascontiguousarray(up.T), "q5_0").tobytes()
    (found,) = model.blocks[0].gate_up
    assert found.weight.dtype == "q5_0" and found.weight.read_bytes() == want
    assert model.positions.dtype == "f32" and model.embedding.dtype == "q8_0"


def test_encoder(device, tmp_path):
    """A BERT of blocks is that of their values; its positions and kinds of tokens are floats."""
    tensors = tiny.matrices(np.random.default_rng(6), tiny_encoders.bert_shapes(tiny_encoders.BERT))
    folder = tiny.write_folder(tmp_path / "bert", tiny_encoders.BERT, tensors)
    model = vkattn.models.load(folder, device=device, quantize="q8_0")
    kept = ("position_embeddings", "token_type_embeddings")
    for name, array in tensors.items():
        if array.ndim == 2 and not any(part in name for part in kept):
            tensors[name] = vkattn.dequantize(vkattn.quantize(array, "q8_0"), "q8_0")
    want = tiny_encoders.embedding(tiny_encoders.bert_rows(tiny_encoders.BERT, tensors, IDS))
    assert model.embedding.dtype == "q8_0" and model.positions.dtype == "f32"
    assert np.abs(model.embed([IDS])[0] - want).max() < 1e-5


def test_chunks(device, tmp_path, monkeypatch):
    """What is float32 at a time changes no bit."""
    from vkattn.models import _quantize

    config, tensors = model_of(True, False)
    write(tmp_path / "floats.gguf", config, tensors, {})
    whole = vkattn.models.load(tmp_path / "floats.gguf", device=device, quantize="q4_0")
    monkeypatch.setattr(_quantize, "_CHUNK", 7 * 32)
    parts = vkattn.models.load(tmp_path / "floats.gguf", device=device, quantize="q4_0")
    assert whole.embedding.read_bytes() == parts.embedding.read_bytes()


def test_memory(monkeypatch):
    """Floats of eight threads at most, on a machine of more: a half of the 64 MiB that a load may have."""
    from vkattn.models import _quantize

    monkeypatch.setattr(_quantize.os, "cpu_count", lambda: 64)
    rows, columns = 12288, 4096
    tracemalloc.start()
    try:
        made = _quantize.encode(
            "x", rows, columns, "q8_0", lambda first, n: np.zeros((n, columns), np.float32)
        )
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.shape == (rows, columns) and peak - now < 32 << 20


def test_refused(device, tmp_path):
    config, tensors = model_of(True, False)
    down = "model.layers.0.mlp.down_proj.weight"
    path = tmp_path / "mixed.gguf"
    write(path, config, tensors, {down: "q8_0"})
    with pytest.raises(vkattn.InvalidError, match="blk.0.ffn_down.weight is q8_0 already"):
        vkattn.models.load(path, device=device, quantize="q4_0")
    for wrong in ("mxfp4", "f16", "Q9", 4):
        with pytest.raises(vkattn.InvalidError, match="quantize: expected one of q8_0, q4_0"):
            vkattn.models.load(path, device=device, quantize=wrong)
    tensors[down][3, 5] = np.nan
    write(path, config, tensors, {})
    with pytest.raises(vkattn.InvalidError, match="blk.0.ffn_down.weight: .*NaN"):
        vkattn.models.load(path, device=device, quantize="Q4_0")
