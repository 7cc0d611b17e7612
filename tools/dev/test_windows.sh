#!/bin/sh
# Builds vkattn for Windows with mingw-w64 and runs it by Wine on a Vulkan driver of this machine: what
# differs there from other systems. The seeds, the tests of the system, files, loading and headers, the
# command line, a program that finds the installed package, paths in other letters, a cache that
# cannot be written.
#
#   tools/dev/test_windows.sh          these
#   tools/dev/test_windows.sh all      every case and test
#
# Exits 77 where mingw-w64, Wine or a display is missing; tools/setup.sh ci installs them.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
scope=${1:-sample}
build=$root/build-windows
work=$build/try

for program in x86_64-w64-mingw32-gcc wine wineboot wineserver xvfb-run ctest; do
    if ! command -v "$program" >/dev/null; then
        echo "SKIPPED: THERE IS NO $program, NOTHING WAS TRIED ON WINDOWS"
        exit 77
    fi
done
if [ -z "${VKATTN_UNDER_XVFB:-}" ]; then # Wine's Vulkan asks for a display
    VKATTN_UNDER_XVFB=1 exec xvfb-run -a "$0" "$scope"
fi

say() {
    echo "---- windows: $*"
}

fail() {
    echo "windows: FAILED: $*" >&2
    exit 1
}

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    "$@" >"$build.log" 2>&1 || {
        tail -n 40 "$build.log" >&2
        fail "$*"
    }
}

# run PROGRAM...: by Wine, in $work.
run() {
    (cd "$work" && "$root/tools/dev/wine.sh" "$@")
}

say "build"
tools/dev/windows_libraries.sh build-windows-libraries || {
    echo "SKIPPED: JANSSON AND CMOCKA CANNOT BE BUILT FOR WINDOWS, NOTHING WAS TRIED THERE"
    exit 77
}
quietly cmake --preset windows -DVKATTN_WERROR=ON
case $scope in
all) set -- ;;
*) set -- --target vkattn vkattn_archive vkattn_io_archive vkattn_tool vkattn-mnist test_unit test_load \
    test_first_example test_portability test_interop ;;
esac
quietly cmake --build --preset windows --parallel "$(nproc)" "$@"

# What a program of ours needs of the system: its own DLLs.
for file in vkattn.dll vkattn.exe vkattn-mnist.exe; do
    others=$(x86_64-w64-mingw32-objdump -p "$build/$file" | sed -n 's/.*DLL Name: //p' |
        grep -viE '^(kernel32|msvcrt|shell32|vkattn)\.dll$' || true)
    [ -z "$others" ] || fail "$file needs $others"
done

export WINEPREFIX="$build/wine" WINEDEBUG=-all
rm -rf "$work"
mkdir -p "$work"
wineserver -p >/dev/null 2>&1 || true # stays, so that not each program waits for a start
trap 'wineserver -k >/dev/null 2>&1 || true' EXIT
quietly wineboot -i

say "devices"
run "$build/vkattn.exe" devices >"$work/devices" || fail "devices"
grep -E '^[0-9]+: |driver|has ' "$work/devices"

say "cases"
cases=$root/tests/cases
[ "$scope" = all ] || cases=$cases/seeds
run "$build/vkattn.exe" check "$cases" >"$work/check" 2>&1 || {
    grep -v '^PASS' "$work/check"
    fail "check"
}
tail -n 1 "$work/check"

say "tests"
case $scope in
all) ctest --preset windows --output-on-failure ;;
*)
    ctest --preset windows -R "^(os|os_files|status|vk|tuning_profile|device_caps|device_kernels|io_write|io_place|safetensors|\
npy|gguf|gguf_values|gguf_write|int4|case|load|first_example|portability|interop|header_c.*|symbols.*)$"
    ;;
esac

say "command line"
printf '#!/bin/sh\nexec "%s/tools/dev/wine.sh" "%s/vkattn.exe" "$@"\n' "$root" "$build" >"$work/vkattn"
chmod +x "$work/vkattn"
VKATTN_TEST_SYSTEM=windows tests/cases/test_cli.sh "$work/vkattn"

say "a program that finds the installed package"
quietly cmake --install "$build" --prefix "$work/installed"
quietly cmake -G Ninja -S tests/install/consumer -B "$work/consumer" \
    -DCMAKE_TOOLCHAIN_FILE="$root/cmake/windows.cmake" \
    -DVKATTN_WINDOWS_LIBRARIES="$root/build-windows-libraries" \
    -DCMAKE_FIND_ROOT_PATH="$work/installed"
quietly cmake --build "$work/consumer"
cp "$work/installed/bin/vkattn.dll" "$work/consumer/"
for program in consumer consumer_static consumer_cxx; do
    run "$work/consumer/$program.exe" || fail "$program"
done

say "paths in other letters"
letters=$(printf 'caf\303\251\320\226\346\274\242')
folder="$work/$letters"
mkdir -p "$folder"
cp tests/cases/seeds/seed004_self.safetensors "$folder/$letters.safetensors"
# The layer's query as an npy file.
python3 - "$folder" <<'END'
import json, struct, sys
folder = sys.argv[1]
name = folder.rsplit("/", 1)[1]
data = open(f"{folder}/{name}.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
query = json.loads(data[8:8 + size])["query"]
begin, end = query["data_offsets"]
header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(query["shape"])})
header = header.ljust(117) + "\n"
with open(f"{folder}/{name}.npy", "wb") as out:
    out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    out.write(data[8 + size + begin:8 + size + end])
END
windows_path() {
    echo "Z:$1" | tr / '\\'
}
# By cmd, as Wine sets LOCALAPPDATA itself; so no argument may have a blank.
with_cache() { # with_cache FOLDER ARGUMENT...: vkattn.exe, with FOLDER as the one of user's caches
    cache=$(windows_path "$1")
    shift
    run cmd /c "set LOCALAPPDATA=$cache&& $(windows_path "$build/vkattn.exe") $*"
}
with_cache "$folder" run "$letters/$letters.safetensors" --query "$letters/$letters.npy" \
    --output "$letters/y.npy" --html "$letters/$letters.html" >"$work/out" 2>&1 || {
    cat "$work/out"
    fail "run with $letters"
}
[ -s "$folder/y.npy" ] || fail "no output in $letters"
[ -s "$folder/$letters.html" ] || fail "no page in $letters"
ls "$folder"/vkattn/pipelines-*.bin >/dev/null || fail "no cache in $letters"

say "a cache that cannot be written" # /proc, as to root a folder without permissions is none
with_cache /proc run "$letters/$letters.safetensors" --query "$letters/$letters.npy" \
    --output "$letters/z.npy" >"$work/out" 2>&1 || {
    cat "$work/out"
    fail "run without a cache"
}
cmp "$folder/y.npy" "$folder/z.npy" || fail "another output without a cache"
say "all passed"
