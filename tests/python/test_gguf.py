"""GGUF files: read whole, or an exception with a sentence."""

import random
import struct

import numpy as np
import pytest

import vkattn
from vkattn import _gguf
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


@pytest.mark.parametrize("number", _gguf._TYPES)
def test_types(load, number):
    name, values, size = _gguf._TYPES[number]
    file = load(build([tensor("a", [2, values], number, 0)], [], bytes(2 * size)))
    assert file.type("a") == name and file.raw("a").shape == (2, size)
    known = ffi.new("uint32_t[2]")
    if name.lower() in DTYPES:
        assert lib.vka_dtype_block(DTYPES[name.lower()], known, known + 1) == 0
        assert list(known) == [values, size]
    if name in _gguf._DENSE or name.lower() in DTYPES:
        assert file.array("a").shape == (2, values) and not file.array("a").any()
    else:
        with pytest.raises(vkattn.UnsupportedError, match=f"type {name} is not supported"):
            file.array("a")


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
BAD = [
    (b"", "cannot be read"),
    (b"GGUF", "it ends within its version"),
    (b"ggml" + bytes(20), "does not begin with GGUF"),
    (build(version=1), "version 1 is not supported"),
    (build(version=0x03000000), "big-endian"),
    (build()[:20], "it ends within its counts"),
    (build(keys=KEYS[:1] * 2), "key 'u' occurs twice"),
    (build(keys=[key("", 0, b"1")]), "the name of key 0"),
    (build(keys=[key("\0", 0, b"1")]), "the name of key 0"),
    (build(keys=[key(b"\xff", 0, b"1")]), "the name of key 0"),
    (build(keys=[key("k", 13, b"1")]), "a type of 0 to 12"),
    (build(keys=[key("k", 7, b"\2")]), "a bool of 0 or 1"),
    (build(keys=[key("k", 9, struct.pack("<IQ", 9, 0))]), "an array of arrays"),
    (build(keys=[key("k", 9, struct.pack("<IQ", 0, 2**64 - 1))]), "it ends within key 'k'"),
    (build(keys=[key("k", 9, struct.pack("<IQ", 8, 2**64 - 1))]), "it ends within key 'k'"),
    (build(keys=[key("k", 8, struct.pack("<Q", 2**63))]), "it ends within key 'k'"),
    (build(keys=[key("general.alignment", 4, struct.pack("<I", 24))]), "a power of two"),
    (build(keys=[key("general.alignment", 10, struct.pack("<Q", 32))]), "expected a u32"),
    (build([tensor("n" * 65, [1], 0, 0)], [], bytes(4)), "the name of tensor 0"),
    (build([ONE, ONE], [], bytes(8)), "tensor 'a' occurs twice"),
    (build([tensor("a", [1] * 5, 0, 0)], [], bytes(4)), "at most 4 axes"),
    (build([tensor("a", [32], 9, 0)], [], bytes(99)), "type 9 is not known"),
    (build([tensor("a", [33], 8, 0)], [], bytes(99)), "rows of whole blocks"),
    (build([tensor("a", [1], 0, 8)], [], bytes(99)), "an offset of whole 32 bytes"),
    (build([tensor("a", [2**62] * 4, 0, 0)], [], bytes(99)), "its shape overflows"),
    (build([tensor("a", [2**62, 0, 4], 0, 0)], [], bytes(99)), "its shape overflows"),
    (build([tensor("a", [2**40], 0, 0)], [], bytes(99)), "within the data of tensor 'a'"),
    (build([tensor("a", [1], 0, 2**64 - 32)], [], bytes(99)), "within the data of tensor 'a'"),
    (build(TWO, [], bytes(64)), "tensors 'a' and 'b' overlap"),
]


@pytest.mark.parametrize("file, sentence", BAD, ids=[sentence for _, sentence in BAD])
def test_malformed(load, file, sentence):
    with pytest.raises(vkattn.VkattnError, match=sentence) as error:
        load(file)
    assert "x.gguf: " in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(vkattn.FileError, match="cannot be read"):
        vkattn.GGUF(tmp_path / "none.gguf")
    with pytest.raises(vkattn.FileError, match="not a regular file"):
        vkattn.GGUF(tmp_path)


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
