"""Random calls with random arguments, closed objects among them: each one works or raises.

Every public method of the classes below is called, its arguments drawn by their annotations; so a new
operation, or a new option of one, is called without a line here.
"""

import collections
import inspect
import typing

import numpy as np
import pytest

import vkattn

# What a call may raise. Anything else, and above all the end of the process, is a failure.
EXPECTED = (vkattn.VkattnError, TypeError, ValueError)

CLASSES = (vkattn.Device, vkattn.Tensor, vkattn.Plan, vkattn.Cache, vkattn.Layer)
# Those that read files and modules of PyTorch, and the test of each kernel, which takes minutes.
UNCALLED = {"from_safetensors", "from_torch", "self_test"}
METHODS = [
    (kind, name)
    for kind in CLASSES
    for name in dir(kind)
    if callable(getattr(kind, name)) and name not in UNCALLED
    if not name.startswith("_") or (name == "__call__" and kind is vkattn.Layer)
]
OPTIONS = typing.get_type_hints(vkattn.AttentionOptions).keys()
# What a word may be: of a parameter, or of the kind of an operation.
TYPES = ["f32", "f32", "f16", "bf16", "i32", "bool", "i8", "q8_0", "no type"]
WORDS = {
    "activation": ["identity", "silu", "gelu", "nothing"],
    "activations": ["f32", "i8", "none"],
    "dtype": TYPES,
    "layout": ["bsd", "sbd", "dsb"],
    "masked_row": ["zero", "uniform", "nan", "one"],
    "path": ["auto", "fused", "unfused", "none"],
    "scores": ["raw", "softcap", "bias", "softmax", "none"],
    "norm": ["rms", "layer", "silu"],
    "norm_backward": ["rms", "layer", "silu"],
    "activation_backward": ["identity", "silu", "gelu", "nothing"],
    "optimiser": ["sgd", "adamw", "rms"],
}
ANY_WORD = sorted({word for words in WORDS.values() for word in words})


class Walk:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.devices = [vkattn.Device(skip_self_test=True) for _ in range(2)]
        self.things = []
        self.last = None  # the shape of the tensor that was picked
        self.worked, self.raised = collections.Counter(), collections.Counter()
        none = [None] * 2
        tensor = [lambda: self.pick(vkattn.Tensor)]
        both = [lambda: (self.pick(vkattn.Tensor), self.pick(vkattn.Tensor))]
        self.values = {
            "None": none,
            "Tensor": tensor,
            "Accumulate": [lambda: vkattn.Accumulate(self.pick(vkattn.Tensor))],
            "Gradient": tensor + none,
            "LinearGradients": tensor + both + none,
            "Linear": [self.matrix, lambda: (self.matrix(), np.ones(8, np.float32))],
            "Cache": [lambda: self.pick(vkattn.Cache)],
            "Layer": [lambda: self.pick(vkattn.Layer)],
            "Device": [lambda: self.devices[0]],
            "Array": [self.array],
            "np.ndarray": [self.array],
            "Shape": [self.shape],
            "int": [self.number],
            "float": [self.real],
            "bool": [lambda: bool(self.rng.random() < 0.5)],
            "Any": [self.pick],
            "Rope": [lambda: vkattn.Rope(self.number() % 2**31)],
            "Sequence[Tensor]": [lambda: list(both[0]())],
            "Sequence[int]": [self.shape],
            "Sequence[float]": [lambda: [self.real() for _ in self.shape()]],
            "Sequence[Parameter]": [lambda: [vkattn.Parameter(*both[0]())]],
            "tuple[Tensor, Tensor]": both,
            "tuple[Array, Array]": [lambda: (self.array(), self.array())],
            "tuple[int, int]": [lambda: (self.number(), self.number())],
            "tuple[float, float]": [lambda: (self.real(), self.real())],
        }

    def choice(self, of):
        return of[self.rng.integers(len(of))]

    def pick(self, kind=None):
        """Mostly something of that kind, at times anything."""
        fitting = [x for x in self.things if kind is None or isinstance(x, kind)]
        if fitting and self.rng.random() < 0.95:
            usual = [x for x in fitting if not x.closed and x.device is self.devices[0]]
            alike = [x for x in usual if kind is vkattn.Tensor and x.shape == self.last]
            chosen = [fitting, usual, usual, usual, alike, alike, alike, alike]
            thing = self.choice(self.choice([one for one in chosen if one]))
            self.last = thing.shape if isinstance(thing, vkattn.Tensor) else self.last
            return thing
        odd = [None, 0, -1, 2**40, 1.5, "f32", float("nan"), self.devices[0], (1, 2), [], {}]
        return self.choice(odd + self.things)

    def number(self):
        return int(self.rng.choice([0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 8, -1, 2**32, 2**63]))

    def real(self):
        return float(self.rng.choice([0, 0.5, 0.5, 1, 1, 1e-5, -1, 1e300, np.inf, np.nan]))

    def shape(self):
        usual = [(1, 2, 3, 4), (1, 2, 1, 4), (2, 8), (8, 8), (1, 3, 8), (2,), (1,)]
        if self.rng.random() < 0.9:
            return self.choice(usual)
        return tuple(self.number() for _ in range(self.rng.integers(6)))

    def array(self):
        shape = [min(abs(n), 8) for n in self.shape()]
        floats = [np.float32, np.float32, np.float32, np.float16]
        return np.ones(shape, self.choice(floats if len(shape) > 1 else [np.float32, np.int32]))

    def matrix(self):
        return np.ones((8, int(self.rng.choice([8, 8, 8, 4]))), np.float32)

    def draw(self, parameter, annotation):
        """A value of one of the types that it names; of a type without a row above, a word."""
        name = self.choice(annotation.split(" | "))
        words = WORDS.get(parameter, ANY_WORD)
        made = self.choice(self.values.get(name, words))
        return made() if callable(made) else made

    def option(self, name):
        """Draws an option of attention, whose annotations hold aliases."""
        fixed = {"window": "tuple[int, int]", "rope": "Rope", "masked_row": "str"}
        hint = str(vkattn.AttentionOptions.__annotations__[name])
        hint = "Tensor | Array" if "Array" in hint else hint.split("'")[1]
        return self.draw(name, fixed.get(name, hint))

    def arguments(self, name, method):
        """All that have no default, and some of the others."""
        given, named = [], {}
        for p in list(inspect.signature(method).parameters.values()):
            if p.name == "self":
                continue
            if p.kind == p.VAR_KEYWORD:
                chosen = self.rng.permutation(list(OPTIONS))[: self.rng.integers(3)]
                named |= {str(name): self.option(name) for name in chosen}
            elif p.kind == p.VAR_POSITIONAL:
                given += self.shape() if p.name == "shape" else self.rng.permutation(4).tolist()
            elif p.name in ("timeout", "pipeline_cache", "log"):
                continue  # waits as long as it takes
            elif p.default is p.empty or self.rng.random() < 0.25:
                named[p.name] = self.draw(name if p.name == "kind" else p.name, p.annotation)
        if given:
            given = [*named.values(), *given]
            named = {}
        return given, named

    def call(self):
        """The name of a call, and what it gave or raised."""
        d = self.devices[int(self.rng.random() < 0.1)]
        heads = {"n_kv_head": 2, "head_dim": 4}
        weights = {name: self.matrix() for name in ("query", "key", "value")}
        made = [
            ("tensor", lambda: d.tensor(self.array())),
            ("tensor", lambda: d.tensor(self.array())),
            ("empty", lambda: d.empty(self.shape(), self.choice(TYPES))),
            ("Plan", lambda: vkattn.Plan(d, workspace_limit=self.number())),
            ("Layer", lambda: vkattn.Layer(d, n_head=2, **weights)),
            ("Cache", lambda: vkattn.Cache(d, batch=1, capacity=self.number() % 64, **heads)),
        ]
        if self.rng.random() < 0.25 or len(self.things) < 8:
            return self.choice(made)
        kind, name = self.choice(METHODS)
        if name == "close" and self.rng.random() < 0.8:
            return self.choice(made)
        of = d if kind is vkattn.Device else self.pick(kind)
        given, named = self.arguments(name, getattr(kind, name))
        return f"{kind.__name__}.{name}", lambda: getattr(of, name)(*given, **named)

    def step(self):
        try:
            name, call = self.call()
        except EXPECTED:  # an argument could not be made
            return
        try:
            made = call()
        except EXPECTED:
            self.raised[name] += 1
        except AttributeError as error:  # of what pick() gave that is no object of the package
            assert "vkattn" not in str(error)
            self.raised[name] += 1
        else:
            self.worked[name] += 1
            if isinstance(made, (vkattn.Tensor, vkattn.Plan, vkattn.Cache, vkattn.Layer)):
                self.things.append(made)
        if len(self.things) > 40:
            del self.things[int(self.rng.integers(len(self.things)))]
        closed = [i for i, thing in enumerate(self.things) if thing.closed]
        if len(closed) > 3:
            del self.things[self.choice(closed)]
        for i, device in enumerate(self.devices):
            if device.closed:
                self.devices[i] = vkattn.Device(skip_self_test=True)


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(device, seed, request):
    walk = Walk(seed)
    calls = request.config.getoption("--calls") // 4
    for _ in range(calls):
        walk.step()
    worked, raised = walk.worked.total(), walk.raised.total()
    assert worked > calls / 10 and raised > calls / 10
    x = np.ones((1, 1, 3, 4), np.float32)
    if not device.info.name.startswith("stub "):
        np.testing.assert_array_equal(vkattn.attention(x, x, x, device=walk.devices[0]), x)
    tried = {f"{kind.__name__}.{name}" for kind, name in METHODS}
    if calls >= 4000:
        assert tried == (walk.worked.keys() | walk.raised.keys()) & tried
