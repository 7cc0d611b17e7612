"""Writes what cffi makes of the headers, so that an import parses nothing, and tags the wheel: any
Python 3, as cffi loads the library at run time, but one platform, that of the library inside.
https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/"""

import re
import runpy
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = ("libvkattn.so.0", "libvkattn.0.dylib", "vkattn.dll")

# The field `machine` of ELF's header, and of PE's.
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
PE_MACHINES = {0x8664: "win_amd64", 0xAA64: "win_arm64"}


def _word(data, at, size=2):
    return int.from_bytes(data[at : at + size], "little")


def platform_of(library):
    """manylinux_2_N_MACHINE of an ELF library: glibc 2.N is the newest whose symbols it takes, by
    their names in its table of strings. This machine's platform where it takes none."""
    data = library.read_bytes()
    if data[:2] == b"MZ":
        return PE_MACHINES[_word(data, _word(data, 0x3C, 4) + 4)]
    glibc = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", data)]
    if data[:4] != b"\x7fELF" or not glibc:
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"manylinux_2_{max(glibc)}_{ELF_MACHINES[_word(data, 18)]}"


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        folder = Path(self.root) / "vkattn"
        libraries = [p for p in folder.iterdir() if p.name in LIBRARIES]
        if len(libraries) != 1:
            raise FileNotFoundError("no library here: use cmake --build build --target wheel")
        made = runpy.run_path(str(folder / "_abi_parse.py"))
        made["write_types"](str(folder / "_abi_types.py"))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_of(libraries[0])}"
