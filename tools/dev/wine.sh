#!/bin/sh
# Runs a Windows program by Wine, quietly, in a prefix of its own:
#
#   tools/dev/wine.sh PROGRAM.exe [ARGUMENT]...
#
# What it prints goes through files: the services that Wine starts beside a program keep its streams
# open, and whoever reads a pipe of theirs would wait for them.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
export WINEPREFIX="${WINEPREFIX:-$root/build-windows/wine}" WINEDEBUG=-all
export LC_ALL=C.UTF-8 # of the names of files
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wine "$@" >"$work/out" 2>"$work/err"
code=$?
# Once in some hundred starts Wine ended before the program began, with status 1 and not a word, which
# no program here does: it is started again.
if [ "$code" -eq 1 ] && [ ! -s "$work/out" ] && [ ! -s "$work/err" ]; then
    wine "$@" >"$work/out" 2>"$work/err"
    code=$?
fi
cat "$work/err" >&2
cat "$work/out"
exit "$code"
