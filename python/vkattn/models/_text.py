"""Tokens of a text, by the package tokenizers where it is installed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._config import shown
from .._errors import FileError, InvalidError, UnsupportedError
from .._gguf import GGUF
from .._numbers import whole

# Qwen 2 splits a text into letters, single digits and the rest.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6  # types of tokens of GGUF
# Control tokens that end a text or a turn, as models of these families write them.
_ENDS = {
    *("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>"),
    *("<end_of_turn>", "<|end_of_turn|>", "<|return|>", "<EOT>"),
}
# Keys of tokenizers that this one is not, where they are true.
_REFUSED = ("add_sep_token", "add_space_prefix", "remove_extra_whitespaces", "precompiled_charsmap")


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

    def _tokenizer(self) -> Any:
        if self._made is None:
            tokenizers = _package()
            if isinstance(self.where, GGUF):
                self._made = _of_gguf(tokenizers, self.where)
            else:
                path = os.path.join(self.where, "tokenizer.json")
                if not os.path.isfile(path):
                    raise FileError(f"{path}: there is no such file, which a text needs; give ids")
                self._made = tokenizers.Tokenizer.from_file(path)
            self._made.no_padding()
            self._made.no_truncation()
            if self.most is not None:
                self._made.enable_truncation(self.most)
        return self._made

    def encode(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, got {type(text).__name__}")
        return list(self._tokenizer().encode(text).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer().decode(ids))


def _of_gguf(tokenizers: Any, file: GGUF) -> Any:
    """The byte-level BPE that a GGUF file holds."""
    found = {
        key: file.metadata.get(f"tokenizer.ggml.{key}")
        for key in ("model", "pre", "tokens", "merges")
    }
    model, pre = found["model"], found["pre"]
    pres = tokenizers.pre_tokenizers
    bytes_of_words = pres.ByteLevel(add_prefix_space=False)
    known = {
        "gpt-2": bytes_of_words,
        "smollm": pres.Sequence([pres.Digits(individual_digits=True), bytes_of_words]),
        "qwen2": pres.Sequence(
            [
                pres.Split(tokenizers.Regex(_QWEN2), "isolated"),
                pres.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
    }
    if model != "gpt2" or pre not in known:
        raise UnsupportedError(
            f"{file.path}: a tokenizer of model {shown(model)} and pre {shown(pre)} is not"
            " supported; give ids"
        )
    for key in _REFUSED:
        value = file.metadata.get(f"tokenizer.ggml.{key}")
        if value is not None and value is not False:
            raise UnsupportedError(f"{file.path}: tokenizer.ggml.{key} is not supported; give ids")
    tokens, merges = found["tokens"], found["merges"]
    if not isinstance(tokens, list) or not isinstance(merges, list):
        raise FileError(f"{file.path}: expected tokenizer.ggml.tokens and tokenizer.ggml.merges")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if len(set(tokens)) != len(tokens) or any(len(pair) != 2 for pair in pairs):
        raise FileError(f"{file.path}: tokenizer.ggml: a token occurs twice, or a merge is no pair")
    try:
        made = tokenizers.Tokenizer(
            tokenizers.models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=pairs)
        )
    except Exception as error:  # a merge of tokens that are not there
        raise FileError(f"{file.path}: tokenizer.ggml: {error}") from error
    if pre == "qwen2":
        made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = known[pre]
    made.decoder = tokenizers.decoders.ByteLevel()
    # One id each, wherever they stand in a text. A text that is decoded has the user's ones.
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        chosen = [t for t, own in zip(tokens, token_types(file, len(tokens))) if own == kind]
        added = [tokenizers.AddedToken(t, special=special, normalized=False) for t in chosen]
        (made.add_special_tokens if special else made.add_tokens)(added)
    _set_ends(tokenizers, made, file, tokens)
    return made


def token_types(file: GGUF, count: int) -> list[int]:
    """The type of each token; all are normal where the file does not say it."""
    types = file.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [1] * count
    numbers = isinstance(types, np.ndarray) and types.dtype.kind in "iu"
    if not numbers or len(types) != count or not all(0 <= x <= _BYTE for x in types.tolist()):
        raise FileError(
            f"{file.path}: tokenizer.ggml.token_type: expected {count} numbers from 0 to {_BYTE}"
        )
    return [int(x) for x in types]


def _set_ends(tokenizers: Any, made: Any, file: GGUF, tokens: list[str]) -> None:
    """The ids that a file has before and behind each text."""
    template, special = ["$A"], []
    for name, place in (("bos", 0), ("eos", len(template) + 1)):
        wanted = file.metadata.get(f"tokenizer.ggml.add_{name}_token", False)
        if not isinstance(wanted, bool):
            raise FileError(f"{file.path}: tokenizer.ggml.add_{name}_token: expected a bool")
        number = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if not wanted:
            continue
        if type(number) is not int or not 0 <= number < len(tokens):
            raise FileError(f"{file.path}: expected tokenizer.ggml.{name}_token_id")
        template.insert(place, f"own_{name}")
        special.append({"id": f"own_{name}", "ids": [number], "tokens": [tokens[number]]})
    if special:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=template, special_tokens=special
        )


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
            if token in _ENDS and kind in (_CONTROL, _USER_DEFINED):
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


def check_texts(texts: Any, what: str = "texts") -> list[Any]:
    if isinstance(texts, (str, bytes, bytearray)):
        raise InvalidError(f"{what}: expected several, got one")
    return list(texts)
