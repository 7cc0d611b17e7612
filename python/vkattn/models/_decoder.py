"""Text generation: two recorded plans, one for chunks of prompts and one for a token of each
sequence, over a cache whose sequences start and stop by themselves."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from .._arrays import check_dtype
from .._cache import Cache, CacheLayer
from .._device import Device, Tensor
from .._errors import InvalidError, UnsupportedError
from .._numbers import whole, wholes
from ._chat import Messages
from ._graph import TIMEOUT, Graph
from ._pooling import Pooling, pooled
from ._rules import Ruled, Rules
from ._session import ChatSession, Place, Shared
from ._text import Decodes, Prompt, check_texts, read_ids

MOST_AT_ONCE = 8


class Sampling(NamedTuple):
    temperature: float = 0.0
    top_k: int = 0
    top_p: float | None = None
    min_p: float = 0.0


class Inputs(NamedTuple):
    """What a recorded pass through a model reads."""

    ids: Tensor  # i32 [batch][rows]
    positions: Tensor | None  # i32 [batch][rows], where the model asks for them
    n_append: Tensor  # i32 [batch]: rows of each sequence that count
    cache: Cache
    capacity: int


class Decoder(Decodes):
    """A model that continues texts. See `vkattn.models.load`."""

    device: Device
    n_token: int
    n_layer: int
    n_kv_head: int
    head_dim: int
    max_length: int | None  # positions that the model has embeddings for
    needs_positions = False
    chunk_rows = 32  # ids of a prompt that a run takes
    stop_ids: tuple[int, ...]
    unused: list[str]
    rules: Rules | None = None  # of ids that may follow
    states: Sequence[CacheLayer | None] = ()  # of each layer, None with keys; (): no layer has one
    pooling: Pooling | None = None  # of a folder of sentence-transformers, or a GGUF file

    def add(self, graph: Graph, inputs: Inputs) -> Tensor:
        """Adds the model up to its last norm: [batch][rows][width]."""
        raise NotImplementedError

    def add_head(self, graph: Graph, rows: Tensor) -> Tensor:
        """Adds logits [...][n_token] of rows [...][width]."""
        raise NotImplementedError

    # ---- Use ------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """The ids of a text, by the model's tokenizer (package tokenizers)."""
        return self.text.encode(text)

    def stream(self, prompt: Prompt, n: int, **options: Any) -> Iterator[str]:
        """As `generate`, in pieces of text: characters are whole, and spaces are where they are in
        the whole text."""
        return self.decode_stream().pieces(self.generate(prompt, n, **options))

    def chat_ids(self, messages: Messages, **variables: Any) -> list[int]:
        """The ids of the prompt that the model's chat template makes of messages, dicts with role
        and content. variables: what the template asks for besides, such as tools."""
        return self.text.encode(self.text.chat(messages, variables), ends=False)

    def chat(
        self,
        messages: Messages,
        n: int,
        *,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """As `stream`, of what answers messages, by the model's chat template (package jinja2)."""
        return self.stream(self.chat_ids(messages, **(variables or {})), n, **options)

    def session(
        self,
        capacity: int | None = None,
        *,
        forks: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float | None = None,
        min_p: float = 0.0,
        kv_dtype: str = "f32",
    ) -> ChatSession:
        """Keeps the cache and the plans from one prompt to the next. capacity: ids of all turns;
        2,048, or fewer if the model has positions for fewer. forks: how many may be open beside
        it."""
        most = self.max_length
        size = min(2048, most or 2048) if capacity is None else whole(capacity, "capacity", 1)
        if most is not None and size > most:
            raise InvalidError(f"capacity: the model has {most} positions, got {size}")
        sampling = Sampling(temperature, top_k, top_p, min_p)
        batch = 1 + whole(forks, "forks")
        plans = Session(self, batch, size, min(self.chunk_rows, size), sampling, kv_dtype)
        return ChatSession(self, Shared(plans), size)

    def generate(self, prompt: Prompt, n: int, **options: Any) -> Iterator[int]:
        """Yields up to n ids that continue a prompt, a text or ids, as they are computed.

        The most likely id, or with temperature one drawn by temperature, top_k, top_p, min_p and
        seed as `Plan.sample` does, the i-th id by step i. stop: ids that end the text and are not
        yielded; by default those that the model names, () for none. kv_dtype: of cached keys and
        values; "f32".
        """
        sequences = (list, tuple, np.ndarray)
        if isinstance(prompt, sequences) and getattr(prompt, "shape", None) != () and len(prompt):
            if isinstance(prompt[0], (str, *sequences)):
                raise TypeError("prompt: expected a text or ids; generate_batch takes several")
        for _, token in self.generate_batch([prompt], n, **options):
            yield token

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        n: int | Sequence[int],
        *,
        at_once: int = MOST_AT_ONCE,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float | None = None,
        min_p: float = 0.0,
        seed: int | Sequence[int] = 0,
        stop: Iterable[int] | None = None,
        kv_dtype: str = "f32",
        timeout: float = TIMEOUT,
    ) -> Iterator[tuple[int, int]]:
        """Yields pairs (index of the prompt, id) as they are computed; options as in `generate`.

        at_once: sequences that share the steps. A prompt of any length takes the place of a
        sequence that ended, while the others go on. n: ids for all, or for each prompt. seed: for
        all, or for each prompt; with one seed a prompt draws as it does alone, and so equal prompts
        draw alike.
        """
        given = check_texts(prompts, "prompts")
        ids = [self._ids_of(prompt, f"prompts[{i}]") for i, prompt in enumerate(given)]
        counts = _counts_of(n, len(ids))
        seeds = _seeds_of(seed, len(ids))
        stops = frozenset(
            self.stop_ids
            if stop is None
            else wholes(stop, "stop", -(2**31), 2**31, unordered=True)
        )
        at_once = whole(at_once, "at_once", 1)
        # The last id is not fed again.
        capacity = max((len(p) + c - 1 for p, c in zip(ids, counts) if c), default=0)
        if self.max_length is not None and capacity > self.max_length:
            raise InvalidError(
                f"n: the model has {self.max_length} positions, but {capacity} are asked for"
            )
        work = [Place(i, p, c, seeds[i]) for i, (p, c) in enumerate(zip(ids, counts)) if c]
        batch = min(at_once, len(work))
        if not work:
            return
        sampling = Sampling(temperature, top_k, top_p, min_p)
        longest = max(len(sequence.pending) for sequence in work)
        session = Session(self, batch, capacity, longest, sampling, kv_dtype)
        try:
            yield from session.run(work, stops, timeout)
        finally:
            session.close()

    def logits(self, ids: Prompt, *, timeout: float = TIMEOUT) -> np.ndarray:
        """The logits after each id of a text: float32 [n][n_token]."""
        ids = self._ids_of(ids, "ids")
        if self.max_length is not None and len(ids) > self.max_length:
            raise InvalidError(f"ids: the model has {self.max_length} positions, got {len(ids)}")
        rows = min(self.chunk_rows, len(ids))
        cache = _cache_of(self, 1, len(ids), "f32")
        chunk = _Recording(self, cache, len(ids), rows)
        logits = self.add_head(chunk.graph, chunk.hidden)
        chunk.graph.plan.finish()
        result = np.empty((len(ids), self.n_token), np.float32)
        for at in range(0, len(ids), rows):
            step = ids[at : at + rows]
            chunk.write([step], [at])
            chunk.graph.plan.run(timeout)
            result[at : at + rows] = logits.read()[0, : len(step)]
        cache.close()
        return result

    def rows(
        self, texts: Sequence[Prompt], *, at_once: int = MOST_AT_ONCE, timeout: float = TIMEOUT
    ) -> list[np.ndarray]:
        """The last rows of each text of n ids, those that logits are made of: float32 [n][width].
        at_once: texts of a run."""
        ids = [self._ids_of(text, f"texts[{i}]") for i, text in enumerate(check_texts(texts))]
        longest = max((len(text) for text in ids), default=0)
        if self.max_length is not None and longest > self.max_length:
            raise InvalidError(f"texts: the model has {self.max_length} positions, got {longest}")
        batch = min(whole(at_once, "at_once", 1), len(ids))
        result: list[Any] = [None] * len(ids)
        if not ids:
            return result
        cache = _cache_of(self, batch, longest, "f32")
        chunk = _Recording(self, cache, longest, min(self.chunk_rows, longest))
        chunk.graph.plan.finish()
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        for start in range(0, len(ids), batch):
            indices = order[start : start + batch]
            for i, rows in zip(indices, chunk.rows_of([ids[i] for i in indices], timeout)):
                result[i] = rows
        chunk.graph.plan.close()
        cache.close()
        return result

    def embed(
        self, texts: Sequence[Prompt], *, at_once: int = MOST_AT_ONCE, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """A vector of each text, float32 [n][width], of the last rows as the folder of a
        sentence-transformer says: of Qwen3-Embedding the last one, of length 1. Texts are not cut;
        at_once: texts of a run."""
        if self.pooling is None:
            raise InvalidError(
                "embed: the files do not say how rows become a vector (there is no modules.json);"
                " rows(texts) gives them"
            )
        return pooled(self.pooling, self.rows(texts, at_once=at_once, timeout=timeout))

    def _ids_of(self, prompt: Any, what: str) -> list[int]:
        return read_ids(prompt, what, self.encode, self.n_token)


def _are_several(values: Any) -> bool:
    """Whether they are one for each prompt, where one number is for all."""
    return isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim > 0)


def _counts_of(n: Any, size: int) -> list[int]:
    """How many ids each of `size` prompts is continued by."""
    if _are_several(n):
        if len(n) != size:
            raise InvalidError(f"n: expected counts for {size} prompts, got {n!r}")
        return list(wholes(n, "n"))
    return [whole(n, "n")] * size


def _seeds_of(seed: Any, size: int) -> list[int]:
    """The seed of each of `size` prompts."""
    if _are_several(seed):
        if len(seed) != size:
            raise InvalidError(f"seed: expected seeds for {size} prompts, got {len(seed)}")
        return list(wholes(seed, "seed", 0, 2**64 - 1))
    return [whole(seed, "seed", 0, 2**64 - 1)] * size


def _cache_of(model: Decoder, batch: int, capacity: int, dtype: str) -> Cache:
    if model.states:
        keys = CacheLayer(model.n_kv_head, model.head_dim, key_dtype=check_dtype(dtype, "kv_dtype"))
        layers = [state or keys for state in model.states]
        return Cache(model.device, batch=batch, capacity=capacity, layers=layers)
    return Cache(
        model.device,
        batch=batch,
        n_layer=model.n_layer,
        n_kv_head=model.n_kv_head,
        head_dim=model.head_dim,
        capacity=capacity,
        key_dtype=dtype,
    )


class _Recording:
    """A plan that takes up to `rows` ids of each sequence. n_append and next may be shared."""

    def __init__(
        self,
        model: Decoder,
        cache: Cache,
        capacity: int,
        rows: int,
        ids: Tensor | None = None,
    ) -> None:
        device, batch = model.device, cache.batch
        # One kernel for all chunks, however many rows: of some, bits would follow from the batch.
        self.graph = Graph(device, batch, rows, whole_n_q=model.chunk_rows if rows > 1 else 1)
        self.own_ids = ids is None
        self.ids = device.empty((batch, rows), "i32") if ids is None else ids
        self.positions = device.empty((batch, rows), "i32") if model.needs_positions else None
        self.n_append = device.empty((batch,), "i32")
        self._last: dict[Any, bytes] = {}
        self.cache = cache
        inputs = Inputs(self.ids, self.positions, self.n_append, cache, capacity)
        self.hidden = model.add(self.graph, inputs)

    def put(self, tensor: Tensor, values: Any) -> None:
        """Writes whole numbers, if they are other ones than the last time."""
        array = np.ascontiguousarray(values, np.int32)
        if self._last.get(tensor) != array.tobytes():
            tensor.write(array)
            self._last[tensor] = array.tobytes()

    def write(self, steps: Sequence[Sequence[int]], lengths: Sequence[int]) -> None:
        """The ids of each sequence, () for one that waits, and where they begin."""
        rows = self.graph.rows
        if self.own_ids:
            self.put(self.ids, [[*p, *[-1] * (rows - len(p))] for p in steps])
        if self.positions is not None:
            self.put(self.positions, np.asarray(lengths)[:, None] + np.arange(rows))
        self.put(self.n_append, [len(p) for p in steps])

    def rows_of(self, texts: Sequence[list[int]], timeout: float) -> list[np.ndarray]:
        """The last rows of up to `batch` texts, from the first id on."""
        batch, rows = self.ids.shape
        lengths, found = [0] * batch, [list[np.ndarray]() for _ in texts]
        for b in range(batch):
            if self.cache.length(b):
                self.cache.truncate(b, 0)
        for at in range(0, max(map(len, texts)), rows):
            steps = [text[at : at + rows] for text in texts]
            self.write([*steps, *[[]] * (batch - len(steps))], lengths)
            self.graph.plan.run(timeout)
            made = self.hidden.read()
            for b, step in enumerate(steps):
                found[b].append(made[b, : len(step)])
                lengths[b] += len(step)
        return [np.concatenate(rows) for rows in found]


class Session:
    """The recorded plans of one batch, whose prompts have up to `longest` ids."""

    def __init__(
        self,
        model: Decoder,
        batch: int,
        capacity: int,
        longest: int,
        sampling: Sampling,
        kv_dtype: str,
    ) -> None:
        device = model.device
        self.cache = _cache_of(model, batch, capacity, kv_dtype)
        self.next = device.empty((batch,), "i32")
        self.sampling = sampling
        self.batch = batch
        self.ruled = Ruled(model.rules, device, batch, model.n_token) if model.rules else None
        # Each draws by its own count and seed, wherever it stands. What the device has of both:
        self.steps, self.seeds = np.zeros(batch, np.int32), np.zeros((batch, 2), np.int32)
        self.step_counts, self.seed_words = device.tensor(self.steps), device.tensor(self.seeds)
        # A run of one row reads `next`, so that a token needs nothing from the host.
        self.step = _Recording(model, self.cache, capacity, 1, self.next.reshape(batch, 1))
        self._end(model, self.step, self.step.hidden.reshape(batch, self.step.hidden.shape[2]))
        self.rows = min(model.chunk_rows, longest)  # rows that no id fills cost as much as others
        self.chunk: _Recording | None = None
        if self.rows > 1:
            self.chunk = _Recording(model, self.cache, capacity, self.rows)
            graph = self.chunk.graph
            self.last = device.empty((batch,), "i32")
            table = self.chunk.hidden.reshape(batch * self.rows, self.chunk.hidden.shape[2])
            self._end(model, self.chunk, graph.gather(table, self.last))

    def close(self) -> None:
        for recording in (self.step, self.chunk):
            if recording:
                recording.graph.plan.close()
        self.cache.close()

    def _end(self, model: Decoder, recording: _Recording, rows: Tensor) -> None:
        plan = recording.graph.plan
        logits = model.add_head(recording.graph, rows)
        if self.ruled:
            self.ruled.add(plan, logits)
        if self.sampling.temperature:
            given = self.sampling._asdict()
            plan.sample(
                logits, self.next, step=self.step_counts, seeds=self.seed_words, **given
            )
        else:
            # -1 where a row has no number. What bounds a draw is checked all the same.
            s = self.sampling
            plan.sample(logits, self.next, top_k=s.top_k, top_p=s.top_p, min_p=s.min_p)
        plan.finish()

    def run(
        self, work: list[Place], stops: frozenset[int], timeout: float
    ) -> Iterator[tuple[int, int]]:
        queue = list(work)
        places: list[Place | None] = [None] * self.batch
        known = np.full(self.batch, -1, np.int32)  # what `next` holds
        while queue or any(places):
            for b in range(self.batch):
                if places[b] is None and queue:
                    places[b] = queue.pop(0)
                    if self.cache.length(b):
                        self.cache.truncate(b, 0)
            drawn, known = self._run_round(places, known, timeout)
            for b, sequence in enumerate(places):
                if sequence is None or sequence.pending:
                    continue
                token = int(drawn[b])
                if token < 0:
                    raise UnsupportedError("the logits of a row are all NaN or -inf: no id drawn")
                sequence.left -= 1
                sequence.drawn += 1
                sequence.pending = [token]
                sequence.said += [token] * (self.ruled is not None)
                if token in stops or sequence.left == 0:
                    places[b] = None
                if token not in stops:
                    yield sequence.index, token

    def _write_draws(self, places: list[Place | None]) -> None:
        """Counts and seeds, if they are other ones than the device has: each run counts all up."""
        steps, seeds = self.steps.copy(), self.seeds.copy()
        for b, s in enumerate(places):
            if s:
                steps[b] = s.drawn
                seeds[b] = np.array([s.seed], "<u8").view(np.int32)
        if not np.array_equal(steps, self.steps):
            self.step_counts.write(steps)
        if not np.array_equal(seeds, self.seeds):
            self.seed_words.write(seeds)
        self.steps, self.seeds = steps, seeds

    def _run_round(
        self, places: list[Place | None], known: np.ndarray, timeout: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids that follow, and what `next` holds then. Prompts with more than one id left take a
        run of the plan for chunks, then the others one of the plan for tokens: so the kernels of a
        sequence, and its bits, do not depend on what the others do."""
        drawn = known
        runs = [  # before the first run takes ids
            (long, [s if s and (len(s.pending) > 1) == long else None for s in places])
            for long in (True, False)
        ]
        for long, some in runs:
            if any(some):
                known = self._run_once(some, long, known, timeout)
                drawn = np.where([s is not None for s in some], known, drawn)
        return drawn, known

    def _run_once(
        self, places: list[Place | None], long: bool, known: np.ndarray, timeout: float
    ) -> np.ndarray:
        recording = self.chunk if long else self.step
        assert recording is not None
        rows = recording.graph.rows
        steps = [s.pending[:rows] if s else [] for s in places]
        recording.write(steps, [s.length if s else 0 for s in places])
        if long:
            recording.put(self.last, [b * rows + max(len(p), 1) - 1 for b, p in enumerate(steps)])
        else:
            wanted = np.array([p[0] if p else known[b] for b, p in enumerate(steps)], np.int32)
            if not np.array_equal(wanted, known):
                self.next.write(wanted)
        if self.sampling.temperature:
            self._write_draws(places)
        if self.ruled:
            self.ruled.write(places)
        recording.graph.plan.run(timeout)
        self.steps += 1
        for s, step in zip(places, steps):
            if s:
                s.pending = s.pending[len(step) :]
                s.length += len(step)
        if self.ruled:
            return self.ruled.choose(recording.graph.plan, self.next, places)
        return self.next.read()
