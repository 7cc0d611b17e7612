"""Modules whose weights stay floats by a quantization_config, named as the programs that wrote it do."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

from ._config import shown
from ._errors import FileError


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


def _by_path(name: str, pattern: str) -> bool:
    """transformers: a module, those in it, and those whose names end so; it may be an expression."""
    return name.endswith(f".{pattern}") or _matches(rf"(?:{pattern})(?:\.|$)", name)


def _by_target(name: str, pattern: str) -> bool:
    """compressed-tensors and ModelOpt: a name, one with wildcards, or an expression behind "re:"."""
    if pattern.startswith("re:"):
        return _matches(pattern[3:], name)
    return fnmatchcase(name, pattern)


_RULES = {
    "modules_to_not_convert": _by_path,
    "ignored_layers": _by_path,
    "ignore": _by_target,
    "exclude_modules": _by_target,
}


class Excluded:
    def __init__(self, values: Any, where: str) -> None:
        self._where = where
        self._patterns: list[tuple[str, str]] = []
        for key in _RULES if isinstance(values, dict) else ():
            listed = values.get(key)
            if listed is None:
                continue
            if not isinstance(listed, list) or not all(isinstance(x, str) and x for x in listed):
                raise FileError(f"{where}: {key}: expected names, got {shown(listed)}")
            self._patterns += [(key, pattern) for pattern in listed]

    def check(self, name: str, path: str) -> None:
        """Refuses a module whose weight is packed."""
        for key, pattern in self._patterns:
            if _RULES[key](name, pattern):
                raise FileError(
                    f"{path}: {name}: its weight is packed, but {self._where}: {key} {shown(pattern)}"
                    " says that it is not"
                )
