"""The layers of encoders, by a description of their tensors and of what follows what."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Union

from .._config import shown
from .._device import Tensor
from .._errors import FileError, UnsupportedError
from ._graph import Graph, Linear
from ._keys import Keys
from ._source import Weights
from ._table import ACTIVATIONS

Switch = Union[bool, tuple[str, bool]]  # or a key of config.json with its default
Size = Union[int, tuple[str, Union[int, None]]]  # or a key with its default, which may be None


# What a sublayer makes of the rows it reads, and the product that ends it.
Sublayer = Callable[[int, Tensor], tuple[Tensor, Linear]]
Between = tuple[Sublayer, Sequence[dict[str, Any]]]


def is_on(keys: Keys, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else bool(keys.get(switch[0], bool, switch[1]))


def size_of(keys: Keys, size: Size) -> int:
    return size if isinstance(size, int) else keys.size(*size)


def activation_of(keys: Keys, key: str, name: str) -> str:
    """What Plan.activation calls an activation of config.json."""
    if name not in ACTIVATIONS:
        raise UnsupportedError(
            f"{keys.where}: {key} {shown(keys.values.get(key))} is not supported"
        )
    return ACTIVATIONS[name]


class Adapter(NamedTuple):
    """Two products with a bottleneck between them, behind the feed-forward network, by language."""

    at: str
    norm: str  # its own, where adapter_layer_norm says so


class Layer(NamedTuple):
    """Tensors of a layer, by the names that BERT has for them, and what follows what."""

    at: str = "encoder.layer.{}."
    qkv: tuple[str, ...] = (  # or one
        *("attention.self.query", "attention.self.key", "attention.self.value"),
    )
    o: str = "attention.output.dense"
    attn_norm: str = "attention.output.LayerNorm"
    up: tuple[str, ...] = ("intermediate.dense",)  # gated: what is activated, what multiplies it
    down: str = "output.dense"
    norm: str = "output.LayerNorm"
    gated: bool | None = False  # None: where the activation is named gated-...
    gated_up: tuple[str, ...] = ()  # names of such layers
    norm_first: Switch = False  # of what a sublayer reads; else of its sum with what it read
    first_attn_norm: bool = True  # False: layer 0 reads what the embeddings' norm gave
    final_norm: str = ""  # behind layers that norm first
    rms: bool = False
    qkv_bias: Switch = True
    o_bias: Switch = True
    mlp_bias: Switch = True
    norm_bias: Switch = True
    scales: tuple[str, ...] = ()  # vectors that multiply what attention and feed-forward add
    adapter: Adapter | None = None


class Words(NamedTuple):
    """Keys of config.json for the sizes of layers."""

    width: str = "hidden_size"
    n_layer: str = "num_hidden_layers"
    n_head: str = "num_attention_heads"
    inner: str = "intermediate_size"
    activation: str = "hidden_act"
    activation_default: str = "gelu"
    epsilon: tuple[str, ...] = ("layer_norm_eps",)  # the first one that is there
    epsilon_default: float = 1e-12
    n_kv_head: str = ""  # as many as heads
    head_dim: str = ""  # width / n_head


class Sizes(NamedTuple):
    width: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    inner: int
    epsilon: float
    activation: dict[str, Any]  # as Plan.activation takes it
    gated: bool

    @classmethod
    def of(
        cls, keys: Keys, layer: Layer, words: Words, defaults: Sequence[int | None] = (None,) * 4
    ) -> Sizes:
        """defaults: width, layers, heads and width of the feed-forward network."""
        width = keys.size(words.width, defaults[0])
        n_head = keys.size(words.n_head, defaults[2])
        head_dim = width // n_head
        if words.head_dim:
            head_dim = keys.size(words.head_dim, head_dim or 1)
        elif width % n_head:
            raise FileError(f"{keys.where}: {words.n_head}: {n_head} do not divide {width}")
        n_kv_head = keys.size(words.n_kv_head, n_head) if words.n_kv_head else n_head
        if n_head % n_kv_head:
            raise FileError(f"{keys.where}: {words.n_kv_head}: {n_kv_head} do not divide {n_head}")
        epsilon = words.epsilon_default
        for key in reversed(words.epsilon):
            epsilon = keys.positive(key, epsilon)
        name, gated = keys.get(words.activation, str, words.activation_default), layer.gated
        if gated is None:
            gated = name.startswith("gated-")
            name = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
        known = {"kind": "silu", "alpha": 1.702} if name == "quick_gelu" else None
        return cls(
            width,
            keys.size(words.n_layer, defaults[1]),
            n_head,
            n_kv_head,
            head_dim,
            keys.size(words.inner, defaults[3]),  # no key: by default
            epsilon,
            known or {"kind": activation_of(keys, words.activation, name)},
            gated,
        )


def norm_of(weights: Weights, name: str, sizes: Sizes, rms: bool, bias: bool) -> dict[str, Any]:
    """Arguments of Plan.norm."""
    if bias and not rms:
        return weights.layer_norm(name, sizes.width, sizes.epsilon)
    kind, weight = "rms" if rms else "layer", weights.vector(f"{name}.weight", sizes.width)
    return {"kind": kind, "epsilon": sizes.epsilon, "weight": weight}


class _Adapter:
    def __init__(self, weights: Weights, keys: Keys, at: str, by: Adapter, sizes: Sizes) -> None:
        inner = sizes.width // keys.size("adapter_reduction_factor", 2) or 1
        language = keys.get("default_language", str)
        known = keys.get("languages", list, ["en_XX"])
        if language not in known:
            raise FileError(
                f"{keys.where}: default_language: expected one of {shown(known)}, got"
                f" {shown(language)}"
            )
        where = f"{at}{by.at}{language}."
        self.first = weights.linear(f"{where}dense1", inner, sizes.width)
        self.second = weights.linear(f"{where}dense2", sizes.width, inner)
        own = keys.get("adapter_layer_norm", bool, False)
        self.norm = norm_of(weights, at + by.norm, sizes, False, True) if own else None
        self.reuses = keys.get("adapter_reuse_layer_norm", bool, True)
        self.norms_sum = keys.get("ln_before_adapter", bool, True)

    def add(self, graph: Graph, x: Tensor, y: Tensor, block: _Block, sizes: Sizes) -> None:
        norm = self.norm or (block.norm if self.reuses else None)
        read = y if norm and not self.norms_sum else x
        if norm:
            graph.plan.norm(x, read, **norm)
        inner = graph.linear(read, self.first)
        graph.plan.activation(inner, inner, **sizes.activation)
        graph.residual(inner, self.second, x)


class _Block:
    def __init__(
        self, weights: Weights, keys: Keys, at: str, layer: Layer, sizes: Sizes, first: bool
    ) -> None:
        width, inner = sizes.width, sizes.inner
        own, shared = sizes.n_head * sizes.head_dim, sizes.n_kv_head * sizes.head_dim
        rows, names = [own, shared, shared], [at + name for name in layer.qkv]
        bias = is_on(keys, layer.norm_bias)

        def norm(name: str) -> dict[str, Any]:
            return norm_of(weights, at + name, sizes, layer.rms, bias)

        self.attn_norm = norm(layer.attn_norm) if layer.first_attn_norm or not first else None
        rows = rows if len(names) == 3 else [sum(rows)]
        self.qkv = weights.linears(names, rows, width, bias=is_on(keys, layer.qkv_bias))
        self.o = weights.linear(at + layer.o, width, own, bias=is_on(keys, layer.o_bias))
        self.norm = norm(layer.norm)
        bias = is_on(keys, layer.mlp_bias)
        names = [at + name for name in (layer.gated_up if sizes.gated else ()) or layer.up]
        rows = [inner * (1 + sizes.gated) // len(names)] * len(names)
        self.up = weights.linears(names, rows, width, bias=bias)
        self.down = weights.linear(at + layer.down, width, inner, bias=bias)
        none: list[Any] = [None, None]
        self.scales = [weights.vector(at + name, width) for name in layer.scales] or none
        self.adapter = _Adapter(weights, keys, at, layer.adapter, sizes) if layer.adapter else None


class Layers:
    """Layers of attention and a feed-forward network over rows [batch][rows][width]."""

    def __init__(
        self,
        weights: Weights,
        keys: Keys,
        prefix: str,
        layer: Layer,
        sizes: Sizes,
        places: Sequence[object] | None = None,
    ) -> None:
        """places: of each layer in the file, if several share one."""
        self.sizes = sizes
        self.norm_first = is_on(keys, layer.norm_first)
        given = range(sizes.n_layer) if places is None else places
        made = {
            place: _Block(weights, keys, prefix + layer.at.format(place), layer, sizes, i == 0)
            for i, place in enumerate(dict.fromkeys(given))
        }
        self.blocks = [made[place] for place in given]
        self.final_norm = None
        if layer.final_norm and self.norm_first:
            bias = is_on(keys, layer.norm_bias)
            self.final_norm = norm_of(weights, prefix + layer.final_norm, sizes, layer.rms, bias)

    def add(
        self,
        graph: Graph,
        x: Tensor,
        each: Sequence[dict[str, Any]] = (),
        positions: Tensor | None = None,
        between: Between | None = None,
        **options: Any,
    ) -> Tensor:
        """Changes x, and gives the last rows. options: of Plan.attention; each: more of each layer;
        positions: of packed rows, by which their queries and keys turn. between: a sublayer that stands
        behind attention, and its norm in each layer."""
        sizes, plan = self.sizes, graph.plan
        own, shared = sizes.n_head * sizes.head_dim, sizes.n_kv_head * sizes.head_dim
        y, context, qkv = graph.make(sizes.width), graph.make(own), graph.make(own + 2 * shared)
        columns = zip((*graph.split(qkv, own, shared, shared), context), _counts(sizes))
        heads = [graph.heads(t, n_head) for t, n_head in columns]
        ups = graph.make((1 + sizes.gated) * sizes.inner)
        inner, *gate = graph.split(ups, *[sizes.inner] * (1 + sizes.gated))
        multiplier = gate[0] if gate else None
        for i, block in enumerate(self.blocks):
            read = self._read(graph, x, y, block.attn_norm)
            graph.linears(read, block.qkv, qkv)
            more = dict(each[i]) if each else {}
            rope = more.pop("rope", None) if positions else None
            for turned in heads[:2] if rope else ():
                said = {**vars(rope), "base": rope.base or None} if rope else {}
                plan.rotary(turned, turned, positions=positions, **said)
            more = {**options, **more}
            graph.attention(*heads, **more)
            _add_product(graph, context, block.o, x, block.scales[0])
            self._norm_sum(graph, x, block.attn_norm)
            if between:
                sublayer, norms = between
                _add_product(graph, *sublayer(i, self._read(graph, x, y, norms[i])), x, None)
                self._norm_sum(graph, x, norms[i])
            read = self._read(graph, x, y, block.norm)
            graph.linears(read, block.up, ups)
            plan.activation(inner, inner, multiplier=multiplier, **sizes.activation)
            _add_product(graph, inner, block.down, x, block.scales[1])
            if block.adapter:
                block.adapter.add(graph, x, y, block, sizes)
            self._norm_sum(graph, x, block.norm)
        if self.final_norm:
            plan.norm(x, y, **self.final_norm)
        return y if self.final_norm else x

    def _read(self, graph: Graph, x: Tensor, y: Tensor, norm: dict[str, Any] | None) -> Tensor:
        """What a sublayer reads of x."""
        if not self.norm_first or not norm:
            return x
        graph.plan.norm(x, y, **norm)
        return y

    def _norm_sum(self, graph: Graph, x: Tensor, norm: dict[str, Any] | None) -> None:
        if norm and not self.norm_first:
            graph.plan.norm(x, x, **norm)


def _add_product(graph: Graph, input: Tensor, by: Linear, x: Tensor, scale: Tensor | None) -> None:
    """Adds what a sublayer gives to x."""
    if scale is None:
        graph.residual(input, by, x)
        return
    made = graph.linear(input, by)
    graph.plan.multiply(made, scale, made)
    graph.plan.add(x, made, x)


def _counts(sizes: Sizes) -> tuple[int, int, int, int]:
    """Heads of queries, keys, values and the output."""
    return sizes.n_head, sizes.n_kv_head, sizes.n_kv_head, sizes.n_head
