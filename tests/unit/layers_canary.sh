#!/bin/sh
# layers.sh finds what it is for: an include upwards, a call upwards, a circle of calls, a circle of
# includes, a system's header, each put into a tree that has none.
#
#   layers_canary.sh COMPILER LAYERS.SH SOURCE OBJECT...
set -eu

cc=$1 layers=$2 source=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$source/src" "$work/src"
objects=$work/vkattn_objects.dir
mkdir -p "$objects/core" "$objects/gpu"

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

compile gpu/canary_a 'void canary_b(void); void canary_a(void) { canary_b(); }'
compile gpu/canary_b 'void canary_a(void); void canary_b(void) { canary_a(); }'
expect "a circle of calls: gpu/canary_" "$@" "$objects/gpu/canary_a.c.o" "$objects/gpu/canary_b.c.o"

echo '#include <unistd.h>' >"$work/src/gpu/canary.h"
expect "gpu/canary.h includes <unistd.h>: ask core/os.h" "$@"

echo '#include "op/check.h"' >"$work/src/gpu/canary.h"
expect "gpu/canary.h stands below op/check.h, but includes it" "$@"

echo '#include "gpu/canary_2.h"' >"$work/src/gpu/canary.h"
echo '#include "gpu/canary.h"' >"$work/src/gpu/canary_2.h"
expect "a circle of includes: gpu/canary" "$@"
