"""Encoders of GGUF files: what they compute by the same tensors under the names of llama.cpp."""

import re

import families_encoders as encoders
import models_oracle as tiny
import numpy as np
import pytest
from test_gguf import build, key, tensor
from test_models_gguf import Q8_0, number, quantised

import vkattn
import vkattn.models

BOOL = 7
STORED = encoders.stored()
TEXTS = encoders.TEXTS_OF_IDS
BERT = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "encoder.layer.#.attention.self.query": "blk.#.attn_q",
    "encoder.layer.#.attention.self.key": "blk.#.attn_k",
    "encoder.layer.#.attention.self.value": "blk.#.attn_v",
    "encoder.layer.#.attention.output.dense": "blk.#.attn_output",
    "encoder.layer.#.attention.output.LayerNorm": "blk.#.attn_output_norm",
    "encoder.layer.#.intermediate.dense": "blk.#.ffn_up",
    "encoder.layer.#.output.dense": "blk.#.ffn_down",
    "encoder.layer.#.output.LayerNorm": "blk.#.layer_output_norm",
}
NOMIC = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm",
    "encoder.layers.#.attn.Wqkv": "blk.#.attn_qkv",
    "encoder.layers.#.attn.out_proj": "blk.#.attn_output",
    "encoder.layers.#.norm1": "blk.#.attn_output_norm",
    "encoder.layers.#.mlp.fc12": "blk.#.ffn_gate",
    "encoder.layers.#.mlp.fc11": "blk.#.ffn_up",
    "encoder.layers.#.mlp.fc2": "blk.#.ffn_down",
    "encoder.layers.#.norm2": "blk.#.layer_output_norm",
}
T5 = {
    "shared": "token_embd",
    "lm_head": "output",
    "encoder.final_layer_norm": "enc.output_norm",
    "decoder.final_layer_norm": "dec.output_norm",
}
for _side, _short, _last in (("encoder", "enc", 1), ("decoder", "dec", 2)):
    for _part in "qkvo":
        _own = f"{_side}.block.#.layer.0.SelfAttention.{_part}"
        T5[_own] = f"{_short}.blk.#.attn_{_part}"
        T5[f"decoder.block.#.layer.1.EncDecAttention.{_part}"] = f"dec.blk.#.cross_attn_{_part}"
    _at = f"{_side}.block.#.layer."
    T5[f"{_at}0.SelfAttention.relative_attention_bias"] = f"{_short}.blk.#.attn_rel_b"
    T5[f"{_at}0.layer_norm"] = f"{_short}.blk.#.attn_norm"
    T5[f"{_at}{_last}.layer_norm"] = f"{_short}.blk.#.ffn_norm"
    for _part, _name in (("wi", "up"), ("wi_0", "gate"), ("wi_1", "up"), ("wo", "down")):
        T5[f"{_at}{_last}.DenseReluDense.{_part}"] = f"{_short}.blk.#.ffn_{_name}"
T5["decoder.block.#.layer.1.layer_norm"] = "dec.blk.#.cross_attn_norm"
NAMES = {"bert": BERT, "nomic_bert": NOMIC, "t5": T5, "umt5": T5}


def renamed(kind, tensors):
    """Those that GGUF has a name for."""
    made = {}
    for name, array in tensors.items():
        own = name.removeprefix(f"{kind}.")
        number = re.search(r"\.(layer|layers|block)\.(\d+)\.", own)
        if number:
            own = own.replace(f".{number[2]}.", ".#.", 1)
        module, _, end = own.rpartition(".")
        if module in NAMES[kind]:
            place = number[2] if number else ""
            made[f"{NAMES[kind][module]}.{end}".replace("#", place)] = array
    return made


def keys_of(arch, kind):
    def of(**values):
        given = {name.replace("__", "."): x for name, x in values.items() if x is not None}
        return {"general.architecture": arch, **{f"{arch}.{name}": x for name, x in given.items()}}

    sizes = {
        "block_count": tiny.LAYERS,
        "embedding_length": tiny.WIDTH,
        "feed_forward_length": tiny.INNER,
        "attention__head_count": tiny.HEADS,
    }
    if kind in ("bert", "nomic_bert"):
        base = 700.0 if kind == "nomic_bert" else None
        more = {"context_length": 48, "rope__freq_base": base, "pooling_type": 1}
        return of(**sizes, **more, attention__layer_norm_epsilon=1e-12)
    return of(
        **sizes,
        context_length=512,
        attention__key_length=8,
        attention__value_length=8,
        attention__relative_buckets_count=32,
        attention__layer_norm_epsilon=1e-6,
        attention__layer_norm_rms_epsilon=1e-6,
        decoder_start_token_id=0 if arch == "t5" else None,
    )


def write(path, tensors, keys, kind=0):
    """kind: F32, or Q8_0 of what products read."""
    entries, data = [], b""
    for name, array in tensors.items():
        data += bytes(-len(data) % 32)
        blocks = kind if "blk." in name and array.ndim == 2 and "rel_b" not in name else 0
        entries.append(tensor(name, array.shape, blocks, len(data)))
        data += quantised(array)[0] if blocks else array.astype("<f4").tobytes()
    given = [
        key(name, BOOL, bytes([x]))
        if isinstance(x, bool)
        else (x if isinstance(x, bytes) else number(name, x))
        for name, x in keys.items()
        if x is not None
    ]
    path.write_bytes(build(entries, given, data))
    return path


def tensors_of(name):
    return encoders.weights_of(encoders.unpacked(STORED[name]["tensors"]))


@pytest.mark.parametrize(
    "name, arch",
    [
        ("bert", "bert"),
        ("nomic_bert", "nomic-bert"),
        ("t5", "t5encoder"),
        ("t5 whole", "t5"),
        ("t5 1.1", "t5"),
        ("umt5 whole", "t5"),
    ],
)
def test_encoders(device, tmp_path, name, arch):
    """The numbers of transformers, which the same tensors have in a folder."""
    kind = name.split()[0]
    keys = keys_of(arch, kind)
    if name == "t5 whole":
        keys["t5.decoder_block_count"] = 3
    path = write(tmp_path / "x.gguf", renamed(kind, tensors_of(name)), keys)
    if name == "umt5 whole":  # whose files of llama.cpp are gated by gelu
        config = {**encoders.config_of(name), "feed_forward_proj": "gated-gelu"}
        folder = tiny.write_folder(tmp_path / "folder", config, tensors_of(name))
        want = encoders.ours(name, vkattn.models.load(folder, device=device))
    else:
        want = {key: np.array(x) for key, x in STORED[name].items() if key != "tensors"}
        want.pop("words", None)
    model = vkattn.models.load(path, device=device)
    assert model.unused == []
    found = encoders.ours(name, model) if "whole" in name or "1.1" in name else {}
    found = found or {"vectors": model.embed(TEXTS)}
    found = found if name == "umt5 whole" else encoders.kept(found)
    for key, x in want.items():
        assert np.abs(found[key] - x).max() < 1e-5 * max(1, np.abs(x).max()), key


def test_quantised(device, tmp_path):
    """Blocks stay as they are: the vectors are those of the values that they have."""
    tensors = renamed("bert", tensors_of("bert"))
    model = vkattn.models.load(
        write(tmp_path / "a.gguf", tensors, keys_of("bert", "bert"), Q8_0), device=device
    )
    assert model.layers.blocks[0].o.weight.dtype == "q8_0"
    rounded = {
        name: quantised(x)[1] if "blk." in name and x.ndim == 2 else x
        for name, x in tensors.items()
    }
    other = vkattn.models.load(
        write(tmp_path / "b.gguf", rounded, keys_of("bert", "bert")), device=device
    )
    assert np.abs(model.embed(TEXTS) - other.embed(TEXTS)).max() < 1e-5


def test_one_type(device, tmp_path):
    """A row of one type of texts, as of XLM-R, without the axis of types."""
    tensors = renamed("bert", tensors_of("bert"))
    want = vkattn.models.load(
        write(tmp_path / "a.gguf", tensors, keys_of("bert", "bert")), device=device
    )
    tensors["token_types.weight"] = tensors["token_types.weight"][0]
    one = vkattn.models.load(
        write(tmp_path / "b.gguf", tensors, keys_of("bert", "bert")), device=device
    )
    assert np.array_equal(one.embed(TEXTS), want.embed(TEXTS))


@pytest.mark.parametrize(
    "keys, tensors, sentence",
    [
        ({"bert.attention.causal": True}, {}, "bert.attention.causal True is not supported"),
        ({"bert.pooling_type": 4}, {}, "bert.pooling_type 4 is not supported"),
        ({"bert.unheard_of": 3}, {}, "it is not known what bert.unheard_of would change"),
        ({"bert.attention.layer_norm_epsilon": None}, {}, "no bert.attention.layer_norm_epsilon"),
        ({"bert.vocab_size": 95}, {}, "bert.vocab_size 95 is not supported"),
        ({}, {"blk.0.attn_norm_2.weight": (32,)}, "tensor blk.0.attn_norm_2.weight is not known"),
        ({"bert.embedding_length": 16}, {}, "expected .*, got"),
    ],
)
def test_refused(device, tmp_path, keys, tensors, sentence):
    more = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    made = {**renamed("bert", tensors_of("bert")), **more}
    path = write(tmp_path / "x.gguf", made, {**keys_of("bert", "bert"), **keys})
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(path, device=device)
