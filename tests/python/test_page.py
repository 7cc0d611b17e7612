"""The pages of the tools in a real browser: they draw what they should and complain of nothing."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_layer import weights, write_safetensors

BROWSER = shutil.which("chromium") or shutil.which("chromium-shell")
MNIST = Path(__file__).parents[1] / "mnist"

pytestmark = [
    pytest.mark.skipif(not BROWSER, reason="NO CHROMIUM: THE PAGES WERE NOT LOOKED AT"),
    pytest.mark.skipif("VKATTN_TOOL" not in os.environ, reason="VKATTN_TOOL names no vkattn"),
]

# Runs after the page's own scripts: what the canvases hold, and what pointing and clicking give.
PROBE = """<script>
const root = document.getElementById("attention"), at = (s) => root.querySelector(s);
const pixels = (canvas) => {
  const { width, height } = canvas;
  const image = canvas.getContext("2d").getImageData(0, 0, width, height);
  return { width, height, data: [...image.data] };
};
const point = (target, x, y) => {
  const box = target.getBoundingClientRect();
  const [clientX, clientY] = [box.left + x * box.width, box.top + y * box.height];
  target.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
  return document.querySelector(".tip").textContent;
};
const seen = {};
ACTIONS
document.body.dataset.seen = JSON.stringify(seen);
</script>"""


def browse(page, actions, tmp_path, dark=False):
    """The object `seen` that the actions filled, and the lines of the console."""
    probed = tmp_path / "probed.html"
    probe = PROBE.replace("ACTIONS", actions)
    probed.write_text(page.read_text().replace("</body>", probe + "</body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--v=0", "--virtual-time-budget=5000", "--window-size=1280,1000"]
    command += [f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", probed.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    return json.loads(html.unescape(found[1])) if found else None, console


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A causal run of two inputs with tokens: its page and its weights."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(5)
    names = [f"{x}_proj.weight" for x in "qkvo"]
    layer = dict(zip(names, weights(rng, *[(16, 16)] * 4)))
    write_safetensors(folder / "layer.safetensors", layer)
    np.save(folder / "x.npy", 3 * rng.standard_normal((2, 6, 16), np.float32))
    (folder / "tokens.txt").write_text("<b>\n\u00fc\n</script>\n<!--\nfour\n five\n")
    command = [os.environ["VKATTN_TOOL"], "run", "layer.safetensors", "--heads", "4", "--causal"]
    command += ["--query", "x.npy", "--output", "y.npy", "--scores", "s.npy"]
    command += ["--html", "page.html", "--tokens", "tokens.txt"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800)
    if done.returncode == 3:
        pytest.skip("NO USABLE VULKAN DEVICE")
    assert done.returncode == 0, done.stderr
    return folder / "page.html", np.load(folder / "s.npy")


ACTIONS = """
seen.words = [...root.querySelectorAll(".words button")].map((chip) => chip.textContent);
seen.labels = [...root.querySelectorAll(".large span")].map((label) => label.textContent);
seen.maps = [...root.querySelectorAll(".heads canvas")].map(pixels);
seen.mean = point(at(".large canvas"), 2.5 / 6, 4.5 / 6);
root.querySelectorAll(".heads button")[2].click();
seen.head = point(at(".large canvas"), 2.5 / 6, 4.5 / 6);
root.querySelectorAll(".words button")[3].click();
seen.caption = at(".caption").textContent;
root.querySelectorAll(".picker button")[1].click();
seen.other = point(at(".large canvas"), 2.5 / 6, 4.5 / 6);
"""

# --map-0 and --map-2 of base.css: weights 0 and 1.
COLOURS = {
    False: ([0xF1, 0xF2, 0xF7], [0x14, 0x1F, 0x63]),
    True: ([0x22, 0x26, 0x2E], [0xE8, 0xED, 0xFF]),
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_of_run(run, tmp_path, dark):
    page, scores = run
    seen, console = browse(page, ACTIONS, tmp_path, dark)
    assert not console
    tokens = ["<b>", "\u00fc", "</script>", "<!--", "four", " five"]
    assert seen["words"] == tokens
    assert seen["labels"] == tokens + tokens
    assert len(seen["maps"]) == 4
    nothing, everything = COLOURS[dark]
    for head, drawn in enumerate(seen["maps"]):
        assert (drawn["width"], drawn["height"]) == (6, 6)
        colours = np.array(drawn["data"]).reshape(6, 6, 4)[:, :, :3]
        hidden = ~np.tri(6, dtype=bool)
        assert (colours[hidden] == nothing).all()
        assert (colours[0, 0] == everything).all()
        # The stronger a weight, the further from the colour of none.
        distance = abs(colours.astype(int) - nothing).sum(-1)[~hidden]
        order = np.argsort(scores[0, head][~hidden])
        assert (np.diff(distance[order]) >= -3).all()

    def value(text):
        name = "query 4 \u201cfour\u201d \u2192 key 2 \u201c</script>\u201d: "
        assert text.startswith(name) and text.endswith("\u2009%")
        return float(text[len(name) : -2]) / 100

    close = pytest.approx
    assert value(seen["mean"]) == close(scores[0, :, 4, 2].mean(), rel=0.01, abs=1e-5)
    assert value(seen["head"]) == close(scores[0, 1, 4, 2], rel=0.01, abs=1e-5)
    assert value(seen["other"]) == close(scores[1, 1, 4, 2], rel=0.01, abs=1e-5)
    best = int(scores[0, 1, 3].argmax())
    assert "query 3" in seen["caption"] and f"key {best} " in seen["caption"]
    assert seen["caption"].endswith("(head 2).")


def test_errors_are_seen(run, tmp_path):
    _, console = browse(run[0], 'console.error("canary"); throw new Error("bird");', tmp_path)
    assert any("canary" in line for line in console)
    assert any("bird" in line for line in console)


def test_page_of_mnist(tmp_path):
    page = tmp_path / "digits.html"
    command = [os.environ["VKATTN_MNIST"], "--model", MNIST / "documented.safetensors"]
    command += ["--images", MNIST / "images-idx3-ubyte", "--labels", MNIST / "labels-idx1-ubyte"]
    command += ["--count", "20", "--html", page]
    done = subprocess.run(command, capture_output=True, timeout=1800)
    if done.returncode == 3:
        pytest.skip("NO USABLE VULKAN DEVICE")
    assert done.returncode == 0
    actions = """
    seen.maps = [...root.querySelectorAll(".heads .map canvas")].map(pixels);
    seen.tip = point(at(".big"), .5, .5);
    """
    seen, console = browse(page, actions, tmp_path)
    assert not console
    assert len(seen["maps"]) == 16
    for drawn in seen["maps"]:
        assert (drawn["width"], drawn["height"]) == (16, 16)
        assert len(set(drawn["data"])) > 8
    assert re.fullmatch(r"patch \d\.\d \u2192 patch \d\.\d: \d+\.\d\u2009%", seen["tip"])
