"""Gradients, losses and optimisers against differences of the double oracle and against numpy."""

import numpy as np
import pytest

import oracle
import vkattn


def test_attention_backward(device, rng):
    shapes = {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 6)}
    x = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    mask = rng.standard_normal((5, 7)).astype(np.float32)
    weight = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
    q, k, v = (device.tensor(x[name]) for name in "qkv")
    out, sums = device.empty(weight.shape), device.empty(weight.shape[:3])
    options = {"mask": device.tensor(mask), "softcap": 3.0, "window": (3, 4)}
    gradients = {name: device.empty(shape) for name, shape in shapes.items()}
    bias = device.tensor(np.full_like(mask, 2))
    plan = vkattn.Plan(device)
    plan.attention(q, k, v, out, log_sum_exp=sums, **options)
    plan.attention_backward(
        *(q, k, v, out, device.tensor(weight)),
        log_sum_exp=sums,
        mask_gradient=vkattn.Accumulate(bias),
        **{name + "_gradient": tensor for name, tensor in gradients.items()},
        **options,
    )
    plan.finish()
    plan.run()

    distance = np.arange(5)[:, None] - np.arange(7)
    near = (distance <= 3) & (-distance <= 4)

    def loss(**moved):
        given = {**x, "mask": mask, **moved}
        y, _ = oracle.attention(
            given["q"], given["k"], given["v"], visible=near, bias=given["mask"], softcap=3.0
        )
        return float((y * weight).sum())

    got = {name: tensor.read() for name, tensor in gradients.items()}
    got["mask"] = bias.read() - 2
    for name, gradient in got.items():
        base = (mask if name == "mask" else x[name]).astype(np.float64)
        step = rng.standard_normal(base.shape)
        moved = [loss(**{name: base + sign * 1e-5 * step}) for sign in (1, -1)]
        want = (moved[0] - moved[1]) / 2e-5
        assert abs((gradient * step).sum() - want) < 1e-4 * max(1, abs(want)), name


def test_steps_of_a_classifier(device, rng):
    """Linear, ReLU, cross-entropy and Adam, ten steps, beside numpy in double."""
    x = rng.standard_normal((6, 5)).astype(np.float32)
    labels = rng.integers(0, 3, 6).astype(np.int32)
    start = rng.standard_normal((3, 5)).astype(np.float32)
    given, target, loss = device.tensor(x), device.tensor(labels), device.empty((1,))
    w, hidden, logits = device.tensor(start), device.empty(x.shape), device.empty((6, 3))
    dw, dh, norm = device.empty(start.shape), device.empty(x.shape), device.empty((1,))
    zeros = np.zeros_like(start)
    moments = device.tensor(zeros), device.tensor(zeros)
    step = device.tensor(np.zeros(1, np.int32))
    plan = vkattn.Plan(device)
    plan.activation(given, hidden, "relu")
    plan.linear(hidden, w, logits)
    plan.cross_entropy(logits, target, loss, gradient=logits)
    plan.linear_backward(logits, input=hidden, weight=w, weight_gradient=dw, input_gradient=dh)
    plan.activation_backward(given, dh, "relu", input_gradient=dh)
    plan.clip([dw], 1e9, norm)
    plan.optimiser("adam", [vkattn.Parameter(w, dw, *moments)], 0.1, step=step)
    plan.finish()

    want, first, second = start.astype(np.float64), 0.0, 0.0
    for i in range(1, 11):
        plan.run()
        relu = np.maximum(x.astype(np.float64), 0)
        z = relu @ want.T
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        assert abs(loss.read()[0] + np.log(p[np.arange(6), labels]).mean()) < 1e-5
        gradient = (p - np.eye(3)[labels]) / 6
        assert np.abs(dh.read() - (gradient @ want) * (x > 0)).max() < 1e-5
        dw64 = gradient.T @ relu
        assert abs(norm.read()[0] - np.sqrt((dw64**2).sum())) < 1e-5
        first, second = 0.9 * first + 0.1 * dw64, 0.999 * second + 0.001 * dw64**2
        root = np.sqrt(second / (1 - 0.999**i)) + 1e-8
        want -= 0.1 * first / (1 - 0.9**i) / root
        assert np.abs(w.read() - want).max() < 1e-4
    assert step.read()[0] == 10


@pytest.mark.parametrize("layout", ["bsd", "sbd"])
def test_layer_backward(device, rng, layout):
    """Weights in tensors, cross-attention with one tensor for keys and values, against differences."""
    batch, n_q, n_kv, heads = 2, 3, 4, 2
    shapes = {"query": (8, 6), "key": (8, 5), "value": (8, 5), "output": (7, 8)}
    w = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    b = {name: rng.standard_normal(shapes[name][0]).astype(np.float32) for name in ("key", "output")}
    x = rng.standard_normal((batch, n_q, 6)).astype(np.float32)
    m = rng.standard_normal((batch, n_kv, 5)).astype(np.float32)
    dy = rng.standard_normal((batch, n_q, 7)).astype(np.float32)

    def lies(array):
        return array if layout == "bsd" else np.ascontiguousarray(array.swapaxes(0, 1))

    tensors = {name: device.tensor(array) for name, array in w.items()}
    biases = {name: device.tensor(array) for name, array in b.items()}
    layer = vkattn.Layer(
        device,
        n_head=heads,
        layout=layout,
        causal=True,
        **{name: (tensor, biases.get(name)) for name, tensor in tensors.items()},
    )
    tx, tm, tdy = (device.tensor(lies(array)) for array in (x, m, dy))
    y, dx, dm = device.empty(tdy.shape), device.empty(tx.shape), device.tensor(lies(m))
    dw = {name: device.empty(shape) for name, shape in shapes.items()}
    db = {name: device.empty(array.shape) for name, array in b.items()}
    plan = vkattn.Plan(device)
    plan.layer(layer, tx, y, key=tm)
    plan.layer_backward(
        *(layer, tx, y, tdy),
        key=tm,
        query_gradient=dx,
        key_gradient=vkattn.Accumulate(dm),
        **{f"{name}_weights": (dw[name], db.get(name)) for name in shapes},
    )
    plan.finish().run()

    def forward(g):
        def project(name, rows):
            return rows @ g[name].T + g.get(f"{name}_bias", 0)

        def split(rows):
            return rows.reshape(batch, -1, heads, 4).swapaxes(1, 2)

        q = split(project("query", g["x"]))
        k, v = (split(project(name, g["m"])) for name in ("key", "value"))
        near = np.arange(n_q)[:, None] >= np.arange(n_kv)
        context, _ = oracle.attention(q, k, v, visible=near)
        return project("output", context.swapaxes(1, 2).reshape(batch, n_q, -1))

    given = {**w, **{f"{name}_bias": array for name, array in b.items()}, "x": x, "m": m}
    given = {name: array.astype(np.float64) for name, array in given.items()}
    assert np.abs(lies(forward(given)) - y.read()).max() < 1e-5
    got = {name: tensor.read() for name, tensor in dw.items()}
    got |= {f"{name}_bias": tensor.read() for name, tensor in db.items()}
    got |= {"x": lies(dx.read()), "m": lies(dm.read()) - m}
    for name, gradient in got.items():
        step = rng.standard_normal(gradient.shape)
        moved = [
            (forward({**given, name: given[name] + sign * 1e-5 * step}) * dy).sum()
            for sign in (1, -1)
        ]
        want = (moved[0] - moved[1]) / 2e-5
        assert abs((gradient * step).sum() - want) < 1e-4 * max(1, abs(want)), name

    tensors["output"].write(np.zeros_like(w["output"]))
    plan.run()  # reads what the tensors hold now
    assert np.abs(y.read() - b["output"]).max() < 1e-6


def test_other_backwards(device, rng):
    a, b, g = rng.standard_normal((3, 4, 6)).astype(np.float32)
    ids = np.array([2, 0, 2, 1], np.int32)
    ta, tb, tg = (device.tensor(x) for x in (a, b, g))
    da, db, dn, dt = (device.empty((4, 6)) for _ in range(4))
    row, loss = device.tensor(np.ones(6, np.float32)), device.empty((1,))
    drow, error = device.empty((6,)), device.empty((4, 6))
    plan = vkattn.Plan(device)
    plan.multiply_backward(tg, a=ta, b=tb, a_gradient=da, b_gradient=db)
    plan.add_backward(tg, b_gradient=drow)
    plan.norm_backward(ta, tg, kind="rms", weight=row, input_gradient=dn)
    plan.gather_backward(device.tensor(ids), tg, dt, scale=2)
    plan.square_error(ta, tb, loss, gradient=error)
    plan.optimiser("sgd", [vkattn.Parameter(row, drow)], 0.5)
    plan.finish().run()
    assert np.abs(da.read() - g * b).max() < 1e-6 and np.abs(db.read() - g * a).max() < 1e-6
    assert np.abs(drow.read() - g.sum(0)).max() < 1e-5
    a64, g64 = a.astype(np.float64), g.astype(np.float64)
    r = 1 / np.sqrt((a64**2).mean(-1, keepdims=True) + 1e-5)
    want = r * (g64 - a64 * r * r * (g64 * a64).mean(-1, keepdims=True))
    assert np.abs(dn.read() - want).max() < 1e-5
    table = np.zeros((4, 6))
    np.add.at(table, ids, 2 * g64)
    assert np.abs(dt.read() - table).max() < 1e-5
    assert abs(loss.read()[0] - ((a64 - b) ** 2).mean()) < 1e-5
    assert np.abs(error.read() - 2 * (a64 - b) / a.size).max() < 1e-6
    assert np.abs(row.read() - (1 - 0.5 * g64.sum(0))).max() < 1e-5


def test_layer_refused(device):
    square, row = device.empty((8, 8)), device.empty((8,))
    given = {"query": square, "key": square, "value": (square, row)}
    with pytest.raises(vkattn.InvalidError, match="one place"):
        vkattn.Layer(device, n_head=2, **given, output=np.zeros((8, 8), np.float32))
    with pytest.raises(vkattn.InvalidError, match="keep_weights"):
        vkattn.Layer(device, n_head=2, **given, keep_weights=True)
    with pytest.raises(vkattn.InvalidError, match="value"):
        vkattn.Layer(device, n_head=2, **{**given, "value": (square, device.empty((4,)))})
    with pytest.raises(TypeError, match="bias"):
        vkattn.Layer(device, n_head=2, **{**given, "value": (square, np.zeros(8, np.float32))})
    with pytest.raises(vkattn.UnsupportedError, match="bias_kv"):
        vkattn.Layer(device, n_head=2, **given, bias_kv=(np.zeros(8), np.zeros(8)))
    layer = vkattn.Layer(device, n_head=2, **given)
    x, y = device.empty((1, 3, 8)), device.empty((1, 3, 8))
    plan = vkattn.Plan(device)
    with pytest.raises(vkattn.InvalidError, match="no gradient"):
        plan.layer_backward(layer, x, y, y)
    with pytest.raises(vkattn.InvalidError, match="key_gradient"):
        plan.layer_backward(layer, x, y, y, key_gradient=device.empty((1, 3, 8)))
    with pytest.raises(vkattn.InvalidError, match="query_weights.bias"):
        plan.layer_backward(layer, x, y, y, query_weights=(None, row))


def test_refused(device):
    x, loss = device.empty((2, 3)), device.empty((1,))
    plan = vkattn.Plan(device)
    with pytest.raises(vkattn.InvalidError, match="optimiser|kind"):
        plan.optimiser("adagrad", [vkattn.Parameter(x, x)], 0.1)
    with pytest.raises(vkattn.InvalidError, match="step"):
        plan.optimiser("adam", [vkattn.Parameter(x, device.empty((2, 3)))], 0.1)
    with pytest.raises(vkattn.InvalidError, match="gradients"):
        plan.clip([], 1.0, loss)
    with pytest.raises(TypeError, match="input"):
        plan.activation_backward("x", x, "relu")
    with pytest.raises(vkattn.InvalidError, match="mask"):
        q = device.empty((1, 1, 2, 4))
        out, sums, hidden = (device.empty(n) for n in ((1, 1, 2, 4), (1, 1, 2), (2, 2)))
        plan.attention_backward(
            q, q, q, out, out, log_sum_exp=sums, mask=np.ones((2, 2), bool), mask_gradient=hidden
        )


def test_bindings_of_norm_gradients(device):
    """Sums are refused where 2,048 rows reach further than a binding; rows are cut."""
    with vkattn.Device(device.info.index, max_buffer_range=2**16, skip_self_test=True) as small:
        for rows, fits in ((256, True), (257, False), (5000, False)):
            x = small.tensor(np.ones((rows, 64), np.float32))
            for name, shape in (
                ("weight_gradient", (64,)),
                ("bias_gradient", (64,)),
                ("input_gradient", (rows, 64)),
            ):
                plan = vkattn.Plan(small)
                gradient = {name: small.empty(shape)}
                if fits or name == "input_gradient":
                    plan.norm_backward(x, x, **gradient)
                    continue
                with pytest.raises(vkattn.UnsupportedError, match="the device allows 65536"):
                    plan.norm_backward(x, x, **gradient)
