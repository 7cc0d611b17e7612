"""GGUF files: read whole, or an exception with a sentence."""

import gc
import random
import struct

import numpy as np
import pytest

import vkattn
from vkattn._abi import ffi, lib
from vkattn._arrays import DTYPES


def string(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(text)) + text


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def tensor(name, axes, kind, offset):
    """axes: the fastest last, as the reader gives them."""
    return string(name) + struct.pack(
        f"<I{len(axes)}QIQ", len(axes), *reversed(axes), kind, offset
    )


def build(tensors=(), keys=(), data=b"", version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data if data else head


@pytest.fixture
def load(tmp_path):
    def load(file):
        path = tmp_path / "x.gguf"
        path.write_bytes(file)
        return vkattn.GGUF(path)

    return load


ONE = tensor("a", [2], 0, 0)
KEYS = [
    key("u", 4, struct.pack("<I", 7)),
    key("f", 6, struct.pack("<f", 0.5)),
    key("b", 7, b"\1"),
    key("s", 8, string("h\xe9")),
    key("bytes", 8, string(b"\xff")),
    key("list", 9, struct.pack("<IQ", 8, 2) + string("x") + string("")),
    key("numbers", 9, struct.pack("<IQ3h", 3, 3, 1, -2, 3)),
]


@pytest.mark.parametrize("version", [2, 3])
def test_metadata(load, version):
    file = load(build([ONE], KEYS, bytes(8), version))
    assert file.names == ["a"]
    assert [file.metadata[k] for k in "ufbs"] == [7, 0.5, True, "h\xe9"]
    assert file.metadata["bytes"].encode("utf-8", "surrogateescape") == b"\xff"
    assert file.metadata["list"] == ["x", ""]
    assert file.metadata["numbers"].tolist() == [1, -2, 3]


def test_dense(load):
    x = np.arange(6, dtype="<f4").reshape(2, 3)
    halves = (x.view("<u4") >> 16).astype("<u2")
    data = x.tobytes() + bytes(8) + halves.tobytes() + bytes(20) + b"\5"
    tensors = [tensor("x", [2, 3], 0, 0), tensor("h", [2, 3], 30, 32), tensor("i", [], 24, 64)]
    file = load(build(tensors, [], data))
    assert [file.type(name) for name in file.names] == ["f32", "bf16", "i8"]
    assert np.array_equal(file.array("x"), x) and np.array_equal(file.array("h"), x)
    assert file.shape("i") == () and file.array("i") == 5
    assert file.raw("x").shape == (2, 12)
    with pytest.raises(vkattn.InvalidError, match="no tensor 'y'"):
        file.array("y")


def test_blocks(load, rng):
    x = rng.standard_normal((3, 64), np.float32)
    blocks = np.empty(6 * 34, np.uint8)
    size = lib.vka_dtype_encode(
        DTYPES["q8_0"], ffi.from_buffer("float[]", x), 6, ffi.from_buffer(blocks)
    )
    assert size == 0
    file = load(build([tensor("a", [3, 64], 8, 0)], [], blocks.tobytes()))
    assert file.raw("a").shape == (3, 68)
    got = file.array("a")
    assert got.dtype == np.float32 and np.abs(got - x).max() < np.abs(x).max() / 200


# By their numbers: name, and values and bytes of a block. C's tests have all.
TYPES = {0: ("f32", 1, 4), 8: ("q8_0", 32, 34), 12: ("q4_K", 256, 144), 15: ("q8_K", 256, 292)}
TYPES.update({26: ("i32", 1, 4), 30: ("bf16", 1, 2), 40: ("nvfp4", 64, 36), 41: ("q1_0", 128, 18)})


@pytest.mark.parametrize("number", TYPES)
def test_types(load, number):
    name, values, size = TYPES[number]
    file = load(build([tensor("a", [2, values], number, 0)], [], bytes(2 * size)))
    assert file.type("a") == name and file.raw("a").shape == (2, size)
    known = ffi.new("uint32_t[2]")
    if name.lower() in DTYPES:
        assert lib.vka_dtype_block(DTYPES[name.lower()], known, known + 1) == 0
        assert list(known) == [values, size]
        assert file.array("a").shape == (2, values) and not file.array("a").any()
        file.check_types()
        return
    sentence = f"x.gguf: tensor 'a' has type {name}, .* llama-quantize .f32, f16, q4_0, "
    for refused in (lambda: file.array("a"), file.check_types, lambda: file.upload("a")):
        with pytest.raises(vkattn.UnsupportedError, match=sentence):
            refused()


def test_data_outlives_the_file(load):
    """The file stays mapped as long as an array of it is there, which cannot be written."""
    held = load(build([tensor("a", [2, 2048], 0, 0)], [], bytes(range(256)) * 64)).raw("a")
    gc.collect()
    assert held.tobytes() == bytes(range(256)) * 64
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1
    with pytest.raises(ValueError):
        held.flags.writeable = True


def test_empty(load):
    """Axes of 0 elements; data behind the end is none."""
    tensors = [tensor("x", [0, 3], 0, 0), tensor("y", [2, 3], 0, 0), tensor("q", [0, 64], 8, 0)]
    file = load(build([*tensors, tensor("z", [4, 0], 8, 320)], [], bytes(24)))
    assert [file.shape(name) for name in file.names] == [(0, 3), (2, 3), (0, 64), (4, 0)]
    for name in "xqz":
        assert file.array(name).shape == file.shape(name) and file.raw(name).size == 0
    with pytest.raises(vkattn.InvalidError, match="at least 1"):
        file.upload("x")
    assert load(build([tensor("x", [0], 0, 0)])).names == ["x"]


TWO = [tensor("a", [16], 0, 0), tensor("b", [2], 0, 32)]
# A few: the sentences are the reader's, whose own tests have all.
BAD = [
    (b"", "does not begin with GGUF"),
    (build()[:20], "20 bytes are too few"),
    (build(version=0x03000000), "big-endian"),
    (build(keys=KEYS[:1] * 2), "'u' occurs twice"),
    (build(keys=[key(b"\xff", 0, b"1")]), "is not UTF-8"),
    (build(keys=[key("k", 9, struct.pack("<IQ", 8, 2**64 - 1))]), "ends within string 0 of"),
    (build([tensor("a", [2**62] * 4, 0, 0)], [], bytes(99)), "a shape that overflows"),
    (build([tensor("a", [2**40], 0, 0)], [], bytes(99)), "pass the 99 bytes of data"),
    (build(TWO, [], bytes(64)), "overlap"),
]


@pytest.mark.parametrize("file, sentence", BAD, ids=[sentence for _, sentence in BAD])
def test_malformed(load, file, sentence):
    with pytest.raises(vkattn.VkattnError, match=sentence) as error:
        load(file)
    assert "x.gguf: " in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(vkattn.FileError, match="none.gguf: cannot open: "):
        vkattn.GGUF(tmp_path / "none.gguf")
    for name in ("a\0b", "\ud800"):
        with pytest.raises(vkattn.FileError, match="cannot open: "):
            vkattn.GGUF(tmp_path / name)
    with pytest.raises(vkattn.FileError, match="not a regular file"):
        vkattn.GGUF(tmp_path)


# ---- A model in several files -------------------------------------------------------------------

ARCHITECTURE = key("general.architecture", 8, string("llama"))
EPSILONS = key("x.epsilons", 9, struct.pack("<IQ2f", 6, 2, float("nan"), 1))


def split_keys(no, count, total):
    return [
        key("split.no", 2, struct.pack("<H", no)),
        key("split.count", 2, struct.pack("<H", count)),
        key("split.tensors.count", 5, struct.pack("<i", total)),
    ]


def shard(no, count, total, names, keys=()):
    """Tensors of one number each: the index of the part times 100, and that in it."""
    tensors = [tensor(name, [1], 0, 32 * i) for i, name in enumerate(names)]
    values = b"".join(struct.pack("<f28x", 100 * no + i) for i in range(len(names)))
    return build(tensors, [*keys, *split_keys(no, count, total)], values)


def three(total=3):
    keys = [ARCHITECTURE, EPSILONS]
    return [
        shard(0, 3, total, "ba", keys),
        shard(1, 3, total, "", [EPSILONS]),
        shard(2, 3, total, "c", [key("general.alignment", 4, struct.pack("<I", 32))]),
    ]


@pytest.fixture
def write_shards(tmp_path):
    def write(files):
        paths = []
        for i, file in enumerate(files):
            paths.append(tmp_path / f"m-{i + 1:05}-of-{len(files):05}.gguf")
            if file is not None:
                paths[i].write_bytes(file)
        return paths

    return write


def test_shards(write_shards):
    for path in write_shards(three()):
        file = vkattn.GGUF(path)
        assert file.names == ["b", "a", "c"]
        assert [file.array(name)[0] for name in file.names] == [0, 1, 200]
        assert file.metadata["general.architecture"] == "llama" and file.path == str(path)


def changed(i, file, total=3):
    files = three(total)
    files[i] = file
    return files


C = shard(2, 3, 3, "c", [key("general.architecture", 8, string("bert"))])
BAD_SHARDS = [
    (changed(1, None), 1, "cannot open.*shard 2 of 3 of a model"),
    (changed(0, None), 0, "cannot open.*shard 1 of 3 of a model"),
    (changed(2, b"GGUF"), 2, "too few for a GGUF file.*shard 3 of 3 of a model"),
    (changed(2, three()[1]), 2, "shard 2 of 3 by its keys, but shard 3 of 3 by its name"),
    (changed(2, C), 2, "another model: shard 1 has another value of key 'general.architecture'"),
    (changed(2, shard(2, 3, 3, "a")), 2, "'a' .*shard 1"),
    (three(4), 0, "split.tensors.count is 4"),
]


@pytest.mark.parametrize("files, named, sentence", BAD_SHARDS, ids=[s for _, _, s in BAD_SHARDS])
def test_bad_shards(write_shards, files, named, sentence):
    paths = write_shards(files)
    for i, path in enumerate(paths):
        if files[i] is None or (i and i == named):
            continue  # a sentence of its own
        with pytest.raises(vkattn.VkattnError, match=sentence) as error:
            vkattn.GGUF(path)
        assert str(error.value).startswith(f"{paths[named]}: ")


def test_names_of_shards(load):
    with pytest.raises(vkattn.FileError, match="-00001-of-00003.gguf"):
        load(three()[0])
    count = key("split.count", 2, struct.pack("<H", 2))
    with pytest.raises(vkattn.FileError, match="there is no key split.no"):
        load(build(keys=[count]))
    assert load(build(keys=[key("split.count", 4, struct.pack("<I", 1))])).names == []


def test_random_checkpoints(load, request):
    """Each mutant is refused with a sentence, or all of it can be read."""
    rng = random.Random(request.config.getoption("--seed"))
    good = build([tensor("a", [2, 32], 8, 0), tensor("b", [4], 0, 96)], KEYS, bytes(112))
    for _ in range(request.config.getoption("--checkpoints")):
        file = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 4))):
            file[rng.randrange(len(file) - 100)] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
        try:
            read = load(bytes(file[: rng.choice((len(file), rng.randrange(len(file))))]))
            for name in read.names:
                if read.type(name) in ("f32", "f16", "q8_0", "q4_0"):
                    read.array(name)
                read.raw(name).sum()
        except vkattn.VkattnError as error:
            assert "x.gguf: " in str(error)
