"""vkattn.torch under what PyTorch has around functions: torch.compile, export, autocast, vmap, trace;
and in place of F.scaled_dot_product_attention. Without PyTorch, the parts that need none."""

import os
import pickle
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

import vkattn
from vkattn._abi import lib

try:
    import torch

    import vkattn.torch as vt

    F = torch.nn.functional
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch IS NOT INSTALLED")


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def close(a, b, most=1e-5):
    assert a.shape == b.shape and a.dtype == b.dtype
    assert float((a - b).detach().abs().max()) < most * max(1, float(b.detach().abs().max()))


# ---- Without PyTorch ----------------------------------------------------------------------------


def test_a_device_is_pickled_by_name(device):
    assert pickle.loads(pickle.dumps(device)) is device
    program = (
        "import pickle, sys, numpy, vkattn\n"
        "made = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(made.info.name, pickle.loads(pickle.dumps(made)) is made)"
    )
    command = [sys.executable, "-c", program, pickle.dumps(device).hex()]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.strip() == f"{device.info.name} True", done.stderr
    with vkattn.Device(device.info.name) as other:
        kept = pickle.dumps(other)
        assert pickle.loads(kept) is other
    again = pickle.loads(kept)  # the one it was of is closed
    assert not again.closed and again.info.name == device.info.name


class Learning:
    """An array with PyTorch's mark."""

    requires_grad = True

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return 1, 0


def test_a_lost_gradient_is_told(device):
    """At the caller's line, by the operand's name; not where none is wanted."""
    x = np.ones((1, 1, 2, 4), np.float32)
    learns = Learning(x)
    layer = vkattn.Layer(device, n_head=1, query=np.eye(4, dtype=np.float32),
                         key=np.eye(4, dtype=np.float32), value=np.eye(4, dtype=np.float32))
    bias = Learning(np.zeros((2, 2), np.float32))
    for call, name in (
        (lambda: vkattn.attention(x, learns, x, device=device), "k"),
        (lambda: vkattn.attention(x, x, x, mask=bias, device=device), "mask"),
        (lambda: layer(Learning(x[0])), "query"),
    ):
        with pytest.warns(UserWarning, match=f"^{name}: it requires a gradient") as told:
            call()
        assert [w.filename for w in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vkattn.attention(x, x, x, device=device)
        if torch is not None:
            with torch.no_grad():
                vkattn.attention(x, learns, x, device=device)


# ---- Compiled, exported -------------------------------------------------------------------------


def functions(device):
    """Functions of q [1][2][5][8] by name, with what they are compared with."""
    w, b, key = draw(3, 8), draw(3), draw(1, 2, 7, 8)
    sink = torch.tensor([0.5, -1.0])
    module = vt.MultiheadAttention(8, 2, batch_first=True)
    plain = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    plain.load_state_dict(module.state_dict())
    module.vkattn_device = device
    sdpa, shown = F.scaled_dot_product_attention, torch.ones(5, 7, dtype=torch.bool).triu()

    def sinks(a):
        scores = torch.cat([a @ a.mT * 8**-0.5, sink[:, None, None].expand(1, 2, 5, 1)], -1)
        return scores.softmax(-1)[..., :-1] @ a

    return {
        "causal": (
            lambda a: vt.attention(a, a, a, causal=True, device=device) * 2 + 1,
            lambda a: sdpa(a, a, a, is_causal=True) * 2 + 1,
        ),
        "mask": (
            lambda a: vt.attention(a + 1, key, key, mask=shown, scale=0.3, device=device),
            lambda a: sdpa(a + 1, key, key, shown, scale=0.3),
        ),
        "lengths": (
            lambda a: vt.attention(a, key, key, kv_length=[3], device=device),
            lambda a: sdpa(a, key[:, :, :3], key[:, :, :3]),
        ),
        "sinks": (lambda a: vt.attention(a, a, a, sink=sink, device=device), sinks),
        "three axes": (
            lambda a: vt.attention(a[0], a[0], a[0], device=device),
            lambda a: sdpa(a[0], a[0], a[0]),
        ),
        "linear": (
            lambda a: vt.linear(a * 2, w, b, device=device).sum(-1),
            lambda a: F.linear(a * 2, w, b).sum(-1),
        ),
        "module": (lambda a: module(a[0], a[0], a[0])[0], lambda a: plain(a[0], a[0], a[0])[0]),
    }


NAMES = ("causal", "mask", "lengths", "sinks", "three axes", "linear", "module")


@needs_torch
@pytest.mark.parametrize("name", NAMES)
def test_compile_into_one_graph(device, name):
    ours, theirs = functions(device)[name]
    torch._dynamo.reset()
    x, y, z = (draw(1, 2, 5, 8).requires_grad_() for _ in range(3))
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    results = compiled(x), ours(y), theirs(z)
    for result in results:
        result.square().sum().backward()
    close(results[0], results[2])
    assert torch.equal(results[0], results[1]) and torch.equal(x.grad, y.grad)
    close(x.grad, z.grad)
    with torch.no_grad():
        assert torch.equal(compiled(x), ours(x))


@needs_torch
@pytest.mark.parametrize("name", NAMES)
def test_export(device, name):
    """What was exported runs in a process that has not seen the device's object."""
    ours, theirs = functions(device)[name]

    class Exported(torch.nn.Module):
        def forward(self, a):
            return ours(a)

    x = draw(1, 2, 5, 8)
    program = torch.export.export(Exported(), (x,))
    assert "vkattn" in str(program.graph)
    close(program.module()(x), theirs(x))


@needs_torch
def test_export_of_any_length(device):
    class Exported(torch.nn.Module):
        def forward(self, a):
            return vt.attention(a, a, a, causal=True, device=device)

    n = torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(Exported(), (draw(1, 2, 5, 8),), dynamic_shapes=[{2: n}])
    for length in (2, 5, 9):
        x = draw(1, 2, length, 8)
        want = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        close(program.module()(x), want)


@needs_torch
def test_the_operators_keep_their_promises(device):
    """PyTorch's own check of schema, fake kernels, autograd and their dispatch."""
    from vkattn import _torch_ops as ops

    q, mask = draw(1, 2, 3, 4).requires_grad_(), draw(3, 3).requires_grad_()
    rest = [None] * (len(ops.TENSORS) - 1 + len(ops.PLAIN) + len(ops.ROPE))
    torch.library.opcheck(ops.attention, (q, q, q, mask, *rest, device._key))
    w = draw(3, 4).requires_grad_()
    torch.library.opcheck(ops.linear, (q, w, None, device._key))


@needs_torch
def test_dropout_under_compile_is_drawn_each_time(device):
    q = draw(1, 2, 5, 8)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda a: vt.attention(a, a, a, dropout=0.5, device=device), backend="aot_eager",
        fullgraph=True,
    )
    assert not torch.equal(compiled(q), compiled(q))


@needs_torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast(device, dtype):
    dtype = getattr(torch, dtype)
    q, w = draw(1, 2, 5, 8).requires_grad_(), draw(3, 8)
    module = vt.MultiheadAttention(8, 2, batch_first=True)
    module.vkattn_device = device
    with torch.autocast("cpu", dtype=dtype):
        made = vt.attention(q, q, q, device=device)
        assert made.dtype == F.scaled_dot_product_attention(q, q, q).dtype == dtype
        assert vt.linear(q, w, device=device).dtype == F.linear(q, w).dtype == dtype
        assert module(q[0], q[0], q[0])[0].dtype == dtype
    low = q.detach().to(dtype)
    assert torch.equal(made, vt.attention(low, low, low, device=device))
    made.float().sum().backward()
    assert q.grad.dtype == torch.float32 and q.grad.any()


@needs_torch
def test_vmap_is_refused(device):
    q, w = draw(3, 1, 2, 5, 8), draw(3, 8)
    for name, call in (
        ("attention", lambda a: vt.attention(a, a, a, device=device)),
        ("linear", lambda a: vt.linear(a, w, device=device)),
    ):
        with pytest.raises(vkattn.UnsupportedError, match=f"vkattn.torch.{name}: torch.vmap is"):
            torch.vmap(call)(q)


@needs_torch
def test_trace(device):
    """A traced graph computes, and does not keep the example's result."""
    q = draw(1, 2, 5, 8)
    for function in (
        lambda a: vt.attention(a, a, a, device=device),
        lambda a: vt.linear(a, a[0, 0], device=device),
    ):
        traced = torch.jit.trace(function, q)
        close(traced(q + 1), function(q + 1))


@needs_torch
def test_a_device_by_its_name(device):
    q = draw(1, 2, 5, 8)
    name = device.info.name[:4].upper()
    assert torch.equal(vt.attention(q, q, q, device=name), vt.attention(q, q, q, device=device))
    with pytest.raises(vkattn.NoDeviceError):
        vt.attention(q, q, q, device="no such device")
    with vkattn.Device(device.info.name) as other:
        pass
    with pytest.raises(vkattn.InvalidError, match="device: it has been closed"):
        vt.attention(q, q, q, device=other)


@needs_torch
def test_a_mask_that_learns_beside_padding(device):
    """The two are joined, of each head by itself and in bfloat16 too."""
    q, hides = draw(2, 2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    hides[1, 3:] = True
    for bias in (draw(4, 5, 5), draw(5, 5).double()):
        ours, theirs = (bias.clone().requires_grad_() for _ in range(2))
        made = vt.attention(q, q, q, mask=ours, key_padding_mask=hides, device=device)
        wide = theirs.float().view(2, 2, 5, 5) if bias.dim() == 3 else theirs.float()
        wide = wide.masked_fill(hides[:, None, None], -torch.inf)
        want = F.scaled_dot_product_attention(q, q, q, wide)
        close(made, want)
        for result in (made, want):
            result.square().sum().backward()
        close(ours.grad, theirs.grad)


# ---- In place of PyTorch's function -------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """The calls of vkattn.torch.attention."""
    calls, attention = [], vt.attention

    def count(*given, **options):
        calls.append(options)
        return attention(*given, **options)

    monkeypatch.setattr(vt, "attention", count)
    return calls


@needs_torch
def test_sdpa_takes_what_it_can(device, counted):
    before, q, k = F.scaled_dot_product_attention, draw(2, 4, 5, 8), draw(2, 2, 7, 8)
    bias, same = draw(5, 7), draw(2, 4, 7, 8)
    taken = [
        ((q, q, q), {"is_causal": True}),
        ((q[0], q[0], q[0]), {"scale": 0.2}),
        ((q, same, same, bias), {}),
        ((q, k, k, bias > 0.1), {"enable_gqa": True}),
        ((q, same, same), {"is_causal": True}),
        ((q.bfloat16(),) * 3, {}),
    ]
    passed = [
        ((q.double(),) * 3, {}),
        ((q, q[:1], q[:1]), {}),
        ((q[0, 0],) * 3, {}),
        ((q[None],) * 3, {}),
    ]
    with vt.sdpa(device):
        for ours, calls in ((True, taken), (False, passed)):
            for given, options in calls:
                counted.clear()
                got = F.scaled_dot_product_attention(*given, **options)
                want = before(*given, **options)
                close(got, want, 1e-5 if got.dtype != torch.bfloat16 else 5e-2)
                assert bool(counted) == ours, (given[0].shape, options)
        counted.clear()
        each = torch.vmap(lambda a: F.scaled_dot_product_attention(a, a, a))
        close(each(q), torch.stack([before(a, a, a) for a in q]))
        assert not counted
        with pytest.raises(RuntimeError):  # PyTorch's own refusal
            F.scaled_dot_product_attention(q, q, q, draw(5, 5), is_causal=True)
    assert F.scaled_dot_product_attention is before


@needs_torch
def test_sdpa_is_put_back(device, counted):
    before, q = F.scaled_dot_product_attention, draw(1, 2, 5, 8)
    with pytest.raises(ZeroDivisionError), vt.sdpa(device):
        with vt.sdpa(device):
            pass
        assert F.scaled_dot_product_attention is not before
        1 / 0  # noqa: B018
    assert F.scaled_dot_product_attention is before
    F.scaled_dot_product_attention(q, q, q)
    assert not counted


@needs_torch
def test_sdpa_in_a_model(device, counted):
    """A module of PyTorch, trained; and compiled into one graph."""
    torch.manual_seed(3)
    model = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = draw(2, 5, 16)

    def gradients(function):
        model.zero_grad()
        function(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    want = gradients(model)
    assert not counted
    with vt.sdpa(device):
        torch._dynamo.reset()
        for function in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
            counted.clear()
            for a, b in zip(gradients(function), want):
                close(a, b, 1e-4)
            assert counted or function is not model


# ---- Kept on the device -------------------------------------------------------------------------


@needs_torch
def test_kept(device, monkeypatch):
    """Bytes that calls copy to the device; results are those of tensors that are not kept."""
    copied, write = [], lib.vka_tensor_write

    def count(tensor, data, size):
        copied.append(int(size))
        return write(tensor, data, size)

    monkeypatch.setitem(lib.__dict__, "vka_tensor_write", count)
    q, k, v = draw(1, 2, 3, 16), draw(1, 2, 40, 16), draw(1, 2, 40, 16)
    attend = lambda k, v, q=q: vt.attention(q, k, v, device=device)  # noqa: E731
    plain = attend(k, v)
    assert sorted(copied) == [4 * q.numel(), 4 * k.numel(), 4 * v.numel()]
    with vt.kept(k, v, device=device):
        copied.clear()
        for _ in range(2):
            assert torch.equal(attend(k, v), plain) and copied == [4 * q.numel()]
            copied.clear()
        assert torch.equal(attend(k[0], v[0], q[0])[None], plain) and copied == [4 * q.numel()]
        with vt.kept(k, device=device):
            copied.clear()
            assert torch.equal(attend(k, v), plain) and copied == [4 * q.numel()]
        copied.clear()
        assert torch.equal(attend(k[:, :, :20], v[:, :, :20]), attend(k[:, :, :20] + 0, v[:, :, :20] + 0))
        assert len(copied) == 6  # of other elements
        copied.clear()
        k.mul_(-1)
        flipped = attend(k, v)
        assert sorted(copied) == [4 * q.numel(), 4 * k.numel()] and not torch.equal(flipped, plain)
        copied.clear()
        assert torch.equal(attend(k, v), flipped) and copied == [4 * q.numel()]
        leaf = v.clone().requires_grad_()
        with vt.kept(leaf, device=device):
            attend(k, leaf).sum().backward()
        other = v.clone().requires_grad_()
        attend(k, other).sum().backward()
        assert torch.equal(leaf.grad, other.grad)
    assert torch.equal(attend(k, v), flipped)
    copied.clear()
    attend(k, v)
    assert len(copied) == 3
    with torch.inference_mode():
        inner = draw(1, 2, 40, 16)
    with pytest.raises(vkattn.InvalidError, match=r"tensors\[1\]: of inference mode"):
        with vt.kept(k, inner, device=device):
            raise AssertionError("nothing runs")
    copied.clear()
    attend(k, v)
    assert len(copied) == 3  # nothing was left


@needs_torch
@pytest.mark.parametrize("how", ["data", "set", "resize"])
def test_kept_memory_is_given_away(device, how):
    """What gets the memory of a kept tensor, whose storage was changed, is not taken for it."""
    x, weight = draw(2, 256), torch.randn(1024, 256)
    with vt.kept(weight, device=device):
        vt.linear(x, weight, device=device)
        if how == "data":
            weight.data = draw(1)
        elif how == "set":
            weight.set_(draw(1))
        else:
            weight.untyped_storage().resize_(0)
        others = [torch.randn(1024, 256) for _ in range(4)]
        for other in others:
            found = vt.linear(x, other, device=device)
            torch.testing.assert_close(found, x @ other.T, rtol=1e-4, atol=1e-4)


@needs_torch
def test_flash_attention_impl(device, monkeypatch):
    """Calls of PyTorch's own function that reach the device, by the name that the registry has."""
    registry = torch.nn.attention
    if not hasattr(registry, "register_flash_attention_impl"):
        pytest.skip("THIS PyTorch HAS NO register_flash_attention_impl: NOTHING WAS PUT IN ITS PLACE")
    ran, submit = [], lib.vka_plan_submit
    monkeypatch.setitem(lib.__dict__, "vka_plan_submit", lambda *x: ran.append(1) or submit(*x))
    mask = torch.zeros(1, 1, 5, 7).masked_fill(draw(1, 1, 5, 7) > 0.5, -torch.inf)
    cases = [({}, torch.float32), ({"is_causal": True}, torch.float32)]
    cases += [({"attn_mask": mask, "scale": 0.3}, torch.float32), ({"is_causal": True}, torch.double)]

    cases += [({"enable_gqa": True}, torch.float32), ({"enable_gqa": True}, torch.double)]

    def all_of(options, dtype):
        n_head = 6 if options.get("enable_gqa") else 2
        given = [draw(1, n_head, 5, 16), *draw(2, 1, 2, 7, 16)]
        given = [x.to(dtype).requires_grad_() for x in given]
        out = F.scaled_dot_product_attention(*given, **options)
        out.square().sum().backward()
        return [out.detach(), *(x.grad for x in given)]

    want = [all_of(*case) for case in cases]
    assert not ran
    registry.activate_flash_attention_impl("vkattn")
    try:
        assert registry.current_flash_attention_impl() == "vkattn"
        for case, expected in zip(cases, want):
            ran.clear()
            for found, judge in zip(all_of(*case), expected):
                close(found, judge)
            assert len(ran) == (2 if case[1] == torch.float32 else 0)
    finally:
        registry.restore_flash_attention_impl()
    ran.clear()
    assert torch.equal(all_of(*cases[0])[0], want[0][0]) and not ran


@needs_torch
def test_inductor(device, request):
    """The default backend, whose kernels around the operator a C++ compiler makes: 10 s of it."""
    if not request.config.getoption("--families"):
        pytest.skip("INDUCTOR RUNS WITH --families")
    if not shutil.which("g++"):
        pytest.skip("NO C++ COMPILER: INDUCTOR WAS NOT TRIED")

    def function(q, k, v):
        return vt.attention(q * 2, k, v + 1, causal=True, device=device).relu() * 3

    def all_of(function):
        given = [draw(1, 2, 5, 16), *draw(2, 1, 2, 7, 16)]
        given = [x.requires_grad_() for x in given]
        out = function(*given)
        out.sum().backward()
        return [out.detach(), *(x.grad for x in given)]

    compiled = torch.compile(function, fullgraph=True)
    for found, judge in zip(all_of(compiled), all_of(function)):
        assert torch.equal(found, judge)
