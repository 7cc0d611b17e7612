"""Keys of config.json by which transformers goes where two say the same, or one says null."""

import families
import pytest

import vkattn
from vkattn.models._design import design_of_config
from vkattn.models._keys import Keys


def design(name, **changes):
    return design_of_config(Keys({**families.config_of(name), **changes}, "config"), name)


@pytest.mark.parametrize(
    "name, key, other",
    [
        ("gemma", "hidden_act", "hidden_activation"),
        ("gemma2", "hidden_activation", "hidden_act"),
        ("gemma3_text", "hidden_activation", "hidden_act"),
        ("vaultgemma", "hidden_activation", "hidden_act"),
    ],
)
def test_activation_of_gemma(name, key, other):
    """transformers reads one key, and another one is without effect."""
    assert design(name, **{key: "silu", other: "gelu"}).activation == "silu"
    assert design(name, **{key: None, other: "silu"}).activation == "gelu_tanh"


@pytest.mark.parametrize("name", ["seed_oss", "ernie4_5"])
def test_head_dim_that_is_null(name):
    config = families.config_of(name)
    own = config["hidden_size"] // config["num_attention_heads"]
    assert design(name, head_dim=None).head_dim == own


def test_softcap_of_gemma3():
    """transformers reads the key and never applies it."""
    assert design("gemma3_text", attn_logit_softcapping=50.0).softcap is None
    assert design("gemma2", attn_logit_softcapping=20.0).softcap == 20.0


@pytest.mark.parametrize("name", ["phi3", "starcoder2"])
def test_layers_with_one_window(name):
    """transformers gives every layer the window, whatever layer_types says."""
    n_layer = families.config_of(name)["num_hidden_layers"]
    sliding = ["sliding_attention"] * n_layer
    assert design(name, sliding_window=5, layer_types=sliding).windows == [5] * n_layer
    full = ["full_attention"] * n_layer
    assert design(name, sliding_window=None, layer_types=full).windows == [None] * n_layer
    for kinds in (full, [*sliding[1:], "full_attention"]):
        with pytest.raises(vkattn.UnsupportedError, match="layer_types .* every layer has the window"):
            design(name, sliding_window=5, layer_types=kinds)
