"""The operations around attention, as methods of a plan."""

from __future__ import annotations

from typing import Any, Sequence

from ._abi import enum_names, ffi, lib, new_struct
from ._core import Child
from ._errors import InvalidError
from ._options import Gradient, choose, pointer, write_gradients
from ._tensor import Tensor

NORMS = {"rms": 0, "layer": 1}
ACTIVATIONS = enum_names("VKA_", "vka_activation")


class ModelOperations(Child):
    """Operations of vkattn_model.h; outputs are tensors of the caller, floats of any type."""

    def _add(
        self,
        name: str,
        tensors: dict[str, Tensor | None],
        optional: Sequence[str] = (),
        keep: Any = None,
        gradients: dict[str, Gradient] | None = None,
        **numbers: Any,
    ) -> None:
        """Adds vka_<name>_op with these members. keep lives until the call has read it."""
        op = new_struct(f"vka_{name}_op")
        for member, number in numbers.items():
            setattr(op, member, number)

        def add() -> int:
            for member, tensor in tensors.items():
                setattr(op, member, pointer(tensor, member, optional=member in optional))
            write_gradients(op, gradients or {})
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
    ) -> None:
        """Adds output = norm(input + residual) * weight + bias over the last `axes` axes; kind:
        "rms" or "layer". sum receives input + residual, also in place of either."""
        self._add(
            "norm",
            {
                "input": input,
                "output": output,
                "weight": weight,
                "bias": bias,
                "residual": residual,
                "sum": sum,
            },
            ("weight", "bias", "residual", "sum"),
            kind=choose(NORMS, kind, "kind"),
            axes=axes,
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
            alpha=alpha,
        )

    def add(self, a: Tensor, b: Tensor, output: Tensor) -> None:
        """Adds output = a + b, which broadcast."""
        self._add("binary", {"a": a, "b": b, "output": output}, kind=0)

    def multiply(self, a: Tensor, b: Tensor, output: Tensor) -> None:
        """Adds output = a * b, which broadcast."""
        self._add("binary", {"a": a, "b": b, "output": output}, kind=1)

    def gather(self, table: Tensor, ids: Tensor, output: Tensor, *, scale: float = 1.0) -> None:
        """Adds output[...] = scale * table[ids[...]]; an id outside the table gives zeros."""
        self._add("gather", {"table": table, "ids": ids, "output": output}, scale=scale)

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
            axis=axis,
            circular=bool(circular),
        )

    def rotary(
        self,
        input: Tensor,
        output: Tensor,
        *,
        positions: Tensor | None = None,
        dim: int = 0,
        interleaved: bool = False,
        base: float = 0.0,
        frequencies: Sequence[float] | None = None,
        attention_factor: float = 1.0,
        cos: Tensor | None = None,
        sin: Tensor | None = None,
    ) -> None:
        """Adds rotary embedding of input [batch][n_head][n][head_dim], by base (0: 10000), by
        frequencies in radians a position, or by tables."""
        words = ffi.NULL if frequencies is None else ffi.new("double[]", list(frequencies))
        half = (dim or input.shape[-1]) // 2
        if frequencies is not None and len(words) != half:
            from ._errors import InvalidError

            raise InvalidError(f"frequencies: expected {half} numbers, got {len(words)}")
        self._add(
            "rotary",
            {"input": input, "output": output, "positions": positions, "cos": cos, "sin": sin},
            ("positions", "cos", "sin"),
            keep=words,
            dim=dim,
            interleaved=bool(interleaved),
            base=base,
            frequencies=words,
            attention_factor=attention_factor,
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
        top_p: float = 0.0,
        min_p: float = 0.0,
        seed: int = 0,
        step: Tensor | None = None,
    ) -> None:
        """Adds a draw of output (i32) from each row of logits; step: i32 [1], which each run
        advances."""
        self._add(
            "sample",
            {"logits": logits, "output": output, "step": step},
            ("step",),
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
        )

    def merge(
        self,
        parts: Sequence[Tensor],
        log_sum_exps: Sequence[Tensor],
        output: Tensor,
        *,
        log_sum_exp: Tensor | None = None,
    ) -> None:
        """Adds the merging of attention over parts of the keys, each as output [..][value_dim], by
        their log_sum_exps [..], float32; log_sum_exp receives that of all keys."""
        if len(parts) != len(log_sum_exps):
            raise InvalidError(f"merge: {len(parts)} parts, but {len(log_sum_exps)} log_sum_exps")
        op = new_struct("vka_merge_op")
        op.n_part = len(parts)

        def add() -> int:
            arrays = [
                ffi.new("struct vka_tensor *[]", [pointer(t, name) for t in tensors])
                for name, tensors in (("parts", parts), ("log_sum_exps", log_sum_exps))
            ]
            op.parts, op.log_sum_exps = arrays
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
        before, after = (padding, padding) if isinstance(padding, int) else padding
        self._add(
            "conv1d",
            {"input": input, "weight": weight, "bias": bias, "output": output},
            ("bias",),
            stride=stride,
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
