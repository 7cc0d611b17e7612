#!/bin/sh
# layers.sh finds what it is for: an include upwards, in src and in src/op, a call upwards, a folder
# without a place, a system's header, each put into a tree that has none.
#
#   layers_canary.sh COMPILER LAYERS.SH SOURCE OBJECT...
set -eu

cc=$1 layers=$2 source=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$source/src" "$work/src"
objects=$work/vkattn_objects.dir
mkdir -p "$objects/core"

expect() { # expect WORDS OBJECT...: the check fails with these
    words=$1
    shift
    if sh "$layers" "$work" "$@" >"$work/log" 2>&1; then
        echo "passed, though there is: $words" >&2
        exit 1
    fi
    grep -q -- "$words" "$work/log" || {
        cat "$work/log" >&2
        echo "does not say: $words" >&2
        exit 1
    }
}

compile() { # compile FILE CODE
    echo "$2" | "$cc" -x c -c - -o "$objects/$1.c.o"
}

sh "$layers" "$work" "$@"

compile core/canary 'void plan_read_caps(void *); void canary(void) { plan_read_caps(0); }'
expect "core/canary.c stands below plan/plan.c, but calls plan_read_caps" "$@" "$objects/core/canary.c.o"

echo '#include <unistd.h>' >"$work/src/gpu/canary.h"
expect "gpu/canary.h includes <unistd.h>: ask core/os.h" "$@"

echo '#include "op/common/check.h"' >"$work/src/gpu/canary.h"
expect "gpu/canary.h stands below op/common/check.h, but includes it" "$@"
rm "$work/src/gpu/canary.h"

echo '#include "op/attention/pass.h"' >"$work/src/op/cache/canary.h"
expect "op/cache/canary.h stands below op/attention/pass.h, but includes it" "$@"

mkdir "$work/src/op/canary"
mv "$work/src/op/cache/canary.h" "$work/src/op/canary"
expect "op/canary has no place in the order of folders" "$@"
