"""Whisper: an encoder of sound, and a decoder that sees its rows in each layer."""

from __future__ import annotations

import math
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

import numpy as np

from .._device import Tensor
from .._errors import FileError, InvalidError
from ._decoder import Decoder, Inputs
from ._graph import TIMEOUT, Graph, Linear, Recorded
from ._layers import activation_of
from ._source import Keys, Weights
from ._text import Text, TextStream

MODEL_TYPE = "whisper"
KEPT = 4  # recorded encoders, by the size of their batch
WIDTH = 3  # of both convolutions

# Keys of training, of what generate of transformers does with logits, and of word times.
_INERT_KEYS = (
    *("encoder_layerdrop", "decoder_layerdrop", "activation_dropout", "init_std"),
    *("suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids", "max_length"),
    *("use_weighted_layer_sum", "classifier_proj_size", "apply_spec_augment"),
    *("mask_time_prob", "mask_time_length", "mask_time_min_masks", "mask_feature_prob"),
    *("mask_feature_length", "mask_feature_min_masks", "median_filter_width"),
    "num_hidden_layers",  # says encoder_layers again
)


class _Own:
    """Self-attention: projections with the norm before them; keys have no bias."""

    def __init__(self, weights: Weights, at: str, width: int) -> None:
        names = [f"{at}.{x}_proj" for x in "qkv"]
        self.qkv = weights.linears(names, [width] * 3, width, bias=(True, False, True))
        self.o = weights.linear(f"{at}.out_proj", width, width)
        self.norm = weights.layer_norm(f"{at}_layer_norm", width, 1e-5)


class _Cross:
    """The same over the encoder's rows, whose keys and values are projected once."""

    def __init__(self, weights: Weights, at: str, width: int) -> None:
        self.q = weights.linear(f"{at}.q_proj", width, width)
        self.k = weights.linear(f"{at}.k_proj", width, width, bias=False)
        self.v = weights.linear(f"{at}.v_proj", width, width)
        self.o = weights.linear(f"{at}.out_proj", width, width)
        self.norm = weights.layer_norm(f"{at}_layer_norm", width, 1e-5)


class _Block:
    def __init__(self, weights: Weights, at: str, width: int, inner: int, cross: bool) -> None:
        self.own = _Own(weights, f"{at}self_attn", width)
        self.cross = _Cross(weights, f"{at}encoder_attn", width) if cross else None
        self.norm = weights.layer_norm(f"{at}final_layer_norm", width, 1e-5)
        self.up = weights.linear(f"{at}fc1", inner, width)
        self.down = weights.linear(f"{at}fc2", width, inner)
        self.inner = inner


class _Rows(NamedTuple):
    """What the blocks of a graph share."""

    y: Tensor
    qkv: Tensor
    q: Tensor
    context: Tensor
    heads: list[Tensor]  # of q, k, v and context

    @classmethod
    def of(cls, graph: Graph, width: int, n_head: int) -> _Rows:
        y, qkv, context = graph.make(width), graph.make(3 * width), graph.make(width)
        q, k, v = graph.split(qkv, width, width, width)
        return cls(y, qkv, q, context, [graph.heads(t, n_head) for t in (q, k, v, context)])


class Whisper:
    """WhisperForConditionalGeneration or WhisperModel. See `vkattn.models.load`.

    Sound is a log-mel spectrogram as WhisperFeatureExtractor of transformers makes it: float32
    [n_mel][frames], or several [batch][n_mel][frames], of just `frames` frames (30 s).
    """

    def __init__(self, weights: Weights, keys: Keys, stop: tuple[int, ...], text: Text) -> None:
        self.device = weights.device
        self.width = width = keys.size("d_model")
        self.n_mel = keys.size("num_mel_bins")
        self.n_source = keys.size("max_source_positions", 1500)
        self.frames = 2 * self.n_source
        self.n_token = keys.size("vocab_size")
        self.max_length = keys.size("max_target_positions", 448)
        self.encoder_heads = keys.size("encoder_attention_heads")
        self.decoder_heads = keys.size("decoder_attention_heads")
        for key, n_head in (
            ("encoder_attention_heads", self.encoder_heads),
            ("decoder_attention_heads", self.decoder_heads),
        ):
            if width % n_head:
                raise FileError(f"{keys.where}: {key}: {n_head} do not divide {width}")
        name = keys.get("activation_function", str, "gelu")
        self.activation = activation_of(keys, "activation_function", name)
        self.scale = math.sqrt(width) if keys.get("scale_embedding", bool, False) else 1.0
        tied = keys.get("tie_word_embeddings", bool, True)
        self.start_id = keys.get("decoder_start_token_id", int)
        self.stop_ids = stop
        self.text = text
        for key in _INERT_KEYS:
            keys.left.discard(key)
        prefix = "model." if "model.encoder.conv1.weight" in weights else ""
        at = f"{prefix}encoder."
        self.conv1 = weights.conv1d(f"{at}conv1", width, self.n_mel, WIDTH)
        self.conv2 = weights.conv1d(f"{at}conv2", width, width, WIDTH)
        self.source_positions = weights.matrix(f"{at}embed_positions.weight", self.n_source, width)
        inner = keys.size("encoder_ffn_dim")
        self.encoder = [
            _Block(weights, f"{at}layers.{i}.", width, inner, False)
            for i in range(keys.size("encoder_layers"))
        ]
        self.encoder_norm = weights.layer_norm(f"{at}layer_norm", width, 1e-5)
        at = f"{prefix}decoder."
        head = "proj_out.weight"
        names = [f"{at}embed_tokens.weight", *[head] * tied]
        self.embedding = weights.embedding(names, self.n_token, width)
        self.positions = weights.matrix(f"{at}embed_positions.weight", self.max_length, width)
        inner = keys.size("decoder_ffn_dim")
        self.decoder = [
            _Block(weights, f"{at}layers.{i}.", width, inner, True)
            for i in range(keys.size("decoder_layers"))
        ]
        self.decoder_norm = weights.layer_norm(f"{at}layer_norm", width, 1e-5)
        self.head = Linear(self.embedding if tied else weights.matrix(head, self.n_token, width))
        weights.finish(lambda name: tied and name == head)
        self.unused = weights.unused
        self._recorded = Recorded(self._record, KEPT)

    # ---- Use ------------------------------------------------------------------------------------

    def encode(self, mel: Any, *, timeout: float = TIMEOUT) -> np.ndarray:
        """The encoder's last rows: float32 [n_source][width], or of several [batch][...]."""
        sounds = self._sounds(mel)
        rows = self._encode(sounds, timeout).read()
        return rows if np.ndim(mel) == 3 else rows[0]

    def generate(
        self,
        mel: Any,
        prompt: Sequence[int] | np.ndarray | None = None,
        n: int | None = None,
        **options: Any,
    ) -> Iterator[int]:
        """Yields up to n ids that continue a prompt, as they are computed.

        mel: of one sound. prompt: ids, such as those of <|startoftranscript|><|en|><|transcribe|>
        <|notimestamps|>; by default the one that starts a text. n: by default as many as there are
        positions for. options: as of `Decoder.generate`; no id is suppressed.
        """
        ids = self._prompt(prompt)
        if n is None:
            n = self.max_length + 1 - len(ids)  # the last one has no position
        memory = self._remember(mel, options.get("timeout", TIMEOUT))
        yield from _Continuation(self, memory).generate(ids, n, **options)

    def logits(
        self, mel: Any, ids: Sequence[int] | np.ndarray, *, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """The logits after each id of a text: float32 [n][n_token]."""
        given = self._prompt(ids)
        memory = self._remember(mel, timeout)
        return _Continuation(self, memory).logits(given, timeout=timeout)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, by the model's tokenizer (package tokenizers)."""
        return self.text.decode([int(i) for i in ids])

    def decode_stream(self) -> TextStream:
        """What decodes ids that come one by one."""
        return TextStream(self.text)

    # ---- What is recorded -----------------------------------------------------------------------

    def _prompt(self, prompt: Any) -> list[int]:
        if prompt is None:
            if self.start_id is None:
                raise InvalidError("prompt: the model does not say which id starts a text")
            prompt = [self.start_id]
        if isinstance(prompt, str):
            raise TypeError("prompt: expected ids, got a text")
        return [int(i) for i in prompt]

    def _sounds(self, mel: Any) -> np.ndarray:
        array = np.asarray(mel, np.float32)
        shape = array.shape[-2:]
        if array.ndim not in (2, 3) or shape != (self.n_mel, self.frames) or array.size == 0:
            raise InvalidError(
                f"mel: expected [{self.n_mel}, {self.frames}], or several, got {list(array.shape)}"
            )
        return array.reshape(-1, *shape)

    def _encode(self, sounds: np.ndarray, timeout: float) -> Tensor:
        """The rows, until the next call."""
        recording = self._recorded.get(len(sounds))
        recording.mel.write(np.ascontiguousarray(sounds))
        recording.plan.run(timeout)
        return recording.rows

    def _record(self, batch: int) -> _Recording:
        return _Recording(self, batch)

    def _remember(self, mel: Any, timeout: float) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of a sound for each layer of the decoder [1][n_head][n_source][dim],
        projected once."""
        sounds = self._sounds(mel)
        if len(sounds) != 1:
            raise InvalidError(f"mel: expected one sound, got {len(sounds)}")
        rows = self._encode(sounds, timeout)
        graph = Graph(self.device, 1, self.n_source)
        memory = []
        for block in self.decoder:
            assert block.cross is not None
            pair = [graph.linear(rows, by) for by in (block.cross.k, block.cross.v)]
            memory.append(tuple(graph.heads(x, self.decoder_heads) for x in pair))
        graph.plan.finish()
        graph.plan.run(timeout)
        graph.plan.close()
        return memory

    def add_feed_forward(self, graph: Graph, block: _Block, x: Tensor, rows: _Rows) -> None:
        inner = graph.make(block.inner)
        graph.plan.norm(x, rows.y, **block.norm)
        graph.linear(rows.y, block.up, inner)
        graph.plan.activation(inner, inner, self.activation)
        graph.residual(inner, block.down, x)


class _Recording:
    """The encoder of `batch` sounds."""

    def __init__(self, model: Whisper, batch: int) -> None:
        device, width = model.device, model.width
        graph = Graph(device, batch, model.n_source)
        plan = self.plan = graph.plan
        self.mel = device.empty((batch, model.n_mel, model.frames))
        first = device.empty((batch, model.frames, width))
        x = graph.make(width)
        for given, by, output, stride in (
            (self.mel.permute(0, 2, 1), model.conv1, first, 1),
            (first, model.conv2, x, 2),
        ):
            plan.conv1d(
                given,
                by.weight,
                output,
                bias=by.bias,
                stride=stride,
                padding=1,
                activation=model.activation,
            )
        plan.add(x, model.source_positions, x)
        rows = _Rows.of(graph, width, model.encoder_heads)
        for block in model.encoder:
            own = block.own
            plan.norm(x, rows.y, **own.norm)
            graph.linears(rows.y, own.qkv, rows.qkv)
            plan.attention(*rows.heads)
            graph.residual(rows.context, own.o, x)
            model.add_feed_forward(graph, block, x, rows)
        self.rows = graph.make(width)
        plan.norm(x, self.rows, **model.encoder_norm)
        plan.finish()


class _Continuation(Decoder):
    """The decoder over one sound."""

    needs_positions = True

    def __init__(self, model: Whisper, memory: list[tuple[Tensor, Tensor]]) -> None:
        self.model = model
        self.memory = memory
        self.device = model.device
        self.n_token = model.n_token
        self.n_layer = len(model.decoder)
        self.n_kv_head = model.decoder_heads
        self.head_dim = model.width // model.decoder_heads
        self.max_length = model.max_length
        self.stop_ids = model.stop_ids
        self.text = model.text
        self.unused = model.unused

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        model, plan = self.model, graph.plan
        assert inputs.positions is not None
        x = graph.gather(model.embedding, inputs.ids, scale=model.scale)
        plan.add(x, graph.gather(model.positions, inputs.positions), x)
        rows = _Rows.of(graph, model.width, self.n_kv_head)
        q, k, v, context = rows.heads
        for i, (block, (keys, values)) in enumerate(zip(model.decoder, self.memory)):
            own, cross = block.own, block.cross
            assert cross is not None
            plan.norm(x, rows.y, **own.norm)
            graph.linears(rows.y, own.qkv, rows.qkv)
            plan.attention(
                q,
                k,
                v,
                context,
                cache=inputs.cache,
                cache_layer=i,
                n_append=inputs.n_append,
                causal=True,
            )
            graph.residual(rows.context, own.o, x)
            plan.norm(x, rows.y, **cross.norm)
            graph.linear(rows.y, cross.q, rows.q)
            plan.attention(q, keys, values, context)
            graph.residual(rows.context, cross.o, x)
            model.add_feed_forward(graph, block, x, rows)
        plan.norm(x, rows.y, **model.decoder_norm)
        return rows.y

    def add_head(self, graph: Graph, rows: Tensor) -> Tensor:
        return graph.linear(rows, self.model.head)
