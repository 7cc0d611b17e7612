"""Which features the layers of a family rotate: config.json beside a layer with Llama's names."""

import json
import warnings

import families
import models_oracle as tiny
import numpy as np
import pytest

import vkattn
from vkattn._checkpoint import read_safetensors
from vkattn.models._design import design_of_config
from vkattn.models._keys import Keys


def layer_of(rng, folder, config):
    """A layer with Llama's names, 2 heads of 8, in a folder with this config.json."""
    tensors = {
        f"model.layers.{i}.self_attn.{n}_proj.weight": rng.standard_normal((16, 16)).astype("f4")
        for i in range(2)
        for n in "qkvo"
    }
    tiny.write_folder(folder, {**FAMILY, **config}, tensors)
    return lambda i: {n: tensors[f"model.layers.{i}.self_attn.{n}_proj.weight"] for n in "qkvo"}


FAMILY = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "rope_theta": 1e4}


def rotated(weights, x, interleaved, dim):
    """In double: x [n][16]; the first dim features of a head turn."""
    q, k, v = ((x @ weights[n].T.astype(float)).reshape(-1, 2, 8).swapaxes(0, 1) for n in "qkv")
    for z in (q, k):
        for i in range(dim // 2):
            a = np.arange(len(x)) * 1e4 ** (-2 * i / dim)
            at = (2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2)
            one, two = z[..., at[0]].copy(), z[..., at[1]].copy()
            z[..., at[0]] = one * np.cos(a) - two * np.sin(a)
            z[..., at[1]] = one * np.sin(a) + two * np.cos(a)
    s = q @ k.swapaxes(1, 2) / np.sqrt(8) + np.where(np.tri(len(x)), 0, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    mixed = (e / e.sum(-1, keepdims=True)) @ v
    return mixed.swapaxes(0, 1).reshape(len(x), 16) @ weights["o"].T.astype(float)


@pytest.mark.parametrize(
    "config, layer, interleaved, dim",
    [
        ({"model_type": "llama"}, 0, False, 8),
        ({}, 1, False, 8),
        ({"model_type": "mistral", "rope_interleaved": False, "sliding_window": None}, 0, False, 8),
        ({"model_type": "llama", "rope_interleaved": True}, 0, True, 8),
        ({"model_type": "cohere"}, 0, True, 8),
        ({"model_type": "helium"}, 1, True, 8),
        ({"model_type": "ernie4_5"}, 0, True, 8),
        ({"model_type": "glm4"}, 0, True, 4),
        ({"model_type": "glm", "partial_rotary_factor": 1.0}, 0, True, 8),
        ({"model_type": "stablelm"}, 0, False, 2),
        ({"model_type": "stablelm", "partial_rotary_factor": 0.5}, 0, False, 4),
        ({"model_type": "nemotron"}, 0, False, 4),
        ({"rotary_pct": 0.25}, 0, False, 2),
        ({"rope_theta": None, "rotary_emb_base": 1e4}, 0, False, 8),
        ({"model_type": "smollm3", "no_rope_layers": [0, 1]}, 0, False, 0),
        ({"model_type": "smollm3", "no_rope_layers": [0, 1]}, 1, False, 8),
        ({"model_type": "smollm3"}, 1, False, 8),
        ({"model_type": "smollm3", "no_rope_layer_interval": 2}, 1, False, 0),
        ({"position_embedding_type": "rope"}, 0, False, 8),
    ],
)
def test_families(device, rng, tmp_path, config, layer, interleaved, dim):
    weights = layer_of(rng, tmp_path, config)(layer)
    x = rng.standard_normal((6, 16))
    read = vkattn.Layer.from_safetensors(tmp_path, f"model.layers.{layer}.self_attn.", device=device)
    got = read(x.astype("f4"), causal=True)
    np.testing.assert_allclose(got, rotated(weights, x, interleaved, dim), atol=1e-3)
    if dim:
        rope = vkattn.rope_from_config({**FAMILY, **config})
        assert (rope.dim, rope.interleaved) == (dim, interleaved)


@pytest.mark.parametrize(
    "config, sentence",
    [
        ({"model_type": "unheard_of"}, "model_type 'unheard_of': it is not known which features"),
        ({"model_type": "llama4"}, "model_type 'llama4'"),
        ({"model_type": 3}, "model_type 3"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type 'alibi' is not"),
        ({"position_embedding_type": "nope"}, "position_embedding_type 'nope' is not"),
        ({"alibi": True}, "alibi is not supported"),
        ({"use_rope": False}, "use_rope false is not supported"),
        ({"rope_ratio": 2.0}, "rope_ratio is not supported"),
        ({"rope_local_base_freq": 1e4}, "rope_local_base_freq is not supported"),
        ({"rotary_pct": 0.5, "partial_rotary_factor": 0.25}, "differ"),
        ({"model_type": "cohere", "rope_interleaved": False}, "rope_interleaved false"),
        ({"no_rope_layers": [1]}, "no_rope_layers: expected 0 or 1 for each layer"),
        ({"no_rope_layers": [1, 2]}, "no_rope_layers: expected 0 or 1"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0}}, "attention_f"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
    ],
)
def test_families_refused(device, rng, tmp_path, config, sentence):
    config = {"max_position_embeddings": 64, **config}
    layer_of(rng, tmp_path, config)
    name = "model.layers.1.self_attn."
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.Layer.from_safetensors(tmp_path, name, device=device)
    for rope in (False, vkattn.Rope(8)):  # the caller's word
        if "rope_scaling" not in config:
            vkattn.Layer.from_safetensors(tmp_path, name, rope=rope, device=device)


def test_which_layer(device, rng, tmp_path):
    config = {"model_type": "smollm3", "no_rope_layers": [0, 1]}
    folder, other = tmp_path / "a", tmp_path / "b"
    layer_of(rng, folder, config)
    tensors = {f"attn.{n}_proj.weight": np.eye(16, dtype="f4") for n in "qkvo"}
    tiny.write_folder(other, {**FAMILY, **config}, tensors)
    with pytest.raises(vkattn.UnsupportedError, match="does not say which layer"):
        vkattn.Layer.from_safetensors(other, "attn.", device=device)


def test_other_names(device, rng, tmp_path):
    """Names that do not say whether a layer rotates, beside a config that does."""
    tensors = {f"a.{n}.weight": np.eye(16, dtype="f4") for n in ("q_proj", "k_proj", "v_proj")}
    tensors["a.out_proj.weight"] = np.eye(16, dtype="f4")
    rotating = [{"position_embedding_type": "rotary"}, {"rotary_value": True}]
    for more in ({}, *rotating, {"model_type": "roformer", "rotary_value": False}):
        tiny.write_folder(tmp_path, {"num_attention_heads": 2, **more}, tensors)
        if more:
            with pytest.raises(vkattn.UnsupportedError, match="do not say whether this layer"):
                vkattn.Layer.from_safetensors(tmp_path, "a.", device=device)
            vkattn.Layer.from_safetensors(tmp_path, "a.", rope=False, device=device)
        else:
            vkattn.Layer.from_safetensors(tmp_path, "a.", device=device)


EXPECTED = json.loads(families.EXPECTED.read_text())


def read_layer(folder, name):
    """The arguments of the Layer whose tensors a name stands among; None where none has such names."""
    while "." in name:
        name = name.rpartition(".")[0]
        try:
            return read_safetensors(folder, f"{name}.", None, None, None)
        except vkattn.InvalidError as error:
            if "expected one of the tensors" not in str(error):
                raise
    return None


@pytest.mark.parametrize("case", families.CASES)
def test_followed_or_refused(tmp_path, case):
    """Each layer of each family of decoders turns, scales and sees as its row says, or is refused."""
    families.write_model(tmp_path, case, EXPECTED[case]["shapes"])
    config = families.config_of(case)
    design = design_of_config(Keys(dict(config), "config.json"), config["model_type"])
    part = "q" if "q" in design.names else "qkv"
    for i in range(design.n_layer):
        try:
            made = read_layer(tmp_path, design.layer_name(part, i))
        except vkattn.VkattnError:
            made = None
        assert (made is not None) == (case in FOLLOWED)
        if made:
            assert made.get("rope") == design.ropes(64)[i]
            assert (design.windows[i], design.softcap, design.scale_by_layer) == (None, None, False)
            assert not design.head_norm and not design.qkv_order and design.positions != "alibi"
            assert design.scale in (None, design.head_dim**-0.5)


# The others have a tensor or a key that a Layer from a file has no place for.
FOLLOWED = {
    *("llama", "gpt2", "gemma", "smollm3", "olmo", "seed_oss", "glm", "glm4", "ernie4_5", "helium"),
    *("cohere", "stablelm", "opt", "opt behind", "arcee", "nemotron", "phi3 relu2"),
}


@pytest.mark.parametrize(
    "config, sentence",
    [
        ({"model_type": "gpt_neo"}, "model_type 'gpt_neo': its scale is not supported$"),
        ({"model_type": "granite"}, "'granite': its scale is not supported, where attention_mult"),
        ({"model_type": "gemma2"}, "'gemma2': its scale is not supported"),
        ({"model_type": "ministral"}, "its window is not supported, where sliding_window is missing"),
        ({"model_type": "mra"}, "model_type 'mra': its layers approximate attention"),
        ({"model_type": "big_bird"}, "of 'big_bird' is not .* which 'original_full' says$"),
        ({"model_type": "big_bird", "attention_type": "block_sparse"}, "attention_type 'block_sparse'"),
        ({"model_type": "informer"}, "attention_type 'prob' of 'informer'"),
        ({"model_type": "bros"}, "model_type 'bros': its scores have biases that stand outside"),
    ],
)
def test_what_a_family_has_unsaid(rng, tmp_path, config, sentence):
    layer_of(rng, tmp_path, config)
    with pytest.raises(vkattn.UnsupportedError, match=sentence):
        read_safetensors(tmp_path, "model.layers.0.self_attn.", None, None, False)


def test_whole_attention(rng, tmp_path):
    """A family that can attend to some keys or to all, where its config.json says all."""
    layer_of(rng, tmp_path, {"model_type": "big_bird", "attention_type": "original_full"})
    assert read_safetensors(tmp_path, "model.layers.0.self_attn.", None, None, False)["n_head"] == 2


def test_unknown_family(device, rng, tmp_path):
    """A type that nobody compared is named in a warning at the caller's line, one that was is not."""
    tensors = {f"a.{n}_proj.weight": np.eye(16, dtype="f4") for n in ("q", "k", "v", "out")}
    for family in ("bert", "no_such_type", 5):
        config = {"num_attention_heads": 2, "model_type": family, "attention_kind": 3}
        tiny.write_folder(tmp_path, config, tensors)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            vkattn.Layer.from_safetensors(tmp_path, "a.", device=device)
        said = [str(one.message) for one in heard if f"model_type {family!r}" in str(one.message)]
        assert len(said) == (family != "bert"), family
        assert {one.filename for one in heard} == {__file__}
