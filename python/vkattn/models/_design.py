"""What config.json or the metadata of a GGUF file says of a decoder, by its family's row."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from .._config import Config, shown
from .._errors import FileError, UnsupportedError
from .._options import Rope
from .._rope import rope_of
from . import _table as table
from ._families import FAMILIES
from ._keys import Keys
from ._table import Key, Row


def _activation(keys: Keys, name: str, default: Any) -> str:
    """relu2 is relu(x) * x."""
    return (
        "relu2"
        if keys.get(name, str, default) == "relu2"
        else table.activation(keys, name, default)
    )


def _every(keys: Keys, name: str, default: Any) -> int:
    """A number of layers, or a letter for each of them: L with a window, then G."""
    value = keys.get(name, (int, str), default)
    if isinstance(value, str):
        value = len(value) if value and value == "L" * (len(value) - 1) + "G" else -1
    if value < 0:
        raise UnsupportedError(f"{keys.where}: {name} {shown(keys.values[name])} is not supported")
    return int(value)


def _no_experts(keys: Keys, name: str, default: Any) -> int:
    count = int(keys.get(name, int, default))
    if count:
        raise UnsupportedError(
            f"{keys.where}: {name} {count} is not supported, for want of products of chosen experts"
        )
    return count


def _conv_width(keys: Keys, name: str, default: Any) -> int:
    width = keys.size(name, default)
    if not 2 <= width <= MOST_WIDTH:
        raise UnsupportedError(
            f"{keys.where}: {name}: a convolution {width} wide is not supported; expected 2 to"
            f" {MOST_WIDTH}"
        )
    return width


READERS: dict[str, table.Reader] = {
    **dict.fromkeys(("width", "n_layer", "n_head", "n_kv_head", "head_dim"), table.size),
    "n_expert": _no_experts,
    **dict.fromkeys(("ffn_whole", "ffn_multiple"), table.size),
    "ffn_adjusted": table.boolean,
    "ffn_factor": table.positive,
    "conv_width": _conv_width,
    **dict.fromkeys(("delta_key_heads", "delta_value_heads"), table.size),
    **dict.fromkeys(("delta_key_dim", "delta_value_dim"), table.size),
    **dict.fromkeys(("ffn_width", "n_token", "embed_width", "max_length"), table.size),
    "epsilon": table.positive,
    **dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias", "head_bias", "norm_bias"), table.boolean),
    "conv_bias": table.boolean,
    **dict.fromkeys(("tied", "parallel", "interleaved"), table.boolean),
    "activation": _activation,
    **dict.fromkeys(("window", "first_window", "no_rope"), table.whole),
    "full_every": _every,
    **dict.fromkeys(("theta", "local_theta", "rotary_share"), table.number),
    "rotary_dim": table.size,
    **dict.fromkeys(("query_scalar", "logit_divisor"), table.positive),
    **dict.fromkeys(("scale", "softcap", "logit_softcap"), table.positive),
    **dict.fromkeys(("embed_scale", "residual_scale", "logit_scale"), table.number),
}
FULL, SLIDING = "full_attention", "sliding_attention"
MOST_WIDTH = 16  # of a convolution with a state


class Design:
    """The settings of a family's row, read: names, sizes and switches as attributes, and `windows`
    and the rotation of each layer."""

    def __init__(
        self,
        row: Row,
        windows: list[int | None],
        ropes: list[Any],
        stateful: list[bool] | None = None,
    ) -> None:
        """ropes: a Rope, the Config that rope_of reads when the length is known, or None. stateful:
        the layers that keep a state."""
        self.__dict__.update(row)
        self.windows = windows  # keys that a layer sees, its own included
        self.stateful = stateful or [False] * len(windows)
        self._ropes = ropes

    prefix: str

    def __getattr__(self, name: str) -> Any:  # settings, for type checkers
        raise AttributeError(name)

    def name(self, role: str) -> str:
        """The tensor of a role in the model, without .weight or .bias."""
        return str(self.names[role] if role == "head" else self.prefix + self.names[role])

    def layer_name(self, role: str, i: int) -> str:
        return f"{self.prefix}{self.layers.format(i)}{self.names[role]}"

    def ropes(self, capacity: int) -> list[Rope | None]:
        made: dict[int, Rope] = {}
        for rope in self._ropes:
            if rope is not None and id(rope) not in made:
                found = rope
                if isinstance(rope, Config):
                    found = rope_of(rope, self.head_dim, capacity)
                made[id(rope)] = dataclasses.replace(found, interleaved=bool(self.interleaved))
        return [None if rope is None else made[id(rope)] for rope in self._ropes]


# ---- config.json --------------------------------------------------------------------------------


def layer_kinds(keys: Keys, row: Row) -> list[str]:
    """FULL or SLIDING of each layer."""
    n_layer, window = row["n_layer"], row["window"]
    if window is not None and window < 1:
        raise FileError(f"{keys.where}: sliding_window: expected at least 1, got {window}")
    kinds = keys.get("layer_types", list)
    if row["kinds"] == "attention_types":
        kinds = _expanded(keys, n_layer)
    elif row["kinds"] == "full_attn_idxs":
        kinds = _attending(keys, row) if kinds is None else kinds
        keys.left.discard("full_attn_idxs")
    other = row["state"] or SLIDING
    if kinds is None:
        every, first = row["full_every"], row["first_window"]
        full = [i < first or (every > 0 and (i + 1) % every == 0) for i in range(n_layer)]
        return [FULL if x or not (window or row["state"]) else other for x in full]
    if len(kinds) != n_layer or any(kind not in (FULL, other) for kind in kinds):
        raise UnsupportedError(f"{keys.where}: layer_types {shown(kinds)} is not supported")
    if SLIDING in kinds and window is None:
        raise FileError(f"{keys.where}: layer_types: expected a sliding_window, there is none")
    if row["kinds"] == "all alike" and window and FULL in kinds:
        raise UnsupportedError(
            f"{keys.where}: layer_types {shown(kinds)} is not supported: in transformers every layer"
            " has the window"
        )
    return list(kinds)


def _attending(keys: Keys, row: Row) -> list[str]:
    """The layers that LFM2 lists by their numbers attend, by default all; others keep a state."""
    n_layer = row["n_layer"]
    listed = keys.get("full_attn_idxs", list)
    if listed is None:
        return [FULL] * n_layer
    if any(type(i) is not int for i in listed):
        raise FileError(
            f"{keys.where}: full_attn_idxs: expected numbers of layers, got {shown(listed)}"
        )
    return [FULL if i in listed else row["state"] for i in range(n_layer)]


def _expanded(keys: Keys, n_layer: int) -> list[str]:
    """The layers that GPT Neo states as [[[kind, ..], times], ..]."""
    words = {"global": FULL, "local": SLIDING}
    keys.left.discard("attention_layers")  # the same, expanded
    types = keys.get("attention_types", list, [[["global", "local"], 12]])
    try:
        every = (words[kind] for some, n in types if some for _ in range(n) for kind in some)
        kinds = list(itertools.islice(every, n_layer + 1))
    except (KeyError, TypeError, ValueError):
        kinds = []
    if len(kinds) != n_layer:
        raise FileError(
            f"{keys.where}: attention_types: expected {n_layer} layers of global or local, got"
            f" {shown(types)}"
        )
    return kinds


def _turns(keys: Keys, row: Row, kinds: list[str]) -> list[bool]:
    """Whether a layer rotates at all."""
    if row["no_rope"] == FULL:
        return [kind == SLIDING for kind in kinds]
    if row["no_rope"] != "listed":
        return [True] * len(kinds)
    every = Key("no_rope_layer_interval", 4).read(keys, row, table.size)
    flags = keys.get("no_rope_layers", list)
    if flags is None:
        return [(i + 1) % every != 0 for i in range(len(kinds))]
    if len(flags) != len(kinds) or any(x not in (0, 1) for x in flags):
        raise FileError(
            f"{keys.where}: no_rope_layers: expected 0 or 1 for each layer, got {shown(flags)}"
        )
    return [bool(x) for x in flags]


def _rope_config(keys: Keys, row: Row, kind: str) -> Config:
    """What config.json says of the rotation of layers of one kind, in Llama's words."""
    values = dict(keys.values)
    theta = row["theta"]
    if kind == SLIDING and row["local_theta"] is not None:
        values.pop("rope_scaling", None)
        theta = row["local_theta"]
    given = values.get("rope_parameters")
    if isinstance(given, dict) and set(given) & {FULL, SLIDING}:
        if keys.values.get("rope_scaling"):
            raise UnsupportedError(
                f"{keys.where}: rope_scaling beside rope_parameters of {FULL} and of {SLIDING} is not"
                " supported"
            )
        values["rope_parameters"] = given.get(kind)
    elif given and row["local_theta"] is not None:
        raise UnsupportedError(
            f"{keys.where}: rope_parameters {shown(given)} is not supported: expected those of"
            f" {FULL} and of {SLIDING}"
        )
    if row["dynamic_alpha"]:
        theta = _alpha_base(values, theta, row["head_dim"])
    values.update(rope_theta=theta, partial_rotary_factor=row["rotary_share"])
    return Config(values, keys.where)


def _alpha_base(values: dict[str, Any], theta: float, dim: int) -> float:
    """The base of a rotation of type dynamic with an alpha, which says nothing else then."""
    for name in ("rope_scaling", "rope_parameters"):
        given = values.get(name)
        if not isinstance(given, dict) or not isinstance(given.get("alpha"), (int, float)):
            continue
        if given.get("type") == "dynamic" or given.get("rope_type") == "dynamic":
            values[name] = None  # its other words say nothing then
            base = float(given.get("rope_theta") or theta)
            theta = base * max(float(min(given["alpha"], 1e30)), 0.0) ** (dim / max(dim - 2, 1))
    return theta


def _refuse_share(keys: Keys) -> None:
    """Refuses a share where heads rotate whole: some programs pass over it, others follow it."""
    name = "partial_rotary_factor"
    keys.only(name, 1, 1.0)
    for key in ("rope_scaling", "rope_parameters"):
        given = keys.values.get(key)
        if not isinstance(given, dict):
            continue
        for found in (given, *(x for x in given.values() if isinstance(x, dict))):
            if found.get(name) not in (None, 1):
                raise UnsupportedError(
                    f"{keys.where}: {key}: {name} {shown(found[name])} is not supported"
                )


def _ropes(keys: Keys, row: Row, kinds: list[str]) -> list[Any]:
    if row["positions"] != "rope":
        return [None] * len(kinds)
    made: dict[str, Any] = {row["state"]: None}
    for kind in sorted(set(kinds) - {row["state"]}):
        dim = row["rotary_dim"]
        if dim is not None:
            if dim % 2 or dim > row["head_dim"]:
                raise UnsupportedError(
                    f"{keys.where}: rotary_dim {dim} of a head of {row['head_dim']} is not supported"
                )
            made[kind] = Rope(dim, row["theta"])
        else:
            made[kind] = _rope_config(keys, row, kind)
            rope_of(made[kind], row["head_dim"], 1)  # what is not supported is refused now
    return [made[k] if turns else None for k, turns in zip(kinds, _turns(keys, row, kinds))]


def design_of_config(keys: Keys, kind: str) -> Design:
    for name in FAMILIES[kind]["nested"]:  # keys of an object, by object.key
        inside = keys.get(name, dict, {})
        keys.values = {**keys.values, **{f"{name}.{key}": x for key, x in inside.items()}}
        keys.left.update(f"{name}.{key}" for key in inside)
    given = table.chosen(keys, FAMILIES[kind])
    row = table.settings(keys, given, READERS)
    n_head, n_kv_head = row["n_head"], row["n_kv_head"]
    for name, count, of in (("n_head", n_head, row["width"]), ("n_kv_head", n_kv_head, n_head)):
        free = name == "n_head" and isinstance(given["head_dim"], Key)
        if of % count and not free:
            key = given[name].stated(keys)
            raise FileError(f"{keys.where}: {key}: {count} do not divide {of}")
    if row["positions"] == "rope" and given["rotary_share"] == 1.0:
        _refuse_share(keys)
    kinds = layer_kinds(keys, row)
    windows = [row["window"] if k == SLIDING else None for k in kinds]
    stateful = [k == row["state"] for k in kinds]
    if row["state"]:
        _check_state(keys, given, row, stateful)
    return Design(row, windows, _ropes(keys, row, kinds), stateful)


def _check_state(keys: Keys, given: Row, row: Row, stateful: list[bool]) -> None:
    if all(stateful):
        raise UnsupportedError(
            f"{keys.where}: layer_types: no layer of {FULL} is not supported: lengths of sequences"
            " are those of its cache"
        )
    n_key, n_value = row["delta_key_heads"], row["delta_value_heads"]
    if n_key and n_value % n_key:
        name = given["delta_key_heads"].stated(keys)
        raise FileError(f"{keys.where}: {name}: {n_key} do not divide {n_value}")
