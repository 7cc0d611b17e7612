#!/usr/bin/env python3
"""Writes tools/vkattn/text/unicode.inc by Python's unicodedata: ranges of letters, of numbers, and of code
points that NFC may change, which a text is refused for where its tokenizer wants NFC.

    tools/dev/unicode_table.py > tools/vkattn/text/unicode.inc

SPDX-License-Identifier: MIT
"""

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
    found = []
    for c in range(LAST + 1):
        if not fits(c):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def main():
    seconds = second_letters()
    classes = {
        "LETTER": lambda c: unicodedata.category(chr(c))[0] == "L",
        "NUMBER": lambda c: unicodedata.category(chr(c))[0] == "N",
        "UNSTABLE": lambda c: c in seconds
        or unicodedata.combining(chr(c)) != 0
        or unicodedata.normalize("NFC", chr(c)) != chr(c),
    }
    print(f"/* Classes of Unicode {unicodedata.unidata_version}, made by tools/dev/unicode_table.py. */")
    for name, fits in classes.items():
        items = [f"R(0x{a:x}, 0x{b:x})" for a, b in ranges(fits)]
        print(f"#ifdef {name}")
        for i in range(0, len(items), 5):
            print(" ".join(items[i : i + 5]))
        print("#endif")


if __name__ == "__main__":
    main()
