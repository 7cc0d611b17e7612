#!/bin/sh
# not_root.sh COMMAND...: as nobody where root calls it. SPDX-License-Identifier: MIT
set -eu
if [ "$(id -u)" -ne 0 ]; then
    exec "$@"
fi
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM XDG_RUNTIME_DIR
kept=${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}}/mesa_shader_cache
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export HOME="$work" MESA_SHADER_CACHE_DIR="$work"
# What Mesa's CPU driver has compiled for root, which each rank would compile again.
if [ -d "$kept" ]; then
    cp -r "$kept" "$work"
fi
chown -R nobody "$work"
if ! setpriv --reuid nobody --regid nogroup --clear-groups test -x "$4"; then
    echo "SKIPPED: nobody may not enter the build folder" >&2
    exit 77
fi
setpriv --reuid nobody --regid nogroup --clear-groups "$@"
