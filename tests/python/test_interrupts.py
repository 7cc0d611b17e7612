"""An interrupt at any moment is raised, and leaves the device usable and nothing behind."""

import collections
import concurrent.futures
import dis
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import interrupted
import numpy as np
import pytest

import vkattn
from vkattn import _core
from vkattn._abi import ffi, lib

pytestmark = pytest.mark.usefixtures("device")  # skips where there is none
PACKAGE = os.path.dirname(vkattn.__file__) + os.sep
MAKERS = [
    *(f"vka_{kind}_create" for kind in ("tensor", "layer", "cache", "plan")),
    *(f"vka_tensor_{view}" for view in ("permute", "slice", "reshape", "strided")),
]
# Where handlers begin and end: the interpreter takes no signal, and an error breaks its own state.
UNWINDING = ("COPY", "POP_EXCEPT", "PUSH_EXC_INFO", "RERAISE")


@pytest.fixture
def objects(monkeypatch):
    """The C objects that live, by address."""
    alive = set()

    def counting(make):
        def call(*arguments):
            status = make(*arguments)
            if arguments[-1][0]:
                alive.add(int(ffi.cast("uintptr_t", arguments[-1][0])))
            return status

        return call

    def discounting(destroy):
        def call(box):
            alive.discard(int(ffi.cast("uintptr_t", box[0])))
            return destroy(box)

        return call

    for name in MAKERS:
        monkeypatch.setitem(lib.__dict__, name, counting(getattr(lib, name)))
    for kind in ("tensor", "layer", "cache", "plan"):
        name = f"vka_{kind}_destroy"
        monkeypatch.setitem(lib.__dict__, name, discounting(getattr(lib, name)))
    return alive


class Interrupt(KeyboardInterrupt):
    pass


def interrupt_at(step, work, by_opcode):
    """work(), interrupted at the given step of the package's code. True where there is one."""
    left = step

    def count():
        nonlocal left
        left -= 1
        if left < 0:
            raise Interrupt

    def local(frame, event, _):
        if event == "line" and not by_opcode:
            count()
        if event == "opcode" and dis.opname[frame.f_code.co_code[frame.f_lasti]] not in UNWINDING:
            count()
        return local

    def tracer(frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = by_opcode
        count()
        return local

    previous = sys.gettrace()
    sys.settrace(tracer)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(previous)
    assert left >= 0, "the interrupt was lost"
    return False


@pytest.mark.parametrize("scenario", interrupted.SCENARIOS, ids=lambda f: f.__name__)
def test_every_step(objects, scenario):
    """At every bytecode of the package, or every line of what takes long."""
    by_opcode = scenario not in (interrupted.plan, interrupted.layer, interrupted.attention)
    device = vkattn.Device(log=lambda level, message: None)
    probe = device.tensor(interrupted.ONE)
    scenario(device)
    gc.collect()
    gc.freeze()  # collecting is fast then
    with concurrent.futures.ThreadPoolExecutor(1) as others:
        step = 0
        while interrupt_at(step, lambda: scenario(device), by_opcode):
            others.submit(probe.read).result(timeout=1800)
            if len(objects) > 1:  # in a cycle, of an exception and its traceback say
                gc.collect()
            np.testing.assert_array_equal(probe.read(), interrupted.ONE)
            assert len(objects) == 1 and len(device._core._live) == 1, f"left by step {step}"
            step += 1
    assert step > 100
    gc.unfreeze()
    device.close()
    assert not objects


def test_devices_come_and_go(objects):
    """A device whose making is interrupted is closed by the next call."""
    gc.collect()
    vkattn.devices()
    made = collections.Counter()
    create, destroy = lib.vka_device_create, lib.vka_device_destroy
    lib.__dict__["vka_device_create"] = lambda *a: made.update(["made"]) or create(*a)
    lib.__dict__["vka_device_destroy"] = lambda box: (
        made.update(["destroyed"] if box[0] else []) or destroy(box)
    )

    def come_and_go():
        vkattn.Device().tensor(interrupted.ONE)

    try:
        step = 0
        while interrupt_at(step, come_and_go, by_opcode=False):
            step += 1
        vkattn.devices()
    finally:
        lib.__dict__.update(vka_device_create=create, vka_device_destroy=destroy)
    assert made["made"] == made["destroyed"] > 10 and not objects


def test_cffi_reads_nothing_late(device):
    """A type that cffi reads at its first use stays broken where that is interrupted."""
    known, functions = set(ffi._parsed_types), set(lib.__dict__)
    for scenario in interrupted.SCENARIOS:
        scenario(device)
    vkattn.devices()
    device.kernels()
    device.pipeline_cache()
    assert set(ffi._parsed_types) == known and set(lib.__dict__) == functions


def test_what_log_raises():
    def log(level, message):
        if level == "error":
            raise KeyboardInterrupt(message)

    with vkattn.Device(log=log) as device:
        with pytest.raises(KeyboardInterrupt, match="plan"):
            vkattn.Plan(device).run()
        np.testing.assert_array_equal(device.tensor(interrupted.ONE).read(), interrupted.ONE)


def long_plan(device):
    """A finished plan, its output, and as many runs of it as take two seconds."""
    rows = np.ones((1, 4, 512, 64), np.float32)
    t, output = device.tensor(rows), device.empty(rows.shape)
    plan = vkattn.Plan(device)
    plan.attention(t, t, t, output)
    plan.finish().run()  # compiles
    began = time.monotonic()
    plan.run()
    return plan, output, rows, max(8, min(2000, int(2 / (time.monotonic() - began))))


def interrupt_during(work):
    """work(), during which Ctrl-C is pressed; it must not come to its end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    press = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    press.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
            pytest.fail("the wait was over before the interrupt was raised")
    finally:
        press.join()


def test_ctrl_c_ends_a_wait():
    """While the work goes on: it can be waited for again, and nothing of the wait is logged."""
    messages = []
    with vkattn.Device(log=lambda *message: messages.append(message)) as device:
        plan, output, rows, runs = long_plan(device)
        messages.clear()
        first = plan.submit()
        for _ in range(runs):
            last = plan.submit()
        interrupt_during(lambda: plan.wait(last, 3600))
        with pytest.raises(vkattn.WaitTimeout):
            plan.wait(last, 0)  # in flight: the wait ended before the work
        assert not messages
        plan.wait(first, 3600)
        plan.wait(last, 3600)
        np.testing.assert_allclose(output.read(), rows, rtol=1e-6)
        plan.run(3600)
        np.testing.assert_allclose(output.read(), rows, rtol=1e-6)


def test_ctrl_c_ends_a_run(device):
    """And what the run used can be closed at once, while the device is at work on it."""
    plan, output, rows, runs = long_plan(device)
    for _ in range(runs):
        last = plan.submit()
    interrupt_during(lambda: plan.run(3600))
    with pytest.raises(vkattn.WaitTimeout):
        plan.wait(last, 0)  # the run has not even begun
    plan.close()
    output.close()
    vkattn.attention(interrupted.ONE, interrupted.ONE, interrupted.ONE, device=device)


def attention_plan(device, width, path="unfused", dtype=np.float32):
    t = device.tensor(np.ones((1, 1, 3, width), dtype))
    output = device.empty((1, 1, 3, width))
    plan = vkattn.Plan(device, path=path)
    plan.attention(t, t, t, output)
    return plan, output


def test_ctrl_c_ends_a_compilation():
    """A CPU driver takes a second to compile fused attention; finishing again goes on. What is
    compiled within the first slice of 100 ms comes too late to be interrupted."""
    work = """
import os, signal, sys, threading
import numpy as np
import test_interrupts, vkattn

messages = []
device = vkattn.Device(log=lambda *message: messages.append(message))
if device.info.type != "cpu":
    sys.exit(77)
for width in range(64, 0, -8):  # some compile again
    plan, output = test_interrupts.attention_plan(device, width, "fused", np.float16)
    press = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
    press.start()
    try:
        try:
            plan.finish()
        finally:
            press.join()
    except KeyboardInterrupt:
        pass
    try:
        plan.run()
    except vkattn.InvalidError:
        break  # it is not finished
else:
    sys.exit("no compilation was interrupted")
plan.finish().run()
assert (output.read() == 1).all()
assert not [m for m in messages if m[1].startswith("Plan.finish")], messages
plan, _ = test_interrupts.attention_plan(device, 131, "fused")
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
try:
    plan.finish()
except ZeroDivisionError:
    plan.close()  # while the driver compiles
device.close()
"""
    environment = {**os.environ, "MESA_SHADER_CACHE_DISABLE": "true", "GALLIVM_PERF": "nopt"}
    done = subprocess.run(
        [sys.executable, "-c", work], env=environment, capture_output=True, text=True, timeout=3600
    )
    if done.returncode == 77:
        pytest.skip("not a CPU driver")
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("call", ["vka_plan_finish", "vka_device_recover"])
def test_compiling_in_slices(monkeypatch, call):
    """C waits a slice at a time, and what a slice says is logged where it was the last."""
    messages = []
    with vkattn.Device(log=lambda *message: messages.append(message)) as device:
        plan, output = attention_plan(device, 4)
        left, now = 5, [0]

        def wait(_):
            nonlocal left
            left -= 1
            now[0] += _core.SLICE
            device._core._log.callback(ffi.NULL, 0, text)
            return int(lib.VKA_TIMEOUT) if left else 0

        text = ffi.new("char[]", b"it compiles")
        waits = {"vka_plan_finish": plan.finish, "vka_device_recover": device.recover}[call]
        with monkeypatch.context() as patch:
            patch.setattr(_core.time, "monotonic_ns", lambda: now[0])
            patch.setitem(lib.__dict__, call, wait)
            messages.clear()
            waits()
            assert left == 0 and messages == [("error", "it compiles")]  # of the last, which ended
            left = -1
            messages.clear()
            began = now[0]
            with pytest.raises(vkattn.WaitTimeout):
                waits()
            assert now[0] - began == 600_000_000_000 and messages == [("error", "it compiles")]
        plan.finish().run()
        np.testing.assert_array_equal(output.read(), 1)


@pytest.mark.parametrize("timeout", [0.0, 0.01, 0.35])
def test_a_wait_in_slices(monkeypatch, timeout):
    """Lasts as long as it is told to, and logs one sentence in the end."""
    messages = []
    with vkattn.Device(log=lambda *message: messages.append(message)) as device:
        t = device.tensor(interrupted.ONE)
        plan = vkattn.Plan(device)
        plan.attention(t, t, t, device.empty(interrupted.ONE.shape))
        ticket = plan.finish().submit()
        plan.wait(ticket)
        slices, now = [], [0]

        def wait(_plan, _ticket, nanoseconds):
            """Runs out, as the library does."""
            slices.append(nanoseconds)
            now[0] += nanoseconds
            if nanoseconds:
                device._core._log.callback(ffi.NULL, 0, text)
            return int(lib.VKA_TIMEOUT)

        text = ffi.new("char[]", b"timed out")
        messages.clear()
        monkeypatch.setattr(_core.time, "monotonic_ns", lambda: now[0])
        monkeypatch.setitem(lib.__dict__, "vka_plan_wait", wait)
        with pytest.raises(vkattn.WaitTimeout, match=f"{timeout:.3g} s" if timeout else None):
            plan.wait(ticket, timeout)
        monkeypatch.undo()
        assert sum(slices) == int(timeout * 1e9) and max(slices) <= _core.SLICE
        assert messages == ([("error", "timed out")] if timeout else [])
        plan.run()


def test_a_loss_during_a_slice_is_logged(monkeypatch):
    """What a slice logs is passed on, unless it only ran out."""
    messages = []
    with vkattn.Device(log=lambda *message: messages.append(message)) as other:
        t = other.tensor(interrupted.ONE)
        plan = vkattn.Plan(other)
        plan.attention(t, t, t, other.empty(interrupted.ONE.shape))
        ticket = plan.finish().submit()
        plan.wait(ticket)
        text = [ffi.new("char[]", sentence) for sentence in (b"first", b"second")]

        def wait(_plan, _ticket, _nanoseconds):
            for sentence in text:
                other._core._log.callback(ffi.NULL, 0, sentence)
            return int(lib.VKA_DEVICE_LOST)

        messages.clear()
        with monkeypatch.context() as patch:
            patch.setitem(lib.__dict__, "vka_plan_wait", wait)
            with pytest.raises(vkattn.DeviceLostError):
                plan.wait(ticket, 60)
        assert messages == [("error", "first"), ("error", "second")]


def test_random_moments(request):
    count, seed = request.config.getoption("--interrupts"), request.config.getoption("--seed")
    program = Path(__file__).with_name("interrupted.py")
    command = [sys.executable, program, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
