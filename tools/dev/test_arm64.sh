#!/bin/sh
# Builds vkattn for arm64 with a cross compiler and runs it by qemu on Mesa's CPU driver for arm64,
# which has vectors of 128 bits and subgroups of 4; for 32-bit ARM it only compiles the library.
# qemu makes the driver's compiler slow, so that a few cases and tests take minutes.
#
#   tools/dev/test_arm64.sh          a few cases; the tests of the system, files and headers
#   tools/dev/test_arm64.sh all      all cases, all tests of units, those of the API; an hour or more
#   tools/dev/test_arm64.sh full     also tests with lower limits, of rows, training, faults, files and the
#                                command, and the wheel in a Python of arm64; many hours. PART names the
#                                tests with a device that are run, as a pattern of ctest; default: all
#
# What the driver's compiler ends the process in is left out by name, in tests/CMakeLists.txt:
# ctest lists it as disabled or skipped.
#
# Exits 77 where the cross compiler or qemu is missing; tools/setup.sh ci installs them.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
scope=${1:-sample}
build=$root/build-arm64

for program in aarch64-linux-gnu-gcc qemu-aarch64 ctest; do
    if ! command -v "$program" >/dev/null; then
        echo "SKIPPED: THERE IS NO $program, NOTHING WAS TRIED ON ARM"
        exit 77
    fi
done

say() {
    echo "---- arm64: $*"
}

fail() {
    echo "arm64: FAILED: $*" >&2
    exit 1
}

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    "$@" >"$build.log" 2>&1 || {
        tail -n 40 "$build.log" >&2
        fail "$*"
    }
}

say "build"
tools/dev/arm64_tree.sh build-arm64-tree || {
    echo "SKIPPED: THE TREE OF ARM64 CANNOT BE MADE, NOTHING WAS TRIED ON ARM"
    exit 77
}
quietly cmake --preset arm64 -DVKATTN_WERROR=ON
case $scope in
all | full) set -- ;;
*) set -- --target vkattn vkattn_tool test_unit test_first_example ;;
esac
quietly cmake --build --preset arm64 --parallel "$(nproc)" "$@"

# 32 bits: handles of Vulkan are integers there, pointers and sizes half as long.
if command -v arm-linux-gnueabihf-gcc >/dev/null; then
    headers=$build/headers
    mkdir -p "$headers/cmake"
    for header in vulkan vk_video volk.h volk.c; do
        cp -rf "build-arm64-tree/usr/include/$header" "$headers/"
    done
    cat >"$headers/cmake/VulkanHeadersConfig.cmake" <<'END'
add_library(Vulkan::Headers INTERFACE IMPORTED)
get_filename_component(folder "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set_target_properties(Vulkan::Headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${folder}")
END
    quietly cmake -S . -B build-armhf -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_SYSTEM_NAME=Linux \
        -DCMAKE_SYSTEM_PROCESSOR=arm -DCMAKE_C_COMPILER=arm-linux-gnueabihf-gcc \
        -DVulkanHeaders_DIR="$headers/cmake" -DVOLK_INCLUDE_DIR="$headers" -DVKATTN_WERROR=ON \
        -DVKATTN_BUILD_TESTS=OFF -DVKATTN_BUILD_TOOLS=OFF -DVKATTN_BUILD_MPI=OFF
    quietly cmake --build build-armhf --parallel "$(nproc)"
    say "32-bit ARM compiles"
else
    echo "SKIPPED: THERE IS NO arm-linux-gnueabihf-gcc, 32-BIT ARM WAS NOT COMPILED"
fi

say "devices"
tools/dev/arm64.sh "$build/vkattn" devices >"$build/devices" || fail "devices"
grep -E '^[0-9]+: |driver|workgroup|has ' "$build/devices"

# The command, as scripts start it.
printf '#!/bin/sh\nexec "%s/tools/dev/arm64.sh" "%s/vkattn" "$@"\n' "$root" "$build" >"$build/vkattn-arm64"
chmod +x "$build/vkattn-arm64"

# The README's example in Python, by the wheel.
try_wheel() {
    quietly cmake --build --preset arm64 --target wheel
    rm -rf "$build/try"
    mkdir -p "$build/try"
    quietly unzip -q "$build"/vkattn-*.whl -d "$build/try"
    # shellcheck disable=SC2016
    sed -n '/^```python$/,/^```$/{/^```/d;p;}' README.md >"$build/try/example.py"
    # shellcheck disable=SC2016
    sed -n '/^```python$/,/^```$/{s/^.*print(.*# *//p;}' README.md >"$build/try/want"
    [ -s "$build/try/want" ] || fail "README.md has no example in Python"
    env -u VKATTN_LIBRARY PYTHONPATH="$build/try" PYTHONDONTWRITEBYTECODE=1 \
        tools/dev/arm64.sh build-arm64-tree/usr/bin/python3 "$build/try/example.py" >"$build/try/out" ||
        fail "the example by the wheel"
    diff "$build/try/want" "$build/try/out"
}

case $scope in
full)
    say "wheel"
    try_wheel
    say "cases"
    tools/dev/arm64.sh "$build/vkattn" check tests/cases | tail -n 1
    say "tests"
    ctest --preset arm64 -L 'unit|install' --output-on-failure
    say "command line"
    tests/cases/test_malformed.sh "$build/vkattn-arm64" "$build/tests/fuzz/seeds"
    tests/cases/test_cli.sh "$build/vkattn-arm64"
    say "tests with a device"
    ctest --preset arm64 -L 'gpu|limits|cases' -R "${PART:-.}" --output-on-failure
    ;;
all)
    say "cases"
    tools/dev/arm64.sh "$build/vkattn" check tests/cases | tail -n 1
    say "tests"
    ctest --preset arm64 -L 'unit|cases'
    ctest --preset arm64 -R '^(layer|views|runtime|submit|api_|cache|budget|extremes|interop)'
    ;;
*)
    say "cases, without the self-tests of kernels"
    set -- tests/cases/seeds/dead_row_zero.safetensors tests/cases/seeds/seed000_bias_causal.safetensors \
        tests/cases/seeds/seed004_self.safetensors tests/cases/quant/q8_0_1x64x256.safetensors
    tools/dev/arm64.sh "$build/vkattn" check --no-self-test --no-cache "$@"
    say "tests"
    ctest --preset arm64 -R '^(os|os_files|io_write|safetensors|npy|gguf|gguf_values|int4|case|tuning_profile|first_example|header_c11_.*|symbols)$'
    ;;
esac
say "all passed"
