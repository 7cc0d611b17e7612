#!/bin/sh
# circles.py finds what it is for: a circle of includes, a circle of calls, a circle of modules, of
# types too, and functions that another's header declares, each put into a small tree that has none.
#
#   circles_canary.sh COMPILER PYTHON CIRCLES.PY
set -eu

cc=$1 python=$2 circles=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A tree: high stands on low, by an include and a call.
plant() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/src/core" "$work/tree/tools" "$work/tree/examples" "$work/tree/python/vkattn"
    cd "$work/tree"
    echo 'int low(int);' >src/core/low.h
    printf '#include "low.h"\nint low(int x) { return x; }\n' >src/core/low.c
    echo 'int high(int);' >src/core/high.h
    printf '#include "high.h"\n#include "core/low.h"\nint high(int x) { return low(x); }\n' >src/core/high.c
    echo 'from . import _low' >python/vkattn/__init__.py
    echo 'import os' >python/vkattn/_low.py
    echo 'from ._low import os' >python/vkattn/_high.py
}

check() { # check [OPTION...]: compiles the tree and judges it
    rm -rf "$work/build"
    mkdir -p "$work/build/CMakeFiles/all.dir/src/core"
    for file in src/core/*.c; do
        "$cc" -Isrc -c "$file" -o "$work/build/CMakeFiles/all.dir/$file.o"
    done
    "$python" -B "$circles" "$work/build" --root "$work/tree" "$@" >"$work/log" 2>&1
}

expect() { # expect WORDS [OPTION...]: the check fails with these
    words=$1
    shift
    if check "$@"; then
        cat "$work/log" >&2
        echo "passed, though there is: $words" >&2
        exit 1
    fi
    grep -q -- "$words" "$work/log" || {
        cat "$work/log" >&2
        echo "does not say: $words" >&2
        exit 1
    }
}

plant
check --least-objects 2 --most-foreign 0 || {
    cat "$work/log" >&2
    exit 1
}
expect "only 2 objects are built"

plant
echo '#include "core/high.h"' >>src/core/low.h
expect "src/core/low -> src/core/high: includes src/core/high.h" --least-objects 2

plant
printf 'int high(int);\nint low(int x) { return x ? x : high(x); }\n' >src/core/low.c
expect "src/core/low -> src/core/high: names high" --least-objects 2

# Longer than two, from a header that no .c has.
plant
echo '#include "core/low.h"' >src/core/types.h
printf '#include "core/types.h"\nint low(int x) { return x; }\n' >src/core/low.c
expect "src/core/types -> src/core/low: includes src/core/low.h" --least-objects 2

plant
echo 'from vkattn._high import os' >python/vkattn/_low.py
expect "Python: a circle of 2 files" --least-objects 2

plant
printf 'import typing\nif typing.TYPE_CHECKING:\n    from . import _high\n' >python/vkattn/_low.py
expect "vkattn._low -> vkattn._high: imports, line 3" --least-objects 2

plant
echo 'int high(int); int low(int);' >src/core/low.h
: >src/core/high.h
expect "high of src/core/high.c: src/core/low.h" --least-objects 2 --most-foreign 49
