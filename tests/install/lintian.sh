#!/bin/sh
# What lintian says of the Debian packages in a folder: no error and no warning, without overrides. Exits 77
# where there is none.
#
#   tests/install/lintian.sh FOLDER
set -eu

if ! command -v lintian >/dev/null; then
    echo "SKIPPED: LINTIAN IS NOT INSTALLED, THE PACKAGES WERE NOT JUDGED BY IT"
    exit 77
fi
lintian --version
exec lintian --allow-root --no-override --fail-on error,warning "$1"/*.deb
