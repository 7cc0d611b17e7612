#!/bin/sh
# Builds vkattn for arm64 with a cross compiler and runs it by qemu on Mesa's CPU driver for arm64,
# which has vectors of 128 bits and subgroups of 4; for 32-bit ARM it only compiles the library.
# qemu makes the driver's compiler slow, so that a few cases and tests take minutes.
#
#   tools/test_arm64.sh          a sample of the cases and tests
#   tools/test_arm64.sh all      all cases, all tests of units, those of the API; an hour or more
#
# Exits 77 where the cross compiler or qemu is missing; tools/setup.sh ci installs them.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
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
tools/arm64_tree.sh build-arm64-tree || {
    echo "SKIPPED: THE TREE OF ARM64 CANNOT BE MADE, NOTHING WAS TRIED ON ARM"
    exit 77
}
quietly cmake --preset arm64 -DVKATTN_WERROR=ON
quietly cmake --build --preset arm64 --parallel "$(nproc)"

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
tools/arm64.sh "$build/vkattn" devices >"$build/devices" || fail "devices"
grep -E '^[0-9]+: |driver|workgroup|has ' "$build/devices"

case $scope in
all)
    say "cases"
    tools/arm64.sh "$build/vkattn" check tests/cases | tail -n 1
    say "tests"
    ctest --preset arm64 -L 'unit|cases'
    ctest --preset arm64 -R '^(layer|views|runtime|submit|api_|cache|budget|extremes|interop)'
    ;;
*)
    say "cases, without the self-tests of kernels"
    set -- tests/cases/seeds/dead_row_zero.safetensors tests/cases/seeds/seed000_bias_causal.safetensors \
        tests/cases/seeds/seed004_self.safetensors tests/cases/quant/q8_0_1x64x256.safetensors
    tools/arm64.sh "$build/vkattn" check --no-self-test --no-cache "$@"
    say "tests"
    # Those of many thousand numbers take minutes by qemu.
    ctest --preset arm64 -L unit -E '^(index|verdict|shape|dtype|block)$'
    ctest --preset arm64 -R '^(readme_example|header_c11_.*|symbols.*|api_errors|api_errors_plan)$'
    ;;
esac
say "all passed"
