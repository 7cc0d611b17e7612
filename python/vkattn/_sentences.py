"""Sentences of C in the words of Python: the method that was called, the names of its arguments."""

from __future__ import annotations

import re

# Functions of which a method of Python has another name than noun and verb.
_FUNCTIONS = {
    "vka_cache_create": "Cache",
    "vka_device_create": "Device",
    "vka_layer_create": "Layer",
    "vka_plan_create": "Plan",
    "vka_tensor_create": "Tensor",
    "vka_tensor_import": "Device.share",
    "vka_device_list": "devices",
    "vka_device_host_alignment": "Device.host_alignment",
    "vka_device_kernel": "Device.kernels",
    "vka_device_adopt": "vulkan.adopt",
    "vka_vulkan_request_create": "vulkan.request",
    "vka_tensor_wrap": "vulkan.wrap",
    "vka_tensor_buffer": "vulkan.buffer_of",
    "vka_plan_record": "vulkan.record",
    "vka_plan_submit_with": "vulkan.submit",
    "vka_plan_nonfinite_count": "Plan.nonfinite",
    "vka_plan_pass": "Plan.passes",
    "vka_dtype_encode": "quantize",
    "vka_dtype_decode": "dequantize",
}
# Members of structs whose argument in Python has another name, or is a pair of two.
_MEMBERS = {
    "past_key": "past[0]",
    "past_value": "past[1]",
    "present_key": "present[0]",
    "present_value": "present[1]",
    "q_start": "ragged's q_start",
    "kv_start": "ragged's kv_start",
    "scores_kind": "scores",
    "quantise": "quantize",
    "query_tensors": "query",
    "key_tensors": "key",
    "value_tensors": "value",
    "output_tensors": "output",
    "window_left": "window[0]",
    "window_right": "window[1]",
}
_SCORES = re.compile(r"(?<!returned )\bscores\b(?=(,| is| has|\[))")  # the tensor, not its kind
_WORDS = re.compile(r"\b(?:%s)\b" % "|".join(_MEMBERS))
_CALLER = re.compile(r"\bvka_(device|tensor|plan|layer|cache|vulkan)_(add_)?(\w+)")


def _function(match: re.Match[str]) -> str:
    name = _FUNCTIONS.get(match[0])
    return name or f"{match[1].capitalize()}.{match[3]}"


def in_python(sentence: str) -> str:
    """What the library says of its functions and members, said of those of this package."""
    name = re.match(r"vka_\w+(?=: )", sentence)
    if name is None:  # of the driver, of a file
        return sentence
    sentence = _SCORES.sub("scores_to", sentence)
    sentence = _WORDS.sub(lambda match: _MEMBERS[match[0]], sentence)
    sentence = re.sub(r"\bvka_dtype_(?:en|de)code\b", lambda m: _FUNCTIONS[m[0]], sentence)
    sentence = _CALLER.sub(_function, sentence)
    sentence = sentence.replace("forward.options.", "").replace("options.", "")
    return re.sub(r"\bNULL\b", "None", sentence)
