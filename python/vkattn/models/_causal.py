"""The decoder that all families of _families.py share."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from .._device import Tensor
from .._errors import UnsupportedError
from .._options import Rope
from ._decoder import Decoder, Inputs
from ._design import Design
from ._graph import Graph, Linear
from ._source import Weights
from ._state_layers import STATE_LAYERS, StateLayer
from ._text import Text


def alibi_slopes(n_head: int) -> list[float]:
    """2^(-8 i / n) for a power of two; for others those of the power below, then every second one
    of the power above."""
    below = 2 ** int(math.log2(n_head))
    slopes = [2.0 ** (-8 * i / below) for i in range(1, below + 1)]
    above = [2.0 ** (-4 * i / below) for i in range(1, 2 * below, 2)]
    return (slopes + above)[:n_head]


def sinusoids(n: int, width: int, skip: int) -> Any:
    """Positions from `skip` on as float32 [n][width], sines and then cosines."""
    half = width // 2
    steps = np.exp(np.arange(half) * -(math.log(10000) / max(half - 1, 1)))
    angles = (np.arange(n) + skip)[:, None] * steps
    rows = np.concatenate([np.sin(angles), np.cos(angles), np.zeros((n, width % 2))], 1)
    return rows.astype(np.float32)


def row_order(d: Design) -> Any:
    """The rows of a fused matrix that become those of q, of k and of v; None where they are so."""
    n, kv, dim = d.n_head, d.n_kv_head, d.head_dim
    if not d.qkv_order:
        return None
    if d.qkv_order == "shards":  # [4][q, v, k][heads of a shard][dim]
        if n % 4:
            raise UnsupportedError(f"n_head: {n} heads are not four shards of a fused matrix")
        rows = np.arange(3 * n * dim).reshape(4, 3, -1)
        each = [rows[:, i].reshape(-1) for i in (0, 2, 1)]
    else:  # "heads": [n_kv_head][q of the group .., k, v][dim]
        rows = np.arange((n + 2 * kv) * dim).reshape(kv, n // kv + 2, dim)
        each = [rows[:, :-2].reshape(-1), rows[:, -2].reshape(-1), rows[:, -1].reshape(-1)]
    return np.concatenate(each)


class _Block:
    """The weights of a layer: of its tensors those that the family names."""

    def __init__(self, weights: Weights, d: Design, i: int) -> None:
        heads, kv = d.n_head * d.head_dim, d.n_kv_head * d.head_dim

        def linears(bias: bool, **rows: int) -> list[Linear]:
            names = [d.layer_name(role, i) for role in rows]
            order = row_order(d) if "qkv" in rows else None
            options = {"transposed": d.transposed, "order": order}
            return weights.linears(names, list(rows.values()), d.width, bias=bias, **options)

        def linear(role: str, columns: int, bias: bool) -> Linear:
            name = d.layer_name(role, i)
            return weights.linear(name, d.width, columns, bias=bias, transposed=d.transposed)

        def norm(role: str) -> dict[str, Any] | None:
            return norm_of(weights, d, d.layer_name(role, i)) if role in d.names else None

        self.attn_norm, self.ffn_norm = norm("attn_norm"), norm("ffn_norm")
        self.attn_after, self.ffn_after = norm("attn_after"), norm("ffn_after")
        self.attn_sum, self.ffn_sum = norm("attn_sum"), norm("ffn_sum")
        self.state: StateLayer | None = None
        if d.stateful[i]:
            self.state = STATE_LAYERS[d.state](weights, d, i)
            self.o = self.state.o
        elif "qkv" in d.names:
            self.qkv = linears(d.qkv_bias, qkv=heads + 2 * kv)
        else:
            self.qkv = linears(d.qkv_bias, q=heads * (1 + d.attention_gate), k=kv, v=kv)
        if "gate_up" in d.names:
            self.gate_up = linears(d.mlp_bias, gate_up=2 * d.ffn_width)
        elif "gate" in d.names:
            self.gate_up = linears(d.mlp_bias, gate=d.ffn_width, up=d.ffn_width)
        else:
            self.gate_up = linears(d.mlp_bias, up=d.ffn_width)
        self.down = linear("down", d.ffn_width, d.mlp_bias)
        if self.state:
            return
        self.o = linear("o", heads, d.o_bias)
        self.head_norms = {}
        if d.head_norm:
            for role, n in (("q_norm", d.n_head), ("k_norm", d.n_kv_head)):
                self.head_norms[role] = _head_norm(weights, d, d.layer_name(role, i), n)


def norm_of(weights: Weights, d: Design, name: str, factor: float = 1.0) -> dict[str, Any]:
    """Arguments of Plan.norm for rows of the model's width; factor: of what it gives."""
    weight = np.ones(d.width, np.float32)
    if d.norm_weight != "none":
        weight = weights.floats(f"{name}.weight", (d.width,))
        if d.norm_weight == "1 + weight":
            weight = weight + np.float32(1)
    made = {"kind": d.norm, "epsilon": d.epsilon}
    if d.norm_weight != "none" or factor != 1:
        made["weight"] = weights.device.tensor(weight * np.float32(factor))
    if d.norm_bias:
        bias = weights.floats(f"{name}.bias", (d.width,))
        made["bias"] = weights.device.tensor(bias * np.float32(factor))
    return made


def _head_norm(weights: Weights, d: Design, name: str, n: int) -> dict[str, Any]:
    """The norm of n heads of queries or keys: arguments of Plan.norm over [dim], or [n * dim] where
    one norm is of all heads; "each": weights [n][dim] that are multiplied afterwards."""
    rms = d.head_norm.startswith("rms")
    made: dict[str, Any] = {"kind": "rms" if rms else "layer", "epsilon": d.epsilon}
    size = n * d.head_dim if d.head_norm == "rms of all" else d.head_dim
    if d.head_norm == "layer of each":
        made["each"] = weights.device.tensor(weights.floats(f"{name}.weight", (n, d.head_dim)))
        return made
    if d.head_norm == "layers":  # a module for each head
        rows = [weights.floats(f"{name}.norms.{i}.weight", (d.head_dim,)) for i in range(n)]
        made["each"] = weights.device.tensor(np.stack(rows))
        return made
    weight = weights.floats(f"{name}.weight", (size,))
    if d.norm_weight == "1 + weight":
        weight = weight + np.float32(1)
    made["weight"] = weights.device.tensor(weight)
    if d.head_norm == "layer":
        made["bias"] = weights.vector(f"{name}.bias", size)
    return made


class Causal(Decoder):
    """The CausalLM of a family, from config.json and safetensors or from GGUF."""

    def __init__(self, weights: Weights, design: Design, stop: tuple[int, ...], text: Text) -> None:
        d = self.design = design
        self.device = weights.device
        self.n_token, self.n_layer = d.n_token, d.n_layer
        self.n_kv_head, self.head_dim = d.n_kv_head, d.head_dim
        if any(d.stateful):
            state = STATE_LAYERS[d.state].state(d)
            self.states = [state if has_state else None for has_state in d.stateful]
            self.chunk_rows = STATE_LAYERS[d.state].chunk_rows
        self.max_length = d.max_length
        self.needs_positions = d.positions in ("learned", "sinusoidal") or d.norm_rotated
        self.stop_ids = stop
        self.text = text
        while d.prefix and not any(name.startswith(d.prefix) for name in weights.names):
            d.prefix = d.prefix.partition(".")[2]  # of the model alone, without its head
        head = f"{d.name('head')}.weight"
        names = [f"{d.name('embedding')}.weight", *[head] * d.tied]
        self.embedding = weights.embedding(names, d.n_token, d.embed_width)
        self.positions = self._position_table(weights)
        self.embed_norm = self._norm_of(weights, "embed_norm")
        self.narrow = d.embed_width != d.width
        if self.narrow:
            self.project_in, self.project_out = (
                weights.linear(d.name(role), *shape, bias=False)
                for role, shape in (
                    ("project_in", (d.width, d.embed_width)),
                    ("project_out", (d.embed_width, d.width)),
                )
            )
        cap = d.logit_softcap
        factor = d.logit_scale / cap if cap else d.logit_scale
        self.norm = self._norm_of(weights, "norm", factor)
        self.logit_cap = self._constant(cap) if cap else None
        self.residual_scale = self._constant(d.residual_scale) if d.residual_scale != 1 else None
        self.alibi = None
        if d.positions == "alibi":
            factor = d.head_dim**-0.5 if d.alibi_scaled else 1.0
            slopes = np.array(alibi_slopes(d.n_head), np.float32) * np.float32(factor)
            self.alibi = self.device.tensor(slopes)
        weight = self.embedding if d.tied else weights.matrix(head, d.n_token, d.embed_width)
        bias = weights.vector(f"{d.name('head')}.bias", d.n_token) if d.head_bias else None
        self.head = Linear(weight, bias)
        self.blocks = [_Block(weights, d, i) for i in range(d.n_layer)]
        # Old checkpoints have frequencies or masks, which the config says again, and a copy of tied
        # weights.
        weights.finish(lambda name: name.endswith(tuple(d.unused)) or (d.tied and name == head))
        self.unused = weights.unused

    def _constant(self, value: float) -> Tensor:
        return self.device.tensor(np.array([value], np.float32))

    def _norm_of(self, weights: Weights, role: str, factor: float = 1.0) -> dict[str, Any] | None:
        d = self.design
        return norm_of(weights, d, d.name(role), factor) if role in d.names else None

    def _position_table(self, weights: Weights) -> Tensor | None:
        d = self.design
        if d.positions == "sinusoidal":
            return self.device.tensor(sinusoids(d.max_length, d.width, d.position_offset))
        if d.positions != "learned":
            return None
        rows = d.max_length + d.position_offset
        table = weights.matrix(f"{d.name('positions')}.weight", rows, d.width)
        return table.slice(0, d.position_offset, d.max_length)

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        d, plan = self.design, graph.plan
        x = graph.gather(self.embedding, inputs.ids, scale=d.embed_scale)
        if self.narrow:
            x = graph.linear(x, self.project_in)
        if self.positions is not None:
            assert inputs.positions is not None
            plan.add(x, graph.gather(self.positions, inputs.positions), x)
        if self.embed_norm:
            plan.norm(x, x, **self.embed_norm)
        pass_ = _Pass(self, graph, inputs, x)
        for i, block in enumerate(self.blocks):
            pass_.add_layer(i, block)
        return pass_.normed(self.norm)

    def add_head(self, graph: Graph, rows: Tensor) -> Tensor:
        if self.narrow:
            rows = graph.linear(rows, self.project_out)
        logits = graph.linear(rows, self.head)
        if self.logit_cap is not None:
            graph.plan.activation(logits, logits, "tanh", multiplier=self.logit_cap)
        return logits


class _Pass:
    """The layers over rows x [batch][rows][width], which each adds to."""

    def __init__(self, model: Causal, graph: Graph, inputs: Inputs, x: Tensor) -> None:
        d = model.design
        self.model, self.d, self.graph, self.inputs, self.x = model, d, graph, inputs, x
        heads, kv = d.n_head * d.head_dim, d.n_kv_head * d.head_dim
        self.ropes = d.ropes(inputs.capacity)
        self.rows = graph.make(d.width)  # what a norm of x gives
        self.added: Tensor | None = None  # what a layer adds to x, where more is done to it
        self.shared: dict[str, Tensor] = {}  # between the operations of layers with a state
        self.query_width = heads * (1 + d.attention_gate)
        self.qkv, self.context = graph.make(self.query_width + 2 * kv), graph.make(heads)
        gated = "gate" in d.names or "gate_up" in d.names
        self.inner = graph.make((1 + gated) * d.ffn_width)
        halves = graph.split(self.inner, *[d.ffn_width] * (1 + gated))
        self.gate, self.up = halves[0], halves[1] if gated else None

    def normed(self, norm: dict[str, Any] | None) -> Tensor:
        if norm is None:
            return self.x
        self.graph.plan.norm(self.x, self.rows, **norm)
        return self.rows

    def add_layer(self, i: int, block: _Block) -> None:
        d = self.d
        rows = self.normed(block.attn_norm)
        if block.state:
            context = block.state.add(self.graph, rows, self._shared, self.inputs, i)
        else:
            self.graph.linears(rows, block.qkv, self.qkv)
            self._attend(i, block)
            context = self.context
        if d.parallel and block.ffn_norm:  # of x without what attention adds
            rows = self.normed(block.ffn_norm)
        self._join(context, block.o, block.attn_after, block.attn_sum)
        if not d.parallel:
            rows = self.normed(block.ffn_norm)
        self.graph.linears(rows, block.gate_up, self.inner)
        plan, kind = self.graph.plan, d.activation
        if kind == "relu2":
            plan.activation(self.gate, self.gate, "relu", multiplier=self.gate)
            if self.up is not None:
                plan.multiply(self.gate, self.up, self.gate)
        else:
            plan.activation(self.gate, self.gate, kind, multiplier=self.up)
        self._join(self.gate, block.down, block.ffn_after, block.ffn_sum)

    def _shared(self, name: str, width: int) -> Tensor:
        if name not in self.shared:
            self.shared[name] = self.graph.make(width)
        return self.shared[name]

    def _join(self, input: Tensor, by: Linear, after: Any, of_sum: Any) -> None:
        """Adds the product to x."""
        graph, scale = self.graph, self.model.residual_scale
        if not after and scale is None:
            graph.residual(input, by, self.x)
        else:
            self.added = graph.linear(input, by, self.added)
            if after:
                graph.plan.norm(self.added, self.added, **after)
            if scale is not None:
                graph.plan.multiply(self.added, scale, self.added)
            graph.plan.add(self.x, self.added, self.x)
        if of_sum:
            graph.plan.norm(self.x, self.x, **of_sum)

    def _attend(self, i: int, block: _Block) -> None:
        d, graph, inputs = self.d, self.graph, self.inputs
        counts = d.n_head, d.n_kv_head, d.n_kv_head
        kv = d.n_kv_head * d.head_dim
        projected = graph.split(self.qkv, self.query_width, kv, kv)
        heads_of_q = projected[0].reshape(
            graph.batch, graph.rows, d.n_head, self.query_width // d.n_head
        )
        gate = heads_of_q.slice(3, d.head_dim, d.head_dim) if d.attention_gate else None
        q = heads_of_q.slice(3, 0, d.head_dim).permute(0, 2, 1, 3)
        k, v = (graph.heads(t, d.n_kv_head) for t in projected[1:])
        rope = self.ropes[i]
        options: dict[str, Any] = {"rope": rope}
        if d.head_norm == "rms" and not d.norm_rotated:
            options.update({name: norm["weight"] for name, norm in block.head_norms.items()})
            options["norm_epsilon"] = d.epsilon
        elif d.head_norm:
            if d.norm_rotated and rope:
                options["rope"] = None
                for t in (q, k):
                    self._turn(t, rope)
            for t, heads, norm in zip(projected, counts, block.head_norms.values()):
                self._norm_heads(t, heads, **norm)
        scale = d.scale or d.head_dim**-0.5
        if d.scale_by_layer:
            scale /= i + 1
        if d.scale or d.scale_by_layer:
            options["scale"] = scale
        window = d.windows[i]
        if window:
            options["window"] = (window - 1, -1)
        if d.softcap:
            options["softcap"] = d.softcap
        graph.plan.attention(
            q,
            k,
            v,
            graph.heads(self.context, d.n_head),
            cache=inputs.cache,
            cache_layer=i,
            n_append=inputs.n_append,
            causal=True,
            alibi=self.model.alibi,
            **options,
        )
        if gate:
            context = self.context.reshape(graph.batch, graph.rows, d.n_head, d.head_dim)
            graph.plan.activation(gate, context, "sigmoid", multiplier=context)

    def _turn(self, heads: Tensor, rope: Rope) -> None:
        given = dataclasses.asdict(rope)
        if rope.frequencies is not None:
            del given["base"]
        self.graph.plan.rotary(heads, heads, positions=self.inputs.positions, **given)

    def _norm_heads(self, rows: Tensor, n: int, each: Tensor | None = None, **norm: Any) -> None:
        """rows [batch][rows][n * dim], in place."""
        plan = self.graph.plan
        if self.d.head_norm != "rms of all":
            rows = rows.reshape(*rows.shape[:2], n, self.d.head_dim)
        plan.norm(rows, rows, **norm)
        if each is not None:
            plan.multiply(rows, each, rows)
