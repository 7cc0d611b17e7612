"""Rows of texts, and what stands behind them: heads, products of sentence-transformers and ColBERT,
weights of SPLADE, and the last rows of decoders."""

import json

import families
import families_encoders as encoders
import models_oracle as tiny
import numpy as np
import pytest

import vkattn
import vkattn.models

STORED = encoders.stored()
TEXTS = encoders.TEXTS_OF_IDS
ST = "sentence_transformers.models."


def tensors_of(name):
    return encoders.weights_of(encoders.unpacked(STORED[name]["tensors"]))


@pytest.fixture
def load(device, tmp_path):
    """load(name, tensors, keys, files): a model of a row with other keys, and with files beside."""

    def make(name, tensors=None, keys=(), files=()):
        config = {**encoders.config_of(name), **dict(keys)}
        config = {key: x for key, x in config.items() if x is not None}
        tiny.write_folder(tmp_path, config, tensors or tensors_of(name))
        for path, value in dict(files).items():
            place = tmp_path / path
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(value))
        return vkattn.models.load(tmp_path, device=device)

    return make


def modules(*kinds):
    """modules.json: the first in the folder itself, the others in one of their number."""
    return [
        {"idx": i, "name": str(i), "path": str(i) if i else "", "type": kind}
        for i, kind in enumerate(kinds)
    ]


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_rows(load):
    """Rows of each text, whose mean is what embed gives, of texts that are packed or padded."""
    model = load("bert token")
    rows = model.rows(TEXTS)
    assert [x.shape for x in rows] == [(len(text), tiny.WIDTH) for text in TEXTS]
    vectors = np.array([unit(x.astype(float).mean(0)) for x in rows])
    assert np.abs(vectors - model.embed(TEXTS)).max() < 1e-6
    again = model.rows(TEXTS[::-1], at_once=1)[::-1]
    assert all(map(np.array_equal, rows, again))
    assert model.rows([]) == [] and model.labels == [f"label {i}" for i in range(5)]
    assert model.task == "token" and model.unused == []
    padded = load("mpnet token")
    logits, alone = padded.logits(TEXTS), [padded.logits([text])[0] for text in TEXTS]
    assert all(np.abs(a - b).max() < 1e-6 for a, b in zip(logits, alone))
    assert [x.shape for x in logits] == [(len(text), 2) for text in TEXTS]


def test_pairs(load, monkeypatch):
    """A pair is one text, whose ids have the types that the tokenizer gives; RoBERTa has none."""
    ids, types = TEXTS[0], encoders.types_of(TEXTS[0])
    asked = []

    def pair(self, first, second):
        asked.append((first, second))
        return ids, types

    monkeypatch.setattr(vkattn.models._text.Text, "encode_pair", pair)
    model = load("bert sequence")
    plain, typed = model.logits([ids]), model.logits([ids], types=[types])
    assert plain.shape == (1, 1) and model.labels == ["label 0"]
    assert np.abs(plain - typed).max() > 1e-3
    got = model.logits([("a query", "a document"), ids, ["b", "c"]])
    assert np.array_equal(got, np.concatenate([typed, plain, typed]))
    assert asked == [("a query", "a document"), ("b", "c")]
    other = load("roberta sequence")
    assert np.array_equal(other.logits([("a", "b")]), other.logits([ids]))
    for call, sentence in (
        (lambda: model.logits([ids], types=[types, types]), "types: expected those of 1 texts"),
        (lambda: model.logits([ids], types=[types[:3]]), r"types\[0\]: expected 12, one for each"),
        (lambda: model.logits([ids], types=[[2] * 12]), r"types\[0\]"),
        (lambda: model.logits([("a", "b", "c")]), r"texts\[0\]: expected a str, a pair of two or"),
        (lambda: model.embed_sparse([ids]), "embed_sparse: the model's head is of sequence"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            call()
    with pytest.raises(vkattn.InvalidError, match="types: the model has none"):
        load("distilbert sequence").logits([ids], types=[types])


def test_without_a_head(load):
    """A file of the encoder alone, whatever class config.json names; and names of no class."""
    tensors = {key: x for key, x in tensors_of("bert").items() if not key.startswith("cls.")}
    model = load("bert", tensors)
    assert model.rows(TEXTS)[1].shape == (3, tiny.WIDTH)
    with pytest.raises(vkattn.InvalidError, match="have no head of masked; rows.texts."):
        model.logits(TEXTS)
    model = load("bert sequence", keys={"architectures": None})
    assert "classifier.weight" in model.unused
    with pytest.raises(vkattn.InvalidError, match="no head that architectures in config.json"):
        model.logits(TEXTS)


@pytest.mark.parametrize(
    "name, keys, sentence",
    [
        ("bert sequence", {"id2label": {"0": "a", "1": "b"}}, r"weight: expected \[2, 32\], got"),
        ("bert token", {"id2label": {"1": "b"}}, "id2label: there is no '0'"),
        ("modernbert sequence", {"classifier_pooling": "max"}, "classifier_pooling 'max' is not"),
        ("modernbert token", {"classifier_activation": "mish"}, "classifier_activation"),
    ],
)
def test_refused_heads(load, name, keys, sentence):
    with pytest.raises(vkattn.VkattnError, match=sentence):
        load(name, keys=keys)


def test_splade(load):
    """The weights by a masked head alone, and by the modules of a sparse encoder."""
    model = load("distilbert")
    want = [np.log1p(np.maximum(x.astype(np.float64).max(0), 0)) for x in model.logits(TEXTS)]
    got = model.embed_sparse(TEXTS)
    assert got.shape == (3, tiny.TOKENS) and np.abs(got - want).max() < 1e-6
    sparse = "sentence_transformers.sparse_encoder.models."
    files = {
        "modules.json": modules(f"{sparse}MLMTransformer", f"{sparse}SpladePooling"),
        "1/config.json": {"pooling_strategy": "max", "activation_function": "relu"},
    }
    assert np.array_equal(load("distilbert", files=files).embed(TEXTS), got)
    files["1/config.json"]["pooling_strategy"] = "sum"
    with pytest.raises(vkattn.UnsupportedError, match="pooling_strategy 'sum' is not supported"):
        load("distilbert", files=files)


def test_colbert(load, rng, tmp_path):
    """The files of ColBERT, and those of PyLate: a narrow row of length 1 for each id."""
    rows = load("bert").rows(TEXTS)
    weight = rng.standard_normal((8, tiny.WIDTH)).astype(np.float32)
    want = [unit(x @ weight.T.astype(float)) for x in rows]
    named = {"architectures": ["HF_ColBERT"]}
    model = load("bert", {**tensors_of("bert"), "linear.weight": weight}, named)
    assert all(np.abs(a - b).max() < 1e-5 for a, b in zip(model.rows(TEXTS), want))
    with pytest.raises(vkattn.InvalidError, match="embed: the model has a vector of each id"):
        model.embed(TEXTS)
    (tmp_path / "1").mkdir()
    tiny.write_folder(tmp_path / "1", {}, {"linear.weight": weight})
    dense = {"in_features": tiny.WIDTH, "out_features": 8, "bias": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    files = {"modules.json": modules(f"{ST}Transformer", "pylate.models.Dense.Dense")}
    model = load("bert", files={**files, "1/config.json": dense})
    assert all(np.abs(a - b).max() < 1e-5 for a, b in zip(model.rows(TEXTS), want))


def test_dense(load, rng, tmp_path):
    """Products behind the pooling, as of LaBSE."""
    rows = [x.mean(0, np.float64) for x in load("bert").rows(TEXTS)]
    weight = rng.standard_normal((8, tiny.WIDTH)).astype(np.float32)
    bias = rng.standard_normal(8).astype(np.float32)
    (tmp_path / "2").mkdir()
    tiny.write_folder(tmp_path / "2", {}, {"linear.weight": weight, "linear.bias": bias})
    kinds = [ST + x for x in ("Transformer", "Pooling", "Dense", "Normalize")]
    dense = {"in_features": tiny.WIDTH, "out_features": 8, "bias": True}
    dense["activation_function"] = "torch.nn.modules.activation.Tanh"
    files = {"modules.json": modules(*kinds), "1/config.json": {"pooling_mode": "mean"}}
    got = load("bert", files={**files, "2/config.json": dense}).embed(TEXTS)
    assert np.abs(unit(np.tanh(np.array(rows) @ weight.T + bias)) - got).max() < 1e-5
    assert got.shape == (3, 8)
    for change, sentence in (
        ({"activation_function": "torch.nn.Mish"}, "activation_function 'torch.nn.Mish' is not"),
        ({"in_features": 16}, "in_features: expected 32, got 16"),
        ({"out_features": 9}, r"linear.weight: expected \[9, 32\], got \[8, 32\]"),
    ):
        with pytest.raises(vkattn.VkattnError, match=sentence):
            load("bert", files={**files, "2/config.json": {**dense, **change}})


def test_last_rows_of_a_decoder(device, tmp_path):
    """Qwen3-Embedding: the last row, of length 1. Rows are those that logits are made of."""
    shapes = json.loads(families.EXPECTED.read_text())["qwen3"]["shapes"]
    families.write_model(tmp_path, "qwen3", shapes)
    plain = vkattn.models.load(tmp_path, device=device)
    with pytest.raises(vkattn.InvalidError, match="there is no modules.json"):
        plain.embed(TEXTS)
    kinds = [ST + x for x in ("Transformer", "Pooling", "Normalize")]
    (tmp_path / "modules.json").write_text(json.dumps(modules(*kinds)))
    (tmp_path / "1").mkdir()
    (tmp_path / "1/config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    model = vkattn.models.load(tmp_path, device=device)
    rows = model.rows(TEXTS, at_once=2)
    assert np.abs(model.embed(TEXTS) - unit([x[-1] for x in rows])).max() < 1e-6
    name = "lm_head.weight"
    head = families.value_of(name, shapes[name], "qwen3")
    for text, made in zip(TEXTS, rows):
        assert np.abs(made @ head.T - model.logits(text)).max() < 1e-4
    alone = [model.rows([text])[0] for text in TEXTS]
    assert all(np.abs(a - b).max() < 1e-6 for a, b in zip(rows, alone))


def test_pairs_by_tokenizers(load, tmp_path):
    """Ids and types of a pair, which is cut where it is too long."""
    reason = "tokenizers IS NOT INSTALLED: NO PAIR OF TEXTS WAS MADE INTO TOKENS"
    tokenizers = pytest.importorskip("tokenizers", reason=reason)
    words = {f"w{i}": i for i in range(tiny.TOKENS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w9"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="w2 $A w3", pair="w2 $A w3 $B:1 w3:1", special_tokens=[("w2", 2), ("w3", 3)]
    )
    model = load("bert sequence")
    made.save(str(tmp_path / "tokenizer.json"))
    want = model.logits([[2, 5, 17, 3, 8, 3]], types=[[0, 0, 0, 0, 1, 1]])
    assert np.array_equal(model.logits([("w5 w17", "w8")]), want)
    ids = [2, *[5] * 10, 3, *[8] * 35, 3]
    want = model.logits([ids], types=[[*[0] * 12, *[1] * 36]])
    assert np.array_equal(model.logits([("w5 " * 10, "w8 " * 90)]), want)
