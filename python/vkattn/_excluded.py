"""Modules whose weights stay floats by a quantization_config, named as the programs that wrote it do."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, Callable

from ._config import shown
from ._errors import FileError

Matches = Callable[[str], bool]


def expression(text: str) -> Matches | None:
    """Whether names begin with what a regular expression says; None where the text is none."""
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None
    return lambda name: compiled.match(name) is not None


def _by_path(pattern: str) -> Matches | None:
    """transformers: a module, those in it, and those whose names end so; it may be an expression. A trailing
    dot, or star, stands for what is in it."""
    path = re.sub(r"\.?\*$|\.$", "", pattern)
    begins = None if re.fullmatch(r"[\w.-]+", path) else expression(rf"(?:{pattern})(?:\.|$)")
    if begins:
        return begins
    return lambda name: name == path or name.startswith(f"{path}.") or name.endswith(f".{path}")


def _by_target(pattern: str) -> Matches | None:
    """compressed-tensors and ModelOpt: a name, one with wildcards, or an expression behind "re:"."""
    if pattern.startswith("re:"):
        return expression(pattern[3:])
    return lambda name: fnmatchcase(name, pattern)


_RULES: dict[str, Callable[[str], Matches | None]] = {
    "modules_to_not_convert": _by_path,
    "ignored_layers": _by_path,
    "ignore": _by_target,
    "exclude_modules": _by_target,
}


class Excluded:
    def __init__(self, values: Any, where: str) -> None:
        self._where = where
        self._rules: list[tuple[str, Matches]] = []
        for key, rule in _RULES.items() if isinstance(values, dict) else ():
            listed = values.get(key)
            if listed is None:
                continue
            if not isinstance(listed, list) or not all(isinstance(x, str) and x for x in listed):
                raise FileError(f"{where}: {key}: expected names, got {shown(listed)}")
            for pattern in listed:
                matches = rule(pattern)
                if not matches:
                    raise FileError(f"{where}: {key} {shown(pattern)}: not a regular expression")
                self._rules.append((f"{key} {shown(pattern)}", matches))

    def check(self, name: str, path: str) -> None:
        """Refuses a module whose weight is packed."""
        for said, matches in self._rules:
            if matches(name):
                raise FileError(
                    f"{path}: {name}: its weight is packed, but {self._where}: {said} says that it is not:"
                    " quantize the model again, or take the name out of the list"
                )
