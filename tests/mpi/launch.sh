#!/bin/sh
# Starts ranks on this host: launch.sh MPIEXEC RANKS [--survive] PROGRAM [ARGUMENT]...
# --survive: the others go on when one dies. SPDX-License-Identifier: MIT
set -eu
mpiexec=$1
ranks=$2
shift 2
survive=
if [ "$1" = --survive ]; then
    survive=yes
    shift
fi

# One thread a rank on Mesa's CPU driver: the ranks share the cores.
export LP_NUM_THREADS=1
# Each rank compiles all shaders, most of what these tests take: without optimisation of the driver's
# compiler, and for four lanes in place of eight, in less than half of the time.
export GALLIVM_PERF="${GALLIVM_PERF-nopt}" LP_NATIVE_VECTOR_WIDTH="${LP_NATIVE_VECTOR_WIDTH-128}"
if "$mpiexec" --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    # Also where the tests run as root, in a container, or with fewer cores than ranks.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    set -- --oversubscribe ${survive:+--enable-recovery} -n "$ranks" "$@"
else
    set -- ${survive:+-disable-auto-cleanup} -n "$ranks" "$@"
fi
exec "$mpiexec" "$@"
