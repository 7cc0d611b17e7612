"""Models by the command, beside vkattn.models; its file is named by VKATTN_TOOL."""

import importlib.util
import os
import struct
import subprocess
from pathlib import Path

import families
import families_gguf
import models_oracle as tiny
import numpy as np
import pytest
import test_families_gguf
import test_models_gguf as gguf
import test_models_gguf_encoders as encoders
import tiny_encoders

import vkattn
import vkattn.models
from vkattn.models._gguf_rows import ARCHITECTURES

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
    for zero in (0, "0.0"):  # the most likely ones
        assert command("generate", *common, "--ids", ids, "--tokens", 4, "--temperature", zero) == found
    drawn = [
        command("generate", *common, "--ids", ids, "--temperature", 3, "--seed", seed)
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0].split()) == 64
    with pytest.raises(vkattn.InvalidError, match="expected class Encoder, got Decoder"):
        vkattn.models.load(path, vkattn.models.Encoder, device=device)


# Those that have what others have, and what they alone have; --families: all.
FEW = ("gemma3", "bloom", "phi3", "gpt2", "granite", "exaone4", "phi2")
NOT_OF_C = ("hunyuan-dense", "command-r norms", "falcon two norms")
FAMILIES = [*families_gguf.CASES, "phi3", "qwen2", "qwen3"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_families_of_c(device, tmp_path, kind, request):
    """The ids that Python draws, past a window: at a high temperature a small change shows."""
    if kind not in FEW and not request.config.getoption("--families"):
        pytest.skip("NOT ASKED FOR: --families TRIES EACH FAMILY OF THE COMMAND")
    path = tmp_path / "model.gguf"
    if kind in families_gguf.CASES:
        test_families_gguf.write(path, kind)
    else:
        config, tensors = gguf.made(kind)
        gguf.write(path, tensors, gguf.keys_of(config, kind))
    ids = families.ids_of(30)  # of one chunk: each draws
    common = [path, "--device", device.info.index, "--timeout", 3600, "--temperature", 2]
    words = ["generate", *common, "--ids", ",".join(map(str, ids)), "--tokens", 32, "--seed", 7]
    if kind in NOT_OF_C:
        said = command(*words, code=2)
        assert "what this tensor would change" in said or "expected one of llama" in said
        return
    model = vkattn.models.load(path, vkattn.models.Decoder, device=device)
    drawn = model.generate(ids, 32, temperature=2.0, seed=7, stop=())
    found = command(*words)
    assert found == " ".join(map(str, drawn)) + "\n"
    if kind == "gpt2":  # has positions of its own: over several chunks, and no more than there are
        ids = families.ids_of(70)
        common = common[:-2]
        words = ["generate", *common, "--ids", ",".join(map(str, ids)), "--tokens"]
        expected = " ".join(map(str, model.generate(ids, 12, stop=())))
        assert command(*words, 12) == f"{expected}\n"
        ids = families.ids_of(250)  # the last one that is made has no position
        words = ["generate", *common, "--ids", ",".join(map(str, ids)), "--tokens"]
        expected = " ".join(map(str, model.generate(ids, 7, stop=())))
        assert command(*words, 7) == f"{expected}\n"
        said = "--tokens: the model has 256 positions, but 257 are asked for: 250 of the prompt and 7"
        assert said in command(*words, 8, code=2)


def test_refused_keys(tmp_path):
    """What of a key's value, or the want of it, is not followed."""
    config, tensors = gguf.made("llama")
    path, keys = tmp_path / "model.gguf", gguf.keys_of(config, "llama")
    for change, said in (
        ({"attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon: is missing"),
        ({"expert_count": 4}, "llama.expert_count: chosen experts are not supported"),
        ({"expert_used_count": 2.5}, "llama.expert_used_count: is not from 0"),
        ({"rope.scaling.original_context_length": 9, "rope.scaling.factor": 2.0,
          "rope.scaling.type": "linear"}, "original_context_length: it is not known"),
    ):
        gguf.write(path, tensors, {**keys, **{f"llama.{name}": x for name, x in change.items()}})
        assert said in command("generate", path, "--ids", "1", code=2)
    inert = {"expert_count": 0, "expert_used_count": 0, "rope.scaling.original_context_length": 9}
    gguf.write(path, tensors, {**keys, **{f"llama.{name}": x for name, x in inert.items()}})
    assert "--ids: " in command("generate", path, "--ids", tiny.LLAMA["vocab_size"], code=2)
    test_families_gguf.write(path, "gpt2", **{"attention.layer_norm_epsilon": None})
    assert "gpt2.attention.layer_norm_epsilon: is missing" in command("generate", path, "--ids", "1", code=2)


def test_table_of_families():
    """families.def is what the rows of Python say."""
    script = Path(__file__).resolve().parents[2] / "tools" / "dev" / "families.py"
    spec = importlib.util.spec_from_file_location("families_of_c", script)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.TABLE.read_text(encoding="utf-8") == made.table()
    assert made.table().count("\nFAMILY(") == len(ARCHITECTURES) - 1  # but hunyuan-dense


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


def test_ends_of_texts(device, tmp_path):
    """At each id that the file lists, at control tokens with known names; an id that no token has,
    as embeddings may have more rows than there are tokens, prints nothing."""
    config, tensors = gguf.made("llama")
    path = tmp_path / "text.gguf"
    keys = gguf.keys_of(config, "llama")
    keys |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
    keys["tokenizer.ggml.merges"] = gguf.texts("tokenizer.ggml.merges", [])
    letters = [chr(33 + i) for i in range(94)] + ["\u0100", "\u0101"]

    def text(tokens, control=-1, ends=(200,)):
        kinds = [3 if i == control else 1 for i in range(len(tokens))]
        listed = {
            "tokens": gguf.texts("tokenizer.ggml.tokens", tokens),
            "token_type": struct.pack(f"<IQ{len(kinds)}i", 5, len(kinds), *kinds),
            "eos_token_id": struct.pack(f"<IQ{len(ends)}I", 4, len(ends), *ends),
        }
        for name, value in listed.items():
            own = f"tokenizer.ggml.{name}"
            keys[own] = value if name == "tokens" else gguf.key(own, 9, value)
        gguf.write(path, tensors, keys)
        words = ["generate", path, "BC", "--tokens", 20, "--device", device.info.index]
        said = command(*words, "--timeout", 3600)
        stops = vkattn.models.load(path, device=device).stop_ids
        return said.removesuffix("\n"), stops

    whole, _ = text(letters)
    ids = [letters.index(x) for x in whole]
    end = ids[6]
    begin = whole[: ids.index(end)]
    assert len(set(ids)) > 3 and text(letters, ends=(200, end)) == (begin, (200, end))
    named = [*letters[:end], "<|im_end|>", *letters[end + 1 :]]
    assert text(named, control=end) == (begin, (200, end))
    few = letters[: max(ids[:6] + [34, 35])]
    assert text(few)[0].startswith("".join(x for x in whole[:6] if x in few))


def test_embed_nomic(device, tmp_path):
    tensors = encoders.renamed("nomic_bert", encoders.tensors_of("nomic_bert"))
    keys = encoders.keys_of("nomic-bert", "nomic_bert")
    file = encoders.write(tmp_path / "x.gguf", tensors, keys)
    ids = [[2, 5, 9, 7, 11, 30, 3], [2, 40, 3]]
    given = "/".join(",".join(map(str, x)) for x in ids)
    words = ["embed", file, "--ids", given, "--device", device.info.index, "--timeout", 3600]
    found = [line.split() for line in command(*words).splitlines()]
    want = vkattn.models.load(file, device=device).embed(ids)
    assert np.abs(np.array(found, np.float32) - want).max() < 1e-6
    for change, said in (
        ({"nomic-bert.rope.freq_base": 0.5}, "rope.freq_base: is below 1"),
        ({"nomic-bert.attention.layer_norm_epsilon": None}, "layer_norm_epsilon: is missing"),
        ({"nomic-bert.attention.causal": True}, "nomic-bert.attention.causal: is not supported"),
        ({"nomic-bert.expert_count": 2}, "nomic-bert.expert_count: it is not known what this key"),
    ):
        encoders.write(file, tensors, {**keys, **change})
        assert said in command(*words, code=2)


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
def test_embed_t5(device, tmp_path, name):
    """Plain and gated, past the distances that have a bucket of their own."""
    tensors = encoders.renamed("t5", encoders.tensors_of(name))
    tensors = {key: x for key, x in tensors.items() if key.startswith(("enc.", "token_embd"))}
    keys = encoders.keys_of("t5encoder", "t5")
    file = encoders.write(tmp_path / "x.gguf", tensors, keys)
    rng = np.random.default_rng(1)
    ids = [rng.integers(2, 90, n).tolist() for n in (3, 150, 20)]
    given = "/".join(",".join(map(str, x)) for x in ids)
    words = ["embed", file, "--ids", given, "--device", device.info.index, "--timeout", 3600]
    found = [line.split() for line in command(*words).splitlines()]
    want = vkattn.models.load(file, device=device).embed(ids)
    assert np.abs(np.array(found, np.float32) - want).max() < 1e-6
    if name == "t5":
        for change, said in (
            ({"attention.value_length": 4}, "attention.value_length: is not attention.key_length"),
            ({"attention.relative_buckets_count": 6}, "relative_buckets_count: is not supported"),
            ({"attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon: is missing"),
            ({"attention.foo": 6}, "t5encoder.attention.foo: it is not known what this key"),
        ):
            changed = {**keys, **{f"t5encoder.{key}": x for key, x in change.items()}}
            encoders.write(file, tensors, changed)
            assert said in command(*words, code=2)
        more = {**tensors, "enc.blk.1.attn_rel_b.weight": tensors["enc.blk.0.attn_rel_b.weight"]}
        encoders.write(file, more, keys)  # of UMT5
        assert "enc.blk.1.attn_rel_b.weight: it is not known" in command(*words, code=2)


def test_embed(device, tmp_path):
    """Texts have the vectors of their ids: of a GGUF file, and of a folder with vocab.txt."""
    config, tensors = tiny_encoders.BERT, tiny.matrices(np.random.default_rng(7), tiny_encoders.bert_shapes(tiny_encoders.BERT))
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, "the", "cat", "!"]
    goes_on = [*letters, "ing"]
    rest = [f"w{i}" for i in range(tiny.TOKENS - len(words) - len(goes_on))]
    folder = tiny.write_folder(tmp_path / "folder", config, tensors)
    lines = [*words, *(f"##{x}" for x in goes_on), *rest]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    begins = [x if x.startswith("[") else f"\u2581{x}" for x in words]
    keys = encoders.keys_of("bert", "bert") | {"tokenizer.ggml.model": "bert"}
    listed = [*begins, *goes_on, *(f"\u2581{x}" for x in rest)]
    keys["tokenizer.ggml.tokens"] = gguf.texts("tokenizer.ggml.tokens", listed)
    kinds = struct.pack(f"<IQ{len(listed)}i", 5, len(listed), *[3] * 5, *[1] * (len(listed) - 5))
    keys["tokenizer.ggml.token_type"] = gguf.key("tokenizer.ggml.token_type", 9, kinds)
    file = tmp_path / "bert.gguf"
    encoders.write(file, encoders.renamed("bert", tensors), keys)
    ids = [[2, lines.index("the"), lines.index("cat"), lines.index("##s"), lines.index("!"), 3]]
    ids.append([2, lines.index("s"), *(lines.index(x) for x in ("##ing", "##ing")), 1, 3])
    texts = ["The c\u00e0ts!", "singing \u4e00"]
    common = ["--device", device.info.index, "--timeout", 3600]
    given = "/".join(",".join(map(str, x)) for x in ids)
    want = command("embed", folder, "--ids", given, *common)
    assert len(want.splitlines()) == 2
    assert command("tokens", file, *texts).splitlines() == [" ".join(map(str, x)) for x in ids]
    for model in (folder, file):
        assert command("embed", model, *texts, *common) == want
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    said = command("embed", folder, *texts, *common, code=2)
    assert "a text has 6 tokens, more than max_seq_length 5" in said
    for name, content, said in (
        ("config_sentence_transformers.json", '{"default_prompt_name": "x"}', "default_prompt_name"),
        ("tokenizer_config.json", '{"do_lower_case": true, "strip_accents": false}', "strip_acc"),
        ("tokenizer_config.json", '{"tokenize_chinese_chars": false}', "tokenize_chinese_chars"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: expected an object"),
        ("vocab.txt", "[UNK]\n[CLS]\na\n", "expected [UNK], [CLS] and [SEP] among the tokens"),
        ("vocab.txt", "[UNK]\n[UNK]\n", "line 2: the token occurs twice"),
    ):
        (folder / name).write_text(content)
        assert said in command("embed", folder, "a", *common, code=2)
        if name != "vocab.txt":
            (folder / name).unlink()


def test_refused(path):
    for words, said in (
        (["generate"], "vkattn generate: expected a GGUF file and a text, or --ids, got 0 arguments"),
        (["generate", path], "vkattn generate: expected a GGUF file and a text, or --ids, got 1"),
        (["generate", path, "x", "--ids", "1"], "a GGUF file alone, as --ids are given, got 2"),
        (["generate", path, "x"], "tokenizer.ggml.model: expected gpt2, llama, bert or t5; give"),
        (["generate", path, "--ids", "1,x"], "numbers with commas between, got '1,x'"),
        (["generate", path, "--ids", tiny.LLAMA["vocab_size"]], "is not below"),
        *(
            (["generate", path, "--ids", "1", f"--temperature={x}"], f"a decimal number from 0 on, got '{x}'")
            for x in ("0x10", "-1", "inf", "nan", "1e999", ".", "1x", "")
        ),
        (["embed", path, path, "--ids", "1"], "a folder or GGUF file alone, as --ids are given, got 2"),
        (["embed", path], "expected a folder or GGUF file and texts, or --ids, got 1"),
        (["embed", path, "--ids", "1"], 'general.architecture: is not "bert"'),
        (["embed", path, "--ids", "1", "--output", path], "--output"),
    ):
        assert said in command(*words, code=2)
