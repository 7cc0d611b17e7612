"""Ids that may not follow, by those before them: what a decoder of sound says of them."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from .._device import Device, Tensor
from .._plan import Plan

NEVER = np.float32(-np.inf)


class Timestamps(NamedTuple):
    """Ids of times: those behind one that says that there are none."""

    none: int
    end: int  # the id that ends a text
    latest: int | None  # of the times that a text may begin with, counted from 0
    step: float = 0.02  # seconds

    @property
    def first(self) -> int:
        return self.none + 1

    def forbid(self, mask: np.ndarray, said: Sequence[int]) -> None:
        """Times come in pairs and do not go back; a text begins with one."""
        first = self.first
        mask[self.none] = NEVER
        times = [token for token in said if token >= first]
        is_last = bool(said) and said[-1] >= first
        is_pair = is_last and (len(said) < 2 or said[-2] >= first)
        if is_pair:
            mask[first:] = NEVER
        elif is_last:
            mask[: self.end] = NEVER
        if times:
            alone = is_last and not is_pair
            mask[first : times[-1] + (0 if alone else 1)] = NEVER
        if not said:
            mask[:first] = NEVER
            if self.latest is not None:
                mask[first + self.latest + 1 :] = NEVER

    def choose(self, logits: np.ndarray) -> tuple[int, float]:
        """The most likely id, and the logarithm of its probability. A time, and no other id may follow, if
        times together are likelier than any other id."""
        given = logits.astype(np.float64)
        first, largest = self.first, given.max()
        if np.isnan(largest) or largest == NEVER:
            return -1, -np.inf
        weights = np.exp(given - largest)
        if weights[first:].sum() > weights[:first].max(initial=0.0):
            weights[:first] = 0
        chosen = int(weights.argmax())
        return chosen, float(given[chosen] - largest - np.log(weights.sum()))


class Rules(NamedTuple):
    never: tuple[int, ...] = ()
    not_first: tuple[int, ...] = ()
    timestamps: Timestamps | None = None
    heard: list[float] | None = None  # receives what timestamps.choose says of each id of one sound

    def mask(self, n_token: int, said: Sequence[int]) -> np.ndarray:
        """0, or -inf for each id that may not follow those that were drawn."""
        made = np.zeros(n_token, np.float32)
        made[list(self.never)] = NEVER
        if not said:
            made[list(self.not_first)] = NEVER
        if self.timestamps:
            self.timestamps.forbid(made, said)
        return made


class Ruled:
    """Rules over the logits [batch][n_token] of a session."""

    def __init__(self, rules: Rules, device: Device, batch: int, n_token: int) -> None:
        self.rules = rules
        self.values = np.zeros((batch, n_token), np.float32)
        self.mask = device.tensor(self.values)
        self.logits: dict[Plan, Tensor] = {}

    def add(self, plan: Plan, logits: Tensor) -> None:
        plan.add(logits, self.mask, logits)
        self.logits[plan] = logits

    def write(self, places: Sequence[Any]) -> None:
        """The masks of what places have said, if they are others than before."""
        values = self.values.copy()
        for b, place in enumerate(places):
            if place:
                values[b] = self.rules.mask(values.shape[1], place.said)
        if not np.array_equal(values, self.values):
            self.mask.write(values)
            self.values = values

    def choose(self, plan: Plan, next: Tensor, places: Sequence[Any]) -> np.ndarray:
        """What the device drew into `next`, or ids in its place."""
        drawn = next.read()
        if not self.rules.timestamps:
            return drawn
        logits, made = self.logits[plan].read(), drawn.copy()
        for b, place in enumerate(places):
            if place:
                made[b], said = self.rules.timestamps.choose(logits[b])
                if self.rules.heard is not None and not place.pending:
                    self.rules.heard.append(said)
        if not np.array_equal(made, drawn):
            next.write(made)
        return made
