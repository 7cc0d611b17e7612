#!/bin/sh
# docs.sh ROOT: README.md stays short, and what README.md and docs/*.md point to exists: relative
# links and pictures, and paths of the tree in backticks. SPDX-License-Identifier: MIT
set -eu
cd "$1"
most=10000 # bytes of README.md
failed=0

fail() {
    echo "FAIL $*"
    failed=1
}

# targets FILE: relative links, then paths, one a line; neither anchors nor other sites.
targets() {
    folder=$(dirname "$1")
    grep -oE '\]\([^) ]+|(src|srcset|href)="[^" ]+' "$1" | sed -E 's/^(\]\(|[a-z]+=")//; s/#.*//' |
        grep -vE '^$|^[a-z]+:' | sed "s|^|$folder/|" || true
    grep -oE '`(\.ci|cmake|docs|include|shaders|src|tests|tools)/[A-Za-z0-9_./-]*' "$1" |
        sed 's/^`//' || true
}

size=$(wc -c <README.md)
[ "$size" -le "$most" ] || fail "README.md: $size bytes, at most $most"
lines=$(wc -l <README.md)
[ "$lines" -le 60 ] || fail "README.md: $lines lines, at most 60"
checked=0
for file in README.md CONTRIBUTING.md SECURITY.md docs/*.md; do
    for target in $(targets "$file"); do
        checked=$((checked + 1))
        [ -e "$target" ] || fail "$file: $target does not exist"
    done
done
[ "$checked" -ge 20 ] || fail "only $checked links and paths found"
echo "README.md: $size bytes; $checked links and paths checked"
exit "$failed"
