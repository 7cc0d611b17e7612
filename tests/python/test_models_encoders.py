"""Whole encoders: tiny ones with random weights against numpy in double, and against transformers
where that is installed."""

import json
import warnings

import models_oracle as tiny
import numpy as np
import pytest
import tiny_encoders
from tiny_decoders import IDS, products

import vkattn
import vkattn.models

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
    tensors = tiny.matrices(rng, tiny_encoders.bert_shapes(tiny_encoders.BERT))
    return tiny.write_folder(tmp_path_factory.mktemp("bert"), tiny_encoders.BERT, tensors), tensors


def test_bert(device, bert, monkeypatch, tmp_path):
    folder, tensors = bert
    model = vkattn.models.load(folder, device=device)
    assert model.unused == ["pooler.dense.bias", "pooler.dense.weight"]
    texts = [IDS, IDS[:3], [9], (IDS * 4)[:40], IDS[::-1]]
    want = [tiny_encoders.embedding(tiny_encoders.bert_rows(tiny_encoders.BERT, tensors, ids)) for ids in texts]
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
        tmp_path / "named", tiny_encoders.BERT, {f"bert.{name}": x for name, x in tensors.items()}
    )
    modules(other, {"pooling_mode_cls_token": True}, "Transformer", "Pooling")
    (other / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    model = vkattn.models.load(other, device=device)
    rows = tiny_encoders.bert_rows(tiny_encoders.BERT, tensors, IDS)
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
    config = {**tiny_encoders.BERT, "model_type": kind, "type_vocab_size": 1, "pad_token_id": padding}
    below = {name if "lm_head" in name else f"roberta.{name}": x for name, x in tensors.items()}
    model = vkattn.models.load(tiny.write_folder(tmp_path / "a", config, below), device=device)
    assert model.max_length == 47 - padding
    pooler = [f"roberta.pooler.dense.{x}" for x in ("bias", "weight")]
    assert model.unused == ["lm_head.bias", *pooler]
    ids = [i for i in IDS if i != padding]
    texts = [ids, ids[:3], (ids * 5)[: model.max_length]]
    want = [tiny_encoders.embedding(tiny_encoders.bert_rows(config, tensors, x, padding + 1)) for x in texts]
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
    config, tensors = distilbert(tiny_encoders.BERT, bert[1])
    tensors = {f"distilbert.{name}": x for name, x in tensors.items()}
    tensors["pre_classifier.bias"] = np.ones(3, np.float32)
    folder = tiny.write_folder(tmp_path, config, tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(folder, device=device)
    assert model.unused == ["pre_classifier.bias"] and model.max_length == 48
    texts = [IDS, IDS[:3], (IDS * 9)[:48]]
    want = [tiny_encoders.embedding(tiny_encoders.bert_rows(tiny_encoders.BERT, bert[1], ids)) for ids in texts]
    assert np.abs(model.embed(texts) - want).max() < 2e-6
    del tensors["distilbert.transformer.layer.1.ffn.lin2.bias"]
    with pytest.raises(vkattn.InvalidError, match=r"layer.1.ffn.lin2.bias"):
        vkattn.models.load(tiny.write_folder(tmp_path, config, tensors), device=device)


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    tensors = tiny.matrices(np.random.default_rng(17), tiny_encoders.albert_shapes(tiny_encoders.ALBERT))
    return tiny.write_folder(tmp_path_factory.mktemp("albert"), tiny_encoders.ALBERT, tensors), tensors


def test_albert(device, albert, tmp_path):
    """Layers that share weights by groups, and narrow embeddings."""
    folder, tensors = albert
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(folder, device=device)
    assert model.unused == ["pooler.bias", "pooler.weight"] and model.n_layer == 10
    judge = tiny_encoders.albert_as_bert(tiny_encoders.ALBERT, tensors)
    texts = [IDS, IDS[:3], (IDS * 9)[:48]]
    want = [tiny_encoders.embedding(tiny_encoders.bert_rows(*judge, ids)) for ids in texts]
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
        other = tiny.write_folder(tmp_path, {**tiny_encoders.ALBERT, **change}, below)
        with pytest.raises(vkattn.VkattnError, match=sentence):
            vkattn.models.load(other, device=device)
    model = vkattn.models.load(tiny.write_folder(tmp_path, tiny_encoders.ALBERT, below), device=device)
    assert model.unused[-1] == "predictions.bias"
    assert np.abs(model.embed(texts) - want).max() < 5e-6


def test_attentions(device, bert, albert):
    """Weights of each layer and head, of texts of several lengths, against double."""
    for folder, judge in (
        (bert[0], (tiny_encoders.BERT, bert[1])),
        (albert[0], tiny_encoders.albert_as_bert(tiny_encoders.ALBERT, albert[1])),
    ):
        model = vkattn.models.load(folder, device=device)
        texts = [IDS[:5], [9], (IDS * 9)[:40], IDS]
        got = model.attentions(texts, at_once=2)
        for ids, weights in zip(texts, got):
            want = []
            tiny_encoders.bert_rows(*judge, ids, weights=want)
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
    assert np.abs(got[0] - tiny_encoders.embedding(rows)).max() < limit
    weights = np.array([x[0].numpy() for x in said.attentions])
    assert np.abs(model.attentions([ids])[0] - weights).max() < limit
    their.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = vkattn.models.load(tmp_path, device=device)
    assert np.array_equal(again.embed([ids]), got)


def test_distilbert_of_transformers(device, bert, tmp_path):
    folder = tiny.write_folder(tmp_path / "given", *distilbert(tiny_encoders.BERT, bert[1]))
    compare_encoder(device, folder, tmp_path, IDS, 2e-6)


def test_albert_of_transformers(device, albert, tmp_path):
    compare_encoder(device, albert[0], tmp_path, IDS, 5e-6)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_bert_of_transformers(device, bert, tmp_path, kind):
    config = {**tiny_encoders.BERT, "model_type": kind, "pad_token_id": 1}
    folder = tiny.write_folder(tmp_path / "given", config, bert[1])
    compare_encoder(device, folder, tmp_path, IDS, 2e-6)


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory):
    rng = np.random.default_rng(11)
    tensors = tiny.matrices(rng, tiny_encoders.modernbert_shapes(tiny_encoders.MODERNBERT))
    return tiny.write_folder(tmp_path_factory.mktemp("m"), tiny_encoders.MODERNBERT, tensors), tensors


def test_modernbert(device, modernbert, tmp_path):
    folder, tensors = modernbert
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(folder, device=device)
    assert model.max_length == 64 and model.unused == []
    texts = [IDS, IDS[:3], (IDS * 9)[:64]]
    want = [tiny_encoders.embedding(tiny_encoders.modernbert_rows(tiny_encoders.MODERNBERT, tensors, x)) for x in texts]
    assert np.abs(model.embed(texts) - want).max() < 2e-6
    below = {f"model.{name}": x for name, x in tensors.items()}
    below["head.dense.weight"] = np.ones((tiny.WIDTH, tiny.WIDTH), np.float32)
    config = {
        **tiny_encoders.MODERNBERT,
        "layer_types": ["full_attention"] + 3 * ["sliding_attention"],
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}},
    }
    model = vkattn.models.load(tiny.write_folder(tmp_path, config, below), device=device)
    assert model.unused == ["head.dense.weight"]
    same = {**tiny_encoders.MODERNBERT, "global_attn_every_n_layers": 9, "local_rope_theta": 500.0}
    want = tiny_encoders.embedding(tiny_encoders.modernbert_rows(same, tensors, IDS))
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
                tiny.write_folder(tmp_path, {**tiny_encoders.MODERNBERT, **change}, tensors), device=device
            )


def test_modernbert_of_transformers(device, modernbert, tmp_path):
    compare_encoder(device, modernbert[0], tmp_path, (IDS * 9)[:40], 3e-6)  # weights of scores up to 20


@pytest.mark.parametrize("words", ["gated-gelu", "relu"])
def test_t5(device, monkeypatch, tmp_path, words):
    config = {**tiny_encoders.T5, "feed_forward_proj": words}
    tensors = tiny.matrices(np.random.default_rng(13), tiny_encoders.t5_shapes(config))
    named = {**tensors, "decoder.final_layer_norm.weight": np.ones(tiny.WIDTH, np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = vkattn.models.load(tiny.write_folder(tmp_path, config, named), device=device)
    assert model.unused == ["decoder.final_layer_norm.weight"]
    texts = [IDS, IDS[:3], (IDS * 9)[:48]]
    want = [tiny_encoders.embedding(tiny_encoders.t5_rows(config, tensors, x)) for x in texts]
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
    tensors = tiny.matrices(np.random.default_rng(13), tiny_encoders.t5_shapes(tiny_encoders.T5))
    folder = tiny.write_folder(tmp_path / "given", tiny_encoders.T5, tensors)
    compare_encoder(device, folder, tmp_path, (IDS * 9)[:48], 5e-6, "T5EncoderModel")
