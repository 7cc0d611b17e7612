"""Tensors of PyTorch that stay on the device between calls, because a block says so."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._device import Device, Tensor

# What lies on a device, by the device and the memory that it is a copy of: the count of PyTorch's
# writes to that memory when it was copied, and the copy.
_kept: dict[Any, list[Any]] = {}


def _memory(device: Device, tensor: torch.Tensor) -> Any:
    """The same for views that differ in axes of one element alone."""
    axes = tuple((n, step) for n, step in zip(tensor.shape, tensor.stride()) if n != 1)
    return id(device), tensor.data_ptr(), axes, tensor.dtype


def find(device: Device, tensor: torch.Tensor, write: Callable[[Tensor], object]) -> Tensor | None:
    """What is kept of this tensor; write() copies it again where it was written to."""
    entry = _kept.get(_memory(device, tensor)) if _kept else None
    if entry is None or entry[1].closed:
        return None
    if entry[0] != tensor._version:
        write(entry[1].reshape(*tensor.shape))
        entry[0] = tensor._version
    view: Tensor = entry[1].reshape(*tensor.shape)
    return view


def keep(device: Device, tensor: torch.Tensor, copy: Tensor) -> Any:
    """Returns what `drop` takes; None where it is kept already."""
    key = _memory(device, tensor)
    if key in _kept and not _kept[key][1].closed:
        return None
    _kept[key] = [tensor._version, copy]
    return key


def drop(key: Any) -> None:
    entry = _kept.pop(key, None)
    if entry is not None:
        entry[1].close()
