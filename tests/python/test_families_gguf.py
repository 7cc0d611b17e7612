"""Decoders of GGUF files, each against the folder that it is written from."""

import json
import re

import families
import families_gguf
import numpy as np
import pytest

import vkattn
import vkattn.models
from vkattn.models._gguf_rows import ARCHITECTURES

EXPECTED = json.loads(families.EXPECTED.read_text())


def shapes_of(kind):
    return EXPECTED[families_gguf.CASES[kind].case]["shapes"]


def write(path, kind, **more):
    families_gguf.write_gguf(path, kind, shapes_of(kind), **more)
    return path


def test_complete():
    cases = {kind.split()[0] for kind in families_gguf.CASES}
    assert cases | {"llama", "phi3", "qwen2", "qwen3"} == set(ARCHITECTURES)
    docs = (families.EXPECTED.parents[2] / "docs" / "models.md").read_text()
    docs = docs[docs.index("GGUF files of the architectures") :].partition("(")[0]
    said = set(re.findall(r"[a-z][-\w]*", docs.split(None, 5)[5]))
    assert said - {"and"} == set(ARCHITECTURES)


@pytest.mark.parametrize("kind", families_gguf.CASES)
def test_file(device, tmp_path, kind):
    """The logits of the same model's folder."""
    (tmp_path / "config.json").write_text(json.dumps(families_gguf.config_of(kind)))
    tensors = families_gguf.tensors_of(kind, shapes_of(kind))
    families.write_safetensors(tmp_path / "model.safetensors", tensors)
    ids = families.ids_of(40)
    want = families.load(tmp_path, device).logits(ids)
    found = families.load(write(tmp_path / "model.gguf", kind), device).logits(ids)
    assert np.abs(found - want).max() < 2e-5 * max(1, np.abs(want).max())


def test_epsilon_is_needed(device, tmp_path):
    """No number stands for that of the norms, by which every architecture norms."""
    for kind in families_gguf.CASES:
        missing = {f"attention.layer_norm{x}_epsilon": None for x in ("", "_rms")}
        path = write(tmp_path / "model.gguf", kind, **missing)
        with pytest.raises(vkattn.FileError, match=f"there is no {kind.split()[0]}.attention.layer_norm"):
            vkattn.models.load(path, device=device)


def test_without_effect(device, tmp_path):
    """Experts that are none, and the length of a factor that is 1."""
    ids = families.ids_of(9)
    keys = {"expert_count": 0, "expert_used_count": 0}
    for kind, more in (
        ("hunyuan-dense", {"rope.scaling.original_context_length": 262144}),
        ("seed_oss", {"rope.scaling.original_context_length": 64, "rope.scaling.type": "linear"}),
    ):
        plain = families.load(write(tmp_path / "a.gguf", kind), device).logits(ids)
        found = families.load(write(tmp_path / "b.gguf", kind, **keys, **more), device)
        assert np.array_equal(found.logits(ids), plain)


@pytest.mark.parametrize(
    "kind, more, sentence",
    [
        ("stablelm", {"use_parallel_residual": True}, "use_parallel_residual True is not"),
        ("olmo", {"attention.clamp_kqv": 8.0}, "olmo.attention.clamp_kqv 8.0 is not supported"),
        ("mpt", {"attention.max_alibi_bias": 4.0}, "mpt.attention.max_alibi_bias 4.0 is not"),
        ("mpt", {"attention.max_alibi_bias": None}, "there is no mpt.attention.max_alibi_bias"),
        ("command-r", {"logit_scale": None}, "there is no command-r.logit_scale"),
        ("falcon", {"tensor_data_layout": "other"}, "tensor_data_layout 'other' is not supported"),
        ("granite", {"expert_count": 4}, "granite.expert_count 4 is not supported"),
        ("olmo2", {"expert_used_count": 2}, "olmo2.expert_used_count 2 is not supported"),
        ("glm4", {"rope.dimension_count": 10}, "rope.dimension_count: 10 are more than the 8 feat"),
        (
            "hunyuan-dense",
            {
                "rope.scaling.type": "linear",
                "rope.scaling.factor": 2.0,
                "rope.scaling.original_context_length": 99,
            },
            "not known what hunyuan-dense.rope.scaling.original_context_length would change",
        ),
        (
            "exaone4",
            {"attention.sliding_window_pattern": [True]},
            "sliding_window_pattern: expected 2 of them, got 1",
        ),
        (
            "exaone4",
            {"attention.sliding_window": 0},
            "sliding_window_pattern: expected an attention.sliding_window",
        ),
        ("cohere2", {"attention.sliding_window": None}, "sliding_window: expected at least 1"),
        ("glm4", {"rope.dimension_sections": 4}, "not known what glm4.rope.dimension_sections"),
    ],
)
def test_refused(device, tmp_path, kind, more, sentence):
    path = write(tmp_path / "model.gguf", kind, **more)
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(path, device=device)
