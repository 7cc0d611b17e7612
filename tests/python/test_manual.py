"""What help() and sentences say: options, names of types and devices, Python's own words."""

import inspect
import pydoc
import re
import sys
import typing

import numpy as np
import pytest

import vkattn
import vkattn.models
import vkattn.vulkan
from vkattn import _option_table, _sentences
from vkattn._abi import lib
from vkattn._options import AttentionOptions

ONE = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 1, 3, 4)


def test_every_option_is_named_where_it_is_taken():
    """That is wherever a signature says **options."""
    assert list(AttentionOptions.__annotations__) == list(_option_table.OPTIONS)
    takers = [vkattn.attention, vkattn.Layer, AttentionOptions]
    for owner in (vkattn.Layer, vkattn.Plan):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            taken = inspect.signature(method).parameters.get("options")
            if taken is not None and taken.kind is taken.VAR_KEYWORD and name[:1] != "_":
                takers.append(method)
    assert len(takers) >= 7
    for taker in (*takers, vkattn.Layer.__call__):
        text = pydoc.plain(pydoc.render_doc(taker))
        for name in AttentionOptions.__annotations__:
            assert re.search(rf"^[ |]+{name}: \S", text, re.M), (taker, name)


def test_hints():
    for word, meant in _option_table._ELSEWHERE.items():
        assert word not in _option_table.OPTIONS
        with pytest.raises(TypeError, match=f"'{word}': did you mean {re.escape(meant)}"):
            _option_table.check_options({word: None})
    with pytest.raises(TypeError, match="did you mean scores"):
        _option_table.check_options({"score": None})


def test_help_names_public_things_alone():
    for module in (vkattn, vkattn.models, vkattn.vulkan):
        assert all(name[0] != "_" and hasattr(module, name) for name in module.__all__)
        text = pydoc.plain(pydoc.render_doc(module))
        for name in re.findall(r"^    class (\w+)", text, re.M):
            assert name in module.__all__, name


@pytest.mark.parametrize(
    "dtype", ["f16", "float16", "half", np.float16, np.dtype("f2"), np.dtype("<f2")]
)
def test_names_of_types(device, dtype):
    assert device.tensor(ONE, dtype).dtype == "f16"
    assert device.empty((2, 2), dtype).dtype == "f16"
    assert vkattn.Tensor(device, (2,), dtype).dtype == "f16"
    assert vkattn.Cache(
        device, batch=1, n_kv_head=1, head_dim=4, capacity=4, key_dtype=dtype
    ).device is device
    device.tensor(ONE, dtype).write(ONE, dtype)
    square = np.eye(4, dtype=np.float32)
    given = {"query": square, "key": square, "value": square}
    assert vkattn.Layer(device, n_head=1, dtype=dtype, **given).dtype == "f16"


def test_names_of_types_elsewhere(device):
    assert device.empty((2,), np.bool_).dtype == "bool"
    assert device.empty((2,), "int32").dtype == "i32"
    assert device.empty((2,), "bfloat16").dtype == "bf16"
    for wrong in (np.float64, "float", float, 3, None.__class__, "int64"):
        with pytest.raises(vkattn.InvalidError, match="dtype: expected one of f32, f16"):
            device.empty((2,), wrong)
    torch = pytest.importorskip("torch", reason="NO PyTorch: ITS NAMES OF TYPES WERE NOT TRIED")
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.half, "f16")):
        assert device.empty((2,), dtype).dtype == name


def test_devices_by_index_and_name(device):
    index, name = device.info.index, device.info.name
    for key in (index, np.uint8(index).item(), name, name[1:].upper(), str(index)):
        found = vkattn.Tensor(key, (2,)).device
        assert found.info == device.info and not found.closed
    first = vkattn.Tensor(index, (2,)).device
    assert vkattn.Tensor(index, (2,)).device is first
    with pytest.raises(vkattn.NoDeviceError):
        vkattn.attention(ONE, ONE, ONE, device="no such device")
    with pytest.raises(vkattn.NoDeviceError):
        vkattn.attention(ONE, ONE, ONE, device=4_000_000_000)
    for wrong in ("", True, b"x"):
        with pytest.raises(TypeError, match="device: expected a Device"):
            vkattn.attention(ONE, ONE, ONE, device=wrong)


def test_words_of_sentences(device):
    """Each function and member that a sentence of C names has its word in Python."""
    said = _sentences.in_python
    text = "vka_plan_add_attention: q_start is given, but the plan's path is UNFUSED"
    assert said(text).startswith("Plan.attention: ragged's q_start is given")
    assert said("vka_plan_add_attention: scores is given with q_start").startswith(
        "Plan.attention: scores_to is given"
    )
    assert said("vka_layer_create: quantise is q4_1") == "Layer: quantize is q4_1"
    assert said("vka_tensor_slice: axis is 4, the rank is 4") == "Tensor.slice: axis is 4, the rank is 4"
    assert said("vka_plan_add_norm: weight is NULL") == "Plan.norm: weight is None"
    assert said("file.gguf: q_start") == "file.gguf: q_start"
    modules = {"vulkan": vkattn.vulkan}
    for function in (*_sentences._FUNCTIONS, *(n for n in vars(lib) if n.startswith("vka_plan_add"))):
        assert hasattr(lib, function), function
        found = vkattn
        for name in said(f"{function}: x").partition(":")[0].split("."):
            found = modules.get(name) or getattr(found, name, None)
        assert found is not None or function in NO_METHOD, function


# `add` and `multiply` of Python are one function of C; the backward of a rotary embedding is `rotary`.
NO_METHOD = (
    *("vka_plan_add_binary", "vka_plan_add_binary_backward", "vka_plan_add_rotary_backward"),
)


def test_overloads_are_of_the_signature():
    if sys.version_info < (3, 11):
        pytest.skip("typing.get_overloads IS OF PYTHON 3.11: OVERLOADS WERE NOT COMPARED")
    for function in (vkattn.attention, vkattn.Layer.__call__, vkattn.models.load):
        whole = inspect.signature(function).parameters
        overloads = typing.get_overloads(function)
        assert len(overloads) >= 2
        for overload in overloads:
            some = inspect.signature(overload).parameters
            assert set(some) <= set(whole) and len(some) >= len(whole) - 1
