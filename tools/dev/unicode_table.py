#!/usr/bin/env python3
"""Writes tools/vkattn/text/unicode.inc by Python's unicodedata: ranges of letters and those of their kinds, of
numbers, of marks, of punctuation, of symbols, of control characters, of marks that have an order and a width,
and of code points that NFC may change, which a text is refused for where its tokenizer wants NFC. A range is
(first, last, step). And tools/vkattn/text/folds.inc: small letters, and what letters are without their
accents.

    tools/dev/unicode_table.py > tools/vkattn/text/unicode.inc
    tools/dev/unicode_table.py folds > tools/vkattn/text/folds.inc

SPDX-License-Identifier: MIT
"""

import sys
import unicodedata

LAST = 0x10FFFF
HANGUL = (range(0x1161, 0x1176), range(0x11A8, 0x11C3))  # that join the syllable before


def second_letters():
    """What a canonical composition has behind its first letter."""
    seconds = {c for some in HANGUL for c in some}
    for c in range(LAST + 1):
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(int(parts[1], 16))
    return seconds


def ranges(fits):
    """[first, last, step], where small and capital letters take turns of step 2."""
    found = []
    for c in filter(fits, range(LAST + 1)):
        first, last, step = found[-1] if found else (-9, -9, 1)
        if c - last == step or (first == last and c - last == 2):
            found[-1] = [first, c, c - last]
        else:
            found.append([c, c, 1])
    return found


def category(c):
    return unicodedata.category(chr(c))


def classes():
    seconds = second_letters()
    return {
        "LETTER": lambda c: category(c)[0] == "L",
        "NUMBER": lambda c: category(c)[0] == "N",
        "PUNCTUATION": lambda c: category(c)[0] == "P",
        "UPPER": lambda c: category(c) == "Lu",
        "LOWER": lambda c: category(c) == "Ll",
        "TITLE": lambda c: category(c) == "Lt",
        "MODIFIER": lambda c: category(c) == "Lm",
        "SYMBOL": lambda c: category(c)[0] == "S",
        "MARK": lambda c: category(c)[0] == "M",
        "BARE_MARK": lambda c: category(c) == "Mn",
        "ORDERED": lambda c: category(c) != "Mn" and unicodedata.combining(chr(c)) != 0,
        "CONTROL": lambda c: category(c) in ("Cc", "Cf", "Co"),
        "UNSTABLE": lambda c: c in seconds
        or unicodedata.combining(chr(c)) != 0
        or unicodedata.normalize("NFC", chr(c)) != chr(c),
    }


def stripped(c):
    """The canonical decomposition without marks that take no room of their own."""
    return [ord(x) for x in unicodedata.normalize("NFD", chr(c)) if category(ord(x)) != "Mn"]


def small_letters():
    """(first, last, step, difference): capital letters whose small ones are as far behind them."""
    pairs = [(c, ord(chr(c).lower()) - c) for c in range(LAST + 1) if len(chr(c).lower()) == 1]
    pairs, found = [(c, to) for c, to in pairs if to], []
    for c, to in pairs:
        if found and found[-1][3] == to:
            first, last, step, _ = found[-1]
            if c - last in ((1, 2) if first == last else (step,)):
                found[-1] = (first, c, c - last, to)
                continue
        found.append((c, c, 1, to))
    return found


def without_accents():
    """(c, a, b, d): Hangul is computed, and marks vanish."""
    hangul = range(0xAC00, 0xD7A4)
    for c in range(LAST + 1):
        letters = [] if c in hangul else stripped(c)
        if letters and letters != [c]:
            yield c, *letters, *[0] * (3 - len(letters))


def show(name, items, each):
    print(f"#ifdef {name}")
    for i in range(0, len(items), each):
        print(" ".join(items[i : i + each]))
    print("#endif")


def main():
    print(f"/* Classes of Unicode {unicodedata.unidata_version}, made by tools/dev/unicode_table.py. */")
    if sys.argv[1:] != ["folds"]:
        for name, fits in classes().items():
            show(name, [f"R(0x{a:x},0x{b:x},{n})" for a, b, n in ranges(fits)], 4)
        return
    rows = list(without_accents())
    show("SMALL", [f"S(0x{a:x},0x{b:x},{n},{d})" for a, b, n, d in small_letters()], 3)
    show("SINGLE", [f"P(0x{c:x},0x{a:x})" for c, a, b, _ in rows if not b], 5)
    several = [f"P(0x{c:x},0x{a:x},0x{b:x},0x{d:x})" for c, a, b, d in rows if b]
    show("SEVERAL", several, 2)


if __name__ == "__main__":
    main()
