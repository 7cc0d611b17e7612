"""What a plan reads of a layer, below what makes and calls one."""

from __future__ import annotations

from typing import Any

from ._core import Child
from ._device import Device


class Layer(Child):
    """Sizes and options of the weights of a layer; the public class derives from it."""

    device: Device
    n_head: int
    key_dim: int
    value_input_dim: int
    layout: str
    options: Any  # AttentionOptions, where a call does not say otherwise
    bias_kv: bool  # whether rows of keys and values are appended,
    n_extra: int  # and how many, those of zeros included
