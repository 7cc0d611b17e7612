"""An encoder of texts with a decoder that sees its rows in each layer."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence, Union

import numpy as np

from .._device import Device, Tensor
from .._errors import InvalidError, UnsupportedError
from ._answers import Answers
from ._biases import Biases
from ._decoder import Decoder, Inputs
from ._encoder import Encoder
from ._encoder_runs import ROWS
from ._graph import TIMEOUT, Graph, Linear
from ._layers import Layers, Sizes, is_on, norm_of
from ._pooling import Pooling
from ._seq2seq_rows import FAMILIES, SIDES, Cross
from ._keys import Keys
from ._source import Weights
from ._text import Text

Source = Union[str, Sequence[int], np.ndarray]


class _Memory(NamedTuple):
    """What a text is to the decoder."""

    pairs: list[tuple[Tensor, Tensor]]  # keys and values of each layer [1][n_head][rows][dim]
    length: Tensor  # i32 [1]


class _CrossAttention:
    def __init__(
        self, weights: Weights, at: str, names: Cross, sizes: Sizes, bias: bool, rms: bool
    ) -> None:
        width, inside = sizes.width, sizes.n_head * sizes.head_dim
        q, k, v, o = (f"{at}{names.at}{product}" for product in names.products)
        self.q, self.k, self.v = (
            weights.linear(name, inside, width, bias=bias) for name in (q, k, v)
        )
        self.o = weights.linear(o, width, inside, bias=bias)
        self.norm = norm_of(weights, at + names.norm, sizes, rms, True)


def has_decoder(weights: Weights, kind: str) -> bool:
    at = SIDES[kind].layer.at.format(0)
    return any(name.startswith((at, f"{FAMILIES[kind].prefix}{at}")) for name in weights.names)


class Seq2Seq(Answers, Encoder):  # type: ignore[misc] # logits
    """An encoder of texts as `Encoder`, with a decoder. See `vkattn.models.load`.

    A source is a str or ids, with those that end it, of which there may be up to max_length.
    """

    def __init__(
        self,
        weights: Weights,
        keys: Keys,
        kind: str,
        pooling: Pooling,
        text: Text,
        stop: tuple[int, ...],
        dtype: str | None = None,
    ) -> None:
        family = FAMILIES[kind]
        inert = tuple(name for name in family.inert if name != "decoder.")
        words = (*family.inert_words, "EncDecAttention.relative_attention_bias")
        self.side = SIDES[kind]
        self.stop_ids = stop
        super().__init__(
            weights, keys, family._replace(inert=inert, inert_words=words), pooling, text, dtype
        )

    def _read_more(self, weights: Weights, keys: Keys, prefix: str) -> None:
        side, family = self.side, self.family
        sizes = self.side_sizes = Sizes.of(
            keys, side.layer, side.words, (None, self.sizes.n_layer, None, None)
        )
        self.scaled = sizes.width**-0.5 if side.scaled(keys) else None
        self.start_id = keys.get("decoder_start_token_id", int)
        self.decoder = Layers(weights, keys, prefix, side.layer, sizes)
        bias = is_on(keys, side.layer.o_bias)
        self.cross = [
            _CrossAttention(
                weights,
                prefix + side.layer.at.format(i),
                side.cross,
                sizes,
                bias,
                side.layer.rms,
            )
            for i in range(sizes.n_layer)
        ]
        self.side_positions = None
        if side.positions:
            self.side_positions = self._positions_of(weights, prefix + side.positions, sizes.width)
        self.side_norm = None
        if side.norm:
            self.side_norm = norm_of(weights, prefix + side.norm, sizes, False, True)
        self.side_biases = None
        if side.relative:
            self.side_biases = Biases(
                weights, keys, prefix, side.relative, side.layer.at, sizes, causal=True
            )
        self._read_logits(weights, [prefix + name for name in family.embedding])

    def _read_logits(self, weights: Weights, names: list[str]) -> None:
        """That of the embedding, or a head that T5's files have of their own."""
        name, weight, bias = "lm_head.weight", self.embedding, None
        known = next(x for x in names if x in weights)
        if name in weights and not weights.is_copy(name, known):
            if not self.side.own_head:
                raise InvalidError(
                    f"{weights.path}: {name} has other numbers than {known}, to which"
                    " tie_word_embeddings ties it"
                )
            weight = weights.matrix(name, self.n_token, self.width)
        if "final_logits_bias" in weights:
            row = weights.matrix("final_logits_bias", 1, self.n_token).read()
            bias = self.device.tensor(row[0].astype(np.float32))
        self.logits_by = Linear(weight, bias)

    # ---- Use ------------------------------------------------------------------------------------

    def generate(
        self,
        source: Source,
        n: int | None = None,
        prompt: Sequence[int] | np.ndarray | None = None,
        **options: Any,
    ) -> Iterator[int]:
        """Yields up to n ids that the decoder gives for a source, as they are computed.

        n: by default as many as there are positions for. prompt: ids that the decoder begins with,
        such as that of a language behind the one that starts a text; by default the latter.
        options: as of `Decoder.generate`; no id is forced or suppressed.
        """
        ids = self._prompt(prompt)
        if n is None:
            n = self.most_ids + 1 - len(ids)  # the last one has no position
        memory = self._remember(source, options.get("timeout", TIMEOUT))
        for token in _Continuation(self, memory).generate(ids, n, **options):
            if token == self.padding:
                raise UnsupportedError(f"the id of padding, {token}, was drawn, which has no place")
            yield token

    # ---- What is recorded -----------------------------------------------------------------------

    def _over(self, memory: _Memory) -> Decoder:
        return _Continuation(self, memory)

    def _remember(self, source: Source, timeout: float) -> _Memory:
        """Runs the encoder, and projects its rows once for each layer of the decoder."""
        ids = self._ids_of(source, "source")
        rows = min(-(-len(ids) // ROWS) * ROWS, self.max_length)
        graph = Graph(self.device, 1, rows)
        given = np.full((1, rows), -1, np.int32)
        given[0, : len(ids)] = ids
        length = self.device.tensor(np.array([len(ids)], np.int32))
        hidden = self.add(graph, self.device.tensor(given), length)
        n_head = self.side_sizes.n_head
        pairs = []
        for cross in self.cross:
            k, v = (graph.heads(graph.linear(hidden, by), n_head) for by in (cross.k, cross.v))
            pairs.append((k, v))
        graph.plan.finish()
        graph.plan.run(timeout)
        graph.plan.close()
        return _Memory(pairs, length)

    def add_decoder(self, graph: Graph, inputs: Inputs, memory: _Memory) -> Tensor:
        plan, sizes = graph.plan, self.side_sizes
        assert inputs.positions is not None
        x = graph.gather(self.embedding, inputs.ids, scale=self.family.scale)
        if self.side_positions:
            plan.add(x, graph.gather(self.side_positions, inputs.positions), x)
        if self.side_norm:
            plan.norm(x, x, **self.side_norm)
        each: list[dict[str, Any]] = [{"cache_layer": i} for i in range(sizes.n_layer)]
        if self.side_biases:
            masks = self.side_biases.causal_masks(graph, inputs.positions, inputs.capacity)
            each = [{**one, **mask} for one, mask in zip(each, masks)]
        scale = self.family.attention_scale
        options: dict[str, Any] = {} if scale is None else {"scale": scale}
        q, context = (graph.make(sizes.n_head * sizes.head_dim) for _ in range(2))
        heads = [graph.heads(t, sizes.n_head) for t in (q, context)]

        def see(i: int, read: Tensor) -> tuple[Tensor, Linear]:
            """Attention of layer i over the source."""
            graph.linear(read, self.cross[i].q, q)
            pair = memory.pairs[i]
            plan.attention(heads[0], *pair, heads[1], kv_length=memory.length, **options)
            return context, self.cross[i].o

        x = self.decoder.add(
            graph,
            x,
            each,
            between=(see, [cross.norm for cross in self.cross]),
            cache=inputs.cache,
            n_append=inputs.n_append,
            causal=True,
            **options,
        )
        if self.scaled:
            plan.multiply(x, self.device.tensor(np.full(1, self.scaled, np.float32)), x)
        return x


class _Continuation(Decoder):
    """The decoder over one source."""

    needs_positions = True

    def __init__(self, model: Seq2Seq, memory: _Memory) -> None:
        sizes = model.side_sizes
        self.model, self.memory = model, memory
        self.device: Device = model.device
        self.n_token, self.n_layer = model.n_token, sizes.n_layer
        self.n_kv_head, self.head_dim = sizes.n_head, sizes.head_dim
        self.max_length = model.most_ids
        self.stop_ids = model.stop_ids
        self.text = model.text
        self.unused = model.unused

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        return self.model.add_decoder(graph, inputs, self.memory)

    def add_head(self, graph: Graph, rows: Tensor) -> Tensor:
        return graph.linear(rows, self.model.logits_by)
