"""Results against the oracle."""

import numpy as np
import oracle
import pytest

import vkattn

TOLERANCE = {"f32": 1e-10, "f16": 1e-5, "bf16": 1e-3}  # of the worst row's NMSE


def make(rng, b=2, h=4, h_kv=2, n_q=5, n_kv=7, d=8, dv=6):
    shapes = (b, h, n_q, d), (b, h_kv, n_kv, d), (b, h_kv, n_kv, dv)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("path", ["auto", "unfused", "fused"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_types_and_paths(device, rng, dtype, path):
    q, k, v = make(rng)
    want, weights = oracle.attention(q, k, v, visible=oracle.causal(5, 7))
    got, scores = vkattn.attention(
        q, k, v, causal=True, scores="softmax", dtype=dtype, path=path, device=device
    )
    assert got.dtype == (np.float16 if dtype == "f16" else np.float32)
    assert got.shape == (2, 4, 5, 6) and scores.shape == (2, 4, 5, 7)
    assert oracle.nmse(got, want) < TOLERANCE[dtype]
    assert oracle.nmse(scores, weights) < TOLERANCE[dtype]


def test_exact_softmax(device, rng):
    """Scores that float32 holds, far apart: e^x of a rounded difference is off, but not here."""
    s = (rng.uniform(-60, 0, (1, 1, 1, 40))).astype(np.float32)
    k, one = s.reshape(1, 1, 40, 1), np.ones((1, 1, 1, 1), np.float32)
    given = {"scale": 1.0, "scores": "softmax", "device": device}
    _, got = vkattn.attention(one, k, k, exact_softmax=True, **given)
    want = np.exp(s.astype(np.float64) - s.max())
    want /= want.sum()
    units = np.abs(got - want) / np.spacing(want.astype(np.float32))
    assert units.max() < 0.501
    with pytest.raises(vkattn.UnsupportedError, match="exact_softmax .* the fused path"):
        vkattn.attention(one, k, k, exact_softmax=True, path="fused", **given)
    eye = np.eye(8, dtype=np.float32)
    layer = vkattn.Layer(device, n_head=2, query=eye, key=eye, value=eye)
    x = rng.standard_normal((1, 3, 8), np.float32)
    np.testing.assert_allclose(layer(x, exact_softmax=True), layer(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["unfused", "fused"])
def test_log_sum_exp(device, rng, path):
    q, k, v = make(rng)
    s = np.einsum("bhqd,bhkd->bhqk", q, k.repeat(2, 1), dtype=np.float64) / np.sqrt(8)
    s[~np.broadcast_to(oracle.causal(5, 7, -1), s.shape)] = -np.inf  # query 0 sees no key
    with np.errstate(divide="ignore"):
        want = np.log(np.exp(s).sum(-1))
    given = {"causal": True, "query_offset": [-1], "path": path, "device": device}
    context, got = vkattn.attention(q, k, v, log_sum_exp=True, **given)
    assert got.dtype == np.float32 and got.shape == (2, 4, 5) and (got[:, :, 0] == -np.inf).all()
    assert np.abs(got[:, :, 1:] - want[:, :, 1:]).max() < 4e-6
    both = vkattn.attention(q, k, v, log_sum_exp=True, scores="raw", **given)
    assert len(both) == 3 and (both[0] == context).all() and (both[2] == got).all()
    with pytest.raises(vkattn.InvalidError, match="log_sum_exp"):
        t = [device.tensor(x) for x in (q, k, v)]
        to = vkattn.Tensor(device, (2, 4, 5, 6))
        vkattn.Plan(device).attention(*t, to, log_sum_exp=vkattn.Tensor(device, (2, 2, 5)))


def test_boolean_mask_and_lengths(device, rng):
    q, k, v = make(rng)
    mask = rng.random((2, 1, 5, 7)) < 0.6
    lengths = np.array([7, 3])
    visible = mask & (np.arange(7) < lengths[:, None, None, None])
    want, _ = oracle.attention(q, k, v, visible=visible)
    for given in (
        lengths,
        lengths.tolist(),
        lengths.astype(np.int32),
        device.tensor(lengths.astype(np.int32)),
    ):
        got = vkattn.attention(q, k, v, mask=mask, kv_length=given, device=device)
        assert oracle.nmse(got, want) < 1e-10


def test_float_mask_softcap_scale_window(device, rng):
    q, k, v = make(rng)
    bias = rng.standard_normal((4, 5, 7), np.float32)
    distance = np.arange(5)[:, None] - np.arange(7)
    visible = (distance <= 2) & (distance >= -1)
    want, _ = oracle.attention(q, k, v, visible=visible, bias=bias, scale=0.3, softcap=2.0)
    got = vkattn.attention(q, k, v, mask=bias, window=(2, 1), scale=0.3, softcap=2.0, device=device)
    assert oracle.nmse(got, want) < 1e-10


def test_past_and_offset(device, rng):
    q, k, v = make(rng)
    want, _ = oracle.attention(q, k, v, visible=oracle.causal(5, 7, 2))
    past = k[:, :, :2], v[:, :, :2]
    got = vkattn.attention(q, k[:, :, 2:], v[:, :, 2:], past=past, causal=True, device=device)
    assert oracle.nmse(got, want) < 1e-10
    got = vkattn.attention(q, k, v, causal=True, query_offset=[2], device=device)
    assert oracle.nmse(got, want) < 1e-10


def test_rope_and_alibi(device, rng):
    q, k, v = make(rng, n_q=7)
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    bias = -slopes[:, None, None] * abs(np.arange(7)[:, None] - np.arange(7))
    turned = oracle.rotate(q, 500.0, 6), oracle.rotate(k, 500.0, 6)
    want, _ = oracle.attention(*turned, v, bias=bias)
    rope = vkattn.Rope(6, base=500.0)
    got = vkattn.attention(q, k, v, rope=rope, alibi=slopes, device=device)
    assert oracle.nmse(got, want) < 1e-9


@pytest.mark.parametrize(
    "kind, want", [("zero", 0.0), ("uniform", None), ("nan", np.nan)], ids=lambda x: str(x)
)
def test_masked_row(device, rng, kind, want):
    q, k, v = make(rng)
    mask = np.ones((5, 7), bool)
    mask[3] = False
    got = vkattn.attention(q, k, v, mask=mask, masked_row=kind, device=device)[:, :, 3]
    if want is None:
        np.testing.assert_allclose(got, np.repeat(v.mean(2), 2, 1), rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


def test_strided_arrays(device, rng):
    q, k, v = make(rng)
    want = vkattn.attention(q, k, v, device=device)
    views = [np.asfortranarray(x)[::-1] for x in (q[::-1], k[::-1], v[::-1])]
    np.testing.assert_array_equal(vkattn.attention(*views, device=device), want)


def test_plan_runs_again_with_new_inputs(device, rng):
    q, k, v = (device.tensor(x) for x in make(rng))
    y = device.empty((2, 4, 5, 6))
    plan = vkattn.Plan(device, timestamps=True)
    plan.attention(q, k, v, y, causal=True)
    plan.finish()
    for _ in range(3):
        fresh = make(rng)
        for tensor, array in zip((q, k, v), fresh):
            tensor.write(array)
        plan.wait(plan.submit())
        want, _ = oracle.attention(*fresh, visible=oracle.causal(5, 7))
        assert oracle.nmse(y.read(), want) < 1e-10
    assert plan.passes() and all(p.kernel and p.reason for p in plan.passes())
    assert len(plan.describe().splitlines()) == len(plan.passes())
    assert plan.workspace > 0


def test_views_and_linear(device, rng):
    x = rng.standard_normal((3, 10), np.float32)
    w = rng.standard_normal((4, 10), np.float32)
    bias = rng.standard_normal(4, np.float32)
    given, out = device.tensor(x), device.empty((3, 4))
    plan = vkattn.Plan(device)
    plan.linear(given, device.tensor(w), out, bias=device.tensor(bias), relu_input=True)
    residual = device.tensor(np.full((3, 4), 7.5, np.float32))
    plan.linear(given, device.tensor(w), residual, accumulate=True)
    plan.finish().run()
    np.testing.assert_allclose(np.asarray(out), np.maximum(x, 0) @ w.T + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(residual), 7.5 + x @ w.T, rtol=1e-5, atol=1e-5)
    plan.run()  # adds once more
    np.testing.assert_allclose(np.asarray(residual), 7.5 + 2 * x @ w.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(given.permute(1, 0).read(), x.T)
    np.testing.assert_array_equal(given.slice(1, 2, 3).read(), x[:, 2:5])
    np.testing.assert_array_equal(given.reshape(5, 6).read(), x.reshape(5, 6))
    np.testing.assert_array_equal(given.strided(3, (2, 2), (10, 2)).read(), x[:2, 3:7:2])


@pytest.mark.parametrize("page_size", [0, 16])
def test_cache_decodes_like_the_whole(device, rng, page_size):
    q, k, v = make(rng, b=1, n_q=9, n_kv=9)
    want, _ = oracle.attention(q, k, v, visible=oracle.causal(9, 9))
    cache = vkattn.Cache(
        device, batch=1, n_kv_head=2, head_dim=8, value_dim=6, capacity=16, page_size=page_size
    )
    step = [device.empty(x[:, :, :1].shape) for x in (q, k, v)]
    y = device.empty((1, 4, 1, 6))
    plan = vkattn.Plan(device)
    plan.attention(*step, y, cache=cache, causal=True)
    plan.finish()
    for i in range(9):
        for tensor, array in zip(step, (q, k, v)):
            tensor.write(array[:, :, i : i + 1])
        plan.run()
        assert oracle.nmse(y.read(), want[:, :, i : i + 1]) < 1e-10
    assert cache.length() == 9
    cache.truncate(0, 4)
    assert cache.length(0) == 4
    cache.truncate()
    for _ in range(16):
        plan.run()
    with pytest.raises(vkattn.InvalidError, match="sequence 0"):
        plan.run()


def test_ragged(device, rng):
    q, k, v = make(rng, b=1, n_q=9, n_kv=9)
    y = device.empty((1, 4, 9, 6))
    starts = device.tensor(np.array([0, 4, 9], np.int32))
    plan = vkattn.Plan(device)
    plan.attention(*map(device.tensor, (q, k, v)), y, ragged=(starts, starts), causal=True)
    plan.finish().run()
    for rows in (slice(0, 4), slice(4, 9)):
        part = [x[:, :, rows] for x in (q, k, v)]
        n = part[0].shape[2]
        want, _ = oracle.attention(*part, visible=oracle.causal(n, n))
        assert oracle.nmse(y.read()[:, :, rows], want) < 1e-10


@pytest.mark.parametrize("page_size", [0, 16])
def test_ragged_cache(device, rng, page_size):
    """A prompt and tokens in one step, against each sequence over all that it has had."""
    cache = vkattn.Cache(
        device, batch=2, n_kv_head=2, head_dim=8, value_dim=6, capacity=20, page_size=page_size
    )
    q, k, v = (device.empty((1, h, 8, d)) for h, d in ((4, 8), (2, 8), (2, 6)))
    y, start = device.empty((1, 4, 8, 6)), device.empty((3,), "i32")
    plan = vkattn.Plan(device)
    plan.attention(q, k, v, y, cache=cache, ragged=start, causal=True)
    plan.finish()
    had = [[np.zeros((1, h, 0, d)) for h, d in ((4, 8), (2, 8), (2, 6))] for _ in range(2)]
    for lengths in ((5, 0), (1, 7), (1, 1), (0, 3)):
        start.write(np.cumsum([0, *lengths]).astype(np.int32))
        fresh = [rng.standard_normal(t.shape).astype(np.float32) for t in (q, k, v)]
        for tensor, x in zip((q, k, v), fresh):
            tensor.write(x)
        plan.run()
        got, first = y.read(), 0
        for s, n in enumerate(lengths):
            rows = slice(first, first + n)
            had[s] = [np.concatenate((a, b[:, :, rows]), 2) for a, b in zip(had[s], fresh)]
            total = had[s][0].shape[2]
            assert cache.length(s) == total
            if n:
                want, _ = oracle.attention(*had[s], visible=oracle.causal(total, total))
                assert oracle.nmse(got[:, :, rows], want[:, :, total - n :]) < 1e-10
            first += n
    with pytest.raises(TypeError):
        vkattn.Plan(device).attention(q, k, v, y, cache=cache, ragged=3)
    with pytest.raises(vkattn.InvalidError, match="cache has batch 2"):
        vkattn.Plan(device).attention(q, k, v, y, cache=cache)


@pytest.mark.parametrize("path", ["unfused", "fused"])
@pytest.mark.parametrize("n_q", [1, 3, 40])
def test_sink_of_minus_infinity(device, path, n_q):
    """It has no effect, where the scores of a row overflow to -inf, to +inf or to both, too."""
    signs = np.array([1, -1, 0, 1, -1], np.float32)
    for rows in (signs, abs(signs), -abs(signs), -np.ones(5, np.float32)):
        q = np.full((1, 1, n_q, 8), 1e20, np.float32)
        k = np.repeat(1e20 * rows, 8).reshape(1, 1, 5, 8)
        v = np.arange(40, dtype=np.float32).reshape(1, 1, 5, 8)
        options = {"path": path, "device": device}
        want = vkattn.attention(q, k, v, **options)
        sink = np.array([-np.inf], np.float32)
        got = vkattn.attention(q, k, v, sink=sink, **options)
        assert np.isnan(want).all() == (rows.max() != 0)
        np.testing.assert_array_equal(got, want)


def test_far_alibi(device):
    """Distances up to 2^24 count exactly; farther ones are rounded to float32, and so is the product."""
    slopes, n = np.array([1, 0.375], np.float32), 5
    q, k = np.zeros((3, 2, 2, 4), np.float32), np.zeros((3, 2, n, 4), np.float32)
    offsets = np.array([2**24 - 1, 2**30, -(2**30)], np.int32)
    far = np.abs(offsets[:, None, None] + np.arange(2)[:, None] - np.arange(n)).astype(np.float64)
    want = -slopes[:, None, None] * far[:, None]
    for path in ("fused", "unfused"):
        given = {"alibi": slopes, "query_offset": offsets, "scores": "bias", "path": path}
        got = vkattn.attention(q, k, k, device=device, **given)[1].astype(np.float64)
        np.testing.assert_array_equal(got[0, 0], want[0, 0])
        assert (np.abs(got - want) <= 2.0**-23 * np.abs(want)).all()
