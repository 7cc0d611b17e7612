"""The files of a model's folder, and how far reading them is."""

from __future__ import annotations

import os
import sys

from .._config import read_json_file, shown
from .._errors import FileError
from .._safetensors import SafetensorsFile, _file_name, whole_or_index


class Progress:
    """A bar on stderr while weights are loaded, if that is a terminal."""

    WIDTH = 40

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = max(total, 1)
        self.done = 0
        self.shown = -1
        self.on = sys.stderr is not None and sys.stderr.isatty()

    def add(self, size: int) -> None:
        self.done += size
        percent = min(100 * self.done // self.total, 100)
        if self.on and percent != self.shown:
            self.shown = percent
            bar = "#" * (percent * self.WIDTH // 100)
            sys.stderr.write(f"\r{self.what} [{bar:<{self.WIDTH}}] {percent:3} %")
            sys.stderr.flush()

    def close(self) -> None:
        if self.on and self.shown >= 0:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self.on = False


def open_folder(folder: str) -> dict[str, SafetensorsFile]:
    """The file of each tensor."""
    index = whole_or_index(folder)
    if not index.endswith(".json"):
        file = SafetensorsFile(index)
        return {name: file for name in file.names}
    places = read_json_file(index).get("weight_map")
    if not isinstance(places, dict):
        raise FileError(f"{index}: not a checkpoint's index: expected an object weight_map")
    open_files: dict[str, SafetensorsFile] = {}
    found = {}
    for name, place in places.items():
        place = _file_name(place, index)
        if place not in open_files:
            open_files[place] = SafetensorsFile(os.path.join(folder, place))
        if name not in open_files[place].names:
            raise FileError(f"{index}: {shown(place)} has no tensor {shown(name)}")
        found[name] = open_files[place]
    for file in open_files.values():
        for name in file.names:
            if name in file.aliases:
                found.setdefault(name, file)
            elif name not in found:
                raise FileError(f"{index}: tensor {shown(name)} of {file.path} is not named")
    return found
