"""Linear layers of checkpoints whose weights are quantised: which tensors one is, and its blocks."""

from __future__ import annotations

from typing import Any, Callable, Collection

import numpy as np

from ._config import shown
from ._errors import FileError, UnsupportedError
from ._excluded import Excluded
from ._int4 import Blocks, Packing, int4_names, prepare_int4
from ._safetensors import SafetensorsFile

# What files say of activations, caches and outputs, which stay floats here.
_INERT = (
    *("input_scale", "input_global_scale", "input_zero_point", "activation_scale"),
    *("act_scale", "output_scale", "k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale"),
)

# How names of weights end.
_WEIGHTS = ("weight", "qweight", "weight_packed")


class Tensors:
    """Those of a checkpoint, by their names."""

    def __init__(
        self, path: str, names: Collection[str], file_of: Callable[[str], SafetensorsFile]
    ) -> None:
        self.path = path
        self.names = names
        self._file_of = file_of

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def _need(self, name: str) -> SafetensorsFile:
        if name not in self.names:
            raise FileError(f"{self.path}: there is no tensor {name}")
        return self._file_of(name)

    def kind(self, name: str) -> str:
        """The element type as safetensors names it."""
        return self._need(name).kind(name)

    def array(self, name: str) -> Any:
        """With any number of axes, 0 too; floats of 8 bits as their bytes."""
        return self._need(name).packed(name)

    def bytes_of(self, name: str, *kinds: str) -> np.ndarray:
        """A matrix of one of these types."""
        array = self.array(name)
        data = getattr(array, "data", array) if not isinstance(array, np.ndarray) else array
        if self.kind(name) not in kinds or data.ndim != 2 or not data.size:
            raise FileError(
                f"{self.path}: {name}: expected {' or '.join(kinds)} of 2 axes, as"
                f" quantization_config says, got {self.kind(name)} {list(data.shape)}"
            )
        return np.asarray(data)

    def flat(self, name: str, *kinds: str) -> np.ndarray:
        """All numbers of a tensor of one of these types."""
        if self.kind(name) not in kinds:
            raise FileError(
                f"{self.path}: {name}: expected {' or '.join(kinds)}, got {self.kind(name)}"
            )
        return np.asarray(self.array(name)).reshape(-1)

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"


class Packed:
    """How the weights of a checkpoint are quantised."""

    method = ""
    rows_are_outputs = False  # of matrices too that a family keeps as [in][out]
    excluded = Excluded({}, "")  # what the config says stays floats

    def names_of(self, prefix: str, tensors: Tensors) -> list[str]:
        """The tensors of the linear layer `prefix`, whose name ends in a dot or is empty; none where its
        weight is one of floats."""
        raise NotImplementedError

    def prepare(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        """Checks names, shapes and scales; what is returned reads the values."""
        raise NotImplementedError

    def _checked(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        self.excluded.check(prefix.removesuffix("."), tensors.path)
        return self.prepare(prefix, tensors)

    def read(self, prefix: str, tensors: Tensors) -> Blocks:
        return self._checked(prefix, tensors)()

    def check_all(self, tensors: Tensors) -> None:
        """Checks all layers whose weights are packed, of which there is one at least."""
        ends = [(name, end) for name in tensors.names for end in _WEIGHTS if name.endswith(end)]
        found = False
        for prefix in sorted(name[: -len(end)] for name, end in ends):
            if (not prefix or prefix.endswith(".")) and self.names_of(prefix, tensors):
                self._checked(prefix, tensors)
                found = True
        if not found:
            raise FileError(
                f"{tensors.path}: quantization_config says {self.method}, but no weight is packed so"
            )

    def is_inert(self, name: str) -> bool:
        return name.rpartition(".")[2] in _INERT


class Int4(Packed):
    """GPTQ and AWQ."""

    rows_are_outputs = True

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.method = packing.format
        if packing.excluded:
            self.excluded = packing.excluded

    def names_of(self, prefix: str, tensors: Tensors) -> list[str]:
        if f"{prefix}weight" in tensors or f"{prefix}qweight" not in tensors:
            return []
        return int4_names(prefix, tensors.names)

    def prepare(self, prefix: str, tensors: Tensors) -> Callable[[], Blocks]:
        return prepare_int4(prefix, tensors.names, tensors.array, self.packing, tensors.path)

    def is_inert(self, name: str) -> bool:
        return False


class Settings:
    """Keys of a quantization_config, each of which is followed or refused."""

    def __init__(self, values: Any, where: str, what: str = "quantization_config") -> None:
        if not isinstance(values, dict):
            raise FileError(f"{where}: {what}: expected an object, got {shown(values)}")
        self.values = values
        self.where = f"{where}: {what}"

    def only(self, key: str, *allowed: Any) -> Any:
        """The value, which may be missing or null; of strings in lower case."""
        value = self.values.get(key)
        value = value.lower() if isinstance(value, str) else value
        if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
            raise UnsupportedError(f"{self.where}: {key} {shown(value)} is not supported")
        return value

    def section(self, key: str) -> "Settings":
        made = Settings(self.values.get(key), self.where, key)
        made.where = f"{self.where}: {key}"
        return made

    def pair(self, key: str) -> tuple[int, int] | None:
        """Rows and columns."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise FileError(f"{self.where}: {key}: expected two numbers, got {shown(value)}")
        return self._size(value[0], key), self._size(value[1], key)

    def size(self, key: str) -> int | None:
        value = self.values.get(key)
        return None if value is None else self._size(value, key)

    def _size(self, value: Any, key: str) -> int:
        if type(value) is not int or not 1 <= value < 2**31:
            raise FileError(f"{self.where}: {key}: expected 1 to 2^31 - 1, got {shown(value)}")
        return value
