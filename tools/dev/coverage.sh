#!/bin/sh
# Lines and branches of src/ that the tests reach, file by file; fails below 95 % of the lines or
# 90 % of the branches, counting each of them. Whatever ran in build-coverage counts, once:
#
#   cmake --workflow --preset coverage                  all tests, then this
#   ctest --preset coverage -L unit; tools/dev/coverage.sh  a quick look
set -eu

cd -- "$(dirname -- "$0")/../.."
if build-coverage/validation_canary core >/dev/null 2>&1; then # where the layer is installed
    build-coverage/vkattn check tests/cases/seeds --validate --no-cache >/dev/null
fi
code=0
gcovr --root . --filter src/ --exclude-throw-branches --fail-under-line 95 --fail-under-branch 90 \
    --txt build-coverage/lines.txt --print-summary build-coverage || code=$?
gcovr --root . --filter src/ --exclude-throw-branches --branches build-coverage
find build-coverage -name '*.gcda' -delete
exit $code
