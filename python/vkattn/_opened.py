"""Files that the library's own readers hold open, which the tools of C have too: what one of them
accepts or refuses, and in which words, is the same for the other."""

from __future__ import annotations

import os
from typing import Any, Callable

import numpy as np

from . import _abi
from ._abi import ffi, lib, text_of
from ._errors import FileError, error_of


def check(call: Callable[[Any], int]) -> None:
    """Raises the sentence of a function of vkattn_io, which call(error) calls."""
    error = ffi.new("char[]", lib.VKA_IO_ERROR_SIZE)
    status = call(error)
    if status:
        raise error_of(status, text_of(error))


def encoded(path: str) -> bytes:
    """A path as C takes it."""
    try:
        text = os.fsencode(path)
    except UnicodeError as error:
        raise FileError(f"{path!a}: cannot open: {error}") from error
    if b"\0" in text:
        raise FileError(f"{path!a}: cannot open: the path has a 0 byte")
    return text


class Opened:
    """A struct vka_`kind` of a file, closed when neither this nor an array of its data is left."""

    def __init__(self, kind: str, path: str) -> None:
        close, library = getattr(lib, f"vka_{kind}_close"), _abi._library

        def end(box: Any) -> None:
            if library:  # which stays loaded until then
                close(box)

        self._box = ffi.gc(ffi.new(f"struct vka_{kind} **"), end)
        name = encoded(path)
        check(lambda error: getattr(lib, f"vka_{kind}_open")(name, error, self._box))

    @property
    def pointer(self) -> Any:
        return self._box[0]

    def bytes_at(self, data: Any, size: int) -> np.ndarray:
        """The bytes of the mapped file, which cannot be written."""
        if not size:
            return np.empty(0, np.uint8)

        def keep(_: Any, file: Opened = self) -> None:
            """The file is open as long as this function is there."""

        held = ffi.gc(ffi.cast("char *", data), keep)
        return np.frombuffer(memoryview(ffi.buffer(held, size)).toreadonly(), np.uint8)
