#!/bin/sh
# Lines and branches of src/ that the tests reach, file by file; fails below 95 % of the lines or 90 %
# of the branches. Arguments go to ctest (-L unit: a quick look, without the limits).
#
# The last line counts every branch. The table and the limit leave out those of lines that are a call
# in a status macro, TRY(...), VK(...) or CHECK_ALLOC(...): their second way is the passing on of a
# failure. tests/faults makes each call of Vulkan and each allocation fail, of which most go that way.
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
macros='^\s*(TRY|VK|CHECK_ALLOC)\('
count --exclude-branches-by-pattern "$macros" --branches --output build-coverage/branches.txt
cat build-coverage/branches.txt
code=0
# shellcheck disable=SC2086 # a list of words
count --exclude-branches-by-pattern "$macros" $limits || code=$?
count --print-summary --output build-coverage/lines.txt
exit $code
