"""Random calls with random arguments, closed objects among them: each one works or raises."""

import numpy as np
import pytest

import vkattn

# What a call may raise. Anything else, and above all the end of the process, is a failure.
EXPECTED = (vkattn.VkattnError, TypeError, ValueError)
STEPS = 400


class Walk:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.devices = [vkattn.Device(), vkattn.Device()]
        self.things = []
        self.worked = self.raised = 0

    def pick(self, kind=None):
        """Mostly something of that kind, at times anything."""
        fitting = [x for x in self.things if kind is None or isinstance(x, kind)]
        if fitting and self.rng.random() < 0.9:
            return fitting[self.rng.integers(len(fitting))]
        odd = [None, 0, -1, 2**40, 1.5, "f32", float("nan"), self.devices[0], (1, 2), [], {}]
        odd += self.things
        return odd[self.rng.integers(len(odd))]

    def number(self):
        return int(self.rng.choice([0, 1, 2, 3, 4, 5, 8, -1, 2**32, 2**63]))

    def shape(self):
        usual = [(1, 2, 3, 4), (1, 2, 1, 4), (2, 8), (8, 8), (1, 3, 8), (3,)]
        if self.rng.random() < 0.8:
            return usual[self.rng.integers(len(usual))]
        return tuple(self.number() for _ in range(self.rng.integers(6)))

    def array(self, dtype=np.float32):
        return np.ones([min(abs(n), 8) for n in self.shape()], dtype)

    def options(self):
        given = {
            "causal": True,
            "mask": self.pick(vkattn.Tensor),
            "kv_length": [2],
            "window": (self.number(), 1),
            "softcap": 2.0,
            "scores": "softmax",
            "rope": vkattn.Rope(self.number() % 2**31),
            "cache": self.pick(vkattn.Cache),
        }
        names = self.rng.permutation(list(given))[: self.rng.integers(3)]
        return {str(name): given[name] for name in names}

    def call(self):
        rng, d = self.rng, self.devices[int(self.rng.random() < 0.1)]
        t = lambda: self.pick(vkattn.Tensor)  # noqa: E731
        plan, cache = self.pick(vkattn.Plan), self.pick(vkattn.Cache)
        matrix = lambda: np.ones((8, int(rng.choice([8, 8, 8, 4]))), np.float32)  # noqa: E731
        calls = [
            lambda: d.tensor(self.array(rng.choice([np.float32, np.float16]))),
            lambda: d.empty(self.shape(), str(rng.choice(["f32", "bf16", "i32", "bool"]))),
            lambda: t().reshape(*self.shape()),
            lambda: t().permute(*rng.permutation(4).tolist()),
            lambda: t().slice(self.number(), self.number(), self.number()),
            lambda: t().strided(self.number(), self.shape(), self.shape()),
            lambda: t().write(self.array()),
            lambda: t().read(),
            lambda: vkattn.Plan(d, workspace_limit=self.number()),
            lambda: plan.attention(t(), t(), t(), t(), **self.options()),
            lambda: plan.layer(self.pick(vkattn.Layer), t(), t(), **self.options()),
            lambda: plan.linear(t(), t(), t(), bias=self.pick()),
            lambda: plan.norm(t(), t(), axes=self.number(), weight=self.pick(), sum=self.pick()),
            lambda: plan.activation(t(), t(), "silu", multiplier=self.pick()),
            lambda: plan.add(t(), t(), t()),
            lambda: plan.gather(t(), t(), t()),
            lambda: plan.scatter(t(), t(), axis=self.number(), positions=self.pick()),
            lambda: plan.rotary(t(), t(), positions=self.pick(), dim=self.number()),
            lambda: plan.argmax(t(), t()),
            lambda: plan.sample(t(), t(), top_k=self.number(), step=self.pick()),
            lambda: plan.pool(t(), t(), mask=self.pick(), lengths=self.pick()),
            lambda: plan.conv1d(t(), t(), t(), bias=self.pick(), stride=self.number()),
            lambda: plan.merge([t(), t()], [t(), t()], t(), log_sum_exp=self.pick()),
            lambda: plan.finish(),
            lambda: plan.run(float(rng.choice([30, 30, -1]))),
            lambda: plan.wait(self.number(), 30),
            lambda: plan.describe() and plan.passes(),
            lambda: vkattn.Cache(d, batch=1, n_kv_head=2, head_dim=4, capacity=self.number() % 64),
            lambda: cache.truncate(self.number(), self.number()),
            lambda: cache.set_pages(0, self.number(), [self.number()]),
            lambda: cache.length(self.number()),
            lambda: vkattn.Layer(d, n_head=2, query=matrix(), key=matrix(), value=matrix()),
            lambda: self.pick(vkattn.Layer)(self.array(), **self.options()),
            lambda: self.pick().close() if rng.random() < 0.3 else None,
        ]
        return calls[rng.integers(len(calls))]()

    def step(self):
        try:
            made = self.call()
            self.worked += 1
        except EXPECTED:
            self.raised += 1
        except AttributeError as error:  # of what pick() gave that is no object of the package
            assert "vkattn" not in str(error)
            self.raised += 1
        else:
            if isinstance(made, (vkattn.Tensor, vkattn.Plan, vkattn.Cache, vkattn.Layer)):
                self.things.append(made)
        if len(self.things) > 40:
            del self.things[int(self.rng.integers(len(self.things)))]
        for i, device in enumerate(self.devices):
            if device.closed:
                self.devices[i] = vkattn.Device()


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(device, seed):
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    assert walk.worked > STEPS / 10 and walk.raised > STEPS / 10
    x = np.ones((1, 1, 3, 4), np.float32)
    np.testing.assert_array_equal(vkattn.attention(x, x, x, device=walk.devices[0]), x)
