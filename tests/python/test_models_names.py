"""Tensors by several names: tied weights of which a file has either, aliases of safetensors' save_model,
and an index beside a whole file."""

import json

import models_oracle as tiny
import numpy as np
import oracle
import pytest
import tiny_encoders
from test_layer import write_safetensors
from tiny_decoders import DECODERS, IDS

import vkattn
import vkattn.models

# The embedding and the head of each family, and the words that tie them.
TIED = {
    "llama3": ("model.embed_tokens.weight", "lm_head.weight"),
    "gpt2": ("transformer.wte.weight", "lm_head.weight"),
    "gpt_neox": ("gpt_neox.embed_in.weight", "embed_out.weight"),
}


def tied(name):
    config, shapes, oracle_of = DECODERS[name]
    config = {**config, "tie_word_embeddings": True}
    tensors = tiny.matrices(np.random.default_rng(5), shapes(config))
    tensors.pop(TIED[name][1], None)
    embedding, head = TIED[name]
    return config, tensors, oracle_of(config, {**tensors, head: tensors[embedding]})


def load(device, folder, config, tensors, metadata=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors, metadata)
    return vkattn.models.load(folder, device=device)


@pytest.mark.parametrize("name", TIED)
def test_tied(device, tmp_path, name):
    config, tensors, judge = tied(name)
    embedding, head = TIED[name]
    want = tiny.logits(judge, IDS[:4])
    other = {(head if key == embedding else key): x for key, x in tensors.items()}
    for written, metadata, unused in (
        (tensors, None, []),
        (other, None, []),
        ({**tensors, head: tensors[embedding]}, None, [head]),
        (tensors, {head: embedding, "format": "pt"}, []),
        (other, {embedding: head}, []),
    ):
        model = load(device, tmp_path / "a", config, written, metadata)
        assert oracle.nmse(model.logits(IDS[:4]), want) < 1e-10
        assert model.unused == unused
    # A head of its own in a file whose config ties it: which of the two is meant is not known.
    own = tensors[embedding].copy()
    own[-1, -1] += 1
    for head_of_its_own in (own, own[:-1]):
        with pytest.raises(vkattn.InvalidError, match=f"{head} has other numbers than {embedding}"):
            load(device, tmp_path / "a", config, {**tensors, head: head_of_its_own})
    with pytest.raises(vkattn.InvalidError, match=f"there is no tensor {embedding}"):
        load(device, tmp_path / "a", config, {k: x for k, x in tensors.items() if k != embedding})
    untied = {**config, "tie_word_embeddings": False}
    with pytest.raises(vkattn.InvalidError, match="there is no tensor"):
        load(device, tmp_path / "a", untied, other)
    # Not tied by the config, but one tensor by two names.
    model = load(device, tmp_path / "a", untied, tensors, {head: embedding})
    assert oracle.nmse(model.logits(IDS[:4]), want) < 1e-10


def test_t5(device, tmp_path):
    tensors = tiny.matrices(np.random.default_rng(2), tiny_encoders.t5_shapes(tiny_encoders.T5))
    want = load(device, tmp_path / "a", tiny_encoders.T5, tensors).embed([IDS])
    shared = tensors.pop("shared.weight")
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        model = load(device, tmp_path / "a", tiny_encoders.T5, {**tensors, name: shared})
        np.testing.assert_array_equal(model.embed([IDS]), want)


def test_alias_that_nothing_knows(device, tmp_path):
    """Another name of a tensor that was used is none of its own; of one that was not it is refused."""
    config, tensors, judge = tied("llama3")
    model = load(device, tmp_path / "a", config, tensors, {"other.weight": "model.norm.weight"})
    assert oracle.nmse(model.logits(IDS[:4]), tiny.logits(judge, IDS[:4])) < 1e-10
    more = {**tensors, "more.weight": np.ones(3, "f4")}
    with pytest.raises(vkattn.UnsupportedError, match="more.weight is not known"):
        load(device, tmp_path / "a", config, more, {"other.weight": "more.weight"})


def test_layer_of_aliases(device, rng, tmp_path):
    """Keys and values that are one weight."""
    w = {f"a.{n}_proj.weight": rng.standard_normal((8, 8)).astype("f4") for n in "qkvo"}
    w["a.v_proj.weight"] = w["a.k_proj.weight"]
    x = rng.standard_normal((2, 3, 8)).astype("f4")
    read = vkattn.Layer.from_safetensors
    options = {"n_head": 2, "rope": False, "device": device}
    want = read(write_safetensors(tmp_path / "l.safetensors", w), "a.", **options)(x)
    del w["a.v_proj.weight"]
    alias = {"a.v_proj.weight": "a.k_proj.weight"}
    got = read(write_safetensors(tmp_path / "l.safetensors", w, alias), "a.", **options)(x)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("text", ['{"weight_map": {"x": "gone.safetensors"}}', "{", '{"weight_map": {}}'])
def test_stale_index(device, tmp_path, text):
    """A whole file beside an index of an older state."""
    config, tensors, judge = tied("llama3")
    load(device, tmp_path / "a", config, tensors)
    (tmp_path / "a" / "model.safetensors.index.json").write_text(text)
    model = vkattn.models.load(tmp_path / "a", device=device)
    assert oracle.nmse(model.logits(IDS[:4]), tiny.logits(judge, IDS[:4])) < 1e-10
    prefix = "model.layers.0.self_attn."
    layer = vkattn.Layer.from_safetensors(tmp_path / "a", prefix, device=device)
    assert layer.n_head == config["num_attention_heads"]
