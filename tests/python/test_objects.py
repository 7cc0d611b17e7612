"""Nothing a caller does ends the process: wrong arguments, closed objects, threads."""

import gc
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import vkattn
from vkattn._abi import ffi, lib

ONE = np.ones((1, 1, 3, 4), np.float32)


def own_device():
    return vkattn.Device()


@pytest.mark.parametrize(
    "array, error, sentence",
    [
        (ONE.astype(np.float64), vkattn.InvalidError, "float64 is not .*; convert it by .astype"),
        (ONE.astype(np.int64), vkattn.InvalidError, "q: int64 is not .*; they are f32, f16, bf16, i32, bool"),
        (ONE.astype(np.complex64), vkattn.InvalidError, "q: complex64 is not"),
        (ONE.astype(object), vkattn.InvalidError, "q: object is not"),
        (ONE.astype(np.int32), vkattn.InvalidError, "q: expected f32, f16, bf16, got i32"),
        (ONE.astype(bool), vkattn.InvalidError, "got bool"),
        (ONE.tolist(), TypeError, "q: expected a numpy array"),
        (None, TypeError, "got NoneType"),
        ("text", TypeError, "got str"),
        (ONE[0, 0, 0], vkattn.InvalidError, "q: expected 2 or 3 or 4 axes"),
        (ONE[..., :0], vkattn.InvalidError, "q: expected one or more features"),
        (np.float32(1), vkattn.InvalidError, "1 to 4 axes"),
        (np.ones((1,) * 5, np.float32), vkattn.InvalidError, "1 to 4 axes"),
    ],
)
def test_wrong_arrays(device, array, error, sentence):
    with pytest.raises(error, match=sentence):
        vkattn.attention(array, ONE, ONE, device=device)


@pytest.mark.parametrize(
    "options, error, sentence",
    [
        ({"masked_row": "none"}, vkattn.InvalidError, "masked_row: expected one of zero"),
        ({"path": "fast"}, vkattn.InvalidError, "path: expected one of auto"),
        ({"scores": "all"}, vkattn.InvalidError, "scores: expected one of"),
        ({"dtype": "f64"}, vkattn.InvalidError, "dtype: expected one of f32"),
        ({"window": 3}, vkattn.InvalidError, "window: expected"),
        ({"window": (2**40, 0)}, vkattn.InvalidError, "window: left: expected a whole number"),
        ({"rope": 4}, TypeError, "rope: expected a Rope"),
        ({"kv_length": [1.5]}, vkattn.InvalidError, "kv_length: expected whole numbers"),
        ({"kv_length": [2**40]}, vkattn.InvalidError, "32 bits"),
        ({"kv_length": [1, 2]}, vkattn.InvalidError, "kv_length"),
        ({"mask": np.ones((2, 3), bool)}, vkattn.InvalidError, "mask"),
        ({"sink": np.ones(3, np.float32)}, vkattn.InvalidError, "sink"),
        ({"dropout": 1.0}, vkattn.InvalidError, "dropout"),
        ({"scale": "big"}, TypeError, "scale: expected a number, got str"),
        ({"scale": 10**400}, vkattn.InvalidError, "scale: expected a number that a float holds"),
        ({"scale": 1e300}, vkattn.InvalidError, "scale is inf, not a finite number"),
        ({"dropout": -0.5}, vkattn.InvalidError, "dropout"),
        ({"norm_epsilon": -1e-9}, vkattn.InvalidError, "norm_epsilon"),
        ({"dropout_seed": -1}, vkattn.InvalidError, "dropout_seed: expected a whole number"),
        ({"dropout_seed": 2.5}, vkattn.InvalidError, "dropout_seed: expected a whole number"),
        ({"rope": vkattn.Rope(2.5)}, vkattn.InvalidError, "rope: dim: expected a whole number"),
        ({"rope": vkattn.Rope(2, base=0)}, vkattn.InvalidError, "rope: base"),
        ({"rope": vkattn.Rope(2, attention_factor=0.0)}, vkattn.InvalidError, "attention_factor"),
        ({"rope": vkattn.Rope(2, attention_factor=-1)}, vkattn.InvalidError, "attention_factor"),
        ({"timeout": -1.0}, vkattn.InvalidError, "timeout: expected seconds"),
        ({"timeout": float("nan")}, vkattn.InvalidError, "timeout"),
        ({"casual": True}, TypeError, "unexpected keyword argument 'casual': did you mean causal"),
        ({"is_causal": True}, TypeError, "'is_causal': did you mean causal"),
        ({"zebra": True}, TypeError, "unexpected keyword argument 'zebra'$"),
        ({"device": 1.5}, TypeError, "device: expected a Device"),
        ({"dtype": "float64"}, vkattn.InvalidError, "dtype: .*got 'float64': give float32"),
    ],
)
def test_wrong_options(device, options, error, sentence):
    with pytest.raises(error, match=sentence):
        vkattn.attention(ONE, ONE, ONE, **{"device": device, **options})


def test_sentences_are_the_librarys(device):
    wide = np.ones((1, 1, 3, 5), np.float32)
    with pytest.raises(vkattn.InvalidError, match="^Plan.attention: k is") as info:
        vkattn.attention(ONE, wide, ONE, device=device)
    assert info.value.status == "VKA_INVALID"
    assert isinstance(info.value, (vkattn.VkattnError, ValueError))


def test_no_such_device():
    with pytest.raises(vkattn.NoDeviceError):
        vkattn.Device("no such device")
    for name in ("", "\0abc", "l\0", -1, 2**32, 10**5000):
        with pytest.raises(vkattn.InvalidError, match="device: expected an index"):
            vkattn.Device(name)
    with pytest.raises(vkattn.NoDeviceError):
        vkattn.Device("\ud800")
    for wrong in (1.5, True, b"llvmpipe"):
        with pytest.raises(TypeError, match="device: expected an int"):
            vkattn.Device(wrong)
    with pytest.raises(TypeError, match="log: expected a callable"):
        vkattn.Device(log="log")


def test_devices(device):
    found = vkattn.devices()
    assert device.info in found
    assert [info.index for info in found] == list(range(len(found)))
    assert any(missing is None for missing in device.kernels().values())


def test_tuning_profile(device):
    head = device.tuning_profile_head()
    assert [line.split()[0] for line in head.splitlines()] == ["vkattn-tuning-profile", "device"]
    said = []
    shape, expected = (1, 1, 3, 4), {}
    for profile in (f"{head}path * unfused\n", f"{head}path * fused\n".encode(), "nonsense"):
        with vkattn.Device(
            device.info.index,
            tuning_profile=profile,
            log=lambda level, text: said.append((level, text)),
        ) as tuned:
            assert tuned.tuning_profile_head() == head
            warned = [text for level, text in said if level == "warning"]
            assert bool(warned) == (profile == "nonsense")
            plan, t = vkattn.Plan(tuned), tuned.tensor(ONE)
            plan.attention(t, t, t, tuned.empty(shape))
            expected[str(profile)[-8:]] = [p.name for p in plan.finish().passes()]
    unfused, fused, _ = expected.values()
    assert unfused != fused


def test_self_test(device, request):
    """It compiles every kernel: 15 s of CPU on llvmpipe."""
    if not request.config.getoption("--self-test"):
        pytest.skip("THE SELF-TEST OF ALL KERNELS RUNS WITH --self-test")
    with vkattn.Device(device.info.index, skip_self_test=True) as fresh:
        assert not kernels_tested(fresh)
        fresh.self_test()
        assert kernels_tested(fresh)
        assert fresh.kernels() == device.kernels()
    with pytest.raises(vkattn.ClosedError):
        fresh.self_test()


def kernels_tested(device):
    info, found = ffi.new("struct vka_kernel_info *"), []
    for i in range(lib.vka_kernel_count()):
        assert lib.vka_device_kernel(device._core.box[0], i, info) == 0
        if info.tested:
            found.append(i)
    return found


def test_limits(device):
    info = {"max_allocation": 2**20, "max_buffer_range": 2**17, "max_shared_memory": 4096}
    with vkattn.Device(device.info.index, max_memory=2**21, skip_self_test=True, **info) as small:
        for name, limit in info.items():
            assert getattr(small.info, name) == limit
        with pytest.raises(vkattn.UnsupportedError):
            small.empty((2**20,))
        with pytest.raises(vkattn.OutOfMemoryError):
            tensors = [small.empty((2**17,)) for _ in range(5)]
            assert not tensors
    for name, limit in {"max_shared_memory": 2**32, "max_memory": -1}.items():
        with pytest.raises(vkattn.InvalidError, match=f"{name}: expected a whole number"):
            vkattn.Device(device.info.index, **{name: limit})
    with pytest.raises(vkattn.InvalidError):
        vkattn.Device(device.info.index, max_allocation=4096)


def test_nonfinite(device):
    x = np.ones((1, 1, 3, 4), np.float32)
    v = x.copy()
    v[0, 0, 1, 2:] = np.nan, np.inf
    plan = vkattn.Plan(device, count_nonfinite=True)
    t, values, output = device.tensor(x), device.tensor(v), device.empty(x.shape)
    plan.attention(t, t, values, output)
    plan.finish()
    plan.run()
    assert plan.nonfinite() == [vkattn.Nonfinite("output", 3, 3)]
    values.write(x)
    plan.run()
    assert plan.nonfinite() == [vkattn.Nonfinite("output", 0, 0)]
    plain = vkattn.Plan(device)
    plain.attention(t, t, t, output)
    plain.finish().run()
    assert plain.nonfinite() == []


def test_plan_out_of_order(device):
    plan = vkattn.Plan(device)
    for call in (plan.run, plan.submit, lambda: plan.wait(7)):
        with pytest.raises(vkattn.InvalidError):
            call()
    t = device.tensor(ONE)
    plan.attention(t, t, t, device.empty(ONE.shape))
    plan.finish()
    with pytest.raises(vkattn.InvalidError):
        plan.finish()
    with pytest.raises(vkattn.InvalidError):
        plan.attention(t, t, t, device.empty(ONE.shape))
    with pytest.raises(vkattn.InvalidError):
        plan.wait(10**6)
    with pytest.raises(TypeError, match="q: expected a Tensor, got ndarray"):
        vkattn.Plan(device).attention(ONE, t, t, t)
    with pytest.raises(TypeError, match="layer: expected a Layer, got Plan"):
        vkattn.Plan(device).layer(plan, t, t)


def test_wrong_tensors(device):
    t = device.tensor(ONE)
    for array in (ONE[0], ONE.astype(np.float16), ONE[:, :, :2]):
        with pytest.raises(vkattn.InvalidError, match=r"array: expected f32 \[1, 1, 3, 4\]"):
            t.write(array)
    for view in (
        lambda: t.permute(0, 1, 2, 2),
        lambda: t.permute(0, 1),
        lambda: t.slice(2, 2, 2),
        lambda: t.slice(9, 0, 1),
        lambda: t.reshape(5),
        lambda: t.strided(0, (100,), (1,)),
        lambda: t.strided(0, (2, 2), (1,)),
    ):
        with pytest.raises(vkattn.InvalidError):
            view()
    with pytest.raises(vkattn.InvalidError, match="first: expected a whole number"):
        t.slice(0, -1, 1)
    for shape, dtype in (((), "f32"), ((0,), "f32"), ((1,) * 5, "f32"), ((2,), "f8")):
        with pytest.raises(vkattn.InvalidError):
            device.empty(shape, dtype)


def test_closed_objects():
    device = own_device()
    t, u = device.tensor(ONE), device.tensor(ONE)
    plan = vkattn.Plan(device)
    plan.attention(t, t, t, u)
    plan.finish()
    t.close()
    t.close()
    assert t.closed and not u.closed
    for call in (t.read, lambda: t.write(ONE), lambda: t.reshape(12)):
        with pytest.raises(vkattn.ClosedError, match="this Tensor has been closed"):
            call()
    plan.run()  # keeps alive what it uses
    device.close()
    device.close()
    assert device.closed and u.closed and plan.closed
    calls = (
        u.read,
        plan.run,
        plan.describe,
        lambda: plan.workspace,
        device.kernels,
        lambda: device.tensor(ONE),
        lambda: vkattn.Plan(device),
        plan.finish,
    )
    for call in calls:
        with pytest.raises(vkattn.InvalidError, match="has been closed"):
            call()
    u.close()
    plan.close()


def test_another_devices_tensor(device):
    with own_device() as other:
        t, foreign = device.tensor(ONE), other.tensor(ONE)
        with pytest.raises(vkattn.InvalidError, match="device"):
            vkattn.Plan(device).attention(t, t, t, foreign)


def test_collected_in_any_order():
    for _ in range(5):
        device = own_device()
        parts = [device, device.tensor(ONE), vkattn.Plan(device)]
        parts[2].attention(parts[1], parts[1], parts[1], device.empty(ONE.shape))
        parts[2].finish()
        parts[2].submit()
        parts.append(parts)  # a cycle: the collector picks the order
        del device, parts
        gc.collect()


def test_log_callback():
    messages = []

    def log(level, message):
        messages.append((level, message))
        with pytest.raises(vkattn.VkattnError, match="must not call back"):
            tensor.read()

    with vkattn.Device(log=log) as device:
        tensor = device.tensor(ONE)
        plan = vkattn.Plan(device)
        with pytest.raises(vkattn.InvalidError) as info:
            plan.run()
        assert ("error", str(info.value)) in messages
        np.testing.assert_array_equal(tensor.read(), ONE)


def test_threads_take_turns(device, rng):
    """Eight threads, each making, running and dropping objects of the same device."""
    arrays = [rng.standard_normal((1, 2, 4, 8), np.float32) for _ in range(8)]
    want = [vkattn.attention(x, x, x, device=device) for x in arrays]
    wrong = []

    def work(i):
        for _ in range(5):
            got = vkattn.attention(arrays[i], arrays[i], arrays[i], device=device)
            if not np.array_equal(got, want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pipeline_cache(device):
    vkattn.attention(ONE, ONE, ONE, device=device)
    blob = device.pipeline_cache()
    assert blob
    for given in (blob, blob[: len(blob) // 2], b"\xff" * 64):
        with vkattn.Device(pipeline_cache=given) as other:
            assert vkattn.attention(ONE, ONE, ONE, device=other).shape == ONE.shape


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(device):
    """A child has no use for its parent's device, says so, and ends in peace."""
    t = device.tensor(ONE)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            t.read()
        except vkattn.VkattnError as error:
            code = 0 if "forked" in str(error) else 2
        t.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(t.read(), ONE)


@pytest.mark.parametrize("leave", ["", "raise SystemExit(3)", "import os; device.close()"])
def test_process_ends_cleanly(device, leave):
    """Objects that are alive when the interpreter ends."""
    program = (
        "import numpy as np, vkattn\n"
        "device = vkattn.Device()\n"
        "x = device.tensor(np.ones((1, 1, 3, 4), np.float32))\n"
        "plan = vkattn.Plan(device)\n"
        "plan.attention(x, x, x, device.empty((1, 1, 3, 4)))\n"
        f"plan.finish().submit()\n{leave}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=1800)
    assert done.returncode == (3 if "3" in leave else 0) and not done.stderr


def test_device_names_in_a_turkish_program(tmp_path):
    """A part of a name in any case, where the small letter of I is another one."""
    made = tmp_path / "tr_TR.UTF-8"
    tool = shutil.which("localedef")
    if not tool or subprocess.run([tool, "-f", "UTF-8", "-i", "tr_TR", made], capture_output=True).returncode:
        pytest.skip("no localedef, or no tr_TR")
    program = """
import locale, vkattn
locale.setlocale(locale.LC_ALL, "tr_TR.UTF-8")
name = vkattn.devices()[0].name
for text in (name.upper(), name.lower()):
    vkattn.Device(text)
"""
    environment = {**os.environ, "LOCPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a process's memory")
def test_refused_caches_take_no_memory(device):
    """2^31 heads have 32 GiB of scales, which are kept on the host."""
    program = """
import resource, vkattn
device = vkattn.Device()
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
heads = {"n_layer": 1, "batch": 1, "capacity": 4, "n_kv_head": 1 << 31, "head_dim": 32}
try:
    vkattn.Cache(device, key_dtype="f8_e4m3", value_dtype="f8_e4m3", **heads)
except vkattn.UnsupportedError as error:
    assert "2^48 elements" in str(error) or "2^32 values" in str(error), error
else:
    raise AssertionError("it was made")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(vkattn.UnsupportedError, match="value_dim is 4294967295, whose whole blocks"):
        vkattn.Cache(device, n_layer=1, batch=1, capacity=4, n_kv_head=1, head_dim=2**32 - 1, key_dtype="q8_0")
