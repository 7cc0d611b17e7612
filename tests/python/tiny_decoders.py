"""Tiny decoders, by name, and what a call of the C library costs them."""

import models_oracle as tiny
from test_rope import LLAMA3, LONG, YARN

from vkattn._abi import lib

DECODERS = {
    "llama": (tiny.LLAMA, tiny.llama_shapes, tiny.LlamaOracle),
    "llama3": (
        {
            **tiny.LLAMA,
            "rope_scaling": LLAMA3,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 16,
        },
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "mistral": (
        {**tiny.LLAMA, "model_type": "mistral", "sliding_window": 7},
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "qwen2": (
        {
            **tiny.LLAMA,
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_scaling": {**YARN, "original_max_position_embeddings": 64},
        },
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "qwen3": (
        {**tiny.LLAMA, "model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "phi3": (
        {**tiny.PHI3, "partial_rotary_factor": 0.5, "sliding_window": 6},
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "phi3 long": (
        {
            **tiny.PHI3,
            "num_key_value_heads": 4,
            "rope_scaling": LONG,
            "original_max_position_embeddings": 8,
        },
        tiny.llama_shapes,
        tiny.LlamaOracle,
    ),
    "gpt2": (tiny.GPT2, tiny.gpt2_shapes, tiny.GPT2Oracle),
    "gpt2 scaled": (
        {**tiny.GPT2, "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
        tiny.gpt2_shapes,
        tiny.GPT2Oracle,
    ),
    "gpt_neox": (tiny.NEOX, tiny.neox_shapes, tiny.NeoXOracle),
    "gpt_neox serial": (
        {**tiny.NEOX, "use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0},
        tiny.neox_shapes,
        tiny.NeoXOracle,
    ),
}
IDS = [5, 17, 3, 95, 0, 44, 44, 8, 31, 62, 9, 13]


class Counter:
    """Stands for the C library in the modules of the package, and notes the calls that cost."""

    def __init__(self, monkeypatch):
        self.calls = []
        for module in ("_plan", "_device", "_cache"):
            monkeypatch.setattr(f"vkattn.{module}.lib", self)

    def __getattr__(self, name):
        function = getattr(lib, name)
        if name not in COSTS:
            return function

        def noted(*arguments):
            status = function(*arguments)
            if name != "vka_plan_finish" or status != lib.VKA_TIMEOUT:  # which only was a slice
                self.calls.append((name, arguments[2] if "tensor" in name else None))
            return status

        return noted

    def taken(self, name):
        """The sizes, or Nones, of the calls of a function since it was asked for."""
        found = [size for called, size in self.calls if called == name]
        self.calls = [call for call in self.calls if call[0] != name]
        return found


def products(monkeypatch, call, *arguments):
    """What a call returns, and how many products it recorded."""
    with monkeypatch.context() as patch:
        counter = Counter(patch)
        return call(*arguments), len(counter.taken("vka_plan_add_linear"))


COSTS = (
    *("vka_plan_add_linear", "vka_plan_finish", "vka_plan_submit", "vka_plan_run", "vka_tensor_read", "vka_tensor_write"),
    "vka_cache_truncate",
)
