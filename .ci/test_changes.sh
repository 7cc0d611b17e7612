#!/usr/bin/env bash
# What .ci/changes.sh makes of some changes; the ctest ci_changes.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
ALL_STAGES="the whole landing"
. .ci/changes.sh
failed=0

expect() { # expect "STAGES" FILE...
    local want=$1 got
    shift
    got=$(printf '%s\n' "$@" | stages_of | tr '\n' ' ')
    if [ "${got% }" != "$want" ]; then
        echo "FAIL $*: '$got' instead of '$want'"
        failed=1
    fi
}

# Those of a landing whose commit begins so, and of the other half.
export TURN_COMMIT=7
host="format build clang trees tests sanitizers windows threads"
expect "build docs" README.md docs/models.md
expect "format build python" python/vkattn/_plan.py docs/models.md
expect "format build clang tools python windows sanitize_tools" tools/vkattn/run/run.c tests/python/test_model.py
expect "$host validation" tests/layers/test_layer.c
expect "format build clang tools python windows sanitize_tools" tools/vkattn/bench/sweep.c tools/vkattn/generate/generate.c
expect "${host/windows/files windows arm64} fuzz_files validation" src/io/npy.c README.md
expect "$host validation" src/plan/cut.c
expect "format build clang trees prebuilt tests sanitizers gpus windows threads validation" \
    shaders/matmul/matmul_tile.comp
expect "format build clang trees tests sanitizers windows arm64 fuzz_plan threads validation" \
    src/core/os_posix.c
TURN_COMMIT=8
expect "${host/windows threads/arm64 fuzz_plan} validation" src/plan/cut.c
expect "${host/windows threads/arm64} validation" tests/layers/test_layer.c
expect "format build clang trees prebuilt tests sanitizers gpus arm64 fuzz_plan threads validation" \
    src/gpu/submit.c
TURN_COMMIT=7
expect "the whole landing" .ci/run README.md
expect "the whole landing" CMakePresets.json
expect "the whole landing" tests/CMakeLists.txt
expect "$host validation" tests/layers/CMakeLists.txt tests/cases/seeds/seed002_small.safetensors
expect "the whole landing" a_file_of_no_known_kind
expect "the whole landing" tools/test.sh
expect "the whole landing" tools/dev/test_windows.sh
[ "$(stages_of </dev/null)" = "$ALL_STAGES" ] || failed=1
# shellcheck disable=SC2034 # of the file that is sourced
. .ci/stages.sh
for stage in $(printf '%s\n' README.md python/a tools/vkattn/a.c src/io/a.c src/plan/a.c shaders/a |
    while read -r file; do echo "$file" | stages_of; done); do
    declare -F "stage_$stage" >/dev/null || {
        echo "FAIL there is no stage $stage"
        failed=1
    }
done

# Where the merge base says nothing: since the commit of .ci/passed, if HEAD has it in its history.
repository=$(mktemp -d)
trap 'rm -rf "$repository"' EXIT
commit() { # commit FILE CONTENT
    mkdir -p "$(dirname "$1")"
    echo "$2" >"$1"
    git add "$1"
    git -c user.name=a -c user.email=a@b.c commit --quiet -m "$1"
}
changes() { # changes "FILES"
    local got
    got=$(changed_files | tr '\n' ' ')
    [ "${got% }" = "$1" ] || {
        echo "FAIL changed files: '$got' instead of '$1'"
        failed=1
    }
}
cd "$repository"
unset CI_BASE GIT_DIR
git init --quiet .
commit .ci/passed 0123456789012345678901234567890123456789
changes ""
commit .ci/passed "$(git rev-parse HEAD)"
commit README.md words
changes ".ci/passed README.md"
git update-ref refs/remotes/origin/main HEAD
changes ".ci/passed README.md"
git update-ref refs/remotes/origin/main HEAD~1
changes "README.md"
commit .ci/passed "$(git rev-parse HEAD)"
git update-ref refs/remotes/origin/main HEAD
echo more >>README.md
changes ".ci/passed README.md"
exit $failed
