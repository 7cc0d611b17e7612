"""What a path leads to: what is expected there, and the next step where it is another thing."""

from __future__ import annotations

import os

from .._errors import FileError, UnsupportedError

_EXPECTED = "expected a folder with config.json and safetensors files, or a GGUF file"
# How names of files end, what they are, and what to do.
_PICKLE = "weights by PyTorch's pickle, which may run code"
_CONVERT = "convert them by `save_pretrained(DIR)` of transformers"
_SOURCE = "get the model that it was made from"
_OTHERS = (
    (".onnx", "a graph of ONNX", _SOURCE),
    *((end, _PICKLE, _CONVERT) for end in (".bin", ".pt", ".pth", ".ckpt")),
    (".h5", "weights of TensorFlow", _CONVERT + " 4"),
    (".msgpack", "weights of Flax", _CONVERT + " 4"),
    (".npz", "arrays of numpy, as MLX has them", _SOURCE),
    (".tflite", "a model of TensorFlow Lite", _SOURCE),
)


def check_path(place: str) -> None:
    """Refuses what is neither a folder nor a file, such as a name on a hub."""
    if os.path.exists(place):
        if os.path.isfile(place) and not place.endswith(".gguf"):
            _refuse_others(place, [os.path.basename(place)])
        return
    more = ""
    if place.count("/") == 1 and not place.startswith((".", "/", "~")) and place[-1] != "/":
        more = f": nothing is downloaded; `hf download {place} --local-dir DIR` does it"
    raise FileError(f"{place}: there is no such file or folder{more}; {_EXPECTED}")


def check_folder(folder: str, *needed: str) -> None:
    """Refuses a folder that has none of the needed files, by what it has in their place."""
    names = sorted(os.listdir(folder))
    if "adapter_config.json" in names:
        raise UnsupportedError(
            f"{folder}: adapter_config.json: adapters are not supported: merge it into the model's"
            " weights by `merge_and_unload` of peft"
        )
    if not set(needed).isdisjoint(names):
        return
    gguf = [name for name in names if name.endswith(".gguf")]
    if gguf:
        raise FileError(f"{folder}: give the path of a GGUF file in it, such as {gguf[0]}")
    if "model.bin" in names and any("vocabulary" in name for name in names):
        raise UnsupportedError(
            f"{folder}: model.bin is of CTranslate2, which is not supported: get the model that it was"
            f" converted from; {_EXPECTED}"
        )
    _refuse_others(folder, names)
    raise FileError(f"{folder}: there is no {needed[0]}; {_EXPECTED}")


def _refuse_others(place: str, names: list[str]) -> None:
    for end, what, step in _OTHERS:
        found = [name for name in names if name.endswith(end)]
        if found:
            raise UnsupportedError(
                f"{place}: {found[0]} is {what}, which is not supported: {step}; {_EXPECTED}"
            )
