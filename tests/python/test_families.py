"""Every decoder family by name: tiny models with weights that follow from their names, against
logits and ids that transformers gave (families.json), and against transformers itself where that is
installed."""

import json
import types

import families
import numpy as np
import pytest
import test_int4

import vkattn
import vkattn.models
from vkattn.models._causal import alibi_slopes, row_order, sinusoids
from vkattn.models._design import design_of_config
from vkattn.models._families import FAMILIES, MISSING
from vkattn.models._keys import Keys
from vkattn.models._source import FolderWeights
from vkattn.models._table import ACTIVATIONS, Key

EXPECTED = json.loads(families.EXPECTED.read_text())
NEED = "transformers 5 WITH torch IS NOT INSTALLED: FAMILIES WERE COMPARED WITH KEPT LOGITS ALONE"


@pytest.fixture(scope="module")
def made(device, tmp_path_factory):
    """made(name): the folder of a case."""

    def make(name):
        folder = tmp_path_factory.mktemp("family")
        return families.write_model(folder, name, EXPECTED[name]["shapes"])

    return make


def test_complete():
    """Each family has a case, and each case its numbers."""
    assert {name.split()[0] for name in families.CASES} == set(FAMILIES)
    assert set(EXPECTED) == set(families.CASES)
    assert not set(MISSING) & set(FAMILIES)


def test_docs():
    """The table of docs/models.md says what the rows say: families.py --table."""
    docs = (families.EXPECTED.parents[2] / "docs" / "models.md").read_text()
    lines = docs[docs.index("## Which decoders") : docs.index("## Which others")].splitlines()
    table = [line for line in lines if line.startswith("| ")][1:]
    assert table == [families.table_row(name) for name in sorted(FAMILIES)]


@pytest.mark.parametrize("name", families.CASES)
def test_logits(made, device, name):
    """At 1, 5, 40 and 150 ids; the rows of a text do not depend on what follows."""
    found = families.load(made(name), device).logits(families.ids_of(families.LENGTHS[-1]))
    rows = found[[n - 1 for n in families.LENGTHS], families.COLUMNS]
    assert np.abs(rows - EXPECTED[name]["logits"]).max() < 1e-4


@pytest.mark.parametrize("name", families.CASES)
def test_ids(request, made, device, name):
    """96 of 96 greedy ids of four prompts in three places; of each family with --families."""
    if not request.config.getoption("--families") and name not in SAMPLE:
        pytest.skip("NOT ASKED FOR: --families CONTINUES PROMPTS BY EACH FAMILY")
    assert (
        families.our_greedy(families.load(made(name), device), EXPECTED[name]["seed"])
        == EXPECTED[name]["ids"]
    )


SAMPLE = ("gemma3_text", "bloom", "hunyuan_v1_dense")


@pytest.mark.parametrize("name", families.CASES)
def test_transformers(request, made, device, tmp_path, name):
    """At each length by itself; and what transformers saves is read again, its keys all known."""
    torch = pytest.importorskip("torch", reason=NEED)
    auto = pytest.importorskip("transformers", minversion="5.17", reason=NEED)
    folder = made(name)
    judge = families.theirs(torch, auto, folder)
    if families.shapes_of(auto, tmp_path, name) != EXPECTED[name]["shapes"]:
        raise AssertionError("families.json has other tensors: families.py --write")
    model = families.load(folder, device)
    lengths = families.LENGTHS if request.config.getoption("--families") else (5,)
    for n in lengths:
        ids = families.ids_of(n)
        want = families.their_logits(torch, judge, ids)
        assert np.abs(model.logits(ids) - want).max() < 1e-4
    judge.save_pretrained(tmp_path / "again")
    again = families.load(tmp_path / "again", device)
    assert np.array_equal(again.logits(families.ids_of(5)), model.logits(families.ids_of(5)))


MORE = ("n_head", "n_embd", "ffn_dim")
FACTORS = {
    "query_pre_attn_scalar": "query_scalar",
    "attn_logit_softcapping": "softcap",
    "final_logit_softcapping": "logit_softcap",
    "embedding_multiplier": "embed_scale",
    "attention_multiplier": "scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_divisor",
    "rotary_dim": "rotary_dim",
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_defaults(name):
    """What config.json leaves out is what transformers takes: sizes, windows, rotation."""
    auto = pytest.importorskip("transformers", minversion="5.17", reason=NEED)
    sizes = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    config = auto.AutoConfig.for_model(name)
    layers = {key: 12 for key in sizes if key in config.to_dict()}
    if name == "gpt_neo":
        layers = {"num_layers": 24}
    their = auto.AutoConfig.for_model(name, **layers)
    needed = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    said = {k: x for k, x in their.to_dict().items() if k in (*needed, *layers, *MORE)}
    if name == "qwen3_next":
        said["num_experts"] = 0  # others are refused
    found = design_of_config(Keys(said, "config"), name)
    kinds = getattr(their, "layer_types", None)
    window = getattr(their, "sliding_window", None)
    if kinds and name not in ("qwen2", "qwen3"):
        assert found.windows == [window if k == "sliding_attention" else None for k in kinds]
    heads = their.num_attention_heads
    kv = (
        getattr(their, "num_key_value_heads", None) or getattr(their, "num_kv_heads", None) or heads
    )
    if name == "falcon":
        kv = 1
    assert (found.n_head, found.n_kv_head) == (heads, kv)
    dim = getattr(their, "head_dim", None) or their.hidden_size // heads
    assert found.head_dim == dim
    for key in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"):
        if hasattr(their, key):
            assert found.epsilon == getattr(their, key)
    assert found.tied == their.tie_word_embeddings
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if hasattr(their, key):
            assert found.activation == {**ACTIVATIONS, "relu2": "relu2"}[getattr(their, key)]
    for key, setting in FACTORS.items():
        if hasattr(their, key):
            assert getattr(found, setting) == getattr(their, key)
    biased = getattr(their, "attention_bias", None)
    assert biased in (None, found.qkv_bias)
    attends = found.stateful.index(False)  # the first layer that rotates
    if found.positions == "rope" and getattr(their, "rope_parameters", None):
        given = their.rope_parameters
        of = {k: x for k, x in given.items() if isinstance(x, dict)} or {"full_attention": given}
        for kind, stated in of.items():
            slides = [w is not None for w in found.windows]
            i = slides.index(kind == "sliding_attention") if len(of) > 1 else attends
            rope = found._ropes[i]
            assert rope.values["rope_theta"] == stated["rope_theta"]
            share = stated.get("partial_rotary_factor") or 1.0
            assert rope.values["partial_rotary_factor"] == share


def test_slopes():
    """Heads that are no power of two too, as Press et al. wrote them."""
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]
    want = [2.0 ** (-i) for i in range(1, 9)] + [2.0 ** (-i / 2) for i in (1, 3, 5, 7)]
    assert np.allclose(alibi_slopes(12), want)
    torch = pytest.importorskip("torch", reason=NEED)
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom", reason=NEED)
    for n in (1, 2, 3, 5, 6, 12, 40, 71, 112):
        tensor = bloom.build_alibi_tensor(torch.ones(1, 2), n, torch.float32)
        assert np.allclose(tensor[:, 0, 1].numpy(), alibi_slopes(n), rtol=1e-6)


def test_sinusoids():
    torch = pytest.importorskip("torch", reason=NEED)
    xglm = pytest.importorskip("transformers.models.xglm.modeling_xglm", reason=NEED)
    for width in (6, 7, 32):
        table = xglm.XGLMSinusoidalPositionalEmbedding(40, width, 1)
        want = table(torch.arange(40)[None])[0].numpy()
        assert np.abs(sinusoids(40, width, 2) - want).max() < 1e-5


@pytest.mark.parametrize("name, old, new", [("bloom", "transformer.", ""), ("opt", "model.", "")])
def test_prefixes(device, tmp_path, name, old, new):
    """A file of the model without the module of its head has its names without that prefix."""
    shapes = EXPECTED[name]["shapes"]
    tensors = {
        x.replace(old, new, 1): families.value_of(x, s, name)
        for x, s in families.every_layer(shapes).items()
    }
    (tmp_path / "config.json").write_text(json.dumps(families.config_of(name)))
    families.write_safetensors(tmp_path / "model.safetensors", tensors)
    found = families.load(tmp_path, device).logits(families.ids_of(40))
    assert np.abs(found[39, families.COLUMNS] - EXPECTED[name]["logits"][2]).max() < 1e-4


@pytest.mark.parametrize("order", ["heads", "shards"])
def test_fused_blocks(device, rng, tmp_path, order):
    """Rows of a fused matrix in blocks of 4 bits are put in order as those of floats are."""
    arrays, weight = test_int4.draw(rng, 384, 128, "gptq", 1, 0.2)
    tensors = {}
    test_int4.put(tensors, "x", arrays)
    tensors["x.bias"] = rng.standard_normal(384).astype(np.float32)
    families.write_safetensors(tmp_path / "model.safetensors", tensors)
    weights = FolderWeights(str(tmp_path), device, None, test_int4.config_of("gptq"))
    design = types.SimpleNamespace(qkv_order=order, n_head=4, n_kv_head=4, head_dim=32)
    rows = row_order(design)
    assert sorted(rows) == list(range(384))
    (made,) = weights.linears(["x"], [384], 128, order=rows)
    assert made.weight.dtype == "i4_g128"
    x = device.tensor(rng.standard_normal((1, 128), np.float32))
    with vkattn.Plan(device) as plan:
        out = device.empty((1, 384))
        plan.linear(x, made.weight, out, bias=made.bias)
        plan.finish().run()
    want = (x.read() @ weight.T + tensors["x.bias"])[0]
    cut = want.reshape(4, 3, 32) if order == "heads" else want.reshape(4, 3, -1)[:, [0, 2, 1]]
    assert np.abs(out.read()[0] - cut.transpose(1, 0, 2).reshape(-1)).max() < 1e-4


# ---- What is refused ----------------------------------------------------------------------------

HALF = {"rope_type": "default", "partial_rotary_factor": 0.5}
FAR = {"rope_type": "default", "rope_theta": 500.0}


@pytest.mark.parametrize(
    "change",
    [
        {"partial_rotary_factor": 1.0},
        {"rope_theta": 500.0, "rope_scaling": {"type": "default"}, "rope_parameters": FAR},
    ],
)
def test_rotation_said_twice(made, device, change):
    """A share that is all, and an object under both of its names."""
    folder = made("llama")
    config = {**families.config_of("llama"), **change}
    (folder / "config.json").write_text(json.dumps(config))
    model = families.load(folder, device)
    base = model.design.ropes(16)[0].base
    assert base == change.get("rope_theta", 10000.0)


@pytest.mark.parametrize(
    "name, change, sentence",
    [
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention True is not"),
        ("stablelm", {"partial_rotary_factor": 0.5, "rope_pct": 0.25}, "rope_pct differ"),
        ("gemma2", {"attn_logit_softcapping": -1}, "attn_logit_softcapping: expected a positive"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: expected a positive"),
        ("gemma2", {"sliding_window": 0}, "sliding_window: expected at least 1, got 0"),
        ("gemma3_text", {"layer_types": ["x", "y"]}, "layer_types .* is not supported"),
        ("gemma3_text", {"rope_parameters": {"rope_theta": 5.0}}, "those of full_attention and of"),
        ("granite", {"logits_scaling": 0}, "logits_scaling: expected a positive number"),
        ("granite", {"residual_multiplier": "x"}, "residual_multiplier: expected float"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers: expected 0 or 1 for each layer"),
        ("smollm3", {"use_sliding_window": True}, "use_sliding_window True is not supported"),
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv 8.0 is not supported"),
        ("exaone4", {"sliding_window_pattern": "LGL"}, "sliding_window_pattern 'LGL' is not"),
        ("hunyuan_v1_dense", {"use_cla": True}, "use_cla True is not supported"),
        ("cohere2", {"position_embedding_type": "alibi"}, "position_embedding_type 'alibi' is not"),
        ("starcoder2", {"norm_type": "rms_norm"}, "norm_type 'rms_norm' is not supported"),
        ("gptj", {"rotary_dim": None}, "there is no rotary_dim"),
        ("gptj", {"rotary_dim": 5}, "rotary_dim 5 of a head of 8 is not supported"),
        ("gptj", {"rotary_dim": 10}, "rotary_dim 10 of a head of 8 is not supported"),
        ("gptj", {"n_head": 5}, "n_head: 5 do not divide 32"),
        ("codegen", {"n_head": 2}, "n_head: 2 heads are not four shards"),
        ("falcon", {"new_decoder_architecture": 1}, "new_decoder_architecture 1 is not supported"),
        ("falcon new", {"parallel_attn": False}, "parallel_attn False is not supported"),
        ("falcon new", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn 3 is not"),
        ("mpt", {"attn_config": {"clip_qkv": 6}}, "attn_config.clip_qkv 6 is not supported"),
        ("mpt", {"attn_config": {"alibi": False}}, "attn_config.alibi False is not supported"),
        ("mpt", {"attn_config": 3}, "attn_config: expected dict, got 3"),
        ("mpt", {"logit_scale": 0.5}, "logit_scale 0.5 is not supported"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "post_layernorm True is not"),
        ("bloom", {"n_embed": 48}, "hidden_size and n_embed differ"),
        ("gpt_neo", {"attention_types": [[["global"], 1]]}, "attention_types: expected 2 layers"),
        ("gpt_neo", {"attention_types": [[["near"], 2]]}, "attention_types: expected 2 layers"),
        ("gpt_neo", {"attention_types": [[["global"] * 9, 10**9]]}, "expected 2 layers"),
        ("gpt_neo", {"attention_types": [3]}, "attention_types: expected 2 layers"),
        ("xglm", {"pad_token_id": 5}, "pad_token_id 5 is not supported"),
        ("opt", {"word_embed_proj_dim": 16}, r"embed_tokens.weight: expected \[96, 16\]"),
        ("arcee", {"hidden_act": "xielu"}, "hidden_act 'xielu' is not supported"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ("falcon", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ("cohere", {"rope_parameters": HALF}, "rope_parameters: partial_rotary_factor 0.5 is not"),
        (
            "olmo3",
            {"rope_scaling": None, "rope_parameters": {"full_attention": HALF}},
            "rope_parameters: partial_rotary_factor 0.5 is not",
        ),
        ("llama", {"rope_scaling": {"type": "default"}, "rope_parameters": FAR}, "parameters differ"),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": FAR, "sliding_attention": FAR}},
            "rope_scaling beside rope_parameters of full_attention",
        ),
    ],
)
def test_refused(made, device, name, change, sentence):
    folder = made(name)
    config = {**families.config_of(name), **change}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(vkattn.VkattnError, match=sentence):
        vkattn.models.load(folder, device=device)


ODD = [
    "x",
    0,
    -1,
    1,
    2.5,
    10**400,
    float("nan"),
    [],
    [[]],
    [[1, 2]],
    {},
    {"a": 1},
    True,
    False,
    None,
]


def keys_of(value):
    """The keys of config.json that a row speaks of, at any depth."""
    if isinstance(value, Key):
        yield from value.names
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in ("switches", "only"):
                yield from inner
            yield from keys_of(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from keys_of(inner)


@pytest.mark.parametrize("name", families.CASES)
def test_odd_values(name):
    """A config with an odd value of any key is read, or refused with a sentence."""
    config = families.config_of(name)
    more = ("rope_parameters", "rope_scaling", "layer_types", "no_rope_layers", "attention_types")
    keys = {*config, *keys_of(FAMILIES[config["model_type"]]), *more}
    refused = 0
    for key in sorted(keys - {"model_type"}):
        for odd in ODD:
            at, _, inside = key.partition(".")
            changed = {**config, at: {inside: odd} if inside else odd}
            try:
                design_of_config(Keys(changed, "config"), config["model_type"]).ropes(9)
            except vkattn.VkattnError as error:
                refused += 1
                assert len(str(error)) > 20, (key, odd)
    assert refused > 2 * len(config)


def test_missing(device, tmp_path):
    """A family that is known and not computed says for want of what."""
    for kind, why in (
        ("apertus", "xielu"),
        ("mixtral", "chosen experts"),
        ("gpt_oss", "chosen experts.*clamped gates.*mxfp4.*vkattn.transformers computes its attention"),
        ("mamba", "a state"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(vkattn.UnsupportedError, match=f"'{kind}' is not supported.*{why}"):
            vkattn.models.load(tmp_path, device=device)


def test_unknown_key(made, device):
    """Also inside an object."""
    for name, change, key in (
        ("olmo2", {"resid_gain": 2}, "resid_gain"),
        ("mpt", {"attn_config": {"resid_gain": 2}}, "attn_config.resid_gain"),
    ):
        folder = made(name)
        config = {**families.config_of(name), **change}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.warns(UserWarning, match=f"'{key}' would change"):
            vkattn.models.load(folder, device=device)
