"""Encoders of each family against what transformers computes: numbers that are kept, and where it is
installed all of them."""

import warnings

import families_encoders as families
import models_oracle as tiny
import numpy as np
import pytest

import vkattn
import vkattn.models
from vkattn.models._encoder_families import FAMILIES, REFUSED

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
    assert {name.split()[0] for name in families.TEXTS} == set(FAMILIES)
    assert set(STORED) == set(families.TEXTS)
    assert families.STORED.stat().st_size < 60000


@pytest.mark.parametrize("name", families.TEXTS)
def test_vectors(made, name):
    _, model = made(name)
    got = model.embed(families.TEXTS_OF_IDS)
    want = np.array(STORED[name]["vectors"])
    assert got.shape == (3, tiny.WIDTH)
    assert np.abs(got[:, : families.KEPT] - want).max() < 1e-5


@pytest.mark.parametrize("name", families.TEXTS)
def test_transformers(made, device, tmp_path, name):
    """All rows of a vector; and what it saves has the kept names, and is read without a warning."""
    reason = "transformers WITH torch IS NOT INSTALLED: ENCODERS WERE NOT COMPARED WITH IT"
    pytest.importorskip("torch", reason=reason)
    pytest.importorskip("transformers", reason=reason)
    folder, model = made(name)
    rows = families.rows_of(name, folder)
    got = model.embed(families.TEXTS_OF_IDS)
    want = np.array([tiny.embedding(x) for x in rows])
    assert np.abs(got - want).max() < 1e-5
    shapes = families.saved_shapes(name, tmp_path)
    assert shapes == families.unpacked(STORED[name]["tensors"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = vkattn.models.load(tmp_path, device=device)
    assert again.unused == model.unused
