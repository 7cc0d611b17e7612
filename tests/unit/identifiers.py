#!/usr/bin/env python3
"""Nouns for a portion of something that no identifier may have, as other words say it: a slice (of a
problem), a split (of keys over workgroups), a span (of a submit), a tile (rows of a workgroup), a
block (of quantisation), a key chunk, a page.

    tests/unit/identifiers.py SOURCE

Reads identifiers of C, C++ and GLSL, each word of snake_case alone. `GONE` are words of which nothing
is left anywhere but in the compounds of `ALLOWED`, two neighbouring words each; `GOING` are those that
folders have got rid of; `OWN` are files of which a word is the field's own.
"""
import collections
import os
import re
import sys

SUFFIXES = ('.c', '.h', '.comp', '.glsl', '.def', '.hpp', '.cpp')
FOLDERS = ('examples', 'include', 'shaders', 'src', 'tests', 'tools')


def plurals(*words):
    return {form for word in words for form in (word, word + 's')}


GONE = plurals('chunk', 'panel', 'part', 'piece', 'portion', 'unit') | {'box', 'boxes', 'stretch', 'stretches'}
GOING = {
    'shaders': plurals('run', 'share', 'turn'),
    'src/gpu': plurals('share', 'turn'),
    'src/kernel': plurals('share', 'turn'),
    'src/mpi': plurals('share', 'turn'),
    'src/op': plurals('share'),
    'src/op/attention': plurals('turn'),
    'src/op/cache': plurals('turn'),
    'src/op/rows': plurals('turn'),
    'src/op/train': plurals('turn'),
    'src/plan': plurals('share', 'turn'),
    'src/reference': plurals('share'),
    'src/selftest': plurals('share', 'turn'),
}
OWN = { # chunked linear attention; a PNG file is made of chunks
    'examples/mnist/png.c': plurals('chunk'),
    'shaders/cpu/linear_address.glsl': plurals('chunk'),
    'shaders/cpu/linear_chunked_address.comp': plurals('chunk'),
    'shaders/cpu/linear_weights_address.comp': plurals('chunk'),
    'shaders/params/state.h': plurals('chunk'),
    'shaders/state': plurals('chunk'),
    'src/kernel/state.c': plurals('chunk'),
    'src/kernel/state.h': plurals('chunk'),
    'src/kernel/state_coop.c': plurals('chunk'),
    'src/op/state': plurals('chunk'),
    'src/op/train/linear_backward_passes.c': plurals('chunk'),
    'tests/cache/cache_mixed_plan.c': plurals('chunk'),
    'tests/cache/test_cache_state.c': plurals('chunk'),
    'tests/unit/index_passes_state.c': plurals('chunk'),
    'tests/unit/test_tune_state.c': plurals('chunk'),
}
ALLOWED = { # compounds that stay, at most 20
    'coop unit', 'weight unit', # what the weights of keys are measured in
    'key chunk', 'key chunks',
    'matrix units', # of a GPU
    'model stretch', # a verb: operands over many powers of two
    'unit test', # of cmocka
    'unit vector',
}
MOST_ALLOWED = 20
NOTHING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def identifiers(text):
    code = NOTHING.sub(' ', text)
    # What is included is named by others.
    code = re.sub(r'^\s*#\s*include[^\n]*', '', code, flags=re.M)
    return collections.Counter(re.findall(r'[A-Za-z_]\w*', code))


def lies_in(path, places):
    return [words for place, words in places.items() if path == place or path.startswith(place + '/')]


def banned(path):
    words = GONE.union(*lies_in(path, GOING))
    return words.difference(*lies_in(path, OWN))


def judge(identifier, bad, used):
    """The words of an identifier that it may not have; compounds that are allowed go into `used`."""
    words = identifier.lower().strip('_').split('_')
    left = []
    for i, word in enumerate(words):
        pairs = {' '.join(words[i - 1 : i + 1]), ' '.join(words[i : i + 2])} & ALLOWED
        used |= pairs
        if word in bad and not pairs:
            left.append(word)
    return left


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
                bad = banned(f'{folder}/{name}')
                for word in identifiers(text):
                    for noun in judge(word, bad, used):
                        found.append(f'{folder}/{name}: {word}: no {noun}')
    for line in found:
        print(line)
    for compound in sorted(ALLOWED - used):
        print(f'no file has {compound}: it needs no place among the allowed')
    if len(ALLOWED) > MOST_ALLOWED:
        print(f'{len(ALLOWED)} compounds are allowed, not {MOST_ALLOWED}')
    if files < 500:
        print(f'{files} files alone were read')
    return bool(found) or ALLOWED != used or len(ALLOWED) > MOST_ALLOWED or files < 500


sys.exit(main())
