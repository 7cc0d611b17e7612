"""GGUF files for peers.py: mutants, and what the Python package gguf makes of them.
SPDX-License-Identifier: MIT
"""
import importlib.metadata
import math
import os
import struct
import tempfile

try:
    import gguf
    from gguf.gguf_reader import GGUFReader
except ImportError:
    gguf = None
    GGUFReader = object

VERSION = importlib.metadata.version("gguf") if gguf else None
BOOL, STRING, ARRAY = 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, BOOL: 1, 10: 8, 11: 8, 12: 8}  # of metadata
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 24, 31, 32, 33, 40, 41, 42, 63, 64, 65, 96, 255,
           256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**59, 2**61, 2**62, 2**63 - 1,
           2**63, 2**64 - 32, 2**64 - 1]
PIECES = [b"", b"a", b"general.alignment", b"GGUF.version", b"\0", b"\xff", b"\xc3\xa9",
          b"\xed\xa0\x80", b"n" * 64, b"n" * 65, b"x\ny"]

# ---- Mutants -------------------------------------------------------------------------------------


def string(text):
    return struct.pack("<Q", len(text)) + text


class Fields:
    """A good file as fields, each its bytes and what it is: "n" a number, "s" a string with its
    length, "d" data."""

    def __init__(self, file):
        self.file, self.at, self.fields = file, 4, []
        self.take(4)
        n_tensor, n_key = self.take(8), self.take(8)
        for _ in range(n_key):
            self.string()
            self.value(self.take(4))
        for _ in range(n_tensor):
            self.string()
            for _ in range(self.take(4)):
                self.take(8)
            self.take(4)
            self.take(8)
        self.rest = file[self.at:]

    def take(self, size):
        piece = self.file[self.at:self.at + size]
        self.at += size
        self.fields.append(("n", piece))
        return int.from_bytes(piece, "little")

    def string(self):
        size = 8 + int.from_bytes(self.file[self.at:self.at + 8], "little")
        self.fields.append(("s", self.file[self.at:self.at + size]))
        self.at += size

    def value(self, kind):
        count = 1
        if kind == ARRAY:
            kind, count = self.take(4), self.take(8)
        for _ in range(count):
            self.string() if kind == STRING else self.take(SIZES[kind])


def change_field(kind, piece, rng):
    if kind == "n":
        number = int.from_bytes(piece, "little")
        number = rng.choice(NUMBERS) if rng.randrange(3) else number + rng.choice((-32, -1, 1, 32))
        return number.to_bytes(16, "little", signed=number < 0)[:len(piece)]
    text = bytearray(piece[8:])
    if rng.randrange(2) or not text:
        text = rng.choice(PIECES)
    else:
        text[rng.randrange(len(text))] = rng.randrange(256)
    return string(bytes(text))


def mutate_fields(file, rng):
    """Some numbers and strings changed; padding follows what they need."""
    parts = Fields(file)
    fields = list(parts.fields)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(fields))
        kind, piece = fields[at]
        what = rng.randrange(12)
        if what == 0:
            other = rng.randrange(len(fields))
            fields[at], fields[other] = fields[other], fields[at]
        elif what == 1:
            fields.insert(at, fields[rng.randrange(len(fields))])
        elif what == 2 and len(fields) > 1:
            del fields[at]
        else:
            fields[at] = kind, change_field(kind, piece, rng)
    header = file[:4] + b"".join(piece for _, piece in fields)
    padding = -parts.at % 32
    data = parts.rest[padding:] if len(parts.rest) > padding else b""
    if data:
        header += bytes(-len(header) % 32)
    return header + data


def mutate_bytes(file, rng, other):
    at, end = sorted((rng.randint(0, len(file)), rng.randint(0, len(file))))
    kind = rng.randrange(7)
    if kind == 0 and file:
        at = rng.randrange(len(file))
        return file[:at] + bytes([rng.randrange(256)]) + file[at + 1:]
    if kind in (1, 2):
        number = rng.choice(NUMBERS).to_bytes(8, "little")[:rng.choice((1, 4, 8))]
        return file[:at] + number + file[at + len(number):]
    if kind == 3:
        return file[:at] + file[min(end, at + rng.randint(1, 8)):]
    if kind == 4:
        return file[:end] + file[at:end] + file[end:]
    if kind == 5:
        cut = rng.randint(0, len(other))
        return file[:at] + other[cut:cut + rng.randint(1, 60)] + file[end:]
    return file[:end] if rng.randrange(2) else file + bytes(rng.randint(1, 40))


def random_items(kind, count, rng):
    if kind == STRING:
        return b"".join(string(rng.randbytes(rng.randrange(6))) for _ in range(count))
    if kind == BOOL:
        return bytes(rng.randrange(2) for _ in range(count))
    return rng.randbytes(SIZES[kind] * count)


def random_value(rng):
    kind = rng.choice([*SIZES, STRING, ARRAY, ARRAY])
    if kind != ARRAY:
        return struct.pack("<I", kind) + random_items(kind, 1, rng)
    item, count = rng.choice([*SIZES, STRING]), rng.choice((0, 1, 2, 7))
    return struct.pack("<IIQ", kind, item, count) + random_items(item, count, rng)


def random_file(rng):
    """A good file of any types, shapes, metadata and alignment."""
    alignment = rng.choice((8, 16, 32, 32, 64))
    keys = [string(b"k%d" % i) + random_value(rng) for i in range(rng.randrange(5))]
    if alignment != 32 or rng.randrange(4) == 0:
        keys.append(string(b"general.alignment") + struct.pack("<II", 4, alignment))
    rng.shuffle(keys)
    tensors, size = [], 0
    for i in range(rng.randrange(4)):
        kind = rng.choice([kind for kind in gguf.GGMLQuantizationType if kind.name != "Q8_1"])
        values, block = gguf.GGML_QUANT_SIZES[kind]
        shape = [rng.randint(1, 3) for _ in range(rng.randrange(0 if values == 1 else 1, 5))]
        blocks = 1
        for axis in shape:
            blocks *= axis
        if shape:
            shape[0] *= values
        size += rng.choice((0, 0, 0, alignment))
        tensors.append(string(b"t%d" % i) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape,
                                                        kind, size))
        size += -(-blocks * block // alignment) * alignment
    rng.shuffle(tensors)
    head = b"GGUF" + struct.pack("<IQQ", rng.choice((2, 3)), len(tensors), len(keys))
    head += b"".join(keys + tensors)
    return head + bytes(-len(head) % alignment) + rng.randbytes(size)


def mutant(seeds, rng):
    good, bad = seeds
    what = rng.randrange(4)
    if what == 0:
        file = random_file(rng)
        return mutate_bytes(file, rng, rng.choice(good)) if rng.randrange(2) else file
    if what > 1:
        file = mutate_fields(rng.choice(good), rng)
        return file if rng.randrange(4) else mutate_bytes(file, rng, rng.choice(good + bad))
    file = rng.choice(good if rng.randrange(4) else bad)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        file = mutate_bytes(file, rng, rng.choice(good + bad))
    return file


# ---- Verdicts ------------------------------------------------------------------------------------


class Reader(GGUFReader):
    """Past the end of a file the package goes on with arrays of nothing, for as many items as an
    array claims. This one gives up after a thousand."""
    past = 0

    def _get(self, offset, *rest, **more):
        self.past += offset >= len(self.data)
        if self.past > 1000:
            raise ValueError("it would not end")
        return super()._get(offset, *rest, **more)


def parse_tensor(text):
    """NAME, TYPE, SHAPE and offset, BYTES as io_verdict tells them."""
    name, kind, place, data = text.split(":")
    shape, offset = place.split("@")
    shape = tuple(int(n) for n in shape.split(",") if n)
    return bytes.fromhex(name), kind.upper(), shape, placed(int(offset), shape), bytes.fromhex(data)


def placed(offset, shape):
    """The offset of a tensor; one without elements lies anywhere."""
    return None if 0 in shape else offset


def parse(line):
    """What a line of io_verdict tells; None for a refusal."""
    if not line.startswith("read"):
        return None
    tensors = [parse_tensor(item) for item in line.split()[1:] if "@" in item]
    values = [item.split(":") for item in line.split()[1:] if "@" not in item]
    return tensors, [(bytes.fromhex(key), int(kind), int(item), bytes.fromhex(data))
                     for key, kind, item, data in values]


def own_fields(reader):
    """The fields that stand in the file."""
    return list(reader.fields.values())[3:]


def joined(parts):
    return b"".join(part.tobytes() for part in parts)


def told_value(field):
    kind = int(field.parts[2][0])
    item = int(field.parts[3][0]) if kind == ARRAY else kind
    first = {ARRAY: 5, STRING: 4}.get(kind, 3)
    return joined(field.parts[1:2]), kind, item, joined(field.parts[first:])


def read(file):
    """The reader of a file, None where it refuses."""
    with tempfile.NamedTemporaryFile(delete=False) as place:
        place.write(file)
    try:
        return Reader(place.name)
    except Exception:  # IndexError, KeyError, MemoryError: whatever the bytes do
        return None
    finally:
        os.unlink(place.name)


def told(reader):
    """As parse() gives it."""
    tensors = []
    for t in reader.tensors:
        shape = tuple(int(n) for n in reversed(t.shape))
        tensors.append((t.name.encode(), t.tensor_type.name.upper(), shape,
                        placed(t.data_offset, shape), t.data.tobytes()))
    return tensors, [told_value(field) for field in own_fields(reader)]


# ---- Rules that the package does not hold --------------------------------------------------------


def why_value(field):
    name_size, kind = int(field.parts[0][0]), int(field.parts[2][0])
    if not 1 <= name_size <= 65535:
        return "a key without bytes, or with more than 65535"
    if 0 in field.parts[1]:
        return "a key with a 0 byte"
    item = int(field.parts[3][0]) if kind == ARRAY else kind
    if item == ARRAY:
        return "an array of arrays"
    if item not in SIZES and item != STRING:
        return "an array without items, of an unknown type"
    parts = field.parts[5 if kind == ARRAY else 3:]
    if item == STRING:
        if any(int(size[0]) != len(text) for size, text in zip(parts[::2], parts[1::2])):
            return "a string that the file ends within"
    elif any(len(part) != 1 for part in parts):
        return "a value that the file ends before"
    if item == BOOL and any(part.tobytes()[0] > 1 for part in parts):
        return "a bool that is neither 0 nor 1"
    return None


def overflows(tensor):
    """Whether the bytes exceed 2^63 - 1, without the axes of 0 of a tensor that has some."""
    values, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
    axes = [int(n) for n in tensor.shape]
    axes[:1] = [n // values for n in axes[:1]]
    return 0 in axes and size * math.prod(n for n in axes if n) >= 2**63


def why_tensor(tensor, reader):
    name_size, name, rank, _, _, offset = tensor.field.parts
    if not 1 <= int(name_size[0]) <= 64:
        return "a tensor's name without bytes, or with more than 64"
    if 0 in name:
        return "a tensor's name with a 0 byte"
    if int(rank[0]) > 4:
        return "more than 4 axes"
    if tensor.tensor_type.name == "Q8_1":
        return "type q8_1"
    if overflows(tensor):
        return "a shape that overflows beside its axes of 0"
    if int(offset[0]) % int(reader.alignment):
        return "an offset that is not aligned"
    if int(offset[0]) + int(reader.data_offset) >= 2**64:
        return "an offset that wraps around"
    return None


def why_refused_here(reader):
    """Which rule forbids a file that the package reads; None if none does."""
    if reader.byte_order == "S":
        return "big-endian"
    for field in own_fields(reader):
        why = why_value(field)
        if why:
            return why
    if int(reader.alignment) < 8:
        return "an alignment below 8"
    for tensor in reader.tensors:
        why = why_tensor(tensor, reader)
        if why:
            return why
    places = sorted((t.data_offset, t.n_bytes) for t in reader.tensors if t.n_bytes)
    if any(a + size > b for (a, size), (b, _) in zip(places, places[1:])):
        return "tensors that overlap"
    return None


def why_refused_there(own):
    """Why the package alone refuses a file."""
    keys = {key for key, _, _, _ in own[1]}
    if keys & {b"GGUF.version", b"GGUF.tensor_count", b"GGUF.kv_count"}:
        return "a key that the package has for itself"
    if any(kind == "BF16" and shape == () for _, kind, shape, _, _ in own[0]):
        return "a bf16 without axes, which the package takes for blocks"
    return None


def judge(file, line, counts):
    """Adds to the counts; the difference that no rule explains, or None."""
    reader, own = read(file), parse(line)
    if own is None and reader is None:
        counts["gguf: refused by both"] += 1
        return None
    if own is None:
        why = why_refused_here(reader)
        counts[f"gguf: refused here alone: {why}"] += 1
        return None if why else f"only gguf reads what is '{line}' here"
    if reader is None:
        why = why_refused_there(own)
        counts[f"gguf: read here alone: {why}"] += 1
        return None if why else f"only gguf refuses what is '{line}' here"
    counts["gguf: read by both"] += 1
    return None if own == told(reader) else f"gguf reads {told(reader)}, but here it is '{line}'"
