#!/usr/bin/env python3
"""Nouns for a portion of something that no identifier may have, as other words say it: a slice (of a
problem), a split (of keys over workgroups), a span (of a submit), a tile (rows of a workgroup), a
block (of quantisation), a page.

    tests/unit/identifiers.py SOURCE

Reads identifiers of C and GLSL, each word of snake_case alone. `GONE` are words of which nothing is
left anywhere; `GOING` are those that folders have got rid of, but for the compounds that stay.
"""
import collections
import os
import re
import sys

SUFFIXES = ('.c', '.h', '.comp', '.glsl', '.def')
FOLDERS = ('examples', 'include', 'shaders', 'src', 'tests', 'tools')
GONE = {'box', 'boxes', 'panel', 'panels', 'piece', 'pieces', 'portion', 'portions', 'stretch', 'stretches'}
GOING = {
    'src/op/layer': {'part', 'parts', 'share', 'chunk'},
    'src/op/matmul': {'part', 'parts', 'share'},
    'src/op/attention': {'part', 'parts', 'share'},
    'src/op/cache': {'part', 'parts', 'share'},
    'src/op/rows': {'part', 'parts', 'share', 'chunk'},
    'src/reference': {'part', 'parts', 'share', 'chunk'},
    'src/selftest': {'part', 'parts', 'share', 'unit', 'units'},
    'src/op/rotary': {'part', 'parts', 'share'},
    'src/op/common': {'part', 'parts', 'share'},
    'src/op/state': {'part', 'parts', 'share'},
    'src/op/train': {'part', 'parts', 'share'},
    'src/plan': {'part', 'parts', 'share', 'chunk', 'unit', 'units'},
    'src/core': {'part', 'parts', 'unit', 'units'},
    'src/gpu': {'part', 'parts', 'share', 'chunk', 'unit', 'units'},
    'src/kernel': {'part', 'parts', 'share', 'unit', 'units'},
    'src/mpi': {'part', 'parts', 'share', 'shares', 'chunk', 'unit', 'units'},
}
ALLOWED = { # compounds that stay, at most 20
    'model_stretch', # a verb: operands over many powers of two
    'QUANTISE_PART', 'n_part', # 16 values that an invocation quantises
}
MOST_ALLOWED = 20
NOTHING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def identifiers(text):
    code = NOTHING.sub(' ', text)
    # What is included is named by others.
    code = re.sub(r'^\s*#\s*include[^\n]*', '', code, flags=re.M)
    return collections.Counter(re.findall(r'[A-Za-z_]\w*', code))


def banned(folder):
    words = set(GONE)
    for place, more in GOING.items():
        if folder == place or folder.startswith(place + '/'):
            words |= more
    return words


def main():
    root = sys.argv[1]
    found, files, used = [], 0, set()
    for top in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, top)):
            folder = os.path.relpath(at, root).replace(os.sep, '/')
            for name in sorted(names):
                if not name.endswith(SUFFIXES):
                    continue
                files += 1
                with open(os.path.join(at, name), encoding='utf-8') as file:
                    text = file.read()
                for word in identifiers(text):
                    bad = banned(folder) & set(word.lower().split('_'))
                    if word in ALLOWED:
                        used.add(word)
                    elif bad:
                        found.append(f'{folder}/{name}: {word}')
    for line in found:
        print(line)
    for word in sorted(ALLOWED - used):
        print(f'no file has {word}: it needs no place among the allowed')
    if len(ALLOWED) > MOST_ALLOWED:
        print(f'{len(ALLOWED)} compounds are allowed, not {MOST_ALLOWED}')
    if files < 500:
        print(f'{files} files alone were read')
    return bool(found) or ALLOWED != used or len(ALLOWED) > MOST_ALLOWED or files < 500


sys.exit(main())
