"""Numbers that are 0 count as 0; those that no C type holds are refused by their name."""

import numpy as np
import pytest

import vkattn


SIZES = {"batch": 1, "n_kv_head": 2, "head_dim": 8, "capacity": 16}


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 8)).astype(np.float32)


@pytest.fixture
def q(rng):
    return rng.standard_normal((1, 2, 5, 4)).astype(np.float32)


def run(device, add, shape):
    output = device.empty(shape)
    with vkattn.Plan(device) as plan:
        add(plan, output)
        plan.finish().run()
    return output.read()


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- Zeros --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["unfused", "fused"])
@pytest.mark.parametrize("scale", [0.0, -0.0, 0])
def test_scale(device, q, path, scale):
    got = vkattn.attention(q, q, q, scale=scale, causal=True, path=path, device=device)
    mean = np.cumsum(q, 2, dtype=np.float64) / np.arange(1, 6)[:, None]
    np.testing.assert_allclose(got, mean, atol=1e-5)


@pytest.mark.parametrize("path", ["unfused", "fused"])
def test_head_norm(device, q, path):
    small, one = q * np.float32(1e-3), np.ones(4, np.float32)
    options = {"q_norm": one, "k_norm": one, "path": path, "device": device}
    z = small.astype(np.float64)
    for epsilon in (0.0, 1e-6, None):
        got = vkattn.attention(small, small, q, norm_epsilon=epsilon, **options)
        added = 1e-6 if epsilon is None else epsilon
        n = z / np.sqrt((z * z).mean(-1, keepdims=True) + added)
        np.testing.assert_allclose(got, softmax(n @ n.swapaxes(-1, -2) / 2) @ q, atol=1e-5)


def test_layer_options(device, rng):
    """What a layer is made with counts as 0 too."""
    x = rng.standard_normal((1, 4, 8)).astype(np.float32)
    eye = np.eye(8, dtype=np.float32)
    layer = vkattn.Layer(device, n_head=2, query=eye, key=eye, value=eye, scale=0.0)
    mean = np.broadcast_to(x.mean(1, keepdims=True), x.shape)
    np.testing.assert_allclose(layer(x), mean, atol=1e-6)
    np.testing.assert_allclose(layer(x, scale=0), layer(x), atol=0)
    assert np.abs(layer(x, scale=1.0) - layer(x)).max() > 1e-2


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm(device, x, kind):
    small = device.tensor(x * np.float32(1e-3))
    y = small.read().astype(np.float64)
    y -= y.mean(-1, keepdims=True) if kind == "layer" else 0
    got = run(device, lambda p, o: p.norm(small, o, kind=kind, epsilon=0.0), x.shape)
    unit = y / np.sqrt((y * y).mean(-1, keepdims=True))
    np.testing.assert_allclose(got, unit, atol=1e-5)
    # A gradient of a scaled row has no share along it: d y / d x of a unit row times the row is 0.
    dx = device.empty(x.shape)
    with vkattn.Plan(device) as plan:
        plan.norm_backward(small, device.tensor(got), kind=kind, epsilon=0.0, input_gradient=dx)
        plan.finish().run()
    assert np.abs(dx.read()).max() < 1e-2  # about 1e3 / 10 with an epsilon of 1e-5


def test_gather(device, x):
    table, ids = device.tensor(x), device.tensor(np.array([1, 0], np.int32))
    got = run(device, lambda p, o: p.gather(table, ids, o, scale=0.0), x.shape)
    np.testing.assert_array_equal(got, 0 * x)
    sums = device.tensor(x)
    with vkattn.Plan(device) as plan:
        plan.gather_backward(ids, table, sums, scale=0.0)
        plan.finish().run()
    np.testing.assert_array_equal(sums.read(), 0 * x)


def test_losses(device, x):
    a, labels = device.tensor(x), device.tensor(np.array([1, 2], np.int32))
    b, loss, gradient = device.tensor(x[::-1].copy()), device.empty((1,)), device.tensor(x)
    with vkattn.Plan(device) as plan:
        plan.cross_entropy(a, labels, loss, gradient=gradient, gradient_scale=0.0)
        plan.finish().run()
    np.testing.assert_array_equal(gradient.read(), 0 * x)
    gradient.write(x)
    with vkattn.Plan(device) as plan:
        plan.square_error(a, b, loss, gradient=gradient, gradient_scale=0)
        plan.finish().run()
    np.testing.assert_array_equal(gradient.read(), 0 * x)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("betas", [(0.0, 0.99), (0.9, 0.0), (0.0, 0.0), (0.9, 0.999)])
@pytest.mark.parametrize("epsilon", [0.0, 1e-8])
def test_adam(device, rng, kind, betas, epsilon):
    w, steps = rng.standard_normal(6).astype(np.float32), rng.standard_normal((3, 6))
    tensors = [device.tensor(v.astype(np.float32)) for v in (w, w, 0 * w, 0 * w)]
    parameter = vkattn.Parameter(*tensors)
    step = device.tensor(np.zeros(1, np.int32))
    plan = vkattn.Plan(device)
    plan.optimiser(kind, [parameter], 0.1, betas=betas, epsilon=epsilon, step=step)
    plan.finish()
    m = v = np.zeros(6)
    want = w.astype(np.float64)
    for t, g in enumerate(steps.astype(np.float32), 1):
        parameter.gradient.write(g)
        plan.run()
        g = g.astype(np.float64)
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        want -= 0.1 * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + epsilon)
    np.testing.assert_allclose(parameter.tensor.read(), want, atol=1e-5)


def test_top_p(device, x):
    logits = device.tensor(x)
    for seed in range(5):
        got = device.empty((2,), "i32")
        with vkattn.Plan(device) as plan:
            plan.sample(logits, got, temperature=5.0, top_p=0.0, seed=seed)
            plan.finish().run()
        np.testing.assert_array_equal(got.read(), x.argmax(-1))


NUMBERS = [0.0, -0.0, 1e-30, -1e-30, 0.25, -2.0, 1e30, -1e30, 3e38, np.nan, np.inf, -np.inf]


def counts(name, allowed, number, call):
    """call(), of a number that means something; None where it is refused, by its name."""
    if allowed(number):
        return call()
    with pytest.raises(vkattn.InvalidError, match=name):
        call()
    return None


@pytest.mark.parametrize("number", NUMBERS)
def test_each_number_counts_or_is_refused(device, x, number):
    """None is taken for another: neither for a default nor for one that is in range."""
    data, ids = device.tensor(x), device.tensor(np.array([1, 0], np.int32))
    wide, n = x.astype(np.float64), np.float64(np.float32(number))
    from_0 = lambda v: np.isfinite(v) and v >= 0  # noqa: E731

    def close(got, want):
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got, want.astype(np.float32), rtol=2e-6, atol=1e-37)

    def gradient(**more):
        to, loss = device.tensor(7 * x), device.empty((1,))
        with vkattn.Plan(device) as plan:
            target = device.tensor(x[::-1].copy())
            plan.square_error(data, target, loss, gradient=to, **more)
            plan.finish().run()
        return to.read()

    got = counts(
        "scale",
        np.isfinite,
        number,
        lambda: run(device, lambda p, o: p.gather(data, ids, o, scale=number), x.shape),
    )
    if got is not None:
        close(got, wide[[1, 0]] * n)
    got = counts("gradient_scale", np.isfinite, number, lambda: gradient(gradient_scale=number))
    if got is not None:
        close(got, (x - x[::-1]).astype(np.float64) * (2 / x.size) * n)
    got = counts(
        "epsilon",
        from_0,
        number,
        lambda: run(device, lambda p, o: p.norm(data, o, kind="rms", epsilon=number), x.shape),
    )
    if got is not None:
        close(got, wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + n))
    rows = x.reshape(1, 1, 2, 8)
    for path in ("unfused", "fused"):
        got = counts(
            "scale",
            np.isfinite,
            number,
            lambda p=path: vkattn.attention(
                rows, rows, rows, scale=number, path=p, scores="raw", device=device
            )[1],
        )
        if got is not None and abs(n) < 1e38:
            close(got[0, 0], wide @ wide.T * n)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["beta1", "beta2", "epsilon", "learning_rate", "weight_decay"])
def test_each_number_of_adam_counts_or_is_refused(device, name, number):
    below = 1 if name.startswith("beta") else np.inf
    w, g = np.float64([0.5, -2]), np.float64([3, -0.25])
    tensors = [device.tensor(v.astype(np.float32)) for v in (w, g, 0 * w, 0 * w)]
    step = device.tensor(np.zeros(1, np.int32))
    used = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "learning_rate": 0.5}
    used = {**used, "weight_decay": 0.0, name: number}
    betas = used["beta1"], used["beta2"]
    numbers = {k: v for k, v in used.items() if not k.startswith("beta")}

    def call():
        with vkattn.Plan(device) as plan:
            plan.optimiser("adam", [vkattn.Parameter(*tensors)], step=step, betas=betas, **numbers)
            plan.finish().run()
        return tensors[0].read()

    least = 1e-45 if name == "learning_rate" else 0  # which is refused at 0
    got = counts(name, lambda v: least <= v < below, number, call)
    if got is None:
        return
    with np.errstate(all="ignore"):
        g = g + used["weight_decay"] * w
        unit = g / (np.abs(g) + used["epsilon"])  # the moments of one step, corrected
        want = (w - used["learning_rate"] * unit).astype(np.float32)
    # Beyond, the square of a gradient or a rate over 1 - beta1 is no float32.
    if np.abs(g).max() < 1e18 and used["learning_rate"] < 1e37:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# ---- What has no meaning, by name ---------------------------------------------------------------


def calls(device):
    """(the argument that is wrong, the call)."""
    t = device.tensor(np.ones((1, 2, 4, 8), np.float32))
    ids, one = device.tensor(np.zeros(1, np.int32)), device.empty((1,))
    rows = device.tensor(np.ones((4, 8), np.float32))
    eye = np.eye(8, dtype=np.float32)
    moments = [device.tensor(np.zeros((4, 8), np.float32)) for _ in range(3)]
    parameter = vkattn.Parameter(rows, *moments)
    plan = vkattn.Plan(device)
    cache = vkattn.Cache(device, batch=1, n_kv_head=2, head_dim=8, capacity=16, page_size=16)

    def layer(**more):
        return vkattn.Layer(device, **{"n_head": 2, **more}, query=eye, key=eye, value=eye)

    def caches(**more):
        sizes = {"batch": 1, "n_kv_head": 2, "head_dim": 8, "capacity": 16}
        return vkattn.Cache(device, **{**sizes, **more})

    def adam(**more):
        plan.optimiser("adam", [parameter], **{"learning_rate": 0.1, "step": ids, **more})

    for number in (0, 0.0, float("nan"), 1e-60):
        yield "alpha", lambda n=number: plan.activation(t, t, "silu", alpha=n)
        yield "attention_factor", lambda n=number: plan.rotary(t, t, attention_factor=n)
        yield "base", lambda n=number: plan.rotary(t, t, base=n)
    for number in (-1.0, float("nan"), float("inf")):
        yield "epsilon", lambda n=number: plan.norm(t, t, epsilon=n)
        yield "epsilon", lambda n=number: adam(epsilon=n)
        yield "beta1", lambda n=number: adam(betas=(n, 0.9))
        yield "beta2", lambda n=number: adam(betas=(0.9, n))
        yield "learning_rate", lambda n=number: adam(learning_rate=n)
        yield "weight_decay", lambda n=number: adam(weight_decay=n)
        yield "smoothing", lambda n=number: plan.cross_entropy(rows, ids, one, smoothing=n)
        yield "temperature", lambda n=number: plan.sample(rows, ids, temperature=n)
        yield "top_p", lambda n=number: plan.sample(rows, ids, temperature=1.0, top_p=n)
        yield "min_p", lambda n=number: plan.sample(rows, ids, temperature=1.0, min_p=n)
        yield "max_norm", lambda n=number: plan.clip([rows], n, one)
    for number in (float("nan"), float("inf"), 1e39):
        yield "scale", lambda n=number: plan.gather(rows, ids, rows, scale=n)
        yield "gradient_scale", lambda n=number: plan.square_error(rows, t, one, gradient_scale=n)
    for number in (0, -1, 2.5, 2**32):
        yield "axes", lambda n=number: plan.norm(t, t, axes=n)
        yield "dim", lambda n=number: plan.rotary(t, t, dim=n)
        yield "stride", lambda n=number: plan.conv1d(t, t, t, stride=n)
        yield "axis", lambda n=number: plan.scatter(t, t, axis=n)
        yield "n_head", lambda n=number: layer(n_head=n)
        yield "n_kv_head", lambda n=number: layer(n_kv_head=n)
        yield "n_layer", lambda n=number: caches(n_layer=n)
        yield "value_dim", lambda n=number: caches(value_dim=n)
        yield "n_page", lambda n=number: caches(page_size=16, n_page=n)
    for number in (-1, 2.5, 2**64, 10**5000):
        yield "first", lambda n=number: t.slice(0, n, 1)
        yield "count", lambda n=number: t.slice(0, 0, n)
        yield "offset", lambda n=number: t.strided(n, (1,), (1,))
        yield "strides", lambda n=number: t.strided(0, (1,), (n,))
        yield "axes", lambda n=number: t.permute(0, 1, 2, n)
        yield "sequence", lambda n=number: cache.length(n)
        yield "length", lambda n=number: cache.truncate(0, n)
        yield "to", lambda n=number: cache.fork(0, n)
        yield "pages", lambda n=number: cache.set_pages(0, 0, [n])
        yield "ticket", lambda n=number: plan.wait(n)
        yield "top_k", lambda n=number: plan.sample(rows, ids, top_k=n)
        yield "seed", lambda n=number: plan.sample(rows, ids, seed=n)
        yield "padding", lambda n=number: plan.conv1d(t, t, t, padding=n)
        yield "capacity", lambda n=number: caches(capacity=n)
        yield "page_size", lambda n=number: caches(page_size=n)
        yield "workspace_limit", lambda n=number: vkattn.Plan(device, workspace_limit=n)
        yield "submit_budget", lambda n=number: vkattn.Plan(device, submit_budget=n)
        yield "shape", lambda n=number: device.empty((2, n))
        yield "cache_layer", lambda n=number: plan.attention(t, t, t, t, cache=cache, cache_layer=n)
        yield "max_memory", lambda n=number: vkattn.Device(max_memory=n)
    yield "shape", lambda: device.empty((2.0, 3))
    yield "shape", lambda: t.reshape(64, 1.5)


def test_refused_by_name(device):
    count = 0
    for name, call in calls(device):
        with pytest.raises(vkattn.InvalidError) as refused:
            call()
        assert name in str(refused.value), (name, str(refused.value))
        count += 1
    assert count > 100


@pytest.mark.parametrize("wrong", ["False", "", 2, -1, 0.0, [], np.array([True]), b"1"])
def test_flags(device, q, wrong):
    """What is neither true nor false is not taken for one of them."""
    t = device.tensor(q)
    plan = vkattn.Plan(device)
    eye = np.eye(4, dtype=np.float32)
    weights = {"n_head": 1, "query": eye, "key": eye, "value": eye}
    for name, call in (
        ("causal", lambda: vkattn.attention(q, q, q, causal=wrong, device=device)),
        ("log_sum_exp", lambda: vkattn.attention(q, q, q, log_sum_exp=wrong, device=device)),
        ("exact_softmax", lambda: plan.attention(t, t, t, t, exact_softmax=wrong)),
        ("relu_input", lambda: plan.linear(t, t, t, relu_input=wrong)),
        ("circular", lambda: plan.scatter(t, t, axis=2, circular=wrong)),
        ("interleaved", lambda: plan.rotary(t, t, interleaved=wrong)),
        ("interleaved", lambda: plan.attention(t, t, t, t, rope=vkattn.Rope(4, interleaved=wrong))),
        ("timestamps", lambda: vkattn.Plan(device, timestamps=wrong)),
        ("keep_weights", lambda: vkattn.Layer(device, **weights, keep_weights=wrong)),
        ("zero_attn", lambda: vkattn.Layer(device, **weights, zero_attn=wrong)),
        ("no_hadamard", lambda: vkattn.Cache(device, **SIZES, no_hadamard=wrong)),
        ("labels", lambda: vkattn.Device(labels=wrong)),
    ):
        with pytest.raises((vkattn.InvalidError, TypeError), match=f"{name}: expected True"):
            call()


def test_flags_of_numpy(device, q):
    want = vkattn.attention(q, q, q, causal=True, device=device)
    for true in (np.True_, np.array(True), 1, np.int64(1)):
        np.testing.assert_array_equal(
            vkattn.attention(q, q, q, causal=true, device=device), want
        )
    plain = vkattn.attention(q, q, q, device=device)
    for false in (None, np.False_, 0):
        np.testing.assert_array_equal(
            vkattn.attention(q, q, q, causal=false, device=device), plain
        )


def test_masked_elements(device, q):
    """Masked elements of numpy.ma have no values, though numpy.asarray would show some."""
    whole = np.ma.masked_array(q, mask=np.zeros_like(q, bool))
    want = vkattn.attention(q, q, q, device=device)
    np.testing.assert_array_equal(vkattn.attention(whole, q, q, device=device), want)
    whole[0, 0, 0, 0] = np.ma.masked
    with pytest.raises(vkattn.InvalidError, match="k: .*masked"):
        vkattn.attention(q, whole, q, device=device)
    with pytest.raises(vkattn.InvalidError, match="masked"):
        device.tensor(whole)


def test_arrays_of_tensors_have_their_type(device):
    for values in (np.float32([1, 2]), np.float16([1]), np.int32([3]), np.array([True])):
        assert np.asarray(device.tensor(values)).dtype == values.dtype
        assert np.asarray(device.tensor(values), np.float64).dtype == np.float64


def test_words(device, q):
    """A word that is there is no default, and one that is none is refused by its name."""
    a = {"q": q, "k": q, "v": q, "device": device}
    eye, none = np.eye(4, dtype=np.float32), {"k": q[:, :, :0], "v": q[:, :, :0]}
    layer = vkattn.Layer(device, n_head=2, query=eye, key=eye, value=eye)
    huge = vkattn.Rope(4, frequencies=(10**400, 1.0))
    for name, call in (
        ("scores", lambda: vkattn.attention(**a, scores="")),
        ("scores", lambda: layer(q[0], scores=0)),
        ("layout", lambda: layer(q[0], layout="")),
        ("masked_row", lambda: vkattn.attention(**a, masked_row=["zero"])),
        ("masked_row", lambda: vkattn.attention(**{**a, **none}, masked_row="")),
        ("path", lambda: vkattn.attention(**a, path=["fused"])),
        ("value_dtype", lambda: vkattn.Cache(device, **SIZES, value_dtype="")),
        ("frequencies", lambda: vkattn.attention(**a, rope=huge)),
    ):
        with pytest.raises(vkattn.InvalidError, match=f"^{name}|rope: {name}"):
            call()
    plain = vkattn.attention(**a)
    np.testing.assert_array_equal(vkattn.attention(**a, scores="none"), plain)


def test_wrong_types(device, q):
    t = device.empty((2, 2))

    def turn(numbers):
        rope = vkattn.Rope(4, frequencies=numbers)
        return lambda: vkattn.attention(q, q, q, rope=rope, device=device)

    wrong = ((5, "int"), ({0.5: 1, 1.0: 2}, "dict"), (("a", 1.0), "str"), ((None, 1.0), "NoneType"))
    for name, call in (
        ("first", lambda: t.slice(0, "1", 1)),
        ("epsilon", lambda: vkattn.Plan(device).norm(t, t, epsilon="small")),
        ("top_k", lambda: vkattn.Plan(device).sample(t, t, top_k=None)),
        ("shape", lambda: device.empty(("2",))),
        ("shape", lambda: device.empty(3)),
        ("shape", lambda: device.empty({2, 3})),
        ("shape", lambda: device.empty(b"\x02")),
        ("shape", lambda: device.empty({2: 3})),
        ("past", lambda: vkattn.attention(q, q, q, past=(q,), device=device)),
        ("past", lambda: vkattn.attention(q, q, q, past=1, device=device)),
        ("key_scales", lambda: vkattn.Cache(device, **SIZES, key_dtype="f8_e4m3", key_scales=1.0)),
        (
            "key_scales",
            lambda: vkattn.Cache(device, **SIZES, key_dtype="f8_e4m3", key_scales={1: 2, 2: 3}),
        ),
        *((f"frequencies: .*{got}", turn(numbers)) for numbers, got in wrong),
        ("device", lambda: vkattn.Device(0.0)),
        ("device", lambda: vkattn.Device(True)),
    ):
        with pytest.raises(TypeError, match=name):
            call()


# ---- The other byte order -----------------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", ["f4", "f2", "i4"])
def test_byte_order(device, x, order, name):
    values = (x * 100).astype(np.dtype(order + name))
    tensor = device.tensor(values)
    assert tensor.dtype == {"f4": "f32", "f2": "f16", "i4": "i32"}[name]
    np.testing.assert_array_equal(tensor.read(), values)
    if name == "f4":
        np.testing.assert_array_equal(device.tensor(values, "f16").read(), values.astype("f2"))
        wide = np.tile(values, 4)
        want = vkattn.quantize(wide.astype("=f4"))
        np.testing.assert_array_equal(vkattn.quantize(wide), want)


def test_byte_order_of_options(device, q):
    lengths, mask = np.array([3]), np.zeros((5, 5), np.float64)
    mask[:, 1] = -np.inf
    want = vkattn.attention(q, q, q, kv_length=lengths, mask=mask, device=device)
    turned = [a.astype(a.dtype.newbyteorder(">")) for a in (q, lengths, mask)]
    got = vkattn.attention(*turned[:1] * 3, kv_length=turned[1], mask=turned[2], device=device)
    np.testing.assert_array_equal(got, want)
