#!/bin/sh
# Runs a program as as_gpu.sh does, with subgroups and workgroups that do each other's work
# (tests/compile/orders.py).
#
#   tests/devices/in_order.sh ORDER FOLDER VKATTN MODULES PROGRAM [ARGUMENT...]
#
# ORDER is own, subgroups or both: the driver's, subgroups reversed, workgroups too. MODULES is the folder
# of the program's own modules. $LANES is the driver's subgroup size: 8, 4, or 16 where the processor has
# vectors of 512 bits. $DROP, "NAME K", leaves the K-th barrier of a kernel's module out. With $KERNELS the
# program runs once for each name of it, with --kernel NAME.
set -eu

order=$1
folder=$2
tool=$3
modules=$4
shift 4
here=$(dirname "$0")
lanes=${LANES:-8}
case $order in
own) flags= ;;
subgroups) flags=--subgroups ;;
both) flags='--subgroups --groups' ;;
*)
    echo "FAIL: there is no order $order"
    exit 1
    ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086 # several words, or none
python3 -B "$here/../compile/orders.py" $flags --size "$lanes" "$modules"/*.spv "$work"
if [ -n "${DROP-}" ]; then
    # shellcheck disable=SC2086
    python3 -B "$here/../compile/orders.py" $flags --size "$lanes" --drop "${DROP#* }" \
        "$modules/${DROP% *}.spv" "$work"
fi
export LP_NATIVE_VECTOR_WIDTH=$((lanes * 32))
status=0
devices=$("$here/newest_driver.sh" "$tool" devices --json) || status=$?
case $status:$devices in
77:*)
    echo "$devices"
    exit 77
    ;;
*"\"subgroup_size\":$lanes,"*) ;;
*)
    echo "FAIL: the driver has no subgroups of $lanes"
    exit 1
    ;;
esac
export MODULES_FOLDER="$work"
if [ -z "${KERNELS-}" ]; then
    "$here/as_gpu.sh" "$folder" "$tool" "$@"
    exit
fi
failed=0
for kernel in $KERNELS; do
    status=0
    "$here/as_gpu.sh" "$folder" "$tool" "$@" --kernel "$kernel" || status=$?
    [ "$status" -ne 77 ] || exit 77
    [ "$status" -eq 0 ] || failed=1
done
exit "$failed"
