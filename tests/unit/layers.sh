#!/bin/sh
# Fails on an include or a call from a lower folder of src, or of src/op, to a higher one, and on a
# system's header included anywhere but in core/os*. Circles of files are for circles.py.
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
    BEGIN {
        n = split("grids params core gpu kernel plan op/common op/matmul op/rotary op/rows op/cache op/state " \
                  "op/attention op/layer op/train selftest", names, " ")
        for (i = 1; i <= n; i++)
            place[names[i]] = i
    }
    function layer(file,    part, name) {
        split(file, part, "/")
        name = part[1] == "op" ? "op/" part[2] : part[1]
        if (!(name in place)) {
            print file ": " name " has no place in the order of folders"
            place[name] = 0
            wrong++
        }
        return place[name]
    }
    function edge(from, to, why) {
        if (from == to || (from, to, why) in edges)
            return
        edges[from, to, why] = 1
        if (layer(to) > layer(from)) {
            print from " stands below " to ", but " why
            wrong++
        }
    }
    $1 == "i" { edge($2, $3, "includes it") }
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
                edge(part[1], where[part[2]], "calls " part[2])
                calls++
            }
        }
        print calls + 0 " calls between files, " wrong + 0 " upward"
        exit wrong || calls < 100 || !systems
    }' "$work"
