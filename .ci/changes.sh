# shellcheck shell=bash
# Which stages of .ci/run a change needs, by the names of the files that it changes. Sourced.

# needed_by FILE: what the file asks for, in words; `all` where it can change anything, or is not known.
#   docs       pages, manuals and the examples in them
#   python     the Python package
#   tools      the command line, its case files and pages, and the example programs
#   scripts    what CI or people call
#   readers    what reads files: the fuzzers and the million mutants
#   plans      what fuzz_plan reaches
#   kernels    shaders, or what chooses and compiles them
#   library    the library on the host
#   systems    what asks the system, or reads its files
#   submits    what threads share
needed_by() {
    case $1 in
    [A-Z]*.md | LICENSE | CITATION.cff | .github/* | docs/* | include/*.md | .ci/stages.tsv | .ci/passed | \
        tests/mutants/*)
        echo docs
        ;;
    pyproject.toml | python/* | tests/python/*) echo python ;;
    src/gpu/*) echo kernels plans library submits ;;
    shaders/* | src/kernel/* | src/op/* | cmake/* | tests/compile/* | \
        tools/dev/sid_tree.sh | tools/dev/archive.sh | tools/dev/prebuild_shaders.sh)
        echo kernels plans library
        ;;
    tools/dev/*arm64* | tools/dev/*wine* | tools/dev/*windows*) echo all ;;
    tools/dev/* | tests/dev/* | tools/demo.sh | ports/*) echo scripts ;;
    tools/*/CMakeLists.txt | examples/CMakeLists.txt | examples/*/CMakeLists.txt) echo all ;;
    tools/*/* | examples/* | tests/cases/*.sh | tests/mnist/*) echo tools ;;
    src/io/* | tests/files/* | tests/fuzz/*) echo readers library systems ;;
    src/core/* | tests/windows/*) echo plans library systems submits ;;
    tests/*/*) echo library ;;
    src/* | include/*) echo plans library ;;
    *) echo all ;; # .ci, CMakeLists.txt and presets among them
    esac
}

# in_turn ONE [OTHER]: the stage of this landing, by the highest bit of its commit, as in
# vkattn_alternate of tests/CMakeLists.txt.
in_turn() {
    local commit=${TURN_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo 0)}
    if [[ ${commit:0:1} == [0-7] ]]; then
        echo "$1"
    elif [ $# -eq 2 ]; then
        echo "$2"
    fi
}

# stages_of: reads names of changed files, one a line, and prints the stages that they need, in order.
stages_of() {
    local file need needs=' '
    while IFS= read -r file; do
        for need in $(needed_by "$file"); do
            needs="$needs$need "
        done
    done
    case $needs in
    *' all '*) echo "$ALL_STAGES" && return ;;
    ' ') echo "$ALL_STAGES" && return ;; # no file: nothing is known of the change
    *' library '*)
        echo "format build clang trees"
        [[ $needs != *' kernels '* ]] || echo "prebuilt"
        echo "tests sanitizers"
        [[ $needs != *' readers '* ]] || echo "files"
        [[ $needs != *' kernels '* ]] || echo "gpus"
        if [[ $needs == *' systems '* ]]; then
            echo "windows arm64"
        else
            in_turn windows arm64
        fi
        if [[ $needs == *' submits '* ]]; then
            [[ $needs != *' plans '* ]] || echo "fuzz_plan"
            echo "threads"
        elif [[ $needs == *' plans '* ]]; then
            in_turn threads fuzz_plan
        else
            in_turn threads
        fi
        [[ $needs != *' readers '* ]] || echo "fuzz_files"
        echo "validation"
        ;;
    *' tools '*) echo "format build clang tools python windows sanitize_tools" ;;
    *' python '*) echo "format build python" ;;
    *) echo "build docs" ;;
    esac
}

# changed_files: names, one a line, since the merge base with $CI_BASE, by default origin/main, or where
# that is HEAD or not known, since the commit that .ci/passed names; none where no such commit is known.
changed_files() {
    local base
    base=$(git merge-base HEAD "${CI_BASE:-origin/main}" 2>/dev/null ||
        git merge-base HEAD origin/HEAD 2>/dev/null) || base=
    if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
        read -r base <.ci/passed
        git merge-base --is-ancestor "$base" HEAD 2>/dev/null || return 0
    fi
    git diff --name-only "$base" HEAD
    git diff --name-only HEAD # not committed
}
