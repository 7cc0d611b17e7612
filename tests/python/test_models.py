"""Whole models: tiny ones with random weights against numpy in double, and against transformers
where that is installed."""

import io
import json
import sys
import warnings

import models_oracle as tiny
import numpy as np
import oracle
import pytest
from test_rope import LLAMA3, LONG, YARN

import vkattn
import vkattn.models
from vkattn._abi import lib

DECODERS = {
    "llama": (tiny.LLAMA, tiny.llama_shapes, tiny.LlamaOracle),
    "llama3": (
        {
            **tiny.LLAMA,
            "rope_scaling": LLAMA3,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 16,
        },
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "mistral": (
        {**tiny.LLAMA, "model_type": "mistral", "sliding_window": 7},
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "qwen2": (
        {
            **tiny.LLAMA,
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_scaling": {**YARN, "original_max_position_embeddings": 64},
        },
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "qwen3": (
        {**tiny.LLAMA, "model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "phi3": (
        {**tiny.PHI3, "partial_rotary_factor": 0.5, "sliding_window": 6},
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "phi3 long": (
        {
            **tiny.PHI3,
            "num_key_value_heads": 4,
            "rope_scaling": LONG,
            "original_max_position_embeddings": 8,
        },
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "gpt2": (tiny.GPT2, tiny.gpt2_shapes, tiny.GPT2Oracle),
    "gpt2 scaled": (
        {**tiny.GPT2, "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
        tiny.gpt2_shapes,
        tiny.GPT2Oracle,
    ),
    "gpt_neox": (tiny.NEOX, tiny.neox_shapes, tiny.NeoXOracle),
    "gpt_neox serial": (
        {**tiny.NEOX, "use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0},
        tiny.neox_shapes,
        tiny.NeoXOracle,
    ),
}
IDS = [5, 17, 3, 95, 0, 44, 44, 8, 31, 62, 9, 13]


@pytest.fixture(scope="module")
def made(device, tmp_path_factory):
    """made(name): the loaded model, its oracle, its tensors and its folder; each once."""
    kept = {}

    def make(name):
        if name not in kept:
            config, shapes, oracle_of = DECODERS[name]
            rng = np.random.default_rng([ord(c) for c in name])
            tensors = tiny.matrices(rng, shapes(config))
            folder = tiny.write_folder(tmp_path_factory.mktemp("model"), config, tensors)
            model = vkattn.models.load(folder, device=device)
            assert model.unused == []
            kept[name] = model, oracle_of(config, tensors), tensors, folder
        return kept[name]

    return make


@pytest.mark.parametrize("name", DECODERS)
def test_transformers(made, device, tmp_path, name):
    """And what it saves is read again, with every key that it writes known."""
    reason = "transformers WITH torch IS NOT INSTALLED: MODELS WERE NOT COMPARED WITH IT"
    torch = pytest.importorskip("torch", reason=reason)
    auto = pytest.importorskip("transformers", reason=reason)
    model, _, _, folder = made(name)
    config = auto.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    their = auto.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)
    with torch.no_grad():
        want = their.eval()(torch.tensor([IDS])).logits[0].numpy()
    assert oracle.nmse(model.logits(IDS), want) < 1e-9
    their.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = vkattn.models.load(tmp_path, device=device)
    assert np.array_equal(again.logits(IDS), model.logits(IDS))


PROMPTS = [IDS[:5], [7], list(range(3, 44)), IDS]  # the third one takes two chunks
COUNTS = [6, 9, 4, 1]


class Counter:
    """Stands for the C library in the modules of the package, and notes the calls that cost."""

    def __init__(self, monkeypatch):
        self.calls = []
        for module in ("_plan", "_device", "_cache"):
            monkeypatch.setattr(f"vkattn.{module}.lib", self)

    def __getattr__(self, name):
        function = getattr(lib, name)
        if name not in COSTS:
            return function

        def noted(*arguments):
            status = function(*arguments)
            if name != "vka_plan_finish" or status != lib.VKA_TIMEOUT:  # which only was a slice
                self.calls.append((name, arguments[2] if "tensor" in name else None))
            return status

        return noted

    def taken(self, name):
        """The sizes, or Nones, of the calls of a function since it was asked for."""
        found = [size for called, size in self.calls if called == name]
        self.calls = [call for call in self.calls if call[0] != name]
        return found


def products(monkeypatch, call, *arguments):
    """What a call returns, and how many products it recorded."""
    with monkeypatch.context() as patch:
        counter = Counter(patch)
        return call(*arguments), len(counter.taken("vka_plan_add_linear"))


COSTS = (
    *("vka_plan_add_linear", "vka_plan_finish", "vka_plan_submit", "vka_plan_run", "vka_tensor_read", "vka_tensor_write"),
    "vka_cache_truncate",
)


@pytest.mark.parametrize("name", DECODERS)
def test_logits(made, monkeypatch, name):
    """A layer has four products: queries, keys and values are one, gate and up another."""
    model, judge, _, _ = made(name)
    found, count = products(monkeypatch, model.logits, IDS)
    assert oracle.nmse(found, tiny.logits(judge, IDS)) < 1e-10
    assert count == 4 * tiny.LAYERS + 1


def test_apart(made, device, monkeypatch, tmp_path):
    """Weights of different types, or too large for one tensor, have products of their own."""
    config, _, oracle_of = DECODERS["llama"]
    tensors = dict(made("llama")[2])
    for i, part in ((0, "self_attn.v_proj"), (1, "self_attn.k_proj"), (1, "mlp.up_proj")):
        name = f"model.layers.{i}.{part}.weight"
        tensors[name] = tensors[name].astype(np.float16)
    model = vkattn.models.load(tiny.write_folder(tmp_path / "a", config, tensors), device=device)
    found, count = products(monkeypatch, model.logits, IDS)
    assert oracle.nmse(found, tiny.logits(oracle_of(config, tensors), IDS)) < 1e-10
    assert count == 5 + 7 + 1
    half = vkattn.models.load(tmp_path / "a", device=device, dtype="f16")
    assert products(monkeypatch, half.logits, IDS)[1] == 4 + 4 + 1
    # 768 KiB each.
    monkeypatch.setattr(tiny, "INNER", 6144)
    config = {**config, "intermediate_size": 6144}
    tensors = tiny.matrices(np.random.default_rng(3), tiny.llama_shapes(config))
    folder = tiny.write_folder(tmp_path / "b", config, tensors)
    model = vkattn.models.load(folder, device=vkattn.Device(max_allocation=2**20))
    found, count = products(monkeypatch, model.logits, IDS)
    assert oracle.nmse(found, tiny.logits(oracle_of(config, tensors), IDS)) < 1e-10
    assert count == 5 + 5 + 1


def test_token(made, monkeypatch):
    """What a token costs, alone and in a batch: one submit, 4 bytes a sequence read, nothing
    written; no recording after the first two."""
    model, judge, _, _ = made("llama")
    for prompts in ([IDS], [IDS, IDS[:3], [7], IDS[2:]]):
        counter = Counter(monkeypatch)
        n, rounds = len(prompts), 7
        stream = model.generate_batch(prompts, rounds, stop=())
        found = [[next(stream)[1] for _ in prompts]]
        assert counter.taken("vka_plan_finish") == [None] * 2
        assert len(counter.taken("vka_plan_add_linear")) == 2 * (4 * tiny.LAYERS + 1)
        for name in COSTS:
            counter.taken(name)
        for _ in range(rounds - 1):
            found.append([next(stream)[1] for _ in prompts])
            assert counter.taken("vka_plan_submit") == [None]
            assert counter.taken("vka_tensor_read") == [4 * n]
            # How many ids each sequence appends: once, as a chunk said otherwise; and ids, where a
            # prompt of one id had a run behind that of the chunks.
            written = counter.taken("vka_tensor_write")
            runs = len({len(p) > 1 for p in prompts})
            assert written == ([4 * n] * runs if len(found) == 2 else [])
            assert not counter.calls
        for i, prompt in enumerate(prompts):
            assert [ids[i] for ids in found] == tiny.greedy(judge, prompt, rounds)[0]


@pytest.mark.parametrize("name", ["llama3", "gpt2", "gpt_neox"])
def test_batch(made, monkeypatch, name):
    """Two places for four prompts: each gives what it gives alone, on two recorded plans, in one
    run a token, and one for chunks."""
    model, judge, _, _ = made(name)
    counter = Counter(monkeypatch)
    found = {i: [] for i in range(4)}
    for i, token in model.generate_batch(PROMPTS, COUNTS, at_once=2, stop=()):
        found[i].append(token)
    for i, (prompt, count) in enumerate(zip(PROMPTS, COUNTS)):
        want, gap = tiny.greedy(judge, prompt, count)
        assert gap > 1e-4
        assert found[i] == want
    assert len(counter.taken("vka_plan_finish")) == 2
    # Prompt 0 in rounds 1 to 6, 1 in 1 to 9, 2 from 7 on, two of them for its ids: 7 to 11; 3 in 10.
    # Rounds 1, 7, 8 and 10 have a run for chunks, and one for the other place's token.
    assert len(counter.taken("vka_plan_submit")) == 11 + 4
    assert counter.taken("vka_tensor_read") == [8] * 15  # an id of each place


def test_stream(made):
    """Ids come one by one, a stop id ends the text, and the model can be used in between."""
    model, judge, _, _ = made("llama")
    want, gap = tiny.greedy(judge, IDS, 8)
    assert gap > 1e-4
    stream = model.generate(IDS, 8, stop=())
    assert [next(stream), next(stream)] == want[:2]
    assert list(model.generate(np.array(IDS), 3, stop=())) == want[:3]
    assert list(stream) == want[2:]
    stop = want[4]
    first = want.index(stop)
    assert list(model.generate(IDS, 8, stop=[stop])) == want[:first]
    assert model.stop_ids == (2,)
    assert list(model.generate(IDS, 0)) == []
    assert list(model.generate([7], 1, stop=())) == tiny.greedy(judge, [7], 1)[0]


def test_sampling(made):
    model, judge, _, _ = made("llama")
    want, _ = tiny.greedy(judge, IDS, 6)
    assert list(model.generate(IDS, 6, temperature=0.7, top_k=1, stop=())) == want
    drawn = [list(model.generate(IDS, 6, temperature=2.0, seed=s, stop=())) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_number(made, device, tmp_path, temperature):
    """Logits of NaN or -inf alone give no id; those that are numbers are drawn from."""
    tensors = dict(made("llama")[2])
    tensors["lm_head.weight"] = tensors["lm_head.weight"].copy()
    tensors["lm_head.weight"][1::2] = np.nan
    model = vkattn.models.load(tiny.write_folder(tmp_path, tiny.LLAMA, tensors), device=device)
    ids = list(model.generate(IDS, 8, temperature=temperature, stop=()))
    assert len(ids) == 8 and not any(i % 2 for i in ids)
    tensors["model.norm.weight"] = np.full(32, np.nan, np.float32)
    model = vkattn.models.load(tiny.write_folder(tmp_path, tiny.LLAMA, tensors), device=device)
    with pytest.raises(vkattn.UnsupportedError, match="all NaN or -inf: no id drawn"):
        list(model.generate(IDS, 4, temperature=temperature))


def test_dtypes(made, device):
    """Weights of another type; a cache of another type."""
    model, judge, _, folder = made("llama")
    want = tiny.logits(judge, IDS)
    for dtype, least, most in (("f16", 1e-9, 1e-5), ("bf16", 1e-7, 1e-3)):
        half = vkattn.models.load(folder, device=device, dtype=dtype)
        assert half.embedding.dtype == dtype
        assert least < oracle.nmse(half.logits(IDS), want) < most
    with pytest.raises(vkattn.InvalidError, match="dtype: expected f32, f16, bf16"):
        vkattn.models.load(folder, device=device, dtype="q8_0")
    assert len(list(model.generate(IDS, 3, kv_dtype="f16", stop=()))) == 3


def test_shards(made, device, tmp_path):
    _, judge, tensors, _ = made("llama")
    names = sorted(tensors)
    places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(names)}
    for place in set(places.values()):
        part = {name: tensors[name] for name in names if places[name] == place}
        tiny.write_safetensors(tmp_path / place, part)
    (tmp_path / "config.json").write_text(json.dumps(tiny.LLAMA))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    model = vkattn.models.load(tmp_path, device=device)
    assert oracle.nmse(model.logits(IDS[:4]), tiny.logits(judge, IDS[:4])) < 1e-10
    for change, sentence in (
        ({names[0]: "../x.safetensors"}, "names of files beside it"),
        ({"other": "part-0.safetensors"}, "has no tensor 'other'"),
        ({names[0]: None}, "names of files beside it"),
    ):
        index.write_text(json.dumps({"weight_map": {**places, **change}}))
        with pytest.raises(vkattn.FileError, match=sentence):
            vkattn.models.load(tmp_path, device=device)
    del places[names[0]]
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(vkattn.FileError, match="is not named"):
        vkattn.models.load(tmp_path, device=device)


# ---- BERT ---------------------------------------------------------------------------------------


def modules(folder, pooling, *kinds):
    places = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    parts = [
        {"type": f"sentence_transformers.models.{k}", "path": places.get(k, "9")} for k in kinds
    ]
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.fixture(scope="module")
def bert(device, tmp_path_factory):
    rng = np.random.default_rng(7)
    tensors = tiny.matrices(rng, tiny.bert_shapes(tiny.BERT))
    return tiny.write_folder(tmp_path_factory.mktemp("bert"), tiny.BERT, tensors), tensors


def test_bert(device, bert, monkeypatch, tmp_path):
    folder, tensors = bert
    model = vkattn.models.load(folder, device=device)
    assert model.unused == ["pooler.dense.bias", "pooler.dense.weight"]
    texts = [IDS, IDS[:3], [9], (IDS * 4)[:40], IDS[::-1]]
    want = [tiny.embedding(tiny.bert_rows(tiny.BERT, tensors, ids)) for ids in texts]
    got, count = products(monkeypatch, lambda: model.embed(texts, at_once=3))
    assert got.shape == (5, tiny.WIDTH) and got.dtype == np.float32
    assert count == 2 * 4 * tiny.LAYERS  # of two sizes
    assert np.abs(got - want).max() < 2e-6
    assert np.array_equal(model.embed(texts[:1])[0], model.embed(texts)[0])
    assert model.embed([]).shape == (0, tiny.WIDTH)
    with pytest.raises(vkattn.InvalidError, match=r"texts\[1\]: expected 1 to 48 ids, got 49"):
        model.embed([[1], [1] * 49])
    with pytest.raises(vkattn.InvalidError, match="has 96 ids, got 96"):
        model.embed([[96]])
    # Below another head, and as sentence-transformers pools.
    other = tiny.write_folder(
        tmp_path / "named", tiny.BERT, {f"bert.{name}": x for name, x in tensors.items()}
    )
    modules(other, {"pooling_mode_cls_token": True}, "Transformer", "Pooling")
    (other / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    model = vkattn.models.load(other, device=device)
    rows = tiny.bert_rows(tiny.BERT, tensors, IDS)
    assert np.abs(model.embed([IDS])[0] - rows[0]).max() < 2e-5
    assert model.max_length == 20
    for name, values in (
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
    ):
        (other / name).write_text(json.dumps(values))
        with pytest.raises(vkattn.UnsupportedError, match=f"{name}: {min(values)} .* not supp"):
            vkattn.models.load(other, device=device)
        (other / name).unlink()
    for pooling, kinds, sentence in (
        ({"pooling_mode_max_tokens": True}, ("Pooling",), "pooling by"),
        ({"pooling_mode_mean_tokens": True}, ("Pooling", "CNN"), "models.CNN' is not supp"),
    ):
        modules(other, pooling, *kinds)
        with pytest.raises(vkattn.UnsupportedError, match=sentence):
            vkattn.models.load(other, device=device)


@pytest.mark.parametrize("kind, padding", [("roberta", 1), ("xlm-roberta", 3)])
def test_roberta(device, bert, tmp_path, kind, padding):
    """Positions begin behind the id of padding."""
    tensors = {**bert[1], "lm_head.bias": np.ones(tiny.TOKENS, np.float32)}
    tensors["embeddings.token_type_embeddings.weight"] = np.ones((1, tiny.WIDTH), np.float32)
    config = {**tiny.BERT, "model_type": kind, "type_vocab_size": 1, "pad_token_id": padding}
    below = {name if "lm_head" in name else f"roberta.{name}": x for name, x in tensors.items()}
    model = vkattn.models.load(tiny.write_folder(tmp_path / "a", config, below), device=device)
    assert model.max_length == 47 - padding
    pooler = [f"roberta.pooler.dense.{x}" for x in ("bias", "weight")]
    assert model.unused == ["lm_head.bias", *pooler]
    ids = [i for i in IDS if i != padding]
    texts = [ids, ids[:3], (ids * 5)[: model.max_length]]
    want = [tiny.embedding(tiny.bert_rows(config, tensors, x, padding + 1)) for x in texts]
    assert np.abs(model.embed(texts) - want).max() < 2e-6
    with pytest.raises(vkattn.InvalidError, match=f"{padding} is the id of padding"):
        model.embed([[5, padding]])
    with pytest.raises(vkattn.InvalidError, match=f"expected 1 to {47 - padding} ids"):
        model.embed([[9] * (48 - padding)])
    for odd in (-1, 47, 2**40):
        folder = tiny.write_folder(tmp_path / "b", {**config, "pad_token_id": odd}, below)
        with pytest.raises(vkattn.FileError, match="pad_token_id: expected 0 to 46"):
            vkattn.models.load(folder, device=device)


def distilbert(config, tensors):
    """The same numbers by DistilBERT's words; that of texts, a type, is in the positions."""
    words = {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
    }
    kept = ("vocab_size", "max_position_embeddings")
    theirs = {words.get(k, k): x for k, x in config.items() if k in words or k in kept}
    theirs.update(model_type="distilbert", sinusoidal_pos_embds=False, pad_token_id=0)
    names = {
        "encoder.": "transformer.",
        **{f"attention.self.{x}": f"attention.{x[0]}_lin" for x in ("query", "key", "value")},
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
        "intermediate.dense": "ffn.lin1",
        "output.dense": "ffn.lin2",
        "output.LayerNorm": "output_layer_norm",
    }
    made = {}
    for name, x in tensors.items():
        if "token_type" in name or "pooler" in name:
            continue
        if "position" in name:
            x = x + tensors["embeddings.token_type_embeddings.weight"][0]
        for old, new in names.items():
            name = name.replace(old, new)
        made[name] = x
    return theirs, made


def test_distilbert(device, bert, tmp_path):
    config, tensors = distilbert(tiny.BERT, bert[1])
    tensors = {f"distilbert.{name}": x for name, x in tensors.items()}
    tensors["pre_classifier.bias"] = np.ones(3, np.float32)
    folder = tiny.write_folder(tmp_path, config, tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(folder, device=device)
    assert model.unused == ["pre_classifier.bias"] and model.max_length == 48
    texts = [IDS, IDS[:3], (IDS * 9)[:48]]
    want = [tiny.embedding(tiny.bert_rows(tiny.BERT, bert[1], ids)) for ids in texts]
    assert np.abs(model.embed(texts) - want).max() < 2e-6
    del tensors["distilbert.transformer.layer.1.ffn.lin2.bias"]
    with pytest.raises(vkattn.InvalidError, match=r"layer.1.ffn.lin2.bias"):
        vkattn.models.load(tiny.write_folder(tmp_path, config, tensors), device=device)


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    tensors = tiny.matrices(np.random.default_rng(17), tiny.albert_shapes(tiny.ALBERT))
    return tiny.write_folder(tmp_path_factory.mktemp("albert"), tiny.ALBERT, tensors), tensors


def test_albert(device, albert, tmp_path):
    """Layers that share weights by groups, and narrow embeddings."""
    folder, tensors = albert
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(folder, device=device)
    assert model.unused == ["pooler.bias", "pooler.weight"] and model.n_layer == 10
    judge = tiny.albert_as_bert(tiny.ALBERT, tensors)
    texts = [IDS, IDS[:3], (IDS * 9)[:48]]
    want = [tiny.embedding(tiny.bert_rows(*judge, ids)) for ids in texts]
    assert np.abs(model.embed(texts) - want).max() < 5e-6
    below = {f"albert.{name}": x for name, x in tensors.items()}
    below["predictions.bias"] = np.ones(tiny.TOKENS, np.float32)
    for change, sentence in (
        ({"num_hidden_groups": 6}, "num_hidden_groups: 6 of 5 layers"),
        ({"gap_size": 1}, "gap_size 1 is not supported"),
        ({"inner_group_num": 1}, "albert_layers.1.* is not known"),
        ({"inner_group_num": 3}, "there is no tensor .*albert_layers.2.*"),
        ({"embedding_size": None}, r"expected \[96, 128\], got \[96, 12\]"),
    ):
        other = tiny.write_folder(tmp_path, {**tiny.ALBERT, **change}, below)
        with pytest.raises(vkattn.VkattnError, match=sentence):
            vkattn.models.load(other, device=device)
    model = vkattn.models.load(tiny.write_folder(tmp_path, tiny.ALBERT, below), device=device)
    assert model.unused[-1] == "predictions.bias"
    assert np.abs(model.embed(texts) - want).max() < 5e-6


def test_attentions(device, bert, albert):
    """Weights of each layer and head, of texts of several lengths, against double."""
    for folder, judge in (
        (bert[0], (tiny.BERT, bert[1])),
        (albert[0], tiny.albert_as_bert(tiny.ALBERT, albert[1])),
    ):
        model = vkattn.models.load(folder, device=device)
        texts = [IDS[:5], [9], (IDS * 9)[:40], IDS]
        got = model.attentions(texts, at_once=2)
        for ids, weights in zip(texts, got):
            want = []
            tiny.bert_rows(*judge, ids, weights=want)
            n = len(ids)
            assert weights.shape == (model.n_layer, tiny.HEADS, n, n)
            assert weights.dtype == np.float32
            assert np.abs(weights - np.array(want)).max() < 1e-5  # behind up to ten layers of float32
        # Some layers, in any order, alone.
        some = model.attentions(texts[2:3], layers=[-1, 0, -1])[0]
        assert np.array_equal(some, got[2][[-1, 0, -1]])
        assert model.attentions([IDS], layers=[])[0].shape == (0, tiny.HEADS, 12, 12)
        assert model.attentions([]) == []
        vectors = model.embed(texts)  # plans of the other kind do not get in the way
        assert np.array_equal(vectors, model.embed(texts, at_once=1))
        with pytest.raises(vkattn.InvalidError, match="layers: the model has"):
            model.attentions([IDS], layers=[model.n_layer])
        with pytest.raises(vkattn.InvalidError, match="at_once: expected a whole number from 1"):
            model.attentions([IDS], at_once=0)


def test_attentions_in_parts(device, bert, monkeypatch):
    """As many texts share a run as the bound of bytes allows, one at least."""
    model = vkattn.models.load(bert[0], device=device)
    texts = [IDS, IDS[:3], (IDS * 9)[:40], [9], IDS[::-1]]
    whole = model.attentions(texts)
    run, runs = vkattn.Plan.run, []
    monkeypatch.setattr(vkattn.Plan, "run", lambda p, *a: runs.append(p) or run(p, *a))
    for most, count in ((1, 5), (2 * 4 * 2 * tiny.HEADS * 32 * 32, 3)):
        monkeypatch.setattr("vkattn.models._encoder.MOST_WEIGHTS", most)
        runs.clear()
        for a, b in zip(whole, model.attentions(texts)):
            assert np.array_equal(a, b)
        assert len(runs) == count


def compare_encoder(device, folder, tmp_path, ids, limit, auto="AutoModel"):
    """The embedding of ids against transformers, and again of what that saves, without a warning."""
    reason = "transformers WITH torch IS NOT INSTALLED: ENCODERS WERE NOT COMPARED WITH IT"
    torch = pytest.importorskip("torch", reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    their = getattr(transformers, auto).from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        said = their.double()(torch.tensor([ids]), output_attentions=True)
    their.float()
    rows = said.last_hidden_state[0].numpy()
    model = vkattn.models.load(folder, device=device)
    got = model.embed([ids])
    assert np.abs(got[0] - tiny.embedding(rows)).max() < limit
    weights = np.array([x[0].numpy() for x in said.attentions])
    assert np.abs(model.attentions([ids])[0] - weights).max() < limit
    their.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = vkattn.models.load(tmp_path, device=device)
    assert np.array_equal(again.embed([ids]), got)


def test_distilbert_of_transformers(device, bert, tmp_path):
    folder = tiny.write_folder(tmp_path / "given", *distilbert(tiny.BERT, bert[1]))
    compare_encoder(device, folder, tmp_path, IDS, 2e-6)


def test_albert_of_transformers(device, albert, tmp_path):
    compare_encoder(device, albert[0], tmp_path, IDS, 5e-6)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_bert_of_transformers(device, bert, tmp_path, kind):
    config = {**tiny.BERT, "model_type": kind, "pad_token_id": 1}
    folder = tiny.write_folder(tmp_path / "given", config, bert[1])
    compare_encoder(device, folder, tmp_path, IDS, 2e-6)


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory):
    rng = np.random.default_rng(11)
    tensors = tiny.matrices(rng, tiny.modernbert_shapes(tiny.MODERNBERT))
    return tiny.write_folder(tmp_path_factory.mktemp("m"), tiny.MODERNBERT, tensors), tensors


def test_modernbert(device, modernbert, tmp_path):
    folder, tensors = modernbert
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(folder, device=device)
    assert model.max_length == 64 and model.unused == []
    texts = [IDS, IDS[:3], (IDS * 9)[:64]]
    want = [tiny.embedding(tiny.modernbert_rows(tiny.MODERNBERT, tensors, x)) for x in texts]
    assert np.abs(model.embed(texts) - want).max() < 2e-6
    below = {f"model.{name}": x for name, x in tensors.items()}
    below["head.dense.weight"] = np.ones((tiny.WIDTH, tiny.WIDTH), np.float32)
    config = {
        **tiny.MODERNBERT,
        "layer_types": ["full_attention"] + 3 * ["sliding_attention"],
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}},
    }
    model = vkattn.models.load(tiny.write_folder(tmp_path, config, below), device=device)
    assert model.unused == ["head.dense.weight"]
    same = {**tiny.MODERNBERT, "global_attn_every_n_layers": 9, "local_rope_theta": 500.0}
    want = tiny.embedding(tiny.modernbert_rows(same, tensors, IDS))
    assert np.abs(model.embed([IDS])[0] - want).max() < 2e-6
    for change, sentence in (
        ({"layer_types": ["full_attention"]}, "layer_types .* is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling .* is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type 'yarn'"),
        ({"hidden_activation": "quick"}, "hidden_activation 'quick' is not supported"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
    ):
        with pytest.raises((vkattn.UnsupportedError, vkattn.FileError), match=sentence):
            vkattn.models.load(
                tiny.write_folder(tmp_path, {**tiny.MODERNBERT, **change}, tensors), device=device
            )


def test_modernbert_of_transformers(device, modernbert, tmp_path):
    compare_encoder(device, modernbert[0], tmp_path, (IDS * 9)[:40], 3e-6)  # weights of scores up to 20


@pytest.mark.parametrize("words", ["gated-gelu", "relu"])
def test_t5(device, monkeypatch, tmp_path, words):
    config = {**tiny.T5, "feed_forward_proj": words}
    tensors = tiny.matrices(np.random.default_rng(13), tiny.t5_shapes(config))
    named = {**tensors, "decoder.final_layer_norm.weight": np.ones(tiny.WIDTH, np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(tiny.write_folder(tmp_path, config, named), device=device)
    assert model.unused == ["decoder.final_layer_norm.weight"]
    texts = [IDS, IDS[:3], (IDS * 9)[:48]]
    want = [tiny.embedding(tiny.t5_rows(config, tensors, x)) for x in texts]
    got, count = products(monkeypatch, model.embed, texts)
    assert np.abs(got - want).max() < 5e-6
    assert count == 4 * model.n_layer
    for change, sentence in (
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj 'gated-tanh' is not supported"),
        ({"relative_attention_num_buckets": 6}, "6 relative_attention_num_buckets"),
        ({"tied": True}, "it is not known what 'tied' would change"),
    ):
        folder = tiny.write_folder(tmp_path, {**config, **change}, tensors)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises((vkattn.UnsupportedError, UserWarning), match=sentence):
                vkattn.models.load(folder, device=device)


def test_t5_of_transformers(device, tmp_path):
    tensors = tiny.matrices(np.random.default_rng(13), tiny.t5_shapes(tiny.T5))
    folder = tiny.write_folder(tmp_path / "given", tiny.T5, tensors)
    compare_encoder(device, folder, tmp_path, (IDS * 9)[:48], 5e-6, "T5EncoderModel")


# ---- What is refused, named or shown ------------------------------------------------------------


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


ENCODERS = {"bert": (tiny.BERT, tiny.bert_shapes), "albert": (tiny.ALBERT, tiny.albert_shapes)}


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


def test_draws_of_a_batch(made, monkeypatch):
    """A prompt draws what it draws alone, whoever shares the batch and wherever it stands; equal
    prompts draw alike, and each by a seed of its own where there is a list of them."""
    model = made("llama")[0]
    how = {"temperature": 1.5, "stop": ()}
    prompts = [IDS, IDS[:3], [7], IDS, IDS[2:], [7]]
    seeds = [2**63 + 5, 1, 2, 3, 2**40, 2]

    def batch(seed, at_once):
        ids = [[] for _ in prompts]
        for i, token in model.generate_batch(prompts, 9, at_once=at_once, seed=seed, **how):
            ids[i].append(token)
        return ids

    for seed in (7, seeds):
        each = seed if isinstance(seed, list) else [seed] * len(prompts)
        alone = [list(model.generate(p, 9, seed=s, **how)) for p, s in zip(prompts, each)]
        assert batch(seed, 6) == batch(seed, 2) == alone
        assert (alone[0] == alone[3]) == (each[0] == each[3])
    counter = Counter(monkeypatch)
    stream = model.generate_batch([IDS, [7]], np.array(6), seed=np.array(3), **how)
    found = [next(stream) for _ in range(6)]
    counter.taken("vka_tensor_write")
    found += [next(stream) for _ in range(4)]
    assert counter.taken("vka_tensor_write") == []  # the device counts


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


def test_recorded():
    """The plan that was used longest ago is closed; one that is asked for again is not made again."""
    from vkattn.models._graph import Recorded

    events = []

    class Made:
        def __init__(self, *key):
            self.plan, self.key = self, key
            events.append(("made", key))

        def close(self):
            events.append(("closed", self.key))

    recorded = Recorded(Made, 2)
    first = recorded.get(4, (0, 1))
    recorded.get(8)
    assert recorded.get(4, (0, 1)) is first
    recorded.get(16)
    assert recorded.get(4, (0, 1)) is first
    made = [("made", key) for key in ((4, (0, 1)), (8,), (16,))]
    assert events == [*made, ("closed", (8,))]
