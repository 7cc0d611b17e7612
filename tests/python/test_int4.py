"""GPTQ's and AWQ's weights: blocks with the formats' own values, in layers and models."""

import json

import models_oracle as tiny
import numpy as np
import oracle
import pytest
import test_layer
from test_layer import write_safetensors

import vkattn
import vkattn.models
from vkattn._int4 import packing_of

test_layer.TYPES["int32"] = "I32"
FORMATS = ("gptq", "gptq_v2", "awq")
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that is the k-th nibble of a word
IDS = [5, 17, 3, 95, 0, 44, 44, 8]


def pack_along_rows(values):
    """Words [rows / 8][columns], neighbours of a column from the lowest bits up."""
    words = np.zeros((values.shape[0] // 8, values.shape[1]), np.uint32)
    for i, row in enumerate(values):
        words[i // 8] |= row.astype(np.uint32) << np.uint32(4 * (i % 8))
    return words.view(np.int32)


def pack_along_columns(values, order):
    words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for word in range(words.shape[1]):
        for k, column in enumerate(order):
            words[:, word] |= values[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * k)
    return words.view(np.int32)


def draw(rng, out, columns, format, groups, size=1.0):
    """The arrays of a linear layer, and its weight [out][columns] in float32."""
    values = rng.integers(0, 16, (columns, out))
    zeros = rng.integers(0, 16, (groups, out))
    scales = (size * rng.uniform(0.5, 1.5, (groups, out)) / 8).astype(np.float16)
    if format == "awq":
        packed = pack_along_columns(values, AWQ_ORDER), pack_along_columns(zeros, AWQ_ORDER)
    else:
        packed = pack_along_rows(values), pack_along_columns(zeros, range(8))
    if format == "gptq":  # as GPTQModel makes it of gptq_v2, which borrows from one to the next
        packed = packed[0], (packed[1].view(np.uint32) - np.uint32(0x11111111)).view(np.int32)
    group = np.arange(columns) * groups // columns
    weight = scales.astype(np.float32)[group] * (values - zeros[group]).astype(np.float32)
    return {"qweight": packed[0], "qzeros": packed[1], "scales": scales}, weight.T.copy()


def repack(arrays, format, **options):
    return vkattn.repack_int4(
        arrays["qweight"], arrays["qzeros"], arrays["scales"], format=format, **options
    )


@pytest.mark.parametrize("format", FORMATS)
def test_values(device, rng, format):
    for out, columns, groups in ((8, 128, 1), (24, 512, 4), (40, 768, 3), (64, 1024, 2)):
        arrays, weight = draw(rng, out, columns, format, groups)
        blocks = repack(arrays, format)
        assert blocks.dtype == np.uint8 and blocks.shape == (out, columns // 128 * 68)
        np.testing.assert_array_equal(vkattn.dequantize(blocks, "i4_g128"), weight)
        group = columns // groups
        np.testing.assert_array_equal(blocks, repack(arrays, format, group_size=group))
        if format != "awq":
            order = np.arange(columns, dtype=np.int32) // group
            np.testing.assert_array_equal(blocks, repack(arrays, format, g_idx=order))
    tensor = vkattn.Tensor(device, weight.shape, "i4_g128")
    tensor.write_bytes(blocks)
    np.testing.assert_array_equal(tensor.read(), weight)


def test_a_last_group_that_is_shorter(rng):
    arrays, _ = draw(rng, 8, 640, "awq", 3)
    with pytest.raises(vkattn.FileError, match="3 groups do not divide 640 inputs"):
        repack(arrays, "awq")
    scales = vkattn.dequantize(repack(arrays, "awq", group_size=256), "i4_g128")
    want = pack_along_columns(np.full((640, 8), 9), AWQ_ORDER)
    high = vkattn.dequantize(repack({**arrays, "qweight": want}, "awq", group_size=256), "i4_g128")
    assert scales.shape == high.shape == (8, 640)
    for first, end in ((0, 256), (256, 512), (512, 640)):
        assert (high[:, first:end] == high[:, first : first + 1]).all()
    assert (high[:, 0] != high[:, 639]).any()


def test_refused(rng):
    arrays, _ = draw(rng, 16, 256, "gptq", 2)
    order = np.arange(256, dtype=np.int32) // 128
    swapped = order[::-1].copy()
    infinite = arrays["scales"].copy()
    infinite[1, 3] = np.inf
    eight = np.zeros((2, 4), np.int32)
    for change, options, kind, sentence in (
        ({"qzeros": eight}, {}, vkattn.UnsupportedError, "8 bits a value are not supported"),
        ({"qzeros": eight[:, :1]}, {}, vkattn.UnsupportedError, "2 bits a value"),
        ({"qzeros": eight[:, :3]}, {}, vkattn.UnsupportedError, "6 bits a value"),
        ({}, {"g_idx": swapped}, vkattn.UnsupportedError, "weight.g_idx: input 0 is not of group"),
        ({}, {"g_idx": order[1:]}, vkattn.FileError, r"weight.g_idx: expected i32 \[256\]"),
        ({}, {"group_size": 256}, vkattn.FileError, "2 groups do not divide 256 inputs"),
        ({}, {"group_size": -1}, vkattn.FileError, "2 groups do not divide 256 inputs"),
        ({"scales": infinite}, {}, vkattn.FileError, "weight.scales: a scale is NaN or infinite"),
        ({"scales": infinite.astype("f4")}, {}, vkattn.UnsupportedError, "expected f16 of 2 axes"),
        ({"qweight": arrays["qweight"][:24]}, {}, vkattn.UnsupportedError, "192 inputs are not"),
        ({"qweight": arrays["qweight"].T.copy()}, {}, vkattn.FileError, "do not fit each other"),
    ):
        with pytest.raises(kind, match=sentence):
            repack({**arrays, **change}, "gptq", **options)
    for groups, size in ((4, 64), (8, 32)):
        small, _ = draw(rng, 16, 256, "gptq", groups)
        with pytest.raises(vkattn.UnsupportedError, match=f"groups of {size} inputs are not"):
            repack(small, "gptq")
    with pytest.raises(vkattn.InvalidError, match="format: expected one of gptq, gptq_v2, awq"):
        repack(arrays, "gemv")
    awq, _ = draw(rng, 16, 256, "awq", 2)
    with pytest.raises(vkattn.UnsupportedError, match="AWQ has no g_idx"):
        repack(awq, "awq", g_idx=order)


# ---- Layers and models --------------------------------------------------------------------------


def config_of(format, /, **more):
    if format == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", **more}
    made = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, **more}
    return {**made, "checkpoint_format": "gptq_v2"} if format == "gptq_v2" else made


@pytest.mark.parametrize(
    "said, format",
    [
        ({"format": "gptq_v2"}, "gptq_v2"),
        ({"format": "GPTQ_V2", "checkpoint_format": "gptq_v2"}, "gptq_v2"),
        ({"format": "gptq_v2", "checkpoint_format": None}, "gptq_v2"),
        ({"checkpoint_format": None}, "gptq"),
        ({"format": None, "checkpoint_format": "gptq"}, "gptq"),
        ({}, "gptq"),
        ({"quant_method": "awq", "format": "gemm"}, "awq"),
        ({"quant_method": "awq", "version": None, "backend": "autoawq"}, "awq"),
        ({"quant_method": "awq", "version": "GEMM", "checkpoint_format": "gemm"}, "awq"),
    ],
)
def test_named_formats(said, format):
    """transformers names the format `format`, older programs `checkpoint_format`; null says nothing."""
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False, **said}
    assert packing_of(config, "config.json").format == format


def put(tensors, name, arrays, g_idx=False):
    for kind, array in arrays.items():
        tensors[f"{name}.{kind}"] = array
    if g_idx:
        columns = 8 * arrays["qweight"].shape[0]
        tensors[f"{name}.g_idx"] = np.arange(columns, dtype=np.int32) // 128


@pytest.mark.parametrize("format", FORMATS)
def test_layers(device, rng, tmp_path, format):
    """One gives what a layer of the decoded weights gives."""
    tensors, plain = {}, {}
    for name, out in (("q", 128), ("k", 64), ("v", 64), ("o", 128)):
        arrays, weight = draw(rng, out, 128, format, 1, 0.2)
        put(tensors, f"a.{name}_proj", arrays, format != "awq")
        bias = rng.standard_normal(out).astype(np.float16)
        tensors[f"a.{name}_proj.bias"] = bias
        plain[name] = weight, bias.astype(np.float32)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    config = {"num_attention_heads": 4, "quantization_config": config_of(format)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    x = rng.standard_normal((2, 5, 128), np.float32)
    layer = vkattn.Layer.from_safetensors(tmp_path, "a.", rope=False, device=device)
    assert layer.dtype == "i4_g128" and (layer.n_kv_head, layer.head_dim) == (2, 32)
    with vkattn.Layer(
        device, n_head=4, query=plain["q"], key=plain["k"], value=plain["v"], output=plain["o"]
    ) as other:
        want = other(x, causal=True)
    assert oracle.nmse(layer(x, causal=True), want) < 1e-11
    read = vkattn.Layer.from_safetensors
    for options in ({"dtype": "f16"}, {"quantize": "q8_0"}):
        with pytest.raises(vkattn.InvalidError, match=f"{min(options)}: expected none"):
            read(tmp_path, "a.", rope=False, device=device, **options)
    tensors["a.o_proj.weight"] = plain["o"][0]
    for kind in ("qweight", "qzeros", "scales", "g_idx"):
        tensors.pop(f"a.o_proj.{kind}", None)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(vkattn.UnsupportedError, match="output.weight: expected i4_g128"):
        read(tmp_path, "a.", rope=False, device=device)
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(vkattn.UnsupportedError, match="no quantization_config says how"):
        read(tmp_path, "a.", rope=False, device=device)


def test_old_config_of_awq(device, rng, tmp_path):
    arrays, weight = draw(rng, 128, 128, "awq", 1, 0.2)
    tensors = {}
    for name in "qkvo":
        put(tensors, f"a.{name}_proj", arrays)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2}')
    old = {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}
    (tmp_path / "quant_config.json").write_text(json.dumps(old))
    x = rng.standard_normal((1, 4, 128), np.float32)
    layer = vkattn.Layer.from_safetensors(tmp_path, "a.", rope=False, device=device)
    want, _ = test_layer.expected(x, 2, *[(weight, 0)] * 4)
    assert oracle.nmse(layer(x), want) < 1e-10


def test_gpt2_layer(device, rng, tmp_path):
    """Its other matrices are [in][out], those of 4 bits are as in every family."""
    tensors = {}
    arrays, qkv = draw(rng, 384, 128, "gptq", 1, 0.2)
    put(tensors, "h.0.attn.c_attn", arrays)
    arrays, out = draw(rng, 128, 128, "gptq", 1, 0.2)
    put(tensors, "h.0.attn.c_proj", arrays)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text('{"n_head": 2, "n_embd": 128}')
    (tmp_path / "quantize_config.json").write_text('{"bits": 4, "group_size": -1}')
    x = rng.standard_normal((1, 4, 128), np.float32)
    layer = vkattn.Layer.from_safetensors(tmp_path, "h.0.attn.", device=device)
    q, k, v = np.split(qkv, 3)
    want, _ = test_layer.expected(x, 2, (q, 0), (k, 0), (v, 0), (out, 0))
    assert oracle.nmse(layer(x), want) < 1e-10


@pytest.fixture
def wide(monkeypatch):
    """The tiny models with rows of whole blocks."""
    monkeypatch.setattr(tiny, "WIDTH", 128)
    monkeypatch.setattr(tiny, "INNER", 256)
    return {**tiny.LLAMA, "hidden_size": 128, "intermediate_size": 256}


def checkpoint(rng, config, format, quantization):
    """Tensors of a folder, and what they mean."""
    stored, meant = {}, tiny.matrices(rng, tiny.llama_shapes(config))
    for name, array in list(meant.items()):
        stored[name] = array
        if name.endswith("_proj.weight"):
            out, columns = array.shape
            arrays, weight = draw(rng, out, columns, format, columns // 128, 0.1)
            del stored[name]
            put(stored, name[: -len(".weight")], arrays, format == "gptq")
            meant[name] = weight
    return {**config, "quantization_config": quantization}, stored, meant


@pytest.mark.parametrize("kind", ["llama", "phi3"])
@pytest.mark.parametrize("format", FORMATS)
def test_models(device, rng, tmp_path, wide, format, kind):
    config, stored, meant = checkpoint(
        rng, {**wide, "model_type": kind}, format, config_of(format)
    )
    stored["model.layers.1.self_attn.o_proj.bias"] = np.zeros(128, np.float16)  # of old programs
    folder = tiny.write_folder(tmp_path / "model", config, stored)
    model = vkattn.models.load(folder, device=device)
    assert model.unused == [] and model.embedding.dtype == "f32"
    assert {x.weight.dtype for block in model.blocks for x in block.qkv} == {"i4_g128"}
    assert all(len(block.qkv) == len(block.gate_up) == 1 for block in model.blocks)
    assert {block.down.weight.dtype for block in model.blocks} == {"i4_g128"}
    want = tiny.logits(tiny.LlamaOracle(config, meant), IDS)
    assert oracle.nmse(model.logits(IDS), want) < 1e-10
    stored["model.layers.1.self_attn.o_proj.bias"][5] = 1
    folder = tiny.write_folder(tmp_path / "model", config, stored)
    with pytest.raises(vkattn.UnsupportedError, match="self_attn.o_proj.bias is not known"):
        vkattn.models.load(folder, device=device)


@pytest.mark.parametrize(
    "format, change, sentence",
    [
        ("gptq", {"quant_method": "quip"}, "quant_method 'quip' is not supported; expected gptq, awq"),
        ("gptq", {"bits": 8}, "bits 8 is not supported"),
        ("gptq", {"bits": True}, "bits True is not supported"),
        ("gptq", {"group_size": 64}, "2 groups do not divide 256 inputs into groups of 64"),
        ("gptq", {"group_size": 0}, "group_size: expected a whole number or -1, got 0"),
        ("gptq", {"group_size": 1.5}, "group_size: expected a whole number"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' is not supported"),
        ("gptq", {"format": "marlin"}, "format 'marlin' is not supported"),
        ("gptq", {"format": 2}, "format 2 is not supported"),
        ("gptq_v2", {"format": "gptq"}, "format and checkpoint_format differ: .'gptq', 'gptq_v2'"),
        ("awq", {"format": "gemv"}, "format 'gemv' is not supported"),
        ("awq", {"backend": "LLM-AWQ"}, "backend 'llm-awq' is not supported"),
        ("gptq", {"is_marlin_format": True}, "is_marlin_format True is not supported"),
        ("gptq", {"dynamic": {"-:.*": {}}}, "dynamic .* is not supported"),
        ("gptq_v2", {"desc_act": True}, "desc_act without a tensor g_idx"),
        ("awq", {"version": "gemv"}, "version 'gemv' is not supported"),
        ("awq", {"zero_point": False}, "zero_point False is not supported"),
        ("awq", {"w_bit": 3}, "w_bit 3 is not supported"),
        ("awq", None, "quantization_config: expected .*, got"),
    ],
)
def test_models_refused(device, rng, tmp_path, wide, format, change, sentence):
    quantization = [] if change is None else config_of(format, **change)
    config, stored, _ = checkpoint(rng, wide, format, quantization)
    folder = tiny.write_folder(tmp_path / "model", config, stored)
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


def test_odd_checkpoints(device, rng, tmp_path, wide):
    """One tensor is missing, of another shape, or in the order of activations."""
    config, stored, _ = checkpoint(rng, wide, "gptq", config_of("gptq"))
    part = "model.layers.0.mlp.up_proj"
    order = np.arange(128, dtype=np.int32)[::-1] // 128
    wider, _ = draw(rng, 264, 128, "gptq", 1)
    for change, sentence in (
        ({f"{part}.scales": None}, f"there is no tensor {part}.scales"),
        ({f"{part}.qzeros": None}, f"there is no tensor {part}.qzeros"),
        ({f"{part}.qweight": None}, f"there is no tensor {part}.weight"),
        ({f"{part}.g_idx": order + 1}, f"{part}.g_idx: input 0 is not of group 0"),
        ({f"{part}.{x}": array for x, array in wider.items()}, r"expected \[256, 128\], got"),
    ):
        tensors = {name: a for name, a in {**stored, **change}.items() if a is not None}
        folder = tiny.write_folder(tmp_path / "model", config, tensors)
        with pytest.raises(vkattn.VkattnError, match=sentence):
            vkattn.models.load(folder, device=device)


@pytest.mark.parametrize("named", ["gptq", "gptq_v2", None])
@pytest.mark.parametrize("stored", [7, 8, 6])
@pytest.mark.parametrize("sym", [True, False, None])
def test_symmetric(device, rng, tmp_path, named, stored, sym):
    """Zero points of symmetric weights are 8, whichever of the two formats the config names."""
    values = rng.integers(0, 16, (128, 128))
    scales = rng.uniform(0.05, 0.1, (1, 128)).astype(np.float16)
    zeros = np.full((1, 16), stored * 0x11111111, np.uint32).view(np.int32)
    zero = 8 if sym else stored + (named != "gptq_v2")
    weight = ((values - zero) * scales.astype(np.float32)).T
    tensors = {}
    for n in "qkvo":
        put(tensors, f"a.{n}_proj", {"qweight": pack_along_rows(values), "qzeros": zeros, "scales": scales})
    write_safetensors(tmp_path / "model.safetensors", tensors)
    told = {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": named, "sym": sym}
    told = {key: value for key, value in told.items() if value is not None}
    config = {"num_attention_heads": 2, "quantization_config": told}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if sym and stored == 6:
        with pytest.raises(vkattn.UnsupportedError, match="zero points other than 8, but"):
            vkattn.Layer.from_safetensors(tmp_path, "a.", rope=False, device=device)
        return
    layer = vkattn.Layer.from_safetensors(tmp_path, "a.", rope=False, device=device)
    x = rng.standard_normal((1, 4, 128), np.float32)
    want, _ = test_layer.expected(x, 2, *[(weight, 0)] * 4)
    assert oracle.nmse(layer(x), want) < 1e-10
    told["sym"] = "yes"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(vkattn.UnsupportedError, match="sym 'yes' is not supported"):
        vkattn.Layer.from_safetensors(tmp_path, "a.", rope=False, device=device)
