#!/bin/sh
# Compiles the library, the commands left out, for systems that no machine here has, by the clang of PyPI's
# package ziglang, and compares what it exports with the headers. Nothing of it is run.
#
#   tools/dev/other_systems.sh [TARGET...]
#
# TARGET is MACHINE-SYSTEM as zig names them; without any, Linux with musl (as Alpine has), FreeBSD and macOS.
# Modules of the build in build/ are taken where it has them: VKATTN_SPIRV_FROM names another folder.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
kernels=${VKATTN_SPIRV_FROM:-}
[ -n "$kernels" ] || [ ! -e build/shaders/kernels_spv.c ] || kernels=$root/build/shaders
[ $# -gt 0 ] || set -- x86_64-linux-musl aarch64-linux-musl x86_64-freebsd aarch64-macos x86_64-macos

fail() {
    echo "other_systems: $*" >&2
    exit 1
}

command -v llvm-nm >/dev/null || fail "llvm-nm is missing: apt-get install llvm"
[ -x build-zig/bin/python ] || python3 -m venv build-zig
build-zig/bin/pip install -q --disable-pip-version-check ziglang==0.17.1
for target in "$@"; do
    build=$root/build-other/$target
    cmake --preset manylinux -B "$build" -DVKATTN_ZIG="$root/build-zig/bin/python" \
        -DVKATTN_TARGET="$target" -DVKATTN_WERROR=ON -DVKATTN_SPIRV_FROM="$kernels" >/dev/null
    cmake --build "$build" --parallel "$(nproc)" --target vkattn vkattn_archive vkattn_io_archive \
        >"$build/log" || fail "$target: $(grep -m 3 error "$build/log" || tail -3 "$build/log")"
    library=$(find "$build" -maxdepth 1 '(' -name libvkattn.so -o -name libvkattn.dylib ')')
    cmake -D NM=llvm-nm -D LIBRARY="$library" -D FOLDER=include/vkattn \
        -D HEADERS=vkattn,vkattn_vulkan,vkattn_model,vkattn_train,vkattn_io -P tests/install/symbols.cmake \
        2>"$build/symbols" || fail "$target: $(cat "$build/symbols")"
    echo "$target: compiled"
done
