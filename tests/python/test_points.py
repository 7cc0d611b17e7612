"""Points of operations that random draws do not meet."""

import numpy as np
import pytest

import vkattn


def run(device, add):
    with vkattn.Plan(device) as plan:
        add(plan)
        plan.finish().run()


@pytest.mark.parametrize("epsilon", [1e-5, 1e-31, 1e-38])
@pytest.mark.parametrize("n", [1, 2, 64])
def test_layer_norm_of_equal_rows(device, n, epsilon):
    """Equal values are their mean, however large they are and however small epsilon is."""
    sizes = [1e-30, -1.0, 2.0**50, -(2.0**100), 2.0**127]
    x = device.tensor(np.repeat(np.float32(sizes)[:, None], n, 1))
    bias = device.tensor(np.arange(n, dtype=np.float32))
    y, gradient = device.empty(x.shape), device.empty((n,))
    slope = device.tensor(np.ones(x.shape, np.float32))
    options = {"kind": "layer", "epsilon": epsilon}
    run(device, lambda plan: plan.norm(x, y, bias=bias, **options))
    np.testing.assert_array_equal(y.read(), np.broadcast_to(np.arange(n), y.shape))
    run(device, lambda plan: plan.norm_backward(x, slope, weight_gradient=gradient, **options))
    np.testing.assert_array_equal(gradient.read(), np.zeros(n))


@pytest.mark.parametrize("path", ["unfused", "fused"])
@pytest.mark.parametrize("n_q", [1, 40])
def test_extreme_softcaps(device, rng, path, n_q):
    """One far above all scores changes nothing; one far below takes all differences away."""
    q, k, v = (rng.standard_normal((1, 2, n, 16)).astype(np.float32) for n in (n_q, 50, 50))
    options = {"path": path, "device": device}
    plain = vkattn.attention(q, k, v, **options)
    for softcap in (1e30, 3e38):
        got = vkattn.attention(q, k, v, softcap=softcap, **options)
        np.testing.assert_allclose(got, plain, atol=3e-6, err_msg=f"{softcap}")
    mean = np.broadcast_to(v.astype(np.float64).mean(2, keepdims=True), plain.shape)
    for softcap in (1e-30, 1e-40):
        got = vkattn.attention(q, k, v, softcap=softcap, **options)
        np.testing.assert_allclose(got, mean, atol=3e-6, err_msg=f"{softcap}")
