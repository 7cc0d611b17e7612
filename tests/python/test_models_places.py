"""Paths that lead to what is no model here: each is refused with what is expected, and a next step."""

import json

import families_encoders as encoders
import pytest

import vkattn
import vkattn.models

CONFIG = json.dumps(encoders.config_of("bert"))
EXPECTED = "; expected a folder with config.json and safetensors files, or a GGUF file"


@pytest.mark.parametrize(
    "files, sentence",
    [
        (["pytorch_model.bin", "config.json"], "pytorch_model.bin is weights by PyTorch's pickle"),
        (["tf_model.h5", "config.json"], "tf_model.h5 is weights of TensorFlow.*transformers 4"),
        (["flax_model.msgpack", "config.json"], "flax_model.msgpack is weights of Flax"),
        (["model.onnx", "config.json"], "model.onnx is a graph of ONNX, which is not supported"),
        (["model.bin", "config.json", "vocabulary.json"], "model.bin is of CTranslate2, which"),
        (["model-q4_0.gguf", "model-q8_0.gguf"], "path of a GGUF file in it, such as model-q4_0.gg"),
        (["adapter_config.json", "adapter_model.safetensors"], "adapters are not supported: merge"),
        (["adapter_config.json", "config.json", "model.safetensors"], "adapters are not supported"),
        (["config.json"], "there is no model.safetensors" + EXPECTED),
        (["model.safetensors"], "there is no config.json" + EXPECTED),
        ([], "there is no config.json" + EXPECTED),
    ],
)
def test_folders(device, tmp_path, files, sentence):
    for name in files:
        (tmp_path / name).write_text(CONFIG if name == "config.json" else "")
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(tmp_path, device=device)


def test_paths(device, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_text("")
    for path, sentence in (
        ("HuggingFaceTB/SmolLM2-135M", "nothing is downloaded; `hf download HuggingFaceTB/SmolLM2-"),
        ("./not/here", "^./not/here: there is no such file or folder" + EXPECTED),
        ("model.onnx", "model.onnx: model.onnx is a graph of ONNX, which is not supported"),
    ):
        with pytest.raises(vkattn.VkattnError, match=sentence):
            vkattn.models.load(path, device=device)


def test_pointers_of_git_lfs(device, tmp_path):
    """What a clone without Git LFS has in place of large files."""
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 538090408\n"
    said = "a pointer of Git LFS, not the file itself: `git lfs pull` gets it"
    for name in ("model.gguf", "model.safetensors", "config.json"):
        (tmp_path / "config.json").write_text(CONFIG)
        (tmp_path / name).write_text(text)
        place = tmp_path / name if name.endswith(".gguf") else tmp_path
        with pytest.raises(vkattn.FileError, match=f"{name}: {said}"):
            vkattn.models.load(place, device=device)
