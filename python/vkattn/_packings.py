"""Which program quantised a checkpoint, and so how its weights are read."""

from __future__ import annotations

import os
from typing import Any, Callable

from ._compressed import Compressed
from ._config import read_json_file, shown
from ._errors import UnsupportedError
from ._excluded import Excluded
from ._float8 import Float8
from ._int4 import packing_beside
from ._model_opt import ModelOpt
from ._nf4 import Nf4
from ._packed import Int4, Packed, Settings

_READERS: dict[str, Callable[[Settings], Packed]] = {
    "fp8": Float8,
    "compressed-tensors": Compressed,
    "modelopt": ModelOpt,
    "bitsandbytes": Nf4,
}
_MODEL_OPT = "hf_quant_config.json"


def _made(reader: Callable[[Settings], Packed], settings: Settings) -> Packed:
    packed = reader(settings)
    packed.excluded = Excluded(settings.values, settings.where)
    return packed


def packed_beside(folder: str, config: Any, where: str, is_packed: bool) -> Packed | None:
    """config: the quantization_config of config.json, or None; then of files that other programs write
    beside it, if there are any. is_packed: there are tensors that need one."""
    beside = os.path.join(folder, _MODEL_OPT)
    if config is None and os.path.lexists(beside):
        values = read_json_file(beside).get("quantization")
        return _made(ModelOpt, Settings(values, beside, "quantization"))
    method = config.get("quant_method") if isinstance(config, dict) else None
    if isinstance(method, str) and method in _READERS:
        return _made(_READERS[method], Settings(config, where))
    if isinstance(config, dict) and method not in ("gptq", "awq"):
        raise UnsupportedError(
            f"{where}: quant_method {shown(method)} is not supported; expected gptq, awq,"
            f" {', '.join(_READERS)}"
        )
    if config is None and not is_packed:
        return None
    return Int4(packing_beside(folder, config, where))
