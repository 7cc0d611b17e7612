"""Tokens of a text, by the package tokenizers where it is installed."""

from __future__ import annotations

import os
from typing import Any

from .._config import shown
from .._errors import FileError, InvalidError, UnsupportedError
from .._gguf import GGUF

# Of Qwen 2: letters, single digits, the rest.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL = 3  # type of a token of GGUF


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
        for key in (
            "model",
            "pre",
            "tokens",
            "merges",
            "token_type",
            "add_bos_token",
            "bos_token_id",
        )
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
    types = found["token_type"]
    if types is not None:
        special = [t for t, kind in zip(tokens, types) if kind == _CONTROL]
        made.add_special_tokens(special)
    bos = found["bos_token_id"]
    if found["add_bos_token"]:
        if type(bos) is not int or not 0 <= bos < len(tokens):
            raise FileError(f"{file.path}: expected tokenizer.ggml.bos_token_id")
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return made


def check_texts(texts: Any) -> list[Any]:
    if isinstance(texts, str):
        raise InvalidError("texts: expected several, got one")
    return list(texts)
