"""Models by the command, beside vkattn.models; its file is named by VKATTN_TOOL."""

import importlib.util
import os
import struct
import subprocess
from pathlib import Path

import models_oracle as tiny
import numpy as np
import pytest
import test_families
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


# Those that have what others have, and what they alone have; --families: all.
FEW = ("gemma3", "bloom", "phi3")
FAMILIES = [*(x for x in test_families.GGUF_CASES if x != "gpt2"), "phi3", "qwen2", "qwen3"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_families_of_c(device, tmp_path, kind, request):
    """The ids that Python draws, past a window: at a high temperature a small change shows."""
    if kind not in FEW and not request.config.getoption("--families"):
        pytest.skip("NOT ASKED FOR: --families TRIES EACH FAMILY OF THE COMMAND")
    path = tmp_path / "model.gguf"
    if kind in test_families.GGUF_CASES:
        case, _, more = test_families.GGUF_CASES[kind]
        test_families.write_gguf(path, kind, case, more)
    else:
        config, tensors = gguf.made(kind)
        gguf.write(path, tensors, gguf.keys_of(config, kind))
    ids = test_families.families.ids_of(30)  # of one chunk: each draws
    model = vkattn.models.load(path, vkattn.models.Decoder, device=device)
    drawn = model.generate(ids, 32, temperature=2.0, seed=7, stop=())
    common = [path, "--device", device.info.index, "--timeout", 3600, "--temperature", 2]
    found = command(
        "generate", *common, "--ids", ",".join(map(str, ids)), "--tokens", 32, "--seed", 7
    )
    assert found == " ".join(map(str, drawn)) + "\n"


def test_table_of_families():
    """families.def is what the rows of Python say."""
    script = Path(__file__).resolve().parents[2] / "tools" / "dev" / "families.py"
    spec = importlib.util.spec_from_file_location("families_of_c", script)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.TABLE.read_text(encoding="utf-8") == made.table()
    assert made.table().count("FAMILY(") == 12  # its first line says what a row is


def test_text(device, tmp_path):
    tokens = [*("<end>", "<begin>", "th", "the", "\u0120the", "\u0120"), *"abcdefghijklmnopqrstuvw"]
    config, _ = gguf.made("llama")
    config["vocab_size"] = len(tokens)
    shapes = tiny.llama_shapes(config)
    shapes |= {f"{x}.weight": (len(tokens), tiny.WIDTH) for x in ("model.embed_tokens", "lm_head")}
    keys = gguf.keys_of(config, "llama")
    kinds = struct.pack(f"<IQ{len(tokens)}i", 5, len(tokens), 3, 3, *[1] * (len(tokens) - 2))
    keys |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
    keys["tokenizer.ggml.tokens"] = gguf.texts("tokenizer.ggml.tokens", tokens)
    merges = ["t h", "th e", "\u0120 the"]
    keys["tokenizer.ggml.merges"] = gguf.texts("tokenizer.ggml.merges", merges)
    keys["tokenizer.ggml.token_type"] = gguf.key("tokenizer.ggml.token_type", 9, kinds)
    path = tmp_path / "text.gguf"
    gguf.write(path, tiny.matrices(np.random.default_rng(3), shapes), keys)
    common = [path, "--device", device.info.index, "--timeout", 3600]
    ids = command("tokens", path, "the the cat").split()
    assert ids == [*"34", *(str(tokens.index(x)) for x in "\u0120cat")]
    end = keys["tokenizer.ggml.eos_token_id"]
    found = command("generate", *common, "--ids", ",".join(ids), "--tokens", 20).split()
    spelt = found[: found.index(str(end))] if str(end) in found else found
    text = "".join(tokens[int(i)] for i in spelt if int(i) > 1).replace("\u0120", " ")
    assert len(text) > 3
    assert command("generate", *common, "the the cat", "--tokens", 20) == text + "\n"


def test_refused(path):
    for words, said in (
        (["generate"], "vkattn generate: expected a GGUF file and a text, or --ids, got 0 words"),
        (["generate", path], "vkattn generate: expected a GGUF file and a text, or --ids, got 1"),
        (["generate", path, "x", "--ids", "1"], "a GGUF file alone, as --ids are given, got 2"),
        (["generate", path, "x"], "tokenizer.ggml.model: expected gpt2 or llama; give --ids"),
        (["generate", path, "--ids", "1,x"], "numbers with commas between, got '1,x'"),
        (["generate", path, "--ids", tiny.LLAMA["vocab_size"]], "is not below"),
        (["embed", path, path, "--ids", "1"], "expected one folder or GGUF file, got 2"),
        (["embed", path, "--ids", "1"], 'general.architecture: is not "bert"'),
        (["embed", path, "--ids", "1", "--output", path], "--output"),
    ):
        assert said in command(*words, code=2)
