"""PyTorch's gradcheck over random problems: the oracle in double, the device in float32."""

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch IS NOT INSTALLED")

import cffi

import vkattn.torch
from vkattn import _abi, _abi_parse
from vkattn._options import MASKED_ROWS


@pytest.fixture(scope="module")
def oracle():
    """src/reference as a library of its own, called with the structs of its headers."""
    path = os.environ["VKATTN_ORACLE"]
    if not Path(path).is_file():
        pytest.skip(f"THERE IS NO {path}: GRADCHECK OF THE ORACLE WAS NOT RUN")
    ffi = cffi.FFI()
    ffi.include(_abi.ffi)
    folder = Path(__file__).resolve().parents[2] / "src" / "reference"
    for name in ("reference.h", "attention_backward.h"):
        ffi.cdef(_abi_parse._declarations((folder / name).read_text(encoding="utf-8")))
    return ffi, ffi.dlopen(path)


def draw(seed, large):
    """Leaves in double by name, and options as vkattn.torch takes them."""
    rng = np.random.default_rng([13, seed, large])

    def one_in(n):
        return rng.integers(n) == 0

    def normal(*shape):
        return torch.tensor(rng.standard_normal(shape))

    batch, n_kv_head, group = (int(x) for x in rng.integers(1, 3, 3))
    limits = (20, 70, 66, 66) if large else (4, 7, 7, 6)
    n_q, n_kv, dim, value_dim = (int(x) for x in rng.integers(1, limits))
    n_head = n_kv_head * group
    given = {
        "q": normal(batch, n_head, n_q, dim),
        "k": normal(batch, n_kv_head, n_kv, dim),
        "v": normal(batch, n_kv_head, n_kv, value_dim),
    }
    options = {}
    shape = [n if rng.integers(2) else 1 for n in (batch, n_head, n_q, n_kv)]
    kind = rng.integers(4)
    if kind < 2:
        given["mask"] = normal(*shape)
    elif kind == 2:
        options["mask"] = torch.tensor(rng.integers(4, size=shape) > 0)
    if one_in(3):
        given["sink"] = normal(n_head)
    if dim > 3 and one_in(3):  # of fewer features the norm is nearly a step
        given["q_norm"], given["k_norm"] = normal(dim), normal(dim)
        options["norm_epsilon"] = 0.25
    if dim > 1 and one_in(3):
        options["rope"] = vkattn.Rope(
            dim=2 * int(rng.integers(1, dim // 2 + 1)),
            base=float(rng.choice([1.0, 10.0, 10000.0])),
            interleaved=bool(rng.integers(2)),
            attention_factor=float(rng.choice([1.0, 1.25])),
        )
    if one_in(3):
        options["alibi"] = torch.tensor(rng.random(n_head)).float()
    if one_in(2):
        options["causal"] = True
    if one_in(3):
        options["window"] = tuple(int(x) for x in rng.integers(-1, 5, 2))
    if one_in(3):
        options["query_offset"] = [int(x) for x in rng.integers(-2, n_kv, batch)]
    if one_in(3):
        options["kv_length"] = [int(x) for x in rng.integers(0, n_kv + 1, batch)]
    if one_in(3):
        options["softcap"] = 2.0
    if one_in(3):
        options["scale"] = 0.3
    if one_in(3):
        options["masked_row"] = "uniform"
    if one_in(4):
        options["dropout"], options["dropout_seed"] = 0.3, int(rng.integers(2**62))
    return given, options


class Reference(torch.autograd.Function):
    """Attention and its gradients by the oracle, in double."""

    @staticmethod
    def forward(ctx, oracle, options, names, *given):
        ffi, lib = oracle
        problem = Problem(ffi, dict(zip(names, given)), options)
        context = torch.empty(*given[0].shape[:3], given[2].shape[3], dtype=torch.float64)
        problem.a.context = problem.numbers(context)
        assert lib.ref_attention(problem.a) == 0
        problem.a.context = ffi.NULL
        ctx.oracle, ctx.problem, ctx.names, ctx.given = oracle, problem, names, given
        return context

    @staticmethod
    def backward(ctx, gradient):
        ffi, lib = ctx.oracle
        results = [torch.empty_like(x) for x in ctx.given]
        wanted = ffi.new("struct ref_attention_gradients *")
        for name, result in zip(ctx.names, results):
            setattr(wanted, name, ctx.problem.numbers(result))
        gradient = gradient.contiguous()
        dy = ctx.problem.numbers(gradient)
        assert lib.ref_attention_backward(ctx.problem.a, dy, wanted) == 0
        return None, None, None, *results


class Problem:
    """struct ref_attention, and what its pointers are to."""

    def __init__(self, ffi, given, options):
        self.ffi, self.kept = ffi, []
        self.a = a = ffi.new("struct ref_attention *")
        a.batch, a.n_head, a.n_q, a.head_dim = given["q"].shape
        _, a.n_kv_head, a.n_kv, a.value_dim = given["v"].shape
        for name in ("q", "k", "v", "sink", "q_norm", "k_norm"):
            if name in given:
                setattr(a, name, self.numbers(given[name].detach().contiguous()))
        if "mask" in given:
            a.float_mask = self.numbers(given["mask"].detach().contiguous())
        elif "mask" in options:
            a.bool_mask = self.pointer("uint8_t", options["mask"].to(torch.uint8))
        if "mask" in given or "mask" in options:
            a.mask_rank = 4
            a.mask_shape = list(given.get("mask", options.get("mask")).shape)
        for name in ("kv_length", "query_offset"):
            if name in options:
                setattr(a, name, self.pointer("int64_t", torch.tensor(options[name])))
                setattr(a, name + "_count", a.batch)
        for name in ("causal", "scale", "softcap", "norm_epsilon", "dropout", "dropout_seed"):
            if name in options:
                setattr(a, name, options[name])
        if "alibi" in options:
            a.alibi = self.numbers(options["alibi"].double())
        if "window" in options:
            a.window, (a.window_left, a.window_right) = True, options["window"]
        a.masked_row = MASKED_ROWS[options.get("masked_row", "zero")]
        if "rope" in options:
            for name in ("dim", "base", "interleaved", "attention_factor"):
                setattr(a.rope, name, getattr(options["rope"], name))

    def pointer(self, kind, tensor):
        self.kept.append(tensor)
        return self.ffi.cast(f"{kind} *", tensor.data_ptr())

    def numbers(self, tensor):
        return self.pointer("double", tensor)


def problems(request):
    """Small ones whose every derivative is compared; of each ten a larger one, along random
    directions."""
    for seed in range(request.config.getoption("--gradchecks")):
        large = seed % 10 == 9
        yield seed, large, *draw(seed, large)


def gradcheck(function, given, what, **limits):
    leaves = [x.clone().requires_grad_() for x in given]
    try:
        assert torch.autograd.gradcheck(function, leaves, **limits)
    except RuntimeError as error:
        pytest.fail(f"{what}: {error}")


def test_oracle(oracle, request):
    for seed, large, given, options in problems(request):
        names = tuple(given)
        gradcheck(
            lambda *x: Reference.apply(oracle, options, names, *x),
            given.values(), (seed, options), eps=1e-6, atol=1e-5, rtol=1e-3, fast_mode=large,
        )


# Central differences of float32 in these steps are worth about 1e-4.
FLOAT32 = {"eps": 2.0**-8, "atol": 1e-3, "rtol": 1e-2, "nondet_tol": 0.0}


@pytest.mark.filterwarnings("ignore:Input .* is not a double precision")
def test_device(device, request):
    for seed, large, given, options in problems(request):
        names = tuple(given)[3:]
        gradcheck(
            lambda q, k, v, *x: vkattn.torch.attention(
                q, k, v, device=device, **options, **dict(zip(names, x))
            ),
            [x.float() for x in given.values()], (seed, options), fast_mode=large, **FLOAT32,
        )


@pytest.mark.filterwarnings("ignore:Input .* is not a double precision")
def test_linear(device, request):
    for seed in range(request.config.getoption("--gradchecks")):
        rng = np.random.default_rng([14, seed])
        *leading, n_in, n_out = (int(x) for x in rng.integers(1, 6, rng.integers(3, 6)))
        shapes = [(*leading, n_in), (n_out, n_in), (n_out,)][: 2 + rng.integers(2)]
        given = [torch.tensor(rng.standard_normal(shape)).float() for shape in shapes]
        gradcheck(
            lambda *x: vkattn.torch.linear(*x, device=device), given, (seed, shapes), **FLOAT32
        )
