#!/bin/sh
# Fails on an include or a call from a lower folder of src to a higher one, on a circle of files, by
# their includes or by their calls, and on a system's header included anywhere but in core/os*.
#
#   layers.sh SOURCE OBJECT...
#
# SOURCE is the project; an object is named as CMake does, .../vkattn_objects.dir/FOLDER/FILE.c.o.
# A call is a symbol that one object lacks and another defines.
set -eu

src=$1/src
shift
work=$(mktemp)
trap 'rm -f "$work"' EXIT

# Lines of "i FILE FILE" for includes; "s FILE HEADER" for those of a system; "u FILE SYMBOL" for one
# that it lacks, "d" that it defines.
(cd "$src" && grep -rE '^#include "[a-z]+/' core gpu kernel plan op selftest --include='*.[ch]') |
    sed -E 's/^([^:]*):#include "([^"]*)".*/i \1 \2/' >"$work"
system='dirent|dlfcn|fcntl|poll|pthread|sched|signal|sys/[a-z]+|time|unistd|windows'
(cd "$src" && grep -rE "^#include <($system)\\.h>" . --include='*.[ch]') |
    sed -E 's/^\.\/([^:]*):#include <([^>]*)>.*/s \1 \2/' >>"$work"
nm -A -P "$@" | sed -E 's,^.*vkattn_objects\.dir/(\./)?,,' | awk '
    $1 !~ /^(core|gpu|kernel|plan|op|selftest)\// { next }
    { sub(/\.o:$/, "", $1) }
    $3 == "U" { print "u", $1, $2 }
    $3 ~ /^[TDRBC]$/ { print "d", $1, $2 }' >>"$work"

awk '
    function layer(file) {
        sub(/\/.*/, "", file)
        return index("core gpu kernel plan op selftest", file)
    }
    function edge(kind, from, to, why,    key) {
        key = kind from
        if (from == to || (key, to) in edges)
            return
        edges[key, to] = 1
        after[key] = after[key] " " to
        starts[key] = 1
        if (layer(to) > layer(from)) {
            print from " stands below " to ", but " why
            wrong++
        }
    }
    # Depth first; path: the files on the way here, each between spaces.
    function visit(kind, file, path,    n, list, i, at) {
        at = index(path, " " file " ")
        if (at) {
            print "a circle of " (kind == "i" ? "includes" : "calls") ":" substr(path, at) file
            circles++
            return
        }
        if (done[kind file] || circles >= 8)
            return
        n = split(after[kind file], list, " ")
        for (i = 1; i <= n; i++)
            visit(kind, list[i], path file " ")
        done[kind file] = 1
    }
    $1 == "i" { edge("i", $2, $3, "includes it") }
    $1 == "s" && $2 !~ /^core\/os(_[a-z_]+)?\.[ch]$/ {
        print $2 " includes <" $3 ">: ask core/os.h"
        wrong++
    }
    $1 == "s" { systems++ }
    $1 == "d" { where[$3] = $2 }
    $1 == "u" { uses[$2 SUBSEP $3] = 1 }
    END {
        for (use in uses) {
            split(use, part, SUBSEP)
            if (part[2] in where && part[1] != where[part[2]]) {
                edge("c", part[1], where[part[2]], "calls " part[2])
                calls++
            }
        }
        for (start in starts)
            visit(substr(start, 1, 1), substr(start, 2), " ")
        print calls + 0 " calls between files, " wrong + 0 " upward, " circles + 0 " circles"
        exit wrong || circles || calls < 100 || !systems
    }' "$work"
