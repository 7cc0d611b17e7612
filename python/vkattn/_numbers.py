"""Numbers of Python, checked before C takes them: what does not fit is refused by its name."""

from __future__ import annotations

import numbers
import operator
import reprlib
from typing import Any, Callable

import numpy as np

from ._abi import ffi
from ._errors import InvalidError

UINT32_MAX = 2**32 - 1


def whole(value: Any, what: str, low: int = 0, high: int = UINT32_MAX) -> int:
    """A whole number from low to high; 2.5 is none, nor is 2.0."""
    try:
        number = operator.index(value)
    except TypeError:
        if isinstance(value, numbers.Real):
            raise InvalidError(f"{what}: expected a whole number, got {value!r}") from None
        raise TypeError(f"{what}: expected a whole number, got {type(value).__name__}") from None
    if not low <= number <= high:
        got = number if abs(number) < 2**70 else hex(number)[:20] + ".."
        raise InvalidError(f"{what}: expected a whole number from {low} to {high}, got {got}")
    return number


def several(
    values: Any, what: str, *, unordered: bool = False, of: str = "whole numbers"
) -> list[Any]:
    """The items of a sequence or an iterator, for which neither a text nor the keys of a dict pass, nor
    a set, unless their order is of no matter."""
    kinds = (str, bytes, bytearray, dict, *(() if unordered else (set, frozenset)))
    try:
        if not isinstance(values, kinds):
            return list(values)
    except TypeError:
        pass
    raise TypeError(f"{what}: expected {of}, got {type(values).__name__}")


def wholes(
    values: Any, what: str, low: int = 0, high: int = UINT32_MAX, *, unordered: bool = False
) -> tuple[int, ...]:
    """Several of them."""
    items = several(values, what, unordered=unordered)
    return tuple(whole(x, what, low, high) for x in items)


def real(value: Any, what: str) -> float:
    """Any number, NaN and infinities too, which the library refuses by name where it has to."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except OverflowError:
        got = reprlib.repr(value)
        raise InvalidError(f"{what}: expected a number that a float holds, got {got}") from None
    except (TypeError, ValueError):
        raise TypeError(f"{what}: expected a number, got {type(value).__name__}") from None


def reals(values: Any, what: str, size: int) -> list[float]:
    """As many of them as said."""
    items = several(values, what, of=f"{size} numbers")
    if len(items) != size:
        raise InvalidError(f"{what}: expected {size} numbers, got {len(items)}")
    return [real(x, what) for x in items]


def nonzero(value: Any, what: str) -> float:
    """A number that is not 0 as a float32, where C takes 0 for the default."""
    number = real(value, what)
    with np.errstate(over="ignore", under="ignore"):
        if np.float32(number) == 0:
            raise InvalidError(f"{what}: expected a number other than 0, got {value!r}")
    return number


def flag(value: Any, what: str) -> bool:
    """True or False, numpy's too; 0, 1 and None (False) count as such, "False" does not."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return bool(value)
    if getattr(value, "shape", None) == () and "bool" in str(getattr(value, "dtype", "")):
        return bool(value)  # of an array or a tensor
    try:
        number = operator.index(value)
    except TypeError:
        got = f"got {type(value).__name__}"
        raise TypeError(f"{what}: expected True or False, {got}") from None
    if number not in (0, 1):
        raise InvalidError(f"{what}: expected True or False, got {reprlib.repr(number)}")
    return bool(number)


_writers: dict[Any, dict[str, Callable[[Any, str], Any]]] = {}


def _writer(kind: Any) -> Callable[[Any, str], Any]:
    """What makes a Python value one of a C type."""
    if kind.kind != "primitive":
        return lambda value, what: value
    if kind.cname in ("float", "double"):
        return real
    if kind.cname in ("_Bool", "bool"):
        return flag
    bits = 8 * ffi.sizeof(kind)
    low = -(2 ** (bits - 1)) if int(ffi.cast(kind, -1)) < 0 else 0
    high = low + 2**bits - 1
    return lambda value, what: whole(value, what, low, high)


def put(struct: Any, **members: Any) -> None:
    """Writes numbers into members of a C struct; one that does not fit is refused by its name."""
    kind = ffi.typeof(struct)
    if kind.kind == "pointer":
        kind = kind.item
    writers = _writers.get(kind)
    if writers is None:
        writers = {name: _writer(field.type) for name, field in kind.fields}
        _writers[kind] = writers
    for name, value in members.items():
        setattr(struct, name, writers[name](value, name))
