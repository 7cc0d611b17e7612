# What test_cli.sh does to case files and npy files, and how it compares their numbers. Sourced: it takes
# `fail` and `checks` from there. SPDX-License-Identifier: MIT
# shellcheck shell=sh

# json_header FILE : the header of a safetensors file; header_size FILE : its bytes.
header_size()
{
    od -An -t u4 -N 4 "$1" | tr -d ' '
}
json_header()
{
    tail -c +9 "$1" | head -c "$(header_size "$1")"
}

# field FILE TENSOR KEY : the numbers of "shape" or "data_offsets", with blanks between.
field()
{
    json_header "$1" | tr -d ' \n' | sed -n 's/.*"'"$2"'":{\([^}]*\)}.*/\1/p' |
        sed -n 's/.*"'"$3"'":\[\([0-9,]*\)\].*/\1/p' | tr ',' ' '
}

# place FILE TENSOR : its first byte in the file; bytes FILE TENSOR : how many it has.
place()
{
    set -- "$1" $(field "$1" "$2" data_offsets)
    echo $((8 + $(header_size "$1") + $2))
}
bytes()
{
    set -- $(field "$1" "$2" data_offsets)
    echo $(($2 - $1))
}

# raw FILE TENSOR : the bytes of a tensor.
raw()
{
    tail -c +$(($(place "$1" "$2") + 1)) "$1" | head -c "$(bytes "$1" "$2")"
}

# npy DESCR "2, 5, 16" : an npy file with the data from stdin.
npy()
{
    printf '\223NUMPY\001\000\166\000%-117s\n' \
        "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
    cat
}
npy_raw()
{
    [ -s "$1" ] || return
    tail -c +$((11 + $(od -An -t u2 -j 8 -N 2 "$1" | tr -d ' '))) "$1"
}

# query FILE : its query tensor as an npy file.
query()
{
    raw "$1" query | npy '<f4' "$(field "$1" query shape | sed 's/ /, /g')"
}

# same_numbers GOT WANT RTOL WHAT : two files of raw float32.
same_numbers()
{
    checks=$((checks + 1))
    for side in "$1" "$2"; do
        od -An -v -t f4 "$side" | tr -s ' ' '\n' | sed '/^$/d' >"$side.text"
    done
    paste "$1.text" "$2.text" | awk -v rtol="$3" '
        { n++; d = $1 - $2; w = $2; if (d < 0) d = -d; if (w < 0) w = -w
          if (NF != 2 || !(d <= 1e-5 + rtol * w)) bad++ }
        END { exit !(n > 0 && bad + 0 == 0) }' || fail "other numbers: $4"
}

# near GOT WANT q8_0|q4_0 WHAT : float32 numbers, whose NMSE is that of quantised weights.
near()
{
    checks=$((checks + 1))
    for side in "$1" "$2"; do
        od -An -v -t f4 "$side" | tr -s ' ' '\n' | sed '/^$/d' >"$side.text"
    done
    paste "$1.text" "$2.text" | awk -v most="$([ "$3" = q8_0 ] && echo 1e-3 || echo 3e-2)" '
        { n++; d += ($1 - $2) ^ 2; w += $2 ^ 2 }
        END { exit !(n > 0 && d > 1e-7 * w && d < most * w) }' || fail "not near: $4"
}

# corrupt FROM TO TENSOR : a copy whose tensor begins with the float32 number 1024.
corrupt()
{
    cp "$1" "$2"
    printf '\000\000\200\104' | dd of="$2" bs=1 seek="$(place "$1" "$3")" conv=notrunc 2>/dev/null
}
