"""Plans."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Callable, Tuple, Union

from . import _extra_rows
from ._abi import ffi, lib, new_struct, text_of
from ._cache import Cache
from ._core import COMPILING, SLICE, check_child
from ._device import Device, Place, Tensor, pick_device
from ._errors import InvalidError, UnsupportedError
from ._masks import Sizes
from ._numbers import flag, put, real, whole
from ._option_table import takes_options
from ._options import (
    LAYOUTS,
    PATHS,
    AttentionOptions,
    Gradient,
    Prepared,
    choose,
    pointer,
    write_gradients,
)
from ._plan_train import TrainingOperations
from ._weights import Layer

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_TIMEOUT = 30.0  # seconds
_UINT64_MAX = 2**64 - 1

# The gradient of a projection's weight, or those of its weight and bias.
LinearGradients = Union[Gradient, Tuple[Gradient, Gradient]]


def _nanoseconds(timeout: float) -> int:
    seconds = real(timeout, "timeout")
    if not seconds >= 0:  # NaN too
        raise InvalidError(f"timeout: expected seconds, 0 or more, got {timeout!r}")
    return _UINT64_MAX if math.isinf(seconds) or seconds > 1e10 else int(seconds * 1e9)


@dataclasses.dataclass(frozen=True)
class Pass:
    """One dispatch of a finished plan."""

    name: str  # what it computes: "scores", "softmax", ...
    kernel: str
    detail: str  # tile, element types, grid
    reason: str  # why this kernel
    gpu_ms: float | None  # of the last run; None where not measured


@dataclasses.dataclass(frozen=True)
class Nonfinite:
    """NaN and infinities in a tensor that an operation wrote, in the last run."""

    name: str  # "output", "scores", "log_sum_exp", "present_key" or "present_value"
    nan: int  # elements
    inf: int  # elements, of either sign


class Plan(TrainingOperations):
    """Operations on tensors, recorded once by `finish` and run as often as wanted.

    path: "auto", "unfused" or "fused". workspace_limit: bytes aimed at for a slice of scores, 64
    MiB by default; at 0 a slice is a row.
    timestamps: measure each pass on the device. submit_budget: nanoseconds that one submit may take
    there; 0: 200 ms, None: any time. count_nonfinite: count NaN and infinities in what operations
    write, see `nonfinite`; one more pass a tensor.

        plan = vkattn.Plan(device)
        plan.attention(q, k, v, y, causal=True)
        plan.finish()
        q.write(x)
        plan.run()
        result = y.read()
    """

    def __init__(
        self,
        device: Place = None,
        *,
        path: str = "auto",
        workspace_limit: int | None = None,
        timestamps: bool = False,
        submit_budget: int | None = 0,
        count_nonfinite: bool = False,
        whole_n_q: int = 0,
    ) -> None:
        device = pick_device(device)
        info = new_struct("vka_plan_info")
        info.path = choose(PATHS, path, "path")
        if workspace_limit is not None:  # 0 is C's default
            info.workspace_limit = whole(workspace_limit, "workspace_limit", 0, _UINT64_MAX) or 1
        info.whole_n_q = whole(whole_n_q, "whole_n_q")
        info.timestamps = flag(timestamps, "timestamps")
        info.count_nonfinite = flag(count_nonfinite, "count_nonfinite")
        put(info, submit_budget=_UINT64_MAX if submit_budget is None else submit_budget)
        info.compile_timeout = SLICE
        core = device._core
        self._create(device, "plan", lambda box: lib.vka_plan_create(core.box[0], info, box))

    def __repr__(self) -> str:
        return f"<vkattn.Plan on {self.device.info.name!r}{', closed' if self.closed else ''}>"

    @takes_options
    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        output: Tensor,
        *,
        past: tuple[Tensor, Tensor] | None = None,
        present: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        cache_layer: int = 0,
        n_append: Tensor | None = None,
        ragged: Tensor | tuple[Tensor, Tensor] | None = None,
        scores: str | None = None,
        scores_to: Tensor | None = None,
        log_sum_exp: Tensor | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        """Adds attention.

        q [batch][n_head][n_q][head_dim], k [batch][n_kv_head][n_new][head_dim],
        v [batch][n_kv_head][n_new][value_dim], output [batch][n_head][n_q][value_dim], each at any
        strides.
        past: keys and values [batch][n_kv_head][n_past][...] that stand before k and v.
        present: tensors [batch][n_kv_head][n_past + n_new][...] that receive both.
        cache: k and v join its layer cache_layer; instead of past, present, kv_length and
        query_offset. n_append: how many of the new positions each sequence keeps, i32 [batch].
        ragged: (q_start, kv_start), i32 [n + 1] each: n sequences packed along the row axes. With
        a cache q_start alone, of its sequences: k and v are packed as q, and each sequence keeps its
        own rows, so that prompts and single tokens share a step.
        scores: "raw", "softcap", "bias" or "softmax", written to scores_to, float32
        [batch][n_head][n_q][n_kv].
        log_sum_exp: float32 [batch][n_head][n_q], receives ln of the sum of e^score of each query,
        which Plan.merge takes.
        """
        old = past[:1] if isinstance(past, (tuple, list)) else ()
        prepared = Prepared(
            self.device,
            dict(options),
            scores,
            scores_to,
            log_sum_exp,
            lambda: Sizes(
                batch=_axis(q, "q", 4, 0),
                n_head=_axis(q, "q", 4, 1),
                n_q=_axis(q, "q", 4, 2),
                n_kv=_capacity(cache) or sum(_axis(x, "k", 4, 2) for x in (k, *old)),
            ),
        )
        op = new_struct("vka_attention_op")

        def add() -> int:
            op.q = pointer(q, "q")
            op.k = pointer(k, "k")
            op.v = pointer(v, "v")
            op.output = pointer(output, "output")
            op.past_key, op.past_value = _pair(past, "past")
            op.present_key, op.present_value = _pair(present, "present")
            if isinstance(ragged, (tuple, list)):
                op.q_start, op.kv_start = _pair(ragged, "ragged")
            elif ragged is not None:
                op.q_start = pointer(ragged, "ragged")
            op.cache = ffi.NULL if cache is None else check_child(cache, Cache, "cache")._pointer
            put(op, cache_layer=cache_layer)
            op.n_append = ffi.NULL if n_append is None else pointer(n_append, "n_append")
            prepared.write(op.options)
            return int(lib.vka_plan_add_attention(self._pointer, op))

        self.device._core.call(add)

    @takes_options
    def attention_backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        output: Tensor,
        output_gradient: Tensor,
        *,
        log_sum_exp: Tensor,
        q_gradient: Gradient = None,
        k_gradient: Gradient = None,
        v_gradient: Gradient = None,
        sink_gradient: Gradient = None,
        mask_gradient: Gradient = None,
        q_norm_gradient: Gradient = None,
        k_norm_gradient: Gradient = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        """Adds the backward of `attention` with the same operands and options, whose log_sum_exp
        holds what it wrote; output is not read. Gradients of masks, sinks and norms are of float
        Tensors in options. Not of past, present, cache or ragged attention."""
        prepared = Prepared(
            self.device,
            dict(options),
            None,
            None,
            log_sum_exp,
            lambda: Sizes(
                batch=_axis(q, "q", 4, 0),
                n_head=_axis(q, "q", 4, 1),
                n_q=_axis(q, "q", 4, 2),
                n_kv=_axis(k, "k", 4, 2),
            ),
        )
        forward = new_struct("vka_attention_op")
        op = new_struct("vka_attention_backward_op")
        gradients = {
            "q_gradient": q_gradient,
            "k_gradient": k_gradient,
            "v_gradient": v_gradient,
            "sink_gradient": sink_gradient,
            "mask_gradient": mask_gradient,
            "q_norm_gradient": q_norm_gradient,
            "k_norm_gradient": k_norm_gradient,
        }

        def add() -> int:
            forward.q, forward.k, forward.v = pointer(q, "q"), pointer(k, "k"), pointer(v, "v")
            forward.output = pointer(output, "output")
            prepared.write(forward.options)
            op.forward = forward
            op.output_gradient = pointer(output_gradient, "output_gradient")
            write_gradients(op, gradients)
            return int(lib.vka_plan_add_attention_backward(self._pointer, op))

        self.device._core.call(add)

    @takes_options
    def layer(
        self,
        layer: Layer,
        query: Tensor,
        output: Tensor,
        *,
        key: Tensor | None = None,
        value: Tensor | None = None,
        layout: str | None = None,
        cache: Cache | None = None,
        cache_layer: int = 0,
        n_append: Tensor | None = None,
        ragged: Tensor | None = None,
        scores: str | None = None,
        scores_to: Tensor | None = None,
        log_sum_exp: Tensor | None = None,
        activations: str | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        """Adds a whole layer.

        query [batch][n_q][query_dim], key [batch][n_kv][key_dim] (by default query), value
        [batch][n_kv][value_input_dim] (by default key), output [batch][n_q][output_dim]; with
        layout "sbd" the first two axes of all four are swapped. layout and options are the
        layer's where they are not given. cache, n_append, ragged (with a cache), scores, scores_to
        and log_sum_exp as in `attention`; of a layer with bias_kv or zero_attn, scores_to and a mask
        that is a Tensor have n_kv + layer.n_extra keys. activations as in `linear`, for a layer of
        block types.
        """
        prepared, write = self._layer_op(
            layer, query, key, value, layout, cache, options, (scores, scores_to, log_sum_exp)
        )

        def add() -> int:
            op = write(output)
            op.cache = ffi.NULL if cache is None else check_child(cache, Cache, "cache")._pointer
            put(op, cache_layer=cache_layer)
            op.n_append = ffi.NULL if n_append is None else pointer(n_append, "n_append")
            op.q_start = ffi.NULL if ragged is None else pointer(ragged, "ragged")
            op.activations = _activations(activations)
            prepared.write(op.attention)
            return int(lib.vka_plan_add_layer(self._pointer, op))

        self.device._core.call(add)

    def _layer_op(
        self,
        layer: Layer,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        layout: str | None,
        cache: Cache | None,
        given: Any,
        returned: tuple[str | None, Tensor | None, Tensor | None],
    ) -> tuple[Prepared, Callable[[Tensor], Any]]:
        """Options, and what makes a struct vka_layer_op of an output, without them, within a turn."""
        check_child(layer, Layer, "layer")
        axes = choose(LAYOUTS, layer.layout if layout is None else layout, "layout")
        batch_axis, row_axis = (1, 0) if axes else (0, 1)
        options = {**layer.options, **given}
        if layer.n_extra:
            _extra_rows.check_options(options, cache)
        prepared = Prepared(
            self.device,
            dict(options),
            *returned,
            lambda: Sizes(
                batch=_axis(query, "query", 3, batch_axis),
                n_head=layer.n_head,
                n_q=_axis(query, "query", 3, row_axis),
                n_kv=_capacity(cache) or _axis(query if key is None else key, "key", 3, row_axis),
            ),
            layer.n_extra,
        )
        if layer.n_extra:
            key, value = _extra_rows.append_rows(
                self.device,
                layer,
                row_axis,
                query,
                key,
                value,
                add_copy=lambda source, to: self.activation(source, to, "identity"),
            )

        def write(output: Tensor) -> Any:
            op = new_struct("vka_layer_op")
            op.layout = axes
            op.layer = layer._pointer
            op.query = pointer(query, "query")
            op.key = pointer(key, "key", optional=True)
            op.value = pointer(value, "value", optional=True)
            op.output = pointer(output, "output")
            return op

        return prepared, write

    @takes_options
    def layer_backward(
        self,
        layer: Layer,
        query: Tensor,
        output: Tensor,
        output_gradient: Tensor,
        *,
        key: Tensor | None = None,
        value: Tensor | None = None,
        layout: str | None = None,
        query_gradient: Gradient = None,
        key_gradient: Gradient = None,
        value_gradient: Gradient = None,
        query_weights: LinearGradients = None,
        key_weights: LinearGradients = None,
        value_weights: LinearGradients = None,
        output_weights: LinearGradients = None,
        sink_gradient: Gradient = None,
        mask_gradient: Gradient = None,
        q_norm_gradient: Gradient = None,
        k_norm_gradient: Gradient = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        """Adds the backward of `layer` with the same operands and options; output is not read.
        Where key or value is None or the Tensor of an input before it, the gradient of that input is
        the sum over all that it serves. query_weights and so on are the gradient of a weight, or a
        pair (of the weight, of the bias); either may be None. Not with a cache."""
        prepared, write = self._layer_op(
            layer, query, key, value, layout, None, options, (None, None, None)
        )
        if layer.n_extra:
            raise UnsupportedError("layer_backward: not supported with bias_kv or zero_attn")
        gradients = {
            "query_gradient": query_gradient,
            "key_gradient": key_gradient,
            "value_gradient": value_gradient,
            "sink_gradient": sink_gradient,
            "mask_gradient": mask_gradient,
            "q_norm_gradient": q_norm_gradient,
            "k_norm_gradient": k_norm_gradient,
        }
        weights = {
            "query_weights": query_weights,
            "key_weights": key_weights,
            "value_weights": value_weights,
            "output_weights": output_weights,
        }
        op = new_struct("vka_layer_backward_op")

        def add() -> int:
            forward = write(output)
            prepared.write(forward.attention)
            op.forward = forward
            op.output_gradient = pointer(output_gradient, "output_gradient")
            write_gradients(op, gradients)
            for name, pair in weights.items():
                weight, bias = pair if isinstance(pair, (tuple, list)) else (pair, None)
                write_gradients(getattr(op, name), {"weight": weight, "bias": bias})
            return int(lib.vka_plan_add_layer_backward(self._pointer, op))

        self.device._core.call(add)

    def linear(
        self,
        input: Tensor,
        weight: Tensor,
        output: Tensor,
        *,
        bias: Tensor | None = None,
        weight_scale: Tensor | None = None,
        relu_input: bool = False,
        accumulate: bool = False,
        activations: str | None = None,
    ) -> None:
        """Adds output = input weight^T + bias: input [...][in], weight [out][in], bias [out],
        output [...][out]. weight_scale: float32 [out], by which rows of a weight of blocks are
        multiplied. relu_input: max(x, 0) on the input as it is read. accumulate: add to
        what output holds. activations "i8" quantises the input and multiplies integers, where
        weight is quantised: a normalised squared error of about 2.3e-5."""
        op = new_struct("vka_linear_op")
        op.relu_input = flag(relu_input, "relu_input")
        op.accumulate = flag(accumulate, "accumulate")
        op.activations = _activations(activations)

        def add() -> int:
            op.input = pointer(input, "input")
            op.weight = pointer(weight, "weight")
            op.bias = pointer(bias, "bias", optional=True)
            op.weight_scale = pointer(weight_scale, "weight_scale", optional=True)
            op.output = pointer(output, "output")
            return int(lib.vka_plan_add_linear(self._pointer, op))

        self.device._core.call(add)

    def finish(self) -> Plan:
        """Allocates the workspace, records, and has a CPU driver compile. Once; returns the plan.

        WaitTimeout: it has not compiled after 600 s; finish again to wait on, as after an interrupt
        (Ctrl-C), which is raised within a tenth of a second.
        """
        core = self.device._core
        core.turn(lambda: core.wait(lambda _: int(lib.vka_plan_finish(self._pointer)), COMPILING))
        return self

    def submit(self) -> int:
        """Starts a run and returns its ticket at once."""
        ticket = ffi.new("uint64_t *")
        self.device._core.call(lambda: lib.vka_plan_submit(self._pointer, ticket))
        return int(ticket[0])

    def wait(self, ticket: int, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Waits for a ticket, timeout in seconds. WaitTimeout: still running, wait again.

        An interrupt (Ctrl-C) ends the wait within a tenth of a second. The run goes on: wait for
        its ticket again, or close the plan, which the device keeps until the run is done.
        """
        limit, number = _nanoseconds(timeout), whole(ticket, "ticket", 0, _UINT64_MAX)
        self.device._core.turn(lambda: self._wait(number, limit))

    def run(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Submits and waits; an interrupt ends the wait as in `wait`."""
        limit = _nanoseconds(timeout)
        core, ticket = self.device._core, ffi.new("uint64_t *")

        def submit_and_wait() -> None:
            core.check(lib.vka_plan_submit(self._pointer, ticket))
            self._wait(ticket[0], limit)

        core.turn(submit_and_wait)

    def _wait(self, ticket: int, limit: int) -> None:
        """Within a turn."""
        plan = self._pointer
        core = self.device._core
        core.wait(lambda time: int(lib.vka_plan_wait(plan, ticket, time)), limit, "the run")

    def passes(self) -> list[Pass]:
        """The dispatches of the finished plan."""
        info = ffi.new("struct vka_pass_info *")
        passes = []

        def read() -> int:
            for i in range(lib.vka_plan_pass_count(self._pointer)):
                status = int(lib.vka_plan_pass(self._pointer, i, info))
                if status:
                    return status
                passes.append(
                    Pass(
                        name=text_of(info.name),
                        kernel=text_of(info.kernel),
                        detail=text_of(info.detail),
                        reason=text_of(info.reason),
                        gpu_ms=info.gpu_ms if info.gpu_ms >= 0 else None,
                    )
                )
            return 0

        self.device._core.call(read)
        return passes

    def nonfinite(self) -> list[Nonfinite]:
        """The counts of the last run, in the order of the operations; none without count_nonfinite.
        InvalidError where the last run has not been waited for.

        What was asked for counts too: -inf in scores of "bias" for hidden keys and in log_sum_exp
        for rows without keys, NaN in such rows with masked_row="nan".
        """
        info = ffi.new("struct vka_nonfinite_info *")
        counts = []

        def read() -> int:
            for i in range(lib.vka_plan_nonfinite_count(self._pointer)):
                status = int(lib.vka_plan_nonfinite(self._pointer, i, info))
                if status:
                    return status
                counts.append(Nonfinite(text_of(info.name), info.nan, info.inf))
            return 0

        self.device._core.call(read)
        return counts

    def describe(self) -> str:
        """A line a pass: name, kernel, detail and reason."""

        def read() -> str:
            size = lib.vka_plan_describe(self._pointer, ffi.NULL, 0) + 1
            text = ffi.new("char[]", size)
            lib.vka_plan_describe(self._pointer, text, size)
            return text_of(text)

        return self.device._core.turn(read)

    @property
    def workspace(self) -> int:
        """Device bytes that the finished plan owns."""
        return self.device._core.turn(lambda: int(lib.vka_plan_workspace(self._pointer)))


def _activations(name: str | None) -> int:
    if name not in (None, "f32", "i8"):
        raise InvalidError(f'activations: expected "f32" or "i8", got {name!r}')
    return int(lib.VKA_I8 if name == "i8" else lib.VKA_F32)


def _axis(tensor: Any, what: str, rank: int, axis: int) -> int:
    shape = check_child(tensor, Tensor, what).shape
    if len(shape) != rank:
        raise InvalidError(f"{what}: expected {rank} axes, got {list(shape)}")
    return int(shape[axis])


def _capacity(cache: Cache | None) -> int:
    """0 without a cache."""
    return 0 if cache is None else int(check_child(cache, Cache, "cache").capacity)


def _pair(tensors: Any, what: str) -> tuple[Any, Any]:
    if tensors is None:
        return ffi.NULL, ffi.NULL
    if not isinstance(tensors, (tuple, list)) or len(tensors) != 2:
        raise TypeError(f"{what}: expected two tensors, got {tensors!r}")
    return pointer(tensors[0], what), pointer(tensors[1], what)
