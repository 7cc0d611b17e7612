"""Gradients, losses and optimisers, as methods of a plan."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from ._abi import enum_names, ffi, lib, new_struct
from ._device import Tensor
from ._errors import InvalidError
from ._numbers import nonzero, put, whole
from ._options import Accumulate, Gradient, choose, pointer, write_gradients
from ._plan_model import ACTIVATIONS, NORMS
from ._plan_state import RULES, StateOperations

OPTIMISERS = {
    name: kind for name, kind in enum_names("VKA_", "vka_optimiser").items() if "_" not in name
}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What an optimiser updates, and what it keeps of it, of one shape.

    tensor: f32, f16 or bf16, updated in place. The moments are f32, 0 before the first step; of
    "sgd" the first is the momentum's, and there is no second.
    """

    tensor: Tensor
    gradient: Tensor
    first_moment: Tensor | None = None
    second_moment: Tensor | None = None


class TrainingOperations(StateOperations):
    """Operations of vkattn_train.h. There is no tape: add the backward of each operation, last
    first, with the gradients that are wanted: tensors of the shape of what they belong to, or
    `Accumulate` of one. Their bits are the same in each run."""

    def _add_backward(
        self,
        name: str,
        tensors: dict[str, Tensor | None],
        gradients: dict[str, Gradient],
        **numbers: Any,
    ) -> None:
        self._add(f"{name}_backward", tensors, tuple(tensors), gradients=gradients, **numbers)

    def _add_backward_of(
        self,
        name: str,
        forward: dict[str, Tensor | None],
        own: dict[str, Tensor | None],
        gradients: dict[str, Gradient],
        **numbers: Any,
    ) -> None:
        """The backward of a vka_<name>_op with these tensors and numbers; C says which are needed."""
        op, of = new_struct(f"vka_{name}_backward_op"), new_struct(f"vka_{name}_op")
        put(of, **numbers)

        def add() -> int:
            for struct, tensors in ((of, forward), (op, own)):
                for member, tensor in tensors.items():
                    setattr(struct, member, pointer(tensor, member, optional=True))
            op.forward = of
            write_gradients(op, gradients)
            return int(getattr(lib, f"vka_plan_add_{name}_backward")(self._pointer, op))

        self.device._core.call(add)

    def linear_backward(
        self,
        output_gradient: Tensor,
        *,
        input: Tensor | None = None,
        weight: Tensor | None = None,
        relu_input: bool = False,
        input_gradient: Gradient = None,
        weight_gradient: Gradient = None,
        bias_gradient: Gradient = None,
    ) -> None:
        """Adds the backward of `linear`; weight_gradient needs input, and input_gradient weight."""
        self._add_backward(
            "linear",
            {"input": input, "weight": weight, "output_gradient": output_gradient},
            {
                "input_gradient": input_gradient,
                "weight_gradient": weight_gradient,
                "bias_gradient": bias_gradient,
            },
            relu_input=relu_input,
        )

    def activation_backward(
        self,
        input: Tensor,
        output_gradient: Tensor,
        kind: str,
        *,
        multiplier: Tensor | None = None,
        alpha: float = 1.0,
        input_gradient: Gradient = None,
        multiplier_gradient: Gradient = None,
    ) -> None:
        """Adds the backward of `activation`."""
        self._add_backward(
            "activation",
            {"input": input, "multiplier": multiplier, "output_gradient": output_gradient},
            {"input_gradient": input_gradient, "multiplier_gradient": multiplier_gradient},
            kind=choose(ACTIVATIONS, kind, "kind"),
            alpha=nonzero(alpha, "alpha"),
        )

    def causal_conv_backward(
        self,
        input: Tensor,
        weight: Tensor,
        output: Tensor,
        output_gradient: Tensor,
        *,
        bias: Tensor | None = None,
        dilation: int = 1,
        activation: str = "identity",
        past: Tensor | None = None,
        lengths: Tensor | None = None,
        present_gradient: Tensor | None = None,
        input_gradient: Gradient = None,
        weight_gradient: Gradient = None,
        bias_gradient: Gradient = None,
        past_gradient: Gradient = None,
    ) -> None:
        """Adds the backward of `causal_conv` with the same operands and options; output is not
        read. Not of a cache or of packed sequences."""
        self._add_backward_of(
            "causal_conv",
            {
                "input": input,
                "weight": weight,
                "bias": bias,
                "past": past,
                "lengths": lengths,
                "output": output,
            },
            {"output_gradient": output_gradient, "present_gradient": present_gradient},
            {
                "input_gradient": input_gradient,
                "weight_gradient": weight_gradient,
                "bias_gradient": bias_gradient,
                "past_gradient": past_gradient,
            },
            dilation=whole(dilation, "dilation", 1),
            activation=choose(ACTIVATIONS, activation, "activation"),
        )

    def add_backward(
        self, output_gradient: Tensor, *, a_gradient: Gradient = None, b_gradient: Gradient = None
    ) -> None:
        """Adds the backward of `add`; what was broadcast gets sums."""
        self._add_backward(
            "binary",
            {"output_gradient": output_gradient},
            {"a_gradient": a_gradient, "b_gradient": b_gradient},
            kind=0,
        )

    def multiply_backward(
        self,
        output_gradient: Tensor,
        *,
        a: Tensor | None = None,
        b: Tensor | None = None,
        a_gradient: Gradient = None,
        b_gradient: Gradient = None,
    ) -> None:
        """Adds the backward of `multiply`; a_gradient needs b, and b_gradient a."""
        self._add_backward(
            "binary",
            {"a": a, "b": b, "output_gradient": output_gradient},
            {"a_gradient": a_gradient, "b_gradient": b_gradient},
            kind=1,
        )

    def norm_backward(
        self,
        input: Tensor,
        output_gradient: Tensor,
        *,
        kind: str = "rms",
        axes: int = 1,
        epsilon: float = 1e-5,
        weight: Tensor | None = None,
        input_gradient: Gradient = None,
        weight_gradient: Gradient = None,
        bias_gradient: Gradient = None,
    ) -> None:
        """Adds the backward of `norm`; input is what was normalised, the sum where there was a
        residual, whose gradient is the input's."""
        self._add_backward(
            "norm",
            {"input": input, "weight": weight, "output_gradient": output_gradient},
            {
                "input_gradient": input_gradient,
                "weight_gradient": weight_gradient,
                "bias_gradient": bias_gradient,
            },
            kind=choose(NORMS, kind, "kind"),
            axes=whole(axes, "axes", 1, 4),
            given=lib.VKA_GIVEN_EPSILON,
            epsilon=epsilon,
        )

    def gather_backward(
        self,
        ids: Tensor,
        output_gradient: Tensor,
        table_gradient: Tensor | Accumulate,
        *,
        scale: float = 1.0,
    ) -> None:
        """Adds the backward of `gather`: sums over the rows of an id, in the order of the ids."""
        self._add_backward(
            "gather",
            {"ids": ids, "output_gradient": output_gradient},
            {"table_gradient": table_gradient},
            given=lib.VKA_GIVEN_SCALE,
            scale=scale,
        )

    def linear_attention_backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        output: Tensor,
        output_gradient: Tensor,
        *,
        rule: str,
        decay: Tensor | None = None,
        beta: Tensor | None = None,
        scale: float | None = None,
        norm_epsilon: float = 0.0,
        beta_sigmoid: bool = False,
        decay_log: Tensor | None = None,
        decay_bias: Tensor | None = None,
        decay_steps: bool = False,
        step_min: float = 0.0,
        step_max: float = 0.0,
        skip: Tensor | None = None,
        past_state: Tensor | None = None,
        lengths: Tensor | None = None,
        present_state_gradient: Tensor | None = None,
        q_gradient: Gradient = None,
        k_gradient: Gradient = None,
        v_gradient: Gradient = None,
        decay_gradient: Gradient = None,
        beta_gradient: Gradient = None,
        decay_log_gradient: Gradient = None,
        decay_bias_gradient: Gradient = None,
        skip_gradient: Gradient = None,
        past_state_gradient: Gradient = None,
    ) -> None:
        """Adds the backward of `linear_attention`, whose arguments come first; past_state holds what it
        held before the forward. Gradients of decay and beta are those of what is in their place."""
        self._add_backward_of(
            "linear_attention",
            {
                "q": q,
                "k": k,
                "v": v,
                "decay": decay,
                "beta": beta,
                "decay_log": decay_log,
                "decay_bias": decay_bias,
                "skip": skip,
                "past_state": past_state,
                "lengths": lengths,
                "output": output,
            },
            {
                "output_gradient": output_gradient,
                "present_state_gradient": present_state_gradient,
            },
            {
                "q_gradient": q_gradient,
                "k_gradient": k_gradient,
                "v_gradient": v_gradient,
                "decay_gradient": decay_gradient,
                "beta_gradient": beta_gradient,
                "decay_log_gradient": decay_log_gradient,
                "decay_bias_gradient": decay_bias_gradient,
                "skip_gradient": skip_gradient,
                "past_state_gradient": past_state_gradient,
            },
            rule=choose(RULES, rule, "rule"),
            given=0 if scale is None else lib.VKA_GIVEN_SCALE,
            scale=0.0 if scale is None else scale,
            norm_epsilon=norm_epsilon,
            beta_sigmoid=beta_sigmoid,
            decay_steps=decay_steps,
            step_min=step_min,
            step_max=step_max,
        )

    def cross_entropy(
        self,
        logits: Tensor,
        labels: Tensor,
        loss: Tensor,
        *,
        gradient: Tensor | None = None,
        smoothing: float = 0.0,
        gradient_scale: float = 1.0,
    ) -> None:
        """Adds loss (f32 [1]) = mean over the rows of -log(softmax(logits)[label]). labels: i32;
        rows of -100 do not count. gradient: of gradient_scale * loss, may be logits."""
        self._add(
            "cross_entropy",
            {"logits": logits, "labels": labels, "loss": loss, "gradient": gradient},
            ("gradient",),
            smoothing=smoothing,
            given=lib.VKA_GIVEN_GRADIENT_SCALE,
            gradient_scale=gradient_scale,
        )

    def square_error(
        self,
        input: Tensor,
        target: Tensor,
        loss: Tensor,
        *,
        gradient: Tensor | None = None,
        gradient_scale: float = 1.0,
    ) -> None:
        """Adds loss (f32 [1]) = mean of (input - target)^2; gradient as in `cross_entropy`."""
        self._add(
            "square_error",
            {"input": input, "target": target, "loss": loss, "gradient": gradient},
            ("gradient",),
            given=lib.VKA_GIVEN_GRADIENT_SCALE,
            gradient_scale=gradient_scale,
        )

    def optimiser(
        self,
        kind: str,
        parameters: Sequence[Parameter],
        learning_rate: float,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        step: Tensor | None = None,
        rate: Tensor | None = None,
    ) -> None:
        """Adds a step of "sgd", "adam" or "adamw", as torch.optim's. step: i32 [1], 0 before the
        first, which each run advances; Adam needs it. rate: f32 [1], multiplies learning_rate."""
        op = new_struct("vka_optimiser_op")
        op.kind = choose(OPTIMISERS, kind, "kind")
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise InvalidError(f"betas: expected two numbers, got {betas!r}")
        put(op, learning_rate=learning_rate, momentum=momentum, nesterov=nesterov)
        put(op, beta1=betas[0], beta2=betas[1], epsilon=epsilon, weight_decay=weight_decay)
        op.given = lib.VKA_GIVEN_BETA1 | lib.VKA_GIVEN_BETA2 | lib.VKA_GIVEN_EPSILON
        words = ffi.new("struct vka_parameter[]", len(parameters))

        def add() -> int:
            for i in range(len(parameters)):
                given, word = parameters[i], words[i]
                word.parameter = pointer(given.tensor, "parameter")
                word.gradient = pointer(given.gradient, "gradient")
                word.first_moment = pointer(given.first_moment, "first_moment", optional=True)
                word.second_moment = pointer(given.second_moment, "second_moment", optional=True)
            op.parameters, op.n_parameter = words, len(parameters)
            op.step = pointer(step, "step", optional=True)
            op.rate = pointer(rate, "rate", optional=True)
            return int(lib.vka_plan_add_optimiser(self._pointer, op))

        self.device._core.call(add)

    def clip(self, gradients: Sequence[Tensor], max_norm: float, norm: Tensor) -> None:
        """Adds clipping of gradients, in place, as torch.nn.utils.clip_grad_norm_ does it; norm
        (f32 [1]) receives that before."""
        if not gradients:
            raise InvalidError("gradients: expected one or more")
        op = new_struct("vka_clip_op")

        def add() -> int:
            words = ffi.new("struct vka_tensor *[]", [pointer(g, "gradients") for g in gradients])
            op.gradients, op.n_gradient = words, len(gradients)
            put(op, max_norm=max_norm)
            op.norm = pointer(norm, "norm")
            return int(lib.vka_plan_add_clip(self._pointer, op))

        self.device._core.call(add)
