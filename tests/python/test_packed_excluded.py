"""Lists of modules in quantization_config whose weights stay floats, and that are packed."""

import json

import pytest
from test_int4 import config_of
from test_int4 import draw as draw_int4
from packed_formats import COLUMNS, NAME, OUT, compressed_fp8, fp8, model_opt_fp8, put, read, typed, write

import vkattn

# Who writes a list, its key, names that are of NAME (model.layers.0.mlp.up_proj), and others.
LISTS = [
    (fp8, "modules_to_not_convert", ["up_proj", "mlp.up_proj", NAME, "model.layers.0", "model.layers.0.", "model.layers.0.*", r"model.layers.\d+.mlp"]),
    (fp8, "modules_to_not_convert", None, ["lm_head", "p_proj", "model.layers.0.mlp.up", "layers.0", "[(", "a{99999999999}"]),
    (fp8, "ignored_layers", [NAME, "model.layers.0.mlp"]),
    (fp8, "ignored_layers", None, ["lm_head", "model.layers.1"]),
    (compressed_fp8, "ignore", [NAME, "re:.*up_proj", r"re:model\.layers\.0"]),
    (compressed_fp8, "ignore", None, ["lm_head", "up_proj", "re:up_proj", "re:.*gate_proj$"]),
    (model_opt_fp8, "exclude_modules", [NAME, "*up_proj*", "model.layers.0*"]),
    (model_opt_fp8, "exclude_modules", None, ["lm_head", "up_proj", "model.layers.1*"]),
    (model_opt_fp8, "ignore", [NAME]),
]


@pytest.mark.parametrize("make, key, named, others", [(*x, [])[:4] for x in LISTS])
def test_excluded(device, rng, tmp_path, make, key, named, others):
    """What a list leaves as floats, and is packed, is refused by its name."""
    stored, _, quantization, _ = make(rng)
    quantization.pop("ignore", None)
    for pattern in named or ():
        told = {**quantization, key: ["lm_head", pattern]}
        match = f"{NAME}: its weight is packed, but .*: {key} "
        with pytest.raises(vkattn.FileError, match=match):
            read(device, write(tmp_path / "x", put(stored), told), told)
    if others:
        told = {**quantization, key: others}
        assert read(device, write(tmp_path / "x", put(stored), told), told).shape == (OUT, COLUMNS)
    for bad in ("re:(", "re:a{99999999999}") if key == "ignore" else ():
        told = {**quantization, key: [bad]}
        with pytest.raises(vkattn.FileError, match=f"{key} .*: not a regular expression"):
            read(device, write(tmp_path / "x", put(stored), told), told)
    for odd in ("up_proj", [3], {}):
        told = {**quantization, key: odd}
        with pytest.raises(vkattn.FileError, match=f"{key}: expected names, got"):
            read(device, write(tmp_path / "x", put(stored), told), told)


@pytest.mark.parametrize("format", ["gptq", "awq"])
def test_excluded_int4(device, rng, tmp_path, format):
    stored, _ = draw_int4(rng, 128, 256, format, 2)
    stored["scales"] = typed(stored["scales"], "F16")
    for names, fits in ((["up_proj"], False), (["lm_head"], True)):
        told = config_of(format, modules_to_not_convert=names)
        folder = write(tmp_path / "x", put(stored), told)
        if fits:
            assert read(device, folder, told, rows=128).shape == (128, 256)
            continue
        with pytest.raises(vkattn.FileError, match="modules_to_not_convert 'up_proj' says that it is not"):
            read(device, folder, told, rows=128)


def test_excluded_beside(device, rng, tmp_path):
    """By hf_quant_config.json too."""
    stored, _, quantization, _ = model_opt_fp8(rng)
    folder = write(tmp_path / "x", put(stored), None)
    said = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["*up_proj*"]}}
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    with pytest.raises(vkattn.FileError, match="hf_quant_config.json: quantization: exclude_modules"):
        read(device, folder, None)
