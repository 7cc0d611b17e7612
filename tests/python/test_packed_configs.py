"""Keys of quantization_config and scales as other programs write them."""

import numpy as np
import oracle
import pytest
from packed_formats import (
    COLUMNS,
    NAME,
    OUT,
    compressed_fp8,
    compressed_integers,
    e4m3,
    f8_values,
    fp8,
    put,
    read,
    typed,
    write,
)

import vkattn
from vkattn.models._source import FolderWeights

AUTO = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}


def values_of(blocks):
    values = vkattn.dequantize(blocks.data, blocks.dtype).astype(float)
    return values if blocks.scale is None else values * blocks.scale[:, None].astype(float)


def test_autofp8(device, rng, tmp_path):
    """weight_scale is weight_scale_inv by another name, and input_scale has no effect."""
    bits, scale = f8_values(rng, OUT, COLUMNS), np.float32(0.3)
    for one in (np.array(scale), np.array([scale])):
        stored = {"weight": typed(bits, "F8_E4M3"), "weight_scale": one, "input_scale": np.float32([0.1])}
        folder = write(tmp_path / "x", put(stored), AUTO)
        weights = FolderWeights(str(folder), device, None, AUTO)
        blocks = weights._matrix(f"{NAME}.weight", OUT, COLUMNS)
        weights.finish(lambda name: False)
        assert weights.unused == [f"{NAME}.input_scale"] and blocks.dtype == "f8_e4m3_g64"
        want = (e4m3(bits) * float(scale)).astype(np.float32)
        np.testing.assert_array_equal(values_of(blocks), want)
    both = {**stored, "weight_scale_inv": np.array(scale)}
    with pytest.raises(vkattn.FileError, match="_scale_inv: there is .*up_proj.weight_scale as well"):
        read(device, write(tmp_path / "x", put(both), AUTO), AUTO)


def test_blocks_of_fp8(device, rng, tmp_path):
    """Without weight_block_size scales of two axes are of 128 x 128; null says that there is one."""
    for block, null in (((128, 128), False), (None, False), (None, True)):
        stored, weight, quantization, _ = fp8(rng, block=block)
        if not null:
            del quantization["weight_block_size"]
        blocks = read(device, write(tmp_path / "x", put(stored), quantization), quantization)
        np.testing.assert_array_equal(values_of(blocks), weight.astype(np.float32))
    stored, weight, quantization, _ = fp8(rng, block=(128, 128))
    quantization["weight_block_size"] = None
    with pytest.raises(vkattn.FileError, match=r"expected \[1, 1\] scales of the tensor"):
        read(device, write(tmp_path / "x", put(stored), quantization), quantization)
    stored, weight, quantization, _ = fp8(rng, block=(64, 64))
    del quantization["weight_block_size"]
    with pytest.raises(vkattn.FileError, match=r"expected \[2, 2\] scales of 128 x 128 values"):
        read(device, write(tmp_path / "x", put(stored), quantization), quantization)


def float_rows(rng, bits, out=OUT, columns=COLUMNS, plain=False):
    """Integers by rows whose scales are no float16."""
    stored, _, quantization, kind = compressed_integers(rng, bits, None, out=out, columns=columns, plain=plain)
    scales = rng.uniform(0.001, 0.002, (out, 1)).astype(np.float32)
    values = stored["weight"].astype(float) if plain else unpacked(stored, bits)
    return {**stored, "weight_scale": scales}, values * scales.astype(float), quantization, kind


def unpacked(stored, bits):
    words = stored["weight_packed"].view(np.uint32)
    parts = [(words >> np.uint32(bits * i)) & np.uint32(2**bits - 1) for i in range(32 // bits)]
    return np.stack(parts, -1).reshape(len(words), -1).astype(float) - 2 ** (bits - 1)


@pytest.mark.parametrize("bits, plain", [(8, True), (8, False), (4, False)])
def test_float_scales_of_rows(device, rng, tmp_path, bits, plain):
    """They multiply sums, as blocks have float16 alone; a product is that of the values."""
    stored, weight, quantization, kind = float_rows(rng, bits, plain=plain)
    folder = write(tmp_path / "x", put(stored), quantization)
    blocks = read(device, folder, quantization)
    assert blocks.dtype == kind and blocks.scale.shape == (OUT,)
    np.testing.assert_array_equal(values_of(blocks), weight)
    weights = FolderWeights(str(folder), device, None, quantization)
    made = weights.linear(NAME, OUT, COLUMNS, bias=False)
    np.testing.assert_array_equal(made.scale.read(), stored["weight_scale"][:, 0])
    x = rng.standard_normal((3, COLUMNS), np.float32)
    output, plan = device.empty((3, OUT)), vkattn.Plan(device)
    plan.linear(device.tensor(x), made.weight, output, weight_scale=made.scale)
    plan.finish().run()
    assert oracle.nmse(output.read(), x.astype(float) @ weight.T) < 1e-10


def test_group_size_of_rows(device, rng, tmp_path):
    """-1 is none, and by itself says rows."""
    stored, weight, quantization, _ = compressed_fp8(rng)
    said = quantization["config_groups"]["group_0"]["weights"]
    for change in ({"group_size": -1}, {"group_size": -1, "strategy": None}):
        said.update(change)
        blocks = read(device, write(tmp_path / "x", put(stored), quantization), quantization)
        np.testing.assert_array_equal(values_of(blocks), weight.astype(np.float32))
    said.update(strategy="group")
    with pytest.raises(vkattn.UnsupportedError, match="strategy 'group' is not supported with group_size"):
        read(device, write(tmp_path / "x", put(stored), quantization), quantization)
