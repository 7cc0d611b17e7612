"""What is refused of a model, named or shown: checkpoints, keys of config.json, arguments."""

import io
import json
import sys
import warnings

import models_oracle as tiny
import numpy as np
import pytest
import tiny_encoders
from test_models_encoders import modules
from tiny_decoders import DECODERS, IDS

import vkattn
import vkattn.models

@pytest.mark.parametrize(
    "name, change, sentence",
    [
        ("llama", {"model_type": "gemma5"}, "model_type 'gemma5' is not supported"),
        ("llama", {"model_type": None}, "model_type None is not supported"),
        ("llama", {"quantization_config": {"bits": 4}}, "quant_method None is not supported"),
        ("llama", {"hidden_act": "quick"}, "hidden_act 'quick' is not supported"),
        ("llama", {"sliding_window": 4}, "sliding_window 4 is not supported"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type 'dynamic'"),
        ("llama", {"num_key_value_heads": 3}, "3 do not divide 4"),
        ("llama", {"hidden_size": "32"}, "hidden_size: expected int, got '32'"),
        ("llama", {"hidden_size": 0}, "hidden_size: expected 1 to 2"),
        ("llama", {"vocab_size": None}, "there is no vocab_size"),
        ("llama", {"vocab_size": 95}, r"embed_tokens.weight: expected \[95, 32\], got \[96, 32\]"),
        ("llama", {"rms_norm_eps": -1}, "rms_norm_eps: expected a positive number"),
        ("llama", {"attention_bias": True}, "there is no tensor model.layers.0.self_attn.q_proj.b"),
        ("llama", {"num_hidden_layers": 1}, "tensor model.layers.1.* is not known"),
        ("llama", {"eos_token_id": "x"}, "eos_token_id: expected whole numbers"),
        ("qwen3", {"model_type": "qwen2"}, "there is no tensor .*q_proj.bias"),
        ("qwen2", {"layer_types": ["chunked"] * 2}, "layer_types .* is not supported"),
        ("qwen2", {"use_sliding_window": False}, "expected a sliding_window"),
        ("mistral", {"attention_bias": True}, "attention_bias True is not supported"),
        ("phi3", {"attention_bias": True}, "attention_bias True is not supported"),
        ("phi3", {"num_key_value_heads": 4}, r"qkv_proj.weight: expected \[96, 32\], got \[64, "),
        ("phi3 long", {"model_type": "llama", "rope_scaling": None}, "there is no .*q_proj.weight"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention True is not supported"),
        ("gpt2", {"n_head": 5}, "n_head: 5 do not divide 32"),
        ("gpt2", {"tie_word_embeddings": False}, "there is no tensor lm_head.weight"),
        ("gpt_neox", {"num_attention_heads": 5}, "num_attention_heads: 5 do not divide 32"),
        ("gpt_neox", {"hidden_act": "x"}, "hidden_act 'x' is not supported"),
        ("gpt_neox", {"attention_bias": False}, "attention.dense.bias is not known"),
        ("gpt_neox", {"rotary_pct": 0.1}, "rotary embedding of 0 features"),
        ("gpt_neox", {"rotary_emb_base": "x"}, "rotary_emb_base: expected float, got 'x'"),
        ("gpt2", {"activation_function": "x"}, "activation_function 'x' is not supported"),
    ],
)
def test_refused(made, device, tmp_path, name, change, sentence):
    tensors = made(name)[2]
    folder = tiny.write_folder(tmp_path, {**DECODERS[name][0], **change}, tensors)
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


ODD = ["x", 0, -1, 2.5, 10**400, float("nan"), [], [[]], {}, {"a": 1}, True, None]


ENCODERS = {"bert": (tiny_encoders.BERT, tiny_encoders.bert_shapes), "albert": (tiny_encoders.ALBERT, tiny_encoders.albert_shapes)}


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "gpt_neox", *ENCODERS])
def test_odd_values(device, tmp_path, rng, name):
    """A model with an odd value of any key is loaded, or refused with a sentence."""
    config, shapes = ENCODERS[name] if name in ENCODERS else DECODERS[name][:2]
    folder = tiny.write_folder(tmp_path, config, tiny.matrices(rng, shapes(config)))
    modules(folder, {"pooling_mode_mean_tokens": True}, "Pooling")
    keys = [*config, "rope_parameters", "partial_rotary_factor", "attention_bias", "unheard_of"]
    refused = 0
    for key in rng.permutation(keys):
        for odd in (ODD[i] for i in rng.permutation(len(ODD))[:5]):
            (folder / "config.json").write_text(json.dumps({**config, str(key): odd}))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    vkattn.models.load(folder, device=device)
            except vkattn.VkattnError as error:
                refused += len(str(error)) > 20
    assert refused > 2 * len(config)
    (folder / "config.json").write_text(json.dumps(config))
    if name == "bert":
        for text in ("{}", "[3]", '[{"type": {}}]', '[{"type": 1}]', "[", "[[]]"):
            (folder / "modules.json").write_text(text)
            with pytest.raises(vkattn.VkattnError, match="modules.json: "):
                vkattn.models.load(folder, device=device)


def test_windows():
    """As transformers fills in what config.json leaves out."""
    from vkattn.models._design import design_of_config
    from vkattn.models._keys import Keys

    on = {"use_sliding_window": True}
    for kind, config, want in (
        ("mistral", {}, [4096] * 3),
        ("mistral", {"sliding_window": None}, [None] * 3),
        ("mistral", {"sliding_window": 9}, [9] * 3),
        ("qwen2", {"sliding_window": 9}, [None] * 3),
        ("qwen2", {"sliding_window": 9, **on}, [None] * 3),  # from layer 28 on
        ("qwen3", {"max_window_layers": 1, **on}, [None, 4096, 4096]),
        ("llama", {"sliding_window": None}, [None] * 3),
        ("phi3", {}, [None] * 3),
        ("phi3", {"sliding_window": 9}, [9] * 3),
    ):
        sizes = {**tiny.LLAMA, "num_hidden_layers": 3}
        assert design_of_config(Keys({**sizes, **config}, "config"), kind).windows == want


def test_named(made, device, tmp_path):
    """A key nobody knows is in a warning; what has no effect is listed."""
    tensors = dict(made("llama3")[2])
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    config = {**DECODERS["llama3"][0], "resid_gain": 2, "torch_dtype": "float32"}
    folder = tiny.write_folder(tmp_path, config, tensors)
    with pytest.warns(UserWarning, match="'resid_gain' would change"):
        model = vkattn.models.load(folder, device=device)
    assert model.unused == ["lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"]


def test_old_gpt2(made, device, tmp_path):
    """Old checkpoints have the causal mask as bytes, and a scalar that hid keys."""
    model, _, tensors, _ = made("gpt2")
    extra = {
        "transformer.h.0.attn.bias": np.ones((1, 1, 96, 96), bool),
        "transformer.h.0.attn.masked_bias": np.array(-1e4, np.float32),
    }
    folder = tiny.write_folder(tmp_path, tiny.GPT2, {**tensors, **extra})
    again = vkattn.models.load(folder, device=device)
    assert again.unused == sorted(extra)
    assert np.array_equal(again.logits(IDS), model.logits(IDS))


def test_calls(made, device, tmp_path, monkeypatch):
    model = made("gpt2")[0]
    for call, sentence in (
        (lambda: model.generate([], 1), "expected at least one id"),
        (lambda: model.generate([96], 1), "has 96 ids, got 96"),
        (lambda: model.generate([1] * 90, 8), "has 96 positions, but 97 are asked for"),
        (lambda: model.generate_batch([[1], [2]], [1]), "n: expected counts for 2"),
        (lambda: model.generate([1], -1), "n: expected a whole number"),
        (lambda: model.generate([1], 2.5), "n: expected a whole number"),
        (lambda: model.generate_batch([[1.5]], 2), "expected a whole number, got 1.5"),
        (lambda: model.generate([1], 2, stop=[2.5]), "stop: expected a whole number"),
        (lambda: model.generate([1], 2, seed=-1), "seed: expected a whole number"),
        (lambda: model.generate([1], 1, seed=2**64), "seed: expected a whole number"),
        (lambda: model.generate_batch([[1], [2]], 1, seed=[1]), "seed: expected seeds for 2"),
        (lambda: model.generate([1], 2, top_k=-1), "top_k: expected a whole number"),
        (lambda: model.generate([1], 2, top_p=1.5), "top_p is 1.5"),
        (lambda: model.generate([1], 2, min_p=-0.5), "min_p is -0.5"),
        (lambda: model.generate([1], 2, temperature=-1), "temperature is -1"),
        (lambda: model.generate([1], 2, temperature=float("nan")), "temperature is nan"),
        (lambda: model.generate_batch([[1]], 1, at_once=0), "at_once: expected a whole number from 1"),
        (lambda: model.generate([1], 1, kv_dtype="i4"), "key_dtype: expected one of"),
        (lambda: [model.logits([1] * 97)], "has 96 positions, got 97"),
        (lambda: [vkattn.models.load(tmp_path, device=device)], "there is no config.json"),
        (lambda: [vkattn.models.load(tmp_path / "x.gguf", device=device)], "no such file or folder"),
    ):
        with pytest.raises(vkattn.VkattnError, match=sentence):
            list(call())
    for call, sentence in (
        (lambda: model.generate([[1], [2]], 1), "generate_batch takes several"),
        (lambda: model.generate(np.array([[1, 2]]), 1), "generate_batch takes several"),
        (lambda: model.generate(b"text", 1), r"prompts\[0\]: expected whole numbers, got bytes"),
        (lambda: model.generate({1, 2}, 1), "got set"),
        (lambda: model.generate({1: 2}, 1), "got dict"),
        (lambda: model.generate(np.array(1), 1), "prompts.*expected whole numbers"),
        (lambda: model.generate_batch([[1], b"a"], 1), r"prompts\[1\]: .*got bytes"),
    ):
        with pytest.raises(TypeError, match=sentence):
            list(call())
    for several in ("a text", b"a text"):  # whose characters would be prompts
        with pytest.raises(vkattn.InvalidError, match="prompts: expected several, got one"):
            list(model.generate_batch(several, 1))
    assert list(model.generate([1], 2, stop={31, 30})) == list(model.generate([1], 2, stop=[31, 30]))
    with pytest.raises(vkattn.FileError, match="tokenizer.json: there is no such file|tokenizers"):
        try:
            model.encode("a text")
        except vkattn.UnsupportedError as error:  # without the package
            raise vkattn.FileError(str(error)) from error
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(vkattn.UnsupportedError, match="need the package tokenizers"):
        model.encode("a text")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress(made, device, monkeypatch):
    folder = made("llama")[3]
    for stderr, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stderr)
        vkattn.models.load(folder, device=device)
        monkeypatch.undo()
        text = stderr.getvalue()
        assert bool(text) == shown
        if shown:
            assert text.startswith("\rloading ") and text.endswith(f"[{'#' * 40}] 100 %\n")
            assert text.count("\r") > 10
