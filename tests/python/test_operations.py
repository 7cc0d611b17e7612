"""Each operation of the table, by the example that C's tests have of it.

A method of a plan has the noun of its operation, and its parameters the names of the struct's
members, so that a new operation is tested without a line here. `FORMS` are the methods that differ
on purpose.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess

import numpy as np
import pytest

import vkattn

PROGRAM = os.environ.get("VKATTN_EXAMPLES", "")
if not PROGRAM:
    pytest.skip("VKATTN_EXAMPLES names no print_examples: NO OPERATION WAS TRIED",
                allow_module_level=True)
EXAMPLES = json.loads(subprocess.run([PROGRAM], capture_output=True, check=True).stdout)

# What has a form of its own in Python, and the file whose tests compare it with an oracle.
ELSEWHERE = {
    "attention": "test_attention.py",
    "layer": "test_layer.py",
    "attention_backward": "test_train.py",
    "layer_backward": "test_train.py",
}
IN_C_ALONE = {"rotary_backward"}


def binary(given):
    return ("add", "multiply")[given.pop("kind")] + given.pop("suffix", ""), given


def conv1d(given):
    given["padding"] = (given.pop("padding_before"), given.pop("padding_after"))
    return "conv1d", given


def optimiser(given):
    moments = (given.pop("first_moment"), given.pop("second_moment"))
    parameter = vkattn.Parameter(given.pop("parameter"), given.pop("gradient"), *moments)
    betas = (given.pop("beta1"), given.pop("beta2"))
    return "optimiser", {**given, "parameters": [parameter], "betas": betas}


FORMS = {
    "binary": binary,
    "binary_backward": lambda given: binary({**given, "suffix": "_backward"}),
    "conv1d": conv1d,
    "optimiser": optimiser,
}


def words_of(method, name, given):
    """The words that a parameter takes, in the order of the enum: what a wrong one is told."""
    with pytest.raises(vkattn.InvalidError, match="expected one of") as refused:
        method(**{**given, name: "no such word"})
    found = re.search("expected one of (.*), got", str(refused.value))
    assert found
    return found[1].split(", ")


def arguments(device, fields):
    """The fields by the name of a parameter, and the tensors that have an answer."""
    given, answers = {}, []
    for field in fields:
        name = re.sub(r"^(op|parameter|forward)\.|\.tensor$", "", field["name"])
        value = field.get("number")
        if "shape" in field:
            kind = np.int32 if field["kind"] == "i32" else np.float32
            value = np.full(field["shape"], -1 if kind is np.int32 else np.nan, kind)
            if field["values"]:
                value[...] = np.reshape(field["values"], field["shape"])
            value = device.tensor(value)
            if field["answer"]:
                answers.append((name, value, np.reshape(field["answer"], field["shape"])))
        elif field["kind"] != "real":
            value = int(value)
        several = re.match(r"(\w+)\[\d+\]$", name)
        if several:
            given.setdefault(several[1], []).append(value)
        else:
            given[name] = value
    return given, answers


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["noun"])
def test_example(device, example):
    noun = example["noun"]
    if noun in ELSEWHERE or noun in IN_C_ALONE:
        assert hasattr(vkattn.Plan, noun) == (noun in ELSEWHERE)
        return
    given, answers = arguments(device, example["fields"])
    name, given = FORMS.get(noun, lambda given: (noun, given))(given)
    plan = vkattn.Plan(device)
    method = getattr(plan, name)
    takes = inspect.signature(method).parameters
    assert given.keys() <= takes.keys()
    for key in [key for key, value in given.items() if isinstance(value, (int, float))]:
        if not given[key] and takes[key].default is not inspect.Parameter.empty:
            del given[key]  # 0 is C's default of a number, and Python's is its own
        elif takes[key].annotation == "bool":
            given[key] = bool(given[key])
    for key in [key for key in given if takes[key].annotation.startswith("str")]:
        number, given[key] = given[key], "no such word"
        given[key] = words_of(method, key, given)[number]
    method(**given)
    plan.finish()
    plan.run()
    assert answers
    for name, tensor, want in answers:
        np.testing.assert_allclose(tensor.read(), want, rtol=2e-5, atol=2e-5, err_msg=name)


def test_every_operation_has_an_example():
    assert {example["noun"] for example in EXAMPLES} >= ELSEWHERE.keys() | FORMS.keys() | IN_C_ALONE
    assert len(EXAMPLES) > 20
