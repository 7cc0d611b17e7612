"""Host arrays: DLPack, bfloat16, conversions."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import vkattn
from vkattn import _arrays, _dlpack


class Exporter:
    """An array of another library: nothing of it is known but the DLPack protocol."""

    def __init__(self, array, device=(1, 0)):
        self.array = array
        self.device = device

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_dlpack(device, rng, dtype):
    array = (rng.standard_normal((3, 4, 6)) * 100).astype(dtype)
    for view in (array, array[:, ::2], array.transpose(2, 0, 1), array[::-1], array[:1, :1, :1]):
        got = device.tensor(Exporter(view)).read()
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, view)


def test_dlpack_memory_lives_as_long_as_its_view():
    array = np.arange(6.0, dtype=np.float32)
    owner = weakref.ref(array)
    view, name = _dlpack.view(Exporter(array), "x")
    assert name == "float32" and not view.flags.writeable
    del array
    gc.collect()
    assert owner() is not None
    np.testing.assert_array_equal(view, np.arange(6))
    del view
    gc.collect()
    assert owner() is None


def test_tensors_are_exported(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for dtype in ("f32", "f16", "bf16"):
        tensor = device.empty(x.shape, dtype)
        tensor.write(x, dtype)
        copy = np.from_dlpack(tensor)
        assert np.array_equal(copy, tensor.read()) and copy.dtype == tensor.read().dtype
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="without a copy"):
        tensor.__dlpack__(copy=False)
    for call in (
        lambda: vkattn.attention(tensor, tensor, tensor, device=device),
        lambda: tensor.write(tensor),
        lambda: vkattn.quantize(tensor, "q8_0"),
    ):
        with pytest.raises(TypeError, match="expected a host array, got Tensor of a device"):
            call()


def test_dlpack_refusals(device):
    with pytest.raises(vkattn.InvalidError, match="array: expected an array on the CPU"):
        device.tensor(Exporter(np.ones(3, np.float32), device=(2, 0)))
    with pytest.raises(vkattn.InvalidError, match="array: complex64|type code 5"):
        device.tensor(Exporter(np.ones(3, np.complex64)))
    with pytest.raises(vkattn.InvalidError, match="at least 1"):
        device.tensor(Exporter(np.ones((3, 0), np.float32)))

    class Broken(Exporter):
        def __dlpack__(self, **_):
            return "not a capsule"

    with pytest.raises(vkattn.InvalidError, match="its DLPack form cannot be had"):
        device.tensor(Broken(None))


def test_struct_is_dlpacks():
    """Offsets of DLTensor in dlpack.h on a 64-bit machine."""
    offsets = [getattr(_dlpack._Tensor, name).offset for name, *_ in _dlpack._Tensor._fields_]
    assert offsets == [0, 8, 12, 16, 20, 21, 22, 24, 32, 40]
    assert ctypes.sizeof(_dlpack._Tensor) == 48


def test_bfloat16_rounds_to_nearest_even(device):
    bits = np.array(
        [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0xFF800000, 0x7F800001],
        np.uint32,
    )
    want = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x7F80, 0xFF80, 0x7FC0]
    narrow = _arrays.host_array(bits.view(np.float32), "x", "bf16").data
    np.testing.assert_array_equal(narrow, np.array(want, np.uint16))
    tensor = device.tensor(bits.view(np.float32), "bf16")
    np.testing.assert_array_equal(tensor.read(), _arrays.widen(narrow))


def test_conversions(device):
    x = np.array([1.0, 1e6, -0.0, np.nan, np.inf])
    for dtype, stored in (("f32", np.float32), ("f16", np.float16)):
        with np.errstate(over="ignore"):
            want = x.astype(stored)
        np.testing.assert_array_equal(device.tensor(x, dtype).read(), want)
    for dtype in ("f32", "bf16"):
        with pytest.raises(vkattn.InvalidError, match="expected floats to make"):
            device.tensor(np.arange(3), dtype)
    with pytest.raises(vkattn.InvalidError, match="array: expected i32, got float64"):
        device.tensor(x, "i32")
    with pytest.raises(vkattn.InvalidError, match="dtype: expected one of f32"):
        device.tensor(x, "float64")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "bool"])
def test_read_into_an_array(device, rng, dtype):
    x = rng.integers(0, 2, (3, 4))
    host = x.astype(np.float32) if dtype == "bf16" else x.astype(_arrays.STORED[dtype])
    tensor = device.tensor(host, "bf16" if dtype == "bf16" else None)
    out = np.full_like(host, 1)
    assert tensor.read(out) is out
    np.testing.assert_array_equal(out, x)
    before = out.copy()
    locked = out.copy()
    locked.flags.writeable = False
    wide = np.zeros((3, 8), out.dtype)[:, ::2]
    for wrong, sentence in (
        (out.T, "out: expected .* .3, 4., got"),
        (out.astype(np.float64), "got float64"),
        (wide, "out: expected a dense"),
        (locked, "out: expected a dense"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            tensor.read(wrong)
    with pytest.raises(TypeError, match="out: expected a numpy array, got list"):
        tensor.read([0])
    np.testing.assert_array_equal(out, before)
    assert not wide.any()
