"""Whisper: an encoder of sound, and a decoder that sees its rows in each layer."""

from __future__ import annotations

import math
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from .._config import shown
from .._device import Tensor
from .._errors import FileError, InvalidError
from .._numbers import real, whole
from ._answers import Answers
from ._decoder import MOST_AT_ONCE, Decoder, Inputs
from ._graph import TIMEOUT, Graph, Linear, Recorded
from ._layers import activation_of
from ._mel import HOP, log_mel
from ._rules import Rules, Timestamps
from ._keys import Keys
from ._source import Weights
from ._text import Text
from ._windows import Segment, segments

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


def _rules_of(
    keys: Keys, generation: Keys | None, stop: tuple[int, ...], n_token: int
) -> Rules:
    """As generation_config.json says, or else config.json, where old files have it."""

    def read(key: str, kind: Any) -> Any:
        for each in (generation, keys):
            if each is not None and each.values.get(key) is not None:
                return each.get(key, kind), each.where
        return None, keys.where

    def ids(key: str) -> tuple[int, ...]:
        found, where = read(key, list)
        for x in found or ():
            if type(x) is not int or not (0 <= x < n_token or x == -1):
                raise FileError(f"{where}: {key}: expected ids below {n_token}, got {shown(x)}")
        return tuple(x for x in found or () if x >= 0)  # old files mean none by -1

    none, where = read("no_timestamps_token_id", int)
    if none is None:
        return Rules(ids("suppress_tokens"), ids("begin_suppress_tokens"))
    if not 0 <= none < n_token or not stop:
        raise FileError(
            f"{where}: no_timestamps_token_id: expected an id below {n_token} and an eos_token_id,"
            f" got {none}"
        )
    latest = read("max_initial_timestamp_index", int)[0]
    times = Timestamps(none, stop[0], latest)
    return Rules(ids("suppress_tokens"), ids("begin_suppress_tokens"), times)


def _samples(sound: Any, most: int) -> np.ndarray:
    samples = np.asarray(sound, np.float64)
    if samples.ndim != 1 or not 1 <= len(samples) <= most:
        raise InvalidError(
            f"sound: expected 1 to {most} samples of one channel, got {list(samples.shape)}"
        )
    if not np.isfinite(samples).all():
        raise InvalidError("sound: expected finite samples")
    return samples


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


class Whisper(Answers):
    """WhisperForConditionalGeneration or WhisperModel. See `vkattn.models.load`.

    Sound is a log-mel spectrogram as WhisperFeatureExtractor of transformers makes it: float32
    [n_mel][frames], or several [batch][n_mel][frames], of just `frames` frames (30 s).
    """

    def __init__(
        self,
        weights: Weights,
        keys: Keys,
        stop: tuple[int, ...],
        text: Text,
        generation: Keys | None = None,
    ) -> None:
        """generation: generation_config.json."""
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
        self.stop_ids = stop
        tied = keys.get("tie_word_embeddings", bool, True)
        self.start_id = keys.get("decoder_start_token_id", int)
        self.text = text
        self.rules = _rules_of(keys, generation, stop, self.n_token)
        self.previous_id = generation.get("prev_sot_token_id", int) if generation else None
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

    def mel(self, sound: Any) -> np.ndarray:
        """The log-mel spectrogram [n_mel][frames] of samples of one channel at 16 kHz, up to 160 for
        each of `frames` frames; silence fills them up."""
        samples = _samples(sound, self.frames * HOP)
        return log_mel(samples, self.n_mel, self.frames)

    def transcribe(
        self,
        sound: Any,
        prompt: Sequence[int] | np.ndarray | None = None,
        n: int | None = None,
        *,
        condition: bool = False,
        no_speech_threshold: float | None = None,
        logprob_threshold: float = -1.0,
        **options: Any,
    ) -> Iterator[Segment]:
        """Yields what is said in a sound of any length, samples of one channel at 16 kHz, as segments
        (begin and end in seconds, ids), which `decode` makes into text. Windows of `frames` frames
        begin where the ids of times say that the last one is done with.

        prompt: the ids that say language and task, before each window's text. n: ids of a window, by
        default half as many as there are positions for. condition: the ids of the windows before stand
        in front, as many as half of the positions hold. no_speech_threshold, such as 0.6: a window is passed over
        whose probability of silence is above it, and whose ids have a mean logarithm of their probability
        below logprob_threshold. options: as of `generate_batch`.
        """
        samples = _samples(sound, 2**40)
        frames = max(len(samples) // HOP, 1)
        mel = log_mel(samples, self.n_mel, frames + self.frames)[:, :frames]
        return self.segments(
            mel,
            prompt,
            n,
            condition=condition,
            no_speech_threshold=no_speech_threshold,
            logprob_threshold=logprob_threshold,
            **options,
        )

    def segments(
        self,
        mel: Any,
        prompt: Sequence[int] | np.ndarray | None = None,
        n: int | None = None,
        *,
        condition: bool = False,
        no_speech_threshold: float | None = None,
        logprob_threshold: float = -1.0,
        **options: Any,
    ) -> Iterator[Segment]:
        """The same of a log-mel spectrogram [n_mel][any number of frames]."""
        spectrum, times, ids = np.asarray(mel, np.float32), self.rules.timestamps, self._prompt(prompt)
        if spectrum.ndim != 2 or len(spectrum) != self.n_mel or spectrum.size == 0:
            raise InvalidError(f"mel: expected [{self.n_mel}, frames], got {list(spectrum.shape)}")
        if not times:
            raise InvalidError("sound: the model does not say its no_timestamps_token_id")
        previous = [] if self.previous_id is None else [self.previous_id]
        if condition and not previous:
            raise InvalidError("condition: the model does not say its prev_sot_token_id")
        if no_speech_threshold is not None and not times.none:
            raise InvalidError("no_speech_threshold: the model has no id of silence below that of times")
        kept = self.max_length // 2 - 1
        count = self.max_length // 2 if n is None else n

        most = None if no_speech_threshold is None else real(no_speech_threshold, "no_speech_threshold")
        least = real(logprob_threshold, "logprob_threshold")

        def say(window: np.ndarray, said: list[int]) -> list[int] | None:
            before = [*previous, *said[-kept:]] if condition and said else []
            heard: list[float] = []
            follow = self._generate(
                window[None], [*before, *ids], count, timestamps=True, heard=heard, **options
            )
            found = [token for _, token in follow]
            if most is None or not heard or sum(heard) / len(heard) >= least:
                return found
            last = self.logits(window, [*before, ids[0]])[-1].astype(np.float64)
            weights = np.exp(last - last.max())
            is_silent = weights[times.none - 1] / weights.sum() > most
            return None if is_silent else found

        return segments(spectrum, self.frames, times, say)

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
        positions for. options: as of `generate_batch` and `Decoder.generate`.
        """
        sounds = self._sounds(mel)
        if len(sounds) != 1:
            raise InvalidError(f"mel: expected one sound, got {len(sounds)}")
        for _, token in self.generate_batch(sounds, prompt, n, **options):
            yield token

    def generate_batch(
        self,
        mels: Any,
        prompt: Sequence[int] | np.ndarray | None = None,
        n: int | None = None,
        *,
        at_once: int = MOST_AT_ONCE,
        timestamps: bool = False,
        suppress: bool = True,
        **options: Any,
    ) -> Iterator[tuple[int, int]]:
        """Yields pairs (index of the sound, id) as they are computed, of several sounds
        [batch][n_mel][frames], `at_once` of which share the steps.

        suppress: ids that generation_config.json or config.json suppress, in a text or where it
        begins, do not follow. timestamps: ids of times do, in pairs, as generate of transformers rules it;
        `seconds` makes them into seconds, and the prompt has no <|notimestamps|>. Their ids are the
        most likely ones.
        """
        return self._generate(
            mels, prompt, n, at_once=at_once, timestamps=timestamps, suppress=suppress, **options
        )

    def _generate(
        self,
        mels: Any,
        prompt: Sequence[int] | np.ndarray | None,
        n: int | None,
        *,
        at_once: int = MOST_AT_ONCE,
        timestamps: bool = False,
        suppress: bool = True,
        heard: list[float] | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, int]]:
        """heard: receives the logarithm of the probability of each id of one sound, that of the end too."""
        ids, sounds = self._prompt(prompt), self._sounds(mels)
        at_once = whole(at_once, "at_once", 1)
        if n is None:
            n = self.max_length + 1 - len(ids)  # the last one has no position
        if timestamps and options.get("temperature"):
            raise InvalidError("temperature: with timestamps the most likely ids are taken")
        if timestamps and not self.rules.timestamps:
            raise InvalidError("timestamps: the model does not say its no_timestamps_token_id")
        rules = self.rules if suppress else Rules(timestamps=self.rules.timestamps)
        rules = rules._replace(heard=heard)
        for first in range(0, len(sounds), at_once):
            some = sounds[first : first + at_once]
            over = self._over(self._remember(some, options.get("timeout", TIMEOUT)))
            over.rules = rules if timestamps else rules._replace(timestamps=None)
            if not any(over.rules[:3]):
                over.rules = None
            prompts = [ids] * len(some)  # the place of each is that of its sound
            for i, token in over.generate_batch(prompts, n, at_once=len(some), **options):
                yield first + i, token

    def seconds(self, token: int) -> float | None:
        """The time that an id says, or None."""
        times = self.rules.timestamps
        return (token - times.first) * times.step if times and token >= times.first else None

    # ---- What is recorded -----------------------------------------------------------------------

    def _over(self, memory: list[tuple[Tensor, Tensor]]) -> Decoder:
        return _Continuation(self, memory)

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
        rows: Tensor = recording.rows
        return rows

    def _record(self, batch: int) -> _Recording:
        return _Recording(self, batch)

    def _remember(self, mel: Any, timeout: float) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of sounds for each layer of the decoder [batch][n_head][n_source][dim],
        projected once."""
        sounds = self._sounds(mel)
        rows = self._encode(sounds, timeout)
        graph = Graph(self.device, len(sounds), self.n_source)
        memory: list[tuple[Tensor, Tensor]] = []
        for block in self.decoder:
            assert block.cross is not None
            k, v = (
                graph.heads(graph.linear(rows, by), self.decoder_heads)
                for by in (block.cross.k, block.cross.v)
            )
            memory.append((k, v))
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
    """The decoder over sounds, each at a place of the batch."""

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
