"""Calls to interrupt, and the program that interrupts them at random moments:

    python interrupted.py COUNT SEED

Prints what went wrong; exits 0 where nothing did.
"""

import gc
import random
import signal
import sys
import threading

import numpy as np

import vkattn

ONE = np.ones((1, 1, 3, 4), np.float32)
WEIGHT = np.ones((4, 4), np.float32)


def tensors(device):
    t = device.tensor(ONE)
    view = t.reshape(3, 4).permute(1, 0)
    view.slice(0, 1, 2).read()
    t.write(ONE)
    t.close()


def kept_in_a_cycle(device):
    parts = [device.tensor(ONE)]
    parts.append(parts)


def cache(device):
    with vkattn.Cache(device, batch=1, n_kv_head=1, head_dim=4, capacity=8) as made:
        made.truncate()
        made.length()


def refused(device):
    """Logs an error from within C."""
    try:
        vkattn.Plan(device).run()
    except vkattn.InvalidError:
        pass


def plan(device):
    t = device.tensor(ONE)
    with vkattn.Plan(device) as made:
        made.attention(t, t, t, device.empty(ONE.shape), causal=True, kv_length=[3])
        made.finish().run()
        made.passes()
        made.describe()


def layer(device):
    made = vkattn.Layer(device, n_head=1, query=WEIGHT, key=WEIGHT, value=(WEIGHT, WEIGHT[0]))
    made(ONE[0], scores="softmax")


def attention(device):
    vkattn.attention(ONE, ONE, ONE, window=(1, 1), device=device)


SCENARIOS = (tensors, kept_in_a_cycle, cache, refused, plan, layer, attention)


class Bystanders:
    """Threads that use the device all the while."""

    def __init__(self, tensor, count=2):
        self.tensor = tensor
        self.wrong = []
        self.rounds = [0] * count
        self.stop = False
        self.threads = [
            threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def work(self, i):
        while not self.stop:
            try:
                if not np.array_equal(self.tensor.read(), ONE):
                    self.wrong.append("a bystander reads wrong values")
            except BaseException as error:
                self.wrong.append(f"a bystander's call raises {error!r}")
                return
            self.rounds[i] += 1
            self.pause.wait(0.0005)

    pause = threading.Event()  # never set

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join(1800)
        if any(thread.is_alive() for thread in self.threads):
            self.wrong.append("a bystander waits for ever")
        return self.wrong


def interrupt_all(device, bystanders, count, rng):
    """Interrupts calls at `count` random moments. Returns how many of them were raised."""
    handled = raised = 0

    def handler(*_):
        nonlocal handled
        handled += 1
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handler)

    def work(before):
        signal.setitimer(signal.ITIMER_REAL, 10 ** rng.uniform(-5, -2))
        while handled == before:
            rng.choice(SCENARIOS)(device)

    for i in range(count):
        try:
            work(i)
        except KeyboardInterrupt:
            raised += 1
        bystanders.tensor.read()
    return raised


def main(count, seed):
    sys.setswitchinterval(1e-4)
    vkattn._core.SLICE = 20_000  # so that waits have several
    device = vkattn.Device(log=lambda level, message: None)
    for scenario in SCENARIOS:  # compiles
        scenario(device)
    bystanders = Bystanders(device.tensor(ONE))
    raised = interrupt_all(device, bystanders, count, random.Random(seed))
    before = list(bystanders.rounds)
    pause = threading.Event()
    for _ in range(18000):  # half an hour
        if all(now > then for now, then in zip(bystanders.rounds, before)):
            break
        pause.wait(0.1)
    else:
        print("the bystanders do not get on")
    wrong = bystanders.end()
    if raised != count:
        wrong.append(f"{count - raised} of {count} interrupts were lost")
    gc.collect()
    for scenario in SCENARIOS:
        scenario(device)
    gc.collect()
    bystanders.tensor.read()
    if len(device._core._live) != 1:
        wrong.append(f"{len(device._core._live) - 1} objects are left")
    device.close()
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
