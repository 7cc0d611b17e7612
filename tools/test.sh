#!/bin/sh
# Installs what is missing, builds and runs the tests. Arguments go to ctest:
#
#   tools/test.sh -L unit        the tests that need no Vulkan device
#   tools/test.sh -R attention   those of that name
set -eu

cd -- "$(dirname -- "$0")/.."
tools/setup.sh build
echo "test: running the tests"
exec ctest --preset default "$@"
