"""Quantised weights: blocks against numpy, tensors and layers of them."""

import numpy as np
import oracle
import pytest

import vkattn
from vkattn._arrays import DTYPES

STEPS = {"q8_0": 127, "q4_0": 8}


def model(x, dtype):
    """What quantising and decoding makes of float32 x, by the rounding that the header states."""
    blocks = x.reshape(-1, 32)
    if dtype == "q8_0":
        d = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
        q = np.divide(blocks, d, out=np.zeros_like(blocks), where=d != 0)
        q = np.copysign(np.floor(np.abs(q) + np.float32(0.5)), q)
    else:
        most = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
        d = most / np.float32(-8)
        q = np.divide(blocks, d, out=np.zeros_like(blocks), where=d != 0)
        q = np.minimum(np.floor(q + np.float32(8.5)), 15) - 8
    return (d.astype(np.float16).astype(np.float32) * q).astype(np.float32).reshape(x.shape)


@pytest.mark.parametrize("dtype", STEPS)
def test_quantize(device, rng, dtype):
    x = rng.standard_normal((3, 5, 96), np.float32)
    x[1, 2, 32:64] = 0
    blocks = vkattn.quantize(x, dtype)
    assert blocks.shape == (3, 5, 3 * {"q8_0": 34, "q4_0": 18}[dtype])
    got = vkattn.dequantize(blocks, dtype)
    want = model(x, dtype)
    # A quotient a rounding away from a tie may fall to its other side: one step, and rarely.
    step = np.abs(x).max() / STEPS[dtype]
    assert np.abs(got - want).max() <= step * 1.001
    assert (got != want).mean() < 0.01

    tensor = device.tensor(x, dtype)
    assert tensor.dtype == dtype and tensor.read_bytes() == blocks.tobytes()
    np.testing.assert_array_equal(tensor.read(), got)
    tensor.write(-x)
    got = vkattn.dequantize(vkattn.quantize(-x, dtype), dtype)
    np.testing.assert_array_equal(tensor.read(), got)


@pytest.mark.parametrize("dtype", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_bits_of_gguf(rng, dtype):
    """Blocks of 32 are those of the package gguf, at special points too."""
    quants = pytest.importorskip("gguf.quants", reason="gguf IS NOT INSTALLED: NO BITS COMPARED")
    kind = getattr(quants.GGMLQuantizationType, dtype.upper())
    special = np.zeros((9, 32), np.float32)
    special[1], special[2], special[3, ::2] = -0.0, 1, -3
    special[4, 5], special[5, 7] = 65504, -65504
    special[6] = np.linspace(-1, 1, 32)
    special[7] = (np.arange(32) - 16) / 2
    special[8] = np.float32(2.0**-20) * np.arange(32)
    scales = np.float32(2) ** rng.integers(-12, 8, (4000, 1)).astype(np.float32)
    x = np.concatenate([special, rng.standard_normal((4000, 32), np.float32) * scales])
    np.testing.assert_array_equal(vkattn.quantize(x, dtype), quants.quantize(x, kind))


GGUF_TYPES = [name for name in DTYPES if name[0] in "qit" and "_" in name and name != "i4_g128"]


@pytest.mark.parametrize("dtype", [*GGUF_TYPES, "mxfp4", "nvfp4"])
def test_values_of_gguf(rng, dtype):
    """Random bytes have the values, bits for bits, that the package gguf gives them: every entry of
    the grids of iq1, iq2 and iq3, every sign and scale."""
    quants = pytest.importorskip("gguf.quants", reason="gguf IS NOT INSTALLED: NO VALUES COMPARED")
    kind = getattr(quants.GGMLQuantizationType, dtype.upper())
    size = quants.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (2000, size), np.uint8)
    with np.errstate(all="ignore"):
        want = quants.dequantize(blocks, kind)
    whole = np.isfinite(want).all(axis=1)
    assert whole.sum() > 1500
    got = vkattn.dequantize(blocks, dtype)
    np.testing.assert_array_equal(got[whole].view(np.uint32), want[whole].view(np.uint32))


@pytest.mark.parametrize("dtype, most", [("q4_k", 5.1e-3), ("q5_k", 1.3e-3), ("q6_k", 3.15e-4), ("iq4_nl", 5.7e-3)])
def test_quantize_by_search(device, rng, dtype, most):
    x = rng.standard_normal((8, 1024), np.float32)
    x[1, 256:512] = 0
    blocks = vkattn.quantize(x, dtype)
    got = vkattn.dequantize(blocks, dtype)
    assert ((got - x) ** 2).sum() < most * (x**2).sum() and not got[1, 256:512].any()
    tensor = device.tensor(x, dtype)
    assert tensor.dtype == dtype and tensor.read_bytes() == blocks.tobytes()


def test_quantised_activations(device, rng):
    x = rng.standard_normal((3, 96), np.float32)
    w = rng.standard_normal((40, 96), np.float32)
    weight, out = device.tensor(w, "q8_0"), device.empty((3, 40))
    plan = vkattn.Plan(device)
    plan.linear(device.tensor(x), weight, out, activations="i8")
    with pytest.raises(vkattn.InvalidError, match="activations: expected"):
        plan.linear(device.tensor(x), weight, out, activations="i4")
    with pytest.raises(vkattn.InvalidError, match="weight is f32, which has no integers"):
        plan.linear(device.tensor(x), device.tensor(w), out, activations="i8")
    plan.finish().run()
    blocks = x.reshape(-1, 16).astype(np.float64)
    mantissa, exponent = np.frexp((np.abs(blocks).max(1) * np.float32(1 / 127)).astype(np.float32))
    scale = np.ldexp(np.ceil(mantissa * 4096), exponent - 12)[:, None]
    kept = (np.copysign(np.floor(np.abs(blocks / scale) + 0.5), blocks) * scale).reshape(x.shape)
    want = kept @ weight.read().T.astype(np.float64)
    assert ((np.asarray(out) - want) ** 2).sum() <= 1e-11 * (want**2).sum()


def test_layer_with_quantised_activations(device, rng):
    """The bits of its products alone: of a layer without rows to attend to but one, so that
    attention hands on the values."""
    query, key, value, last = (rng.standard_normal((64, 64), np.float32) for _ in range(4))
    layer = vkattn.Layer(
        device, n_head=2, query=query, key=key, value=value, output=last, quantize="q8_0"
    )
    x = rng.standard_normal((3, 1, 64), np.float32)
    given, out = device.tensor(x), device.empty((3, 1, 64))
    middle, want = device.empty((3, 1, 64)), device.empty((3, 1, 64))
    plan = vkattn.Plan(device)
    plan.layer(layer, given, out, activations="i8")
    plan.linear(given, device.tensor(value, "q8_0"), middle, activations="i8")
    plan.linear(middle, device.tensor(last, "q8_0"), want, activations="i8")
    with pytest.raises(vkattn.InvalidError, match="activations: expected"):
        plan.layer(layer, given, out, activations="q8")
    plan.finish().run()
    np.testing.assert_array_equal(np.asarray(out), np.asarray(want))


def test_what_cannot_be_quantised(device):
    x = np.ones((2, 64), np.float32)
    with pytest.raises(vkattn.InvalidError, match="whole blocks of 32 .*40"):
        vkattn.quantize(x[:, :40])
    with pytest.raises(vkattn.InvalidError, match="expected one of q8_0, q4_0, .*, got mxfp4"):
        vkattn.quantize(x, "mxfp4")
    with pytest.raises(vkattn.InvalidError, match="whole blocks of 256 .*64"):
        vkattn.quantize(x, "q6_k")
    with pytest.raises(vkattn.InvalidError, match="expected a type of blocks, got f16"):
        vkattn.quantize(x, "f16")
    with pytest.raises(vkattn.InvalidError, match="expected one of .*, got 'q9'"):
        vkattn.quantize(x, "q9")
    with pytest.raises(vkattn.InvalidError, match="NaN"):
        vkattn.quantize(x * np.nan)
    with pytest.raises(vkattn.InvalidError, match="too large for q4_0"):
        vkattn.quantize(x * 1e7, "q4_0")
    with pytest.raises(vkattn.InvalidError, match="whole blocks of 34"):
        vkattn.dequantize(np.zeros(33, np.uint8), "q8_0")
    with pytest.raises(vkattn.InvalidError, match=r"expected floats \[2, 64\], got \[64, 2\]"):
        device.tensor(x, "q8_0").write(x.reshape(64, 2))


@pytest.mark.parametrize("dtype", STEPS)
def test_layer(device, rng, dtype):
    """A quantised layer gives what a layer of the decoded weights gives."""
    w = {
        name: rng.standard_normal((64, 64), np.float32) / 8
        for name in ("query", "key", "value", "output")
    }
    bias = rng.standard_normal(64, np.float32)
    x = rng.standard_normal((2, 7, 64), np.float32)
    decoded = {name: vkattn.dequantize(vkattn.quantize(a, dtype), dtype) for name, a in w.items()}
    w["query"] = (w["query"], bias)
    decoded["query"] = (decoded["query"], bias)
    with vkattn.Layer(device, n_head=4, quantize=dtype, **w) as layer:
        got = layer(x, causal=True)
    with vkattn.Layer(device, n_head=4, **decoded) as layer:
        want = layer(x, causal=True)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    with pytest.raises(vkattn.InvalidError, match="quantize: expected one of q8_0, .*got mxfp4"):
        vkattn.Layer(device, n_head=4, quantize="mxfp4", **w)


# ---- Caches of float8 ---------------------------------------------------------------------------


def float8_numbers():
    """The finite numbers of e4m3 from 0 up."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, mantissa * 2.0**-9, normal)


def kept(x, scale):
    """What a cache keeps of float32 x: the nearest number, the even code of two, up to 448."""
    grid = float8_numbers()
    y = (x.astype(np.float32) * (np.float32(1) / np.float32(scale))).astype(np.float64)
    size = np.where(np.isnan(y), 0, np.minimum(np.abs(y), 448))
    above = np.clip(np.searchsorted(grid, size), 1, 126)
    low, high = grid[above - 1], grid[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    return np.where(np.isnan(y), np.nan, np.copysign(np.where(up, high, low), y)) * scale


@pytest.mark.parametrize("scale", [1.0, 0.25, 2.0**-100])
def test_float8_values(device, scale):
    """One key has the weight 1: the output is the value that the cache keeps, each bit of it."""
    grid = float8_numbers().astype(np.float32)
    middle = (grid[1:] + grid[:-1]) / 2
    more = [448, 464, 465, 1e30, np.inf, np.nan, 2.0**-10, 2.0**-11, 1e-30]
    x = np.concatenate([grid, middle, np.nextafter(middle, 0), np.nextafter(middle, 500), more])
    x = np.concatenate([x, -x]).astype(np.float32) * np.float32(scale)
    x = np.resize(x, (len(x) + 15) // 16 * 16).reshape(-1, 2, 1, 8)
    n = len(x)
    cache = vkattn.Cache(
        device,
        batch=n,
        n_kv_head=2,
        head_dim=8,
        capacity=1,
        value_dtype="f8_e4m3",
        value_scales=[scale, scale],
    )
    q, k, v = (device.tensor(a) for a in (np.ones_like(x), np.ones_like(x), x))
    out = device.empty(x.shape)
    plan = vkattn.Plan(device)
    plan.attention(q, k, v, out, cache=cache, causal=True)
    plan.finish().run()
    np.testing.assert_array_equal(out.read(), kept(x, scale).astype(np.float32))


@pytest.mark.parametrize("page_size", [0, 16])
def test_float8_cache(device, rng, page_size):
    scales = {"key_scales": [0.01, 0.002], "value_scales": [0.02, 1.5]}
    cache = vkattn.Cache(
        device,
        batch=2,
        n_kv_head=2,
        head_dim=12,
        value_dim=5,
        capacity=33,
        key_dtype="f8_e4m3",
        page_size=page_size,
        **scales,
    )
    keys, values = np.zeros((2, 2, 0, 12)), np.zeros((2, 2, 0, 5))
    shapes = (2, 4, 3, 12), (2, 2, 3, 12), (2, 2, 3, 5), (2, 4, 3, 5)
    q, k, v, out = (device.empty(shape) for shape in shapes)
    plan = vkattn.Plan(device)
    plan.attention(q, k, v, out, cache=cache, causal=True)
    plan.finish()
    for i in range(4):
        new = [rng.standard_normal(shape, np.float32) for shape in shapes[:3]]
        for tensor, x in zip((q, k, v), new):
            tensor.write(x)
        plan.run()
        ks, vs = (
            np.stack([kept(x[:, h], scales[name][h]) for h in range(2)], 1)
            for name, x in zip(scales, new[1:])
        )
        keys, values = np.concatenate([keys, ks], 2), np.concatenate([values, vs], 2)
        visible = oracle.causal(3, 3 * i + 3, 3 * i)
        want, _ = oracle.attention(new[0], keys, values, visible=visible)
        assert oracle.nmse(out.read(), want) < 1e-11
    assert np.abs(keys[:, 1]).max() == 448 * 0.002  # saturated


def test_float8_scales(device):
    sizes = {"batch": 1, "n_kv_head": 2, "head_dim": 8, "capacity": 4}
    for bad in (0, -1, np.nan, np.inf, 1e-40):
        with pytest.raises(vkattn.InvalidError, match=r"key_scales\[1\] is .*not a number from"):
            vkattn.Cache(device, key_dtype="f8_e4m3", key_scales=[1, bad], **sizes)
    with pytest.raises(vkattn.InvalidError, match="value_scales: expected 2 numbers, got 1"):
        vkattn.Cache(device, value_dtype="f8_e4m3", value_scales=[1], **sizes)
    with pytest.raises(vkattn.InvalidError, match="value_scales is given, but the type is f32"):
        vkattn.Cache(device, value_scales=[1, 1], **sizes)


@pytest.mark.parametrize("kind, most", [("q8_0", 8.3e6), ("q4_0", 5.2e5)])
def test_range_of_caches(device, kind, most):
    """As vkattn_cache.h says: beyond it a block reads as NaN, not as other numbers."""
    for size, finite in ((most, True), (-most, True), (1.02 * most, False), (1e30, False)):
        sizes = {"batch": 1, "n_kv_head": 1, "head_dim": 64, "capacity": 4}
        cache = vkattn.Cache(device, **sizes, value_dtype=kind, no_hadamard=True)
        zeros, x = np.zeros((1, 1, 1, 64), np.float32), np.zeros((1, 1, 1, 64), np.float32)
        x[..., 3] = size
        x[..., 40] = 2.0  # in the other block
        q, k, v, out = (device.tensor(a) for a in (zeros, zeros, x, zeros))
        with vkattn.Plan(device) as plan:
            plan.attention(q, k, v, out, cache=cache)
            plan.finish().run()
        got = out.read()[0, 0, 0]
        np.testing.assert_allclose(got[32:], x[0, 0, 0, 32:], atol=0.05)
        if finite:
            np.testing.assert_allclose(got[:32], x[0, 0, 0, :32], rtol=1e-3)
        else:
            assert np.isnan(got[:32]).all()
