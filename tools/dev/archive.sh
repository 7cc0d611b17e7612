# shellcheck shell=sh
# Packages and sources of Debian's archive, taken without installing anything: for scripts that fill a
# folder. Sourced by sid_tree.sh, arm64_tree.sh and windows_libraries.sh, with `set -eu`.
#
# Sets $work, a folder that goes when the script ends, $keys and $mirror. DEBIAN_MIRROR is an archive
# to take instead of the one that this machine takes.

archive_caller=$(basename -- "$0" .sh)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$archive_caller: $*" >&2
    exit 1
}

# need PROGRAM...
need() {
    for program in "$@"; do
        command -v "$program" >/dev/null || fail "there is no $program"
    done
}

# quietly COMMAND...: what it printed is shown only when it fails.
quietly() {
    if ! "$@" >"$work/log" 2>&1 </dev/null; then
        tail -n 30 "$work/log" >&2
        fail "failed: $*"
    fi
}

# open_archive LINE...: lines of sources.list, in which @ is key and mirror. No package counts as
# installed.
open_archive() {
    need apt-get
    [ -e "$keys" ] || fail "there is no $keys"
    # shellcheck disable=SC2016 # apt-get fills these fields in
    mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' \
        'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)}
    [ -n "$mirror" ] || fail "apt-get knows no archive of Debian: set DEBIAN_MIRROR"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    : >"$work/status"
    for line in "$@"; do
        echo "${line%%@*}[signed-by=$keys] $mirror${line#*@}" >>"$work/sources.list"
    done
}

# own_apt ARGUMENTS: apt-get that knows that archive alone.
own_apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o Dir::State::Status="$work/status" -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 "$@"
}
