#!/bin/sh
# Lines and branches of src/ that the tests reach, file by file; fails below 95 % of the lines or 90 %
# of the branches, counting each of them. Arguments go to ctest (-L unit: a quick look, without the
# limits).
set -eu

cd -- "$(dirname -- "$0")/.."
cmake --preset coverage >/dev/null
cmake --build --preset coverage --parallel "$(nproc)" >/dev/null
find build-coverage -name '*.gcda' -delete
ctest --test-dir build-coverage --output-on-failure -LE 'install|compile' "$@"
limits="--fail-under-line 95 --fail-under-branch 90"
if [ $# -gt 0 ]; then
    limits=
elif build-coverage/validation_canary core >/dev/null; then # where the layer is installed
    build-coverage/vkattn check tests/cases/seeds --validate --no-cache >/dev/null
fi
count() {
    gcovr --root . --filter src/ --exclude-throw-branches "$@" build-coverage
}
count --branches --output build-coverage/branches.txt
cat build-coverage/branches.txt
# shellcheck disable=SC2086 # a list of words
count $limits --print-summary
