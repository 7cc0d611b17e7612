"""Whole models of random weights beside transformers on the same GPU: the same ids, and times.

    torch_models.py [--quick]   exits with 77 where PyTorch with CUDA, transformers or vkattn is missing

Small models of each family in float32, whose ids must be equal; then one of the shape of Llama 3.2 1B
in float16, whose prompt and tokens are timed. --quick: the small ones alone, on any device.
"""

import sys
import tempfile
import time

try:
    import numpy as np
    import torch
    import transformers
    import vkattn
    import vkattn.models
except ImportError as error:
    print(error)
    sys.exit(77)

QUICK = "--quick" in sys.argv[1:]
if not torch.cuda.is_available() and not QUICK:
    sys.exit(77)

CUDA = "cuda" if torch.cuda.is_available() else "cpu"
PROMPT, N = 37, 64
SMALL = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 512,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
GROUPED = {"num_key_value_heads": 2, "intermediate_size": 688}
FAMILIES = {
    "llama": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 24},
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 48},
    "phi3": GROUPED,
    "gpt2": {},
    "gpt_neox": {"intermediate_size": 1024},
}
LARGE = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "eos_token_id": None,
    "bos_token_id": None,
}


def make(family, values, dtype, folder):
    """The model on the GPU; its files in the folder."""
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(family, **values)
    with torch.device(CUDA):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    for parameter in model.parameters():  # larger than at the start of training: ids that differ
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5)
    model.eval().save_pretrained(folder)
    return model


@torch.no_grad()
def greedy(model, prompt, n):
    """Ids, and the seconds of each."""
    ids, times, past = [], [], None
    row = torch.tensor([prompt], device=CUDA)
    for _ in range(n):
        begin = time.perf_counter()
        out = model(row, past_key_values=past, use_cache=True)
        past, row = out.past_key_values, out.logits[:, -1:].argmax(-1)
        ids.append(int(row))
        times.append(time.perf_counter() - begin)
    return ids, times


def ours(model, prompt, n, **options):
    ids, times = [], []
    begin = time.perf_counter()
    for token in model.generate(prompt, n, stop=(), **options):
        ids.append(token)
        times.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    return ids, times


def told(what, times, prompt):
    token = sorted(times[1:])[len(times) // 2]
    print(f"{what}: prompt of {prompt} {times[0] * 1e3:.2f} ms, token {token * 1e3:.3f} ms", flush=True)


def check_families(prompt):
    wrong = 0
    for family, own in FAMILIES.items():
        with tempfile.TemporaryDirectory() as folder:
            theirs = make(family, {**SMALL, **own}, torch.float32, folder)
            model = vkattn.models.load(folder)
            want, _ = greedy(theirs, prompt, N)
            have, times = ours(model, prompt, N)
            logits = theirs(torch.tensor([prompt], device=CUDA)).logits[0].detach().float().cpu().numpy()
            error = np.abs(model.logits(prompt) - logits).max()
            same = sum(a == b for a, b in zip(want, have))
            wrong += same != N
            told(f"{family}: {same} of {N} ids, logits within {error:.2g}", times, len(prompt))
    return wrong


def measure(generator):
    with tempfile.TemporaryDirectory() as folder:
        theirs = make("llama", LARGE, torch.float16, folder)
        model = vkattn.models.load(folder)
    for length in (37, 512):
        prompt = generator.integers(0, LARGE["vocab_size"], length).tolist()
        greedy(theirs, prompt, 2)
        want, times = greedy(theirs, prompt, N)
        told("llama 1B f16, transformers", times, length)
        ours(model, prompt, 2, kv_dtype="f16")
        have, times = ours(model, prompt, N, kv_dtype="f16")
        told("llama 1B f16, vkattn", times, length)
        same = sum(a == b for a, b in zip(want, have))
        print(f"  {same} of {N} ids, by float16 there, by rows of float32 here", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    generator = np.random.default_rng(1)
    print(torch.__version__, transformers.__version__, vkattn.__version__, flush=True)
    wrong = check_families(generator.integers(0, SMALL["vocab_size"], PROMPT).tolist())
    if not QUICK:
        measure(generator)
    return wrong


sys.exit(main() != 0)
