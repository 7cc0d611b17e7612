#!/bin/sh
# Builds the site of a folder that tools/dev/site.py filled, without a network; a link without an end fails.
# MKDOCS names another mkdocs, of an environment that has mkdocs-material. SPDX-License-Identifier: MIT
set -eu
mkdocs=${MKDOCS:-mkdocs}
if ! "$mkdocs" --version >/dev/null 2>&1; then
    echo "SKIPPED: mkdocs-material IS NOT INSTALLED, THE SITE WAS NOT BUILT"
    exit 77
fi
"$mkdocs" build --quiet --strict -f "$1/mkdocs.yml"
grep -q 'id="vka_plan_add_attention"' "$1/site/reference/vkattn_h.html"
! grep -rl 'src="https\?:\|href="https\?:[^"]*\.css' "$1/site" --include=*.html
