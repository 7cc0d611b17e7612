"""mask and key_padding_mask, alone and together."""

import warnings

import numpy as np
import oracle
import pytest
from test_layer import expected, weights

import vkattn
from vkattn import _masks

DTYPES = ("bool", "f32", "f16", "bf16")


@pytest.fixture(autouse=True)
def not_warned(monkeypatch):
    monkeypatch.setattr(_masks, "_warned", False)


def make(rng, b, h, n_q, n_kv):
    return [rng.standard_normal((b, h, n, 4), np.float32) for n in (n_q, n_kv, n_kv)]


def draw(rng, shape, dtype, shows):
    """A mask as a caller has it, and the bias in double that it means."""
    seen = rng.random(shape) < 0.7
    if dtype == "bool":
        return seen == shows, np.where(seen, 0.0, -np.inf)
    bias = np.where(seen, rng.integers(-8, 8, shape) / 4, -np.inf).astype(np.float32)  # exact
    given = {"f32": bias, "f16": bias.astype(np.float16)}.get(dtype)
    if given is None:
        given = vkattn._arrays.HostArray((bias.view(np.uint32) >> 16).astype(np.uint16), "bf16")
    return given, bias.astype(np.float64)


@pytest.mark.parametrize("mask_dtype", [None, *DTYPES])
@pytest.mark.parametrize("padding_dtype", DTYPES)
def test_both(device, rng, mask_dtype, padding_dtype):
    b, h, n_q, n_kv = 3, 2, 4, 6
    q, k, v = make(rng, b, h, n_q, n_kv)
    padding, bias = draw(rng, (b, n_kv), padding_dtype, shows=False)
    full = np.zeros((b, h, n_q, n_kv)) + bias[:, None, None]
    shapes = [(n_kv,), (n_q, n_kv), (h, 1, n_kv), (b, 1, n_q, n_kv), (b, h, n_q, 1), (1, 1, 1, 5)]
    for shape in shapes if mask_dtype else [None]:
        want_bias, given = full, {}
        if shape:
            given["mask"], more = draw(rng, shape, mask_dtype, shows=True)
            if shape[-1] == 5:  # shorter: the keys beyond are hidden
                more = np.concatenate([more, np.full((1, 1, 1, 1), -np.inf)], -1)
            want_bias = full + more
        want, _ = oracle.attention(q, k, v, bias=want_bias)
        got = vkattn.attention(q, k, v, key_padding_mask=padding, device=device, **given)
        assert oracle.nmse(got, want) < 1e-9


@pytest.mark.parametrize("layout", ["bsd", "sbd"])
def test_of_layers(device, rng, layout):
    (x,) = weights(rng, (4, 3, 8))
    w = weights(rng, *[(8, 8)] * 4)
    padding = np.zeros((4, 3), bool)
    padding[1:, 2] = padding[2, 1] = True
    turned = x if layout == "bsd" else x.swapaxes(0, 1)
    want, _ = expected(x, 2, *((m, 0) for m in w), visible=~padding[:, None, None])
    layer = vkattn.Layer(
        device, n_head=2, query=w[0], key=w[1], value=w[2], output=w[3], layout=layout
    )
    got = layer(turned, key_padding_mask=padding)
    assert oracle.nmse(got if layout == "bsd" else got.swapaxes(0, 1), want) < 1e-9
    want, _ = expected(
        x, 2, *((m, 0) for m in w), visible=~padding[:, None, None] & oracle.causal(3, 3)
    )
    got = layer(turned, key_padding_mask=padding, mask=oracle.causal(3, 3))
    assert oracle.nmse(got if layout == "bsd" else got.swapaxes(0, 1), want) < 1e-9


def test_of_past_and_caches(device, rng):
    q, k, v = make(rng, 2, 2, 3, 6)
    padding = np.array([[0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 0]], bool)
    want, _ = oracle.attention(q, k, v, visible=~padding[:, None, None])
    past = k[:, :, :2], v[:, :, :2]
    got = vkattn.attention(
        q, k[:, :, 2:], v[:, :, 2:], past=past, key_padding_mask=padding, device=device
    )
    assert oracle.nmse(got, want) < 1e-9
    cache = vkattn.Cache(device, batch=2, n_kv_head=2, head_dim=4, capacity=8)
    wide = np.concatenate([padding, np.zeros((2, 2), bool)], 1)
    y, plan = device.empty(q.shape), vkattn.Plan(device)
    plan.attention(*map(device.tensor, (q, k, v)), y, cache=cache, key_padding_mask=wide)
    plan.finish().run()
    assert oracle.nmse(y.read(), want) < 1e-9
    with pytest.raises(vkattn.InvalidError, match=r"key_padding_mask: expected .*\[2, 8\]"):
        vkattn.Plan(device).attention(
            *map(device.tensor, (q, k, v)), y, cache=cache, key_padding_mask=padding
        )


def test_two_axes_are_queries_and_keys(device, rng):
    """Where batch == n_q a padding mask would fit as well: warned of once, at the caller's line."""
    q, k, v = make(rng, 4, 2, 4, 6)
    mask = rng.random((4, 6)) < 0.6
    want, _ = oracle.attention(q, k, v, visible=mask)
    with pytest.warns(UserWarning, match="key_padding_mask=, where True hides") as seen:
        for _ in range(3):
            got = vkattn.attention(q, k, v, mask=mask, device=device)
            assert oracle.nmse(got, want) < 1e-9
    assert len(seen) == 1 and seen[0].filename == __file__


def test_plan_and_layer_warn(device, rng):
    (x,) = weights(rng, (3, 3, 4))
    (w,) = weights(rng, (4, 4))
    layer = vkattn.Layer(device, n_head=1, query=w, key=w, value=w)
    with pytest.warns(UserWarning) as seen:
        layer(x, mask=device.tensor(np.ones((3, 3), bool)))
    assert len(seen) == 1 and seen[0].filename == __file__


def test_no_warning_where_there_is_no_doubt(device, rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q, k, v = make(rng, 4, 2, 4, 6)
        fits = [np.ones((1, 1, 4, 6), bool), np.ones((1, 6), bool), np.ones(6, bool)]
        for mask in fits:
            vkattn.attention(q, k, v, mask=mask, device=device)
        vkattn.attention(q, k, v, mask=np.ones((4, 6), bool), device=device, **PADDING)
        q, k, v = make(rng, 2, 2, 4, 6)
        vkattn.attention(q, k, v, mask=np.ones((4, 6), bool), device=device)
        q, k, v = make(rng, 1, 2, 1, 6)
        vkattn.attention(q, k, v, mask=np.ones((1, 6), bool), device=device)


PADDING = {"key_padding_mask": np.zeros((4, 6), bool)}


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"key_padding_mask": np.ones((3, 6), bool)}, r"key_padding_mask: expected .*\[4, 6\]"),
        ({"key_padding_mask": np.ones((4, 5), bool)}, "key_padding_mask: expected"),
        ({"key_padding_mask": np.ones((1, 6), bool)}, "key_padding_mask: expected"),
        ({"key_padding_mask": np.ones((6, 4), bool)}, "key_padding_mask: expected"),
        ({"key_padding_mask": np.ones(6, bool)}, "key_padding_mask: expected"),
        ({"key_padding_mask": np.ones((4, 6), "i4")}, "key_padding_mask: expected bool or floats"),
        ({"key_padding_mask": np.ones((4, 6), "u1")}, "key_padding_mask: uint8 is not"),
        ({**PADDING, "mask": np.ones((4, 6), "i4")}, "mask: expected bool or floats"),
        ({**PADDING, "mask": np.ones((4, 7), bool)}, "mask: expected what broadcasts"),
        ({**PADDING, "mask": np.ones((3, 6), bool)}, "mask"),
        ({**PADDING, "mask": np.ones((3, 1, 1, 6), bool)}, "mask: expected what broadcasts"),
    ],
)
def test_refusals(device, rng, given, sentence):
    q, k, v = make(rng, 4, 2, 4, 6)
    with pytest.raises(vkattn.InvalidError, match=sentence):
        vkattn.attention(q, k, v, device=device, **given)


def test_masks_of_other_types_and_axes(device, rng):
    """float64, int64, and PyTorch's [batch * n_head][n_q][n_kv]."""
    q, k, v = make(rng, 3, 2, 4, 6)
    seen = rng.random((3, 2, 4, 6)) < 0.7
    bias = rng.standard_normal(seen.shape)
    cases = [
        (seen.astype(np.int64), {"visible": seen}),
        (seen.reshape(6, 4, 6), {"visible": seen}),
        (bias, {"bias": bias}),
        (bias.reshape(6, 4, 6), {"bias": bias}),
        (seen[0], {"visible": seen[0]}),
    ]
    for mask, means in cases:
        want, _ = oracle.attention(q, k, v, **means)
        assert oracle.nmse(vkattn.attention(q, k, v, mask=mask, device=device), want) < 1e-9
    with pytest.raises(vkattn.InvalidError, match="mask: expected 0 .hidden. and 1"):
        vkattn.attention(q, k, v, mask=np.full((4, 6), 2), device=device)


def test_fewer_axes(device, rng):
    q, k, v = make(rng, 3, 2, 4, 6)
    want, weights = oracle.attention(q, k, v)
    got, scores = vkattn.attention(q[1], k[1], v[1], scores="softmax", device=device)
    assert got.shape == (2, 4, 4) and scores.shape == (2, 4, 6)
    assert oracle.nmse(got, want[1]) < 1e-9 and oracle.nmse(scores, weights[1]) < 1e-9
    got = vkattn.attention(q[1, 0], k[1, 0], v[1, 0], device=device)
    assert got.shape == (4, 4) and oracle.nmse(got, want[1, 0]) < 1e-9
    want, _ = oracle.attention(np.broadcast_to(q[:1], q.shape), k, v)
    got = vkattn.attention(q[0], k, v, device=device)
    assert got.shape == want.shape and oracle.nmse(got, want) < 1e-9
    with pytest.raises(vkattn.InvalidError, match="q: expected 2 or 3 or 4 axes"):
        vkattn.attention(q[0, 0, 0], k, v, device=device)


def test_tensors_are_not_joined(device, rng):
    q, k, v = make(rng, 4, 2, 4, 6)
    with pytest.raises(vkattn.InvalidError, match="key_padding_mask: expected an array"):
        vkattn.attention(
            q, k, v, device=device, key_padding_mask=device.tensor(np.ones((4, 6), bool))
        )
    with pytest.raises(vkattn.InvalidError, match="mask: expected an array beside"):
        vkattn.attention(q, k, v, device=device, mask=device.tensor(np.ones(6, bool)), **PADDING)
    t = [device.tensor(x) for x in (q, k, v)]
    with pytest.raises(TypeError, match="q: expected a Tensor"):
        vkattn.Plan(device).attention(q, *t, **PADDING)
    with pytest.raises(TypeError, match="cache: expected a Cache"):
        vkattn.Plan(device).attention(*t, t[0], cache=4, **PADDING)
    with pytest.raises(vkattn.InvalidError, match="q: expected 4 axes"):
        vkattn.Plan(device).attention(t[0].reshape(16, 2, 4), t[1], t[2], t[0], **PADDING)
