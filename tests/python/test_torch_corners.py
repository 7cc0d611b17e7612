"""Corners of PyTorch: signs that are a bit, compiled functions, copies of modules, layers with a way of
their own around attention, axes of 0 elements."""

import copy
import pickle

import numpy as np
import pytest

import vkattn

torch = pytest.importorskip("torch", reason="torch IS NOT INSTALLED: ITS CORNERS WERE NOT TRIED")
F = torch.nn.functional
vt = pytest.importorskip("vkattn.torch")


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def close(a, b, most=1e-5):
    assert a.shape == b.shape and float((a - b).abs().max()) < most


# ---- Arrays -------------------------------------------------------------------------------------


def views():
    """Views of complex numbers, whose sign or conjugation is a bit."""
    z = torch.complex(draw(1, 2, 5, 8), draw(1, 2, 5, 9)[..., :8])
    yield z.conj().imag
    yield z.conj().real
    yield torch._neg_view(draw(1, 2, 5, 8))
    yield z.imag
    yield draw(1, 2, 8, 5).transpose(2, 3)


@pytest.mark.parametrize("number", range(5))
def test_views(device, number):
    t, q = list(views())[number], draw(1, 2, 5, 8)
    want = F.scaled_dot_product_attention(t, q, q)
    close(torch.from_numpy(vkattn.attention(t, q, q, device=device)), want)
    close(vt.attention(t, q, q, device=device), want)
    mask = t[..., :5]
    want = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    close(torch.from_numpy(vkattn.attention(q, q, q, mask=mask, device=device)), want)
    np.testing.assert_array_equal(device.tensor(t).read(), t.resolve_neg().numpy())
    # A gradient whose sign is a bit.
    x = q.clone().requires_grad_()
    vt.attention(x, q, q, device=device).backward(t)
    y = q.clone().requires_grad_()
    F.scaled_dot_product_attention(y, q, q).backward(t)
    close(x.grad, y.grad)


def test_without_memory(device):
    for t in (torch._efficientzerotensor(2, 3), torch.empty(2, 3, device="meta")):
        with pytest.raises(vkattn.InvalidError, match="array: "):
            device.tensor(t)


# ---- Compiled functions -------------------------------------------------------------------------


def test_compile_of_the_functions_on_arrays(device):
    """Tensors and arrays in functions that are compiled: a graph break, whatever they are."""
    q, eye = draw(1, 2, 5, 8), np.eye(8, dtype=np.float32)
    layer = vkattn.Layer(device, n_head=2, query=eye, key=eye, value=eye)
    tensor, output = device.tensor(q), device.empty(q.shape)
    plan = vkattn.Plan(device)
    plan.attention(tensor, tensor, tensor, output)
    plan.finish()
    mask, lengths = torch.ones(5, 5, dtype=torch.bool).tril(), torch.tensor([3])

    def attend(a, **options):
        return torch.from_numpy(vkattn.attention(a, a, a, device=device, **options))

    def run(a):
        tensor.write(a)
        plan.run()
        return torch.from_numpy(output.read()) + 1

    functions = [
        lambda a: attend(torch._neg_view(a), mask=mask, kv_length=lengths) + 1,
        lambda a: torch.from_numpy(layer((a + a)[0])),
        lambda a: attend(a.bfloat16()),
        run,
    ]
    for function in functions:
        torch._dynamo.reset()
        close(torch.compile(function, backend="eager")(q), function(q))
    with pytest.raises(vkattn.InvalidError, match="i32|int32"):
        torch.compile(attend, backend="eager")(q.int())
    with pytest.raises(Exception, match="disable"):
        torch.compile(attend, backend="eager", fullgraph=True)(q)


def test_no_gradient_is_lost(device):
    """An option that requires a gradient and can have none is refused, not passed over."""
    q = draw(1, 2, 5, 8)
    learns = torch.tensor(0.5, requires_grad=True)
    for options in ({"scale": learns}, {"softcap": learns}, {"alibi": learns.expand(2)}):
        (name,) = options
        with pytest.raises(vkattn.UnsupportedError, match=f"{name}: has no gradient"):
            vt.attention(q, q, q, device=device, **options)
        fixed = {name: options[name].detach()}
        want = vt.attention(q, q, q, device=device, **fixed)
        with torch.no_grad():
            assert torch.equal(vt.attention(q, q, q, device=device, **options), want)
    bias = torch.zeros(5, 5, requires_grad=True)
    vt.attention(q, q, q, mask=bias, device=device).sum().backward()
    assert bias.grad is not None


def test_nested(device):
    nested = torch.nested.nested_tensor([draw(2, 5, 8)])
    with pytest.raises(vkattn.InvalidError, match="q: expected a tensor that is not nested"):
        vt.attention(nested, nested, nested, device=device)
    with pytest.raises(vkattn.InvalidError, match="input: expected a tensor that is not nested"):
        vt.linear(nested, draw(3, 8), device=device)


def test_sparse(device):
    with pytest.raises(vkattn.InvalidError, match="input: expected a dense tensor, got torch.sparse"):
        vt.linear(draw(5, 8).to_sparse(), draw(3, 8), device=device)


# ---- Gradients ----------------------------------------------------------------------------------


def modules(device, **options):
    """PyTorch's, in float64, and ours with the same weights."""
    ours = vt.MultiheadAttention(8, 2, batch_first=True, **options)
    ours.vkattn_device = device
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, **options)
    theirs.load_state_dict(ours.state_dict())
    return theirs.double(), ours


@pytest.mark.parametrize("mask", [None, "bool", "float", "learns"])
def test_padding_that_learns(device, mask):
    """A padding mask of floats has its gradient, with a mask beside it and without."""
    theirs, ours = modules(device)
    x, w = draw(3, 5, 8), draw(3, 5, 9)[..., :8]
    kinds = {"bool": draw(5, 5) > 0.5, "float": draw(5, 5), "learns": draw(5, 5).requires_grad_()}
    found = []
    for module, dtype in ((theirs, torch.float64), (ours, torch.float32)):
        padding = draw(3, 5).to(dtype).requires_grad_()
        given = kinds.get(mask)
        if given is not None and given.is_floating_point():
            given = given.detach().to(dtype).requires_grad_(given.requires_grad)
        rows = x.to(dtype)
        y, _ = module(
            rows, rows, rows, key_padding_mask=padding, attn_mask=given, need_weights=False
        )
        (y * w.to(dtype)).sum().backward()
        learns = [padding] + [given] * (mask == "learns")
        found.append([y.detach(), *(t.grad for t in learns)])
    for a, b in zip(*found):
        assert float(a.abs().max()) > 0.05
        close(a, b.double(), 1e-4)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_trains(device, layout):
    """The gradients of nested rows and of the weights, as of each sequence alone."""
    _, module = modules(device)
    each = [draw(n, 8).requires_grad_() for n in (3, 5)]
    module(*[torch.nested.as_nested_tensor(each, layout=layout)] * 3)[0].to_padded_tensor(
        0.0
    ).square().sum().backward()
    found = [x.grad.clone() for x in (*each, *module.parameters())]
    module.zero_grad()
    for x in each:
        x.grad = None
        module(x[None], x[None], x[None])[0].square().sum().backward()
    for a, b in zip(found, (x.grad for x in (*each, *module.parameters()))):
        assert float(b.abs().max()) > 1e-3
        close(a, b, 1e-4)


def calls(device):
    """Functions of one tensor [1][5][8]."""
    _, module = modules(device)
    weight = draw(3, 8)
    return {
        "attention": lambda x: vt.attention(x, x, x, device=device),
        "linear": lambda x: vt.linear(x, weight, device=device).square(),
        "MultiheadAttention": lambda x: module(x, x, x)[0],
    }


@pytest.mark.parametrize("name", ["attention", "linear", "MultiheadAttention"])
def test_gradients_of_gradients_are_refused(device, name):
    x = draw(1, 5, 8).requires_grad_()
    (first,) = torch.autograd.grad(calls(device)[name](x).sum(), x, create_graph=True)
    with pytest.raises(vkattn.UnsupportedError, match="gradients of gradients are not supported"):
        first.square().sum().backward()


@pytest.mark.parametrize("name", ["attention", "linear", "MultiheadAttention"])
def test_transforms_are_refused(device, name):
    """Tangents that nothing carries on would be zeros."""
    x, call = draw(1, 5, 8), calls(device)[name]
    sentence = f"{name}: torch.func.grad, jvp and their kin are not"
    with pytest.raises(vkattn.UnsupportedError, match=sentence):
        torch.func.jvp(call, (x,), (x,))
    with pytest.raises(vkattn.UnsupportedError, match=sentence):
        torch.func.grad(lambda x: call(x).sum())(x)
    with torch.autograd.forward_ad.dual_level():
        want = call(x)
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(vkattn.UnsupportedError, match=f"{name}: gradients in forward mode"):
            call(dual)
    close(want, call(x))


# ---- Masks of the module ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"attn_mask": torch.ones(5, 5, dtype=torch.int64)}, "attn_mask: expected bool, True where"),
        ({"key_padding_mask": torch.ones(2, 5, dtype=torch.uint8)}, "key_padding_mask: expected bool"),
        ({"attn_mask": torch.zeros(5, 4)}, "attn_mask: expected .n_q..n_kv., .5, 5., or"),
        ({"attn_mask": torch.zeros(1, 5)}, "attn_mask: expected"),
        ({"attn_mask": torch.zeros(2, 5, 5)}, "attn_mask: expected"),
        ({"attn_mask": torch.zeros(2, 2, 5, 5)}, "attn_mask: expected"),
    ],
)
def test_masks_that_pytorch_refuses(device, given, sentence):
    theirs, ours = modules(device)
    x = draw(2, 5, 8)
    with pytest.raises((AssertionError, RuntimeError)):
        theirs.float()(x, x, x, need_weights=False, **given)
    with pytest.raises(vkattn.InvalidError, match=sentence):
        ours(x, x, x, **given)


def test_padding_of_float64(device):
    theirs, ours = modules(device)
    x, padding = draw(2, 5, 8), draw(2, 5).double()
    rows = x.double()
    want, _ = theirs(rows, rows, rows, key_padding_mask=padding, need_weights=False)
    close(ours(x, x, x, key_padding_mask=padding)[0].double(), want)


# ---- Copies -------------------------------------------------------------------------------------


def test_copies(device, rng):
    module = vt.MultiheadAttention(16, 4, batch_first=True)
    module.vkattn_device = device
    module.kept = vkattn.Layer.from_torch(torch.nn.MultiheadAttention(16, 4), device=device)
    x = draw(2, 5, 16)
    for made in (copy.deepcopy(module), copy.copy(module)):
        assert made.vkattn_device is device and made.kept is module.kept
        assert torch.equal(made(x, x, x)[0], module(x, x, x)[0])
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.in_proj_weight += 1
    assert not torch.equal(other(x, x, x)[0], module(x, x, x)[0])
    assert copy.deepcopy([device])[0] is device
    tensor = device.tensor(rng.standard_normal((3, 4)).astype(np.float32))
    for made in (copy.copy(tensor), copy.deepcopy(tensor), copy.deepcopy(tensor.permute(1, 0))):
        again = made.read()
        tensor_now = tensor.read()
        np.testing.assert_array_equal(again, tensor_now if again.shape == (3, 4) else tensor_now.T)
        made.write(np.zeros(again.shape, np.float32))
        assert tensor.read().any()
    for thing in (vkattn.Plan(device), vkattn.Cache(device, batch=1, n_kv_head=1, head_dim=4, capacity=4)):
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(thing)
    for thing in (tensor, module):
        with pytest.raises(TypeError, match="a (Tensor|Layer) cannot be pickled"):
            pickle.dumps(thing)
    module.kept = None
    again = pickle.loads(pickle.dumps(module))
    assert again.vkattn_device is device
    assert torch.equal(again(x, x, x)[0], module(x, x, x)[0])


# ---- Layers that go around attention ------------------------------------------------------------


class Counted(vt.MultiheadAttention):
    calls = 0

    def forward(self, *given, **options):
        Counted.calls += 1
        return super().forward(*given, **options)


def replaced(layer, device):
    made = Counted(16, 4, batch_first=True)
    made.load_state_dict(layer.self_attn.state_dict())
    made.vkattn_device = device
    layer.self_attn = made
    return layer


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_fast_path(device, training, gradients, reset):
    torch.manual_seed(1)
    plain = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    layer = copy.deepcopy(plain)
    if reset:
        replaced(layer, device).self_attn._reset_parameters()
        plain.self_attn.load_state_dict(layer.self_attn.state_dict())
    else:
        replaced(layer, device)
    x = draw(2, 5, 16)
    Counted.calls = 0
    for one in (plain, layer):
        one.train(training)
    with torch.set_grad_enabled(gradients):
        close(layer(x), plain(x))
    assert Counted.calls == 1


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("gradients", [True, False])
def test_encoder(device, late, gradients):
    """A stack with a padding mask, whose layers take nested tensors where PyTorch makes them."""
    torch.manual_seed(2)
    plain = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    stack = torch.nn.TransformerEncoder(plain, 2).eval()
    if late:
        mine = copy.deepcopy(stack)
        for layer in mine.layers:
            replaced(layer, device)
    else:
        mine = torch.nn.TransformerEncoder(replaced(copy.deepcopy(plain), device), 2).eval()
        for a, b in zip(mine.layers, stack.layers):
            a.load_state_dict(b.state_dict())
    x, padding = draw(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    Counted.calls = 0
    with torch.set_grad_enabled(gradients):
        got = mine(x, src_key_padding_mask=padding)
        want = stack(x, src_key_padding_mask=padding)
    close(got[~padding], want[~padding])
    assert Counted.calls >= 2


# ---- Calls of PyTorch's own function ------------------------------------------------------------

SDPA_MASKS = [
    *(((5, 7), 1), ((4, 5, 7), 1), ((1, 5, 7), 1), ((2, 1, 5, 7), 1), ((5, 1), 1), ((2, 4, 1, 7), 1)),
    *(((5, 6), 0), ((8, 5, 7), 0), ((2, 5, 7), 0), ((7,), 0), ((1,), 0), ((1, 2, 4, 5, 7), 0)),
]
# Features of q and k, heads of k, features of v, options.
SDPA_ALONE = [
    *((8, 4, 8, {"dropout_p": 1.0}), (8, 0, 8, {"enable_gqa": True})),
    *((8, 4, 8, {"scale": scale}) for scale in (float("inf"), float("nan"), 1e39)),
    *((8, 4, 0, {}), (0, 4, 8, {})),
]


@pytest.fixture
def counted(monkeypatch):
    calls, attention = [], vt.attention

    def count(*given, **options):
        calls.append(1)
        return attention(*given, **options)

    monkeypatch.setattr(vt, "attention", count)
    return calls


@pytest.mark.parametrize("shape, taken", SDPA_MASKS)
def test_sdpa_takes_no_mask_that_pytorch_refuses(device, counted, shape, taken):
    """Masks of q [2][4][5] and k [2][4][7]: what is not taken fails, or passes, as in PyTorch."""
    q, k, mask = draw(2, 4, 5, 8), draw(2, 4, 7, 8), torch.zeros(shape)
    want = F.scaled_dot_product_attention(q, k, k, mask) if taken else None
    with vt.sdpa(device):
        if taken:
            close(F.scaled_dot_product_attention(q, k, k, mask), want)
        else:
            with pytest.raises((RuntimeError, IndexError)):
                F.scaled_dot_product_attention(q, k, k, mask)
    assert len(counted) == taken


def same(a, b):
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("case", SDPA_ALONE, ids=lambda case: "-".join(map(str, case)))
def test_sdpa_leaves_what_it_cannot(device, counted, case):
    """Arguments that PyTorch computes with and vkattn refuses go to PyTorch."""
    q_dim, n_kv_head, v_dim, options = case
    q, k = draw(2, 4, 5, q_dim), draw(2, n_kv_head, 7, q_dim)
    v = draw(2, n_kv_head, 7, v_dim)
    want = F.scaled_dot_product_attention(q, k, v, **options)
    with vt.sdpa(device):
        assert same(F.scaled_dot_product_attention(q, k, v, **options), want)
    assert not counted


def test_mask_that_learns_beside_padding(device):
    """As without a gradient: a shorter mask hides keys, and padding of another shape is refused."""
    q, k = draw(2, 4, 5, 8), draw(2, 4, 7, 8)
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[0, 1] = True
    options = {"device": device, "key_padding_mask": hidden}
    for shape in ((5, 6), (5, 7), (5, 1), (8, 5, 6)):
        bias = draw(*shape).requires_grad_()
        want = vt.attention(q, k, k, mask=bias.detach(), **options)
        got = vt.attention(q, k, k, mask=bias, **options)
        close(got, want)
        got.sum().backward()
        assert bias.grad.shape == bias.shape
    bias = torch.zeros(5, 7, requires_grad=True)
    for padding in (hidden[0], hidden[:1], hidden[:, :6], hidden[:, :1]):
        with pytest.raises(vkattn.InvalidError, match=r"key_padding_mask: expected .* \[2, 7\]"):
            vt.attention(q, k, k, mask=bias, **{**options, "key_padding_mask": padding})
    with pytest.raises(vkattn.InvalidError, match="mask: expected what broadcasts"):
        vt.attention(q, k, k, mask=torch.zeros(3, 1, 5, 7, requires_grad=True), **options)


# ---- Axes of 0 elements -------------------------------------------------------------------------

SHAPES = [
    ((0, 2, 3, 4), (0, 2, 5, 4)),
    ((1, 2, 0, 4), (1, 2, 5, 4)),
    ((1, 2, 3, 4), (1, 2, 0, 4)),
]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_empty_attention(device, shapes, dtype):
    q, k = (torch.ones(shape, dtype=dtype, requires_grad=True) for shape in shapes)
    out = vt.attention(q, k, k, device=device)
    assert out.shape == q.shape and out.dtype == dtype and not out.any()
    out.sum().backward()
    for x in (q, k):
        assert x.grad is not None and x.grad.shape == x.shape and not x.grad.any()
    assert not vt.attention(q.detach(), k.detach(), k.detach(), device=device).requires_grad


def test_empty_linear(device):
    for x, w in ((torch.ones(0, 4), torch.ones(3, 4)), (torch.ones(2, 0), torch.ones(3, 0)), (torch.ones(2, 4), torch.ones(0, 4))):
        b = torch.arange(w.shape[0], dtype=torch.float32)
        given = [t.clone().requires_grad_() for t in (x, w, b)]
        like = [t.clone().requires_grad_() for t in (x, w, b)]
        got, want = vt.linear(*given, device=device), F.linear(*like)
        assert torch.equal(got, want)
        got.sum().backward()
        want.sum().backward()
        for a, c in zip(given, like):
            assert torch.equal(a.grad, c.grad)
    with pytest.raises(vkattn.InvalidError, match="input: expected"):
        vt.linear(torch.ones(0, 4), torch.ones(3, 5), device=device)


@pytest.mark.parametrize("batch_first", [True, False])
def test_empty_module(device, batch_first):
    plain = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first)
    mine = vt.MultiheadAttention(16, 4, batch_first=batch_first)
    mine.load_state_dict(plain.state_dict())
    mine.vkattn_device = device
    with torch.no_grad():
        for one in (plain, mine):
            one.out_proj.bias.copy_(torch.arange(16))
    for n_query, n_key in ((0, 3), (3, 0)):
        shapes = [(2, n, 16) if batch_first else (n, 2, 16) for n in (n_query, n_key)]
        q, k = (torch.ones(shape, requires_grad=True) for shape in shapes)
        got, _ = mine(q, k, k)
        assert got.shape == q.shape
        if n_query:
            assert torch.equal(got, mine.out_proj.bias.expand(q.shape))
        got.sum().backward()
        assert q.grad is not None and k.grad is not None
    x = torch.ones((0, 3, 16) if batch_first else (3, 0, 16))
    assert mine(x, x, x)[0].shape == x.shape
    with pytest.raises(vkattn.InvalidError, match="query: expected 16 features"):
        mine(x[..., :5], x, x)
