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

assert {x["keys"]["model"] for x in texts.STORED} == {"gpt2", "llama", "bert", "t5"}


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


@pytest.mark.parametrize("stored", texts.STORED)
def test_stored(tmp_path, stored):
    path = made.write(tmp_path / "x.gguf", texts.with_bytes(stored["keys"]))
    lines = [line for line, _ in stored["lines"]]
    assert len(lines) > 10
    for (line, ids), found in zip(stored["lines"], tokens(path, lines)):
        assert found == ids, line


def test_splits(tmp_path):
    """Each split as its model's own tokenizer makes it, which no package has to be there for."""
    split = texts.SPLIT
    assert sorted(split["ids"]) == sorted(made.PRES)
    for pre, ids in split["ids"].items():
        path = made.write(tmp_path / "x.gguf", {**split["keys"], "pre": pre})
        assert tokens(path, split["lines"]) == ids, pre
    path = made.write(tmp_path / "x.gguf", split["keys"])
    assert tokens(path, split["lines"]) == split["ids"]["default"]


def test_table_of_splits():
    script = runpy.run_path(str(SCRIPT.with_name("splits.py")))
    with open(script["TABLE"], encoding="ascii") as file:
        assert file.read() == script["table"](), "run tools/dev/splits.py"


PRES = ("llama-bpe", "qwen2", "deepseek-v3")  # --families: all
EDGES = [
    *("", " ", "  ", "\n", " \n \r\n  x", "a  b", "a   ", "'s'S's", "don't DON'T 'ſ", " 12 345678"),
    *("x<|end|>y", "\u00a0a\u3000b", "\u0661\u0662\u00bd", "!!?\n\n a", "a\tb\x0bc", "\U0001f600"),
]


@pytest.mark.parametrize("pre", made.PRES)
def test_bpe(tmp_path, pre, request):
    if pre not in PRES and not request.config.getoption("--families"):
        pytest.skip("NOT ASKED FOR: --families TRIES EACH SPLIT OF THE COMMAND")
    tokenizers = pytest.importorskip("tokenizers", reason=texts.REASON)
    rng = np.random.default_rng(1)
    corpus, lines = made.lines(rng, 600), [*made.lines(rng, 200), *EDGES]
    _, keys = made.trained_bpe(tokenizers, pre, corpus, 1000)
    path = made.write(tmp_path / "x.gguf", keys)
    if pre in made.COMPOSED:
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


def joined(words, rank_of):
    """The least rank, and of equal ones the leftmost, is looked for among all, again and again."""
    words = list(words)
    while True:
        ranks = [rank_of.get(pair, 1 << 30) for pair in zip(words, words[1:])]
        if not ranks or min(ranks) == 1 << 30:
            return words
        at = ranks.index(min(ranks))
        words[at : at + 2] = [words[at] + words[at + 1]]


def test_whole_words_of_any_length(tmp_path):
    """A word that is a token is that one, though no merges make it: llama3 has 128 spaces."""
    known = ["\u0120", "a", "\u0120" * 127, "\u0120" * 128, "a" * 1500]
    keys = {"model": "gpt2", "pre": "llama-bpe", "tokens": known, "token_type": [1] * len(known)}
    keys |= {"merges": ["\u0120 " + "\u0120" * 127], "add_bos_token": False}
    path = made.write(tmp_path / "x.gguf", keys)
    lines = [" " * 126, " " * 127, " " * 128, " " * 129, "a" * 1500, "a" * 1499, "a" * 1501]
    expected = [[0] * 126, [2], [3], [0] * 129, [4], [1] * 1499, [1] * 1501]
    assert tokens(path, lines) == expected


def random_lines(rng, letters):
    sizes = [*range(1, 40), 63, 64, 65, 127, 128, 129, 700]
    lines = ["".join(rng.choice(letters, n)) for n in sizes]
    return [*lines, *(letters[0] * n for n in sizes)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_order_of_merges(tmp_path, seed):
    """Long words of byte-level BPE, merged by random lists of pairs."""
    rng = np.random.default_rng(seed)
    letters = ["a", "b", "c"]
    known, rank_of = list(letters), {}
    while len(rank_of) < 60:
        pair = tuple(map(str, rng.choice(known, 2)))
        if len("".join(pair)) <= 12 and pair not in rank_of:
            rank_of[pair] = len(rank_of)
            known += [] if "".join(pair) in known else ["".join(pair)]
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": known, "token_type": [1] * len(known)}
    path = made.write(tmp_path / "x.gguf", {**keys, "merges": list(map(" ".join, rank_of))})
    lines = random_lines(rng, letters)
    for line, found in zip(lines, tokens(path, lines)):
        assert [known[i] for i in found] == joined(line, rank_of), line


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_merge_that_is_listed_twice(tmp_path, rank):
    path = made.write(tmp_path / "x.gguf", made.twice(rank))
    assert tokens(path, ["abcde", "bcd"]) == [[5, 7, 4], [6, 3]]


def test_longest_whole_token(tmp_path):
    """The longest of those that begin at a letter, of many with the same beginnings."""
    rng = np.random.default_rng(6)
    letters = ["<", "|", "a", "\u00e9", "\U0001f600"]
    whole = {"".join(rng.choice(letters[:-1], rng.integers(1, 6))) for _ in range(60)}
    whole = sorted({*whole, "<" * 90} - {"a", "<"})
    bytes_of = list(map(chr, [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]))
    whole = [x for x in whole if x not in bytes_of]
    rng.shuffle(whole)
    keys = {"model": "gpt2", "pre": "gpt-2", "merges": ["a a"]}
    keys["tokens"] = [*bytes_of, "aa", *whole]
    keys |= {"token_type": [1] * 257 + [3 + int(x) for x in rng.integers(0, 2, len(whole))]}
    path = made.write(tmp_path / "x.gguf", keys)
    lines = ["".join(rng.choice(letters, rng.integers(1, 60))) for _ in range(60)]
    lines += ["<" * n for n in (1, 89, 90, 91, 181)]
    found = tokens(path, lines)
    for line, ids in zip(lines, found):
        own, at = [], 0
        while at < len(line):
            best = max((x for x in whole if line.startswith(x, at)), key=len, default=None)
            own += [] if best is None else [best]
            at += len(best) if best else 1
        assert [keys["tokens"][i] for i in ids if i >= 257] == own, ascii(line)


@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_scores(tmp_path, seed):
    """A whole text of SentencePiece, merged by random scores: each token has one of its own."""
    rng = np.random.default_rng(seed)
    letters = ["a", "b", "\u2581"]
    known = {"".join(rng.choice(letters, rng.integers(2, 6))) for _ in range(60)}
    known = [*letters, *sorted(known)]
    scores = [float(x) for x in rng.permutation(len(known))]
    # Where several pairs make one token, that with the longest begin goes first.
    pairs = [(x[:i], x[i:]) for x in known for i in range(len(x) - 1, 0, -1)]
    pairs = [x for x in pairs if x[0] in known and x[1] in known]
    pairs.sort(key=lambda x: -scores[known.index("".join(x))])
    rank_of = {pair: i for i, pair in enumerate(pairs)}
    keys = {"model": "llama", "tokens": known, "scores": scores, "token_type": [1] * len(known)}
    keys |= {"add_space_prefix": False, "add_bos_token": False}
    path = made.write(tmp_path / "x.gguf", keys)
    lines = random_lines(rng, letters)
    for line, found in zip(lines, tokens(path, lines)):
        assert [known[i] for i in found] == joined(line, rank_of), line


# ---- WordPiece ----------------------------------------------------------------------------------

WORDS = [
    *("Caf\u00e9 na\u00efve \u00c5ngstr\u00f6m", "e\u0301\u0327x \u01c5 \u1e9e \u0130I", "\u4e2d\u6587\uf900a"),
    *("\ud55c\uae00 \uac00\uac01", "a\u200bb\u00adc\x01d\x85e\u2028f", "\u037e\u00bf\u3001x$+<=>`|~^", "x" * 101),
    *("[CLS] a [SEP]b", "\u0958\u09cb\U0001d160", "\ufffd\ue000z", "a\u302eb \u1d15e", "\u03a3\u03a3 \u2126 \u212b"),
]


@pytest.mark.parametrize("lowercase", [True, False])
def test_words(tmp_path, lowercase):
    tokenizers = pytest.importorskip("tokenizers", reason=texts.REASON)
    rng = np.random.default_rng(3)
    corpus, lines = made.lines(rng, 400), [*made.lines(rng, 200), *EDGES, *WORDS]
    _, keys = made.trained_wordpiece(tokenizers, lowercase, corpus + WORDS, 1200)
    keys = keys if lowercase else {**keys, "normalizer.lowercase": False}
    path = made.write(tmp_path / "x.gguf", keys)
    judge = Text(vkattn.GGUF(path))
    for line, found in zip(lines, tokens(path, lines)):
        assert found == judge.encode(line), ascii(line)


def test_every_letter(tmp_path):
    """Small letters and letters without accents, of all code points, as Python has them."""
    points = [c for c in range(0x80, 0x30000) if unicodedata.category(chr(c))[0] in "LMN"]
    points = [c for c in points if not made_of_several(c)]
    folded = {c: "".join(map(small, bare(chr(c)))) for c in points}
    known = sorted({x for text in folded.values() for x in text})
    words = ["[UNK]", "[CLS]", "[SEP]", *(f"\u2581{x}" for x in known), *known]
    kinds = [3, 3, 3] + [1] * (len(words) - 3)
    keys = {"model": "bert", "tokens": words, "token_type": kinds, "normalizer.lowercase": True}
    path = made.write(tmp_path / "x.gguf", keys)
    ids = {word: i for i, word in enumerate(words)}
    lines = [" ".join(map(chr, points[i : i + 3000])) for i in range(0, len(points), 3000)]
    for i, found in enumerate(tokens(path, lines)):
        want = []
        for c in points[3000 * i : 3000 * (i + 1)]:
            want += [ids[x if k else f"\u2581{x}"] for k, x in enumerate(folded[c])]
        assert found == [1, *want, 2]
    assert len(points) > 100000


def small(letter):
    return letter.lower() if len(letter.lower()) == 1 else letter


def bare(letter):
    return [x for x in unicodedata.normalize("NFD", letter) if unicodedata.category(x) != "Mn"]


def made_of_several(c):
    """Whether what is left of a letter has marks whose order another letter may change."""
    return any(unicodedata.combining(x) for x in bare(chr(c)))


def test_marks_that_have_an_order(tmp_path):
    path = made.write(tmp_path / "x.gguf", texts.OF_MODEL["bert"])
    said = command("tokens", path, "a\u302e\u302f", code=2)
    assert "U+302F behind another mark" in said and "give --ids" in said


# ---- Unigram ------------------------------------------------------------------------------------


def table(pairs):
    """SentencePiece's table: a double array over bytes, each state in a row of 256 of its own."""
    units, text, rows = [0] * 512, b"", 1
    units[0] = 256 << 10  # of the first row

    def place(row, byte):
        return row * 256 ^ byte

    states = {b"": 1}
    for source, target in sorted(pairs.items()):
        for n in range(1, len(source) + 1):
            begin = source[:n]
            if begin in states:
                continue
            rows += 1
            units += [0] * 256
            states[begin] = rows
            here = place(states[begin[:-1]], begin[-1])
            units[here] = (place(states[begin[:-1]], begin[-1]) ^ rows * 256) << 10 | begin[-1]
        units[place(states[source[:-1]], source[-1])] |= 0x100
        units[states[source] * 256] = 0x80000000 | len(text)
        text += target + b"\0"
    return np.array([4 * len(units), *units], "<u4").tobytes() + text


def test_unigram(tmp_path):
    """Scores, the table, spaces and bytes, by hand."""
    tokens_of = ["<unk>", "</s>", "\u2581", "a", "b", "ab", "\u2581ab", "fi", "c", "\u2581a", "bc"]
    scores = [0.0, 0.0, -2.0, -3.0, -3.0, -4.0, -5.5, -1.0, -2.5, -4.5, -3.25]
    keys = {"model": "t5", "tokens": tokens_of, "scores": scores, "unknown_token_id": 0}
    keys |= {"token_type": [2, 3] + [1] * 9, "eos_token_id": 1, "remove_extra_whitespaces": True}
    ligature = {"\ufb01".encode(): b"fi", "\u3000".encode(): b" ", b"b\xcc\x81": b"c", b"\t": b""}
    keys["precompiled_charsmap"] = table(ligature)
    path = made.write(tmp_path / "x.gguf", keys)
    for line, words in (
        ("ab", ["\u2581ab"]),
        ("  ab\u3000 abc ", ["\u2581ab", "\u2581a", "bc"]),
        ("\ufb01b\u0301b", ["\u2581", "fi", "c", "b"]),
        ("axya", ["\u2581a", "<unk>", "a"]),
        ("a\tb", ["\u2581ab"]),
        (" \u3000", []),
    ):
        assert tokens(path, [line])[0] == [*map(tokens_of.index, words), 1], ascii(line)
    plain = {**keys, "remove_extra_whitespaces": False, "add_space_prefix": False}
    plain |= {"tokens": [*tokens_of, "<0x78>", "<0x79>"], "scores": [*scores, 0.0, 0.0]}
    plain |= {"token_type": [*keys["token_type"], 6, 6], "add_eos_token": False}
    path = made.write(tmp_path / "x.gguf", plain)
    assert tokens(path, ["  axy"]) == [[2, 9, 11, 12]]
    for change, said in (
        ({"precompiled_charsmap": b"\xff" * 9}, "precompiled_charsmap: expected the table"),
        ({"scores": scores[1:]}, "scores: expected a number for each token"),
        ({"unknown_token_id": 99, "tokens": ["x", *tokens_of[1:]]}, "unknown_token_id: expected"),
    ):
        path = made.write(tmp_path / "x.gguf", {**keys, **change})
        assert said in command("tokens", path, "a", code=2)


def test_pieces_of_kinds(tmp_path):
    path = made.write(tmp_path / "x.gguf", made.pieces_of_kinds())
    lines, ids = zip(*made.IDS_OF_KINDS)
    assert tokens(path, lines) == list(ids)
    keys = made.pieces_of_kinds()
    long = {"tokens": [*keys["tokens"], "a" * 1025], "scores": [*keys["scores"], -1.0]}
    path = made.write(tmp_path / "x.gguf", {**keys, **long, "token_type": [*keys["token_type"], 1]})
    said = command("tokens", path, "a", code=2)
    assert "tokens: one of more than 1024 bytes is not supported; give --ids" in said


def best_tokens(score_of, unknown_score, line):
    """Every way to end at a letter by every token, whatever its length; a letter that no token has
    is None, several such letters are one."""
    score, tokens_to = [np.float32(0)], [[]]
    for end in range(1, len(line) + 1):
        score.append(None)
        tokens_to.append([])
        for begin in range(end):
            word = line[begin:end]
            if word not in score_of and end > begin + 1:
                continue
            whole = score[begin] + np.float32(score_of.get(word, unknown_score))
            if score[end] is None or whole > score[end]:
                score[end], tokens_to[end] = whole, [*tokens_to[begin], word]
    words = [word if word in score_of else None for word in tokens_to[-1]]
    return [x for i, x in enumerate(words) if x or not i or words[i - 1]]


@pytest.mark.parametrize("longest", [1, 3, 40])
def test_unigram_by_every_end(tmp_path, longest):
    """Random tokens up to a length, of letters of one to four bytes, and a longer one of control."""
    rng = np.random.default_rng(longest)
    letters = ["a", "b", "\u00e9", "\u2581", "\U0001f600"]
    words = {"".join(rng.choice(letters, rng.integers(1, longest + 1))) for _ in range(60)}
    words = sorted({*words, "\U0001f600" * longest} - {"b"})
    scores = [float(np.float32(x)) for x in rng.uniform(-9, -1, len(words))]
    keys = {"model": "t5", "tokens": ["<unk>", "<control, the longest>" * 9, *words]}
    keys |= {"scores": [0.0, 0.0, *scores], "token_type": [2, 3] + [1] * len(words)}
    keys |= {"unknown_token_id": 0, "add_space_prefix": False, "add_eos_token": False}
    path = made.write(tmp_path / "x.gguf", keys)
    score_of, id_of = dict(zip(words, scores)), {None: 0}
    id_of |= {word: i + 2 for i, word in enumerate(words)}
    lines = ["".join(rng.choice(letters, rng.integers(1, 120))) for _ in range(60)]
    lines += ["\U0001f600" * n for n in (longest, longest + 1, 2 * longest)]
    for line, found in zip(lines, tokens(path, lines)):
        expected = best_tokens(score_of, min(scores) - 10, line)
        assert found == [id_of[word] for word in expected], ascii(line)


@pytest.mark.parametrize("options", [{}, {"add_dummy_prefix": False, "byte_fallback": True}])
def test_unigram_beside_sentencepiece(tmp_path, options):
    pytest.importorskip("google.protobuf", reason=texts.PROTO)
    sentencepiece = pytest.importorskip("sentencepiece", reason=texts.PIECES)
    rng = np.random.default_rng(4)
    corpus, lines = made.lines(rng, 600), [*made.lines(rng, 400), *WORDS]
    corpus = [x.replace("\n", "") for x in corpus]
    judge, keys = made.trained_sentencepiece(sentencepiece, "unigram", corpus, 2000, **options)
    keys["add_eos_token"] = False
    assert len(keys["precompiled_charsmap"]) > 100000
    path = made.write(tmp_path / "x.gguf", keys)
    for line, found in zip(lines, tokens(path, lines)):
        assert found == judge.encode(line), ascii(line)


def test_refused(tmp_path):
    keys = texts.STORED[0]["keys"]
    for change, said in (
        ({"model": "rwkv"}, "tokenizer.ggml.model: expected gpt2, llama, bert or t5; give --ids"),
        ({"pre": "viking"}, 'pre: "viking" is not supported, docs/models.md lists'),
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
