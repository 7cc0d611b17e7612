"""Tokenizers of GGUF files, made for the package tokenizers: `tokenizer.ggml.model` says of which
kind, and for byte-level BPE `tokenizer.ggml.pre` how a text is split before it."""

from __future__ import annotations

import re
from typing import Any, Callable, NamedTuple

import numpy as np

from .._config import shown
from .._errors import FileError, UnsupportedError
from .._gguf import GGUF

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of tokens
SPACE = "\u2581"  # of SentencePiece, and the begin of a word in WordPiece as GGUF has it
MOST_LETTERS = 1024  # of a SentencePiece token, whose halves are all looked up

# ---- Splits of byte-level BPE -------------------------------------------------------------------

_GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_WORDS = rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_TAIL}"
_MARKED = rf"{_ENDINGS}|{_BEFORE}[\p{{L}}\p{{M}}]+|%s| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{_TAIL}"
_OTHERS = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_TAIL}"
# Letters with a case, as Unicode had them when DeepSeek chose them.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


class Pre(NamedTuple):
    """How a text becomes words. Each split cuts the pieces of the one before."""

    splits: tuple[str, ...]
    nfc: bool = False
    whole_words: bool = False  # a word that is a token is that token, whatever the merges
    add_bos: bool = False  # where no key says it


_SINGLE_DIGITS = Pre((r"\p{N}", _GPT2))
_THREE_DIGITS = Pre((_WORDS % r"\p{N}{1,3}",))
_LLAMA3 = _THREE_DIGITS._replace(whole_words=True, add_bos=True)
_QWEN2 = Pre((_WORDS % r"\p{N}",), nfc=True)
PRES: dict[str, Pre] = {
    "default": Pre((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9]{3}")),
    **dict.fromkeys(("gpt-2", "phi-2"), Pre((_GPT2,))),
    **dict.fromkeys(("mpt", "olmo"), Pre((_GPT2,), nfc=True)),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _SINGLE_DIGITS),
    "command-r": _SINGLE_DIGITS._replace(nfc=True),
    "dbrx": _THREE_DIGITS,
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "qwen35": Pre((_MARKED % r"\p{N}",), nfc=True),
    "bloom": Pre((" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",)),
    "deepseek-coder": Pre(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"),
    ),
    "deepseek-llm": Pre(
        (
            r"[\r\n]",
            rf"\s?[{_CASED}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
            r"\p{N}",
        ),
    ),
    "deepseek-v3": Pre(
        (
            r"\p{N}{1,3}",
            "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + _TAIL,
        ),
    ),
    **dict.fromkeys(
        ("gpt-4o", "llama4"),
        Pre(
            (
                rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?"
                rf"|\p{{N}}{{1,3}}|{_OTHERS}",
            ),
        ),
    ),
    "tekken": Pre(
        (rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}|{_OTHERS}",),
        whole_words=True,
        add_bos=True,
    ),
}


# ---- What a file says ---------------------------------------------------------------------------


class Vocabulary:
    """The keys below tokenizer.ggml of a file, checked as they are asked for."""

    def __init__(self, tokenizers: Any, file: GGUF) -> None:
        self.tokenizers = tokenizers
        self.file = file
        tokens = self.get("tokens")
        if not isinstance(tokens, list):
            raise FileError(f"{file.path}: expected tokenizer.ggml.tokens")
        self.tokens: list[str] = tokens
        if len(set(tokens)) != len(tokens):
            raise FileError(f"{file.path}: tokenizer.ggml: a token occurs twice")
        self.types = token_types(file, len(tokens))

    def get(self, key: str) -> Any:
        return self.file.metadata.get(f"tokenizer.ggml.{key}")

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise FileError(f"{self.file.path}: tokenizer.ggml.{key}: expected a bool")
        return default if value is None else value

    def refuse(self, *keys: str) -> None:
        for key in keys:
            value = self.get(key)
            if value is not None and value is not False:
                raise UnsupportedError(
                    f"{self.file.path}: tokenizer.ggml.{key} is not supported; give ids"
                )

    def number(self, *keys: str, token: str | None = None) -> int:
        """The id that the first of these keys has, or that of a token."""
        for key in keys:
            value = self.get(key)
            if value is not None:
                if type(value) is not int or not 0 <= value < len(self.tokens):
                    break
                return value
        else:
            if token in self.tokens:
                return self.tokens.index(token)
        raise FileError(f"{self.file.path}: expected tokenizer.ggml.{keys[0]}")

    def scores(self) -> list[float]:
        values = self.get("scores")
        numbers = isinstance(values, np.ndarray) and values.dtype.kind == "f"
        if not numbers or len(values) != len(self.tokens) or not np.isfinite(values).all():
            raise FileError(
                f"{self.file.path}: tokenizer.ggml.scores: expected {len(self.tokens)} numbers"
            )
        return [float(x) for x in values]

    def of_type(self, *types: int) -> list[str]:
        return [token for token, own in zip(self.tokens, self.types) if own in types]


def token_types(file: GGUF, count: int) -> list[int]:
    """The type of each token; all are normal where the file does not say it."""
    types = file.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [NORMAL] * count
    numbers = isinstance(types, np.ndarray) and types.dtype.kind in "iu"
    if not numbers or len(types) != count or not all(0 <= x <= BYTE for x in types.tolist()):
        raise FileError(
            f"{file.path}: tokenizer.ggml.token_type: expected {count} numbers from 0 to {BYTE}"
        )
    return [int(x) for x in types]


# ---- Kinds --------------------------------------------------------------------------------------

Kind = Callable[[Vocabulary], Any]


def _bpe(vocabulary: Vocabulary) -> Any:
    """Byte-level BPE."""
    tokenizers, path = vocabulary.tokenizers, vocabulary.file.path
    vocabulary.refuse("add_space_prefix")
    pre, merges = _pre_of(vocabulary), vocabulary.get("merges")
    if not isinstance(merges, list):
        raise FileError(f"{path}: expected tokenizer.ggml.tokens and tokenizer.ggml.merges")
    # One that is listed twice has its first rank, as for llama.cpp.
    pairs = list(dict.fromkeys(tuple(merge.split(" ")) for merge in merges))
    if any(len(pair) != 2 for pair in pairs):
        raise FileError(f"{path}: tokenizer.ggml: a merge is no pair")
    vocab = {t: i for i, t in enumerate(vocabulary.tokens)}
    for first, second in pairs:  # the package panics at some of them
        if first not in vocab or second not in vocab or first + second not in vocab:
            raise FileError(
                f"{path}: tokenizer.ggml.merges: {shown(f'{first} {second}')} is of, or makes, what"
                " is no token"
            )
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab=vocab,
            merges=pairs,
            ignore_merges=pre.whole_words,
        )
    )
    if pre.nfc:
        made.normalizer = tokenizers.normalizers.NFC()
    pres = tokenizers.pre_tokenizers
    splits = [pres.Split(tokenizers.Regex(x), "isolated") for x in pre.splits]
    as_bytes = pres.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pres.Sequence([*splits, as_bytes])
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def _pre_of(vocabulary: Vocabulary) -> Pre:
    pre = vocabulary.get("pre")
    if pre is None:
        pre = "default"
    known = PRES.get(pre) if isinstance(pre, str) else None
    if known is None:
        raise UnsupportedError(
            f"{vocabulary.file.path}: tokenizer.ggml.pre {shown(pre)} is not supported, expected"
            f" one of {', '.join(PRES)}; give ids"
        )
    return known


def _sentencepiece(vocabulary: Vocabulary) -> Any:
    """BPE of SentencePiece: the pair whose token has the highest score is merged first."""
    tokenizers = vocabulary.tokenizers
    vocabulary.refuse("remove_extra_whitespaces", "precompiled_charsmap")
    bytes_too = bool(vocabulary.of_type(BYTE))
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={t: i for i, t in enumerate(vocabulary.tokens)},
            merges=_merges_of(vocabulary),
            byte_fallback=bytes_too,
            unk_token=next(iter(vocabulary.of_type(UNKNOWN)), None),
            fuse_unk=True,
        )
    )
    prefix = vocabulary.flag("add_space_prefix", True)
    normalizers = tokenizers.normalizers
    before = [normalizers.Prepend(SPACE)] if prefix else []
    made.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", SPACE)])
    made.decoder = _decoder_of(tokenizers, prefix)
    return made


def _decoder_of(tokenizers: Any, prefix: bool) -> Any:
    """SentencePiece's. prefix: the space before the first word is left out."""
    decoders = tokenizers.decoders
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if prefix else [])])


def _merges_of(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every pair of tokens that is a token, by its score. Pairs that make the same token hardly ever
    compete for the same letters: the longest begin comes first."""
    usable = {
        token: score
        for token, score, own in zip(vocabulary.tokens, vocabulary.scores(), vocabulary.types)
        if own in (NORMAL, USER_DEFINED, UNUSED)
    }
    ranked = []
    for token, score in usable.items():
        if len(token) > MOST_LETTERS:
            raise UnsupportedError(
                f"{vocabulary.file.path}: tokenizer.ggml: a token of {len(token)} letters is not"
                " supported; give ids"
            )
        for i in range(1, len(token)):
            if token[:i] in usable and token[i:] in usable:
                ranked.append((-score, -i, token[:i], token[i:]))
    return [(first, second) for _, _, first, second in sorted(ranked)]


def _wordpiece(vocabulary: Vocabulary) -> Any:
    """BERT's. GGUF marks the begin of a word, where BERT's files mark what goes on."""
    tokenizers = vocabulary.tokenizers
    vocabulary.refuse("add_space_prefix")
    vocab = {_word_of(t): i for i, t in enumerate(vocabulary.tokens)}
    unknown = vocabulary.tokens[vocabulary.number("unknown_token_id", token="[UNK]")]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=_word_of(unknown)))
    cased = any(t != t.lower() for t in vocabulary.tokens if t.startswith(SPACE))
    lowercase = vocabulary.flag("normalizer.lowercase", not cased)
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    return made


def _word_of(token: str) -> str:
    if token.startswith(SPACE):
        return token[1:]
    return token if token.startswith("[") and token.endswith("]") else f"##{token}"


def _unigram(vocabulary: Vocabulary) -> Any:
    """SentencePiece's unigram, of T5 and XLM-R."""
    tokenizers, normalizers = vocabulary.tokenizers, vocabulary.tokenizers.normalizers
    table = vocabulary.get("precompiled_charsmap")
    steps = []
    if table is not None:
        if not isinstance(table, np.ndarray) or table.dtype.itemsize != 1:
            raise FileError(
                f"{vocabulary.file.path}: tokenizer.ggml.precompiled_charsmap: expected bytes"
            )
        steps = [normalizers.Precompiled(table.tobytes())] if len(table) else []
    if vocabulary.flag("remove_extra_whitespaces", False):
        for found, put in ((r"\A +", ""), (rf"[ {SPACE}]+\z", ""), (" {2,}", " ")):
            steps.append(normalizers.Replace(tokenizers.Regex(found), put))
    made = tokenizers.Tokenizer(
        tokenizers.models.Unigram(
            [*_unigram_pieces(vocabulary), *((piece, score) for piece, score, _ in _twins(vocabulary))],
            unk_id=vocabulary.number("unknown_token_id", token="<unk>"),
            byte_fallback=bool(vocabulary.of_type(BYTE)),
        )
    )
    if vocabulary.of_type(BYTE):
        steps.append(normalizers.Replace(tokenizers.Regex(f"<(?={_BYTE})"), _TWIN))
    prefix = vocabulary.flag("add_space_prefix", True)
    hidden = tokenizers.decoders.Replace(tokenizers.Regex(rf"\A{_HIDDEN}"), "")
    steps += [normalizers.Prepend(SPACE)] if prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    made.decoder = tokenizers.decoders.Sequence([hidden, _decoder_of(tokenizers, prefix)])
    return made


_HIDDEN = " "  # before pieces that no text has: a text's spaces are SPACE when they are looked for


def _unigram_pieces(vocabulary: Vocabulary) -> list[tuple[str, float]]:
    """Pieces and scores. Texts have no unused pieces, nor the unknown one, as for SentencePiece; the
    lowest score, below which the package puts a letter that no piece has, is that of a normal one."""
    scores = vocabulary.scores()
    normal = [s for s, own in zip(scores, vocabulary.types) if own == NORMAL]
    least = min(normal, default=0.0)
    return [
        (_HIDDEN + token if own in (UNUSED, UNKNOWN) else token, max(score, least))
        for token, score, own in zip(vocabulary.tokens, scores, vocabulary.types)
    ]


_TWIN = "\ufdd0"  # in place of < where a text is like a byte's piece, which is of no text
_BYTE = "0x[0-9A-F]{2}>"  # behind <


def _twins(vocabulary: Vocabulary) -> list[tuple[str, float, int]]:
    """Pieces with _TWIN, their scores and the ids of those that they stand for. The package finds a
    byte's piece in a text that is written so, as scores of 0 are the highest."""
    if not vocabulary.of_type(BYTE):
        return []
    least = min(score for _, score in _unigram_pieces(vocabulary))
    made = []
    for i, (token, score, own) in enumerate(
        zip(vocabulary.tokens, vocabulary.scores(), vocabulary.types)
    ):
        if own == NORMAL and "<" in token:
            made += [(piece, score, i) for piece in _twins_of(token)]
        elif token == "<0x3C>" and "<" not in vocabulary.tokens:  # a letter that no piece has
            made.append((_TWIN, least, i))
    return made


def _twins_of(token: str) -> list[str]:
    """Where < stands before all of a byte's name it is _TWIN; before a part that ends the piece it may
    be."""
    whole = re.sub(f"<(?={_BYTE})", _TWIN, token)
    part = re.sub(r"<(?=(0(x([0-9A-F]([0-9A-F])?)?)?)?\Z)", _TWIN, whole)
    return [piece for piece in dict.fromkeys((whole, part)) if piece != token]


def own_ids(file: GGUF) -> dict[int, int]:
    """Ids that the tokenizer of a file gives beyond its own: what they stand for."""
    if file.metadata.get("tokenizer.ggml.model") != "t5":
        return {}
    vocabulary = Vocabulary(None, file)
    return {len(vocabulary.tokens) + n: i for n, (_, _, i) in enumerate(_twins(vocabulary))}


# The kinds, and which ids stand before and behind a text where no key says it.
KINDS: dict[str, tuple[Kind, bool, bool]] = {
    "gpt2": (_bpe, False, False),
    "llama": (_sentencepiece, True, False),
    "bert": (_wordpiece, True, True),
    "t5": (_unigram, False, True),
}


def of_package(error: BaseException, where: str) -> BaseException:
    """What the package says of a file in a sentence; its panics are no Exception."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return FileError(f"{where}: {error}")
    return error


def tokenizer_of_gguf(tokenizers: Any, file: GGUF) -> Any:
    model = file.metadata.get("tokenizer.ggml.model")
    if not isinstance(model, str) or model not in KINDS:
        raise UnsupportedError(
            f"{file.path}: tokenizer.ggml.model {shown(model)} is not supported, expected one of"
            f" {', '.join(KINDS)}; give ids"
        )
    vocabulary = Vocabulary(tokenizers, file)
    make, add_bos, add_eos = KINDS[model]
    if model == "gpt2":
        add_bos = _pre_of(vocabulary).add_bos
    try:
        made = make(vocabulary)
        _add_whole(vocabulary, made, _word_of if model == "bert" else str)
        _set_ends(vocabulary, made, model == "bert", add_bos, add_eos)
    except (FileError, UnsupportedError):
        raise
    except BaseException as error:
        raise of_package(error, f"{file.path}: tokenizer.ggml") from error
    return made


def _add_whole(vocabulary: Vocabulary, made: Any, written: Callable[[str], str]) -> None:
    """Tokens that are one id wherever they stand. A text that is decoded has the user's."""
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [
            vocabulary.tokenizers.AddedToken(written(t), special=special, normalized=False)
            for t in vocabulary.of_type(kind)
            if t
        ]
        (made.add_special_tokens if special else made.add_tokens)(added)


def _set_ends(vocabulary: Vocabulary, made: Any, bert: bool, add_bos: bool, add_eos: bool) -> None:
    """The ids before and behind each text."""
    template, special = ["$A"], []
    if bert:
        ends: dict[str, Callable[[], int]] = {
            "bos": lambda: vocabulary.number("cls_token_id", "bos_token_id", token="[CLS]"),
            "sep": lambda: vocabulary.number("seperator_token_id", "eos_token_id", token="[SEP]"),
        }
    else:
        vocabulary.refuse("add_sep_token")
        ends = {
            "bos": lambda: vocabulary.number("bos_token_id"),
            "eos": lambda: vocabulary.number("eos_token_id"),
        }
    for (name, number), default in zip(ends.items(), (add_bos, add_eos)):
        if vocabulary.flag(f"add_{name}_token", default):
            found = number()
            template.insert(0 if name == "bos" else len(template), f"own_{name}")
            token = vocabulary.tokens[found]
            special.append({"id": f"own_{name}", "ids": [found], "tokens": [token]})
    if special:
        made.post_processor = vocabulary.tokenizers.processors.TemplateProcessing(
            single=template, special_tokens=special
        )
