#!/bin/sh
# Kernels without one of their barriers: each fails in the order of subgroups that shows it, and passes in
# the other one, and with all barriers in both.
#
#   tests/devices/order_canaries.sh FOLDER VKATTN MODULES CHECK_KERNELS
set -eu

here=$(dirname "$0")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# expect VERDICT ORDER KERNEL [K]: the kernel without its K-th barrier passes or fails.
expect() {
    status=0
    DROP=${4:+$3 $4} "$here/in_order.sh" "$2" "$folder" "$tool" "$modules" "$program" --seed 1 --few \
        --kernel "$3" >"$log" 2>&1 || status=$?
    [ "$status" -ne 77 ] || { cat "$log"; exit 77; }
    verdict=other
    [ "$status" -ne 0 ] || verdict=passes
    # An error of a driver or a layer is no canary's.
    [ "$status" -ne 1 ] || ! grep -q "^$3 .* cases, .* [1-9][0-9]* failed" "$log" || verdict=fails
    echo "$3, ${4:+without barrier $4, }order $2: $verdict"
    if [ "$verdict" != "$1" ]; then
        echo "FAIL: expected that it $1"
        cat "$log"
        failed=1
    fi
}

folder=$1
tool=$2
modules=$3
program=$4
expect fails own sum_axes 0
expect passes subgroups sum_axes 0
expect fails own argmax 0
expect passes subgroups argmax 0
expect passes own gather_backward 1
expect fails subgroups gather_backward 1
for kernel in sum_axes argmax gather_backward; do
    expect passes own "$kernel"
    expect passes subgroups "$kernel"
done
exit "$failed"
