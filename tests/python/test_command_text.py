"""Tokens of texts by the command, beside ids that were stored and those of vkattn.models."""

import os
import runpy
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import test_models_gguf_text as texts
import texts_gguf as made
from test_command import command, pytestmark  # noqa: F401

import vkattn
from vkattn.models._text import Text

STORED = [x for x in texts.STORED if x["keys"].get("pre") == "llama-bpe"]
STORED.append(next(x for x in texts.STORED if x["keys"]["model"] == "llama"))


SCRIPT = Path(__file__).parents[2] / "tools" / "dev" / "unicode_table.py"
SECOND_LETTERS = runpy.run_path(str(SCRIPT))["second_letters"]()


def unstable(c):
    return (
        unicodedata.combining(c) != 0
        or unicodedata.normalize("NFC", c) != c
        or ord(c) in SECOND_LETTERS
    )


def tokens(path, lines):
    found = command("tokens", path, *lines).splitlines()
    return [list(map(int, line.split())) for line in found]


@pytest.mark.parametrize("stored", STORED)
def test_stored(tmp_path, stored):
    path = made.write(tmp_path / "x.gguf", texts.with_bytes(stored["keys"]))
    lines = [line for line, _ in stored["lines"]]
    assert len(lines) > 10
    for (line, ids), found in zip(stored["lines"], tokens(path, lines)):
        assert found == ids, line


PRES = ("gpt-2", "smollm", "llama-bpe", "qwen2")
EDGES = [
    *("", " ", "  ", "\n", " \n \r\n  x", "a  b", "a   ", "'s'S's", "don't DON'T 'ſ", " 12 345678"),
    *("x<|end|>y", "\u00a0a\u3000b", "\u0661\u0662\u00bd", "!!?\n\n a", "a\tb\x0bc", "\U0001f600"),
]


@pytest.mark.parametrize("pre", PRES)
def test_bpe(tmp_path, pre):
    tokenizers = pytest.importorskip("tokenizers", reason=texts.REASON)
    rng = np.random.default_rng(1)
    corpus, lines = made.lines(rng, 600), [*made.lines(rng, 200), *EDGES]
    _, keys = made.trained_bpe(tokenizers, pre, corpus, 1000)
    path = made.write(tmp_path / "x.gguf", keys)
    if pre == "qwen2":  # wants the normal form C
        said = [command("tokens", path, line, code=2) for line in ("e\u0301", "\u0958", "\u1161")]
        assert all("normal form C" in text and "give --ids" in text for text in said)
        lines = [line for line in lines if not any(map(unstable, line))]
        assert len(lines) > 150
    judge = Text(vkattn.GGUF(path))
    for line, found in zip(lines, tokens(path, lines)):
        assert found == judge.encode(line), line


@pytest.mark.parametrize("change", [{}, {"add_space_prefix": False}, {"add_eos_token": True}])
def test_pieces(tmp_path, change):
    pytest.importorskip("tokenizers", reason=texts.REASON)
    keys = {**texts.with_bytes(texts.OF_MODEL["llama"]), **change}
    path = made.write(tmp_path / "x.gguf", keys)
    judge = Text(vkattn.GGUF(path))
    lines = [*made.lines(np.random.default_rng(2), 60), *EDGES]
    for line, found in zip(lines, tokens(path, lines)):
        assert found == judge.encode(line), line


def test_refused(tmp_path):
    keys = STORED[0]["keys"]
    for change, said in (
        ({"model": "bert"}, "tokenizer.ggml.model: expected gpt2 or llama; give --ids"),
        ({"pre": "viking"}, "tokenizer.ggml.pre: expected gpt-2"),
        ({"tokens": ["a", "a"]}, "tokenizer.ggml.tokens: a token occurs twice"),
        ({"merges": ["a b c"]}, "merges: one is no pair"),
        ({"merges": ["zebra b"]}, "merges: one is of tokens that are not there"),
        ({"token_type": [1, 2]}, "token_type: expected a type"),
        ({"add_bos_token": True}, "expected tokenizer.ggml.bos_token_id"),
        ({"add_space_prefix": True}, "add_space_prefix is not supported"),
    ):
        path = made.write(tmp_path / "x.gguf", {**keys, **change})
        assert said in command("tokens", path, "a", code=2)
    path = made.write(tmp_path / "x.gguf", keys)
    assert "not UTF-8 at byte 1" in command("tokens", path, os.fsdecode(b"a\xff"), code=2)
    assert "expected a GGUF file and texts" in command("tokens", path, code=2)
