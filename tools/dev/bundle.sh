#!/bin/sh
# Makes a folder that checks and measures vkattn on machines that cannot build it:
#
#   tools/dev/bundle.sh OUT
#
# OUT holds the tools, the tests, the cases, the Python package, first_gpu.sh (what runs, what is right,
# how fast) and measure.sh. An x86-64 Linux with a Vulkan loader (libvulkan.so.1), a driver, and a glibc no older
# than the one built with is all it needs there: jansson and cmocka come along.
set -eu

out=${1:?usage: tools/dev/bundle.sh OUT}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
if [ -n "$(ls -A "$out")" ] && [ ! -e "$out/first_gpu.sh" ]; then
    echo "bundle: $out is not empty, and no bundle" >&2
    exit 2
fi
cd "$root"
build=build-bundle

# Assertions print the names of sources: not those of this machine.
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" \
    "-DCMAKE_C_FLAGS=-ffile-prefix-map=$root=." >/dev/null
cmake --build "$build" --parallel "$(nproc)" \
    --target vkattn_tool test_gpu check_kernels check_functions >"$build/log" 2>&1 || {
    tail -n 40 "$build/log" >&2
    exit 1
}

rm -rf "$out/bin" "$out/lib" "$out/tests" "$out/cases" "$out/python" "$out"/*.sh "$out"/*.py
mkdir -p "$out/bin" "$out/lib" "$out/tests"
cp -L "$build/vkattn" "$out/bin/"
cp -L "$build/libvkattn.so.0" "$build/libvkattn_modules.so" "$out/lib/" # libvkattn's modules, and the tests'
for program in test_gpu check_kernels check_functions; do
    cp "$build/$program" "$out/tests/"
done
strip "$out"/tests/* "$out"/lib/* "$out/bin/vkattn"
for library in jansson cmocka; do
    file=$(ldd "$out/bin/vkattn" "$out/tests/test_gpu" |
               awk -v name="lib$library.so" 'index($1, name) == 1 { print $3; exit }')
    [ -z "$file" ] || cp -L "$file" "$out/lib/"
done
cp -R tests/cases "$out/cases"
mkdir -p "$out/python"
cp -R python/vkattn "$out/python/"
cp include/vkattn/*.h "$out/python/vkattn/"
find "$out/python" -name __pycache__ -prune -exec rm -rf {} +
cp tools/dev/measure.sh tools/dev/first_gpu.sh tools/dev/torch_times.py tools/dev/torch_models.py "$out/"

echo "bundle: $(du -sh "$out" | cut -f 1) in $out, first_gpu.sh there runs it"
