"""Whisper with random weights against double, and against transformers where that is installed."""

import json
import warnings

import models_oracle as tiny
import numpy as np
import oracle
import pytest
import tiny_whisper

import vkattn
import vkattn.models
from vkattn.models._mel import filters, log_mel
from vkattn.models._windows import segments_of

IDS = [5, 17, 3, 95, 0, 44, 44, 8, 31, 62, 9, 13]


def load(folder, device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return vkattn.models.load(folder, device=device)


@pytest.fixture(scope="module")
def mel():
    return np.random.default_rng(3).standard_normal((3, tiny_whisper.MEL, 2 * tiny_whisper.SOURCE), np.float32)


@pytest.fixture(scope="module")
def whisper(device, tmp_path_factory):
    """The loaded model, its tensors and its folder."""
    tensors = tiny.matrices(np.random.default_rng(21), tiny_whisper.whisper_shapes(tiny_whisper.WHISPER))
    folder = tiny.write_folder(tmp_path_factory.mktemp("whisper"), tiny_whisper.WHISPER, tensors)
    return load(folder, device), tensors, folder


def test_encode(whisper, mel):
    model, tensors, _ = whisper
    assert model.unused == []
    assert all(len(block.own.qkv) == 1 for block in (*model.encoder, *model.decoder))
    want = np.array([tiny_whisper.whisper_rows(tiny_whisper.WHISPER, tensors, x) for x in mel])
    got = model.encode(mel)
    assert got.shape == (3, tiny_whisper.SOURCE, tiny.WIDTH)
    assert oracle.nmse(got, want) < 1e-11
    assert np.array_equal(model.encode(mel[1]), got[1])


def test_logits(whisper, mel):
    model, tensors, _ = whisper
    judge = tiny_whisper.WhisperOracle(tiny_whisper.WHISPER, tensors, mel[0])
    ids = (IDS * 4)[: tiny_whisper.TARGET]  # two chunks, up to the last position
    assert oracle.nmse(model.logits(mel[0], ids), tiny.logits(judge, ids)) < 1e-10


def test_generate(whisper, mel):
    """Two sounds side by side, and one from the default prompt to the last position."""
    model, tensors, _ = whisper
    judges = [tiny_whisper.WhisperOracle(tiny_whisper.WHISPER, tensors, x) for x in mel[:2]]
    wanted = [tiny.greedy(judge, IDS[:4], 9) for judge in judges]
    assert wanted[0][0] != wanted[1][0]
    streams = [model.generate(x, IDS[:4], 9, stop=()) for x in mel[:2]]
    found = list(zip(*streams))
    for (want, gap), got in zip(wanted, zip(*found)):
        assert gap > 1e-4
        assert list(got) == want
    want, gap = tiny.greedy(judges[1], [5], tiny_whisper.TARGET)
    assert gap > 1e-5
    assert list(model.generate(mel[1], stop=())) == want


def test_other_configurations(device, mel, tmp_path):
    """Scaled embeddings, a head of its own, and float16 weights."""
    config = {**tiny_whisper.WHISPER, "scale_embedding": True, "tie_word_embeddings": False}
    shapes = {**tiny_whisper.whisper_shapes(config), "proj_out.weight": (tiny.TOKENS, tiny.WIDTH)}
    tensors = tiny.matrices(np.random.default_rng(22), shapes)
    half = {k: x.astype(np.float16) for k, x in tensors.items()}
    model = load(tiny.write_folder(tmp_path, config, half), device)
    assert model.conv1.weight.dtype == "f16"
    rounded = {k: x.astype(np.float32) for k, x in half.items()}
    judge = tiny_whisper.WhisperOracle(config, rounded, mel[0])
    assert oracle.nmse(model.logits(mel[0], IDS), tiny.logits(judge, IDS)) < 1e-9
    with pytest.raises(vkattn.InvalidError, match="proj_out.weight has other numbers"):
        load(tiny.write_folder(tmp_path, tiny_whisper.WHISPER, tensors), device)
    copy = {**tensors, "proj_out.weight": tensors["model.decoder.embed_tokens.weight"]}
    tied = load(tiny.write_folder(tmp_path, tiny_whisper.WHISPER, copy), device)
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
    folder = tiny.write_folder(tmp_path, {**tiny_whisper.WHISPER, **change}, whisper[1])
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


def test_calls(whisper, mel):
    model = whisper[0]
    for wrong in (mel[0, :, :-1], mel[0, :-1], mel[0, 0], mel[None], mel[:0]):
        with pytest.raises(vkattn.InvalidError, match="mel: expected"):
            model.encode(wrong)
    for call, sentence in (
        (lambda: model.generate_batch(mel, IDS[:2], timestamps=True), "its no_timestamps_token"),
        (lambda: model.generate_batch(mel, IDS, at_once=0), "at_once: expected"),
        (lambda: iter(model.mel(np.zeros((2, 5)))), r"samples of one channel, got \[2, 5\]"),
        (lambda: iter(model.mel(np.zeros(2 * tiny_whisper.SOURCE * 160 + 1))), "sound: expected 1 to"),
        (lambda: iter(model.mel([0.5, np.nan])), "sound: expected finite samples"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            next(call())
    with pytest.raises(vkattn.InvalidError, match="one sound, got 3"):
        next(model.generate(mel, IDS))
    with pytest.raises(vkattn.InvalidError, match="96 ids, got 96"):
        next(model.generate(mel[0], [96]))
    with pytest.raises(vkattn.InvalidError, match="40 positions"):
        next(model.generate(mel[0], IDS, 30))
    with pytest.raises(TypeError, match="expected ids"):
        next(model.generate(mel[0], "a text"))


# What generate of transformers gives, by its rules for suppressed ids and times: ids of each sound.
RULES = {"suppress_tokens": [8, 19, 20], "begin_suppress_tokens": [42], "eos_token_id": 35}
TIMES = {**RULES, "no_timestamps_token_id": 40, "max_initial_timestamp_index": 9}
PROMPT, COUNT = [5, 17], 24
SAID = {  # of the first sound
    False: [64, 64, 45, 45, 42, 42, 42, *[64] * 12, *[45] * 5],
    True: [50, 12, 12, 12, 64, 64, 12, 12, 76, 76, 0, 89, 89, *[17] * 11],
}


def ruled(whisper, device, tmp_path, rules):
    """The same model with a generation_config.json."""
    folder = tiny.write_folder(tmp_path, tiny_whisper.WHISPER, whisper[1])
    (folder / "generation_config.json").write_text(json.dumps(rules))
    return load(folder, device)


@pytest.mark.parametrize("timestamps", [False, True])
def test_rules(whisper, device, mel, tmp_path, timestamps):
    """Several sounds give what each gives alone, and what its logits and the rules say."""
    model = ruled(whisper, device, tmp_path, TIMES if timestamps else RULES)
    options = {"timestamps": timestamps, "stop": ()}
    found = [[] for _ in mel]
    for i, token in model.generate_batch(mel, PROMPT, COUNT, at_once=2, **options):
        found[i].append(token)
    assert found[1] == list(model.generate(mel[1], PROMPT, COUNT, **options))
    assert found[0] == SAID[timestamps]
    assert not {8, 19, 20} & set(sum(found, [])) and 42 not in {x[0] for x in found}
    free = list(model.generate(mel[0], PROMPT, COUNT, suppress=False, stop=()))
    assert free != found[0]
    if timestamps:
        assert all(41 <= x[0] <= 50 for x in found) and 40 not in sum(found, [])
        assert model.seconds(41) == 0 and model.seconds(44) == pytest.approx(0.06)
        assert model.seconds(40) is None
        with pytest.raises(vkattn.InvalidError, match="temperature: with timestamps"):
            next(model.generate(mel[0], PROMPT, 3, timestamps=True, temperature=1.0))


@pytest.mark.parametrize("timestamps", [False, True])
def test_rules_of_transformers(whisper, device, mel, tmp_path, timestamps):
    reason = "transformers WITH torch IS NOT INSTALLED: RULES OF WHISPER WERE NOT COMPARED WITH IT"
    torch = pytest.importorskip("torch", reason=reason)
    auto = pytest.importorskip("transformers", reason=reason)
    model = ruled(whisper, device, tmp_path, TIMES)
    begin = len(PROMPT)
    kinds = [
        auto.SuppressTokensLogitsProcessor(TIMES["suppress_tokens"]),
        auto.SuppressTokensAtBeginLogitsProcessor(TIMES["begin_suppress_tokens"], begin),
    ]
    if timestamps:
        config = auto.GenerationConfig(**TIMES)
        kinds.append(auto.WhisperTimeStampLogitsProcessor(config, begin_index=begin))

    for sound in mel:
        said = []
        for _ in range(COUNT):
            ids = [*PROMPT, *said]
            scores = torch.tensor(model.logits(sound, ids)[-1:])
            for kind in kinds:
                scores = kind(torch.tensor([ids]), scores)
            said.append(int(scores[0].argmax()))
        options = {"timestamps": timestamps, "stop": ()}
        assert list(model.generate(sound, PROMPT, COUNT, **options)) == said


LONG = {**TIMES, "prev_sot_token_id": 33}
# What transformers says of five windows and a half, with what was said before or without: begin and end in
# steps of time, and ids.
SEGMENTS = {
    False: [
        (9, 23, [50, 12, 64]),
        (27, 37, [45, 12, 12, 12, 12, 55]),
        (37, 46, [55, 12, 12, 64]),
        (55, 69, [50, 31, 64]),
        (69, 81, [64, 12, 12, 76]),
        (81, 98, [76, 12, 93]),
    ],
    True: [
        (9, 23, [50, 12, 64]),
        (27, 37, [45, 12, 55]),
        (37, 46, [55, 12, 64]),
        (55, 60, [50, 13, 13, 13, 13, 13, 55]),
        (60, 61, [55, 6, 56]),
    ],
}


# Segments where windows are passed over, by condition, no_speech_threshold and logprob_threshold.
SILENT = {
    (False, 1e-9, -0.35): [
        (31, 36, [50, 12, 12, 12, 12, 55]),
        (36, 45, [55, 25, 25, 64]),
        (54, 68, [50, 25, 64]),
        (68, 80, [64, 13, 76]),
        (80, 93, [76, 36, 36, 36, 89]),
    ],
    (True, 5e-8, 0.0): [
        (9, 23, [50, 12, 64]),
        (54, 68, [50, 0, 64]),
        (68, 80, [64, 12, 76]),
        (80, 99, [76, 36, 36, 36, 95]),
    ],
    (False, 1e-7, -0.35): SEGMENTS[False],
}


def long_mel():
    rng = np.random.default_rng(31)
    return rng.standard_normal((tiny_whisper.MEL, 11 * tiny_whisper.SOURCE), np.float32)


@pytest.mark.parametrize("condition", [False, True])
def test_windows(whisper, device, tmp_path, condition):
    model = ruled(whisper, device, tmp_path, LONG)
    found = list(model.segments(long_mel(), PROMPT[:1], 12, condition=condition))
    steps = [(round(x.begin / 0.02), round(x.end / 0.02), x.ids) for x in found]
    assert steps == SEGMENTS[condition]
    compare_segments(tmp_path, SEGMENTS[condition], condition_on_prev_tokens=condition)


def compare_segments(folder, expected, **options):
    """What transformers says of long_mel()."""
    reason = "transformers WITH torch IS NOT INSTALLED: WINDOWS WERE NOT COMPARED WITH IT"
    torch = pytest.importorskip("torch", reason=reason)
    auto = pytest.importorskip("transformers", reason=reason)
    made = auto.WhisperForConditionalGeneration
    their = made.from_pretrained(folder, attn_implementation="eager").eval()
    their.generation_config.is_multilingual = False
    their.generation_config.decoder_start_token_id = PROMPT[0]
    their.generation_config.pad_token_id = LONG["eos_token_id"]
    mel = torch.tensor(long_mel()[None])
    with torch.no_grad():
        said = their.generate(
            input_features=mel,
            attention_mask=torch.ones((1, mel.shape[-1]), dtype=torch.long),
            return_timestamps=True,
            return_segments=True,
            max_new_tokens=12,
            **options,
        )["segments"][0]
    steps = [tuple(round(float(x[end]) / 0.02) for end in ("start", "end")) for x in said]
    assert steps == [x[:2] for x in expected]
    for (_, _, ids), x in zip(expected, said):
        assert x["tokens"].tolist()[: len(ids)] == ids  # and the time that begins the next


@pytest.mark.parametrize("condition, silence, least", SILENT)
def test_silence(whisper, device, tmp_path, condition, silence, least):
    """Windows that are passed over, by thresholds between those of the tiny model's windows."""
    model = ruled(whisper, device, tmp_path, LONG)
    limits = {"no_speech_threshold": silence, "logprob_threshold": least}
    found = list(model.segments(long_mel(), PROMPT[:1], 12, condition=condition, **limits))
    steps = [(round(x.begin / 0.02), round(x.end / 0.02), x.ids) for x in found]
    assert steps == SILENT[condition, silence, least]
    compare_segments(tmp_path, steps, condition_on_prev_tokens=condition, temperature=0.0, **limits)


def test_transcribe(whisper, device, tmp_path, rng):
    """A sound of two windows and a little, and what is no sound."""
    model = ruled(whisper, device, tmp_path, TIMES)
    sound = rng.standard_normal(160 * 9 * tiny_whisper.SOURCE // 2 + 70)
    spectrum = log_mel(sound, tiny_whisper.MEL, 13 * tiny_whisper.SOURCE // 2)[:, : 9 * tiny_whisper.SOURCE // 2]
    found = list(model.transcribe(sound, PROMPT, 9))
    assert found == list(model.segments(spectrum, PROMPT, 9)) and len(found) > 2
    assert len(list(model.transcribe(sound[:1], PROMPT, 9))) > 0
    for wrong, sentence in (
        (lambda: model.transcribe(np.zeros((2, 5))), r"samples of one channel, got \[2, 5\]"),
        (lambda: model.transcribe([]), "sound: expected 1 to"),
        (lambda: model.segments(spectrum[1:]), "mel: expected .6, frames."),
        (lambda: model.segments(spectrum, condition=True), "its prev_sot_token_id"),
        (lambda: whisper[0].segments(spectrum), "its no_timestamps_token_id"),
    ):
        with pytest.raises(vkattn.InvalidError, match=sentence):
            wrong()


@pytest.mark.parametrize(
    "ids, frames, found, done",
    [
        ([], 30, [], 30),
        ([1, 2], 30, [(0, 15, [1, 2])], 30),
        ([10, 1, 14], 30, [(0, 4, [10, 1, 14])], 30),
        ([10, 1, 14, 14, 2], 30, [(0, 4, [10, 1, 14])], 8),
        ([12, 1, 14, 15, 2, 18], 30, [(2, 4, [12, 1, 14]), (5, 8, [15, 2, 18])], 30),
        ([12, 1, 14, 15, 2, 18, 18], 30, [(2, 4, [12, 1, 14]), (5, 8, [15, 2, 18])], 16),
        ([10, 10], 30, [(0, 0, [10])], 30),
    ],
)
def test_segments_of(ids, frames, found, done):
    """10 is the id of time 0; a window that says nothing new is done with."""
    assert segments_of(ids, 10, frames) == (found, done)


@pytest.mark.parametrize(
    "rules, sentence",
    [
        ({"suppress_tokens": [96]}, "suppress_tokens: expected ids below 96, got 96"),
        ({"begin_suppress_tokens": ["a"]}, "begin_suppress_tokens: expected ids below 96"),
        ({"no_timestamps_token_id": 96}, "expected an id below 96 and an eos_token_id, got 96"),
        ({"no_timestamps_token_id": "x"}, "no_timestamps_token_id: expected int"),
    ],
)
def test_refused_rules(whisper, device, tmp_path, rules, sentence):
    with pytest.raises(vkattn.FileError, match=sentence):
        ruled(whisper, device, tmp_path, rules)


def test_mel():
    """A spectrum that a sum over samples gives, and that of transformers where it is installed."""
    rng = np.random.default_rng(8)
    sound = (rng.standard_normal(3000) * np.linspace(0, 1, 3000)).astype(np.float32)
    got = log_mel(sound, 80, 40)
    assert got.shape == (80, 40) and got.dtype == np.float32
    samples = np.concatenate([sound[200:0:-1], sound, np.zeros(6400)]).astype(float)
    window = np.sin(np.pi * np.arange(400) / 400) ** 2
    turns = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    power = [np.abs(turns @ (samples[160 * i : 160 * i + 400] * window)) ** 2 for i in range(40)]
    logs = np.log10(np.maximum(filters(80) @ np.array(power).T, 1e-10))
    assert np.abs(got - (np.maximum(logs, logs.max() - 8) + 4) / 4).max() < 1e-6
    some = filters(80)[[0, 40, 40, 79], [1, 42, 44, 199]]  # by transformers
    assert np.abs(some - [0.02486259, 0.00541111, 0.00651819, 0.00044876]).max() < 1e-8
    reason = "transformers IS NOT INSTALLED: SPECTROGRAMS WERE NOT COMPARED WITH IT"
    auto = pytest.importorskip("transformers", reason=reason)
    extractor = auto.WhisperFeatureExtractor()
    assert np.abs(filters(80).T - extractor.mel_filters).max() < 1e-7
    want = extractor._np_extract_fbank_features([np.pad(sound, (0, 3400))], "cpu")[0]
    assert np.abs(want - got).max() < 1e-5
