"""Whole decoders: tiny ones with random weights against numpy in double, and against transformers
where that is installed."""

import json
import warnings

import models_oracle as tiny
import numpy as np
import oracle
import pytest
from tiny_decoders import COSTS, DECODERS, IDS, Counter, products

import vkattn
import vkattn.models

PROMPTS = [IDS[:5], [7], list(range(3, 44)), IDS]  # the third one takes two chunks
COUNTS = [6, 9, 4, 1]


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
