#!/usr/bin/env python3
"""The unit tests' files and their mutants, read by a C program and by the Python package: both accept
the same ones, with the same contents, and refuse the others in the same words. Prints a table of verdicts.

    VKATTN_LIBRARY=build/libvkattn.so.0 tests/fuzz/readers.py build/io_verdict build/tests/fuzz/seeds

Exits 77 where python3 has no numpy or cffi. SPDX-License-Identifier: MIT
"""
import argparse
import collections
import os
import pathlib
import random
import sys
import tempfile

try:
    import cffi  # noqa: F401
    import numpy
except ImportError:
    if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("SKIPPED: NO PYTHON 3 WITH numpy AND cffi: ITS READERS WERE NOT COMPARED")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import peer_gguf
import peers

import vkattn
from vkattn._arrays import HostArray
from vkattn._safetensors import SafetensorsFile

FORMATS = {peers.SAFETENSORS: "safetensors", peers.GGUF: "gguf"}
# Types of metadata by their numbers in files.
NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8",
           12: "<f8"}


def gguf_mutant(seeds, rng):
    """As peer_gguf draws them, without the package gguf."""
    good, bad = seeds
    file = peer_gguf.mutate_fields(rng.choice(good), rng)
    return file if rng.randrange(3) else peer_gguf.mutate_bytes(file, rng, rng.choice(good + bad))


def python_tensors(file, kind):
    """Name, type, shape and bytes of each."""
    bytes_of = file.raw if kind == peers.GGUF else lambda name: safetensors_bytes(file, name)
    type_of = file.type if kind == peers.GGUF else file.kind
    shape_of = file.shape if kind == peers.GGUF else lambda name: tuple(file._axes(name))
    aliases = getattr(file, "aliases", ())
    return {name.encode(): (type_of(name), tuple(shape_of(name)), bytes_of(name).tobytes())
            for name in file.names if name not in aliases}


def safetensors_bytes(file, name):
    try:
        return held(file.packed(name))
    except vkattn.UnsupportedError as error:  # whose sentence names the type
        assert file.kind(name) not in peers.SIZES and "is not supported" in str(error)
        array = file._arrays[name]
        return file._file.bytes_at(array.data, array.size)


def held(array):
    return array.data if isinstance(array, HostArray) else array


def packed_value(value, kind, item):
    """The bytes of a file for what Python has of it."""
    texts = [value] if kind == peer_gguf.STRING else value
    if item != peer_gguf.STRING:
        return numpy.asarray(value, NUMBERS[item]).tobytes()
    coded = [text.encode("utf-8", "surrogateescape") for text in texts]
    return coded[0] if kind == peer_gguf.STRING else b"".join(map(peer_gguf.string, coded))


def difference(file, kind, line):
    """What Python has otherwise than a line of io_verdict says; None."""
    if kind == peers.GGUF:
        tensors, values = peer_gguf.parse(line)
        told = {name: (what.lower(), shape, data) for name, what, shape, _, data in tensors}
        for key, type_, item, data in values:
            value = file.metadata.get(key.decode())
            if type(value) is float and value != value:  # which keeps no signalling NaN
                if numpy.isnan(numpy.frombuffer(data, NUMBERS[item])).all():
                    continue
            if packed_value(value, type_, item) != data:
                return f"key {key!r} is {value!r}"
        if len(values) != len(file.metadata):
            return f"{len(file.metadata)} keys"
    else:
        told = {name: rest for name, *rest in peers.parse(line)}
        told = {name: tuple(rest) for name, rest in told.items()}
    had = python_tensors(file, kind)
    if kind == peers.GGUF:
        had = {name: (what.lower(), *rest) for name, (what, *rest) in had.items()}
    return None if had == told else f"tensors are {had!r}"


def judge(kind, place, line, counts):
    """Adds to the counts; the difference, or None."""
    name = FORMATS[kind]
    try:
        file = (vkattn.GGUF if kind == peers.GGUF else SafetensorsFile)(place)
    except vkattn.VkattnError as error:
        said = str(error)
        if said == line.replace("refused file: ", f"{place}: ", 1):
            counts[f"{name}: refused by both in the same words"] += 1
            return None
        return f"Python refuses it, '{said}', but C: '{line}'"
    if not line.startswith("read"):
        return f"Python reads what C refuses: '{line}'"
    wrong = difference(file, kind, line)
    if not wrong:
        counts[f"{name}: read by both, all equal"] += 1
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reader")
    parser.add_argument("seeds", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    seeds = {kind: [[path.read_bytes() for path in sorted(options.seeds.glob(f"{what}-*.{suffix}"))]
                    for what in ("good", "bad")] for kind, suffix in FORMATS.items()}
    files = [(kind, file) for kind in seeds for which in seeds[kind] for file in which]
    assert len(files) > 300, "seeds are missing"
    for _ in range(options.mutants):
        kind = rng.choice(list(seeds))
        make = gguf_mutant if kind == peers.GGUF else lambda s, r: peers.mutant(s, peers.SAFETENSORS, r)
        files.append((kind, make(seeds[kind], rng)))
    counts, differences = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for i, ((kind, file), line) in enumerate(zip(files, peers.ours(options.reader, files))):
            place = pathlib.Path(folder) / f"{i}.{FORMATS[kind]}"
            place.write_bytes(file)
            wrong = judge(kind, str(place), line, counts)
            if wrong:
                differences += 1
                print(f"DIFFERENT: {wrong}\n    {file!r}")
            place.unlink()
    for what in sorted(counts):
        print(f"{counts[what]:9} {what}")
    print(f"{len(files)} files, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
