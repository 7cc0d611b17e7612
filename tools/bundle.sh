#!/bin/sh
# Makes a folder that checks and measures vkattn on machines that cannot build it:
#
#   tools/bundle.sh OUT
#
# OUT holds the tools, the tests, the cases and OUT/run.sh, which runs the tests first and measures
# only where they pass. An x86-64 Linux with a Vulkan loader (libvulkan.so.1), a driver, and a glibc
# no older than the one built with is all it needs there: jansson and cmocka come along. What it
# found lies in OUT/results afterwards.
set -eu

out=${1:?usage: tools/bundle.sh OUT}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
if [ -n "$(ls -A "$out")" ] && [ ! -e "$out/run.sh" ]; then
    echo "bundle: $out is not empty, and no bundle" >&2
    exit 2
fi
cd "$root"
build=build-bundle

# Assertions print the names of sources: not those of this machine.
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" \
    "-DCMAKE_C_FLAGS=-ffile-prefix-map=$root=." >/dev/null
cmake --build "$build" --parallel "$(nproc)" >"$build/log" 2>&1 || {
    tail -n 40 "$build/log" >&2
    exit 1
}

rm -rf "$out/bin" "$out/lib" "$out/tests" "$out/cases" "$out/mnist" "$out/run.sh" "$out/measure.sh"
mkdir -p "$out/bin" "$out/lib" "$out/tests"
cp -L "$build/vkattn" "$build/vkattn-mnist" "$out/bin/"
cp -L "$build/libvkattn.so.0" "$out/lib/"
cp "$build/test_gpu" "$build/test_generate" "$build/check_kernels" "$out/tests/"
for library in jansson cmocka; do
    file=$(ldd "$out/bin/vkattn" "$out/tests/test_gpu" |
               awk -v name="lib$library.so" 'index($1, name) == 1 { print $3; exit }')
    [ -z "$file" ] || cp -L "$file" "$out/lib/"
done
cp -R tests/cases "$out/cases"
mkdir "$out/mnist"
cp tests/mnist/*.safetensors tests/mnist/*-ubyte "$out/mnist/"
cp tools/measure.sh "$out/measure.sh"

cat >"$out/run.sh" <<'RUN'
#!/bin/sh
# Runs the tests, then measures. Options go to measure.sh; VKATTN_DEVICE is the index of a device
# where there are several. What is printed lies in results/ afterwards too; exit 1 where a test
# failed.
cd -- "$(dirname -- "$0")" || exit 1
mkdir -p results
device=${VKATTN_DEVICE:+--device $VKATTN_DEVICE}
failed=0
one() { # one NAME COMMAND...: 77 is a skip
    name=$1
    shift
    "$@" >"results/$name.txt" 2>&1
    code=$?
    case $code in
    0) echo "passed   $name: $(tail -n 1 "results/$name.txt")" ;;
    77) echo "SKIPPED  $name: $(tail -n 1 "results/$name.txt")" ;;
    *)
        echo "FAILED   $name (exit $code), see results/$name.txt"
        failed=1
        ;;
    esac
}
# shellcheck disable=SC2086 # an option and its value
tests() {
    one devices bin/vkattn devices $device
    one check_auto bin/vkattn check cases $device
    one check_unfused bin/vkattn check cases --path unfused $device
    one check_fused bin/vkattn check cases/seeds --path fused $device
    one mnist bin/vkattn-mnist --model mnist/documented.safetensors $device \
        --images mnist/images-idx3-ubyte --labels mnist/labels-idx1-ubyte
    one cli cases/test_cli.sh bin/vkattn
    one check_kernels tests/check_kernels --seed 1 $device
    one generate tests/test_generate generate
    # case_bits looks for files where the sources lie.
    for test in $(tests/test_gpu 2>&1 | sed -n 's/^  //p' | grep -v '^case_bits$'); do
        case $test in
        random) one random tests/test_gpu random --seed 1 --count 200 ;;
        *) one "$test" tests/test_gpu "$test" ;;
        esac
    done
    return $failed
}
tests || {
    echo "run: tests failed, nothing is measured"
    exit 1
}
# shellcheck disable=SC2086
exec ./measure.sh --vkattn bin/vkattn $device --output results/results.md "$@"
RUN
chmod +x "$out/run.sh"
echo "bundle: $(du -sh "$out" | cut -f 1) in $out, run.sh there runs it"
