"""Families of models as rows of a table: a row is a dict of settings, each a value, or a Key of
config.json. `of` makes a row of another, `chosen` follows its switches, `settings` reads its keys.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Tuple, Union

from .._config import shown
from .._errors import FileError, UnsupportedError
from ._keys import Keys

Row = Dict[str, Any]

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
SAME = object()


class Key(NamedTuple):
    """A setting that config.json has, by one of several names.

    default: what transformers takes where it is missing, or what makes that of the settings before
    it. null: what null stands for, if not for the default.
    """

    name: Union[str, Tuple[str, ...]]
    default: Any = None
    null: Any = SAME

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if isinstance(self.name, str) else self.name

    def stated(self, keys: Keys) -> str:
        """The name that config.json has it by, or else the first."""
        return next((n for n in self.names if keys.values.get(n) is not None), self.names[0])

    def read(self, keys: Keys, row: Row, reader: Reader) -> Any:
        values = [keys.values[n] for n in self.names if keys.values.get(n) is not None]
        keys.left.difference_update(self.names)
        if any(value != values[0] for value in values[1:]):
            raise FileError(f"{keys.where}: {' and '.join(self.names)} differ: {shown(values)}")
        default = self.default
        is_null = not values and any(n in keys.values for n in self.names)
        if is_null and self.null is not SAME:
            default = self.null
        return reader(keys, self.stated(keys), default(row) if callable(default) else default)


Reader = Callable[[Keys, str, Any], Any]  # of config, a key's name and its default


def size(keys: Keys, name: str, default: Any) -> int:
    return keys.size(name, default)


def positive(keys: Keys, name: str, default: Any) -> Any:
    """A number above 0; also None, where that is the default."""
    if default is None and keys.get(name, float) is None:
        return None
    return keys.positive(name, default)


def boolean(keys: Keys, name: str, default: Any) -> Any:
    return keys.get(name, bool, default)


def number(keys: Keys, name: str, default: Any) -> Any:
    """A float of any size, or the default."""
    value = keys.get(name, float, default)
    if value is not None and not abs(value) < 3e38:
        raise FileError(f"{keys.where}: {name}: expected a number, got {shown(value)}")
    return value


def whole(keys: Keys, name: str, default: Any) -> Any:
    return keys.get(name, int, default)


def activation(keys: Keys, name: str, default: Any) -> str:
    """One of Plan.activation's kinds."""
    value = keys.get(name, str, default)
    if value not in ACTIVATIONS:
        raise UnsupportedError(f"{keys.where}: {name} {shown(value)} is not supported")
    return ACTIVATIONS[value]


def of(row: Row, **changes: Any) -> Row:
    """A row like another one. A dict joins that of the row; a None in it takes an entry away."""
    made = dict(row)
    for name, value in changes.items():
        if isinstance(value, dict):
            both = {**made.get(name, {}), **value}
            value = {key: x for key, x in both.items() if x is not None}
        made[name] = value
    return made


def chosen(keys: Keys, row: Row) -> Row:
    """The row by what config.json says of its switches.

    inert: keys that change nothing here. only: {key: values that are followed}, besides null.
    switches: {key: (default, {value: settings})}, in their order; another value is refused by name.
    Settings may hold switches of their own.
    """
    while row.get("switches"):
        switches = row["switches"]
        row = {**row, "switches": {}}
        for name, (default, cases) in switches.items():
            keys.only(name, *cases)
            value = keys.values.get(name)
            row = of(row, **cases[default if value is None else value])
    for name, allowed in row.get("only", {}).items():
        keys.only(name, *allowed)
    keys.left.difference_update(row.get("inert", ()))
    return row


def settings(keys: Keys, row: Row, readers: dict[str, Reader]) -> Row:
    """The row with the values of those settings that readers are for, in their order; one may be a
    function of those before it."""
    read = dict(row)
    for name, reader in readers.items():
        value = row[name]
        if isinstance(value, Key):
            read[name] = value.read(keys, read, reader)
        elif callable(value):
            read[name] = value(read)
    return read
