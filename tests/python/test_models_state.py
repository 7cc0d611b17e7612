"""Decoders with layers that keep a state: sequences that come, wait, end and fork."""

import itertools
import json

import families
import pytest
from tiny_decoders import Counter

import vkattn
import vkattn.models
from vkattn.models._design import design_of_config
from vkattn.models._keys import Keys

SHAPES = json.loads(families.EXPECTED.read_text())


@pytest.fixture(scope="module", params=["lfm2", "qwen3_5_text"])
def model(request, device, tmp_path_factory):
    shapes = SHAPES[request.param]["shapes"]
    folder = families.write_model(tmp_path_factory.mktemp("state"), request.param, shapes)
    return vkattn.models.load(folder, device=device)


def alone(model, prompt, n):
    return list(model.generate(prompt, n, stop=()))


def test_one_submit(model, monkeypatch):
    """A token of sequences of different lengths is one submit, and a place that is taken again has
    nothing of the state before."""
    prompts = [families.ids_of(n, [3, n]) for n in (model.chunk_rows + 8, 1, 7)]
    want = [alone(model, prompt, 6) for prompt in prompts]
    counter, found = Counter(monkeypatch), [[] for _ in prompts]
    stream = model.generate_batch(prompts, 6, at_once=2, stop=())

    def take(n):
        for i, token in itertools.islice(stream, n):
            found[i].append(token)
        return len(counter.taken("vka_plan_submit"))

    assert take(3) == 2 + 2  # two runs of the first, each beside one of the other's token
    assert take(4) == 2
    take(18)
    assert found == want


def test_turns(model):
    """A turn that goes on is computed from the state; one that is taken back from the first id on."""
    prompt = families.ids_of(40)
    with model.session(200) as session:
        first = list(session.generate(prompt, 5, stop=()))
        assert first == alone(model, prompt, 5)
        more = [*prompt, *first, 9, 8]
        with pytest.raises(vkattn.InvalidError, match="a state, which cannot go back"):
            session._shared.plans.cache.truncate(0, 43)
        second = list(session.generate(more, 4, stop=()))
        assert second == alone(model, more, 4)
        most = [*more, *second, *families.ids_of(100)]  # more than a run takes, from a row that begins none
        assert list(session.generate(most, 4, stop=())) == alone(model, most, 4)
        back = [*prompt[:20], 7]
        assert list(session.generate(back, 4, stop=())) == alone(model, back, 4)


def test_forks(model):
    prompt = families.ids_of(11)
    session = model.session(40, forks=1)
    first = list(session.generate(prompt, 3, stop=()))
    fork = session.fork()
    prompts = [[*prompt, *first, i] for i in (4, 5)]
    turns = [x.generate(p, 6, stop=()) for x, p in zip((session, fork), prompts)]
    found = list(zip(*turns))
    assert [list(x) for x in zip(*found)] == [alone(model, p, 6) for p in prompts]
    session.close()
    fork.close()


def test_layers(model):
    """Layers of attention alone have keys and values, of the type that is asked for."""
    stateful = model.design.stateful
    assert [bool(x) for x in model.states] == stateful and 0 < sum(stateful) < len(stateful)
    prompt = families.ids_of(9)
    assert list(model.generate(prompt, 3, stop=(), kv_dtype="f16"))
    with pytest.raises(vkattn.InvalidError, match="kv_dtype: expected"):
        list(model.generate(prompt, 3, kv_dtype="f12"))


@pytest.mark.parametrize(
    "name, change, sentence",
    [
        ("lfm2", {"full_attn_idxs": []}, "no layer of full_attention is not supported"),
        ("lfm2", {"full_attn_idxs": ["x"]}, "full_attn_idxs: expected numbers of layers"),
        ("lfm2", {"conv_L_cache": 17}, "a convolution 17 wide is not supported; expected 2 to 16"),
        ("lfm2", {"layer_types": ["linear_attention"] * 3}, "layer_types .* is not supported"),
        ("qwen3_5_text", {"linear_num_key_heads": 4}, "linear_num_key_heads: 4 do not divide 6"),
        ("qwen3_next", {"num_experts": 8}, "num_experts 8 is not supported, for want of products"),
        ("qwen3_next", {"num_experts": None}, "num_experts 512 is not supported"),
    ],
)
def test_refused(name, change, sentence):
    config = {**families.config_of(name), **change}
    with pytest.raises(vkattn.VkattnError, match=sentence):
        design_of_config(Keys(config, "config.json"), config["model_type"])
