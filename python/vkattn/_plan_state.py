"""Layers with a state, as methods of a plan."""

from __future__ import annotations

from ._abi import enum_names, lib
from ._cache import Cache
from ._device import Tensor
from ._numbers import real, whole
from ._options import choose
from ._plan_model import ACTIVATIONS, ModelOperations

RULES = enum_names("VKA_RULE_", "vka_rule")


class StateOperations(ModelOperations):
    """Operations whose state goes from one run to the next, in tensors of the caller or a cache."""

    def causal_conv(
        self,
        input: Tensor,
        weight: Tensor,
        output: Tensor,
        *,
        bias: Tensor | None = None,
        dilation: int = 1,
        activation: str = "identity",
        past: Tensor | None = None,
        present: Tensor | None = None,
        cache: Cache | None = None,
        cache_layer: int = 0,
        lengths: Tensor | None = None,
        q_start: Tensor | None = None,
    ) -> None:
        """Adds a depthwise causal convolution of input [batch][n][channels] by weight
        [channels][width]. past and present [batch][channels][(width - 1) * dilation]: the rows
        before, and those kept for the next run, also in place; or cache and cache_layer hold them, of
        which lengths is the n_append. lengths [batch], or the q_start of
        packed sequences: which rows count."""
        self._add(
            "causal_conv",
            {
                "input": input,
                "weight": weight,
                "bias": bias,
                "past": past,
                "present": present,
                "lengths": lengths,
                "q_start": q_start,
                "output": output,
            },
            ("bias", "past", "present", "lengths", "q_start"),
            dilation=whole(dilation, "dilation", 1),
            cache=cache,
            cache_layer=cache_layer,
            activation=choose(ACTIVATIONS, activation, "activation"),
        )

    def linear_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        output: Tensor,
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
        present_state: Tensor | None = None,
        cache: Cache | None = None,
        cache_layer: int = 0,
        lengths: Tensor | None = None,
        q_start: Tensor | None = None,
    ) -> None:
        """Adds linear attention of q, k and v [batch][heads][n][features] by a rule: "linear",
        "gated", "delta" or "gated_delta". decay [batch][states][n], or of each key feature
        [batch][states][n][head_dim]; beta [batch][states][n], or of one head for all. The states
        before and after are float32 [batch][states][head_dim][value_dim], also in place, or those that
        cache_layer of cache holds. scale:
        None is 1 / sqrt(head_dim). lengths and q_start: as causal_conv has them. What models have in
        front: norm_epsilon above 0 divides q and k by their length; beta_sigmoid makes beta of what is
        there; with decay_log [states] the decay is -exp(decay_log) softplus(decay + decay_bias), where
        decay_steps multiplies v by that softplus, within step_min .. step_max (0: no bound);
        skip [states] times v is added to output."""
        self._add(
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
                "present_state": present_state,
                "lengths": lengths,
                "q_start": q_start,
                "output": output,
            },
            (
                "decay",
                "beta",
                "decay_log",
                "decay_bias",
                "skip",
                "past_state",
                "present_state",
                "lengths",
                "q_start",
            ),
            rule=choose(RULES, rule, "rule"),
            cache=cache,
            cache_layer=cache_layer,
            given=0 if scale is None else lib.VKA_GIVEN_SCALE,
            scale=0.0 if scale is None else real(scale, "scale"),
            norm_epsilon=real(norm_epsilon, "norm_epsilon"),
            beta_sigmoid=beta_sigmoid,
            decay_steps=decay_steps,
            step_min=real(step_min, "step_min"),
            step_max=real(step_max, "step_max"),
        )
