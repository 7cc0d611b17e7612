"""Sessions: turns that keep the cache, forks, and what they refuse."""

import models_oracle as tiny
import numpy as np
import pytest
import test_models_text as small
import tiny_encoders
from test_models_chat import CHATML, REASON, TOKENIZERS
from test_models_gguf import keys_of, made, write

import vkattn
import vkattn.models
from vkattn.models import _decoder

load = small.load


@pytest.fixture
def model(device, tmp_path):
    config, tensors = made("llama")
    write(tmp_path / "model.gguf", tensors, keys_of(config, "llama"))
    return vkattn.models.load(tmp_path / "model.gguf", device=device)


@pytest.fixture
def rows(monkeypatch):
    """How many rows have been computed, by the ids that a plan was given."""
    counted, plain = [], _decoder._Recording.write

    def counting(self, parts, lengths):
        counted.extend(len(p) for p in parts)
        plain(self, parts, lengths)

    monkeypatch.setattr(_decoder._Recording, "write", counting)
    return lambda: [sum(counted), counted.clear()][0]


def test_turns(model, rng, rows):
    """The second turn of a chat of 500 ids computes the new rows, with the ids of all at once."""
    prompt = [int(i) for i in rng.integers(0, model.n_token, 480)]
    with model.session(640) as session:
        first = list(session.generate(prompt, 21, stop=()))
        assert rows() == 480 + 20 and session.ids == prompt + first[:-1]
        assert first == list(model.generate(prompt, 21, stop=()))
        more = [*prompt, *first, 5, 17, 3]
        rows()
        second = list(session.generate(more, 9, stop=()))
        # One that was drawn and not fed, three new ones, and eight of the answer.
        assert rows() == 1 + 3 + 8
        assert second == list(model.generate(more, 9, stop=()))
        rows()
        # A turn that is taken back: its begin is kept.
        other = [*more[:490], 8, 9]
        assert list(session.generate(other, 3, stop=())) == list(model.generate(other, 3, stop=()))
        assert rows() == (2 + 2) + (492 + 2)
        # The same prompt again: its last row, which has the next id.
        assert list(session.generate(other, 1)) == list(model.generate(other, 1))
        assert rows() == 1 + 492
        assert list(session.generate([7], 2, stop=())) == list(model.generate([7], 2, stop=()))


def test_forks(model, rng):
    """Each goes on by itself, in turn with the others; a place given back is taken again."""
    prompt = [int(i) for i in rng.integers(0, model.n_token, 40)]
    session = model.session(80, forks=2)
    first = list(session.generate(prompt, 5, stop=()))
    forks = [session.fork(), session.fork()]
    with pytest.raises(vkattn.InvalidError, match="fork: all 3 places are taken; close one"):
        session.fork()
    prompts = [[*prompt, *first, i] for i in (1, 2, 3)]
    turns = [x.generate(p, 12, stop=()) for x, p in zip([session, *forks], prompts)]
    got = list(zip(*turns))
    assert [list(x) for x in zip(*got)] == [list(model.generate(p, 12, stop=())) for p in prompts]
    forks[0].close()
    again = session.fork()
    assert again.ids == session.ids
    session.close()  # the others stay
    want = list(model.generate([*prompts[0], 4], 3, stop=()))
    assert list(again.generate([*prompts[0], 4], 3, stop=())) == want
    again.close()
    forks[1].close()
    with pytest.raises(vkattn.InvalidError, match="session: it is closed"):
        session.generate([1], 1)


def test_drawn(model):
    options = {"temperature": 0.9, "top_k": 20}
    with model.session(64, **options) as session:
        for prompt in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2]):
            want = list(model.generate(prompt, 9, seed=5, stop=(), **options))
            assert list(session.generate(prompt, 9, seed=5, stop=())) == want


def test_stops(model):
    with model.session(64) as session:
        ids = list(session.generate([1, 2, 3], 6, stop=()))
        assert list(session.generate([1, 2, 3], 6, stop=[ids[3]])) == ids[: ids.index(ids[3])]
        assert list(session.generate([1, 2, 3], 0)) == []


def test_refused(model):
    with model.session(16) as session:
        kept = list(session.generate([1, 2, 3], 2, stop=()))
        for prompt, n, sentence in (
            ([1] * 17, 1, "prompt: the session has 16 positions, got 17 ids; leave out the first"),
            ([1] * 10, 8, "behind 10 ids it can continue by 7, got 8"),
            ([], 1, "prompt: expected at least one id"),
            ([model.n_token], 1, f"prompt: the model has {model.n_token} ids"),
        ):
            with pytest.raises(vkattn.InvalidError, match=sentence):
                session.generate(prompt, n)
        assert session.ids == [1, 2, 3, kept[0]]
        assert len(list(session.generate([1] * 10, 7, stop=()))) == 7
        left = session.generate([1, 2], 5, stop=())
        next(left)
        next(session.generate([1, 3], 5, stop=()))
        with pytest.raises(vkattn.InvalidError, match="session: another turn began"):
            next(left)
        # What was left lying does no harm.
        assert list(session.generate([1, 2, 3], 2, stop=())) == kept
    for capacity in (0, 2.5):
        with pytest.raises(vkattn.InvalidError, match="capacity"):
            model.session(capacity)


def test_chat_in_turns(load, rows):
    pytest.importorskip("jinja2", reason=REASON)
    pytest.importorskip("tokenizers", reason=TOKENIZERS)
    model = load()
    model.text.where.metadata["tokenizer.chat_template"] = CHATML
    messages = [{"role": "user", "content": "a"}]
    with model.session(256) as session:
        answer = "".join(session.chat(messages, 6, stop=()))
        assert answer == "".join(model.chat(messages, 6, stop=()))
        kept = len(session.ids)
        messages += [{"role": "assistant", "content": "th"}, {"role": "user", "content": "b"}]
        rows()
        assert len(list(session.generate(model.chat_ids(messages), 1, stop=()))) == 1
        assert 0 < rows() < len(model.chat_ids(messages)) and kept


def matrices_of_bert():
    return tiny.matrices(np.random.default_rng(1), tiny_encoders.bert_shapes(tiny_encoders.BERT))


def test_command(load, capsys, tmp_path):
    """python -m vkattn.models FILE "prompt"."""
    from vkattn.models.__main__ import main

    assert main([str(tmp_path / "none.gguf"), "a"]) == 1
    assert "vkattn.models: " in capsys.readouterr().err
    folder = tiny.write_folder(tmp_path / "bert", tiny_encoders.BERT, matrices_of_bert())
    assert main([str(folder), "a"]) == 1
    assert "its class, Encoder, continues no prompts" in capsys.readouterr().err
    pytest.importorskip("tokenizers", reason=TOKENIZERS)
    model = load()
    path = model.text.where.path
    assert main([path, "the th", "-n", "9"]) == 0
    assert capsys.readouterr().out == "".join(model.stream("the th", 9)) + "\n"
    drawn = {"temperature": 0.8, "seed": 3}
    assert main([path, "the th", "-n", "9", "--temperature", "0.8", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "".join(model.stream("the th", 9, **drawn)) + "\n"
    assert main([path, "a", "--chat"]) == 1
    assert "there is no tokenizer.chat_template; give a prompt" in capsys.readouterr().err
