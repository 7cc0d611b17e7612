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
