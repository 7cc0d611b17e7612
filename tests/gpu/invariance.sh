#!/bin/sh
# test_invariance as it is, and the hashes of its results with other numbers of the driver's threads:
#
#   invariance.sh TEST_INVARIANCE OPTION...
set -eu
test=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$test" "$@"
"$test" "$@" --print >"$work/threads"
for n in 0 1 3 8; do # LP_NUM_THREADS is of Mesa's CPU driver; 0: in the calling thread
    LP_NUM_THREADS=$n "$test" "$@" --print >"$work/threads.$n"
    diff "$work/threads" "$work/threads.$n" || {
        echo "FAIL other bits with LP_NUM_THREADS=$n"
        exit 1
    }
done
echo "$(wc -l <"$work/threads") configurations, the same bits with 0, 1, 3 and 8 threads"
