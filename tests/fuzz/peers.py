#!/usr/bin/env python3
"""Mutants of good and bad files, judged by the readers here and by independent ones: the Python
packages safetensors, numpy and gguf.

    peers.py IO_VERDICT SEED_FOLDER [--mutants N] [--seed S]

Where both read a file they must read the same. What the readers here read, the others read too, but for
what safetensors refuses a whole file for, as a type that it does not know. What only the others read is
counted by the rule that forbids it, each found in the file's own text by Python's json or by a regular
expression; without one it is an error. A format whose package is missing is left out, and said so; exits
77 where all are. SPDX-License-Identifier: MIT
"""
import argparse
import collections
import io
import json
import pathlib
import random
import re
import resource
import struct
import subprocess
import sys
import warnings

try:
    import numpy
except ImportError:
    numpy = None
try:
    import safetensors
except ImportError:
    safetensors = None

import peer_gguf

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2,
         "U32": 4, "I32": 4, "U64": 8, "I64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
DESCRS = {"<f4": "F32", "<f2": "F16", "<f8": "F64", "|b1": "BOOL", "|u1": "U8", "|i1": "I8",
          "<u2": "U16", "<i2": "I16", "<u4": "U32", "<i4": "I32", "<u8": "U64", "<i8": "I64"}
THREE = ("dtype", "shape", "data_offsets")
MOST = 2**63 - 1  # bytes
BATCH = 20000  # files
SAFETENSORS, NPY, GGUF = 0, 1, 2
# Kind, suffix, version of the package or None, the package.
FORMATS = ((SAFETENSORS, "safetensors", safetensors and safetensors.__version__, "safetensors"),
           (NPY, "npy", numpy and numpy.__version__, "numpy"),
           (GGUF, "gguf", peer_gguf.VERSION, "gguf"))

# ---- Mutants -------------------------------------------------------------------------------------

NUMBERS = [b"0", b"1", b"2", b"3", b"4", b"5", b"8", b"00", b"-0", b"-1", b"1.0", b"4e0", b"255",
           b"4294967295", b"4294967296", b"2147483648", b"4611686018427387904", b"1_0", b"0x1",
           b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
           b"18446744073709551616", b"1L", b"True", b"null", b"NaN"]
PIECES = [b"{", b"}", b"[", b"]", b"(", b")", b",", b":", b'"', b"'", b"\\", b" ", b"\n", b"\t",
          b"\x00", b"\xff", b"\xc3\xa9", b"\\u0000", b"\\ud800", b"\\u0061", b'""', b'"a"', b"#",
          b"true", b"False", b"F16", b"BF16", b"F8_E4M3", b"<f2", b">f4", b"|b1", b"=f4", b"|u1",
          b'"__metadata__":{},', b'"__metadata__":{"k":"v"},', b'"x":1,', b"'x': 1,"]


def mutate_text(text, rng, other):
    """One change of a header."""
    at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    kind = rng.randrange(8)
    if kind == 0 and text:
        at = rng.randrange(len(text))
        return text[:at] + bytes([rng.randrange(256)]) + text[at + 1:]
    if kind == 1:
        return text[:at] + rng.choice(PIECES) + text[at:]
    if kind == 2:
        return text[:at] + text[min(end, at + rng.randint(1, 8)):]
    if kind == 3:
        return text[:end] + text[at:end] + text[end:]
    if kind == 4:  # with a piece of another file
        cut = rng.randint(0, len(other))
        return text[:at] + other[cut:cut + rng.randint(1, 60)] + text[end:]
    numbers = list(re.finditer(rb"\d+", text))
    if kind in (5, 6) and numbers:
        number = rng.choice(numbers)
        return text[:number.start()] + rng.choice(NUMBERS) + text[number.end():]
    tokens = list(re.finditer(rb"\"[^\"]*\"|'[^']*'|\w+|[^\s]", text))
    if len(tokens) < 2:
        return text + rng.choice(PIECES)
    a, b = sorted(rng.sample(tokens, 2), key=lambda token: token.start())
    return text[:a.start()] + b[0] + text[a.end():b.start()] + a[0] + text[b.end():]


def mutate_data(data, rng):
    kind = rng.randrange(12)
    if kind == 0:
        return data[:rng.randint(0, len(data))]
    if kind == 1:
        return data + bytes(rng.randint(1, 8))
    return data


def split(file, kind):
    """Prefix, header and data, as well as a bad file has them."""
    first = 8 if kind == SAFETENSORS else 10 if file[6:7] == b"\x01" else 12
    length = int.from_bytes(file[0 if kind == SAFETENSORS else 8:first], "little")
    return file[:first], file[first:first + length], file[first + length:]


def mutant(seeds, kind, rng):
    """Mostly of a good one, so that a change is what decides."""
    if kind == GGUF:
        return peer_gguf.mutant(seeds, rng)
    good, bad = seeds
    prefix, text, data = split(rng.choice(good if rng.randrange(4) else bad), kind)
    other = split(rng.choice(good + bad), kind)[1]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 5))):
        text = mutate_text(text, rng, other)
    data = mutate_data(data, rng)
    if rng.randrange(8) == 0:  # anything, the prefix too
        return mutate_text(prefix + text + data, rng, other)
    if kind == SAFETENSORS:
        return struct.pack("<Q", len(text)) + text + data
    version = rng.choice((1, 1, 2, 3))
    length = struct.pack("<H" if version == 1 else "<I", len(text) % (1 << 16))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text + data


# ---- Verdicts ------------------------------------------------------------------------------------


def ours(reader, files):
    """A line of IO_VERDICT for each."""
    told = b"".join(struct.pack("<BI", kind, len(file)) + file for kind, file in files)
    lines = subprocess.run([reader], input=told, stdout=subprocess.PIPE, check=True).stdout
    lines = lines.decode().splitlines()
    assert len(lines) == len(files), "a verdict is missing"
    return lines


def peer_safetensors(file):
    """The arrays of safetensors, None where it refuses."""
    try:
        arrays = safetensors.deserialize(file)
    except safetensors.SafetensorError:
        return None
    return [(name.encode(), a["dtype"], tuple(a["shape"]), bytes(a["data"])) for name, a in arrays]


def peer_npy(file):
    try:
        array = numpy.lib.format.read_array(io.BytesIO(file), allow_pickle=False)
    except Exception:  # SyntaxError, TokenError, RecursionError, MemoryError: whatever the text does
        return None
    dtype = DESCRS.get(array.dtype.str, array.dtype.str)
    return [(b"", dtype, array.shape, array.tobytes() if not array.dtype.hasobject else b"")]


def parse(line):
    """The arrays that a line of IO_VERDICT tells; None for a refusal."""
    if not line.startswith("read"):
        return None
    arrays = []
    for array in line.split()[1:]:
        name, dtype, shape, data = array.split(":")
        shape = tuple(int(axis) for axis in shape.split(",") if axis)
        arrays.append((bytes.fromhex(name), bytes.fromhex(dtype).decode(), shape, bytes.fromhex(data)))
    return arrays


# ---- Rules that the others do not hold -----------------------------------------------------------


class Broken(Exception):
    pass


def no_twins(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise Broken("a key twice")
    return dict(pairs)


def overflows(shape, size):
    product = size
    for axis in shape:
        product *= axis or 1
    return product > MOST


def why_safetensors(file):
    """Which rule of its text forbids a file that safetensors reads."""
    text = split(file, SAFETENSORS)[1].rstrip(b" ")
    if not text.startswith(b"{"):
        return "white space before the header"
    if not text.endswith(b"}"):
        return "white space other than spaces behind the header"
    try:
        header = json.loads(text, object_pairs_hook=no_twins)
    except Broken as rule:
        return str(rule)
    strings = list(header) + [s for item in (header.get("__metadata__") or {}).items() for s in item]
    if any("\0" in s for s in strings):
        return "a name or metadata with a 0 byte"
    for entry in (header[name] for name in header if name != "__metadata__"):
        if not isinstance(entry, dict):
            return "a tensor that is an array, not an object"
        extra = json.dumps([value for key, value in entry.items() if key not in THREE] + list(entry))
        if re.search(r"\\u(0000|d[89a-f])", extra):
            return "a key of a tensor beside its three, with a 0 byte or a surrogate"
        if extra.count("[") + extra.count("{") > 64:
            return "a key of a tensor beside its three, of deep values"
        if len(entry["shape"]) > 8:
            return "more than 8 axes"
        if entry["dtype"] in SIZES and overflows(entry["shape"], SIZES[entry["dtype"]]):
            return "a shape that overflows beside its axes of 0"
    return None


def why_peer(file, arrays):
    """What safetensors refuses a whole file for that is read here."""
    if any(dtype not in SIZES for _, dtype, _, _ in arrays):
        return "a type that is not known"
    header = json.loads(split(file, SAFETENSORS)[1])
    return "a number that no float64 holds" if "Infinity" in json.dumps(header) else None


STRING = rb"""(?:'[^'\\\n]*'|"[^"\\\n]*")"""
SPACE = rb"[ \t\n\r\f]*"
AXIS = rb"(?:0|[1-9][0-9]*)"
SHAPE = rb"\(S(?:AXISS(?:,S(?:AXISS,S)*(?:AXISS)?)?)?\)".replace(b"AXIS", AXIS).replace(b"S", SPACE)
VALUE = rb"(?:%s|True|False|%s)" % (STRING, SHAPE)
PAIR = rb"(%s)%s:%s(%s)" % (STRING, SPACE, SPACE, VALUE)


def why_npy(file):
    text, data = split(file, NPY)[1:]
    if re.search(rb"}[ \t\f]*[\r\n]+[ \t\f]\s*$", text):
        return "blanks behind the newline that ends the header"
    if re.match(rb"\s", text):
        return "blanks before the header"
    inner = text.strip(b" \t\n\r\f")
    if not (inner.startswith(b"{") and inner.endswith(b"}")):
        return "a dictionary in other words than numpy's"
    pairs = re.findall(PAIR, inner)
    rest = re.sub(PAIR, b"@", inner)
    if not re.fullmatch(rb"\{S@S,S@S,S@S(?:,S)?\}".replace(b"S", SPACE), rest):
        return "a dictionary in other words than numpy's, or a key twice"
    values = {key[1:-1]: value for key, value in pairs}
    descr = values[b"descr"][1:-1].decode("latin1")
    if descr not in DESCRS:
        return "a descr that is not supported, or not in numpy's spelling"
    shape = [int(axis) for axis in re.findall(rb"\d+", values[b"shape"])]
    if len(shape) > 8:
        return "more than 8 axes"
    if overflows(shape, SIZES[DESCRS[descr]]):
        return "a shape that overflows beside its axes of 0"
    need = SIZES[DESCRS[descr]]
    for axis in shape:
        need *= axis
    return "bytes behind the elements" if len(data) > need else None


def judge(kind, file, line, counts):
    """Adds to the counts; the difference that no rule explains, or None."""
    if kind == GGUF:
        return peer_gguf.judge(file, line, counts)
    peer = peer_npy(file) if kind == NPY else peer_safetensors(file)
    own = parse(line)
    name = "npy" if kind == NPY else "safetensors"
    if own is None and peer is None:
        counts[f"{name}: refused by both"] += 1
        return None
    if own is None:
        why = why_npy(file) if kind == NPY else why_safetensors(file)
        counts[f"{name}: refused here alone: {why}"] += 1
        return None if why else f"only {name} reads what is '{line}' here"
    if peer is None:
        why = why_peer(file, own) if kind == SAFETENSORS else None
        counts[f"{name}: read here alone: {why}"] += 1
        return None if why else f"only {name} refuses this"
    counts[f"{name}: read by both"] += 1
    return None if sorted(own) == sorted(peer) else f"{name} reads {peer}, but here it is '{line}'"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reader")
    parser.add_argument("seeds", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=1000000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # A peer that allocates what a file claims must not take the machine along.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    warnings.simplefilter("ignore")
    formats = [format for format in FORMATS if format[2]]
    for _, suffix, version, name in FORMATS:
        print(f"{name} {version}" if version else
              f"NOT JUDGED FOR LACK OF THE PYTHON PACKAGE {name}: {suffix} files")
    if not formats:
        return 77
    print(f"seed {options.seed}")

    rng = random.Random(options.seed)
    seeds = {kind: [[path.read_bytes() for path in sorted(options.seeds.glob(f"{what}-*.{suffix}"))]
                    for what in ("good", "bad")]
             for kind, suffix, _, _ in formats}
    pending = [(kind, file) for kind in seeds for files in seeds[kind] for file in files]
    assert len(pending) > 150 * len(formats), "seeds are missing"
    wanted = len(pending) + options.mutants
    counts, differences, done = collections.Counter(), 0, 0
    while pending:
        for (kind, file), line in zip(pending, ours(options.reader, pending)):
            difference = judge(kind, file, line, counts)
            if difference:
                differences += 1
                print(f"DIFFERENT: {difference}\n    {file!r}")
        done += len(pending)
        kinds = [rng.choice(list(seeds)) for _ in range(min(BATCH, wanted - done))]
        pending = [(kind, mutant(seeds[kind], kind, rng)) for kind in kinds]
    for what in sorted(counts):
        print(f"{counts[what]:9} {what}")
    print(f"{done} files, {differences} unexplained differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
