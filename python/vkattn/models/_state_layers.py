"""Layers that keep a state where others attend: gated short convolutions and gated delta nets."""

from __future__ import annotations

from typing import Any, Callable, Protocol

import numpy as np

from .._cache import CacheLayer
from .._device import Tensor
from ._decoder import Inputs
from ._design import Design
from ._graph import Graph, Linear
from ._source import Weights

DELTA_EPSILON = 1e-6  # beside the squared length of a query or a key

# A tensor of so many columns that layers share, by its name.
Shared = Callable[[str, int], Tensor]


class StateLayer(Protocol):
    o: Linear  # what ends the layer

    def add(self, graph: Graph, rows: Tensor, shared: Shared, inputs: Inputs, i: int) -> Tensor:
        """What `o` multiplies, of layer i."""
        ...


class ShortConv:
    """LFM2's: C * conv(B * x), of B, C and x that rows are projected to."""

    def __init__(self, weights: Weights, d: Design, i: int) -> None:
        names = {role: d.layer_name(role, i) for role in ("state_in", "conv", "state_out")}
        bias = bool(d.conv_bias)
        self.width = d.width
        self.into = weights.linear(names["state_in"], 3 * d.width, d.width, bias=bias)
        self.weight = weights.depthwise(names["conv"], d.width, d.conv_width)
        self.bias = weights.vector(f"{names['conv']}.bias", d.width) if bias else None
        self.o = weights.linear(names["state_out"], d.width, d.width, bias=bias)

    chunk_rows = 32  # see Decoder

    @staticmethod
    def state(d: Design) -> CacheLayer:
        return CacheLayer(channels=d.width, conv_rows=d.conv_width - 1)

    def add(self, graph: Graph, rows: Tensor, shared: Shared, inputs: Inputs, i: int) -> Tensor:
        plan, width = graph.plan, self.width
        made = graph.linear(rows, self.into, shared("state rows", 3 * width))
        before, behind, x = graph.split(made, width, width, width)
        plan.multiply(before, x, x)
        context = shared("state context", width)
        plan.causal_conv(x, self.weight, context, bias=self.bias, **_cached(inputs, i))
        plan.multiply(context, behind, context)
        return context


class DeltaNet:
    """Qwen's: q, k and v of a convolution, the gated delta rule, and a norm that z gates."""

    def __init__(self, weights: Weights, d: Design, i: int) -> None:
        self.keys, self.values = d.delta_key_heads, d.delta_value_heads
        self.key_dim, self.value_dim = d.delta_key_dim, d.delta_value_dim
        self.activation = d.activation
        at = {role: d.layer_name(role, i) for role in d.names}
        rows, order = delta_rows(d), delta_order(d)
        self.into = [
            linear
            for roles in _runs_of(rows, order)
            for linear in weights.linears(
                [at[role] for role in roles],
                [rows[role] for role in roles],
                d.width,
                bias=False,
                order=order.get(roles[0]),
            )
        ]
        channels = self.channels
        self.weight = weights.depthwise(at["conv"], channels, d.conv_width)
        self.decay_log = weights.vector(at["decay_log"], self.values)
        self.decay_bias = weights.vector(at["decay_bias"], self.values)
        weight = weights.vector(f"{at['state_norm']}.weight", self.value_dim)
        self.norm = {"kind": "rms", "epsilon": d.epsilon, "weight": weight}
        self.o = weights.linear(at["state_out"], d.width, self.values * self.value_dim, bias=False)

    @property
    def channels(self) -> int:
        return int(2 * self.keys * self.key_dim + self.values * self.value_dim)

    chunk_rows = 64  # from so many on, linear attention goes by chunks

    @staticmethod
    def state(d: Design) -> CacheLayer:
        keys, values = d.delta_key_heads * d.delta_key_dim, d.delta_value_heads * d.delta_value_dim
        return CacheLayer(
            head_dim=d.delta_key_dim,
            value_dim=d.delta_value_dim,
            n_state=d.delta_value_heads,
            channels=2 * keys + values,
            conv_rows=d.conv_width - 1,
        )

    def add(self, graph: Graph, rows: Tensor, shared: Shared, inputs: Inputs, i: int) -> Tensor:
        plan, keys, values = graph.plan, self.keys * self.key_dim, self.values * self.value_dim
        widths = self.channels, values, self.values, self.values
        made = shared("state rows", sum(widths))
        graph.linears(rows, self.into, made)
        before, gate, beta, decay = graph.split(made, *widths)
        qkv, context = shared("state qkv", self.channels), shared("state context", values)
        held = _cached(inputs, i)
        plan.causal_conv(before, self.weight, qkv, activation=self.activation, **held)
        q, k, v = graph.split(qkv, keys, keys, values)
        plan.linear_attention(
            graph.heads(q, self.keys),
            graph.heads(k, self.keys),
            graph.heads(v, self.values),
            graph.heads(context, self.values),
            rule="gated_delta",
            decay=decay.permute(0, 2, 1),
            beta=beta.permute(0, 2, 1),
            norm_epsilon=DELTA_EPSILON,
            beta_sigmoid=True,
            decay_log=self.decay_log,
            decay_bias=self.decay_bias,
            **held,
        )
        heads = graph.batch, graph.rows, self.values, self.value_dim
        each = context.reshape(*heads)
        plan.norm(each, each, gate=gate.reshape(*heads), **self.norm)
        return context


def _cached(inputs: Inputs, i: int) -> dict[str, Any]:
    """The state of layer i, and the rows that change it."""
    return {"cache": inputs.cache, "cache_layer": i, "lengths": inputs.n_append}


def delta_rows(d: Design) -> dict[str, int]:
    """Rows of the matrices by their names: those of q, k and v, of the gate z, of beta, of decays."""
    keys, values = d.delta_key_heads * d.delta_key_dim, d.delta_value_heads * d.delta_value_dim
    if "state_qkvz" in d.names:
        return {"state_qkvz": 2 * (keys + values), "state_ba": 2 * d.delta_value_heads}
    heads = d.delta_value_heads
    return {
        "state_qkv": 2 * keys + values,
        "state_z": values,
        "state_b": heads,
        "state_a": heads,
    }


def delta_order(d: Design) -> dict[str, Any]:
    """The rows of a fused matrix that become those of q, k, v and z, and of beta and decays: files
    have them key head by key head."""
    if "state_qkvz" not in d.names:
        return {}
    heads, each = d.delta_key_heads, d.delta_value_heads // d.delta_key_heads
    widths = d.delta_key_dim, d.delta_key_dim, each * d.delta_value_dim, each * d.delta_value_dim
    return {"state_qkvz": _by_kind(heads, widths), "state_ba": _by_kind(heads, (each, each))}


def _by_kind(heads: int, widths: tuple[int, ...]) -> Any:
    """Rows [head][kind] as [kind][head]."""
    rows = np.arange(heads * sum(widths)).reshape(heads, -1)
    return np.concatenate([x.reshape(-1) for x in np.split(rows, np.cumsum(widths)[:-1], 1)])


def _runs_of(rows: dict[str, int], order: dict[str, Any]) -> list[list[str]]:
    """Matrices that are taken together: all, or each alone where it has an order."""
    return [[role] for role in rows] if order else [list(rows)]


# By the word of layer_types.
STATE_LAYERS: dict[str, Any] = {"conv": ShortConv, "linear_attention": DeltaNet}
