#!/bin/bash
# tools/dev/first_gpu.sh with programs that answer at once, fail, or never end: it is killed after each
# of its steps, at a landing after every sixth ($VKATTN_TEST_TURN says from which), and what it left is whole.
#
#   tests/dev/first_gpu.sh FIRST_GPU VKATTN
#
# FIRST_GPU is the script, VKATTN the command line tool, which runs the steps about the device for real.
set -u
script=$1 vkattn=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# Programs of a build: each prints a line that names it, and then what is asked of it.
build=$work/build
mkdir -p "$build"
for program in vkattn check_kernels check_functions test_gpu test_generate; do
    cat >"$build/$program" <<'STUB'
#!/bin/sh
# test_gpu without a test lists them.
case "$(basename "$0") $*" in
"test_gpu ") printf 'Tests:\n  cache\n  runtime\n' >&2; exit 2 ;;
*"--kernel $HANGS"* | *" $HANGS") echo "hangs"; exec sleep 1000 ;;
*"--kernel $FAILS"* | *" $FAILS") echo "fails"; exit 3 ;;
*devices*) exec "$REAL" "$@" ;;
esac
echo "ran $*"
STUB
    chmod +x "$build/$program"
done
# A python3 without PyTorch, and no other program that says anything of a GPU.
printf '#!/bin/sh\nexit 77\n' >"$build/python3"
chmod +x "$build/python3"
export REAL=$vkattn BUILD=$build PATH=$build:$PATH

# whole FOLDER: each line of each file begins with the name of a step, and the last one has its end.
whole() {
    local file
    for file in "$1"/*.txt; do
        [ "$(tail -c 1 "$file" | od -An -tx1 | tr -d ' ')" = 0a ] || fail "$file ends within a line"
        case $file in
        */0_summary.txt) ! grep -qvE '^ *[0-9]+ s  ' "$file" || fail "a line of $file is cut" ;;
        *) ! grep -qvE '^[a-zA-Z0-9_,]+: ' "$file" || fail "a line of $file has no name" ;;
        esac
    done
}

# Undisturbed: every step passes but the one that fails and the one that hangs, which has an end.
export HANGS=attention_coop2_bf16 FAILS=backward
LIMIT=3 "$script" 300 "$work/all" >/dev/null
whole "$work/all"
summary=$work/all/0_summary.txt
grep -q 'NO END  attention_coop2_bf16' "$summary" || fail "nothing says that a step hangs"
grep -q 'FAILED 3  backward' "$summary" || fail "nothing says that a step failed"
[ "$(grep -cE 'NO END|FAILED|no time' "$summary")" -eq 2 ] || fail "other steps did not pass"
grep -q 'the end$' "$summary" || fail "there is no end"
names=$(sed -n 's/^ *[0-9]* s  \(passed\|skipped\)  \([^ ]*\) .*/\2/p' "$summary")
for name in devices first_f32 matmul_coop_bf16 kernels_1 torch product_f16 decode cases cache runtime; do
    echo "$names" | grep -qx "$name" || fail "the step $name did not run"
done
PARTS=fcts "$script" 300 "$work/typo" | grep -q 'no part fcts' || fail "a wrong part is taken"
! "$script" soon "$work/typo" 2>/dev/null || fail "wrong seconds are taken"

# Killed as soon as a step has begun: the marker is its first line in the file of its part.
export HANGS=none FAILS=none
killed=0
tried=$names
[ -z "${VKATTN_TEST_TURN:-}" ] ||
    tried=$(echo "$names" | awk -v turn=$((VKATTN_TEST_TURN % 6)) 'NR % 6 == turn')
for name in $tried; do
    killed=$((killed + 1))
    out=$work/killed_$name
    mkdir "$out"
    part=$(grep -l "^$name: =====" "$work/all"/[1-9]_*.txt | sed 's|.*/[0-9]_||; s|\.txt$||')
    PARTS=$part setsid "$script" 300 "$out" >/dev/null 2>&1 &
    process=$!
    until grep -qs "^$name: =====" "$out"/[1-9]_*.txt || ! kill -0 $process 2>/dev/null; do
        sleep 0.01
    done
    kill -KILL -- -$process 2>/dev/null
    wait $process 2>/dev/null
    whole "$out"
    grep -qs "^$name: =====" "$out"/[1-9]_*.txt || fail "the step $name was never seen"
done
[ "$(echo "$names" | wc -l)" -gt 60 ] || fail "only $(echo "$names" | wc -l) steps"
[ $killed -gt 9 ] || fail "killed after only $killed steps"
[ $failed -eq 0 ] && echo "$(echo "$names" | wc -l) steps, killed after $killed"
exit $failed
