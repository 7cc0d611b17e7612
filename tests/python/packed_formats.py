"""Weights as checkpoints of float8, nf4, nvfp4, mxfp4 and compressed integers store them, with the values
of each format's formula in double."""

import json
import struct

import numpy as np

from vkattn.models._source import FolderWeights

OUT, COLUMNS = 136, 256
NAME = "model.layers.0.mlp.up_proj"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


class Typed(np.ndarray):
    """An array that a file has by another type's name."""

    kind = ""


def typed(array, kind):
    made = np.ascontiguousarray(array).view(Typed)
    made.kind = kind
    return made


KINDS = {"float32": "F32", "float16": "F16", "uint16": "BF16", "uint8": "U8", "int8": "I8"}
KINDS.update({"int32": "I32", "int64": "I64"})


def write(folder, tensors, quantization, config=None):
    header, data = {}, b""
    for name, array in tensors.items():
        blob = np.asarray(array).tobytes()
        header[name] = {
            "dtype": getattr(array, "kind", "") or KINDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(blob)],
        }
        data += blob
    folder.mkdir(exist_ok=True)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    made = {**(config or {}), "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(made))
    return folder


def e4m3(bits):
    """Numbers of 8 bits in double, by their fields."""
    exponent, mantissa = (bits >> 3 & 15).astype(int), (bits & 7).astype(float)
    size = np.where(exponent > 0, 8 + mantissa, mantissa) * 2.0 ** (np.maximum(exponent, 1) - 10)
    size[bits & 127 == 127] = np.nan
    return np.where(bits & 128, -size, size)


def e5m2(bits):
    return (bits.astype(np.uint16) << 8).view(np.float16).astype(float)


def bf16(x):
    """Halves, and what they are in double."""
    halves = (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return halves, (halves.astype(np.uint32) << 16).view(np.float32).astype(float)


def f8_values(rng, out, columns, decode=e4m3):
    """All finite numbers of 8 bits, of which the first ones stand in order."""
    every = np.arange(256, dtype=np.uint8)
    every = every[np.isfinite(decode(every))]
    bits = every[rng.integers(0, len(every), (out, columns))]
    bits.reshape(-1)[: len(every)] = every
    return bits


def spread(scales, out, columns, rows, width):
    return np.repeat(np.repeat(scales, rows, 0), width, 1)[:out, :columns]


# Each: the tensors of a linear layer NAME, its weight in double, the quantization_config, the type of
# blocks, and the least that an error may be.


def fp8(rng, out=OUT, columns=COLUMNS, block=(128, 128), size=1.0, kind="e4m3"):
    decode = e4m3 if kind == "e4m3" else e5m2
    bits = f8_values(rng, out, columns, decode)
    rows, width = block or (out, columns)
    scales = size * rng.uniform(0.5, 1, (-(-out // rows), -(-columns // width))) / 512
    halves, real = bf16(scales)
    weight = decode(bits) * spread(real, out, columns, rows, width)
    stored = {"weight": typed(bits, f"F8_{kind.upper()}"), "weight_scale_inv": halves}
    if not block:
        stored["weight_scale_inv"] = halves.reshape(())
    config = {"quant_method": "fp8", "fmt": kind, "activation_scheme": "dynamic"}
    return stored, weight, {**config, "weight_block_size": block and list(block)}, f"f8_{kind}_g64"


def compressed(format, **weights):
    group = {"targets": ["Linear"], "weights": {"symmetric": True, "dynamic": False, **weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def compressed_fp8(rng, out=OUT, columns=COLUMNS, size=1.0):
    bits = f8_values(rng, out, columns)
    halves, real = bf16(size * rng.uniform(0.5, 1, (out, 1)) / 512)
    config = compressed("float-quantized", num_bits=8, type="float", strategy="channel")
    stored = {"weight": typed(bits, "F8_E4M3"), "weight_scale": halves}
    return stored, e4m3(bits) * real, config, "f8_e4m3_g64"


def words(values, bits):
    """[rows][columns] from the lowest bits on."""
    per = 32 // bits
    packed = np.zeros((values.shape[0], values.shape[1] // per), np.uint32)
    for i in range(per):
        packed |= values[:, i::per].astype(np.uint32) << np.uint32(bits * i)
    return packed.view(np.int32)


def compressed_integers(
    rng, bits, group, zeros=False, out=OUT, columns=COLUMNS, size=1.0, plain=False
):
    values = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (out, columns))
    scales = size * rng.uniform(0.5, 1, (out, columns // group if group else 1)) / 2**bits
    halves, real = bf16(scales)
    strategy = "group" if group else "channel"
    config = compressed("pack-quantized", num_bits=bits, type="int", strategy=strategy, group_size=group)
    stored = {"weight_scale": halves}
    bias = 2 ** (bits - 1)
    if plain:
        stored["weight"] = values.astype(np.int8)
    else:
        stored["weight_packed"] = words(values + bias, bits)
        stored["weight_shape"] = np.array([out, columns], np.int64)
    zero = np.zeros(scales.shape, int)
    if zeros:
        zero = rng.integers(-8, 8, scales.shape)
        stored["weight_zero_point"] = words((zero + 8).T, bits).T.copy()
        config["config_groups"]["group_0"]["weights"]["symmetric"] = False
    width = group or columns
    weight = (values - spread(zero, out, columns, 1, width)) * spread(real, out, columns, 1, width)
    kind = "q8_0" if bits == 8 else "i4_g128" if width % 128 == 0 else "q4_0"
    return stored, weight, config, kind


def fours(rng, out, columns):
    q = rng.integers(0, 16, (out, columns), dtype=np.uint8)
    return q, q[:, ::2] | q[:, 1::2] << 4


def nvfp4(rng, out=OUT, columns=COLUMNS, size=1.0, model_opt=False):
    q, packed = fours(rng, out, columns)
    scales = rng.integers(0, 0x7F, (out, columns // 16), dtype=np.uint8)
    factor = np.float32(size / 2048 * 1.1)
    stored = {"weight_scale": typed(scales, "F8_E4M3")}
    if model_opt:
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
        stored.update(weight=packed, weight_scale_2=np.array(factor), input_scale=np.float32([1]))
    else:
        group = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
        config = compressed("nvfp4-pack-quantized", **group)
        stored.update(weight_packed=packed, weight_global_scale=np.array([1 / factor], np.float32))
        factor = 1 / stored["weight_global_scale"].astype(float)
    weight = E2M1[q] * np.repeat(e4m3(scales), 16, 1) * float(np.ravel(factor)[0])
    return stored, weight, config, "nvfp4"


def model_opt_fp8(rng, out=OUT, columns=COLUMNS, size=1.0):
    bits, scale = f8_values(rng, out, columns), np.array(np.float32(size / 512 * 1.1))
    stored = {"weight": typed(bits, "F8_E4M3"), "weight_scale": scale}
    stored["input_scale"] = np.array(np.float32(0.1))
    config = {"quant_method": "modelopt", "quant_algo": "FP8"}
    return stored, e4m3(bits) * float(scale), config, "f8_e4m3_g64"


def mxfp4(rng, out=OUT, columns=COLUMNS):
    q, packed = fours(rng, out, columns)
    scales = rng.integers(110, 140, (out, columns // 32), dtype=np.uint8)
    config = compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32)
    weight = E2M1[q] * np.repeat(2.0 ** (scales.astype(int) - 127), 32, 1)
    return {"weight_packed": packed, "weight_scale": scales}, weight, config, "mxfp4"


NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)


def nf4(rng, out=OUT, columns=COLUMNS, nested=True, block=64, size=1.0):
    q = rng.integers(0, 16, (out, columns), dtype=np.uint8)
    packed = (q[:, ::2] << 4 | q[:, 1::2]).reshape(-1, 1)
    count = out * columns // block
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": [out, columns]}
    stored = {"weight": packed, "weight.quant_map": NF4}
    if nested:
        codes = rng.integers(0, 256, count, dtype=np.uint8)
        table = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
        outer = (size * rng.uniform(0.1, 0.2, -(-count // 256))).astype(np.float32)
        state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=0.3 * size)
        stored["weight.absmax"] = codes
        stored["weight.nested_absmax"], stored["weight.nested_quant_map"] = outer, table
        # Two roundings, as the formula is two operations on float32.
        scales = table[codes] * np.repeat(outer, 256)[:count] + np.float32(0.3 * size)
    else:
        scales = (size * rng.uniform(0.1, 0.5, count)).astype(np.float32)
        scales[1] = 0  # of a block of zeros
        stored["weight.absmax"] = scales
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    stored["weight.quant_state.bitsandbytes__nf4"] = text
    weight = NF4[q].astype(float) * np.repeat(scales.astype(float), block).reshape(out, columns)
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    return stored, weight, {**config, "bnb_4bit_use_double_quant": nested}, "nf4_g64"


CASES = {
    "fp8": fp8,
    "fp8 of the tensor": lambda rng: fp8(rng, block=None),
    "fp8 e5m2": lambda rng: fp8(rng, kind="e5m2"),
    "fp8 of few rows": lambda rng: fp8(rng, block=(64, 192)),
    "compressed fp8": compressed_fp8,
    "int4 by 128": lambda rng: compressed_integers(rng, 4, 128),
    "int4 with zero points": lambda rng: compressed_integers(rng, 4, 128, zeros=True),
    "int4 by 32": lambda rng: compressed_integers(rng, 4, 32),
    "int4 by 64": lambda rng: compressed_integers(rng, 4, 64),
    "int4 by row": lambda rng: compressed_integers(rng, 4, None),
    "int8 by row": lambda rng: compressed_integers(rng, 8, None),
    "int8 by 64, plain": lambda rng: compressed_integers(rng, 8, 64, plain=True),
    "nvfp4": nvfp4,
    "nvfp4 of ModelOpt": lambda rng: nvfp4(rng, model_opt=True),
    "mxfp4": mxfp4,
    "fp8 of ModelOpt": model_opt_fp8,
    "nf4": nf4,
    "nf4 by 128, plain": lambda rng: nf4(rng, nested=False, block=128),
}


def put(stored, name=NAME):
    return {f"{name}.{kind}": array for kind, array in stored.items()}


def read(device, folder, quantization, rows=OUT, columns=COLUMNS):
    weights = FolderWeights(str(folder), device, None, quantization)
    made = weights._matrix(f"{NAME}.weight", rows, columns)
    weights.finish(lambda name: False)
    return made
