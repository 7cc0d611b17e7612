"""Whisper with random weights against double, and against transformers where that is installed."""

import warnings

import models_oracle as tiny
import numpy as np
import oracle
import pytest

import vkattn
import vkattn.models

IDS = [5, 17, 3, 95, 0, 44, 44, 8, 31, 62, 9, 13]


def load(folder, device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return vkattn.models.load(folder, device=device)


@pytest.fixture(scope="module")
def mel():
    return np.random.default_rng(3).standard_normal((3, tiny.MEL, 2 * tiny.SOURCE), np.float32)


@pytest.fixture(scope="module")
def whisper(device, tmp_path_factory):
    """The loaded model, its tensors and its folder."""
    tensors = tiny.matrices(np.random.default_rng(21), tiny.whisper_shapes(tiny.WHISPER))
    folder = tiny.write_folder(tmp_path_factory.mktemp("whisper"), tiny.WHISPER, tensors)
    return load(folder, device), tensors, folder


def test_encode(whisper, mel):
    model, tensors, _ = whisper
    assert model.unused == []
    assert all(len(block.own.qkv) == 1 for block in (*model.encoder, *model.decoder))
    want = np.array([tiny.whisper_rows(tiny.WHISPER, tensors, x) for x in mel])
    got = model.encode(mel)
    assert got.shape == (3, tiny.SOURCE, tiny.WIDTH)
    assert oracle.nmse(got, want) < 1e-11
    assert np.array_equal(model.encode(mel[1]), got[1])


def test_logits(whisper, mel):
    model, tensors, _ = whisper
    judge = tiny.WhisperOracle(tiny.WHISPER, tensors, mel[0])
    ids = (IDS * 4)[: tiny.TARGET]  # two chunks, up to the last position
    assert oracle.nmse(model.logits(mel[0], ids), tiny.logits(judge, ids)) < 1e-10


def test_generate(whisper, mel):
    """Two sounds side by side, and one from the default prompt to the last position."""
    model, tensors, _ = whisper
    judges = [tiny.WhisperOracle(tiny.WHISPER, tensors, x) for x in mel[:2]]
    wanted = [tiny.greedy(judge, IDS[:4], 9) for judge in judges]
    assert wanted[0][0] != wanted[1][0]
    streams = [model.generate(x, IDS[:4], 9, stop=()) for x in mel[:2]]
    found = list(zip(*streams))
    for (want, gap), got in zip(wanted, zip(*found)):
        assert gap > 1e-4
        assert list(got) == want
    want, gap = tiny.greedy(judges[1], [5], tiny.TARGET)
    assert gap > 1e-5
    assert list(model.generate(mel[1], stop=())) == want


def test_other_configurations(device, mel, tmp_path):
    """Scaled embeddings, a head of its own, and float16 weights."""
    config = {**tiny.WHISPER, "scale_embedding": True, "tie_word_embeddings": False}
    shapes = {**tiny.whisper_shapes(config), "proj_out.weight": (tiny.TOKENS, tiny.WIDTH)}
    tensors = tiny.matrices(np.random.default_rng(22), shapes)
    half = {k: x.astype(np.float16) for k, x in tensors.items()}
    model = load(tiny.write_folder(tmp_path, config, half), device)
    assert model.conv1.weight.dtype == "f16"
    rounded = {k: x.astype(np.float32) for k, x in half.items()}
    judge = tiny.WhisperOracle(config, rounded, mel[0])
    assert oracle.nmse(model.logits(mel[0], IDS), tiny.logits(judge, IDS)) < 1e-9
    with pytest.raises(vkattn.InvalidError, match="proj_out.weight has other numbers"):
        load(tiny.write_folder(tmp_path, tiny.WHISPER, tensors), device)
    copy = {**tensors, "proj_out.weight": tensors["model.decoder.embed_tokens.weight"]}
    tied = load(tiny.write_folder(tmp_path, tiny.WHISPER, copy), device)
    assert tied.unused == ["proj_out.weight"]


def test_transformers(whisper, device, mel, tmp_path):
    reason = "transformers WITH torch IS NOT INSTALLED: WHISPER WAS NOT COMPARED WITH IT"
    torch = pytest.importorskip("torch", reason=reason)
    auto = pytest.importorskip("transformers", reason=reason)
    model, _, folder = whisper
    made = auto.WhisperForConditionalGeneration
    their = made.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        given, ids = torch.tensor(mel[:1]), torch.tensor([IDS])
        rows = their.model.encoder(given).last_hidden_state[0].numpy()
        want = their(input_features=given, decoder_input_ids=ids).logits[0].numpy()
    assert oracle.nmse(model.encode(mel[0]), rows) < 1e-10
    assert oracle.nmse(model.logits(mel[0], IDS), want) < 1e-9
    their.save_pretrained(tmp_path)
    again = load(tmp_path, device)
    assert np.array_equal(again.logits(mel[0], IDS), model.logits(mel[0], IDS))


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"encoder_attention_heads": 3}, "encoder_attention_heads: 3 do not divide 32"),
        ({"decoder_attention_heads": 5}, "decoder_attention_heads: 5 do not divide 32"),
        ({"activation_function": "x"}, "activation_function 'x' is not supported"),
        ({"num_mel_bins": 7}, r"conv1.weight: expected \[32, 7, 3\], got \[32, 6, 3\]"),
        ({"decoder_layers": 1}, "tensor model.decoder.layers.1.* is not known"),
        ({"tie_word_embeddings": False}, "there is no tensor proj_out.weight"),
    ],
)
def test_refused(whisper, device, tmp_path, change, sentence):
    folder = tiny.write_folder(tmp_path, {**tiny.WHISPER, **change}, whisper[1])
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


def test_calls(whisper, mel):
    model = whisper[0]
    for wrong in (mel[0, :, :-1], mel[0, :-1], mel[0, 0], mel[None], mel[:0]):
        with pytest.raises(vkattn.InvalidError, match="mel: expected"):
            model.encode(wrong)
    with pytest.raises(vkattn.InvalidError, match="one sound, got 3"):
        next(model.generate(mel, IDS))
    with pytest.raises(vkattn.InvalidError, match="96 ids, got 96"):
        next(model.generate(mel[0], [96]))
    with pytest.raises(vkattn.InvalidError, match="40 positions"):
        next(model.generate(mel[0], IDS, 30))
    with pytest.raises(TypeError, match="expected ids"):
        next(model.generate(mel[0], "a text"))
