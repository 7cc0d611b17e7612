"""The back end of pip in the root of the source: builds the library by CMake and makes a wheel of it, or
an archive of the source that pip can build. SPDX-License-Identifier: MIT"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Mapping, Optional

ROOT = Path(__file__).resolve().parent.parent
Settings = Optional[Mapping[str, Any]]


def _run(*command: str) -> None:
    print("+", *command, file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=sys.stderr)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [] if shutil.which("cmake") else ["cmake>=3.25"]


def _generator() -> list[str]:
    """CMake takes make unless told, which a machine with ninja need not have."""
    return ["-G", "Ninja"] if shutil.which("ninja") and "CMAKE_GENERATOR" not in os.environ else []


def _kernels() -> list[str]:
    """The kernels of a build of this tree in build/, brought up to date, are not compiled again."""
    cache = ROOT / "build" / "CMakeCache.txt"
    here = f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n"
    if "VKATTN_SPIRV_FROM" in os.environ or not cache.exists() or here not in cache.read_text():
        return []
    _run("cmake", "--build", str(cache.parent), "--target", "vkattn_spv")
    return [f"-DVKATTN_SPIRV_FROM={cache.parent / 'shaders'}"]


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """pip's --config-settings NAME=VALUE becomes -DNAME=VALUE of CMake."""
    options = [f"-D{name}={value}" for name, value in (config_settings or {}).items()]
    if "VKATTN_SPIRV_FROM" not in (config_settings or {}):
        options = [*_kernels(), *options]
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build"
        _run("cmake", "-S", str(ROOT), "-B", str(build), *_generator(), "-DCMAKE_BUILD_TYPE=Release",
             "-DVKATTN_BUILD_TESTS=OFF", "-DVKATTN_BUILD_TOOLS=OFF", "-DVKATTN_BUILD_MPI=OFF", *options)
        jobs = str(os.cpu_count() or 1)
        _run("cmake", "--build", str(build), "--parallel", jobs, "--target", "wheel_stage")
        from hatchling.build import build_wheel as hatch

        os.chdir(build / "python" / "wheel")
        name: str = hatch(wheel_directory)
        os.chdir(ROOT)
        return name


def _files() -> list[Path]:
    """Those of git, or all of an unpacked archive."""
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
        found = [ROOT / name for name in os.fsdecode(names.stdout).split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if path.is_file() and path.name != "PKG-INFO"]
    return sorted(path for path in found if path.is_file())


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The same bytes each time: sorted, owned by nobody, with the time of SOURCE_DATE_EPOCH."""
    text = (ROOT / "python" / "vkattn" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"', text, flags=re.M)
    when = int(os.environ.get("SOURCE_DATE_EPOCH", "946684800"))
    readme = (ROOT / "python" / "README.md").read_text(encoding="utf-8")
    about = (
        f"Metadata-Version: 2.1\nName: vkattn\nVersion: {version}\n"
        "Summary: Multi-head attention on any Vulkan device\nLicense: MIT\n"
        "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n" + readme
    )
    name = f"vkattn-{version}"
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for place, path in [("PKG-INFO", None), *((str(p.relative_to(ROOT)), p) for p in _files())]:
            content = about.encode() if path is None else path.read_bytes()
            entry = tarfile.TarInfo(f"{name}/{Path(place).as_posix()}")
            entry.size, entry.mtime = len(content), when
            entry.mode = 0o755 if path and path.stat().st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(content))
    with open(Path(sdist_directory) / f"{name}.tar.gz", "wb") as out:
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=when) as packed:
            packed.write(data.getvalue())
    return f"{name}.tar.gz"
