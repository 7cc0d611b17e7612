"""Axes of 0 elements in calls on host arrays, as PyTorch and numpy take them."""

import numpy as np
import pytest

import vkattn


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


SHAPES = [
    ((0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 6)),
    ((1, 2, 0, 4), (1, 2, 5, 4), (1, 2, 5, 6)),
    ((1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 6)),
    ((1, 4, 3, 4), (1, 2, 0, 4), (1, 2, 0, 6)),
    ((1, 0, 3, 4), (1, 0, 5, 4), (1, 0, 5, 6)),
    ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 0)),
    ((1, 2, 0, 4), (1, 2, 0, 4), (1, 2, 0, 6)),
]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_attention(device, shapes, dtype):
    q, k, v = (ones(*shape, dtype=dtype) for shape in shapes)
    for masked_row, fill in (("zero", 0), ("uniform", 0), ("nan", np.nan)):
        got = vkattn.attention(q, k, v, masked_row=masked_row, causal=True, device=device)
        want = np.full((*q.shape[:3], v.shape[3]), fill, dtype)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)
    if not v.shape[3]:
        return
    _, scores, sums = vkattn.attention(q, k, v, scores="raw", log_sum_exp=True, device=device)
    assert scores.shape == (*q.shape[:3], k.shape[2]) and scores.dtype == np.float32
    np.testing.assert_array_equal(sums, np.full(q.shape[:3], -np.inf))


def test_fewer_axes(device):
    assert vkattn.attention(ones(0, 4), ones(3, 4), ones(3, 4), device=device).shape == (0, 4)
    assert vkattn.attention(ones(2, 0, 4), ones(3, 4), ones(3, 4), device=device).shape == (2, 0, 4)


@pytest.mark.parametrize(
    "shapes, sentence",
    [
        (((1, 2, 0, 4), (1, 2, 3, 5), (1, 2, 3, 4)), "k: expected 4 features"),
        (((1, 3, 0, 4), (1, 2, 3, 4), (1, 2, 3, 4)), "k: 2 heads do not divide"),
        (((1, 2, 0, 4), (1, 2, 3, 4), (1, 2, 4, 4)), "v: expected 3 keys"),
        (((0, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), "k: expected"),
        (((1, 2, 3, 0), (1, 2, 3, 0), (1, 2, 3, 4)), "q: expected one or more features"),
    ],
)
def test_wrong_sizes(device, shapes, sentence):
    with pytest.raises(vkattn.InvalidError, match=sentence):
        vkattn.attention(*(ones(*shape) for shape in shapes), device=device)


def test_wrong_options(device):
    q, none = ones(1, 2, 3, 4), ones(1, 2, 0, 4)
    with pytest.raises(TypeError, match="casual"):
        vkattn.attention(q, none, none, casual=True, device=device)
    with pytest.raises(vkattn.InvalidError, match="masked_row"):
        vkattn.attention(q, none, none, masked_row="none", device=device)


def test_past(device, rng):
    q, k, v = (draw(rng, 2, 2, 5, 4) for _ in range(3))
    none = ones(2, 2, 0, 4)
    for options in (
        {"causal": True},
        {"window": (1, 0), "rope": vkattn.Rope(4)},
        {"mask": rng.random((2, 1, 5, 5)) < 0.7},
        {"key_padding_mask": rng.random((2, 5)) < 0.3, "scores": "softmax", "log_sum_exp": True},
    ):
        want = vkattn.attention(q, k, v, device=device, **options)
        got = vkattn.attention(q, k, v, past=(none, none), device=device, **options)
        np.testing.assert_array_equal(got[0], want[0])
    # Past keys alone: those of the past are not rotated again, and queries follow them.
    for options in (
        {"causal": True},
        {"causal": True, "query_offset": [0]},
        {"kv_length": [3, 9]},
        {"mask": rng.random((2, 1, 5, 5)) < 0.7, "masked_row": "zero"},
        {"mask": draw(rng, 5, 5)},
        {"key_padding_mask": rng.random((2, 5)) < 0.3, "scores": "softmax", "log_sum_exp": True},
        {"window": (2, 0), "alibi": np.array([0.5, 0.25], np.float32)},
    ):
        want = vkattn.attention(q, k, v, device=device, **{"query_offset": [5], **options})
        got = vkattn.attention(q, none, none, past=(k, v), device=device, **options)
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want))):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, atol=1e-5)
    both = vkattn.attention(q, none, none, past=(none, none), device=device)
    np.testing.assert_array_equal(both, 0 * q)


@pytest.fixture
def layer(device, rng):
    weights = {name: (draw(rng, 8, 8), draw(rng, 8)) for name in ("query", "key", "value", "output")}
    return vkattn.Layer(device, n_head=2, **weights), weights


def test_layer(layer):
    made, weights = layer
    for shape, options in (((0, 3, 8), {}), ((2, 0, 8), {}), ((0, 2, 8), {"layout": "sbd"}), ((0, 8), {})):
        assert made(ones(*shape), **options).shape == shape
    result, scores = made(ones(2, 0, 8), ones(2, 5, 8), scores="raw")
    assert result.shape == (2, 0, 8) and scores.shape == (2, 2, 0, 5)
    bias = np.broadcast_to(weights["output"][1], (2, 3, 8))
    for options in ({}, {"causal": True}, {"masked_row": "uniform"}, {"mask": np.ones((3, 0), bool)}):
        np.testing.assert_allclose(made(ones(2, 3, 8), ones(2, 0, 8), **options), bias, atol=1e-6)
    result, scores = made(ones(3, 2, 8), ones(0, 2, 8), layout="sbd", scores="softmax")
    np.testing.assert_allclose(result, np.swapaxes(bias, 0, 1), atol=1e-6)
    assert scores.shape == (2, 2, 3, 0)
    assert np.isnan(made(ones(2, 3, 8), ones(2, 0, 8), masked_row="nan")).all()
    for query, key, sentence in (
        ((0, 3, 7), (0, 3, 8), "query: expected"),
        ((0, 3, 8), (0, 3, 7), "key: expected 8 features"),
        ((1, 3, 8), (2, 0, 8), "query: expected"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            made(ones(*query), ones(*key))


def test_layer_with_cache(layer, device):
    made, _ = layer
    cache = vkattn.Cache(device, batch=2, n_kv_head=2, head_dim=4, capacity=8)
    made(ones(2, 3, 8), cache=cache)
    assert made(ones(2, 0, 8), cache=cache).shape == (2, 0, 8)
    assert cache.length(0) == cache.length(1) == 3
    with pytest.raises(vkattn.InvalidError, match="query: expected one or more rows"):
        made(ones(2, 0, 8), ones(2, 1, 8), cache=cache)


def test_layer_with_extra_rows(device, rng):
    """Over the appended rows alone."""
    weights = {name: draw(rng, 8, 8) for name in ("query", "key", "value")}
    rows = draw(rng, 8), draw(rng, 8)
    made = vkattn.Layer(device, n_head=2, **weights, bias_kv=rows)
    got, scores = made(ones(2, 3, 8), ones(2, 0, 8), scores="softmax")
    np.testing.assert_allclose(got, np.broadcast_to(rows[1], got.shape), atol=1e-5)
    np.testing.assert_array_equal(scores, ones(2, 2, 3, 1))


def test_tensors_have_elements(device):
    with pytest.raises(vkattn.InvalidError, match="shape: expected 1 to 4 axes of at least 1"):
        device.empty((2, 0))
    with pytest.raises(vkattn.InvalidError, match="array: expected 1 to 4 axes of at least 1"):
        device.tensor(ones(2, 0))


def test_quantize():
    assert vkattn.quantize(ones(0, 64)).shape == (0, 68)
    assert vkattn.dequantize(np.zeros((0, 68), np.uint8), "q8_0").shape == (0, 64)
