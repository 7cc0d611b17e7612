"""The tensors of a model's files, each of which is used or refused."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Iterator, Sequence, Union

import numpy as np

from .._arrays import DTYPES, FLOATS, HostArray, host_array
from .._device import Device, Tensor
from .._errors import FileError, InvalidError, UnsupportedError
from .._gguf import GGUF
from .._int4 import Blocks
from .._packed import Tensors
from .._packings import packed_beside
from ._folder import Progress, open_folder
from ._graph import Linear
from ._quantize import HEADS, encode, kind_of

Host = Union[HostArray, Blocks]
_WHOLE = ("i8", "i16", "i32", "i64")  # types of GGUF in which no matrix is multiplied


class Weights:
    """Uploads tensors by their names. What nothing asked for is refused in the end, but for what
    a family knows to be without effect, which `unused` lists."""

    path: str

    def __init__(
        self, device: Device, names: set[str], total: int, quantize: str | None = None
    ) -> None:
        self.device = device
        self.quantize = quantize
        self._heads = set(HEADS)  # matrices that give logits
        self.left = set(names)
        self.names = frozenset(names)
        self.unused: list[str] = []
        self.progress = Progress(f"loading {os.path.basename(self.path.rstrip(os.sep))}", total)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def _shape(self, name: str) -> tuple[int, ...]:
        raise NotImplementedError

    def _size(self, name: str) -> int:
        raise NotImplementedError

    def _host(self, name: str, transposed: bool = False) -> Host:
        """As the device will have it. transposed: with the last two axes exchanged."""
        raise NotImplementedError

    def _floats(self, name: str) -> np.ndarray:
        """As float32."""
        raise NotImplementedError

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shape(name)

    def _rows(self, name: str, first: int, count: int, transposed: bool) -> np.ndarray:
        """Some rows of what `_host` gives, as float32."""
        raise NotImplementedError

    def _take(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self.names:
            raise InvalidError(f"{self.path}: there is no tensor {name}")
        if self._shape(name) != shape:
            raise InvalidError(
                f"{self.path}: {name}: expected {list(shape)}, got {list(self._shape(name))}"
            )
        if name in self.left:
            self.progress.add(self._size(name))
        self.left.discard(name)

    def _matrix(
        self, name: str, rows: int, columns: int, transposed: bool = False, product: bool = True
    ) -> Host:
        """product: rows are multiplied by it or looked up in it, so that `quantize` applies."""
        self._take(name, (columns, rows) if transposed else (rows, columns))
        is_head = name in self._heads
        kind = kind_of(columns, self.quantize, is_head) if product or is_head else None
        if not kind:
            return self._host(name, transposed)
        read = partial(self._rows, name, transposed=transposed)
        return encode(f"{self.path}: {name}", rows, columns, kind, read)

    def _vector(self, name: str, size: int) -> np.ndarray:
        self._take(name, (size,))
        return self._floats(name)

    def _where(self, name: str) -> str:
        """The file, and what it calls the tensor."""
        return f"{self.path}: {name}"

    def _upload(
        self, matrices: Sequence[Host], names: Sequence[str], shape: tuple[int, ...]
    ) -> Tensor:
        """One tensor of matrices of one type, along axis 0 one after the other."""
        tensor = Tensor(self.device, shape, matrices[0].dtype)
        first = 0
        for matrix, name in zip(matrices, names):
            count = len(matrix.data)
            try:
                tensor.slice(0, first, count).write_bytes(matrix.data)
            except InvalidError as error:  # a scale of blocks
                said = str(error).removeprefix("Tensor.write: ")
                raise FileError(f"{self._where(name)}: {said}") from error
            first += count
        return tensor

    def matrix(
        self,
        name: str,
        rows: int,
        columns: int,
        *,
        transposed: bool = False,
        product: bool = False,
    ) -> Tensor:
        """[rows][columns]; transposed: the file has it the other way round."""
        matrix = self._matrix(name, rows, columns, transposed, product)
        if _scale_of(matrix) is not None:
            raise UnsupportedError(
                f"{self.path}: {name}: {matrix.dtype} with a scale of its own is not supported here"
            )
        return self._upload([matrix], [name], (rows, columns))

    def _scales(self, matrices: Sequence[Host]) -> Tensor | None:
        """Those of all rows; 1 of a weight that has none."""
        scales = [_scale_of(matrix) for matrix in matrices]
        if all(scale is None for scale in scales):
            return None
        return self.device.tensor(
            np.concatenate(
                [
                    np.ones(len(matrix.data), np.float32) if scale is None else scale
                    for matrix, scale in zip(matrices, scales)
                ]
            )
        )

    def embedding(self, names: Sequence[str], rows: int, columns: int) -> Tensor:
        """A matrix that several names share: a file has it by one of them at least, and by others as
        a copy."""
        name, *others = [name for name in names if name in self.names] or names[:1]
        for other in others:
            if not self.is_copy(other, name):
                raise InvalidError(
                    f"{self.path}: {other} has other numbers than {name}, to which"
                    " tie_word_embeddings ties it"
                )
        if not self._heads.isdisjoint(names):
            self._heads.add(name)
        return self.matrix(name, rows, columns, product=True)

    def is_copy(self, name: str, of: str) -> bool:
        if self._shape(name) != self._shape(of):
            return False
        return np.array_equal(self._floats(name), self._floats(of), equal_nan=True)

    def linear(
        self,
        name: str,
        rows: int,
        columns: int,
        *,
        bias: bool = True,
        transposed: bool = False,
    ) -> Linear:
        matrix = self._matrix(f"{name}.weight", rows, columns, transposed)
        weight = self._upload([matrix], [f"{name}.weight"], (rows, columns))
        bias_tensor = self.vector(f"{name}.bias", rows) if bias else None
        return Linear(weight, bias_tensor, self._scales([matrix]))

    def linears(
        self,
        names: Sequence[str],
        rows: Sequence[int],
        columns: int,
        *,
        bias: bool | Sequence[bool] = True,
        transposed: bool = False,
        order: np.ndarray | None = None,
    ) -> list[Linear]:
        """Products of one input, for `Graph.linears`. Neighbours of one type become one, whose rows
        are theirs one after the other; its bias is 0 for those that have none. order: which row of
        the file each row is, where there is one name."""
        biased = [bias] * len(names) if isinstance(bias, bool) else bias
        matrices = [
            self._matrix(f"{name}.weight", n, columns, transposed) for name, n in zip(names, rows)
        ]
        if order is not None:
            matrices = [_in_order(matrix, order) for matrix in matrices]
        made = []
        for run in _runs(matrices, self.device.info.max_allocation):
            weight = self._upload(
                [matrices[i] for i in run],
                [f"{names[i]}.weight" for i in run],
                (sum(rows[i] for i in run), columns),
            )
            values = [
                self._vector(f"{names[i]}.bias", rows[i])
                if biased[i]
                else np.zeros(rows[i], np.float32)
                for i in run
            ]
            if order is not None:
                values = [x[order] for x in values]
            has_bias = any(biased[i] for i in run)
            bias_tensor = self.device.tensor(np.concatenate(values)) if has_bias else None
            made.append(Linear(weight, bias_tensor, self._scales([matrices[i] for i in run])))
        return made

    def conv1d(self, name: str, rows: int, columns: int, width: int) -> Linear:
        """weight [rows][width][columns] of the file's [rows][columns][width]."""
        self._take(f"{name}.weight", (rows, columns, width))
        weight, own = self._host(f"{name}.weight", True), f"{name}.weight"
        tensor = self._upload([weight], [own], (rows, width, columns))
        return Linear(tensor, self.vector(f"{name}.bias", rows))

    def depthwise(self, name: str, channels: int, width: int) -> Tensor:
        """float32 [channels][width] of a convolution that the file has as [channels][1][width]."""
        self._take(f"{name}.weight", (channels, 1, width))
        return self.device.tensor(self._floats(f"{name}.weight")[:, 0])

    def patches(self, name: str, rows: int, channels: int, size: int, *, bias: bool) -> Linear:
        """weight [rows][channels * size * size] of a convolution over squares that do not overlap,
        which the file has as [rows][channels][size][size]."""
        self._take(f"{name}.weight", (rows, channels, size, size))
        weight, own = self._host(f"{name}.weight"), f"{name}.weight"
        tensor = self._upload([weight], [own], (rows, channels * size * size))
        return Linear(tensor, self.vector(f"{name}.bias", rows) if bias else None)

    def table(self, name: str, rows: int, columns: int) -> Tensor:
        """[rows][columns] of the file's [1][rows][columns], in float32."""
        self._take(name, (1, rows, columns))
        return self.device.tensor(self._floats(name)[0])

    def layer_norm(self, name: str, size: int, epsilon: float) -> dict[str, Any]:
        """Arguments of Plan.norm. Files that were made from TensorFlow's have gamma and beta."""
        old = f"{name}.gamma" in self
        return {
            "kind": "layer",
            "epsilon": epsilon,
            "weight": self.vector(f"{name}.{'gamma' if old else 'weight'}", size),
            "bias": self.vector(f"{name}.{'beta' if old else 'bias'}", size),
        }

    def vector(self, name: str, size: int) -> Tensor:
        """In float32, as norms take them."""
        return self.device.tensor(self._vector(name, size))

    def floats(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """On the host, in float32."""
        self._take(name, shape)
        return self._floats(name)

    def numbers(self, name: str, size: int) -> list[float]:
        return [float(x) for x in self._vector(name, size)]

    def finish(self, without_effect: Callable[[str], bool]) -> None:
        self.unused = sorted(
            name for name in self.left if without_effect(name) or not self._size(name)
        )
        self.progress.close()
        unknown = sorted(self.left - set(self.unused))
        if unknown:
            raise UnsupportedError(
                f"{self.path}: tensor {unknown[0]} is not known, nor what it would change"
                + (f"; {len(unknown) - 1} more" if len(unknown) > 1 else "")
            )


def _scale_of(matrix: Host) -> np.ndarray | None:
    return matrix.scale if isinstance(matrix, Blocks) else None


def _in_order(matrix: Host, order: np.ndarray) -> Host:
    scale = _scale_of(matrix)
    if isinstance(matrix, Blocks) and scale is not None:
        matrix = matrix._replace(scale=scale[order])
    return matrix._replace(data=matrix.data[order])


def _runs(matrices: Sequence[Host], most: int) -> Iterator[range]:
    """Neighbours of one type that together take up to `most` bytes."""
    first = 0
    for end in range(1, len(matrices) + 1):
        whole = matrices[first : end + 1]
        if (
            end == len(matrices)
            or matrices[end].dtype != matrices[first].dtype
            or sum(matrix.data.nbytes for matrix in whole) > most
        ):
            yield range(first, end)
            first = end


class FolderWeights(Weights):
    """Those of model.safetensors, or else of the files that model.safetensors.index.json names."""

    def __init__(
        self,
        folder: str,
        device: Device,
        dtype: str | None,
        quantization: Any = None,
        quantize: str | None = None,
    ) -> None:
        """quantization: the quantization_config of config.json."""
        if dtype is not None and dtype not in FLOATS:
            raise InvalidError(f"dtype: expected {', '.join(FLOATS)}, got {dtype!r}")
        self.path = folder
        self.dtype = dtype
        self._files = open_folder(folder)
        names = set(self._files)
        where = os.path.join(folder, "config.json")
        self._tensors = Tensors(folder, names, self._files.__getitem__)
        has_words = any(name.endswith("qweight") for name in names)
        self._packing = packed_beside(folder, quantization, where, has_words)
        if self._packing and quantize:
            raise InvalidError(f"{folder}: quantize: its weights are quantised already")
        if self._packing:  # before the device has any of them
            self._packing.check_all(self._tensors)
        super().__init__(device, names, sum(self._size(name) for name in names), quantize)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].shape(name))

    def _size(self, name: str) -> int:
        return self._files[name].count(name)

    def _where(self, name: str) -> str:
        return f"{self._files[name].path}: {name}"

    def _stored(self, name: str) -> HostArray:
        """In the type of the file, or in the one that was asked for."""
        if not self.dtype and self._files[name].kind(name) == "F64":
            raise UnsupportedError(
                f"{self._where(name)}: float64 is not a type of weights here: load with dtype=\"f32\""
            )
        return host_array(self._files[name].array(name), self._where(name), self.dtype)

    def _host(self, name: str, transposed: bool = False) -> Host:
        host = self._stored(name)
        if transposed:
            turned = np.swapaxes(host.data, -1, -2)
            host = HostArray(np.ascontiguousarray(turned), host.dtype)
        return host

    def _rows(self, name: str, first: int, count: int, transposed: bool) -> np.ndarray:
        read = self._files[name].rows(name, first, count, transposed)
        return host_array(read, name, "f32").data

    def _matrix(
        self, name: str, rows: int, columns: int, transposed: bool = False, product: bool = True
    ) -> Host:
        """Reads what is packed as blocks."""
        prefix = name[: -len("weight")]
        names = self._packing.names_of(prefix, self._tensors) if self._packing else []
        if not self._packing or not names or not name.endswith("weight"):
            return super()._matrix(name, rows, columns, transposed, product)
        if transposed and not self._packing.rows_are_outputs:
            raise UnsupportedError(
                f"{self.path}: {name}: {self._packing.method} of a matrix that has inputs as rows is not"
                " supported"
            )
        for taken in names:
            if taken in self.left:
                self.progress.add(self._size(taken))
            self.left.discard(taken)
        blocks = self._packing.read(prefix, self._tensors)
        if blocks.shape != (rows, columns):
            raise InvalidError(
                f"{self.path}: {names[0]}: expected {[rows, columns]}, got {list(blocks.shape)}"
            )
        return blocks

    def finish(self, without_effect: Callable[[str], bool]) -> None:
        """Old programs wrote a bias of zeros beside each matrix that they quantised."""
        for name in sorted(self.left):
            prefix, _, kind = name.rpartition(".")
            if kind == "bias" and f"{prefix}.qweight" in self.names and not self._floats(name).any():
                self.left.discard(name)
        for name, file in self._files.items():  # two names of a tensor: one of them was used
            kept = file.aliases.get(name, name)
            if kept not in self.left or name not in self.left:
                self.left -= {name, kept}
        packing = self._packing
        super().finish(
            lambda name: without_effect(name) or (packing is not None and packing.is_inert(name))
        )

    def _floats(self, name: str) -> np.ndarray:
        return host_array(self._files[name].array(name), name, "f32").data

    def is_copy(self, name: str, of: str) -> bool:
        """By their bytes where they have one type, as both may be gigabytes."""
        a, b = self._stored(name), self._stored(of)
        if a.dtype != b.dtype or a.data.shape != b.data.shape:
            return super().is_copy(name, of)
        first, second = (x.data.reshape(-1).view(np.uint8).data for x in (a, b))
        return first == second or super().is_copy(name, of)

    def scalar(self, name: str) -> float:
        if name not in self.names:
            raise InvalidError(f"{self.path}: there is no tensor {name}")
        self.left.discard(name)
        self.progress.add(self._size(name))
        return float(host_array(self._files[name].scalar(name), name, "f32").data[0])


class GGUFWeights(Weights):
    """In the types of the file, quantised ones too."""

    def __init__(
        self,
        file: GGUF,
        device: Device,
        quantize: str | None = None,
        renamed: dict[str, str] | None = None,
    ) -> None:
        """renamed: names of the file by those that are asked for."""
        file.check_types()
        self.path = file.path
        self.file = file
        self.renamed = renamed or {name: name for name in file.names}
        total = sum(self._size(name) for name in self.renamed)
        super().__init__(device, set(self.renamed), total, quantize)
        for name in self.names:  # before the device has any weight
            self._scale_name(name)

    def _scale_name(self, weight: str) -> str | None:
        """The tensor, of one number that is checked here, which nvfp4 may have its scale in."""
        name = f"{weight[: -len('weight')]}scale"
        if not weight.endswith("weight") or name not in self.names:
            return None
        if self.file.type(self.renamed[weight]).lower() != "nvfp4":
            return None
        if self._shape(name) != (1,):
            raise InvalidError(f"{self.path}: {name}: expected [1], got {list(self._shape(name))}")
        scale = float(self._floats(name)[0])
        if not np.isfinite(scale) or not scale:
            raise FileError(
                f"{self.path}: {name}: the scale is {scale:g}, not a number other than 0"
            )
        return name

    def _where(self, name: str) -> str:
        return f"{self.path}: {self.renamed[name]}"

    def finish(self, without_effect: Callable[[str], bool]) -> None:
        """Activations stay floats, whatever scale an nvfp4 has for them."""

        def is_inert(name: str) -> bool:
            weight = f"{name.removesuffix('input_scale')}weight"
            return (
                name.endswith(".input_scale")
                and weight in self.names
                and self.file.type(self.renamed[weight]).lower() == "nvfp4"
            )

        super().finish(lambda name: without_effect(name) or is_inert(name))

    def _shape(self, name: str) -> tuple[int, ...]:
        """llama-quantize leaves the axis of one type of texts out."""
        shape, own = self.file.shape(self.renamed[name]), self.renamed[name]
        return (1, *shape) if own == "token_types.weight" and len(shape) == 1 else shape

    def _size(self, name: str) -> int:
        return int(self.file.raw(self.renamed[name]).size)

    def _rows(self, name: str, first: int, count: int, transposed: bool) -> np.ndarray:
        assert not transposed
        if self.file.type(self.renamed[name]) not in FLOATS:
            raise InvalidError(
                f"{self.path}: quantize: {name} is {self.file.type(self.renamed[name])} already; expected a file of"
                " floats"
            )
        return np.ascontiguousarray(self.file.rows(self.renamed[name], first, count), np.float32)

    def _matrix(
        self, name: str, rows: int, columns: int, transposed: bool = False, product: bool = True
    ) -> Host:
        """nvfp4 may have a scale of the tensor in one of its own."""
        matrix = super()._matrix(name, rows, columns, transposed, product)
        scale_name = self._scale_name(name)
        if not isinstance(matrix, Blocks) or not scale_name:
            return matrix
        scale = self._vector(scale_name, 1)
        return matrix._replace(scale=np.full(rows, scale[0], np.float32))

    def _host(self, name: str, transposed: bool = False) -> Host:
        assert not transposed
        kind = self.file.type(self.renamed[name]).lower()
        if kind in _WHOLE:
            raise UnsupportedError(
                f"{self._where(name)}: a matrix of {kind} is not supported: expected floats or blocks,"
                " as llama.cpp's converter and llama-quantize write"
            )
        raw = self.file.raw(self.renamed[name]).reshape(*self._shape(name)[:-1], -1)
        return Blocks(np.ascontiguousarray(raw), kind, self.file.shape(self.renamed[name])[-1])

    def _floats(self, name: str) -> np.ndarray:
        return np.ascontiguousarray(self.file.array(self.renamed[name]), np.float32)
