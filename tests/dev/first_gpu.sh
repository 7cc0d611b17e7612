#!/bin/bash
# tools/dev/first_gpu.sh with programs that answer at once, fail, or never end, in each of its parts: it is
# killed in each of its steps, at a landing in every sixth ($VKATTN_TEST_TURN says from which), and what it
# left is whole. Later calls add to what earlier ones left.
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
for program in vkattn check_kernels check_functions test_gpu test_generate python3; do
    cat >"$build/$program" <<'STUB'
#!/bin/sh
# test_gpu without a test lists them; a python3 has no PyTorch.
case " $HANGS " in *" $STEP "*) [ -z "$STEP" ] || { echo "hangs"; exec sleep 1000; } ;; esac
case " $FAILS " in *" $STEP "*) [ -z "$STEP" ] || { echo "fails"; exit 3; } ;; esac
case "${0##*/} $*" in
"test_gpu ") printf 'Tests:\n  cache\n  runtime\n' >&2; exit 2 ;;
"python3 "*) exit 77 ;;
*devices*) [ -z "$NO_DEVICE" ] || exit 1; exec "$REAL" "$@" ;;
esac
echo "ran $*"
STUB
    chmod +x "$build/$program"
done
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

# Undisturbed: every step passes but those that fail and those that hang, in each part, which have an end.
export HANGS="first_f32 attention_coop2_bf16 product_f16 layer" FAILS="devices_json kernels_1 torch backward"
LIMIT=2 "$script" 300 "$work/all" >/dev/null
whole "$work/all"
summary=$work/all/0_summary.txt
for name in $HANGS; do
    grep -q "NO END  $name " "$summary" || fail "nothing says that the step $name hangs"
done
for name in $FAILS; do
    grep -q "FAILED 3  $name " "$summary" || fail "nothing says that the step $name failed"
done
[ "$(grep -cE 'NO END|FAILED|no time' "$summary")" -eq 8 ] || fail "other steps did not pass"
grep -q 'the end$' "$summary" || fail "there is no end"
names=$(sed -nE 's/^ *[0-9]+ s  (passed|skipped|NO END|FAILED 3)  ([^ ]+) .*/\2/p' "$summary")
for name in devices first_f32 matmul_coop_bf16 kernels_1 torch product_f16 decode cases cache runtime; do
    echo "$names" | grep -qx "$name" || fail "the step $name did not run"
done
PARTS=fcts "$script" 300 "$work/typo" | grep -q 'no part fcts' || fail "a wrong part is taken"
! "$script" soon "$work/typo" 2>/dev/null || fail "wrong seconds are taken"

# A later call for some steps alone adds to what there is.
export HANGS='' FAILS=''
had=$(wc -l <"$summary")
ONLY=devices,product_f16 "$script" 300 "$work/all" >/dev/null
whole "$work/all"
[ "$(tail -n "+$((had + 1))" "$summary" | grep -cE ' passed  (devices|product_f16) ')" -eq 2 ] ||
    fail "a later call did not run its two steps"
[ "$(wc -l <"$summary")" -eq $((had + 4)) ] || fail "a later call left other lines than its own"

# Without a device that is the result.
NO_DEVICE=1 "$script" 300 "$work/none" >/dev/null
[ $? -eq 3 ] || fail "there is no device, and it does not say so by its status"
whole "$work/none"
grep -q 'the end: no device' "$work/none/0_summary.txt" || fail "nothing says that there is no device"

# Killed in a step that does not end: the marker is its first line in the file of its part.
killed=0
tried=$names
[ -z "${VKATTN_TEST_TURN:-}" ] ||
    tried=$(echo "$names" | awk -v turn=$((VKATTN_TEST_TURN % 6)) 'NR % 6 == turn')
for name in $tried; do
    killed=$((killed + 1))
    out=$work/killed_$name
    mkdir "$out"
    part=$(grep -l "^$name: =====" "$work/all"/[1-9]_*.txt | sed 's|.*/[0-9]_||; s|\.txt$||')
    HANGS=$name PARTS=$part setsid "$script" 300 "$out" >/dev/null 2>&1 &
    process=$!
    until grep -qs "^$name: =====" "$out"/[1-9]_*.txt || ! kill -0 $process 2>/dev/null; do
        sleep 0.01
    done
    pkill -KILL -s $process # its session: timeout has a group of its own
    wait $process 2>/dev/null
    whole "$out"
    grep -qs "^$name: =====" "$out"/[1-9]_*.txt || fail "the step $name was never seen"
    ! grep -qs "  $name (" "$out/0_summary.txt" || fail "the step $name was not killed"
done
[ "$(echo "$names" | wc -l)" -gt 60 ] || fail "only $(echo "$names" | wc -l) steps"
[ $killed -gt 9 ] || fail "killed after only $killed steps"
[ $failed -eq 0 ] && echo "$(echo "$names" | wc -l) steps, killed after $killed"
exit $failed
