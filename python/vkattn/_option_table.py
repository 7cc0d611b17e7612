"""The options of attention, in one table: the docstrings of all that takes them are made of it."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, Iterable, NamedTuple, TypeVar

T = TypeVar("T")


class Option(NamedTuple):
    """What a value has to be, and what it does."""

    kind: str
    says: str


OPTIONS = {
    "mask": Option(
        "array or Tensor, bool (True: visible) or float (added)",
        "1 to 4 axes that broadcast from the right against [batch][n_head][n_q][n_kv]: two axes are"
        " always [n_q][n_kv]. n_kv is the capacity of a cache. An array may be"
        " [batch * n_head][n_q][n_kv] as well, float64, which becomes float32, or int64 of 0"
        " (hidden) and 1 (visible).",
    ),
    "key_padding_mask": Option(
        "array, bool (True: hidden) or float (added)",
        "PyTorch's: [batch][n_kv] whatever the layout. It is joined to mask on the host, so neither"
        " can be a Tensor where both are given, nor this alone.",
    ),
    "kv_length": Option(
        "array or Tensor of whole numbers", "Visible keys of a batch element, [batch] or [1]."
    ),
    "query_offset": Option(
        "array or Tensor of whole numbers",
        "Position p of query 0, [batch] or [1]; by default the number of past keys.",
    ),
    "causal": Option("bool", "A query at position p sees the keys j <= p."),
    "window": Option(
        "(left, right), two whole numbers", "p - j <= left and j - p <= right; -1: unbounded."
    ),
    "scale": Option("float", "Multiplies q . k; by default 1 / sqrt(head_dim)."),
    "softcap": Option("float", "c makes c * tanh(s / c) of a scaled score s; 0: off."),
    "masked_row": Option(
        '"zero", "uniform" or "nan"', 'What a query without keys gives; by default "zero".'
    ),
    "rope": Option("Rope", "Rotary embedding of q and k at their positions."),
    "q_norm": Option(
        "array or Tensor, float32 [head_dim]", "Weights of an RMS norm of each query, before rope."
    ),
    "k_norm": Option(
        "array or Tensor, float32 [head_dim]", "Weights of an RMS norm of each key, before rope."
    ),
    "norm_epsilon": Option("float", "Added to the mean square in both norms."),
    "sink": Option(
        "array or Tensor, float32 [n_head]", "A logit that joins the denominator of each row."
    ),
    "alibi": Option("array or Tensor, float32 [n_head]", "Slopes m: -m * |p - j| is added."),
    "dropout": Option("float in [0, 1)", "Rate at which weights become 0, the others grow."),
    "dropout_seed": Option("whole number of 64 bits", "Seed of what dropout draws."),
    "exact_softmax": Option(
        "bool", "Softmax with twice the digits of float32, on the unfused path."
    ),
}

# What others call these: what to write here.
_ELSEWHERE = {
    "is_causal": "causal",
    "use_causal_mask": "causal",
    "attn_mask": "mask, where True is visible as in scaled_dot_product_attention",
    "attention_mask": "mask",
    "attn_bias": "mask",
    "bias": "mask",
    "dropout_p": "dropout",
    "softmax_scale": "scale",
    "scaling": "scale",
    "logit_soft_cap": "softcap",
    "logits_soft_cap": "softcap",
    "attn_logit_softcapping": "softcap",
    "window_size": "window",
    "sliding_window": "window=(n - 1, 0)",
    "alibi_slopes": "alibi",
    "sinks": "sink",
    "s_aux": "sink",
    "seqlen": "kv_length",
    "kv_lens": "kv_length",
    "key_lengths": "kv_length",
    "need_weights": 'scores="softmax"',
    "output_attentions": 'scores="softmax"',
    "return_weights": 'scores="softmax"',
    "average_attn_weights": 'scores="softmax" and its mean over heads',
    "return_lse": "log_sum_exp",
    "enable_gqa": "nothing, as fewer key heads are shared without it",
    "batch_first": "layout",
    "out": "the result that is returned",
}
# Keywords beside the options, for words that are spelt wrong.
_KEYWORDS = ("past", "scores", "log_sum_exp", "dtype", "path", "device", "timeout", "layout", "cache")


def hint(word: str, known: Iterable[str]) -> str:
    """": did you mean ...?" of a keyword that is none; "" where nothing is near."""
    meant = _ELSEWHERE.get(word)
    if meant is None:
        import difflib  # of use to mistakes alone

        meant = next(iter(difflib.get_close_matches(word, list(known), 1)), None)
    return "" if meant is None else f": did you mean {meant}?"


def check_options(given: dict[str, Any]) -> None:
    """As Python refuses a keyword that a function does not have."""
    for word in given:
        if word not in OPTIONS:
            said = hint(word, (*OPTIONS, *_KEYWORDS))
            raise TypeError(f"unexpected keyword argument '{word}'{said}")


def option_lines() -> str:
    """The options as a docstring lists them."""
    lines = [
        "Options of attention. A key j is visible to a query at position p where all of mask,",
        "key_padding_mask, kv_length, causal and window allow it. Arrays are uploaded once; a Tensor",
        "can be written again between runs.",
    ]
    for name, (kind, says) in OPTIONS.items():
        lines.append(f"    {name}: {kind}")
        lines += textwrap.wrap(says, 96, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)


def takes_options(taker: T) -> T:
    """Lists the options at the end of the docstring of a function or a class."""
    said = getattr(taker, "__doc__", None)
    if said is not None:  # python -OO keeps none
        taker.__doc__ = f"{inspect.cleandoc(said)}\n\n{option_lines()}\n"
    return taker
