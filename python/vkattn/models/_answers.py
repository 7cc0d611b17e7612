"""What a decoder behind an encoder has: a source in, ids out."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from .._errors import InvalidError
from .._numbers import wholes
from ._decoder import Decoder
from ._graph import TIMEOUT
from ._text import Decodes


class Answers(Decodes):
    """A model whose decoder sees the rows of a source."""

    start_id: int | None
    padding: int | None = None  # an id that has no place in a prompt

    def _remember(self, source: Any, timeout: float) -> Any:
        """What the decoder sees of a source."""
        raise NotImplementedError

    def _over(self, memory: Any) -> Decoder:
        """The decoder over it."""
        raise NotImplementedError

    def logits(
        self, source: Any, ids: Sequence[int] | np.ndarray, *, timeout: float = TIMEOUT
    ) -> np.ndarray:
        """The logits after each id that the decoder has for a source: float32 [n][n_token]."""
        given = self._prompt(ids)
        return self._over(self._remember(source, timeout)).logits(given, timeout=timeout)

    def _prompt(self, prompt: Any) -> list[int]:
        if prompt is None:
            if self.start_id is None:
                raise InvalidError("prompt: the model does not say which id starts a text")
            prompt = [self.start_id]
        if isinstance(prompt, str):
            raise TypeError("prompt: expected ids, got a text")
        ids = list(wholes(prompt, "prompt", -(2**63), 2**63))
        if self.padding is not None and self.padding in ids:
            raise InvalidError(f"prompt: {self.padding} is the id of padding, which has no place")
        return ids
