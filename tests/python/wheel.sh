#!/bin/sh
# wheel.sh CMAKE BUILD WORK SOURCE: builds the wheel, installs it into a new virtual environment,
# which takes numpy and cffi from the machine, looks for every kernel in it, and runs the Python
# example of README.
# Exits 77 where python3 lacks what that takes. SPDX-License-Identifier: MIT
set -eu
cmake=$1
build=$2
work=$3
source=$4
readme=$source/README.md

python=
for candidate in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$candidate" -c 'import cffi, ensurepip, hatchling, numpy, pip' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "SKIPPED: NO PYTHON 3 WITH numpy, cffi, hatchling, pip AND venv: NO WHEEL WAS TESTED"
    exit 77
fi

rm -rf "$work" "$build"/vkattn-*.whl
mkdir -p "$work/wheels"
PYTHON=$python "$cmake" --build "$build" --target wheel
cp "$build"/vkattn-*-py3-none-manylinux_*.whl "$work/wheels"
"$python" -m venv --system-site-packages "$work/env"
"$work/env/bin/python" -m pip install --quiet --no-index --no-deps "$work"/wheels/*.whl
"$cmake" -D SOURCE="$source" -D MODULES="$build/shaders" \
    -D LIBRARY="$(find "$work/env" -name libvkattn.so.0)" -P "$source/tests/install/kernels.cmake"

# Every module is in the wheel, and can be imported.
find "$source/python/vkattn" -name '*.py' | sed "s|.*/python/vkattn/||" | sort >"$work/modules"
site=$(dirname "$(find "$work/env" -name libvkattn.so.0)")
echo _abi_types.py >>"$work/modules" # made of the headers
sort -o "$work/modules" "$work/modules"
(cd "$site" && find . -name '*.py' | sed 's|^\./||' | sort) | diff "$work/modules" -
(cd "$work" && unset VKATTN_LIBRARY PYTHONPATH && env/bin/python -c 'import vkattn.models')

sed -n '/^```python$/,/^```$/{/^```/d;p;}' "$readme" >"$work/example.py"
[ -s "$work/example.py" ]
cd "$work"
unset VKATTN_LIBRARY PYTHONPATH
if ! env/bin/python example.py >out 2>err; then
    cat out err
    if grep -q '^vkattn.*NoDeviceError' err; then
        echo "SKIPPED: NO USABLE VULKAN DEVICE"
        exit 77
    fi
    exit 1
fi
sed -n '/^```python$/,/^```$/{s/^.*print(.*# *//p;}' "$readme" >want
diff want out
