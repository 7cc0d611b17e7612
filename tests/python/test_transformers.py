"""Tiny models of transformers with attn_implementation="vkattn" beside "eager": padded, cached,
trained, compiled, with weights returned."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch IS NOT INSTALLED")
transformers = pytest.importorskip("transformers", reason="transformers IS NOT INSTALLED")

import vkattn
import vkattn.transformers

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
# By model_type, with what differs from SMALL.
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": 4},
    "gemma2": {**WINDOWS, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8},
    "gemma3_text": {**WINDOWS, "query_pre_attn_scalar": 8},
    "gpt_oss": {**WINDOWS, "num_local_experts": 2, "num_experts_per_tok": 2},
    "qwen3": {},
    "phi3": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48},
}


@pytest.fixture(scope="module", autouse=True)
def registered(device):
    vkattn.transformers.register(device=device)


def pair(family):
    """The same model twice, by vkattn and as it is; dropout is off."""
    named = {**SMALL, **FAMILIES[family]}
    if family == "gpt2":
        named = {**FAMILIES[family], "vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2}
        named.update(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, pad_token_id=0)
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(family, **named)
    # Experts by products that torch.compile takes into one graph, whatever attention is.
    config._experts_implementation = "batched_mm"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 or "sinks" in name:
            torch.nn.init.normal_(parameter, std=1.0 if "sinks" in name else 0.2)
    ours = copy.deepcopy(model)
    ours.set_attn_implementation("vkattn")
    assert ours.config._attn_implementation == "vkattn"
    return ours.eval(), model.eval()


def prompts():
    """Ids [2][9], the second text with 3 rows of padding on the left."""
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(5))
    shown = torch.ones(2, 9, dtype=torch.long)
    shown[1, :3] = 0
    return torch.where(shown.bool(), ids, 0), shown


def close(got, want, most=1e-4):
    assert got.shape == want.shape and got.dtype == want.dtype
    assert float((got - want).detach().norm()) < most * float(want.detach().norm() + 1e-6)


@pytest.fixture
def calls(monkeypatch):
    """Counts what reaches the device: attention that is not vkattn's would pass all comparisons."""
    counted, attention = [], vkattn.transformers.attention

    def count(*given, **options):
        counted.append(options)
        return attention(*given, **options)

    monkeypatch.setattr(vkattn.transformers, "attention", count)
    return counted


@pytest.mark.parametrize("family", FAMILIES)
def test_padded_and_cached(family, calls):
    ours, theirs = pair(family)
    ids, shown = prompts()
    with torch.no_grad():
        for mask in (None, shown):
            got = ours(ids, attention_mask=mask, output_attentions=True)
            want = theirs(ids, attention_mask=mask, output_attentions=True)
            rows = torch.ones_like(shown) if mask is None else mask
            close(got.logits[rows.bool()], want.logits[rows.bool()])
            assert len(got.attentions) == len(want.attentions) == 2
            for a, b in zip(got.attentions, want.attentions):
                close(a.mT.transpose(1, 3)[rows.bool()], b.mT.transpose(1, 3)[rows.bool()])
        assert len(calls) == 2 * 2
        for cache in ("dynamic", "static"):
            given = dict(attention_mask=shown, max_new_tokens=6, do_sample=False,
                         cache_implementation=cache, output_logits=True,
                         return_dict_in_generate=True, disable_compile=True, eos_token_id=None)
            made, like = ours.generate(ids, **given), theirs.generate(ids, **given)
            assert torch.equal(made.sequences, like.sequences)
            for a, b in zip(made.logits, like.logits):
                close(a, b)


@pytest.mark.parametrize("family", FAMILIES)
def test_trained_and_compiled(family, calls):
    ours, theirs = pair(family)
    ids, shown = prompts()
    labels = torch.where(shown.bool(), ids, -100)
    labels[1, 3] = -100  # what a row of padding would foretell

    def gradients(function, model):
        model.zero_grad()
        logits = function(input_ids=ids, attention_mask=shown).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].mT, labels[:, 1:])
        loss.backward()
        return loss, {n: p.grad.clone() for n, p in model.named_parameters()}

    want = gradients(theirs, theirs)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for function in (ours, compiled):
        calls.clear()
        loss, made = gradients(function, ours)
        close(loss, want[0])
        for name in want[1]:
            close(made[name], want[1][name], 2e-3)
        assert len(calls) == 2 or function is compiled


def test_weights_have_no_gradient():
    ours, _ = pair("llama")
    out = ours(prompts()[0], output_attentions=True)
    with pytest.raises(RuntimeError, match="attention_weights"):
        out.attentions[0].sum().backward()


def test_what_is_not_attention_over_all_keys_is_refused(device):
    q = torch.randn(1, 2, 3, 8)
    attend = transformers.AttentionInterface._global_mapping["vkattn"]
    with pytest.raises(vkattn.UnsupportedError, match="indices is not supported"):
        attend(torch.nn.Module(), q, q, q, None, indices=torch.zeros(1))


def test_position_bias(device):
    """Beside a bool mask, a float one, and causal, as T5 and its kin give it; it learns."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    torch.manual_seed(1)
    q, module = torch.randn(1, 2, 5, 8), torch.nn.Module()
    attend = transformers.AttentionInterface._global_mapping["vkattn"]
    shown = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(1)
    for mask in (None, shown, torch.zeros(1, 1, 5, 5).masked_fill(~shown, -torch.inf)):
        grads = []
        for function in (attend, sdpa_attention_forward):
            bias = torch.linspace(-1, 1, 50).view(1, 2, 5, 5).clone().requires_grad_()
            out, _ = function(module, q, q, q, mask, position_bias=bias, scaling=1.0)
            out.square().sum().backward()
            grads.append((out, bias.grad))
        close(grads[0][0], grads[1][0])
        close(grads[0][1], grads[1][1])
