# shellcheck shell=bash
# The stages of .ci/run, a function each, and what they share. Sourced.
# Each test runs once: in the build, and on the system, that can find its fault. What kernels compute
# is tested plain; what the host does to arguments, memory and files, under sanitizers; Windows and
# arm64 test what differs there.

# quietly LOG COMMAND...: what it printed is shown only when it fails.
quietly() {
    local log=build-ci/$1.log
    shift
    "$@" >"$log" 2>&1 || {
        tail -n 100 "$log"
        return 1
    }
}

# skippable COMMAND...: 77 says that it lacks something, and what.
skippable() {
    "$@" || [ $? -eq 77 ]
}

# Builds that take the kernels of the first one. Not exported: tests build too, some to see that
# kernels are compiled.
with_kernels() { # with_kernels COMMAND...
    VKATTN_SPIRV_FROM=$PWD/build/shaders "$@"
}

wanted() { # wanted STAGE: whether this run has it
    [[ " ${run_stages[*]} " == *" $1 "* ]]
}

stage_setup() {
    if wanted clang; then
        tools/setup.sh ci
    else
        tools/setup.sh tools # a change of pages or of Python needs no other system
    fi
}

sources() {
    if git ls-files --error-unmatch CMakeLists.txt >/dev/null 2>&1; then
        git ls-files '*.c' '*.h' '*.cpp' '*.hpp'
    else
        find include src shaders tests tools examples -regex '.*[.]\([ch]\|[ch]pp\)' # a tree without its history
    fi
}

stage_format() {
    local clang_format
    clang_format=$(command -v clang-format-14 || command -v clang-format)
    if "$clang_format" --version | grep -q 'version 14\.'; then
        sources | xargs "$clang_format" --dry-run -Werror
    else
        echo "SKIPPED: formatting is judged by clang-format 14, and this is another" >&2
    fi
}

# What the tests of this run take: of a change of pages, or of Python, half of all.
built_targets() {
    if wanted tests || wanted tools || wanted gpus || ! { wanted docs || wanted python; }; then
        echo all
        return
    fi
    echo vkattn vkattn_tool vkattn-mnist vkattn_mpi_tool test_header_example test_first_example
    ! wanted python || echo vkattn_oracle io_verdict write_seeds print_examples
}

stage_build() { # the tests take what it builds
    local targets
    targets=$(built_targets)
    # Lines are enough of what a debugger would like: a fifth of the compiler's time is less.
    quietly configure cmake --preset default -DVKATTN_WERROR=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
        -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG"
    # shellcheck disable=SC2086 # a list of words
    quietly build cmake --build --preset default --parallel "$(nproc)" --target $targets
}

stage_clang() { # clang reads what gcc compiled, with no warning
    python3 .ci/read_with_clang.py build/compile_commands.json
}

stage_trees() {
    tools/dev/arm64_tree.sh build-arm64-tree & # its stage says what is missing
    tools/dev/sid_tree.sh build-sid || {
        rm -rf --one-file-system build-sid
        echo "SKIPPED: the ctest figures and prebuilt shaders made again" >&2
    }
    wait $! || true
}

stage_prebuilt() {
    .ci/prebuilt
}

stage_gpus() { # GPUs that are not there
    tools/test.sh -L '^compile$'
}

# The tests of half of the landings (vkattn_alternate) run in the others where their own source changed.
stage_tests() { # what sanitizers will run is not run here
    local changed_tests
    changed_tests=$(sed -n 's|^tests/.*/test_\([a-z0-9_]*\)[.][chs].*$|\1|p' <<<"${changed:-}" | paste -sd'|')
    tools/test.sh -LE '^(host|stub|compile|rests)$'
    [ -z "$changed_tests" ] || ctest --preset default --parallel "$(nproc)" -L '^rests$' \
        -LE '^(host|stub|compile)$' -R "^($changed_tests)"
}

# Not by tools/test.sh, which would build the rest.
stage_docs() {
    ctest --preset default --parallel "$(nproc)" -L '^docs$'
}

stage_python() {
    ctest --preset default --parallel "$(nproc)" -L '^(python|docs)$'
}

stage_tools() {
    tools/test.sh -L '^(cases|install|unit|source|docs)$'
}

stage_windows() {
    with_kernels skippable tools/dev/test_windows.sh
}

stage_arm64() {
    with_kernels skippable tools/dev/test_arm64.sh
}

sanitized="test_unit test_gpu test_mpi fuzz_replay write_seeds test_vulkan_faults test_recovery test_heap_faults \
test_refusals test_operation_faults test_small_device test_portability test_interop test_interop_errors \
test_vulkan_examples interop test_stub_mistakes test_stub_memory test_stub_drivers test_stub_problems keep_loaded"

build_sanitized() { # build_sanitized TARGET...
    with_kernels quietly configure-asan cmake --preset asan
    quietly build-asan cmake --build --preset asan --parallel "$(nproc)" --target "$@"
}

stage_sanitizers() {
    # shellcheck disable=SC2086 # a list of words
    build_sanitized $sanitized
    ctest --preset asan --parallel "$(nproc)"
}

stage_sanitize_tools() { # the tools' sources are under the unit tests
    build_sanitized test_unit keep_loaded
    ctest --preset asan --parallel "$(nproc)" -R '^case'
}

# Its packages come from PyPI: Debian 12 has no safetensors.
stage_files() {
    /usr/bin/python3 -m venv build-peers
    build-peers/bin/pip install --quiet --disable-pip-version-check 'safetensors==0.8.0' \
        'numpy==2.4.6' 'gguf==0.19.0' || {
        echo "SKIPPED: safetensors, numpy and gguf cannot be installed" >&2
        return 0
    }
    build-peers/bin/python tests/fuzz/peers.py build/io_verdict build/tests/fuzz/seeds \
        --mutants "${MUTANTS:-1000000}"
}

stage_threads() {
    with_kernels quietly configure-tsan cmake --preset tsan
    quietly build-tsan cmake --build --preset tsan --parallel "$(nproc)" --target test_gpu
    build-tsan/test_gpu threads 10000 # submits of each of 16 threads
}

fuzz() { # fuzz TARGET
    local stub=$PWD/build-fuzz/tests/stub/stub.json # plan's device, or devices
    mkdir -p "build-fuzz/corpus/$1"
    VK_DRIVER_FILES=$stub VK_ICD_FILENAMES=$stub VKATTN_STUB=cpu,least,small,large \
        "build-fuzz/fuzz_$1" -max_total_time="${FUZZ_SECONDS:-60}" -max_len=4096 \
        -print_final_stats=1 -artifact_prefix=build-fuzz/ \
        "build-fuzz/corpus/$1" "tests/fuzz/corpus/$1" "build-fuzz/tests/fuzz/corpus/$1" >"build-fuzz/$1.log" 2>&1 || {
        tail -n 60 "build-fuzz/$1.log"
        return 1
    }
    echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$1.log") runs"
}

build_fuzzers() { # build_fuzzers TARGET...
    with_kernels quietly configure-fuzz cmake --preset fuzz
    quietly build-fuzz cmake --build --preset fuzz --parallel "$(nproc)" --target "$@"
}

stage_fuzz_files() { # two at a time
    build_fuzzers fuzz_safetensors fuzz_npy fuzz_gguf fuzz_case
    fuzz safetensors &
    fuzz npy
    wait $!
    fuzz gguf &
    fuzz case
    wait $!
}

stage_fuzz_plan() {
    build_fuzzers fuzz_plan vkattn_stub
    fuzz plan
}

stage_validation() {
    .ci/validation "${VALIDATION:-sample}"
}

stage_whole() { # the long tests: soaks, faults at every call and allocation, every case of each kernel
    tools/test.sh full
    VKATTN_SID_TREE=none tools/test.sh -L '^either$' # on this machine's own driver
}

stage_packages() { # of a release: made, used, and made again with the same bytes
    tools/dev/dist.sh
    tests/install/dist.sh --twice dist
}
