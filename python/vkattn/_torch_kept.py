"""Tensors of PyTorch that stay on the device between calls, because a block says so."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._device import Device, Tensor

# What lies on a device, by the device and the memory that it is a copy of: the count of PyTorch's
# writes to that memory when it was copied, the copy, and the storage with where it lay. The storage is
# held, so that no other tensor gets its memory; one that was resized has given it away.
_kept: dict[Any, list[Any]] = {}


def _memory(device: Device, tensor: torch.Tensor) -> Any:
    """The same for views that differ in axes of one element alone."""
    axes = tuple((n, step) for n, step in zip(tensor.shape, tensor.stride()) if n != 1)
    return id(device), tensor.data_ptr(), axes, tensor.dtype


def find(device: Device, tensor: torch.Tensor, write: Callable[[Tensor], object]) -> Tensor | None:
    """What is kept of this tensor; write() copies it again where it was written to."""
    entry = _kept.get(_memory(device, tensor)) if _kept else None
    if entry is None or entry[1].closed or entry[2].data_ptr() != entry[3]:
        return None
    if entry[0] != tensor._version:
        write(entry[1].reshape(*tensor.shape))
        entry[0] = tensor._version
    view: Tensor = entry[1].reshape(*tensor.shape)
    return view


def keep(device: Device, tensor: torch.Tensor, copy: Tensor) -> Any:
    """Returns what `drop` takes; None where it is kept already."""
    key = _memory(device, tensor)
    known = _kept.get(key)
    if known is not None and not known[1].closed and known[2].data_ptr() == known[3]:
        return None
    storage = tensor.untyped_storage()
    _kept[key] = [tensor._version, copy, storage, storage.data_ptr()]
    return key


def drop(key: Any) -> None:
    entry = _kept.pop(key, None)
    if entry is not None:
        entry[1].close()
