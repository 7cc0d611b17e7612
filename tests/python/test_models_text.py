"""Texts of whole models: tokens of GGUF files by their types, ids that end a text, and texts of ids
that come one by one."""

import struct

import models_oracle as tiny
import numpy as np
import pytest
from test_gguf import build, key, tensor
from test_models_gguf import ARRAY, gguf_name, keys_of, made, number, permuted, texts

import vkattn
import vkattn.models

REASON = "tokenizers IS NOT INSTALLED: NO TEXT WAS MADE INTO TOKENS"
BOOL, I32 = 7, 5
NORMAL, CONTROL, USER, UNUSED = 1, 3, 4, 5


def byte_tokens():
    """GPT-2's characters of the 256 bytes, in their order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


MORE = ["<end>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|eot_id|>", "th", "\u0120th"]
TYPES = [CONTROL, CONTROL, CONTROL, USER, USER, CONTROL, NORMAL, NORMAL]
TOKENS = [*byte_tokens(), *MORE]
END, IM_START, IM_END, THINK, NO_THINK, EOT, TH = range(256, 263)


@pytest.fixture
def load(device, tmp_path):
    """load(key=value, ..): a tiny model whose tokenizer has these keys besides; None: without it."""
    config, _ = made("llama")
    config["vocab_size"] = len(TOKENS)
    shapes = tiny.llama_shapes(config)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        shapes[name] = (len(TOKENS), tiny.WIDTH)
    tensors = tiny.matrices(np.random.default_rng(3), shapes)

    def make(pre="qwen2", types=(NORMAL,) * 256 + tuple(TYPES), **changes):
        head = "tokenizer.ggml."
        given = {"eos_token_id": END, "bos_token_id": IM_START, **changes}
        keys = [number(*x) for x in keys_of(config, "llama").items() if not x[0].startswith(head)]
        keys += [number(f"{head}model", "gpt2"), number(f"{head}pre", pre)]
        keys.append(texts(f"{head}tokens", TOKENS))
        keys.append(texts(f"{head}merges", ["t h", "\u0120 th"]))
        words = struct.pack(f"<IQ{len(types)}i", I32, len(types), *types)
        keys.append(key(f"{head}token_type", ARRAY, words))
        for name, value in given.items():
            if isinstance(value, bool):
                keys.append(key(head + name, BOOL, bytes([value])))
            elif isinstance(value, list):
                words = struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)
                keys.append(key(head + name, ARRAY, words))
            elif value is not None:
                keys.append(number(head + name, value))
        entries, data = [], b""
        for name, array in tensors.items():
            entries.append(tensor(gguf_name(name), array.shape, 0, len(data)))
            heads = 4 if "q_proj" in name else 2 if "k_proj" in name else 0
            data += (permuted(array, heads) if heads else array).astype("<f4").tobytes()
        path = tmp_path / "text.gguf"
        path.write_bytes(build(entries, keys, data))
        return vkattn.models.load(path, device=device)

    return make


# ---- Tokens -------------------------------------------------------------------------------------


def test_token_types(load):
    pytest.importorskip("tokenizers", reason=REASON)
    for pre in ("gpt-2", "smollm", "qwen2"):
        model = load(pre)
        a, space = ord("a"), 32
        for text, ids in (
            ("<|im_start|>a", [IM_START, a]),
            ("<think>a</think>", [THINK, a, NO_THINK]),
            ("a <think>", [a, space, THINK]),
            ("<think><think>", [THINK] * 2),
            ("th<|im_end|>th", [TH, IM_END, TH]),
            ("<thin", [ord("<"), TH, *b"in"]),
        ):
            assert model.encode(text) == ids, (pre, text)
        # Control tokens are no text; what the user defined is.
        assert model.decode([IM_START, THINK, a, NO_THINK, IM_END]) == "<think>a</think>"
    # Without types, and where a type says so, they are letters.
    plain = load(types=[NORMAL] * len(TOKENS)).encode("<think>")
    assert plain == [ord("<"), TH, *b"ink>"]
    assert load(types=[NORMAL] * 259 + [UNUSED] * 5).encode("<think>") == plain
    for types in ([NORMAL] * 3, [7] * len(TOKENS), [-1] * len(TOKENS)):
        with pytest.raises(vkattn.FileError, match="tokenizer.ggml.token_type: expected 264"):
            load(types=types).encode("a")


def test_ends_of_a_text(load):
    pytest.importorskip("tokenizers", reason=REASON)
    a = ord("a")
    assert load().encode("a") == [a]
    assert load(add_eos_token=True).encode("a") == [a, END]
    assert load(add_bos_token=True).encode("a") == [IM_START, a]
    both = load(add_bos_token=True, add_eos_token=True)
    assert both.encode("a") == [IM_START, a, END] and both.encode("") == [IM_START, END]
    assert load(add_bos_token=False, add_eos_token=False).encode("a") == [a]
    for change, sentence in (
        ({"add_eos_token": True, "eos_token_id": None}, "expected tokenizer.ggml.eos_token_id"),
        ({"add_eos_token": True, "eos_token_id": 264}, "expected tokenizer.ggml.eos_token_id"),
        ({"add_eos_token": 1}, "add_eos_token: expected a bool"),
        ({"add_sep_token": True}, "add_sep_token is not supported"),
        ({"add_space_prefix": True}, "add_space_prefix is not supported"),
    ):
        with pytest.raises(vkattn.VkattnError, match=sentence):
            load(**change).encode("a")
    assert load(add_space_prefix=False).encode("a") == [a]


def test_stop_ids(load):
    """Ids by keys, and control tokens that are known to end a turn."""
    known = (IM_END, EOT)
    assert load().stop_ids == (END, *known)
    assert load(eos_token_id=None).stop_ids == known
    assert load(eot_token_id=THINK).stop_ids == (END, THINK, *known)
    assert load(eom_token_id=EOT, eot_token_id=IM_END).stop_ids == (END, IM_END, EOT)
    assert load(eos_token_id=[END, 5]).stop_ids == (END, 5, *known)
    assert load(types=[NORMAL] * len(TOKENS)).stop_ids == (END,)
    with pytest.raises(vkattn.FileError, match="eot_token_id: expected a whole number"):
        load(eot_token_id="x")


def test_stops(load):
    """Generation ends at each of them."""
    ids = list(load(types=[NORMAL] * len(TOKENS)).generate([1, 2, 3], 6, stop=()))
    for name in ("eos", "eot", "eom"):
        model = load(types=[NORMAL] * len(TOKENS), **{f"{name}_token_id": ids[2]})
        assert list(model.generate([1, 2, 3], 6)) == ids[: ids.index(ids[2])]


# ---- One by one ---------------------------------------------------------------------------------


def of_pieces(tokenizers, kind):
    """A tokenizer of a kind, over letters that its bytes or pieces have."""
    models, decoders = tokenizers.models, tokenizers.decoders
    if kind == "bytes":
        made = tokenizers.Tokenizer(
            models.BPE(vocab={t: i for i, t in enumerate(TOKENS)}, merges=[("t", "h")])
        )
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens(["<end>"])
        return made
    if kind == "words":
        pieces = ["[UNK]", "[CLS]", *"abcdefgh,.!", *(f"##{x}" for x in "abcdefgh"), "do", "n", "'", "t"]
        made = tokenizers.Tokenizer(models.WordPiece({t: i for i, t in enumerate(pieces)}))
        made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        made.add_special_tokens(["[CLS]"])
        return made
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    pieces = [f"<0x{b:02X}>" for b in range(256)]
    for piece in [*pieces, "\u2581", *"thecasdog ", "\u2581t", "he", "\u2581the"]:
        vocab.setdefault(piece, len(vocab))
    merges = [("\u2581", "t"), ("h", "e"), ("\u2581t", "he")]
    made = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>")
    )
    normalizers = tokenizers.normalizers
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(["<s>", "</s>"])
    return made


LETTERS = {
    "bytes": ["the ", " th", "caf\u00e9", "\U0001f600", "\u4f60\u597d", " ", "  ", "\n", "<end>", "\ufffd", "a"],
    "pieces": ["the", " the", " cat", " dog", "\u00e9", "\U0001f600", " ", "  ", "</s>", "a", "\u4f60"],
    "words": ["a", "ab", "abc ", "d, ", "e. ", "do n't ", "f ! ", "[CLS]", " g"],
}


@pytest.mark.parametrize("kind", LETTERS)
def test_stream(tmp_path, rng, kind):
    """The pieces are the text, and each is told as soon as its characters are whole."""
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    from vkattn.models._text import Text, TextStream

    of_pieces(tokenizers, kind).save(str(tmp_path / "tokenizer.json"))
    text = Text(str(tmp_path))
    stream, told = TextStream(text), 0
    for _ in range(300):
        words = "".join(rng.choice(LETTERS[kind], rng.integers(1, 9)))
        ids = text.encode(words)
        pieces = [stream.push(np.int32(i)) for i in ids]
        assert "".join(pieces) + stream.finish() == text.decode(ids), (words, ids)
        told += sum(bool(piece) for piece in pieces)
        assert stream.finish() == "" and not any("\ufffd" in p for p in pieces if "\ufffd" not in words)
    assert told > 300
    with pytest.raises(vkattn.InvalidError, match="token: expected a whole number"):
        stream.push(2.5)


def test_bytes_that_are_no_text(tmp_path):
    """They are told in the end, as replacement characters, and what follows them is not held back."""
    tokenizers = pytest.importorskip("tokenizers", reason=REASON)
    from vkattn.models._text import Text, TextStream

    of_pieces(tokenizers, "bytes").save(str(tmp_path / "tokenizer.json"))
    text = Text(str(tmp_path))
    stream = TextStream(text)
    assert [stream.push(i) for i in (0xC3, 0xC3)] == ["", ""]
    assert stream.push(ord("a")) == "\ufffd\ufffda"
    assert stream.push(0xF0) == "" and stream.finish() == "\ufffd"
    assert stream.push(ord("b")) == "b"


def test_generated(load):
    pytest.importorskip("tokenizers", reason=REASON)
    model = load()
    ids = list(model.generate("the th", 12, stop=()))
    pieces = list(model.stream("the th", 12, stop=()))
    assert "".join(pieces) == model.decode(ids) and all(pieces)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}'])
def test_broken_tokenizer(tmp_path, text):
    """What the package says of a file is a FileError that names it."""
    pytest.importorskip("tokenizers", reason=REASON)
    from vkattn.models._text import Text

    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(vkattn.FileError, match="tokenizer.json: "):
        Text(str(tmp_path)).encode("a")
