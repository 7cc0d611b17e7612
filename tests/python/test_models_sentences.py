"""Folders as sentence-transformers of several versions save them."""

import json
import warnings

import models_oracle as tiny
import numpy as np
import pytest
import tiny_encoders

import vkattn
import vkattn.models

IDS = [5, 17, 3, 95, 0, 44, 44, 8]
TYPES = {
    "3": ["sentence_transformers.models.{}"] * 3,
    "5.4": [
        "sentence_transformers.base.modules.transformer.{}",
        "sentence_transformers.sentence_transformer.modules.pooling.{}",
        "sentence_transformers.sentence_transformer.modules.normalize.{}",
    ],
    "6.2": [
        "sentence_transformers.base.modules.transformer.{}",
        "sentence_transformers.sentence_transformer.modules.pooling.{}",
        "sentence_transformers.base.modules.normalize.{}",
    ],
}
KINDS = ("Transformer", "Pooling", "Normalize")
OLD = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False, "include_prompt": True}
NEW = {"embedding_dimension": 32, "include_prompt": True}
NEW_BERT = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}


@pytest.fixture(scope="module")
def tensors():
    return tiny.matrices(np.random.default_rng(7), tiny_encoders.bert_shapes(tiny_encoders.BERT))


@pytest.fixture
def load(device, tmp_path, tensors):
    """load(version, pooling, ..): a folder with these files."""
    count = iter(range(1000))

    def make(version, pooling, n=3, *, types=None, place="", normalize=None, **files):
        folder = tmp_path / str(next(count))
        model = folder / place
        model.mkdir(parents=True)
        tiny.write_folder(model, tiny_encoders.BERT, tensors)
        places = (place, "1_Pooling", "2_Normalize")
        types = types or [t.format(k) for t, k in zip(TYPES[version], KINDS)][:n]
        parts = [
            {"idx": i, "name": str(i), "path": places[i], "type": t} for i, t in enumerate(types)
        ]
        files = {"modules.json": parts, "1_Pooling/config.json": pooling, **files}
        if normalize is not None:
            files["2_Normalize/config.json"] = normalize
        for name, value in files.items():
            path = folder / name.replace("__", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(value))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return vkattn.models.load(folder, device=device)

    return make


def pooling(version, kind):
    if version == "3":
        mode = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}[kind]
        return {**OLD, mode: True}
    return {**NEW, "pooling_mode": kind}


@pytest.mark.parametrize("version", TYPES)
@pytest.mark.parametrize("kind", ["mean", "cls"])
@pytest.mark.parametrize("unit", [True, False])
def test_versions(load, tensors, version, kind, unit):
    rows = tiny_encoders.bert_rows(tiny_encoders.BERT, tensors, IDS)
    want = rows.mean(0) if kind == "mean" else rows[0]
    want = want / np.linalg.norm(want) if unit else want
    bert = {"max_seq_length": 20, "do_lower_case": False} if version == "3" else NEW_BERT
    end = {f"module_{x}put_name": "sentence_embedding" for x in ("in", "out")}
    model = load(
        version,
        pooling(version, kind),
        3 if unit else 2,
        normalize=end if unit and version != "3" else None,
        sentence_bert_config__json=bert,
        config_sentence_transformers__json={"model_type": "SentenceTransformer", "prompts": {}},
    )
    assert np.abs(model.embed([IDS])[0] - want).max() < 2e-5
    assert model.max_length == (20 if version == "3" else 48)


def test_of_both_versions(load, tensors):
    want = tiny_encoders.embedding(tiny_encoders.bert_rows(tiny_encoders.BERT, tensors, IDS), "cls")
    for version, given in (("3", pooling("6.2", "cls")), ("6.2", pooling("3", "cls"))):
        assert np.abs(load(version, given).embed([IDS])[0] - want).max() < 2e-5
    both = {**pooling("3", "cls"), "pooling_mode": ["cls"]}
    assert np.abs(load("6.2", both).embed([IDS])[0] - want).max() < 2e-5
    # The model in a folder of its own, as old versions wrote it.
    name = "0_Transformer/sentence_bert_config__json"
    model = load("3", both, place="0_Transformer", **{name: {"max_seq_length": 9}})
    assert np.abs(model.embed([IDS])[0] - want).max() < 2e-5 and model.max_length == 9


def test_lengths(load):
    mean = pooling("3", "mean")
    for stated, own, want in (
        ({"max_seq_length": 20}, {"model_max_length": 10}, 20),
        ({}, {"model_max_length": 10}, 10),
        ({"max_seq_length": None}, {"model_max_length": 10}, 10),
        ({}, {"model_max_length": 10**30}, 48),
        ({}, {"model_max_length": 1e30}, 48),
        ({}, {"model_max_length": 10.0}, 10),
        ({}, {"model_max_length": None}, 48),
        ({"max_seq_length": 500}, {}, 48),
    ):
        model = load("3", mean, sentence_bert_config__json=stated, tokenizer_config__json=own)
        assert model.max_length == want, (stated, own)
    assert load("3", mean, tokenizer_config__json={"model_max_length": 10}).max_length == 10
    for stated, own, sentence in (
        ({"max_seq_length": 0}, {}, "max_seq_length: expected 1"),
        ({"max_seq_length": "x"}, {}, "max_seq_length: expected int"),
        ({}, {"model_max_length": 0}, "model_max_length: expected a whole number from 1"),
        ({}, {"model_max_length": 2.5}, "model_max_length: expected a whole number from 1"),
        ({}, {"model_max_length": float("nan")}, "model_max_length: expected a whole number"),
        ({}, {"model_max_length": "x"}, "model_max_length: expected int or float"),
    ):
        with pytest.raises(vkattn.FileError, match=sentence):
            load("3", mean, sentence_bert_config__json=stated, tokenizer_config__json=own)


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"types": ["sentence_transformers.models.CNN"]}, "models.CNN' is not supported"),
        ({"types": ["other.models.Transformer"]}, "other.models.Transformer' is not supported"),
        ({"types": ["sentence_transformers.models.Transformer"]}, "without Pooling"),
        (
            {
                "types": [
                    f"sentence_transformers.models.{k}"
                    for k in ("Transformer", "Normalize", "Pooling")
                ]
            },
            "Pooling' is not supported in this place",
        ),
        (
            {"types": ["sentence_transformers.models.Pooling"] * 2},
            "expected the name of a folder|not supported in this place",
        ),
        ({"pooling": {**NEW, "pooling_mode": "max"}}, r"pooling by \['max'\] is not"),
        ({"pooling": {**NEW, "pooling_mode": ["mean", "cls"]}}, "pooling by .* is not"),
        ({"pooling": {**pooling("3", "cls"), "pooling_mode": "mean"}}, "pooling by .* is not"),
        ({"pooling": NEW}, r"pooling by \[\] is not"),
        ({"pooling": {**NEW, "pooling_mode": 3}}, "pooling_mode: expected str or list"),
        (
            {"sentence_bert_config__json": {**NEW_BERT, "transformer_task": "fill-mask"}},
            "transformer_task 'fill-mask' is not supported",
        ),
        (
            {"sentence_bert_config__json": {"module_output_name": "sentence_embedding"}},
            "module_output_name .* is not supported",
        ),
        (
            {"sentence_bert_config__json": {"modality_config": {"text": {"method": "encode"}}}},
            "method 'encode' is not supported",
        ),
        (
            {
                "sentence_bert_config__json": {
                    "modality_config": {"text": {"method_output_name": "pooler_output"}}
                }
            },
            "method_output_name 'pooler_output' is not supported",
        ),
        ({"normalize": {"module_input_name": "token_embeddings"}}, "module_input_name .* is not"),
        (
            {"config_sentence_transformers__json": {"model_type": "SparseEncoder"}},
            "model_type 'SparseEncoder' is not supported",
        ),
    ],
)
def test_refused(load, given, sentence):
    chosen = {"pooling": pooling("3", "mean"), **given}
    with pytest.raises(vkattn.VkattnError, match=sentence):
        load("3", chosen.pop("pooling"), **chosen)


@pytest.mark.parametrize(
    "given",
    [
        {"pooling": {**NEW, "pooling_mode": "mean", "layer_weights": [1]}},
        {"sentence_bert_config__json": {**NEW_BERT, "unheard_of": 2}},
    ],
)
def test_warned(load, given):
    """What nobody knows is named."""
    chosen = {"pooling": pooling("3", "mean"), **given}
    with pytest.raises(UserWarning, match="'layer_weights'|'unheard_of'"):
        load("3", chosen.pop("pooling"), **chosen)
