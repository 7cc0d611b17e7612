"""Tokens of a text, by the package tokenizers where it is installed."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

import numpy as np

from .._config import shown
from .._errors import FileError, InvalidError, UnsupportedError
from .._gguf import GGUF
from .._numbers import whole, wholes
from ._chat import Messages, template_of
from ._gguf_text import (
    CONTROL,
    USER_DEFINED,
    of_package,
    own_ids,
    token_types,
    tokenizer_of_gguf,
)

# Control tokens that end a text or a turn, as models of these families write them.
_ENDS = {
    *("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>"),
    *("<end_of_turn>", "<|end_of_turn|>", "<|return|>", "<EOT>"),
}

Prompt = Union[str, Sequence[int], np.ndarray]


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise UnsupportedError(
            "texts need the package tokenizers (pip install tokenizers); ids do not"
        ) from error
    return tokenizers


class Text:
    """A tokenizer that is read when it is first needed."""

    def __init__(self, where: str | GGUF) -> None:
        self.where = where
        self.most: int | None = None  # ids of a text, the rest being cut off
        self._made: Any = None
        self._own: dict[int, int] = {}  # ids that the tokenizer gives in place of the model's

    def _tokenizer(self) -> Any:
        if self._made is None:
            tokenizers = _package()
            if isinstance(self.where, GGUF):
                self._made = tokenizer_of_gguf(tokenizers, self.where)
                self._own = own_ids(self.where)
            else:
                path = os.path.join(self.where, "tokenizer.json")
                if not os.path.isfile(path):
                    raise FileError(f"{path}: there is no such file, which a text needs; give ids")
                try:
                    self._made = tokenizers.Tokenizer.from_file(path)
                except BaseException as error:
                    raise of_package(error, path) from error
            self._made.no_padding()
            self._made.no_truncation()
            if self.most is not None:
                self._made.enable_truncation(self.most)
        return self._made

    def encode(self, text: str, ends: bool = True) -> list[int]:
        """ends: with the ids that the file has before and behind a text."""
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, got {type(text).__name__}")
        return self._ids(self._tokenizer().encode(text, add_special_tokens=ends))

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """Ids, and which of the texts each is of by the tokenizer."""
        made = self._tokenizer().encode(first, second)
        return self._ids(made), list(made.type_ids)

    def _ids(self, made: Any) -> list[int]:
        return [self._own.get(i, i) for i in made.ids]

    def chat(self, messages: Messages, variables: Mapping[str, Any]) -> str:
        """The prompt that the model's template makes of messages."""
        return template_of(self.where).render(messages, variables)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer().decode(ids))


def stop_ids_of(file: GGUF) -> tuple[int, ...]:
    """All ids that end a text or a turn: those that keys name, and control tokens that are known to."""
    found: list[int] = []
    for name in ("eos", "eot", "eom"):
        value = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        numbers = value.tolist() if isinstance(value, np.ndarray) else [value]
        if value is not None and not all(type(x) is int for x in numbers):
            raise FileError(
                f"{file.path}: tokenizer.ggml.{name}_token_id: expected a whole number, got"
                f" {shown(value)}"
            )
        found += [x for x in numbers if x is not None]
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and file.metadata.get("tokenizer.ggml.token_type") is not None:
        types = token_types(file, len(tokens))
        for i, (token, kind) in enumerate(zip(tokens, types)):
            if token in _ENDS and kind in (CONTROL, USER_DEFINED):
                found.append(i)
    return tuple(dict.fromkeys(found))


class TextStream:
    """The text of ids that come one by one. `push` gives what an id adds: "" as long as a character
    is not whole; `finish` gives what is left. Together they are the text of all ids."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._ids: list[int] = []  # those whose text was told last, then those that are not told
        self._told = 0  # how many of them have been told

    def push(self, token: int) -> str:
        self._ids.append(whole(token, "token"))
        return self._take(False)

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text of ids, each piece as soon as it is whole."""
        for token in tokens:
            piece = self.push(token)
            if piece:
                yield piece
        left = self.finish()
        if left:
            yield left

    def finish(self) -> str:
        left = self._take(True)
        self._ids, self._told = [], 0
        return left

    def _take(self, all_of_it: bool) -> str:
        """What has been told is decoded again, as a decoder may treat the first id in another way."""
        before = self._text.decode(self._ids[: self._told])
        now = self._text.decode(self._ids)
        if not all_of_it and now.endswith("\ufffd"):  # of a character's first bytes
            return ""
        if now != before:  # an id that adds nothing is kept: the next may begin a text without it
            del self._ids[: self._told]
        self._told = len(self._ids)
        return now[len(before) :]


class Decodes:
    """What makes ids into texts."""

    text: Text

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, all at once, by the model's tokenizer (package tokenizers); for ids one
        by one see `decode_stream`."""
        return self.text.decode([int(i) for i in ids])

    def decode_stream(self) -> TextStream:
        """What decodes ids that come one by one, such as those of a place of `generate_batch`."""
        return TextStream(self.text)


def read_ids(
    given: Any, what: str, encode: Callable[[str], list[int]], n_token: int, most: int | None = None
) -> list[int]:
    """Those of a str, or the ids themselves, of which there are at least one and up to `most`."""
    if isinstance(given, str):
        ids = encode(given)
    else:
        ids = list(wholes(given, what, -(2**63), 2**63))
    if most is not None and not 1 <= len(ids) <= most:
        raise InvalidError(f"{what}: expected 1 to {most} ids, got {len(ids)}")
    if not ids:
        raise InvalidError(f"{what}: expected at least one id")
    for i in ids:
        if not 0 <= i < n_token:
            raise InvalidError(f"{what}: the model has {n_token} ids, got {i}")
    return ids


def check_texts(texts: Any, what: str = "texts") -> list[Any]:
    if isinstance(texts, (str, bytes, bytearray)):
        raise InvalidError(f"{what}: expected several, got one")
    return list(texts)
