"""Models of GGUF files whose matrices are all of one type of blocks."""

import os

import models_oracle as tiny
import numpy as np
import oracle
import pytest
from test_gguf import build, tensor
from test_models_gguf import IDS, gguf_name, keys_of, made, number

import vkattn
import vkattn.models
from vkattn._abi import ffi, lib
from vkattn._arrays import DTYPES

# Types of blocks, by their numbers in GGUF.
NUMBERS = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12}
NUMBERS |= {"q5_k": 13, "q6_k": 14, "iq2_xxs": 16, "iq2_xs": 17, "iq3_xxs": 18, "iq1_s": 19}
NUMBERS |= {"iq4_nl": 20, "iq3_s": 21, "iq2_s": 22, "iq4_xs": 23, "iq1_m": 29, "tq1_0": 34}
NUMBERS |= {"tq2_0": 35, "mxfp4": 39, "nvfp4": 40}
LARGER = 8  # blocks hold up to 256 values


def random_blocks(rng, dtype, rows, columns):
    """Blocks of random bytes whose values are as large as weights, and these values."""
    known = ffi.new("uint32_t[2]")
    assert lib.vka_dtype_block(DTYPES[dtype], known, known + 1) == 0
    drawn = rng.integers(0, 256, (30000, known[1]), np.uint8)
    values = vkattn.dequantize(drawn, dtype)
    with np.errstate(all="ignore"):
        size = np.sqrt((values.astype(np.float64) ** 2).mean(axis=1))
    fit = np.flatnonzero((size > 0.02) & (size < 0.2))
    assert len(fit) > 50
    taken = rng.choice(fit, rows * columns // known[0])
    return drawn[taken].tobytes(), values[taken].reshape(rows, columns)


def unpermuted(rows, n_head):
    """Neighbours in a head of the file are its pairs (i, i + d / 2)."""
    by_head = rows.reshape(n_head, -1, 2, rows.shape[1])
    return by_head.transpose(0, 2, 1, 3).reshape(rows.shape)


# $VKATTN_TYPES may name all of NUMBERS: each compiles for ten seconds.
@pytest.mark.parametrize("dtype", os.environ.get("VKATTN_TYPES", "iq1_m nvfp4").split())
def test_blocks(device, tmp_path, dtype):
    """Every matrix in a type, embedding and head too; nvfp4's products with scales of the tensors."""
    config, small = made("llama")
    rng = np.random.default_rng(7)
    entries, data, seen = [], b"", {}

    def add(name, shape, kind, raw):
        nonlocal data
        data += bytes(-len(data) % 32)
        entries.append(tensor(name, shape, kind, len(data)))
        data += raw

    for name, array in small.items():
        if array.ndim == 1:
            seen[name] = np.tile(array, LARGER)
            add(gguf_name(name), seen[name].shape, 0, seen[name].tobytes())
            continue
        rows = len(array) * (1 if len(array) == config["vocab_size"] else LARGER)
        raw, values = random_blocks(rng, dtype, rows, array.shape[1] * LARGER)
        add(gguf_name(name), values.shape, NUMBERS[dtype], raw)
        n_head = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        seen[name] = unpermuted(values, n_head) if n_head else values
        if dtype == "nvfp4" and "proj" in name:
            factor = np.float32(rng.uniform(0.5, 2))
            seen[name] = seen[name] * factor
            add(gguf_name(name).replace(".weight", ".scale"), [1], 0, factor.tobytes())
    for key in ("hidden_size", "intermediate_size"):
        config[key] *= LARGER
    keys = [number(*item) for item in keys_of(config, "llama").items()]
    (tmp_path / "model.gguf").write_bytes(build(entries, keys, data))
    model = vkattn.models.load(tmp_path / "model.gguf", device=device)
    assert model.blocks[0].down.weight.dtype == model.embedding.dtype == dtype
    assert model.unused == []
    want = tiny.logits(tiny.LlamaOracle(config, seen), IDS)
    assert oracle.nmse(model.logits(IDS), want) < 1e-10
