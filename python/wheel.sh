#!/bin/sh
# wheel.sh STAGE OUT: makes a wheel of the folder STAGE in OUT, by a python3 that has hatchling and cffi,
# or by one that may fetch it. SPDX-License-Identifier: MIT
set -eu
stage=$1
out=$2
for python in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$python" -c 'import cffi, hatchling, pip' 2>/dev/null; then
        exec "$python" -m pip wheel --quiet --no-deps --no-build-isolation --no-cache-dir \
            --wheel-dir "$out" "$stage"
    fi
done
if ! "${PYTHON:-python3}" -c 'import pip' 2>/dev/null; then
    echo "wheel: no python3 with pip: on Debian, install python3-pip, python3-hatchling and python3-cffi" >&2
    exit 1
fi
exec "${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$out" "$stage"
