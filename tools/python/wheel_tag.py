"""Tags the wheel: any Python 3, as cffi loads the library at run time, but one platform."""

import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        if not (Path(self.root) / "vkattn" / "libvkattn.so.0").is_file():
            raise FileNotFoundError("no library here: use cmake --build build --target wheel")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
