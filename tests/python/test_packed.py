"""Checkpoints whose weights are float8, nf4, nvfp4, mxfp4 or compressed integers: blocks with the values
of the format's formula in double, models of them, and what contradicts itself."""

import json
import struct
from functools import partial

import models_oracle as tiny
import numpy as np
import oracle
import pytest
from packed_formats import (
    CASES,
    COLUMNS,
    KINDS,
    NAME,
    NF4,
    OUT,
    bf16,
    compressed_fp8,
    compressed_integers,
    e4m3,
    f8_values,
    fp8,
    model_opt_fp8,
    mxfp4,
    nf4,
    nvfp4,
    put,
    read,
    spread,
    typed,
    write,
)
from test_gguf import build, tensor

import vkattn
import vkattn.models
from vkattn.models._source import FolderWeights, GGUFWeights


@pytest.mark.parametrize("name", CASES)
def test_values(device, rng, tmp_path, name):
    """Blocks decode to the formula's values, rounded once to float32."""
    stored, weight, quantization, kind = CASES[name](rng)
    folder = write(tmp_path / "x", put(stored), quantization)
    blocks = read(device, folder, quantization)
    assert blocks.dtype == kind and blocks.shape == weight.shape
    values = vkattn.dequantize(blocks.data, kind)
    if kind == "nvfp4":  # the tensor's scale multiplies sums
        assert blocks.scale.shape == (OUT,) and (blocks.scale == blocks.scale[0]).all()
        np.testing.assert_allclose(values * blocks.scale[:, None].astype(float), weight, rtol=6e-8)
    else:
        assert blocks.scale is None
        np.testing.assert_array_equal(values, weight.astype(np.float32))


def changed(stored, **change):
    made = {**stored, **change}
    return {name: array for name, array in made.items() if array is not None}


def one(array, value, at=(0, 0)):
    made = array.copy()
    made[at] = value
    return made


def without(config, **change):
    return {**config, **change}


def test_refused(device, rng, tmp_path):
    """A sentence that names the tensor, before anything is allocated."""
    f8, _, f8_config, _ = fp8(rng)
    ints, _, ints_config, _ = compressed_integers(rng, 4, 128)
    nv, _, nv_config, _ = nvfp4(rng)
    opt, _, opt_config, _ = model_opt_fp8(rng)
    bnb, _, bnb_config, _ = nf4(rng)
    scale, codes = f8["weight_scale_inv"], "weight.quant_state.bitsandbytes__nf4"
    group = ints_config["config_groups"]["group_0"]
    floats = bf16(np.ones((OUT, COLUMNS)))[0]

    def of_group(**weights):
        groups = {"group_0": {**group, "weights": {**group["weights"], **weights}}}
        return without(ints_config, config_groups=groups)

    state = json.loads(bytes(bnb[codes]))

    def of_state(**change):
        text = json.dumps({**state, **change}).encode()
        return {codes: np.frombuffer(text, np.uint8)}

    cases = [
        (f8, {"weight_scale_inv": one(scale, 0x7FC0)}, f8_config, r"_inv: the scale at \[0, 0\] is NaN"),
        (f8, {"weight_scale_inv": one(scale, 0x7F80)}, f8_config, "is NaN or infinite"),
        (f8, {"weight_scale_inv": one(scale, 0)}, f8_config, r"the scale at \[0, 0\] is 0, too small"),
        (f8, {"weight_scale_inv": None}, f8_config, "there is no tensor .*up_proj.weight_scale_inv"),
        (f8, {"weight_scale_inv": scale.T.copy()[:1]}, f8_config, r"expected \[2, 2\] scales of 128 x"),
        (f8, {"weight": typed(one(f8["weight"], 0x7F, (3, 5)), "F8_E4M3")}, f8_config, r"value at \[3, 5\]"),
        (f8, {"weight": typed(f8["weight"], "F8_E5M2")}, f8_config, "expected F8_E4M3 of 2 axes"),
        (f8, {"weight": floats}, f8_config, "expected F8_E4M3 of 2 axes, as quantization_config says"),
        (f8, {"weight": floats, "weight_scale_inv": None}, f8_config, "says fp8, but no weight is"),
        (f8, {}, without(f8_config, weight_block_size=[128, 96]), r"expected \[2, 3\] scales"),
        (f8, {}, without(f8_config, weight_block_size=[128]), "weight_block_size: expected two numbers"),
        (f8, {}, without(f8_config, fmt="e3m4"), "fmt 'e3m4' is not supported"),
        (f8, {}, None, "dtype F8_E4M3 is supported as a packed weight alone"),
        (f8, {}, ints_config, "up_proj.weight: expected I8|there is no tensor .*weight_packed"),
        (opt, {"weight_scale": None}, opt_config, "there is no tensor .*up_proj.weight_scale"),
        (opt, {}, without(opt_config, quant_algo="W4A8_AWQ"), "quant_algo 'W4A8_AWQ' is not supported"),
        (opt, {"weight_scale": np.ones((OUT, 1), np.float32)}, opt_config, r"expected \[1, 1\] scales"),
        (ints, {}, of_group(num_bits=8), "words of 8 bits, as quantization_config says, do not hold"),
        (ints, {}, of_group(group_size=64), r"expected \[136, 4\] scales of 1 x 64"),
        (ints, {}, of_group(strategy="odd"), "strategy 'odd' is not supported"),
        (ints, {}, of_group(symmetric=False), "there is no tensor .*weight_zero_point"),
        (ints, {}, of_group(type="float"), "weight_packed: expected U8 of 2 axes"),
        (ints, {}, without(ints_config, quantization_status="frozen"), "quantization_status 'frozen'"),
        (ints, {"weight_scale": np.full((OUT, 2), 0.3, np.float32)}, ints_config, "is no float16"),
        (ints, {"weight_g_idx": np.zeros(COLUMNS, np.int32)}, ints_config, "an order of activations"),
        (nv, {"weight_global_scale": None}, nv_config, "there is no tensor .*weight_global_scale"),
        (nv, {"weight_global_scale": np.zeros(1, np.float32)}, nv_config, "is 0, too small"),
        (nv, {"weight_scale": typed(one(nv["weight_scale"], 0x7F), "F8_E4M3")}, nv_config, "is NaN or below"),
        (bnb, {"weight.nested_absmax": None}, bnb_config, "there is no tensor .*nested_absmax"),
        (bnb, {"weight.absmax": bf16(np.ones(544))[0]}, bnb_config, "absmax: expected U8, got BF16"),
        (bnb, {"weight.absmax": bnb["weight.absmax"][1:]}, bnb_config, r"absmax: expected \[544\], got"),
        (ints, {"weight_shape": bf16(np.ones(2))[0]}, ints_config, "expected I64 or I32, got BF16"),
        (bnb, {codes: None}, bnb_config, "there is no tensor .*quant_state"),
        (bnb, {"weight.quant_map": NF4[::-1].copy()}, bnb_config, "not the 16 values of nf4"),
        (bnb, of_state(quant_type="fp4"), bnb_config, "quant_type 'fp4' is not supported"),
        (bnb, of_state(blocksize=32), bnb_config, "blocksize 32 is not supported"),
        (bnb, of_state(shape=[OUT, 2 * COLUMNS]), bnb_config, "expected .* for a weight"),
        (bnb, of_state(nested_offset=float("nan")), bnb_config, "is NaN or infinite"),
        (bnb, {}, without(bnb_config, bnb_4bit_use_double_quant=False), "scales are quantised, but"),
        (bnb, {}, without(bnb_config, load_in_4bit=False), "load_in_4bit is not true"),
    ]
    for i, (stored, change, quantization, sentence) in enumerate(cases):
        folder = write(tmp_path / str(i), put(changed(stored, **change)), quantization)
        with pytest.raises(vkattn.VkattnError, match=sentence):
            read(device, folder, quantization)
    with pytest.raises(vkattn.InvalidError, match=r"weight: expected \[136, 128\], got \[136, 256\]"):
        read(device, write(tmp_path / "odd", put(f8), f8_config), f8_config, columns=128)


# Tensors of scales: the case, the name, whether a zero among them is fine.
SCALES = (
    ("fp8", "weight_scale_inv", False),
    ("fp8 of the tensor", "weight_scale_inv", False),
    ("fp8 e5m2", "weight_scale_inv", False),
    ("compressed fp8", "weight_scale", False),
    ("int4 by 128", "weight_scale", False),
    ("int4 by 32", "weight_scale", False),
    ("int8 by row", "weight_scale", False),
    ("nvfp4", "weight_scale", True),
    ("nvfp4", "weight_global_scale", False),
    ("nvfp4 of ModelOpt", "weight_scale", True),
    ("nvfp4 of ModelOpt", "weight_scale_2", False),
    ("mxfp4", "weight_scale", True),
    ("fp8 of ModelOpt", "weight_scale", False),
    ("nf4", "weight.nested_absmax", True),
    ("nf4 by 128, plain", "weight.absmax", True),
)
# Bits of NaN, of infinity or a number below 0, by the type of a file.
WRONG = {
    "F32": (0x7FC00000, 0x7F800000, 0xFF800000),
    "BF16": (0x7FC0, 0x7F80, 0xFF80),
    "F8_E4M3": (0x7F, 0xFF, 0x80),
    "U8": (0xFF,),  # exponents
}


@pytest.mark.parametrize("name, scale, zero", SCALES)
def test_scales(device, rng, tmp_path, name, scale, zero):
    """Every kind of scale has a last one of NaN, infinity or 0, a row more, none, or another type."""
    stored, _, quantization, kind = CASES[name](rng)
    right = stored[scale]
    own = getattr(right, "kind", "") or KINDS[right.dtype.name]

    def refused(array, sentence):
        folder = write(tmp_path / "x", put(changed(stored, **{scale: array})), quantization)
        with pytest.raises(vkattn.VkattnError, match=f"{NAME}.{scale}{sentence}"):
            read(device, folder, quantization)

    for bits in (*WRONG[own], *(() if zero else (0,))):
        flat = right.reshape(-1).copy()
        flat.view(f"<u{flat.itemsize}")[-1] = bits
        said = "0, too small" if bits == 0 else "(NaN|-0)"
        refused(typed(flat.reshape(right.shape), own), f": the scale at .* is {said}")
    more = np.concatenate([right.reshape(-1), right.reshape(-1)])
    if right.ndim == 2:
        more = np.concatenate([right, right])
    refused(typed(more, own), ": expected ")
    refused(typed(right.astype(np.int64), "I64"), ": expected ")
    folder = write(tmp_path / "x", put(changed(stored, **{scale: None})), quantization)
    with pytest.raises(vkattn.VkattnError, match=f"there is no tensor {NAME}.{scale}"):
        read(device, folder, quantization)


def test_rows_of_whole_blocks(device, rng, tmp_path):
    """Rows that no blocks fill, in every format, are refused."""
    narrow = {
        "mxfp4": 64,
        "fp8": 96,
        "compressed fp8": 96,
        "fp8 of ModelOpt": 96,
        "int4 by row": 40,
        "int8 by row": 40,
        "nvfp4": 32,
        "nvfp4 of ModelOpt": 96,
        "nf4": 96,
    }
    make = {
        **CASES,
        **{n: partial(compressed_integers, bits=b, group=None) for n, b in (("int4 by row", 4), ("int8 by row", 8))},
        "nvfp4 of ModelOpt": partial(nvfp4, model_opt=True),
    }
    for name, columns in narrow.items():
        stored, _, quantization, _ = make[name](rng, columns=columns)
        if name == "mxfp4":  # two scales a row, the second of half a block
            columns, stored["weight_packed"] = 48, stored["weight_packed"][:, :24].copy()
        folder = write(tmp_path / "x", put(stored), quantization)
        with pytest.raises(vkattn.UnsupportedError, match=f"{columns} inputs are not whole blocks"):
            read(device, folder, quantization, columns=columns)


def test_gguf(device, rng, tmp_path):
    """nvfp4 has the tensor's scale in one of its own."""
    blocks = rng.integers(0, 127, (4, 36), dtype=np.uint8)
    for scale, sentence in ((0.3, ""), (0.0, "the scale is 0, not"), (np.nan, "the scale is nan, not")):
        data = blocks.tobytes() + bytes(16) + struct.pack("<f", scale) + bytes(28)
        tensors = [tensor("x.weight", (4, 64), 40, 0), tensor("x.scale", (1,), 0, 160)]
        (tmp_path / "x.gguf").write_bytes(build(tensors, (), data))
        if sentence:
            with pytest.raises(vkattn.FileError, match=f"x.scale: {sentence}"):
                GGUFWeights(vkattn.GGUF(tmp_path / "x.gguf"), device)
            continue
        weights = GGUFWeights(vkattn.GGUF(tmp_path / "x.gguf"), device)
        made = weights.linear("x", 4, 64, bias=False)
        weights.finish(lambda name: False)
        assert made.weight.dtype == "nvfp4" and made.weight.read_bytes() == blocks.tobytes()
        np.testing.assert_array_equal(made.scale.read(), np.full(4, scale, np.float32))
        with pytest.raises(vkattn.UnsupportedError, match="nvfp4 with a scale of its own"):
            weights.matrix("x.weight", 4, 64)


def test_gguf_scales_of_inputs(device, rng, tmp_path):
    """Those of nvfp4 change nothing, as in folders; of other types it is not known."""
    for kind, n in ((40, 36), (8, 68)):
        data = rng.integers(0, 60, (4, n), dtype=np.uint8).tobytes()
        data += bytes(-len(data) % 32)
        tensors = [tensor("x.weight", (4, 64), kind, 0), tensor("x.input_scale", (1,), 0, len(data))]
        data += struct.pack("<f", 0.5) + bytes(28)
        (tmp_path / "x.gguf").write_bytes(build(tensors, (), data))
        weights = GGUFWeights(vkattn.GGUF(tmp_path / "x.gguf"), device)
        weights.linear("x", 4, 64, bias=False)
        if kind == 40:
            weights.finish(lambda name: False)
            assert weights.unused == ["x.input_scale"]
        else:
            with pytest.raises(vkattn.UnsupportedError, match="tensor x.input_scale is not known"):
                weights.finish(lambda name: False)


def test_gguf_matrices(device, tmp_path):
    """Whole numbers, and scales that are none, by the names of file and tensor."""
    path = tmp_path / "x.gguf"
    nan = bytes(34) + struct.pack("<e", np.nan) + bytes(32)
    for kind, data, sentence in (
        (24, bytes(128), "x.gguf: x.weight: a matrix of i8 is not supported: expected floats or blocks"),
        (26, bytes(512), "x.gguf: x.weight: a matrix of i32 is not supported"),
        (8, nan * 2, "x.gguf: x.weight: the scale of block 1, of elements 32 and on, is NaN"),
    ):
        path.write_bytes(build([tensor("x.weight", (2, 64), kind, 0)], (), data))
        for made in (
            lambda weights: weights.linear("x", 2, 64, bias=False),
            lambda weights: weights.linears(["x"], [2], 64, bias=False),
            lambda weights: weights.matrix("x.weight", 2, 64),
        ):
            with pytest.raises(vkattn.VkattnError, match=sentence):
                made(GGUFWeights(vkattn.GGUF(path), device))


def test_float64(device, rng, tmp_path):
    """Says what to do, by the name of the file."""
    weight = typed(rng.standard_normal((4, 64)), "F64")
    folder = write(tmp_path / "x", {"x.weight": weight}, None)
    match = r'x.model.safetensors: x.weight: float64 is not a type .*: load with dtype="f32"'
    with pytest.raises(vkattn.UnsupportedError, match=match):
        FolderWeights(str(folder), device, None).matrix("x.weight", 4, 64)
    made = FolderWeights(str(folder), device, "f32").matrix("x.weight", 4, 64)
    np.testing.assert_array_equal(made.read(), np.asarray(weight).astype(np.float32))


def test_repack_float8(rng):
    bits = f8_values(rng, 6, 128)
    for scales, block in ((np.float32([0.3]), None), (rng.uniform(1, 2, 6), None), (rng.uniform(1, 2, (3, 2)), (2, 64))):
        scale = np.asarray(scales, np.float32)
        blocks = vkattn.repack_float8(bits, scale, block=block)
        wide = spread(scale.reshape(-1, scale.shape[1] if block else 1), 6, 128, *(block or (6 // scale.size, 128)))
        want = (e4m3(bits) * wide.astype(float)).astype(np.float32)
        np.testing.assert_array_equal(vkattn.dequantize(blocks, "f8_e4m3_g64"), want)
    with pytest.raises(vkattn.InvalidError, match="format: expected one of f8_e4m3, f8_e5m2"):
        vkattn.repack_float8(bits, np.float32([1]), format="f8_e3m4")


@pytest.mark.parametrize("make", [nvfp4])  # or fp8, nf4: each compiles for ten seconds
def test_models(device, rng, tmp_path, monkeypatch, make):
    """A tiny model's logits are those of the formula's weights in double."""
    monkeypatch.setattr(tiny, "WIDTH", 128)
    monkeypatch.setattr(tiny, "INNER", 256)
    config = {**tiny.LLAMA, "hidden_size": 128, "intermediate_size": 256}
    meant = tiny.matrices(rng, tiny.llama_shapes(config))
    stored = {}
    for name, array in list(meant.items()):
        stored[name] = array
        if name.endswith("_proj.weight"):
            packed, meant[name], quantization, kind = make(rng, *array.shape, size=0.2)
            del stored[name]
            stored.update(put(packed, name[: -len(".weight")]))
    folder = write(tmp_path / "model", stored, quantization, config)
    model = vkattn.models.load(folder, device=device)
    assert model.unused == [] and {x.weight.dtype for b in model.blocks for x in b.qkv} == {kind}
    assert all(len(block.qkv) == len(block.gate_up) == 1 for block in model.blocks)
    ids = [5, 17, 3, 95, 0, 44]
    want = tiny.logits(tiny.LlamaOracle(config, meant), ids)
    assert oracle.nmse(model.logits(ids), want) < 1e-10


def gptq(rng, out, columns, size):
    stored = {
        "qweight": rng.integers(0, 2**31, (columns // 8, out), dtype=np.int32),
        "qzeros": np.full((1, out // 8), 0x77777777, np.int32),
        "scales": typed(np.full((1, out), size / 8, np.float16), "F16"),
    }
    return stored, None, {"quant_method": "gptq", "bits": 4, "group_size": columns}, "i4_g128"


@pytest.mark.parametrize(
    "make, scale",
    [
        (fp8, "weight_scale_inv"),
        (compressed_fp8, "weight_scale"),
        (lambda rng, *shape, size: compressed_integers(rng, 4, 128, *shape, size=size), "weight_scale"),
        (nvfp4, "weight_global_scale"),
        (partial(nvfp4, model_opt=True), "weight_scale_2"),
        (lambda rng, *shape, size: mxfp4(rng, *shape), "weight_scale"),
        (nf4, "weight.nested_absmax"),
        (gptq, "scales"),
    ],
)
def test_nothing_allocated(rng, tmp_path, monkeypatch, make, scale):
    """A wrong or missing scale of the last layer is found before a device that has no room for any
    tensor is asked for the first one."""
    monkeypatch.setattr(tiny, "WIDTH", 128)
    monkeypatch.setattr(tiny, "INNER", 256)
    config = {**tiny.LLAMA, "hidden_size": 128, "intermediate_size": 256}
    stored = {}
    for name, array in tiny.matrices(rng, tiny.llama_shapes(config)).items():
        stored[name] = array
        if name.endswith("_proj.weight"):
            packed, _, quantization, _ = make(rng, *array.shape, size=0.2)
            del stored[name]
            stored.update(put(packed, name[: -len(".weight")]))
    last = f"model.layers.{config['num_hidden_layers'] - 1}.mlp.down_proj.{scale}"
    right, device = stored[last], vkattn.Device(max_memory=2**20)
    wrong = typed(np.full(right.shape, 0xFF, np.uint8), getattr(right, "kind", ""))
    if right.dtype != np.uint8:
        wrong = typed(np.full_like(right, np.nan if right.dtype.kind == "f" else 0x7FC0), wrong.kind)
    for array, sentence in ((wrong, "NaN"), (None, "there is no tensor"), (right, "max_memory")):
        folder = write(tmp_path / "model", changed(stored, **{last: array}), quantization, config)
        with pytest.raises(vkattn.VkattnError, match=sentence) as caught:
            vkattn.models.load(folder, device=device)
        memory = isinstance(caught.value, vkattn.OutOfMemoryError)
        assert memory == (array is right) and (memory or last.rpartition(".")[0] in str(caught.value))


def test_layers(device, rng, tmp_path):
    """A layer's projections; one with a scale of its own is refused."""
    for make in (compressed_fp8, nvfp4):
        tensors = {}
        for n in "qkvo":
            stored, _, quantization, kind = make(rng, 128, 128)
            tensors.update(put(stored, f"a.{n}_proj"))
        folder = write(tmp_path / kind, tensors, quantization, {"num_attention_heads": 2})
        if kind == "nvfp4":
            with pytest.raises(vkattn.UnsupportedError, match="a layer takes no nvfp4 with a scale"):
                vkattn.Layer.from_safetensors(folder, "a.", rope=False, device=device)
        else:
            layer = vkattn.Layer.from_safetensors(folder, "a.", rope=False, device=device)
            assert layer.dtype == "f8_e4m3_g64"


def mutate(rng, stored, quantization):
    """One tensor is missing, of another type or shape; or one key is odd or missing."""
    stored, name = dict(stored), rng.choice(list(stored))
    array = np.asarray(stored[name])
    what = rng.integers(0, 5)
    if what == 0:
        del stored[name]
    elif what == 1:
        size = array.dtype.itemsize
        kinds = {1: ("U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "BOOL"), 2: ("F16", "BF16", "I16")}
        stored[name] = typed(array, rng.choice(kinds.get(size, ("F32", "I32", "U32") if size == 4 else ("F64",))))
    elif what == 2 and array.size > 1:
        flat = array.reshape(-1)
        shapes = [flat[:0], flat[:1], flat[:-1], flat, flat.reshape(1, -1), flat.reshape(-1, 1, 1), flat[0]]
        stored[name] = typed(shapes[rng.integers(0, len(shapes))], getattr(stored[name], "kind", ""))
    else:
        text = json.loads(json.dumps(quantization))
        level = text
        while True:
            key = rng.choice(list(level))
            if isinstance(level[key], dict) and level[key] and rng.integers(0, 4):
                level = level[key]
                continue
            odd = [None, 0, -1, 7, 2**40, 0.5, True, "x", [], [3], [0, 1], {}, {"a": 1}, ["re:("]]
            level[key] = odd[rng.integers(0, len(odd))]
            return stored, text
    return stored, quantization


def test_random_mutations(device, rng, tmp_path):
    """Each is a weight of the right shape or an exception of the package with a sentence."""
    n_refused = 0
    for name, make in CASES.items():
        stored, _, quantization, _ = make(rng)
        for _ in range(12):
            tensors, config = mutate(rng, stored, quantization)
            folder = write(tmp_path / "x", put(tensors), config)
            try:
                with np.errstate(all="raise"):
                    made = read(device, folder, config)
            except vkattn.VkattnError as error:
                n_refused += 1
                assert len(str(error)) > 20, name
            else:
                assert getattr(made, "shape", made.data.shape) == (OUT, COLUMNS), name
    assert n_refused > 5 * len(CASES)
