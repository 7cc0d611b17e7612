"""Vocabularies for test_models_gguf_text.py: trained on generated text in many scripts, written as
GGUF, and what the tokenizers that they were trained with make of lines.

    python texts_gguf.py --write

keeps small ones in texts_gguf.json, and one vocabulary with every split of byte-level BPE in
texts_splits.json; it needs the packages tokenizers, sentencepiece, protobuf.
"""

import io
import json
import os
import struct
import sys

import numpy as np
from test_gguf import build, key
from test_models_gguf import ARRAY, F32, number, texts

BOOL, U8, I32 = 7, 0, 5
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
HERE = os.path.dirname(os.path.abspath(__file__))
STORED, SPLITS = (os.path.join(HERE, f"texts_{name}.json") for name in ("gguf", "splits"))

# First and last letters of 20 scripts.
SCRIPTS = {
    "latin": "az",
    "capitals": "AZ",
    "accents": "\u00e0\u00f6",
    "greek": "\u03b1\u03c9",
    "cyrillic": "\u0430\u044f",
    "armenian": "\u0561\u0586",
    "hebrew": "\u05d0\u05ea",
    "arabic": "\u0627\u064a",
    "devanagari": "\u0905\u094d",
    "bengali": "\u0995\u09b9",
    "tamil": "\u0b95\u0bb9",
    "thai": "\u0e01\u0e3a",
    "tibetan": "\u0f40\u0f69",
    "amharic": "\u1200\u1240",
    "hiragana": "\u3041\u3090",
    "katakana": "\u30a1\u30f0",
    "han": "\u4e00\u4e60",
    "hangul": "\uac00\uac60",
    "symbols": "\u2190\u21ff",
    "emoji": "\U0001f600\U0001f640",
}
MARKS = [*("", "", "", ",", ".", "!", "'s", "'LL", " - ", "...", "(x)", "\t", "  ")]
MARKS += ["\n", "\r\n", "$", "/"]
DIGITS = ["7", "42", "1234567", "\u0663\u0664\u0665", "\u00bd", "3.14", "2026-11-27", "10\u00b2"]


def lines(rng, count, scripts=SCRIPTS):
    """Words that come again and again, with digits, marks and spaces; a script a line."""
    names = list(scripts)
    words = {
        name: [
            "".join(chr(c) for c in rng.integers(*map(ord, scripts[name]), rng.integers(1, 8)))
            for _ in range(60)
        ]
        for name in names
    }
    made = []
    for i in range(count):
        name, line = names[i % len(names)], []
        for _ in range(rng.integers(3, 12)):
            word = str(rng.choice(DIGITS if rng.random() < 0.15 else words[name]))
            line.append(word.capitalize() if rng.random() < 0.2 else word)
            line.append(str(rng.choice(MARKS)) + " " * int(rng.choice([0, 1, 1, 1, 2, 5])))
        made.append("".join(line))
    return made


def write(path, keys):
    """A file without tensors. keys: values below tokenizer.ggml, lists of str, of whole numbers
    (i32) or of floats, bytes."""
    entries = []
    for name, value in keys.items():
        name = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            entries.append(key(name, BOOL, bytes([value])))
        elif isinstance(value, bytes):
            entries.append(key(name, ARRAY, struct.pack("<IQ", U8, len(value)) + value))
        elif not isinstance(value, list):
            entries.append(number(name, value))
        elif isinstance(value[0], str):
            entries.append(texts(name, value))
        else:
            code, kind = ("f", F32) if isinstance(value[0], float) else ("i", I32)
            head = struct.pack("<IQ", kind, len(value))
            entries.append(key(name, ARRAY, head + struct.pack(f"<{len(value)}{code}", *value)))
    path.write_bytes(build(keys=entries))
    return path


# ---- What tokenizers are trained with -----------------------------------------------------------

_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_PIECE = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCT = r" ?[^\s\p{L}\p{N}]+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UP, _LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = [rf"[^\r\n\p{{L}}\p{{N}}]?{_UP}*{_LOW}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UP}+{_LOW}*"]


def _pres(tokenizers, name):
    """The steps of the pre-tokenizer as the models' own files have it."""
    pres = tokenizers.pre_tokenizers

    def split(*patterns):
        return [pres.Split(tokenizers.Regex(p), "isolated") for p in patterns]

    gpt2 = pres.ByteLevel(add_prefix_space=False)
    as_bytes = pres.ByteLevel(add_prefix_space=False, use_regex=False)
    threes = _TAIL.join((rf"{_SHORT}|{_PIECE}|\p{{N}}{{1,3}}|{_PUNCT}[\r\n]*", ""))
    ones = _TAIL.join((rf"{_SHORT}|{_PIECE}|\p{{N}}|{_PUNCT}[\r\n]*", ""))
    rest = rf"{_PUNCT}[\r\n/]*{_TAIL}"
    omni = "|".join((*(f"{c}{_SHORT}?" for c in _CASES), r"\p{N}{1,3}", rest))
    tekken = "|".join((*_CASES, r"\p{N}", rest))
    cased = r"\s?[[\p{Lu}\p{Ll}\p{Lt}]&&[^\u0560-\u0588\u10d0-\u10ff]]+"  # but of two scripts
    marked = r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    cjk = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
    v3 = (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*" + _TAIL
    )
    return {
        "gpt-2": [gpt2],
        "olmo": [gpt2],
        "smollm": [pres.Digits(individual_digits=True), gpt2],
        "starcoder": [pres.Digits(individual_digits=True), gpt2],
        "command-r": [pres.Digits(individual_digits=True), gpt2],
        "llama-bpe": [*split(threes), as_bytes],
        "dbrx": [*split(threes), as_bytes],
        "qwen35": [*split(_SHORT + marked + _TAIL), as_bytes],
        "bloom": [
            *split(r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"),
            as_bytes,
        ],
        "deepseek-coder": [
            *split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", cjk),
            pres.Digits(individual_digits=True),
            as_bytes,
        ],
        "qwen2": [*split(ones), as_bytes],
        "gpt-4o": [*split(omni), as_bytes],
        "tekken": [*split(tekken), as_bytes],
        "deepseek-v3": [
            *split(r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", v3),
            as_bytes,
        ],
        "deepseek-llm": [
            *split("[\r\n]", cased),
            *split(r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
            *split(r"\s+$", cjk),
            pres.Digits(individual_digits=True),
            as_bytes,
        ],
        "default": [
            *split(r"[\p{P}\$\+<=>\^~\|]+"),
            *split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            *split(r"\p{N}+", "[0-9][0-9][0-9]"),
            as_bytes,
        ],
    }[name]


SPECIAL = ["<|begin|>", "<|end|>"]
PRES = ["gpt-2", "smollm", "starcoder", "llama-bpe", "qwen2", "gpt-4o", "tekken", "default"]
PRES += ["deepseek-v3", "deepseek-llm", "deepseek-coder", "dbrx", "bloom", "qwen35", "olmo"]
PRES += ["command-r"]
COMPOSED = ("qwen2", "qwen35", "olmo", "command-r")  # of normal form C
WHOLE = ("llama-bpe", "tekken")  # whose words that are tokens are not merged


def trained_bpe(tokenizers, pre, corpus, size):
    """A byte-level BPE, and the keys of its GGUF file."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=pre in WHOLE))
    if pre in COMPOSED:
        made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(_pres(tokenizers, pre))
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(
        corpus,
        tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=SPECIAL,
            show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    types = [CONTROL if t in SPECIAL else NORMAL for t in tokens]
    keys = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types}
    keys["merges"] = [" ".join(pair) for pair in model["merges"]]
    return made, {**keys, "add_bos_token": False}


def trained_wordpiece(tokenizers, lowercase, corpus, size):
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        corpus,
        tokenizers.trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=special, show_progress=False
        ),
    )
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = tokenizers.decoders.WordPiece()
    vocab = made.get_vocab()
    plain = sorted(vocab, key=vocab.get)
    tokens = [  # GGUF marks the begin of a word
        t if t in special else t[2:] if t.startswith("##") else "\u2581" + t for t in plain
    ]
    types = [CONTROL if t in special else NORMAL for t in plain]
    keys = {"model": "bert", "tokens": tokens, "token_type": types, "unknown_token_id": 1}
    return made, {**keys, "cls_token_id": 2, "seperator_token_id": 3}


def trained_sentencepiece(sentencepiece, kind, corpus, size, **options):
    """kind: "bpe" or "unigram"; the processor, and the keys."""
    from sentencepiece import sentencepiece_model_pb2

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        vocab_size=size,
        model_type=kind,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    keys = {
        "model": "llama" if kind == "bpe" else "t5",
        "tokens": [piece.piece for piece in proto.pieces],
        "scores": [float(piece.score) for piece in proto.pieces],
        "token_type": [int(piece.type) for piece in proto.pieces],
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_space_prefix": bool(proto.normalizer_spec.add_dummy_prefix),
    }
    if kind == "unigram":
        keys["precompiled_charsmap"] = proto.normalizer_spec.precompiled_charsmap
        keys["remove_extra_whitespaces"] = proto.normalizer_spec.remove_extra_whitespaces
    return processor, keys


def twice(rank):
    """Byte-level BPE of which a merge is listed again behind `rank` others."""
    merges = ["a b", "b c", "c d", "d e"]
    tokens = [*"abcde", "ab", "bc", "cd", "de"]
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": [1] * len(tokens)}
    return {**keys, "merges": [*merges[:rank], merges[0], *merges[rank:]]}


# Types of pieces of unigram: unknown, control, normal, user's, unused.
OF_KINDS = [
    *(("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("\u2581", -3.0, 1), ("a", -2.0, 1)),
    *(("b", -2.0, 1), ("ab", -1.0, 5), ("ba", -3.5, 1), ("c", -20.0, 5), ("uv", -30.0, 4)),
    *(("ax", -9.0, 1), ("xa", -8.0, 1), *((x, -4.0, 1) for x in "<unk>"), ("acb", -0.5, 5)),
]


def pieces_of_kinds():
    tokens, scores, types = map(list, zip(*OF_KINDS))
    keys = {"model": "t5", "tokens": tokens, "scores": scores, "token_type": types}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, "add_eos_token": False}
    return {**keys, **ends}


# What SentencePiece makes of texts by them (test_pieces_of_kinds).
IDS_OF_KINDS = [
    *(("ab", [3, 4, 5]), ("c", [3, 0]), ("acb", [3, 4, 0, 5]), ("xx", [3, 0]), ("axa", [3, 4, 11])),
    *(("<unk>", [3, 12, 13, 14, 15, 16]), ("a<unk>b", [3, 4, 12, 13, 14, 15, 16, 5])),
    *(("xaxb", [3, 11, 0, 5]), ("a xb", [3, 4, 3, 0, 5]), ("bab a", [3, 7, 5, 3, 4])),
]

LLAMA = {
    "byte_fallback": True,
    "split_digits": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
}


# Where splits differ: digits, cases, marks, spaces at the end, before and behind newlines, CJK.
SHOWN = [
    *("Don't DON'T x'ſ 12345678 \u0661\u0662\u00bd 10\u00b2", "aB ABc ABC HelloWorld \u01c5x \u02b0A"),
    *("  a   b  \n\n  c\t\n ", "x \r\n!!?\r\n/ //\n (a) $5 `b`", "end  "),
    *("a\u0903b\u20dd \u20ddc .\u0903", "\u4e2d\u6587ab\u3042\u30a2\uac00 \u3002\uff0c#tag .x \u2190\U0001f600"),
    *("\u0561\u0586 \u10d0\u03b1 \u2026a|b\u060cc", "f(x)=a[1]+3.14e10;\u00a0y_z"),
]


def split_cases(tokenizers):
    """A vocabulary whose merges know no words, so that ids show where words end."""
    rng = np.random.default_rng(6)
    corpus = [*lines(rng, 300, {"latin": "az", "capitals": "AZ", "han": SCRIPTS["han"]}), *SHOWN * 40]
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.train_from_iterator(
        corpus,
        tokenizers.trainers.BpeTrainer(
            vocab_size=520,
            show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    model = json.loads(trained.to_str())["model"]
    ids = {}
    for pre in PRES:
        merges = [tuple(pair) for pair in model["merges"]]
        of_pre = tokenizers.models.BPE(model["vocab"], merges, ignore_merges=pre in WHOLE)
        made = tokenizers.Tokenizer(of_pre)
        made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(_pres(tokenizers, pre))
        ids[pre] = [made.encode(line).ids for line in SHOWN]
    keys = {"model": "gpt2", "tokens": sorted(model["vocab"], key=model["vocab"].get)}
    keys |= {"merges": [" ".join(pair) for pair in model["merges"]], "add_bos_token": False}
    return {"keys": keys, "lines": SHOWN, "ids": ids}


def main():
    import sentencepiece
    import tokenizers

    with open(SPLITS, "w", encoding="ascii") as file:
        file.write(json.dumps(split_cases(tokenizers)).replace("]], ", "]],\n") + "\n")
    rng = np.random.default_rng(5)
    some = {name: SCRIPTS[name] for name in ("latin", "greek", "emoji")}
    corpus, shown = lines(rng, 400, some), lines(rng, 12)
    stored = []
    for keys, encode in (
        *(
            (keys, lambda x, made=made: made.encode(x).ids)
            for made, keys in [
                trained_bpe(tokenizers, "llama-bpe", corpus, 300),
                trained_bpe(tokenizers, "deepseek-llm", corpus, 300),
                trained_wordpiece(tokenizers, True, corpus, 200),
            ]
        ),
        *(
            (keys, processor.encode)
            for processor, keys in [
                trained_sentencepiece(sentencepiece, "bpe", corpus, 620, **LLAMA),
                trained_sentencepiece(
                    sentencepiece, "unigram", corpus, 300, normalization_rule_name="identity"
                ),
            ]
        ),
    ):
        keys = {k: list(v) if isinstance(v, bytes) else v for k, v in keys.items()}
        if keys["model"] == "llama":
            keys["add_bos_token"] = False
        cases = [[x, encode(x) + ([2] if keys["model"] == "t5" else [])] for x in shown]
        stored.append({"keys": keys, "lines": cases})
    with open(STORED, "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(x) for x in stored) + "\n]\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    main()
