"""Models by the command, beside vkattn.models; its file is named by VKATTN_TOOL."""

import os
import subprocess

import models_oracle as tiny
import pytest
import test_models_gguf as gguf

import vkattn
import vkattn.models

pytestmark = pytest.mark.skipif(
    "VKATTN_TOOL" not in os.environ, reason="VKATTN_TOOL names no vkattn: NO COMMAND WAS TRIED"
)


def command(*words, code=0):
    """What it prints; on standard error where it fails."""
    done = subprocess.run(
        [os.environ["VKATTN_TOOL"], *map(str, words)], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == code, done.stderr
    return done.stderr.splitlines()[-1] if code else done.stdout


@pytest.fixture
def path(tmp_path):
    config, tensors = gguf.made("llama")
    gguf.write(tmp_path / "model.gguf", tensors, gguf.keys_of(config, "llama"))
    return tmp_path / "model.gguf"


def test_generate(device, path):
    model = vkattn.models.load(path, vkattn.models.Decoder, device=device)
    ids = ",".join(map(str, gguf.IDS))
    common = [path, "--device", device.info.index, "--timeout", 3600]
    found = command("generate", *common, "--ids", ids, "--tokens", 4)
    assert found == " ".join(map(str, model.generate(gguf.IDS, 4, stop=()))) + "\n"
    drawn = [
        command("generate", *common, "--ids", ids, "--temperature", 3, "--seed", seed)
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0].split()) == 64
    with pytest.raises(vkattn.InvalidError, match="expected class Encoder, got Decoder"):
        vkattn.models.load(path, vkattn.models.Encoder, device=device)


def test_refused(path):
    for words, said in (
        (["generate"], "vkattn generate: expected one GGUF file, got 0"),
        (["generate", path], "vkattn generate: --ids: expected, but not given"),
        (["generate", path, "--ids", "1,x"], "numbers with commas between, got '1,x'"),
        (["generate", path, "--ids", tiny.LLAMA["vocab_size"]], "is not below"),
        (["embed", path, path, "--ids", "1"], "expected one folder or GGUF file, got 2"),
        (["embed", path, "--ids", "1"], 'general.architecture: is not "bert"'),
        (["embed", path, "--ids", "1", "--output", path], "--output"),
    ):
        assert said in command(*words, code=2)
