#!/bin/sh
# Runs pytest over the Python package of the source tree with the library of a build tree:
#
#   run.sh libvkattn.so [pytest's arguments]
#
# $VKATTN_DRIVER is a command that runs a program on the Vulkan driver to be tested, as
# "tests/devices/newest_driver.sh --or-own"; tests run Python and the tools by it too (conftest.py).
# Exits 77 where python3 has no numpy, cffi or pytest. SPDX-License-Identifier: MIT
set -eu
library=$1
shift
here=$(cd "$(dirname "$0")" && pwd)

for python in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$python" -c 'import cffi, numpy, pytest' 2>/dev/null; then
        export VKATTN_LIBRARY="$library" PYTHONPATH="$here/../../python:$here"
        export PYTHONDONTWRITEBYTECODE=1
        export VKATTN_ORACLE="${VKATTN_ORACLE-$(dirname "$library")/libvkattn_oracle.so}"
        python=$("$python" -c 'import sys; print(sys.executable)') # a program, no script that finds one
        # shellcheck disable=SC2086 # a command and its arguments
        exec ${VKATTN_DRIVER-} "$python" -m pytest -q -rs -p no:cacheprovider --rootdir "$here" "$@" "$here"
    fi
done
echo "SKIPPED: NO PYTHON 3 WITH numpy, cffi AND pytest: THE PYTHON PACKAGE WAS NOT TESTED"
exit 77
