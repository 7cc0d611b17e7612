"""Multi-head attention on any Vulkan device.

    import numpy as np
    import vkattn

    q = np.random.rand(1, 8, 128, 64).astype(np.float32)   # [batch][n_head][n_q][head_dim]
    y = vkattn.attention(q, q, q, causal=True)             # [batch][n_head][n_q][value_dim]

Whole models from their files are in `vkattn.models`; `vkattn.torch` has functions that PyTorch
trains through.

`attention` and a called `Layer` take host arrays and return numpy arrays. What runs often is better
recorded once: a `Plan` over `Tensor`s, with a `Cache` where tokens come one by one.

Arrays are numpy arrays or anything on the CPU with `__dlpack__`. Element types are named "f32",
"f16", "bf16", "i32" and "bool"; numpy has no bfloat16, so bf16 tensors are read back as float32.

Whatever goes wrong is an exception with the library's sentence: `VkattnError` and its subclasses.
A `Device` and all that is made from it may be used from several threads; calls take turns. Ctrl-C,
or whatever a signal handler raises, leaves both usable and is raised when the call of C is over.
Objects are closed by `close()`, by `with`, or, where nothing refers to them any more, by the next
call; closing a device closes all that was made from it.
"""

from ._attention import attention
from ._blocks import dequantize, quantize
from ._cache import Cache, CacheLayer
from ._device import Device, Tensor, default_device
from ._device_info import DeviceInfo, devices
from ._errors import (
    ClosedError,
    DeviceLostError,
    FileError,
    InternalError,
    InvalidError,
    NoDeviceError,
    OutOfMemoryError,
    UnsupportedError,
    VkattnError,
    WaitTimeout,
)
from ._float8 import repack_float8
from ._gguf import GGUF
from ._int4 import repack_int4
from ._layer import Layer
from ._options import Accumulate, AttentionOptions, Rope
from ._plan import Nonfinite, Pass, Plan
from ._plan_train import Parameter
from ._rope import rope_from_config

__version__ = "0.1.0"

__all__ = [
    "Accumulate",
    "AttentionOptions",
    "Cache",
    "CacheLayer",
    "ClosedError",
    "Device",
    "DeviceInfo",
    "DeviceLostError",
    "FileError",
    "GGUF",
    "InternalError",
    "InvalidError",
    "Layer",
    "NoDeviceError",
    "Nonfinite",
    "OutOfMemoryError",
    "Parameter",
    "Pass",
    "Plan",
    "Rope",
    "Tensor",
    "UnsupportedError",
    "VkattnError",
    "WaitTimeout",
    "attention",
    "default_device",
    "dequantize",
    "devices",
    "quantize",
    "repack_float8",
    "repack_int4",
    "rope_from_config",
]
