"""Turns of a chat that keep the cache: of each prompt only what is new is computed."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping

import numpy as np

from .._errors import InvalidError, UnsupportedError
from .._numbers import whole, wholes
from ._chat import Messages
from ._graph import TIMEOUT
from ._text import Prompt


class Place:
    """What a place of the batch is doing."""

    def __init__(self, index: int, prompt: list[int], count: int, seed: int) -> None:
        self.index = index
        self.pending = prompt  # ids that are not in the cache
        self.left = count
        self.seed = seed
        self.length = 0
        self.drawn = 0  # ids so far
        self.said: list[int] = []  # those, where rules say what may follow them


class Shared:
    """Plans and cache of a session and its forks, each of which has a place of the batch."""

    def __init__(self, plans: Any) -> None:
        self.plans = plans
        self.known = np.full(plans.batch, -1, np.int32)  # what the plans' `next` holds
        self.used: set[int] = set()

    def take(self) -> int:
        free = set(range(self.plans.batch)) - self.used
        if not free:
            raise InvalidError(
                f"fork: all {self.plans.batch} places are taken; close one, or ask for more by"
                " session(forks=..)"
            )
        self.used.add(min(free))
        return min(free)

    def give(self, place: int) -> None:
        self.used.discard(place)
        if not self.used:
            self.plans.close()


class ChatSession:
    """What `Decoder.session` gives, of that model. ids: those whose keys and values the cache holds."""

    def __init__(self, model: Any, shared: Shared, capacity: int) -> None:
        self.model = model
        self.capacity = capacity
        self.ids: list[int] = []
        self._shared: Shared | None = shared
        self._place = shared.take()
        self._turn = 0

    def __enter__(self) -> ChatSession:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives its place back; the memory with the last one."""
        if self._shared:
            self._shared.give(self._place)
        self._shared, self.ids = None, []

    def fork(self) -> ChatSession:
        """Another session that goes on from the ids of this one."""
        shared = self._open()
        made = ChatSession(self.model, shared, self.capacity)
        shared.plans.cache.fork(self._place, made._place)
        made.ids = list(self.ids)
        return made

    def generate(
        self,
        prompt: Prompt,
        n: int,
        *,
        seed: int = 0,
        stop: Iterable[int] | None = None,
        timeout: float = TIMEOUT,
    ) -> Iterator[int]:
        """As `Decoder.generate`, of a whole prompt. Its longest begin that the cache holds is not
        computed again; what does not fit is refused before anything is computed."""
        shared = self._open()
        ids, count = self.model._ids_of(prompt, "prompt"), whole(n, "n")
        if len(ids) > self.capacity:
            raise InvalidError(
                f"prompt: the session has {self.capacity} positions, got {len(ids)} ids; leave out"
                " the first turns, or ask for more by session(capacity)"
            )
        if count and len(ids) + count - 1 > self.capacity:
            raise InvalidError(
                f"n: the session has {self.capacity} positions: behind {len(ids)} ids it can"
                f" continue by {self.capacity - len(ids) + 1}, got {count}"
            )
        given = self.model.stop_ids if stop is None else stop
        stops = frozenset(wholes(given, "stop", -(2**31), 2**31, unordered=True))
        seed = whole(seed, "seed", 0, 2**64 - 1)
        return self._run(shared, ids, count, seed, stops, timeout)

    def stream(self, prompt: Prompt, n: int, **options: Any) -> Iterator[str]:
        """As `generate`, in pieces of text."""
        ids = self.generate(prompt, n, **options)
        pieces: Iterator[str] = self.model.decode_stream().pieces(ids)
        return pieces

    def chat(
        self,
        messages: Messages,
        n: int,
        *,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """As `Decoder.chat`: all messages are given, and the new ones computed."""
        return self.stream(self.model.chat_ids(messages, **(variables or {})), n, **options)

    def _open(self) -> Shared:
        if self._shared is None:
            raise InvalidError("session: it is closed")
        return self._shared

    def _run(
        self,
        shared: Shared,
        ids: list[int],
        count: int,
        seed: int,
        stops: frozenset[int],
        timeout: float,
    ) -> Iterator[int]:
        self._turn += 1
        turn = self._turn
        if not count:
            return
        kept = _common(self.ids, ids[:-1])  # the last row is computed: it has the next id
        if self.model.states and kept != shared.plans.cache.length(self._place):
            kept = 0  # a state cannot go back
        shared.plans.cache.truncate(self._place, kept)
        self.ids = ids[:kept]
        sequence, all_ids = Place(0, ids[kept:], count, seed), list(ids)
        sequence.length = kept
        places: list[Place | None] = [None] * shared.plans.batch
        places[self._place] = sequence
        while sequence.left:
            if turn != self._turn or self._shared is None:
                raise InvalidError("session: another turn began, or it was closed")
            drawn, shared.known = shared.plans._run_round(places, shared.known, timeout)
            self.ids = all_ids[: sequence.length]
            if sequence.pending:
                continue
            token = int(drawn[self._place])
            if token < 0:
                raise UnsupportedError("the logits of a row are all NaN or -inf: no id drawn")
            sequence.left -= 1
            sequence.drawn += 1
            sequence.pending = [token]
            if token in stops:
                return
            all_ids.append(token)
            yield token


def _common(a: list[int], b: list[int]) -> int:
    """How many first ids are equal."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)
