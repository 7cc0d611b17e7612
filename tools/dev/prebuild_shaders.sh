#!/bin/sh
# Makes shaders/prebuilt: SPIR-V of the kernels that Debian 12's shader compiler cannot compile. Run
# it after every change to their sources or includes, and commit the result.
#
#   tools/dev/prebuild_shaders.sh [COMPILER [FOLDER]]
#
# COMPILER is glslangValidator 16 or later, by default the one in PATH; or the folder of a Debian
# tree with glslang-tools and spirv-tools, whose programs run on this machine's files, without root:
#
#   tools/dev/sid_tree.sh build-sid
#   tools/dev/prebuild_shaders.sh build-sid
#
# spirv-val is $SPIRV_VAL, else the one beside the compiler, else the one in PATH. FOLDER is where
# the modules go, by default shaders/prebuilt. The same compiler makes the same bytes.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
compiler=${1:-glslangValidator}
out=${2:-$root/shaders/prebuilt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "prebuild_shaders: $*" >&2
    exit 1
}

# use_tree TREE: writes programs into $work that run those of TREE with TREE's libraries.
use_tree() {
    TREE=$(CDPATH='' cd -- "$1" && pwd)
    LIBRARIES=
    for folder in "$TREE"/usr/lib/*-linux-gnu*; do
        LIBRARIES=$LIBRARIES:$folder
    done
    for LOADER in "$TREE"/usr/lib64/ld-linux-*.so.* "$TREE"/usr/lib/ld-linux-*.so.*; do
        [ ! -e "$LOADER" ] || break
    done
    if [ ! -e "$LOADER" ] || [ ! -e "$TREE/usr/bin/spirv-val" ]; then
        fail "$1 is no Debian tree with glslang-tools and spirv-tools"
    fi
    export TREE LIBRARIES LOADER
    cat >"$work/glslangValidator" <<'EOF'
#!/bin/sh
exec "$LOADER" --library-path "${LIBRARIES#:}" "$TREE/usr/bin/${0##*/}" "$@"
EOF
    chmod +x "$work/glslangValidator"
    cp "$work/glslangValidator" "$work/spirv-val"
    compiler=$work/glslangValidator
}

if [ -d "$compiler" ]; then
    use_tree "$compiler"
fi
compiler=$(command -v "$compiler") || fail "there is no ${1:-glslangValidator}"
version=$("$compiler" --version | sed -n 's/^Glslang Version: [0-9]*:\([0-9]*\)\..*/\1/p')
[ "${version:-0}" -ge 16 ] ||
    fail "$compiler is glslang ${version:-of unknown version}; 16 or later is needed." \
         "Name one, or a Debian sid tree: see the head of tools/dev/prebuild_shaders.sh"
validator=${SPIRV_VAL:-$(dirname -- "$compiler")/spirv-val}
validator=$(command -v "$validator" || command -v spirv-val) || fail "there is no spirv-val"

cmake -DGLSLANG="$compiler" -DSPIRV_VAL="$validator" -DSHADERS="$root/shaders" -DOUT="$out" \
    -P "$root/cmake/make_prebuilt.cmake"
echo "prebuild_shaders: $(sed -n 's/^compiler //p' "$out/manifest.txt"), into $out"
