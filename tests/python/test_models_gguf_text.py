"""Ids of texts by GGUF files, beside the tokenizers whose vocabularies the files have."""

import json

import numpy as np
import pytest
import texts_gguf as made

import vkattn
from vkattn.models._gguf_text import Vocabulary, _merges_of, _pre_of, _word_of, tokenizer_of_gguf
from vkattn.models._text import Text

REASON = "tokenizers IS NOT INSTALLED: NO TEXT WAS MADE INTO TOKENS"
PIECES = "sentencepiece IS NOT INSTALLED: NO VOCABULARY OF ITS KIND WAS TRAINED"
PROTO = "protobuf IS NOT INSTALLED: SENTENCEPIECE'S SCORES WERE NOT READ"
with open(made.STORED, encoding="ascii") as stored:
    STORED = json.load(stored)
with open(made.SPLITS, encoding="ascii") as stored:
    SPLIT = json.load(stored)
OF_MODEL = {x["keys"]["model"]: x["keys"] for x in STORED}


def text_of(tmp_path, keys, **changes):
    values = {k: v for k, v in {**keys, **changes}.items() if v is not None}
    return Text(vkattn.GGUF(made.write(tmp_path / "x.gguf", with_bytes(values))))


def with_bytes(keys):
    name = "precompiled_charsmap"
    return {k: bytes(v) if k == name and isinstance(v, list) else v for k, v in keys.items()}


@pytest.fixture
def words(request):
    """(corpus, lines, tokens): a tenth of it where nothing else is asked for."""
    full = request.config.getoption("--families")
    rng = np.random.default_rng(1)
    corpus = made.lines(rng, 3000 if full else 600)
    return corpus, made.lines(rng, 2000 if full else 200), 2000


def compare(tmp_path, keys, lines, encode):
    text = text_of(tmp_path, keys)
    assert len(keys["tokens"]) > 1000
    for line in lines:
        assert text.encode(line) == encode(line), line


@pytest.mark.parametrize("pre", made.PRES)
def test_bpe(tmp_path, words, pre):
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    corpus, lines, size = words
    judge, keys = made.trained_bpe(tokenizers, pre, corpus, size)
    compare(tmp_path, keys, lines, lambda x: judge.encode(x).ids)
    text = text_of(tmp_path, keys)
    for line in lines[:40]:
        ids = judge.encode(line).ids
        assert text.decode(ids) == judge.decode(ids)


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece(tmp_path, words, lowercase):
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    corpus, lines, size = words
    judge, keys = made.trained_wordpiece(tokenizers, lowercase, corpus, size)
    compare(tmp_path, keys, lines, lambda x: judge.encode(x).ids)


NO_PREFIX = {"add_dummy_prefix": False}
SPACED = ["", " ", "  ", " a", "  a  b ", "\u2581", "a\u2581", "\u2581 a", " \u2581", "a \u2581 "]
OWN = {"user_defined_symbols": ["<q>", "ab"], "split_digits": False}


@pytest.mark.parametrize("kind, options", [
    ("bpe", made.LLAMA),
    ("bpe", {**made.LLAMA, **NO_PREFIX, **OWN}),
    ("unigram", {}),
    ("unigram", {**NO_PREFIX, "byte_fallback": True}),
    ("unigram", {"remove_extra_whitespaces": False}),
])  # fmt: skip
def test_sentencepiece(tmp_path, words, kind, options):
    pytest.importorskip("tokenizers", reason=REASON)
    pytest.importorskip("google.protobuf", reason=PROTO)
    sentencepiece = pytest.importorskip("sentencepiece", reason=PIECES)
    corpus, lines, size = words
    corpus = [x.replace("\n", "") for x in corpus]
    judge, keys = made.trained_sentencepiece(sentencepiece, kind, corpus, size, **options)
    keys["add_bos_token"] = keys["add_eos_token"] = False
    if kind == "unigram":  # of these two letters the package's normaliser maps the first alone
        lines = [x.replace("\r\n", "\n") for x in lines]
    marked = [*SPACED, *("\u2581" + x + "\u2581" for x in lines[:40])]
    compare(tmp_path, keys, [*lines, *marked], judge.encode)
    text = text_of(tmp_path, keys)
    for line in lines[:40]:
        ids = judge.encode(line)
        if 0 not in ids:
            assert text.decode(ids) == judge.decode(ids)


# Pieces that have parts of a byte's name, and texts that are written like one.
NAMED = [
    *(("<unk>", 0.0, 2), ("\u2581", -3.0, 1), ("\u2581<", -4.0, 1), ("0x", -2.5, 1), ("<0", -3.2, 1)),
    *(("41>", -3.1, 1), ("1><0", -2.0, 1), ("<0x4", -5.5, 1), ("a", -1.0, 1), ("<<", -2.2, 1)),
    *((x, -4.5, 1) for x in "014xE2>"),
]
WRITTEN = [
    *("<0x41>", "a<0x41>", "<0x41><0x42>", "<<0x41>a", "<0x4", "<0x41", "<0x41>>", "<0xe2>", "<0x4G>"),
    *("a<0x0A>", "<", "<<0", "41><0x41>", "a <0x3C> <0x41>\u2581", "\u2581<0x41>  ", " \u2581 "),
]


@pytest.mark.parametrize("more", [[], [("<", -4.5, 1)]])
@pytest.mark.parametrize("bytes_too", [False, True])
@pytest.mark.parametrize("trims", [False, True])
def test_texts_that_are_like_a_byte(tmp_path, more, bytes_too, trims):
    """A text has no piece of a byte, however it is written; spaces at its end are cut off, the marks of
    spaces too."""
    pytest.importorskip("tokenizers", reason=REASON)
    pytest.importorskip("google.protobuf", reason=PROTO)
    sentencepiece = pytest.importorskip("sentencepiece", reason=PIECES)
    from sentencepiece import sentencepiece_model_pb2

    pieces = [*NAMED, *more, *([(f"<0x{i:02X}>", 0.0, 6) for i in range(256)] if bytes_too else [])]
    model = sentencepiece_model_pb2.ModelProto()
    for piece, score, kind in pieces:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = 1  # unigram
    model.trainer_spec.byte_fallback = bytes_too
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.remove_extra_whitespaces = trims
    judge = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    tokens, scores, types = map(list, zip(*pieces))
    keys = {"model": "t5", "tokens": tokens, "scores": scores, "token_type": types}
    keys |= {"add_eos_token": False, "unknown_token_id": 0, "remove_extra_whitespaces": trims}
    text = text_of(tmp_path, keys)
    for line in WRITTEN:
        assert text.encode(line) == judge.encode(line), line
        assert text.encode_pair(line, line)[0] == 2 * judge.encode(line), line


def test_pieces_of_kinds(tmp_path):
    """Texts have no piece that is unused or the unknown one; a decoded text has both."""
    pytest.importorskip("tokenizers", reason=REASON)
    text = text_of(tmp_path, made.pieces_of_kinds())
    for line, ids in made.IDS_OF_KINDS:
        assert text.encode(line) == ids, line
    assert text.decode([3, 6, 8, 0, 4, 9]) == "abc<unk>auv"
    pytest.importorskip("google.protobuf", reason=PROTO)
    sentencepiece = pytest.importorskip("sentencepiece", reason=PIECES)
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    for piece, score, kind in made.OF_KINDS:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = 1  # unigram
    model.normalizer_spec.name = "identity"
    judge = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    for line, ids in made.IDS_OF_KINDS:
        assert judge.encode(line) == ids, line


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_merge_that_is_listed_twice(tmp_path, rank):
    """It has its first rank, as for llama.cpp."""
    pytest.importorskip("tokenizers", reason=REASON)
    text = text_of(tmp_path, made.twice(rank))
    assert text.encode("abcde") == [5, 7, 4] and text.encode("bcd") == [6, 3]


def test_rows_of_letters(tmp_path, rng):
    """Words of one or two letters, in which many pairs want the same ones."""
    pytest.importorskip("tokenizers", reason=REASON)
    pytest.importorskip("google.protobuf", reason=PROTO)
    sentencepiece = pytest.importorskip("sentencepiece", reason=PIECES)
    for pattern in ("ab", "aaaaaaaaab"):
        drawn = rng.choice([*pattern, " "], (900, 60), p=[0.9 / len(pattern)] * len(pattern) + [0.1])
        lines = ["".join(x).strip() for x in drawn]
        judge, keys = made.trained_sentencepiece(sentencepiece, "bpe", lines[:500], 400, **made.LLAMA)
        text = text_of(tmp_path, keys, add_bos_token=False)
        for line in lines[500:]:
            assert text.encode(line) == judge.encode(line), line


@pytest.mark.parametrize("case", STORED, ids=lambda x: x["keys"].get("pre", x["keys"]["model"]))
def test_stored(tmp_path, case):
    """The same, of small vocabularies that need neither trainers nor sentencepiece."""
    pytest.importorskip("tokenizers", reason=REASON)
    text = text_of(tmp_path, case["keys"])
    assert len(case["lines"]) == 12
    for line, ids in case["lines"]:
        assert text.encode(line) == ids, line


@pytest.mark.parametrize("pre", made.PRES)
def test_stored_splits(tmp_path, pre):
    pytest.importorskip("tokenizers", reason=REASON)
    text = text_of(tmp_path, SPLIT["keys"], pre=pre)
    for line, ids in zip(SPLIT["lines"], SPLIT["ids"][pre], strict=True):
        assert text.encode(line) == ids, line


# ---- Without any package ------------------------------------------------------------------------


def test_merges_by_scores(tmp_path):
    """The merges that a file's scores stand for, followed one by one, give SentencePiece's ids."""
    keys = OF_MODEL["llama"]
    vocabulary = Vocabulary(None, vkattn.GGUF(made.write(tmp_path / "x.gguf", keys)))
    ranks = {pair: i for i, pair in enumerate(_merges_of(vocabulary))}
    ids_of = {token: i for i, token in enumerate(keys["tokens"])}
    case = next(x for x in STORED if x["keys"] is keys)
    for line, want in case["lines"]:
        pieces = list("\u2581" + line.replace(" ", "\u2581"))
        while True:
            pairs = [(ranks[p], i) for i, p in enumerate(zip(pieces, pieces[1:])) if p in ranks]
            if not pairs:
                break
            _, i = min(pairs)
            pieces[i : i + 2] = ["".join(pieces[i : i + 2])]
        got = []
        for piece in pieces:
            letters = [ids_of[f"<0x{b:02X}>"] for b in piece.encode()]
            got += [ids_of[piece]] if piece in ids_of else letters
        assert got == want, line


def test_words_of_bert():
    assert [_word_of(x) for x in ("\u2581the", "ing", "[CLS]", "\u2581[", "[")] == [
        *("the", "##ing", "[CLS]", "[", "##["),
    ]


@pytest.mark.parametrize("model, changes, sentence", [
    ("gpt2", {"pre": "no-such"}, "pre 'no-such' is not supported, expected one of default, gpt-2"),
    ("gpt2", {"pre": 3}, "pre 3 is not supported"),
    ("gpt2", {"merges": None}, "expected tokenizer.ggml.tokens and tokenizer.ggml.merges"),
    ("gpt2", {"merges": ["a b c"]}, "a merge is no pair"),
    ("gpt2", {"merges": ["a zq"]}, "merges: 'a zq' is of, or makes, what is no token"),
    ("gpt2", {"tokens": ["a", "a"]}, "a token occurs twice"),
    ("llama", {"model": "rwkv"}, "model 'rwkv' is not supported, expected one of gpt2, llama"),
    ("llama", {"tokens": None}, "expected tokenizer.ggml.tokens"),
    ("llama", {"scores": None}, "tokenizer.ggml.scores: expected [0-9]+ numbers"),
    ("llama", {"scores": [0.5, float("nan")]}, "tokenizer.ggml.scores: expected [0-9]+ numbers"),
    ("llama", {"add_bos_token": 1}, "add_bos_token: expected a bool"),
    ("llama", {"add_bos_token": True, "bos_token_id": 5000}, "expected tokenizer.ggml.bos_tok"),
    ("llama", {"add_space_prefix": 1}, "add_space_prefix: expected a bool"),
    ("llama", {"remove_extra_whitespaces": True}, "remove_extra_whitespaces is not supported"),
    ("bert", {"cls_token_id": 999}, "expected tokenizer.ggml.cls_token_id"),
    ("t5", {"unknown_token_id": 9999}, "expected tokenizer.ggml.unknown_token_id"),
    ("t5", {"precompiled_charsmap": "x"}, "precompiled_charsmap: expected bytes"),
    ("t5", {"precompiled_charsmap": b"\xff" * 9}, "tokenizer.ggml: "),
])  # fmt: skip
def test_refused(tmp_path, model, changes, sentence):
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    keys = {k: v for k, v in {**OF_MODEL[model], **changes}.items() if v is not None}
    if "tokens" in changes:
        keys.pop("token_type")
    file = vkattn.GGUF(made.write(tmp_path / "x.gguf", with_bytes(keys)))
    with pytest.raises(vkattn.VkattnError, match=sentence):
        tokenizer_of_gguf(tokenizers, file)


def test_unknown_pre_without_a_package(tmp_path):
    keys = {**OF_MODEL["gpt2"], "pre": "no-such"}
    file = vkattn.GGUF(made.write(tmp_path / "x.gguf", keys))
    with pytest.raises(vkattn.UnsupportedError, match="pre 'no-such' is not supported"):
        _pre_of(Vocabulary(None, file))


def test_long_token(tmp_path):
    """All halves of a token are looked up, which must not take a file's whole size squared."""
    tokens = ["<unk>", "a" * 1025]
    keys = {"model": "llama", "tokens": tokens, "scores": [0.0, 0.0], "token_type": [2, 1]}
    file = vkattn.GGUF(made.write(tmp_path / "x.gguf", keys))
    with pytest.raises(vkattn.UnsupportedError, match="a token of 1025 letters"):
        _merges_of(Vocabulary(None, file))


def test_ends_by_default(tmp_path):
    """What stands before and behind a text where no key says it, and where one does."""
    pytest.importorskip("tokenizers", reason=REASON)
    llama, bert, t5 = OF_MODEL["llama"], OF_MODEL["bert"], OF_MODEL["t5"]
    plain = text_of(tmp_path, llama, add_bos_token=False).encode("a")
    assert text_of(tmp_path, llama, add_bos_token=None).encode("a") == [1, *plain]
    both = text_of(tmp_path, llama, add_bos_token=None, add_eos_token=True)
    assert both.encode("a") == [1, *plain, 2]
    ids = text_of(tmp_path, t5, add_eos_token=None).encode("a")
    assert ids[-1] == 2 and text_of(tmp_path, t5, add_eos_token=False).encode("a") == ids[:-1]
    ids = text_of(tmp_path, bert).encode("a")
    assert (ids[0], ids[-1]) == (2, 3)
    named = {"cls_token_id": None, "seperator_token_id": None}  # found by what they are called
    assert text_of(tmp_path, bert, **named).encode("a") == ids
    bpe = next(x["keys"] for x in STORED if x["keys"].get("pre") == "llama-bpe")
    plain = text_of(tmp_path, bpe).encode("a")
    begins = {"add_bos_token": None, "bos_token_id": 0}
    assert text_of(tmp_path, bpe, **begins).encode("a") == [0, *plain]
    assert text_of(tmp_path, bpe, pre="qwen2", **begins).encode("a") == plain
