#!/bin/sh
# Installs what is missing, builds and runs the tests. Arguments go to ctest:
#
#   tools/test.sh                every test; of the longest a sample
#   tools/test.sh quick          under a minute on a built tree: units, three cases of each kernel,
#                                fifty random problems, layers
#   tools/test.sh full           hours: every case of each kernel, more random problems, long soaks,
#                                faults at every call and allocation
#   tools/test.sh -L unit        the tests that need no Vulkan device
#   tools/test.sh -R attention   those of that name
set -eu

cd -- "$(dirname -- "$0")/.."
preset=default
case ${1:-} in
quick | full)
    preset=$1
    shift
    ;;
esac
tools/setup.sh test
echo "test: running the tests"
exec ctest --preset "$preset" --parallel "$(nproc)" "$@"
