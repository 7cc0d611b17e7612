"""The operations around attention, as methods of a plan."""

from __future__ import annotations

from typing import Any, Sequence

from ._abi import enum_names, ffi, lib, new_struct
from ._cache import Cache
from ._core import Child, check_child
from ._device import Device, Tensor
from ._errors import InvalidError
from ._numbers import nonzero, put, real, reals, whole
from ._options import Gradient, choose, pointer, write_gradients

NORMS = {"rms": 0, "layer": 1}
ACTIVATIONS = enum_names("VKA_", "vka_activation")


def least_share(top_p: float | None) -> float:
    """As C takes it, where 0 stands for all: the least number keeps the largest logits alone."""
    if top_p is None:
        return 0.0
    share = real(top_p, "top_p")
    return share if not 0 <= share < _TINY else _TINY


_TINY = 2.0**-126


class ModelOperations(Child):
    """Operations of vkattn_model.h; outputs are tensors of the caller, floats of any type."""

    device: Device

    def _add(
        self,
        name: str,
        tensors: dict[str, Tensor | None],
        optional: Sequence[str] = (),
        keep: Any = None,
        gradients: dict[str, Gradient] | None = None,
        cache: Cache | None = None,
        **numbers: Any,
    ) -> None:
        """Adds vka_<name>_op with these members. keep lives until the call has read it."""
        op = new_struct(f"vka_{name}_op")
        put(op, **numbers)

        def add() -> int:
            for member, tensor in tensors.items():
                setattr(op, member, pointer(tensor, member, optional=member in optional))
            write_gradients(op, gradients or {})
            if cache is not None:
                op.cache = check_child(cache, Cache, "cache")._pointer
            return int(getattr(lib, f"vka_plan_add_{name}")(self._pointer, op))

        self.device._core.call(add)
        del keep

    def norm(
        self,
        input: Tensor,
        output: Tensor,
        *,
        kind: str = "rms",
        axes: int = 1,
        epsilon: float = 1e-5,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        sum: Tensor | None = None,
        gate: Tensor | None = None,
        gate_activation: str = "silu",
        gate_first: bool = False,
        groups: int = 1,
    ) -> None:
        """Adds output = norm(input + residual) * weight + bias over the last `axes` axes; kind:
        "rms" or "layer". sum receives input + residual, also in place of either. In place of both,
        gate: the output is multiplied by gate_activation(gate), or with gate_first the input is.
        groups: so many equal stretches of the last axis are normalised each alone."""
        self._add(
            "norm",
            {
                "input": input,
                "output": output,
                "weight": weight,
                "bias": bias,
                "residual": residual,
                "sum": sum,
                "gate": gate,
            },
            ("weight", "bias", "residual", "sum", "gate"),
            kind=choose(NORMS, kind, "kind"),
            gate_activation=ACTIVATIONS["identity"]
            if gate is None
            else choose(ACTIVATIONS, gate_activation, "gate_activation"),
            gate_first=gate_first,
            groups=whole(groups, "groups", 1),
            axes=whole(axes, "axes", 1, 4),
            given=lib.VKA_GIVEN_EPSILON,
            epsilon=epsilon,
        )

    def activation(
        self,
        input: Tensor,
        output: Tensor,
        kind: str,
        *,
        multiplier: Tensor | None = None,
        alpha: float = 1.0,
    ) -> None:
        """Adds output = f(input) or f(input) * multiplier, which broadcast; kind: "identity",
        "gelu", "gelu_tanh", "silu" (with alpha), "relu", "tanh" or "sigmoid"."""
        self._add(
            "activation",
            {"input": input, "output": output, "multiplier": multiplier},
            ("multiplier",),
            kind=choose(ACTIVATIONS, kind, "kind"),
            alpha=nonzero(alpha, "alpha"),
        )

    def add(self, a: Tensor, b: Tensor, output: Tensor) -> None:
        """Adds output = a + b, which broadcast."""
        self._add("binary", {"a": a, "b": b, "output": output}, kind=0)

    def multiply(self, a: Tensor, b: Tensor, output: Tensor) -> None:
        """Adds output = a * b, which broadcast."""
        self._add("binary", {"a": a, "b": b, "output": output}, kind=1)

    def gather(self, table: Tensor, ids: Tensor, output: Tensor, *, scale: float = 1.0) -> None:
        """Adds output[...] = scale * table[ids[...]]; an id outside the table gives zeros."""
        self._add(
            "gather",
            {"table": table, "ids": ids, "output": output},
            given=lib.VKA_GIVEN_SCALE,
            scale=scale,
        )

    def scatter(
        self,
        update: Tensor,
        output: Tensor,
        *,
        axis: int,
        positions: Tensor | None = None,
        circular: bool = False,
    ) -> None:
        """Adds a write of update into output along axis, in place, from positions [batch] on."""
        self._add(
            "scatter",
            {"update": update, "output": output, "positions": positions},
            ("positions",),
            axis=whole(axis, "axis", 1, 3),
            circular=circular,
        )

    def rotary(
        self,
        input: Tensor,
        output: Tensor,
        *,
        positions: Tensor | None = None,
        dim: int | None = None,
        interleaved: bool = False,
        base: float | None = None,
        frequencies: Sequence[float] | None = None,
        attention_factor: float = 1.0,
        cos: Tensor | None = None,
        sin: Tensor | None = None,
    ) -> None:
        """Adds rotary embedding of input [batch][n_head][n][head_dim], whole or of the first dim
        features, by base (10000), by frequencies in radians a position, or by tables."""
        words = ffi.NULL
        turned = check_child(input, Tensor, "input").shape[-1]
        if dim is not None:
            turned = whole(dim, "dim", 2)
        if frequencies is not None:
            words = ffi.new("double[]", reals(frequencies, "frequencies", turned // 2))
        self._add(
            "rotary",
            {"input": input, "output": output, "positions": positions, "cos": cos, "sin": sin},
            ("positions", "cos", "sin"),
            keep=words,
            dim=0 if dim is None else turned,
            interleaved=interleaved,
            base=0.0 if base is None else nonzero(base, "base"),
            frequencies=words,
            attention_factor=nonzero(attention_factor, "attention_factor"),
        )

    def argmax(self, input: Tensor, output: Tensor) -> None:
        """Adds output (i32) = index of the largest element of each row of input."""
        self._add("argmax", {"input": input, "output": output})

    def sample(
        self,
        logits: Tensor,
        output: Tensor,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float | None = None,
        min_p: float = 0.0,
        seed: int = 0,
        step: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> None:
        """Adds a draw of output (i32) from each row of logits; a row without a number gives -1. top_k:
        0 for all. top_p: up to 1, by default all; 0 leaves the largest alone. step: i32 [1], or
        [rows] for one of each row, which each run advances; seeds: i32 [rows][2], of each row in
        place of seed."""
        self._add(
            "sample",
            {"logits": logits, "output": output, "step": step, "seeds": seeds},
            ("step", "seeds"),
            temperature=temperature,
            top_k=top_k,
            top_p=least_share(top_p),
            min_p=min_p,
            seed=seed,
        )

    def merge(
        self,
        slices: Sequence[Tensor],
        log_sum_exps: Sequence[Tensor],
        output: Tensor,
        *,
        log_sum_exp: Tensor | None = None,
    ) -> None:
        """Adds the merging of attention over slices of the keys, each as output [..][value_dim], by
        their log_sum_exps [..], float32; log_sum_exp receives that of all keys."""
        if len(slices) != len(log_sum_exps):
            raise InvalidError(f"merge: {len(slices)} slices, but {len(log_sum_exps)} log_sum_exps")
        op = new_struct("vka_merge_op")
        op.n_slice = len(slices)

        def add() -> int:
            arrays = [
                ffi.new("struct vka_tensor *[]", [pointer(t, name) for t in tensors])
                for name, tensors in (("slices", slices), ("log_sum_exps", log_sum_exps))
            ]
            op.slices, op.log_sum_exps = arrays
            op.output = pointer(output, "output")
            op.log_sum_exp = pointer(log_sum_exp, "log_sum_exp", optional=True)
            return int(lib.vka_plan_add_merge(self._pointer, op))

        self.device._core.call(add)

    def conv1d(
        self,
        input: Tensor,
        weight: Tensor,
        output: Tensor,
        *,
        bias: Tensor | None = None,
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        activation: str = "identity",
    ) -> None:
        """Adds a convolution along the rows of input [batch][length][in] by weight
        [out][width][in]; output [batch][rows][out]. padding: rows of zeros on each side, or before
        and after. activation: as `activation`, of the result."""
        pair = padding if isinstance(padding, (tuple, list)) else (padding, padding)
        if len(pair) != 2:
            raise InvalidError(f"padding: expected rows before and after, got {list(pair)}")
        before, after = (whole(n, "padding") for n in pair)
        self._add(
            "conv1d",
            {"input": input, "weight": weight, "bias": bias, "output": output},
            ("bias",),
            stride=whole(stride, "stride", 1),
            padding_before=before,
            padding_after=after,
            activation=choose(ACTIVATIONS, activation, "activation"),
        )

    def pool(
        self,
        input: Tensor,
        output: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        """Adds output [batch][width] = mean over the rows of input [batch][n][width] that count."""
        self._add(
            "pool",
            {"input": input, "output": output, "mask": mask, "lengths": lengths},
            ("mask", "lengths"),
        )
