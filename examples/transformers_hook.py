"""A model of Hugging Face's transformers whose attention runs on a Vulkan device, beside its own eager
attention. Needs PyTorch and transformers; the model is a tiny random Llama, so nothing is fetched.

    python transformers_hook.py [FOLDER OR NAME OF A MODEL]

SPDX-License-Identifier: MIT"""

import sys

import torch
import transformers

import vkattn.transformers


def load(name: str) -> transformers.PreTrainedModel:
    if name:
        return transformers.AutoModelForCausalLM.from_pretrained(name)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def main(name: str = "") -> float:
    vkattn.transformers.register()  # once; a device may be named: register(device="nvidia")
    model = load(name).eval()
    ids = torch.tensor([[5, 17, 3, 9, 42, 8]])
    with torch.no_grad():
        model.set_attn_implementation("eager")
        want = model(ids).logits
        model.set_attn_implementation("vkattn")
        got = model(ids).logits
    error = ((got - want).norm() / want.norm()).item()
    print(f"relative error of the logits: {error:.1e}")
    made = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None)
    print("generated:", made[0, ids.shape[1] :].tolist())
    return error


if __name__ == "__main__":
    main(*sys.argv[1:])
