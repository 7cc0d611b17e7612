"""The programs of examples/ that are for copying, run with models made here."""

import contextlib
import io
import os
import runpy
import subprocess
from pathlib import Path

import models_oracle as tiny
import pytest
from test_models_gguf import IDS, keys_of, made, write

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def main_of(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A tiny Llama as a GGUF file, and what it continues IDS by."""
    config, tensors = made("llama")
    path = tmp_path_factory.mktemp("llama") / "model.gguf"
    seen = write(path, tensors, keys_of(config, "llama"), quantise=("embed", "_proj"))
    found, gap = tiny.greedy(tiny.LlamaOracle(config, seen), IDS, 6)
    assert gap > 1e-4
    return path, found


def test_models(device, llama):
    path, want = llama
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main_of("models")(str(path), ",".join(map(str, IDS)), 6)
    assert [int(word) for word in printed.getvalue().split()] == want


def test_llama(device, llama):
    """The C program, from the build tree whose library is tested."""
    path, want = llama
    program = Path(os.environ["VKATTN_LIBRARY"]).with_name("examples") / "llama"
    if not program.exists():
        pytest.skip(f"{program} IS NOT BUILT")
    program = [*os.environ.get("VKATTN_DRIVER", "").split(), str(program)]
    command = [*program, path, "6", *map(str, IDS)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [int(word) for word in printed.split()] == want
    done = subprocess.run([*program, "/no/such/file", "6", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and "/no/such/file" in done.stderr


def test_training(device):
    pytest.importorskip("torch", reason="PyTorch IS NOT INSTALLED")
    assert main_of("train")() < 0.4


def test_compiled(device):
    pytest.importorskip("torch", reason="PyTorch IS NOT INSTALLED")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main_of("torch_compile")(backend="aot_eager") < 1e-5
    assert "True True" in printed.getvalue()


def test_hook(device):
    pytest.importorskip("transformers", reason="transformers IS NOT INSTALLED")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert 0 < main_of("transformers_hook")() < 1e-5
    assert len(printed.getvalue().split("[")[1].split(",")) == 8
