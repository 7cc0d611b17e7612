"""PyTorch's custom operators vkattn::attention, linear and layer, each with its backward: what
torch.compile and torch.export keep in their graphs as it is.

Each has a fake kernel, which knows the shapes alone. Tensors are on the host, before and after.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from . import _torch_kept
from ._arrays import HostArray, host_array
from ._attention import attention as host_attention
from ._attention import upload
from ._device import Device, Tensor, device_of
from ._errors import UnsupportedError
from ._layer import Layer
from ._options import ANNOTATIONS, Rope
from ._plan import Plan

if not hasattr(torch.library, "register_vmap"):
    raise ImportError(f"vkattn.torch needs PyTorch 2.5 or later, and this is {torch.__version__}")

drop = _torch_kept.drop
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
LEARNT = ("mask", "sink", "q_norm", "k_norm")  # options that can have a gradient
PROJECTIONS = ("query", "key", "value", "output")

# Options of attention by name, with their types in an operator's schema.
TENSORS = (
    *("mask", "key_padding_mask", "kv_length", "query_offset", "q_norm", "k_norm", "sink"),
    *("alibi", "dropout_seed"),
)
_SCHEMA = {"bool": "bool", "float": "float", "str": "str", "tuple[int, int]": "int[]"}
PLAIN = {name: _SCHEMA[kind] for name, kind in ANNOTATIONS.items() if kind in _SCHEMA}
ROPE = {
    "dim": "int",
    "base": "float",
    "interleaved": "bool",
    "frequencies": "float[]",
    "attention_factor": "float",
}
OPTIONS = (*TENSORS, *PLAIN, *(f"rope_{name}" for name in ROPE))
_OPTION_SCHEMA = ", ".join(
    [f"Tensor? {name}" for name in TENSORS]
    + [f"{kind}? {name}" for name, kind in PLAIN.items()]
    + [f"{kind}? rope_{name}" for name, kind in ROPE.items()]
)


def _host(tensor: torch.Tensor, what: str) -> HostArray:
    return host_array(tensor.detach(), what, NAMES[tensor.dtype])


def _upload(device: Device, tensor: torch.Tensor, what: str) -> Tensor:
    kept = _torch_kept.find(device, tensor, lambda copy: copy._write(_host(tensor, what)))
    return kept or upload(device, _host(tensor, what))


def keep(key: str, tensor: torch.Tensor, what: str) -> Any:
    """Keeps a copy on the device until `_torch_kept.drop` of what is returned."""
    device = device_of(key)
    return _torch_kept.keep(device, tensor, upload(device, _host(tensor, what)))


def _download(tensor: Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(tensor.read()).to(like.dtype)


def _run(device: Device, record: Callable[[Plan], None]) -> None:
    with Plan(device) as plan:
        record(plan)
        plan.finish().run()


def _wanted(device: Device, wanted: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A tensor for the gradient of each that is wanted."""
    return {
        f"{name}_gradient": Tensor(device, tensor.shape, tensor.dtype)
        for (name, tensor), want in zip(tensors.items(), wanted)
        if want
    }


def _given(names: Any, values: Any) -> dict[str, Any]:
    return {name: x for name, x in zip(names, values) if x is not None}


def _options(values: Any) -> dict[str, Any]:
    """As `Plan.attention` takes them."""
    options = _given(OPTIONS, values)
    rope = {name: options.pop(f"rope_{name}") for name in ROPE if f"rope_{name}" in options}
    if rope:
        options["rope"] = Rope(**rope)
    if "dropout_seed" in options:
        options["dropout_seed"] = int(options["dropout_seed"]) % 2**64
    return options


def _scatter(wanted: Any, gradients: Any) -> list[torch.Tensor | None]:
    """The gradients at the places where one was wanted."""
    each = iter(gradients)
    return [next(each) if want else None for want in wanted]


def _define(
    name: str, schema: str, fake: Callable[..., Any], gradient: Any = None
) -> Callable[[Callable[..., Any]], Any]:
    """Makes a function the operator vkattn::name. gradient: see torch.library.register_autograd."""

    def refuse(*_: Any) -> Any:
        raise UnsupportedError(
            f"vkattn.torch.{name.partition('_')[0]}: torch.vmap is not supported: give all at"
            " once, with a batch axis"
        )

    def refuse_twice(*_: Any) -> Any:
        raise UnsupportedError(
            f"vkattn.torch.{name.partition('_')[0]}: gradients of gradients are not supported: give"
            " backward no create_graph"
        )

    def make(function: Callable[..., Any]) -> Any:
        op = torch.library.custom_op(
            f"vkattn::{name}", function, mutates_args=(), schema=schema, device_types="cpu"
        )
        op.register_fake(fake)
        torch.library.register_vmap(op._opoverload, refuse)
        if gradient is not None:
            backward, keep = gradient
            op.register_autograd(backward, setup_context=keep)
        elif name.endswith("_backward"):
            op.register_autograd(refuse_twice)
        return op

    return make


def _like(tensors: Any, wanted: Any) -> list[torch.Tensor]:
    return [x.new_empty(x.shape) for x, want in zip(tensors, wanted) if want]


# ---- Attention ----------------------------------------------------------------------------------


def _fake_attention(q: Any, k: Any, v: Any, *_: Any) -> Any:
    sums = q.new_empty(q.shape[:3], dtype=torch.float32)
    return q.new_empty((*q.shape[:3], v.shape[3])), sums


def _keep_attention(ctx: Any, inputs: Any, output: Any) -> None:
    n = 3 + len(TENSORS)
    ctx.save_for_backward(*inputs[:n], *output)
    ctx.plain = inputs[n:]
    ctx.set_materialize_grads(True)


def _learnt(operands: Any) -> dict[str, Any]:
    """q, k, v and the options that can have a gradient, of the operands."""
    named = dict(zip(("q", "k", "v", *OPTIONS), operands))
    return {name: named[name] for name in ("q", "k", "v", *LEARNT)}


def _differentiate_attention(ctx: Any, gradient: Any, _: Any) -> Any:
    *tensors, output, sums = ctx.saved_tensors
    names = ("q", "k", "v", *TENSORS)
    needs = dict(zip(names, ctx.needs_input_grad))
    wanted = [needs[name] for name in ("q", "k", "v", *LEARNT)]
    made = attention_backward(gradient, output, sums, wanted, *tensors, *ctx.plain)
    by_name = dict(zip(("q", "k", "v", *LEARNT), _scatter(wanted, made)))
    return *(by_name.get(name) for name in names), *(None for _ in ctx.plain)


@_define(
    "attention",
    f"(Tensor q, Tensor k, Tensor v, {_OPTION_SCHEMA}, str device) -> (Tensor, Tensor)",
    _fake_attention,
    (_differentiate_attention, _keep_attention),
)
def attention(q: Any, k: Any, v: Any, *given: Any) -> Any:
    """The context, and each query's log-sum-exp for the backward."""
    device, options = device_of(given[-1]), _options(given)
    if 0 in (*q.shape, *k.shape, *v.shape):  # no tensor has an axis of 0 elements
        made, sums = host_attention(q, k, v, device=device, log_sum_exp=True, **options)
        return torch.from_numpy(made).to(q.dtype), torch.from_numpy(sums)
    on = [_upload(device, x, name) for name, x in zip("qkv", (q, k, v))]
    output = Tensor(device, (*q.shape[:3], v.shape[3]), NAMES[q.dtype])
    sums = Tensor(device, q.shape[:3])
    _run(
        device,
        lambda plan: plan.attention(on[0], on[1], on[2], output, log_sum_exp=sums, **options),
    )
    return _download(output, q), torch.from_numpy(sums.read())


@_define(
    "attention_weights",
    f"(Tensor q, Tensor k, Tensor v, {_OPTION_SCHEMA}, str device) -> Tensor",
    lambda q, k, *_: q.new_empty((*q.shape[:3], k.shape[2])),
)
def attention_weights(q: Any, k: Any, v: Any, *given: Any) -> Any:
    device = device_of(given[-1])
    _, made = host_attention(q, k, v, device=device, scores="softmax", **_options(given))
    return torch.from_numpy(made).to(q.dtype)


@_define(
    "attention_backward",
    "(Tensor gradient, Tensor output, Tensor log_sum_exp, bool[] wanted, Tensor q, Tensor k,"
    f" Tensor v, {_OPTION_SCHEMA}, str device) -> Tensor[]",
    lambda gradient, output, sums, wanted, *given: _like(_learnt(given).values(), wanted),
)
def attention_backward(gradient: Any, output: Any, sums: Any, wanted: Any, *given: Any) -> Any:
    """Those wanted of the gradients of q, k, v and LEARNT."""
    operands = _learnt(given)
    likes = [x for x, want in zip(operands.values(), wanted) if want]
    if 0 in (*given[0].shape, *given[1].shape, *given[2].shape):
        return [torch.zeros_like(x) for x in likes]
    device, options = device_of(given[-1]), _options(given[3:])
    named = [(name, x, want) for (name, x), want in zip(operands.items(), wanted)]
    tensors = {name: _upload(device, x, name) for name, x, want in named if want or name in "qkv"}
    options.update((name, x) for name, x in tensors.items() if name not in "qkv")
    made = _wanted(device, [want for name, _, want in named if name in tensors], tensors)
    q, k, v = (tensors[name] for name in "qkv")
    rows = _upload(device, output, "output"), _upload(device, gradient, "gradient")
    known = upload(device, host_array(sums, "log_sum_exp"))
    options.update(made, log_sum_exp=known)
    _run(device, lambda plan: plan.attention_backward(q, k, v, rows[0], rows[1], **options))
    return [_download(x, like) for x, like in zip(made.values(), likes)]


# ---- Products -----------------------------------------------------------------------------------


def _keep_linear(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.device = inputs[3]


def _differentiate_linear(ctx: Any, gradient: Any) -> Any:
    wanted = list(ctx.needs_input_grad[:3])
    made = linear_backward(gradient, wanted, *ctx.saved_tensors, ctx.device)
    return *_scatter(wanted, made), None


@_define(
    "linear",
    "(Tensor input, Tensor weight, Tensor? bias, str device) -> Tensor",
    lambda input, weight, bias, device: input.new_empty((*input.shape[:-1], weight.shape[0])),
    (_differentiate_linear, _keep_linear),
)
def linear(input: Any, weight: Any, bias: Any, name: str) -> Any:
    if 0 in (*input.shape, *weight.shape):
        return torch.nn.functional.linear(input, weight, bias)
    device = device_of(name)
    x, w = _upload(device, input, "input"), _upload(device, weight, "weight")
    b = None if bias is None else _upload(device, bias, "bias")
    output = Tensor(device, (*input.shape[:-1], weight.shape[0]), NAMES[input.dtype])
    _run(device, lambda plan: plan.linear(x, w, output, bias=b))
    return _download(output, input)


@_define(
    "linear_backward",
    "(Tensor gradient, bool[] wanted, Tensor input, Tensor weight, Tensor? bias, str device)"
    " -> Tensor[]",
    lambda gradient, wanted, *given: _like(given, wanted),
)
def linear_backward(gradient: Any, wanted: Any, *given: Any) -> Any:
    *operands, name = given
    likes = [x for x, want in zip(operands, wanted) if want]
    if 0 in (*given[0].shape, *given[1].shape):
        over = tuple(range(gradient.dim() - 1))
        none = [torch.zeros_like(x) for x in given[:2]]
        bias = gradient.sum(over) if over else gradient.clone()
        return [x for x, want in zip((*none, bias), wanted) if want]
    device = device_of(name)
    operand = _given(("input", "weight", "bias"), operands)
    tensors = {name: _upload(device, x, name) for name, x in operand.items()}
    made = _wanted(device, wanted, tensors)
    rows = _upload(device, gradient, "gradient")
    x, w = tensors["input"], tensors["weight"]
    _run(device, lambda plan: plan.linear_backward(rows, input=x, weight=w, **made))
    return [_download(x, like) for x, like in zip(made.values(), likes)]


# ---- Layers -------------------------------------------------------------------------------------

# Operands of a layer; without a key it is the query, without a value the key.
OPERANDS = (
    *("query", "key", "value"),
    *(f"{name}.{kind}" for name in PROJECTIONS for kind in ("weight", "bias")),
    "mask",
)
_LAYER_SCHEMA = (
    ", ".join(f"Tensor{'' if x == 'query' else '?'} {x.replace('.', '_')}" for x in OPERANDS)
    + ", Tensor? key_padding_mask, Tensor? dropout_seed, bool causal, float dropout, int n_head,"
    " str layout, str device"
)


class _Call:
    """A layer and the operands of its call, on the device. mask is a tensor where its gradient is
    wanted."""

    def __init__(self, given: Any, mask_learns: bool) -> None:
        n = len(OPERANDS)
        padding, seed, causal, dropout, n_head, layout, name = given[n:]
        device = self.device = device_of(name)
        operands = _given(OPERANDS, given[:n])
        mask = operands.pop("mask", None)
        self.tensors = {name: _upload(device, x, name) for name, x in operands.items()}
        self.options: dict[str, Any] = {"causal": causal, "dropout": dropout}
        options = {"mask": mask, "key_padding_mask": padding}
        self.options.update((name, x) for name, x in options.items() if x is not None)
        if mask_learns:
            self.tensors["mask"] = self.options["mask"] = _upload(device, mask, "mask")
        if seed is not None:
            self.options["dropout_seed"] = int(seed) % 2**64
        self.query = self.tensors["query"]
        self.options["key"] = self.tensors.get("key", self.query)
        self.options["value"] = self.tensors.get("value", self.options["key"])
        weights: Any = {
            name: (self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))
            for name in PROJECTIONS
        }
        self.layer = Layer(device, n_head=n_head, layout=layout, **weights)


def _fake_layer(query: Any, *given: Any) -> Any:
    weight = given[OPERANDS.index("output.weight") - 1]
    return query.new_empty((*query.shape[:2], weight.shape[0]))


def _keep_layer(ctx: Any, inputs: Any, output: Any) -> None:
    n = len(OPERANDS) + 2
    ctx.save_for_backward(*inputs[:n], output)
    ctx.plain = inputs[n:]


def _differentiate_layer(ctx: Any, gradient: Any) -> Any:
    *tensors, output = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[: len(OPERANDS)])
    made = layer_backward(gradient, output, wanted, *tensors, *ctx.plain)
    return *_scatter(wanted, made), None, None, *(None for _ in ctx.plain)


@_define(
    "layer",
    f"({_LAYER_SCHEMA}) -> Tensor",
    _fake_layer,
    (_differentiate_layer, _keep_layer),
)
def layer(*given: Any) -> Any:
    call = _Call(given, False)
    query = call.query
    output = Tensor(call.device, (*query.shape[:2], call.layer.output_dim), query.dtype)
    _run(call.device, lambda plan: plan.layer(call.layer, query, output, **call.options))
    return _download(output, given[0])


@_define(
    "layer_backward",
    f"(Tensor gradient, Tensor output, bool[] wanted, {_LAYER_SCHEMA}) -> Tensor[]",
    lambda gradient, output, wanted, *given: _like(given, wanted),
)
def layer_backward(gradient: Any, output: Any, wanted: Any, *given: Any) -> Any:
    call = _Call(given, wanted[OPERANDS.index("mask")])
    needs = dict(zip(OPERANDS, wanted))
    made = _wanted(call.device, [needs[name] for name in call.tensors], call.tensors)
    arguments: Any = {name: tensor for name, tensor in made.items() if "." not in name}
    for name in PROJECTIONS:
        pair = (made.get(f"{name}.{kind}_gradient") for kind in ("weight", "bias"))
        arguments[f"{name}_weights"] = tuple(pair)
    rows = [_upload(call.device, x, "gradient") for x in (output, gradient)]
    _run(
        call.device,
        lambda plan: plan.layer_backward(
            call.layer, call.query, rows[0], rows[1], **call.options, **arguments
        ),
    )
    likes = [x for x, want in zip(given, wanted) if want]
    names = [name for name in OPERANDS if needs[name]]
    return [_download(made[f"{name}_gradient"], x) for name, x in zip(names, likes)]
