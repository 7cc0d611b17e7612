"""What a package holds in place of the headers."""

import os
import subprocess
import sys

from vkattn import _abi_parse
from vkattn._abi import lib


def test_types_of_a_package_are_those_of_the_headers(tmp_path):
    """A wheel's import parses nothing, and finds what a tree's finds."""
    path = tmp_path / "types.py"
    _abi_parse.write_types(str(path))
    check = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("vkattn._abi_types", sys.argv[1])
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
sys.modules["vkattn._abi_types"] = made
import vkattn
from vkattn._abi import ffi, lib
assert ffi is made.ffi and "cffi" not in sys.modules and "pycparser" not in sys.modules
print(sorted(vars(lib)) == eval(sys.argv[2]))
for name in eval(sys.argv[3]):
    kind = ffi.typeof("struct " + name)
    print(name, ffi.sizeof(kind), [(n, ffi.sizeof(f.type), f.offset) for n, f in kind.fields])
"""
    parsed = _abi_parse.parse()
    names = [
        name
        for name in parsed.list_types()[1]
        if name.startswith("vka_") and parsed.typeof(f"struct {name}").fields
    ]
    assert len(names) > 40
    kinds = {name: parsed.typeof(f"struct {name}") for name in names}
    expected = ["True"] + [
        f"{n} {parsed.sizeof(k)} {[(m, parsed.sizeof(f.type), f.offset) for m, f in k.fields]}"
        for n, k in kinds.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", check, str(path), repr(sorted(vars(lib))), repr(names)],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.stdout.splitlines() == expected, done.stderr
