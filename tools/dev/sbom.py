#!/usr/bin/env python3
"""Prints what a release consists of, as SPDX 2.3 in JSON: each file of a folder with its checksum, and what
is compiled into it besides vkattn.

    python3 tools/dev/sbom.py DIST BUILD

DIST is the folder that dist.sh fills; BUILD has the trees in which it built, whose libraries' versions
are read. Times and names follow from SOURCE_DATE_EPOCH and the files alone. SPDX-License-Identifier: MIT"""

import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path


def sums(path):
    data = path.read_bytes()
    return [
        {"algorithm": name.upper(), "checksumValue": hashlib.new(name, data).hexdigest()}
        for name in ("sha1", "sha256")
    ]


def package(name, version, licence, home):
    return {
        "SPDXID": f"SPDXRef-{name}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": home,
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }


def define(header, name):
    """The number that a header defines under a name; a header that lacks it is refused."""
    (value,) = re.findall(rf"^#define {name} +\(?(\d+)", header.read_text(), flags=re.M)
    return value


def main():
    dist, build = map(Path, sys.argv[1:])
    (source,) = dist.glob("vkattn-*.tar.gz")
    version = re.fullmatch(r"vkattn-([0-9.]+)\.tar\.gz", source.name)[1]
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    include = next((p.parent for p in sorted(build.glob("wheel-*/vulkan/volk.h"))), Path("/usr/include"))
    volk = define(include / "volk.h", "VOLK_HEADER_VERSION")
    core = include / "vulkan" / "vulkan_core.h"
    minor = max(map(int, re.findall(r"^#define VK_API_VERSION_1_(\d+) ", core.read_text(), flags=re.M)))
    vulkan = f"1.{minor}.{define(core, 'VK_HEADER_VERSION')}"
    packages = [
        package("vkattn", version, "MIT", "NOASSERTION"),
        package("volk", volk, "MIT", "https://github.com/zeux/volk"),
        package("Vulkan-Headers", vulkan, "Apache-2.0",
                "https://github.com/KhronosGroup/Vulkan-Headers"),
    ]
    jansson = build.parent / "build-windows-libraries" / "include" / "jansson.h"
    windows = [p for p in dist.rglob("*windows*")]
    if windows:
        number = ".".join(define(jansson, f"JANSSON_{x}_VERSION") for x in ("MAJOR", "MINOR", "MICRO"))
        packages.append(package("jansson", number, "MIT", "https://github.com/akheron/jansson"))
    files, relations = [], []

    def relate(one, kind, other):
        relations.append(
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
        )

    relate("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-vkattn")
    skipped = ("SHA256SUMS", f"vkattn-{version}.spdx.json")
    for path in sorted(p for p in dist.rglob("*") if p.is_file() and p.name not in skipped):
        place = path.relative_to(dist).as_posix()
        ref = "SPDXRef-File-" + re.sub(r"[^A-Za-z0-9.-]", "-", place)
        files.append(
            {
                "SPDXID": ref,
                "fileName": f"./{place}",
                "checksums": sums(path),
                "fileTypes": ["SOURCE" if path == source else "ARCHIVE"],
                "licenseConcluded": "MIT",
                "copyrightText": "NOASSERTION",
            }
        )
        relate("SPDXRef-vkattn", "CONTAINS", ref)
        if path != source:
            relate(ref, "STATIC_LINK", "SPDXRef-volk")
            relate(ref, "GENERATED_FROM", "SPDXRef-Vulkan-Headers")
        if path in windows:
            relate(ref, "STATIC_LINK", "SPDXRef-jansson")
    digest = hashlib.sha256("".join(f["checksums"][1]["checksumValue"] for f in files).encode())
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"vkattn-{version}",
        "documentNamespace": f"https://vkattn.example/spdx/{version}-{digest.hexdigest()[:16]}",
        "creationInfo": {"created": when, "creators": ["Organization: The vkattn authors"]},
        "packages": packages,
        "files": files,
        "relationships": relations,
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main()
