"""Against PyTorch itself, where it is installed."""

import numpy as np
import oracle
import pytest

import vkattn

torch = pytest.importorskip("torch", reason="PyTorch IS NOT INSTALLED")

CONFIGURATIONS = 200


def random_module(rng):
    n_head = int(rng.integers(1, 6))
    width = n_head * int(rng.integers(1, 13))
    other = bool(rng.integers(2))
    module = torch.nn.MultiheadAttention(
        width,
        n_head,
        bias=bool(rng.integers(2)),
        kdim=int(rng.integers(1, 20)) if other else None,
        vdim=int(rng.integers(1, 20)) if other else None,
        batch_first=bool(rng.integers(2)),
    ).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.standard_normal(tuple(parameter.shape)) * 0.3))
    return module


def random_masks(rng, module, batch, n_q, n_kv):
    """PyTorch's arguments, and those here that mean the same; key 0 is always visible."""
    theirs, ours = {}, {}
    if rng.integers(2):
        padding = rng.random((batch, n_kv)) < 0.3
        padding[:, 0] = False
        theirs["key_padding_mask"] = torch.from_numpy(padding)
        ours["key_padding_mask"] = padding
    kind = rng.integers(3)
    if kind == 1:
        mask = rng.random((n_q, n_kv)) < 0.3
        mask[:, 0] = False
        theirs["attn_mask"] = torch.from_numpy(mask)
        ours["mask"] = ~mask[None, None]
    elif kind == 2:
        mask = rng.standard_normal((batch * module.num_heads, n_q, n_kv)).astype(np.float32)
        theirs["attn_mask"] = torch.from_numpy(mask)
        ours["mask"] = mask.reshape(batch, -1, n_q, n_kv)
        if "key_padding_mask" in theirs:  # one kind for both
            padding = theirs["key_padding_mask"]
            floats = torch.zeros(padding.shape).masked_fill(padding, -np.inf)
            theirs["key_padding_mask"] = floats
            if rng.integers(2):
                ours["key_padding_mask"] = floats
    return theirs, ours


@pytest.mark.parametrize("seed", range(CONFIGURATIONS))
def test_multihead_attention(device, seed):
    rng = np.random.default_rng(seed)
    module = random_module(rng)
    batch, n_q, n_kv = (int(rng.integers(1, n)) for n in (4, 20, 30))

    def inputs(n, width):
        shape = (batch, n, width) if module.batch_first else (n, batch, width)
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    query = inputs(n_q, module.embed_dim)
    key = inputs(n_kv, module.kdim or module.embed_dim)
    value = inputs(n_kv, module.vdim or module.embed_dim)
    theirs, ours = random_masks(rng, module, batch, n_q, n_kv)
    with torch.no_grad():
        want, weights = module(query, key, value, average_attn_weights=False, **theirs)
    with vkattn.Layer.from_torch(module, device=device) as layer:
        got, scores = layer(query, key, value, scores="softmax", **ours)
    assert got.shape == tuple(want.shape)
    assert oracle.nmse(got, want.numpy()) < 1e-9
    assert oracle.nmse(scores, weights.numpy()) < 1e-9


def test_half_types(device):
    module = torch.nn.MultiheadAttention(24, 3, batch_first=True).eval()
    x = torch.randn(2, 5, 24)
    for dtype, name, limit in ((torch.float16, "f16", 1e-5), (torch.bfloat16, "bf16", 1e-3)):
        rounded = x.to(dtype)
        layer = vkattn.Layer.from_torch(module.to(dtype), device=device)
        assert layer.dtype == name
        with torch.no_grad():
            want, _ = module.float()(*[rounded.float()] * 3)
        assert oracle.nmse(layer(rounded), want.numpy()) < limit


def test_tensors_of_torch(device):
    x = torch.randn(1, 2, 5, 8, requires_grad=True)
    want = torch.nn.functional.scaled_dot_product_attention(x, x, x).detach()
    assert oracle.nmse(vkattn.attention(x, x, x, device=device), want.numpy()) < 1e-9
    x = x.detach().transpose(1, 2).contiguous().transpose(1, 2)
    want = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    got = torch.from_dlpack(vkattn.attention(x, x, x, causal=True, device=device))
    assert oracle.nmse(got.numpy(), want.numpy()) < 1e-9


def samples_of(module):
    return pytest.importorskip(
        f"torch.testing._internal.{module}",
        reason="THE SAMPLES OF PyTorch ARE NOT INSTALLED",
        exc_type=ImportError,
    )


def op_named(name):
    (op,) = [op for op in samples_of("common_methods_invocations").op_db if op.name == name]
    return op


def test_samples_of_attention(device):
    """PyTorch's own samples of scaled_dot_product_attention, those without dropout compared; with
    it, whose random numbers differ, the shape is."""
    op = op_named("nn.functional.scaled_dot_product_attention")
    compared = 0
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
            tensors, given = (sample.input, *sample.args), dict(sample.kwargs)
            rate = given.get("dropout_p", 0.0)
            want = op.op(*(x.detach().float() for x in tensors), **_floats(given)).numpy()
            options = {"causal": given.get("is_causal", False), "dropout": rate}
            if given.get("attn_mask") is not None:
                options["mask"] = given["attn_mask"]
            got = vkattn.attention(*tensors, device=device, **options)
            assert got.shape == want.shape
            if not rate:
                compared += 1
                assert oracle.nmse(got, want) < (1e-9 if dtype == torch.float32 else 1e-5)
    assert compared > 0


def _floats(given):
    mask = given.get("attn_mask")
    return given if mask is None else {**given, "attn_mask": mask.detach().float()}


@pytest.mark.parametrize("batch_first", [False, True])
def test_unbatched_modules(device, batch_first):
    module = torch.nn.MultiheadAttention(12, 3, batch_first=batch_first)
    query, key = torch.randn(5, 12, requires_grad=True), torch.randn(7, 12)
    want, weights = module(query, key, key, average_attn_weights=False)
    with vkattn.Layer.from_torch(module, device=device) as layer:
        got, scores = layer(query, key, scores="softmax")
        assert got.shape == (5, 12) and scores.shape == (3, 5, 7)
        assert oracle.nmse(got, want.detach().numpy()) < 1e-9
        assert oracle.nmse(scores, weights.detach().numpy()) < 1e-9
        with pytest.raises(vkattn.InvalidError, match="key: expected 2 axes as query has"):
            layer(query, key[None])


def ours_of(given):
    """PyTorch's masks as this package takes them."""
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    ours = {}
    if mask is not None:
        ours["mask"] = ~mask if mask.dtype == torch.bool else mask
    if padding is not None:
        ours["key_padding_mask"] = padding if padding.ndim == 2 else padding[None]
    return ours


def floated(x):
    return x.detach().float() if torch.is_tensor(x) and x.dtype != torch.bool else x


def compare_module(device, module, dtype, tensors, given, limit):
    """Output, weights of each head and their mean, against the module in float32."""
    layer = vkattn.Layer.from_torch(module.to(dtype), device=device)
    module = module.float()
    theirs = {name: floated(x) for name, x in given.items()}
    inputs = [floated(x) for x in tensors]
    with torch.no_grad():
        want, weights = module(*inputs, average_attn_weights=False, **theirs)
        _, mean = module(*inputs, **theirs)
    with layer:
        got, scores = layer(*tensors, scores="softmax", **ours_of(given))
    assert got.shape == tuple(want.shape) and scores.shape == tuple(weights.shape)
    assert oracle.nmse(got, want.numpy()) < limit
    assert oracle.nmse(scores, weights.numpy()) < limit
    assert oracle.nmse(scores.mean(-3), mean.numpy()) < limit


def test_samples_of_modules(device):
    """PyTorch's own samples of nn.MultiheadAttention, all of them."""
    modules = samples_of("common_modules")
    compared = 0
    for dtype, limit in ((torch.float32, 1e-9), (torch.float16, 1e-5), (torch.bfloat16, 1e-3)):
        for sample in modules.module_inputs_torch_nn_MultiheadAttention(
            None, "cpu", dtype, requires_grad=True, training=False
        ):
            made, given = sample.constructor_input, sample.forward_input
            torch.manual_seed(compared)
            module = torch.nn.MultiheadAttention(*made.args, **made.kwargs).eval()
            compare_module(device, module, dtype, given.args, given.kwargs, limit)
            compared += 1
    assert compared >= 3 * 64


def layer_of(device, args, given):
    """A layer of the arguments of F.multi_head_attention_forward."""
    _, n_head, stacked, biases, bias_k, bias_v, zero, _, out_weight, out_bias = args
    weights = [given[f"{x}_proj_weight"] for x in "qkv"] if stacked is None else stacked.chunk(3)
    query, key, value = zip(weights, biases.chunk(3))
    return vkattn.Layer(
        device,
        n_head=n_head,
        query=query,
        key=key,
        value=value,
        output=(out_weight, out_bias),
        bias_kv=(bias_k, bias_v),
        zero_attn=zero,
        layout="sbd",
    )


def test_samples_of_functions(device):
    """PyTorch's own samples of F.multi_head_attention_forward, those without dropout compared; with
    it, whose random numbers differ, the shapes are."""
    op = op_named("nn.functional.multi_head_attention_forward")
    compared = 0
    for sample in op.sample_inputs("cpu", torch.float32):
        tensors, args = (sample.input, *sample.args[:2]), sample.args[2:]
        given, rate = sample.kwargs, args[7]
        want, weights = torch.nn.functional.multi_head_attention_forward(
            *tensors, *args, average_attn_weights=False, **given
        )
        options = {**ours_of(given), "dropout": rate}
        with layer_of(device, args, given) as layer:
            got, scores = layer(*tensors, scores="softmax", **options)
        assert got.shape == tuple(want.shape) and scores.shape == tuple(weights.shape)
        if not rate:
            compared += 1
            assert oracle.nmse(got, want.numpy()) < 1e-8
            assert oracle.nmse(scores, weights.numpy()) < 1e-8
    assert compared > 0


def test_not_a_module(device):
    for thing in (torch.nn.Linear(4, 4), None, 3):
        with pytest.raises(TypeError, match="expected a torch.nn.MultiheadAttention"):
            vkattn.Layer.from_torch(thing, device=device)
