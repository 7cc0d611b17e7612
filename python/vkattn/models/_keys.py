"""The keys of config.json or of GGUF's metadata, each of which is used or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._config import Config, shown
from .._errors import FileError, UnsupportedError


class Keys:
    """The keys of config.json or of GGUF's metadata; `left` are those that nothing asked for."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.config = Config(values, where)
        self.where = where
        self.values = values
        self.left = set(values)

    def get(self, key: str, kind: Any, default: Any = None) -> Any:
        """A value of a type, or one of several; the default where there is none, or null."""
        self.left.discard(key)
        value = self.values.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if float in kinds and type(value) is int and abs(value) < 2**64:
            value = float(value)
        if type(value) not in kinds:
            names = " or ".join(x.__name__ for x in kinds)
            raise FileError(f"{self.where}: {key}: expected {names}, got {shown(value)}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        self._unify(key)
        value = self.get(key, int, default)
        if value is None:
            raise FileError(f"{self.where}: there is no {key}")
        if not 1 <= value <= 2**24:
            raise FileError(f"{self.where}: {key}: expected 1 to 2^24, got {value}")
        return int(value)

    def _unify(self, key: str) -> None:
        """An array of GGUF that states the same size for each layer is that size."""
        values = self.values.get(key)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or not values.size:
            return
        if (values != values[0]).any():
            raise UnsupportedError(
                f"{self.where}: {key}: layers of different sizes are not supported, got"
                f" {shown(values.tolist())}"
            )
        self.values = {**self.values, key: int(values[0])}

    def only(self, key: str, *allowed: Any) -> None:
        """A key of which the first value, its default, or another of these is supported."""
        self.left.discard(key)
        self._unify(key)
        value = self.values.get(key)
        if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
            raise UnsupportedError(f"{self.where}: {key} {shown(value)} is not supported")

    def positive(self, key: str, default: float) -> float:
        value = self.get(key, float, default)
        if not 0 < value < 3e38:
            raise FileError(f"{self.where}: {key}: expected a positive number, got {shown(value)}")
        return float(value)
