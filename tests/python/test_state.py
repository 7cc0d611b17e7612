"""Layers with a state against numpy."""

import numpy as np
import pytest

import vkattn


def step(device, add):
    plan = vkattn.Plan(device)
    add(plan)
    plan.finish()
    plan.run()


def test_causal_conv(device, rng):
    """Two runs, the second of which continues the first, are one."""
    x, w = rng.standard_normal((2, 9, 5), np.float32), rng.standard_normal((5, 3), np.float32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (2, 0), (0, 0)))
    want = sum(padded[:, j : j + 9] * w[:, j] for j in range(3))
    given, weight, output = device.tensor(x), device.tensor(w), device.empty(x.shape)
    kept = device.tensor(np.zeros((2, 5, 2), np.float32))
    for first, n in ((0, 4), (4, 5)):
        rows, result = given.slice(1, first, n), output.slice(1, first, n)
        step(device, lambda p: p.causal_conv(rows, weight, result, past=kept, present=kept))
    np.testing.assert_allclose(output.read(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(kept.read(), x[:, -2:].transpose(0, 2, 1))


def test_cache(device, rng):
    """A layer of a cache holds the state: two runs are one, a copy goes on, and 0 empties it."""
    x, w = rng.standard_normal((1, 4, 3), np.float32), rng.standard_normal((3, 3), np.float32)
    given, weight = device.tensor(x), device.tensor(w)
    whole, output = device.empty(x.shape), device.empty((2, 2, 3))
    step(device, lambda p: p.causal_conv(given, weight, whole))
    layers = [vkattn.CacheLayer(channels=3, conv_rows=2), vkattn.CacheLayer(1, 4)]
    cache = vkattn.Cache(device, batch=2, capacity=8, layers=layers)
    rows, counts = device.empty((2, 2, 3)), device.tensor(np.array([2, 0], np.int32))
    plan = vkattn.Plan(device)
    plan.causal_conv(rows, weight, output, cache=cache, lengths=counts)
    plan.finish()

    def run(first, *n):
        rows.write(np.repeat(x[:, first : first + 2], 2, 0))
        counts.write(np.array(n, np.int32))
        plan.run()
        return output.read()

    np.testing.assert_array_equal(run(0, 2, 0)[0], whole.read()[0, :2])
    cache.fork(0, 1)
    assert [cache.length(b) for b in range(2)] == [2, 2]
    cache.truncate(0)
    found = run(2, 2, 2)
    np.testing.assert_array_equal(found[1], whole.read()[0, 2:])
    assert abs(found[0] - found[1]).max() > 0.01
    with pytest.raises(vkattn.InvalidError, match="expected 0 or 4"):
        cache.truncate(1, 3)
    with pytest.raises(vkattn.InvalidError, match="past or present is given, but the cache"):
        kept = device.empty((2, 3, 2))
        vkattn.Plan(device).causal_conv(rows, weight, output, cache=cache, past=kept)
    with pytest.raises(TypeError, match="layers: n_layer, n_kv_head and head_dim are those"):
        vkattn.Cache(device, batch=1, capacity=8, head_dim=4, layers=layers)
    with pytest.raises(TypeError, match="expected n_kv_head and head_dim, or layers"):
        vkattn.Cache(device, batch=1, capacity=8)
    with pytest.raises(vkattn.InvalidError, match=r"layers\[0\].n_kv_head, n_state and channels"):
        vkattn.Cache(device, batch=1, capacity=8, layers=[vkattn.CacheLayer()])


def test_packed_steps(device, rng):
    """Steps of packed rows with a cache, of which a step has none of one sequence or keeps fewer than it
    has, give the bits of each sequence alone."""
    sizes = {"q": (2, 4), "k": (2, 4), "v": (2, 3), "decay": (2,), "beta": (2,)}
    whole, got = [], np.zeros((2, 2, 7, 3), np.float32)
    rows = [{n: rng.random((s[0], 7, *s[1:]), np.float32) - 0.5 for n, s in sizes.items()} for _ in "12"]
    for r in rows:
        r["decay"] -= 0.5
        r["beta"] += 0.5
        alone = {n: device.tensor(a[None]) for n, a in r.items()}
        output = device.empty((1, 2, 7, 3))
        step(device, lambda p: p.linear_attention(**alone, output=output, rule="gated_delta"))
        whole.append(output.read()[0])
    cache = vkattn.Cache(device, batch=2, capacity=7, layers=[vkattn.CacheLayer(0, 4, 3, n_state=2)])
    given = {n: device.empty((1, s[0], 5, *s[1:])) for n, s in sizes.items()}
    starts, kept = device.tensor(np.zeros(3, np.int32)), device.tensor(np.zeros(2, np.int32))
    output, plan, done = device.empty((1, 2, 5, 3)), vkattn.Plan(device), [0, 0]
    gates = {"cache": cache, "q_start": starts, "lengths": kept, "rule": "gated_delta"}
    plan.linear_attention(**given, output=output, **gates)
    plan.finish()
    for had, keeps in (((3, 1), (3, 0)), ((1, 4), (1, 4)), ((0, 5), (0, 3)), ((3, 0), (3, 0))):
        first = np.cumsum((0, *had))
        for name, tensor in given.items():
            packed = np.full(tensor.shape, np.nan, np.float32)
            for i in range(2):
                packed[0, :, first[i] : first[i] + keeps[i]] = rows[i][name][
                    :, done[i] : done[i] + keeps[i]
                ]
            tensor.write(packed)
        starts.write(first.astype(np.int32))
        kept.write(np.array(keeps, np.int32))
        plan.run()
        for i in range(2):
            end = done[i] + keeps[i]
            got[i, :, done[i] : end] = output.read()[0, :, first[i] : first[i] + keeps[i]]
            done[i] = end
            assert cache.length(i) == end
    np.testing.assert_array_equal(got, whole)


def test_linear_attention(device, rng):
    q, k = rng.standard_normal((2, 1, 2, 7, 4), np.float32) / 2
    v = rng.standard_normal((1, 2, 7, 3), np.float32)
    decay = -rng.random((1, 2, 7), np.float32)
    beta = rng.random((1, 2, 7), np.float32)
    state, want = np.zeros((2, 4, 3)), np.zeros(v.shape)
    for t in range(7):
        state *= np.exp(decay[0, :, t, None, None].astype(np.float64))
        told = np.einsum("hi,hij->hj", k[0, :, t], state)
        written = beta[0, :, t, None] * (v[0, :, t] - told)
        state += k[0, :, t, :, None] * written[:, None]
        want[0, :, t] = 0.5 * np.einsum("hi,hij->hj", q[0, :, t], state)
    tensors = [device.tensor(a) for a in (q, k, v)]
    gates = {"decay": device.tensor(decay), "beta": device.tensor(beta)}
    output, present = device.empty(v.shape), device.empty((1, 2, 4, 3))
    step(
        device,
        lambda p: p.linear_attention(
            *tensors, output, rule="gated_delta", **gates, present_state=present
        ),
    )
    np.testing.assert_allclose(output.read(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(present.read()[0], state, rtol=1e-4, atol=1e-5)
    front = {"beta_sigmoid": True, "norm_epsilon": 1e-6, "decay_steps": True, "step_max": 0.75}
    front |= {"decay_log": device.tensor(np.full(2, 0.5, np.float32))}
    front |= {"decay_bias": device.tensor(np.full(2, 0.25, np.float32))}
    front |= {"skip": device.tensor(np.full(2, 2, np.float32))}
    steps = np.minimum(np.logaddexp(0, decay + 0.25), 0.75)
    scaled = np.exp(-np.exp(0.5) * steps)
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    state = np.zeros((2, 4, 3))
    for t in range(7):
        state *= scaled[0, :, t, None, None]
        told = np.einsum("hi,hij->hj", k[0, :, t], state)
        written = (v[0, :, t] * steps[0, :, t, None] - told) / (1 + np.exp(-beta[0, :, t, None]))
        state += k[0, :, t, :, None] * written[:, None]
        want[0, :, t] = 0.5 * np.einsum("hi,hij->hj", q[0, :, t], state) + 2 * v[0, :, t]
    step(
        device,
        lambda p: p.linear_attention(*tensors, output, rule="gated_delta", **gates, **front),
    )
    np.testing.assert_allclose(output.read(), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(vkattn.InvalidError, match="decay is given"):
        vkattn.Plan(device).linear_attention(*tensors, output, rule="delta", **gates)
    with pytest.raises(vkattn.InvalidError, match="rule: expected one of linear"):
        vkattn.Plan(device).linear_attention(*tensors, output, rule="other")


def test_far_rows(device, rng):
    """Many ragged sequences with rows further apart than each has: the first row of each sees itself alone."""
    n, channels, width = 256, 512, 2
    x = rng.standard_normal((1, n, channels), np.float32)
    w = rng.standard_normal((channels, width), np.float32)
    output, starts = device.empty(x.shape), device.tensor(np.arange(n + 1, dtype=np.int32))
    given, weight = device.tensor(x), device.tensor(w)
    step(device, lambda p: p.causal_conv(given, weight, output, dilation=1 << 16, q_start=starts))
    np.testing.assert_array_equal(output.read(), x * w[:, 1])


def test_slope_of_beta(device):
    """Where beta = sigmoid(x) is 1 or nearly, its slope is not 0."""
    x = np.array([-80, -20, -10, 0, 4, 8, 12, 16, 17, 20, 60], np.float32)
    one, shape = np.ones((len(x), 1, 1, 1), np.float32), (len(x), 1, 1)
    q, k, v, dy = (device.tensor(one) for _ in range(4))
    options = {"rule": "delta", "beta_sigmoid": True, "scale": 1.0}
    beta, found = device.tensor(x.reshape(shape)), device.empty(shape)
    step(
        device,
        lambda p: p.linear_attention_backward(
            q, k, v, device.empty(one.shape), dy, beta=beta, beta_gradient=found, **options
        ),
    )
    wide = x.astype(np.float64)
    want = 1 / (1 + np.exp(-wide)) / (1 + np.exp(wide))
    np.testing.assert_allclose(found.read().ravel(), want, rtol=1e-6)


def test_no_step(device):
    """A step of 0 decays nothing, however large e^decay_log is."""
    one = np.ones((1, 1, 3, 1), np.float32)
    q, k, v = (device.tensor(one) for _ in range(3))
    output, decay = device.empty(one.shape), device.tensor(np.full((1, 1, 3), -200, np.float32))
    log = device.tensor(np.array([95], np.float32))
    step(
        device,
        lambda p: p.linear_attention(
            q, k, v, output, rule="gated", decay=decay, decay_log=log, scale=1.0
        ),
    )
    np.testing.assert_array_equal(output.read().ravel(), [1, 2, 3])


@pytest.mark.parametrize("n", [5, 128])
def test_long_keys(device, rng, n):
    """Keys of any length are divided by it before they meet a large state."""
    x = rng.standard_normal((3, 1, 1, n, 8), np.float32)
    q, k, v = x[0], x[1] * np.float32(1e16), x[2] * np.float32(1e24)
    beta = rng.random((1, 1, n), np.float32)
    gates = {"beta": device.tensor(beta), "norm_epsilon": 1e-6, "scale": 1.0, "rule": "delta"}
    tensors, output = [device.tensor(a) for a in (q, k, v)], device.empty(v.shape)
    step(device, lambda p: p.linear_attention(*tensors, output, **gates))
    q, k = (a.astype(np.float64) / np.sqrt((a.astype(np.float64) ** 2).sum(-1, keepdims=True)) for a in (q, k))
    state, want = np.zeros((8, 8)), np.zeros(v.shape)
    for t in range(n):
        written = beta[0, 0, t] * (v[0, 0, t] - k[0, 0, t] @ state)
        state += np.outer(k[0, 0, t], written)
        want[0, 0, t] = q[0, 0, t] @ state
    np.testing.assert_allclose(output.read(), want, rtol=1e-3, atol=1e-5 * np.abs(want).max())
