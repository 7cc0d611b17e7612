"""Encoders of each family against what transformers computes: numbers that are kept, and where it
is installed all of them."""

import pathlib
import re
import warnings

import families_encoders as families
import models_oracle as tiny
import numpy as np
import pytest

import vkattn
import vkattn.models
from vkattn.models._clip import FAMILIES as PAIRS
from vkattn.models._encoder_families import FAMILIES as TEXTS
from vkattn.models._encoder_families import REFUSED
from vkattn.models._seq2seq_rows import FAMILIES as SEQ2SEQ
from vkattn.models._vision import FAMILIES as IMAGES

STORED = families.stored()


@pytest.fixture(scope="module")
def made(device, tmp_path_factory):
    """made(name): a folder and its model; each once."""
    kept = {}

    def make(name):
        if name not in kept:
            weights = families.weights_of(families.unpacked(STORED[name]["tensors"]))
            folder = tmp_path_factory.mktemp("encoder")
            tiny.write_folder(folder, families.config_of(name), weights)
            kept[name] = folder, vkattn.models.load(folder, device=device)
        return kept[name]

    return make


def test_all_of_them():
    """Each family has a row here."""
    for rows, known in (
        (families.TEXTS, TEXTS),
        (families.IMAGES, IMAGES),
        (families.PAIRS, PAIRS),
        (families.SEQ2SEQ, SEQ2SEQ),
    ):
        assert {name.split()[0] for name in rows} == set(known)
    assert set(STORED) == set(families.ALL)
    assert families.STORED.stat().st_size < 70000


def test_documented():
    """docs/models.md has each family in its tables of encoders, and each refused one below them."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "models.md").read_text()
    part = page.partition("### Encoders")[2].partition("### Files")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| ")]
    found = [name.strip() for row in rows if "`" not in row for name in row.split(",")]
    assert sorted(found) == sorted([*TEXTS, *IMAGES, *PAIRS, *SEQ2SEQ])
    for name in REFUSED:
        assert re.search(rf"\b{name}\b", part.rpartition("|")[2])


@pytest.mark.parametrize("name", families.ALL)
def test_stored(made, name):
    found = families.kept(families.ours(name, made(name)[1]))
    for key, x in found.items():
        want = np.array(STORED[name][key])
        assert x.shape == want.shape
        assert np.abs(x - want).max() < 1e-5 * max(1, np.abs(want).max())


@pytest.mark.parametrize("name", families.ALL)
def test_transformers(made, device, tmp_path, name):
    """All numbers; and what it saves has the kept names, and is read without a warning."""
    reason = "transformers WITH torch IS NOT INSTALLED: ENCODERS WERE NOT COMPARED WITH IT"
    pytest.importorskip("torch", reason=reason)
    pytest.importorskip("transformers", reason=reason)
    folder, model = made(name)
    want = families.theirs(name, folder)
    for key, x in families.ours(name, model).items():
        assert x.shape == want[key].shape
        assert np.abs(x - want[key]).max() < 1e-5 * max(1, np.abs(want[key]).max())
    shapes = families.saved_shapes(name, tmp_path)
    assert shapes == families.unpacked(STORED[name]["tensors"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = vkattn.models.load(tmp_path, device=device)
    assert again.unused == model.unused


@pytest.mark.parametrize(
    "name, change, sentence",
    [
        ("mpnet", {"relative_attention_num_buckets": 16}, "num_buckets 16 is not supported"),
        (
            "camembert",
            {"position_embedding_type": "relative_key"},
            "type 'relative_key' is not supp",
        ),
        ("electra", {"is_decoder": True}, "is_decoder True is not supported"),
        ("electra", {"embedding_size": 16}, r"expected \[96, 16\], got \[96, 12\]"),
        ("megatron-bert", {"hidden_act": "mish"}, "hidden_act 'mish' is not supported"),
        ("ernie", {"use_task_id": True}, "there is no tensor ernie.embeddings.task_type"),
        ("ernie of tasks", {"use_task_id": False}, "task_type_embeddings.weight is not known"),
        ("xmod", {"default_language": None}, "default_language: expected one of .* got None"),
        ("xmod", {"default_language": "fr_XX"}, "default_language: expected one of"),
        ("xmod", {"pre_norm": True}, "there is no tensor roberta.encoder.LayerNorm.weight"),
        ("xmod", {"adapter_reduction_factor": 4}, r"dense1.weight: expected \[8, 32\]"),
        ("nomic_bert", {"rope_parameters": {"rope_type": "dynamic"}}, "type 'dynamic'"),
        ("eurobert", {"rope_scaling": {"type": "longrope"}}, "rope_type 'longrope' is not supp"),
        ("eurobert", {"num_key_value_heads": 3}, "num_key_value_heads: 3 do not divide 4"),
        ("eurobert", {"attention_bias": True}, "there is no tensor model.layers.0.*q_proj.bias"),
        ("eurobert", {"head_dim": 16}, r"q_proj.weight: expected \[64, 32\], got \[32, 32\]"),
        (
            "esm",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type 'relative_key'",
        ),
        ("esm", {"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
        ("esm", {"is_folding_model": True}, "is_folding_model True is not supported"),
        ("esm with positions", {"pad_token_id": None}, "there is no pad_token_id"),
        (
            "esm with positions",
            {"emb_layer_norm_before": None},
            "embeddings.layer_norm.* is not known",
        ),
        (
            "layoutlm",
            {"max_2d_position_embeddings": None},
            r"expected \[1024, 32\], got \[20, 32\]",
        ),
        ("umt5", {"relative_attention_num_buckets": 6}, "6 relative_attention_num_buckets"),
        ("dinov2", {"use_swiglu_ffn": True}, "there is no tensor dinov2.*weights_in.weight"),
        ("dinov2", {"mlp_ratio": 0}, "mlp_ratio: expected a positive number"),
        ("deit", {"patch_size": 5}, "patch_size: 5 does not divide 12"),
        (
            "siglip",
            {"vision_config": {"vision_use_head": False}},
            "vision_use_head False is not supp",
        ),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings False is not supported"),
        ("bart", {"decoder_attention_heads": 5}, "decoder_attention_heads: 5 do not divide 32"),
        ("bart", {"decoder_layers": 1}, "model.decoder.layers.1.* is not known"),
        ("bart", {"model_type": "mbart"}, "there is no tensor model.encoder.layer_norm.weight"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_.* False is not supported"),
        ("m2m_100", {"pad_token_id": 47}, "pad_token_id: expected 0 to 46, got 47"),
        ("t5 whole", {"num_decoder_layers": 2}, "tensor decoder.block.2.* is not known"),
        ("t5 whole", {"relative_attention_max_distance": 16}, "32 relative_attention_num_buckets"),
        (
            "bert",
            {"model_type": "deberta-v2"},
            "deberta-v2' is not supported, for want of .*disentangled",
        ),
        ("bert", {"model_type": "longformer"}, "longformer' is not supported, for want of windows"),
    ],
)
def test_refused(made, device, tmp_path, name, change, sentence):
    weights = families.weights_of(families.unpacked(STORED[name]["tensors"]))
    folder = tiny.write_folder(tmp_path, {**families.config_of(name), **change}, weights)
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


@pytest.mark.parametrize("name", families.TEXTS)
def test_no_tensor_too_many(made, device, tmp_path, name):
    """A tensor in a layer that nothing asks for is refused; one that is missing, too."""
    weights = families.weights_of(families.unpacked(STORED[name]["tensors"]))
    norm = next(key for key in weights if ".1." in key and key.endswith(("norm.weight", "weight")))
    for change, sentence in (
        ({**weights, f"{norm}s": weights[norm]}, f"tensor {norm}s is not known"),
        ({key: x for key, x in weights.items() if key != norm}, f"there is no tensor {norm}"),
    ):
        folder = tiny.write_folder(tmp_path, families.config_of(name), change)
        with pytest.raises(vkattn.VkattnError, match=sentence):
            vkattn.models.load(folder, device=device)


def test_ids_without_a_place(made):
    """Padding where positions are counted from behind it, and masks that scale the others."""
    for name, padding in (
        ("camembert", 1),
        ("mpnet", 1),
        ("xlm-roberta", 0),
        ("esm with positions", 1),
    ):
        model = made(name)[1]
        assert model.max_length == 47 - padding
        with pytest.raises(vkattn.InvalidError, match=f"{padding} is the id of padding"):
            model.embed([[5, padding]])
    model = made("esm")[1]
    model.embed([[5, 1, 7]])  # positions turn, and 1 is an id as others
    with pytest.raises(vkattn.UnsupportedError, match="90 is the id of masks.*token_dropout"):
        model.embed([[5, 90]])


@pytest.mark.parametrize("name", ["bert", "esm", "eurobert", "modernbert", "xmod", "t5"])
def test_packed(made, monkeypatch, name):
    """Texts stand end to end, and give what each gives alone: 20 of 608 ids are 608 rows."""
    model = made(name)[1]
    rng = np.random.default_rng(5)
    lengths = rng.permutation([*range(21, 40), 38])
    texts = [rng.integers(2, 90, n).tolist() for n in lengths]
    assert sum(lengths) == 608
    gather, rows = vkattn.Plan.gather, []

    def noted(plan, table, ids, *arguments, **options):
        if table is model.embedding:
            rows.append(ids.shape)
        return gather(plan, table, ids, *arguments, **options)

    monkeypatch.setattr(vkattn.Plan, "gather", noted)
    got = model.embed(texts)
    assert rows == ([(16, 64), (4, 32)] if name == "t5" else [(1, 608)])
    alone = np.array([model.embed([text])[0] for text in texts])
    assert np.array_equal(got, alone)
    assert np.array_equal(model.embed(texts[::-1], at_once=7)[::-1], alone)


def test_siglip_of_a_str(made, monkeypatch):
    """A str is filled up with the id of padding, as transformers does it for SigLIP."""
    model = made("siglip")[1]
    monkeypatch.setattr(model.text, "encode", lambda text: [5, 9, 2])
    got = model.embed_texts(["a text"])
    assert np.array_equal(got, model.embed_texts([[5, 9, 2] + [1] * 37]))
    assert np.abs(got - model.embed_texts([[5, 9, 2]])).max() > 1e-3


def test_answers(made):
    """A decoder takes a prompt of its own, ends at what the model names, and refuses what it has no
    place for."""
    model = made("bart")[1]
    assert model.start_id == 2 and model.stop_ids == (2,)
    ids = list(model.generate(families.IDS, 20, stop=()))
    assert len(ids) == 20 and ids[:8] == list(model.generate(families.IDS, 8, [2], stop=()))
    assert list(model.generate(families.IDS, 20, stop=[ids[5]])) == ids[: ids.index(ids[5])]
    assert list(model.generate(families.IDS, 4, [2, *ids[:3]], stop=())) == ids[3:7]
    assert len(list(model.generate(families.IDS, stop=()))) == 48
    # Another source in between does not change what a generator goes on with.
    stream = model.generate(families.IDS, 8, stop=())
    first = [next(stream) for _ in range(3)]
    other = list(model.generate(families.IDS[::-1], 8, stop=()))
    assert [*first, *stream] == ids[:8] != other
    for call, sentence in (
        (lambda: model.generate([], 1), "source: expected 1 to 48 ids, got 0"),
        (lambda: model.generate([96], 1), "source: the model has 96 ids, got 96"),
        (lambda: model.generate([5], 1, [96]), "has 96 ids, got 96"),
        (lambda: model.generate([5], 40, [2] * 10), "has 48 positions, but 49 are asked for"),
        (lambda: made("m2m_100")[1].generate([5], 1, [1]), "prompt: 1 is the id of padding"),
        (lambda: made("m2m_100")[1].generate([5, 1], 1), "source: 1 is the id of padding"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            list(call())
