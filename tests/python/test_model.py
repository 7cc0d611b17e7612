"""The operations around attention against numpy."""

import math

import numpy as np
import pytest

import vkattn


def run(device, add):
    plan = vkattn.Plan(device)
    add(plan)
    plan.finish()
    plan.run()


def test_norm(device, rng):
    x, r = rng.standard_normal((2, 2, 3, 20), np.float32)
    w, b = rng.standard_normal((2, 20), np.float32)
    given, residual, out = device.tensor(x), device.tensor(r), device.empty(x.shape)
    weight, bias = device.tensor(w), device.tensor(b)
    run(
        device,
        lambda p: p.norm(
            given, out, kind="layer", weight=weight, bias=bias, residual=residual, sum=residual
        ),
    )
    total = x.astype(np.float64) + r
    centered = total - total.mean(-1, keepdims=True)
    want = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * w + b
    assert np.abs(out.read() - want).max() < 1e-4
    assert np.array_equal(residual.read(), x + r)
    # Mamba-2's: the gate before the norm, each half of a row alone.
    rows, gates, flat = (device.tensor(a.reshape(6, 20)) for a in (x, r, x))
    run(device, lambda p: p.norm(rows, flat, weight=weight, gate=gates, gate_first=True, groups=2))
    gated = (x * r / (1 + np.exp(-r.astype(np.float64)))).reshape(6, 2, 10)
    want = gated / np.sqrt((gated**2).mean(-1, keepdims=True) + 1e-5)
    assert np.abs(flat.read() - want.reshape(6, 20) * w).max() < 1e-4


def test_gate_and_sums(device, rng):
    both = rng.standard_normal((3, 14), np.float32)
    given, out = device.tensor(both), device.empty((3, 7))
    gate, up = given.slice(1, 0, 7), given.slice(1, 7, 7)
    row = device.tensor(both[0, :7].copy())

    def add(plan):
        plan.activation(gate, out, "silu", multiplier=up)
        plan.multiply(out, row, out)
        plan.add(row, out, out)

    run(device, add)
    g, u = both[:, :7].astype(np.float64), both[:, 7:]
    assert np.abs(out.read() - (g / (1 + np.exp(-g)) * u * both[0, :7] + both[0, :7])).max() < 1e-5
    run(device, lambda p: p.activation(gate, out, "gelu"))
    erf = np.vectorize(math.erf)
    assert np.abs(out.read() - g * (1 + erf(g / math.sqrt(2))) / 2).max() < 1e-6


def test_merge(device, rng):
    x = rng.standard_normal((3, 2, 5, 4), np.float32)
    logs = rng.standard_normal((3, 2, 5), np.float32)
    logs[1, 0, 0] = -np.inf
    slices, sums = [device.tensor(one) for one in x], [device.tensor(one) for one in logs]
    output, total = device.empty((2, 5, 4)), device.empty((2, 5))
    run(device, lambda p: p.merge(slices, sums, output, log_sum_exp=total))
    weights = np.exp(logs.astype(np.float64))
    want = (weights[..., None] * x).sum(0) / weights.sum(0)[..., None]
    assert np.abs(output.read() - want).max() < 1e-6
    assert np.abs(total.read() - np.log(weights.sum(0))).max() < 1e-6
    with pytest.raises(vkattn.InvalidError, match="3 slices, but 2"):
        vkattn.Plan(device).merge(slices, sums[:2], output)


def test_rows(device, rng):
    table = rng.standard_normal((6, 5), np.float32)
    ids = device.tensor(np.array([[3, 0, 9], [5, -1, 3]], np.int32))
    rows, mean = device.empty((2, 3, 5)), device.empty((2, 5))
    cache = device.tensor(np.zeros((2, 4, 5), np.float32))
    lengths = device.tensor(np.array([2, 3], np.int32))
    positions = device.tensor(np.array([3, 0], np.int32))
    weights = device.tensor(table)

    def add(plan):
        plan.gather(weights, ids, rows, scale=2)
        plan.pool(rows, mean, lengths=lengths)
        plan.scatter(rows, cache, axis=1, positions=positions, circular=True)

    run(device, add)
    padded = np.concatenate([2 * table, np.zeros((1, 5), np.float32)])
    want = padded[np.array([[3, 0, 6], [5, 6, 3]])]
    assert np.array_equal(rows.read(), want)
    assert np.allclose(mean.read(), [want[0, :2].mean(0), want[1].mean(0)], atol=1e-6)
    zero = np.zeros(5, np.float32)
    assert np.array_equal(
        cache.read(), [[want[0, 1], want[0, 2], zero, want[0, 0]], [*want[1], zero]]
    )


@pytest.mark.parametrize("stride, padding", [(1, 1), (2, 1), (3, (0, 2)), (1, 4)])
def test_conv1d(device, rng, stride, padding):
    x = rng.standard_normal((2, 7, 5), np.float32)
    w, bias = rng.standard_normal((4, 3, 5), np.float32), rng.standard_normal(4, np.float32)
    pair = (padding, padding) if isinstance(padding, int) else padding
    padded = np.pad(x.astype(np.float64), ((0, 0), pair, (0, 0)))
    rows = (padded.shape[1] - 3) // stride + 1
    windows = np.stack([padded[:, t * stride : t * stride + 3] for t in range(rows)], axis=1)
    want = np.einsum("btjf,ojf->bto", windows, w) + bias
    given, weight, added = device.tensor(x), device.tensor(w), device.tensor(bias)
    y, z = device.empty(want.shape), device.empty(want.shape)

    def add(plan):
        plan.conv1d(given, weight, y, bias=added, stride=stride, padding=padding)
        plan.conv1d(given, weight, z, stride=stride, padding=padding, activation="relu")

    run(device, add)
    np.testing.assert_allclose(y.read(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z.read(), np.maximum(want - bias, 0), rtol=1e-5, atol=1e-5)


def test_rotary(device, rng):
    x = rng.standard_normal((1, 2, 3, 4), np.float32)
    given, out = device.tensor(x), device.empty(x.shape)
    positions = device.tensor(np.array([[5, 0, 7]], np.int32))
    frequencies = [1.0, 0.25]
    run(device, lambda p: p.rotary(given, out, positions=positions, frequencies=frequencies))
    angle = np.array([5, 0, 7])[:, None] * np.array(frequencies)
    a, b = x[..., :2], x[..., 2:]
    want = np.concatenate(
        [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1
    )
    assert np.abs(out.read() - want).max() < 1e-5


def test_tokens(device, rng):
    logits = rng.standard_normal((2, 50), np.float32)
    given, step = device.tensor(logits), device.tensor(np.array([7], np.int32))
    greedy, drawn = device.empty((2,), "i32"), device.empty((2,), "i32")

    def add(plan):
        plan.argmax(given, greedy)
        plan.sample(given, drawn, temperature=0.8, top_k=3, seed=2**40 + 1, step=step)

    run(device, add)
    assert np.array_equal(greedy.read(), logits.argmax(-1))
    best = np.argsort(-logits, -1)[:, :3]
    assert all(drawn.read()[i] in best[i] for i in range(2))
    assert step.read()[0] == 8


def test_draws_of_rows(device, rng):
    """Rows with steps and seeds of their own: what counts is these, not the place."""
    row = rng.standard_normal((1, 200), np.float32)
    given, drawn = device.tensor(np.repeat(row, 5, 0)), device.empty((5,), "i32")
    step = device.tensor(np.array([3, 8, 3, 3, 8], np.int32))
    words = np.array([[1, 0], [1, 0], [1, 0], [1, 1], [1, 0]], np.int32)
    seeds = device.tensor(words)
    found = []
    for _ in range(6):
        run(device, lambda p: p.sample(given, drawn, temperature=2.0, step=step, seeds=seeds))
        found.append(drawn.read())
    found = np.array(found)
    assert np.array_equal(found[:, 0], found[:, 2]) and np.array_equal(found[:, 1], found[:, 4])
    assert np.array_equal(found[5:, 0], found[:1, 1])  # after five draws
    assert not np.array_equal(found[:, 0], found[:, 3])
    assert np.array_equal(step.read(), [9, 14, 9, 9, 14])
    one = device.empty((1,), "i32")
    run(device, lambda p: p.sample(device.tensor(row), one, temperature=2.0, seed=1,
                                   step=device.tensor(np.array([3], np.int32))))
    assert one.read()[0] == found[0, 0]  # as alone


def test_refused(device):
    x, y = device.empty((2, 4)), device.empty((2, 4))
    plan = vkattn.Plan(device)
    heads = x.reshape(1, 1, 2, 4)
    for call, sentence in (
        (lambda: plan.norm(x, y, kind="batch"), "kind: expected one of"),
        (lambda: plan.norm(x, y, axes=3), "axes is 3"),
        (lambda: plan.activation(x, y, "swash"), "kind: expected one of"),
        (lambda: plan.rotary(heads, heads, frequencies=[1.0]), "expected 2 numbers"),
        (lambda: plan.argmax(x, y), "output is f32, not i32"),
        (lambda: plan.sample(x, y, top_p=2), "top_p is 2"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            call()
    with pytest.raises(TypeError):
        plan.add(x, None, y)
