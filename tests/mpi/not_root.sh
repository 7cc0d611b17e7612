#!/bin/sh
# not_root.sh COMMAND...: as nobody where root calls it. SPDX-License-Identifier: MIT
set -eu
if [ "$(id -u)" -ne 0 ]; then
    exec "$@"
fi
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM XDG_RUNTIME_DIR
HOME=$(mktemp -d) || exit 1
export HOME
trap 'rm -rf "$HOME"' EXIT
chown nobody "$HOME"
if ! setpriv --reuid nobody --regid nogroup --clear-groups test -x "$4"; then
    echo "SKIPPED: nobody may not enter the build folder" >&2
    exit 77
fi
setpriv --reuid nobody --regid nogroup --clear-groups "$@"
