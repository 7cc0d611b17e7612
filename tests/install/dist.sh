#!/bin/sh
# What tools/dev/dist.sh left in a folder, looked at and used as a user would:
#
#   tests/install/dist.sh [--twice] DIST
#
# Checksums; the files of the source archive; the kernels, platform and contents of each wheel; wheels
# of Linux imported by a Python of x86-64 and, by qemu, of arm64; the DLL of the one of Windows loaded
# by a program that does not link it, and a program that finds the package of the zip, both by Wine;
# lintian of the Debian packages. --twice: all is made again in another folder, and every byte
# compared. What a missing program leaves out is said.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
twice=
if [ "${1:-}" = --twice ]; then
    twice=1
    shift
fi
dist=$(CDPATH='' cd -- "${1:?usage: tests/install/dist.sh [--twice] DIST}" && pwd)
if [ -z "${VKATTN_UNDER_XVFB:-}" ] && command -v xvfb-run >/dev/null; then # for Wine's Vulkan
    VKATTN_UNDER_XVFB=1 exec xvfb-run -a "$0" ${twice:+--twice} "$dist"
fi
work=$root/build-dist/try
rm -rf "$work"
mkdir -p "$work"

say() {
    echo "---- dist: $*"
}

fail() {
    echo "dist: FAILED: $*" >&2
    exit 1
}

quietly() {
    "$@" >"$work/log" 2>&1 </dev/null || {
        tail -n 40 "$work/log" >&2
        fail "$*"
    }
}

# only PATTERN: the one file of $dist that is named so.
only() {
    found=$(find "$dist" -name "$1")
    [ -f "$found" ] || fail "not one $1: $found"
    echo "$found"
}

# The README's Python example, and what it says that it prints.
# shellcheck disable=SC2016
sed -n '/^```python$/,/^```$/{/^```/d;p;}' README.md >"$work/example.py"
# shellcheck disable=SC2016
sed -n '/^```python$/,/^```$/{s/^.*print(.*# *//p;}' README.md >"$work/want"
[ -s "$work/want" ] || fail "README.md has no example in Python"

# wheel KIND PATTERN LIBRARY BUILD: unpacks it into $work/KIND, and looks for what has to be in it.
wheel() {
    file=$(only "$2")
    quietly unzip -o "$file" -d "$work/$1"
    binaries=$(find "$work/$1" -name '*.so*' -o -name '*.dll' -o -name '*.pyd')
    [ "$binaries" = "$work/$1/vkattn/$3" ] || fail "$file has the libraries $binaries"
    quietly cmake -D SOURCE="$root" -D MODULES="$root/build-dist/$4/shaders" \
        -D LIBRARY="$binaries" -P tests/install/kernels.cmake
    for text in 'Project-URL: Source' 'Classifier: Typing' 'help(vkattn)'; do
        grep -q "$text" "$work/$1"/vkattn-*.dist-info/METADATA || fail "METADATA of $file lacks '$text'"
    done
    for text in 'Permission is hereby granted' volk; do
        grep -q "$text" "$work/$1"/vkattn-*.dist-info/licenses/LICENSE ||
            fail "the licence in $file lacks '$text'"
    done
    if [ -n "$auditwheel" ] && [ "$1" != windows ]; then
        tag=${file##*-none-}
        "$auditwheel" show "$file" >"$work/$1.audit" || fail "auditwheel show $file"
        tr '\n' ' ' <"$work/$1.audit" | grep -q "platform tag: *\"${tag%.whl}\"" || {
            cat "$work/$1.audit"
            fail "auditwheel has another platform for $file"
        }
    fi
}

say "checksums"
(cd "$dist" && quietly sha256sum --strict --check SHA256SUMS)
(cd "$dist" && find . -type f ! -name SHA256SUMS | wc -l) >"$work/files"
[ "$(cat "$work/files")" -eq "$(wc -l <"$dist/SHA256SUMS")" ] || fail "a file without a checksum"

say "source archive"
tar -tzf "$(only 'vkattn-*.tar.gz')" | grep -v '/$' | sed 's|^[^/]*/||' | sort >"$work/archive"
{ git ls-tree -r --name-only HEAD; echo PKG-INFO; } | sort | diff - "$work/archive" || fail "files of the archive"

auditwheel=
if /usr/bin/python3 -m venv "$work/audit" >/dev/null 2>&1 &&
    "$work/audit/bin/pip" install -q --disable-pip-version-check auditwheel==6.8.2 \
        >"$work/log" 2>&1; then
    auditwheel=$work/audit/bin/auditwheel
else
    echo "SKIPPED: auditwheel cannot be installed, and did not judge the platforms" >&2
fi

say "wheel, x86-64"
wheel linux 'vkattn-*-manylinux_2_[12]*_x86_64.whl' libvkattn.so.0 wheel-x86_64
quietly /usr/bin/python3 -m venv --system-site-packages "$work/python"
quietly "$work/python/bin/pip" install --no-index --no-deps "$(only 'vkattn-*-manylinux*_x86_64.whl')"
(cd "$work" && env -u VKATTN_LIBRARY -u PYTHONPATH python/bin/python example.py) >"$work/out" ||
    fail "the example by the wheel of x86-64"
diff "$work/want" "$work/out"

say "wheel, arm64"
wheel arm64 'vkattn-*-manylinux_2_[12]*_aarch64.whl' libvkattn.so.0 wheel-aarch64
if command -v qemu-aarch64 >/dev/null && tools/dev/arm64_tree.sh build-arm64-tree; then
    env -u VKATTN_LIBRARY PYTHONPATH="$work/arm64" PYTHONDONTWRITEBYTECODE=1 \
        tools/dev/arm64.sh build-arm64-tree/usr/bin/python3 "$work/example.py" >"$work/out" ||
        fail "the example by the wheel of arm64"
    diff "$work/want" "$work/out"
else
    echo "SKIPPED: without qemu or its tree, no Python of arm64 imported the wheel" >&2
fi

say "wheel and zip, Windows"
wheel windows 'vkattn-*-win_amd64.whl' vkattn.dll windows
# No Python of Windows loads it here: what the package reads of its headers has to be in the DLL.
quietly cmake -D OBJDUMP=x86_64-w64-mingw32-objdump -D LIBRARY="$work/windows/vkattn/vkattn.dll" \
    -D FOLDER="$work/windows/vkattn" -D HEADERS=vkattn,vkattn_cache,vkattn_model,vkattn_train \
    -P tests/install/symbols.cmake
quietly unzip "$(only 'vkattn-*-windows-x86_64.zip')" -d "$work/zip"
installed=$(find "$work/zip" -mindepth 1 -maxdepth 1)
for file in README.md LICENSE bin/vkattn.exe lib/libvkattn.dll.a lib/cmake/vkattn/vkattn-config.cmake; do
    [ -s "$installed/$file" ] || fail "the zip lacks $file"
done
quietly cmake -D INPUT=docs/start.md -D OUTPUT="$work/first_example.c" -P tests/install/extract.cmake
quietly x86_64-w64-mingw32-gcc -std=c11 -static -I"$installed/include" -I"$work" \
    tests/windows/load.c -o "$work/load.exe"
quietly cmake -S tests/install/consumer -B "$work/consumer" \
    -DCMAKE_TOOLCHAIN_FILE="$root/cmake/windows.cmake" \
    -DVKATTN_WINDOWS_LIBRARIES="$root/build-windows-libraries" \
    -DCMAKE_FIND_ROOT_PATH="$installed"
quietly cmake --build "$work/consumer"
cp "$installed/bin/vkattn.dll" "$work/consumer/"
if command -v wine >/dev/null && command -v Xvfb >/dev/null; then
    export WINEPREFIX="$work/wine" WINEDEBUG=-all
    trap 'wineserver -k >/dev/null 2>&1 || true' EXIT
    quietly wineboot -i
    dll=$(echo "Z:$work/windows/vkattn/vkattn.dll" | tr / "\\\\")
    tools/dev/wine.sh "$work/load.exe" "$dll" | tr -d '\r' >"$work/out" || fail "load.exe"
    grep -qx 'VKA_OK: 0.000 0.731 1.851 2.948' "$work/out" || fail "load.exe: $(cat "$work/out")"
    for program in consumer consumer_static consumer_cxx; do
        quietly tools/dev/wine.sh "$work/consumer/$program.exe"
    done
    quietly tools/dev/wine.sh "$installed/bin/vkattn.exe" check tests/cases/seeds/seed004_self.safetensors
else
    echo "SKIPPED: without Wine and Xvfb, no program of Windows was run" >&2
fi

for release in "$dist"/debian-*; do
    say "packages of ${release##*/}"
    tests/install/lintian.sh "$release" || [ $? -eq 77 ] || fail "lintian"
done

if [ -n "$twice" ]; then
    say "all again, in another folder"
    again=$(mktemp -d)
    git clone -q "$root" "$again/another-name"
    cp -a build-arm64-tree "$again/another-name/"
    (cd "$again/another-name" && CCACHE_DISABLE=1 tools/dev/dist.sh --output "$again/out") >"$work/log" 2>&1 ||
        fail "$(tail -n 20 "$work/log")"
    (cd "$again/out" && find . -type f ! -name SHA256SUMS) >"$work/files"
    while read -r file; do
        cmp "$again/out/$file" "$dist/$file" || fail "$file differs from build to build"
    done <"$work/files"
    rm -rf "$again"
    echo "$(wc -l <"$work/files") files, the same bytes"
fi
say "all passed"
