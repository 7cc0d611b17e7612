"""Malformed checkpoints: each is an exception of the package with a sentence, none is misread.

tests/python/run.sh build/libvkattn.so -k random_checkpoints --checkpoints=100000 --seed=1
"""

import json
import os
import struct

import numpy as np
import pytest
from test_layer import entry, write_safetensors

import vkattn
from vkattn._safetensors import SafetensorsFile

PREFIX = "a."
ROWS = np.ones((4, 4), np.float32)
LLAMA = {f"{PREFIX}{x}_proj.weight": ROWS for x in "qkvo"}
TORCH = {
    f"{PREFIX}in_proj_weight": np.ones((12, 4), np.float32),
    f"{PREFIX}in_proj_bias": np.ones(12, np.float32),
    f"{PREFIX}out_proj.weight": ROWS,
}
GPT2 = {
    f"{PREFIX}c_attn.weight": np.ones((4, 12), np.float32),
    f"{PREFIX}c_attn.bias": np.ones(12, np.float32),
    f"{PREFIX}c_proj.weight": ROWS,
}
PHI3 = {
    f"{PREFIX}qkv_proj.weight": np.ones((12, 4), np.float32),
    f"{PREFIX}o_proj.weight": ROWS,
}
CONFIG = {"num_attention_heads": 2, "num_key_value_heads": 2, "rope_theta": 1e4}
OWN = {"num_heads": 2, "rope": {"dim": 2}}
DEEP = "[" * 100000 + "]" * 100000
NEARLY_DEEP = "[" * 900 + "]" * 900


def short(value):
    """The name of a case: some are of any length."""
    return repr(value)[:24]


def load(path, **given):
    return vkattn.Layer.from_safetensors(path, PREFIX, **given)


def refuses(path, sentence, **given):
    with pytest.raises(vkattn.VkattnError, match=sentence):
        load(path, **given)


def write(folder, tensors=LLAMA, config=None, own=None):
    """config and own: text, or what becomes JSON."""
    text = [x if isinstance(x, (str, type(None))) else json.dumps(x) for x in (config, own)]
    if text[0] is not None:
        (folder / "config.json").write_text(text[0])
    metadata = None if text[1] is None else {"config": text[1]}
    return write_safetensors(folder / "model.safetensors", tensors, metadata)


@pytest.mark.parametrize("array", [np.float32(1), np.ones(4, "f4"), np.ones((1,) * 3, "f4")])
@pytest.mark.parametrize("tensors", [LLAMA, TORCH, GPT2, PHI3], ids=["llama", "torch", "gpt2", "phi3"])
def test_axes(tmp_path, tensors, array):
    write(tmp_path, config=CONFIG)
    for name, good in tensors.items():
        if array.ndim == good.ndim:
            continue
        path = write(tmp_path, {**tensors, name: array})
        refuses(path, f"{name}: expected .* ax[ei]s", n_head=2)


@pytest.mark.parametrize("shape", [[1] * 101, [0, 2**70], [2**70], [4, 0], [1] * 100000], ids=short)
def test_shapes(tmp_path, shape):
    header = {name: {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} for name in LLAMA}
    count = 4 * int(np.prod(np.array(shape, object)))
    header["a.q_proj.weight"].update(shape=shape, data_offsets=[0, count])
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    refuses(path, r"tensor .a\.\w_proj.weight", n_head=2, rope=False)


@pytest.mark.parametrize(
    "text", [DEEP, NEARLY_DEEP, '{"a": ' * 100000, "\ufeff{}", "9" * 5000], ids=short
)
def test_json(tmp_path, text):
    refuses(write(tmp_path, config=text), "config.json")
    os.unlink(tmp_path / "config.json")
    path = write(tmp_path, own=text)
    refuses(path, "model.safetensors: config")
    os.unlink(path)  # which would come before an index
    (tmp_path / "model.safetensors.index.json").write_text(text)
    refuses(tmp_path, "index.json")


ODD = ["NaN", "Infinity", "-Infinity", "1e999", "-1", "0", '"4"', "true", "[]", "{}", NEARLY_DEEP]
HUGE = str(10**400)


@pytest.mark.parametrize("value", [*ODD, HUGE, "2.0", "1e300"], ids=short)
@pytest.mark.parametrize("key", ["num_attention_heads", "num_key_value_heads"])
def test_heads(tmp_path, key, value):
    config = json.dumps({**CONFIG, key: "here"}).replace('"here"', value)
    refuses(write(tmp_path, config=config), f"config.json: {key}: expected a whole number")


@pytest.mark.parametrize("value", [*ODD, HUGE, "1e39", "1e-50"], ids=short)
@pytest.mark.parametrize("key", ["rope_theta", "partial_rotary_factor"])
@pytest.mark.parametrize("inside", [False, True])
def test_rope_numbers(tmp_path, key, value, inside):
    if key == "partial_rotary_factor" and value == "true":
        value = "0.1"  # of 2 features: less than a pair
    here = {"rope_parameters": {key: "here"}} if inside else {key: "here"}
    config = json.dumps({**CONFIG, **here}).replace('"here"', value)
    refuses(write(tmp_path, config=config), f"config.json: ({key}: expected a|rotary embedding of)")


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(
    "value",
    [
        '{"rope_type": "llama3", "factor": 8.0}',
        '{"type": "dynamic", "factor": 2.0}',
        '{"type": "linear", "factor": 0.0}',
        '{"rope_type": "default", "type": "yarn"}',
        '{"factor": 2.0}',
        '{"full_attention": {"rope_type": "default", "rope_theta": 1e4}}',
        '{"rope_type": "default", "full_attention": {"rope_theta": 1e4}}',
        '{"rope_type": %s}' % NEARLY_DEEP,
        '{"rope_type": ["default"]}',
        '"linear"',
        "2.0",
        "true",
    ],
    ids=short,
)
def test_scaled_rope(device, tmp_path, key, value):
    """Not computed unscaled: neither as config.json says nor with what is given."""
    config = json.dumps({**CONFIG, key: "here"}).replace('"here"', value)
    path = write(tmp_path, config=config)
    inside = json.dumps({**CONFIG, "text_config": {key: "here"}}).replace('"here"', value)
    for text in (config, inside):
        (tmp_path / "config.json").write_text(text)
        for given in ({}, {"rope": True}, {"rope": vkattn.Rope(2)}):
            refuses(path, "config.json: .*(rotary embedding|expected an object)", **given)
        load(path, rope=False, device=device).close()


def test_plain_rope(device, tmp_path):
    """Both names of an object that says nothing but the default."""
    for found in (
        {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500}},
        {"rope_scaling": {"type": "default"}, "rope_theta": 500},
        {"rope_scaling": {"type": "default", "mrope_section": [1]}, "rope_theta": 500},
        {"rope_parameters": {"rope_theta": 500, "rope_type": None}, "rope_scaling": {}},
    ):
        path = write(tmp_path, config={**CONFIG, **found})
        assert load(path, device=device).options["rope"] == vkattn.Rope(2, 500.0)
        given = load(path, rope=vkattn.Rope(2, 7.0), device=device)
        assert given.options["rope"] == vkattn.Rope(2, 7.0)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": ["bsd"]},
        {"layout": "bhsd"},
        {"num_heads": 2.0},
        {"num_kv_heads": None},
        {"scale": 0},
        {"scale": 10**400},
        {"softcap": -1},
        {"softcap": float("nan")},
        {"causal": "yes"},
        {"causal": 1},
        {"window": 3},
        {"window": [1, 2**31]},
        {"window": [1, -2]},
        {"window": [1, 2, 3]},
        {"window": [1.0, 2]},
        {"masked_row": {}},
        {"masked_row": "none"},
        {"qkv_heads": "mixed"},
        {"rope": 4},
        {"rope": {"dim": 3}},
        {"rope": {"dim": float("inf")}},
        {"rope": {"dim": "2"}},
        {"rope": {"base": 100}},
        {"rope": {"dim": 2, "base": float("nan")}},
        {"rope": {"dim": 2, "base": -1}},
        {"rope": {"dim": 2, "interleaved": "no"}},
        {"rope": {"dim": 2, "factor": 2}},
        {"rotary": 1},
    ],
    ids=short,
)
def test_own_config(tmp_path, change):
    """As `vkattn run` refuses the same file."""
    path = write(tmp_path, own={**OWN, **change})
    refuses(path, f"model.safetensors: config: '?{min(change)}'?[: ]")


def test_own_config_without_rope(tmp_path):
    refuses(write(tmp_path, own={"num_heads": 2}), "rope: expected a Rope", rope=True)


def test_own_config_once(tmp_path):
    refuses(write(tmp_path, own='{"num_heads": 2, "num_heads": 4}'), "a name occurs twice")


@pytest.mark.parametrize(
    "file",
    [".", "..", "", "/", "a/b", "a\0b", "\ud800", "x" * 300, 4, None, ["model.safetensors"], {}],
    ids=short,
)
def test_index(tmp_path, file):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for name in LLAMA}}))
    refuses(tmp_path, "index.json|cannot open: |not a regular file", n_head=2, rope=False)


@pytest.mark.parametrize("map_", ["[]", "3", '"weight_map"', "null"])
def test_index_without_a_map(tmp_path, map_):
    index = tmp_path / "model.safetensors.index.json"
    for text in (map_, f'{{"weight_map": {map_}}}'):
        index.write_text(text)
        refuses(index, "index.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes(tmp_path):
    """Nobody writes into them: they are not waited for."""
    path = write(tmp_path, config=CONFIG)
    os.unlink(tmp_path / "config.json")
    for name in ("config.json", "x.safetensors", "x.json"):
        os.mkfifo(tmp_path / name)
        refused = path if name == "config.json" else tmp_path / name
        refuses(refused, f"{name}: (cannot be read|not a regular file)")


def test_arguments(tmp_path):
    path = write(tmp_path, config=CONFIG)
    for given in ({"n_head": 0}, {"n_head": -2}, {"n_kv_head": 0}):
        refuses(path, f"{min(given)}: expected a whole number", **given)
    for given in ({"n_head": 2.0}, {"n_head": "2"}, {"rope": 4}, {"rope": "yes"}):
        with pytest.raises((TypeError, vkattn.InvalidError)):
            load(path, **given)
    with pytest.raises(TypeError, match="prefix: expected a str"):
        vkattn.Layer.from_safetensors(path, None)


# ---- Random ones --------------------------------------------------------------------------------


class Breaker:
    """Draws a checkpoint and breaks it in one to three places."""

    STRANGE = [
        *(
            None,
            True,
            False,
            0,
            -1,
            1,
            2,
            3,
            5,
            2**31,
            2**32,
            2**64,
            10**400,
            0.5,
            2.0,
            1e39,
            1e-50,
        ),
        *(float("nan"), float("inf"), -float("inf"), "", ".", "..", "\0", "\ud800", "x" * 400),
        *("F32", "I64", "bsd", "default", "linear", [], {}, [0], [4, 4], [1] * 101, [[]], {"": {}}),
        json.loads("[" * 200 + "]" * 200),
    ]
    FAMILIES = (LLAMA, LLAMA, TORCH, GPT2)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def one_of(self, values):
        return values[int(self.rng.integers(len(values)))]

    def strange(self):
        return json.loads(json.dumps(self.one_of(self.STRANGE)))

    def places(self, node, found):
        """(container, key) of all that stands in a tree."""
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], (dict, list)):
                self.places(node[key], found)
        return found

    def change(self, tree):
        places = self.places(tree, [])
        if not places:
            return
        node, key = self.one_of(places)
        kind = self.rng.integers(4)
        if kind == 0 and isinstance(node, dict):
            node[str(self.strange())[:500]] = node.pop(key)
        elif kind == 1:
            del node[key]
        elif kind == 2:
            node[key] = json.loads(json.dumps(self.one_of(places)[0]))
        else:
            node[key] = self.strange()

    def garble(self, data):
        """Bytes changed, cut out or put in."""
        data = bytearray(data)
        for _ in range(self.rng.integers(1, 4)):
            at = int(self.rng.integers(len(data) + 1))
            length = int(self.rng.integers(0, 9))
            data[at : at + length] = self.rng.bytes(int(self.rng.integers(0, 9)))
        return bytes(data)

    def write(self, folder):
        """Returns the path to load."""
        for old in folder.iterdir():  # to write over a file may wait for the disk
            old.unlink()
        tensors = self.one_of(self.FAMILIES)
        path = write_safetensors(folder / "model.safetensors", tensors)
        length = struct.unpack("<Q", path.read_bytes()[:8])[0]
        header, data = path.read_bytes()[8 : 8 + length], path.read_bytes()[8 + length :]
        config = {**CONFIG, "rope_scaling": {"type": "default"}, "sliding_window": None}
        trees = {
            "header": json.loads(header),
            "config": config,
            "index": {"weight_map": {name: path.name for name in tensors}},
        }
        own = {**OWN, "window": [1, 0], "softcap": 2.0, "layout": "bsd", "causal": True}
        kind = self.one_of(("header", "config", "index", "own", "bytes", "config bytes"))
        for _ in range(self.rng.integers(1, 4)):
            self.change(own if kind == "own" else trees.get(kind, {}))
        if kind == "own":
            trees["header"]["__metadata__"] = {"config": json.dumps(own)}
        text = json.dumps(trees["header"]).encode()
        whole = struct.pack("<Q", len(text)) + text + data
        path.write_bytes(self.garble(whole) if kind == "bytes" else whole)
        beside = json.dumps(trees["config"]).encode()
        beside = self.garble(beside) if kind == "config bytes" else beside
        (folder / "config.json").write_bytes(beside)
        index = json.dumps(trees["index"])
        if kind == "index":  # a file of that name would come before it
            path.rename(folder / "part.safetensors")
            index = index.replace(path.name, "part.safetensors")
        (folder / "model.safetensors.index.json").write_text(index)
        return folder if kind == "index" else path


def test_random_checkpoints(device, tmp_path, request):
    count, seed = (request.config.getoption(name) for name in ("--checkpoints", "--seed"))
    x = device.tensor(np.ones((1, 2, 4), np.float32))
    y = device.empty((1, 2, 4))
    loaded = 0
    for i in range(seed, seed + count):
        path = Breaker(i).write(tmp_path)
        try:
            with load(path, device=device) as layer, vkattn.Plan(device) as plan:
                plan.layer(layer, x, y)
            loaded += 1
        except vkattn.VkattnError as error:
            assert len(str(error)) > 20, f"--seed {i} --checkpoints 1"
        except Exception as error:
            raise AssertionError(f"--seed {i} --checkpoints 1") from error
    print(f"{loaded} of {count} could be loaded")
    assert count < 100 or count / 50 < loaded < count * 49 / 50


def test_unknown_types_of_others(device, rng, tmp_path):
    """One tensor of a type that is not known, and keys that the format does not have, keep none of the others."""
    path, eye = tmp_path / "model.safetensors", np.eye(4, dtype=np.float32)
    header = {"other": {"dtype": "F4\n", "shape": [8], "data_offsets": [0, 4]}}
    for i, name in enumerate("qkvo"):
        offsets = [4 + 64 * i, 68 + 64 * i]
        header[f"a.{name}_proj.weight"] = entry(data_offsets=offsets, note={"by": [1, None]})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4) + eye.tobytes() * 4)
    x = rng.standard_normal((1, 3, 4), np.float32)
    layer = vkattn.Layer.from_safetensors(path, "a.", n_head=1, rope=False, device=device)
    same = vkattn.Layer(n_head=1, query=eye, key=eye, value=eye, output=eye, device=device)
    np.testing.assert_array_equal(layer(x), same(x))
    file = SafetensorsFile(path)
    assert file.kind("other") == "F4\n" and file.shape("other") == (8,)
    for read in file.array, file.packed:
        with pytest.raises(vkattn.UnsupportedError, match=r"model.safetensors: other: dtype 'F4\\n' is not"):
            read("other")
