"""Quantised weights: blocks against numpy, tensors and layers of them."""

import numpy as np
import pytest

import vkattn

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


def test_what_cannot_be_quantised(device):
    x = np.ones((2, 64), np.float32)
    with pytest.raises(vkattn.InvalidError, match="whole blocks of 32 .*40"):
        vkattn.quantize(x[:, :40])
    with pytest.raises(vkattn.InvalidError, match="expected one of q8_0, q4_0, got q6_k"):
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
    with pytest.raises(vkattn.InvalidError, match="quantize: expected q8_0 or q4_0, got q6_k"):
        vkattn.Layer(device, n_head=4, quantize="q6_k", **w)
