#!/bin/sh
# The promises of the vkattn command: exit codes, one line an error, whole outputs, and that the
# numbers of a run and a check are right. Usage: test_cli.sh VKATTN, run from any folder.
# Exits 77 where there is no usable Vulkan device. With VKATTN_TEST_SYSTEM=windows VKATTN runs a
# Windows program, and what that system lacks is left out. SPDX-License-Identifier: MIT
set -u
export LC_ALL=C
lacks() # lacks WHAT : whether the system lacks it, which is said
{
    [ "${VKATTN_TEST_SYSTEM:-}" = windows ] && echo "SKIPPED: Windows has no $1"
}

vkattn=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cases=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# A cache of ours that is empty; that of Mesa's compiler stays where it is.
export MESA_SHADER_CACHE_DIR="${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}}"
export XDG_CACHE_HOME="$work/cache"

failures=0
checks=0
fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -n 5
    sed 's/^/    stderr: /' err | head -n 5
}

# expect CODE PATTERN ARGUMENT... : runs vkattn; where it must fail, stderr is one line that matches
# PATTERN (the line that names the chosen device aside), and otherwise stdout matches it.
expect()
{
    code=$1
    pattern=$2
    shift 2
    checks=$((checks + 1))
    "$vkattn" "$@" >out 2>err
    got=$?
    if [ "$got" -ne "$code" ]; then
        fail "exit $got instead of $code: vkattn $*"
        return
    fi
    if [ "$code" -eq 0 ] || [ "$code" -eq 1 ]; then
        [ -z "$pattern" ] || grep -q -e "$pattern" out || fail "no '$pattern' on stdout: vkattn $*"
        return
    fi
    grep -v '^device: ' err >lines
    [ "$(wc -l <lines)" -eq 1 ] || fail "not one line on stderr: vkattn $*"
    grep -q -e "$pattern" lines || fail "no '$pattern' on stderr: vkattn $*"
}

. "$cases/cli_files.sh"

"$vkattn" devices >out 2>err
if [ $? -eq 3 ]; then
    echo "SKIPPED: NO USABLE VULKAN DEVICE, THE COMMAND LINE WAS NOT TESTED: $(cat err)"
    exit 77
fi

# ---- devices, help ------------------------------------------------------------------------------
expect 0 'usage: vkattn' help
expect 0 '^vkattn [0-9]' --version
expect 0 'driver' devices
expect 0 '"kernels":\[{"name":' devices --json
expect 0 '^0: ' devices --device 0
expect 2 'expected a command'
expect 2 "unknown command 'frobnicate'; 'vkattn help' lists them" frobnicate
expect 2 "unknown command 'dveice': did you mean 'devices'" dveice
expect 2 "expected a command, got '--frobnicate'" --frobnicate
expect 2 "unknown option '--frobnicate'; 'vkattn devices --help' lists" devices --frobnicate
expect 2 "unknown option '--jsno': did you mean '--json'? 'vkattn devices --help'" devices --jsno
expect 2 "unknown option '--hepl=1': did you mean '--help'" devices --hepl=1
expect 2 "got 'laier': did you mean 'layer'" bench laier
expect 2 "help: expected a command, man, bash, zsh or fish, got 'x'" help x
expect 0 '^  sweep ' bench --help
expect 0 '^matmul_tile\|  kernels    matmul_tile' devices --kernels
expect 0 '^0: ' --device 0 devices
expect 0 '^0: ' --device=0 --no-cache devices
expect 2 '--n: expected, but not given' bench --device 0 matmul --m 8
expect 2 '--n: expected, but not given' --device 0 bench --no-cache matmul --m 8
if [ "$("$vkattn" devices --device 0 2>&1 | wc -l)" != 6 ]; then
    failures=$((failures + 1))
    echo 'FAILED: devices prints another number of lines than six a device'
fi
expect 2 "unknown option '-q'" devices -q
expect 2 '--json: expected no value' devices --json=1
expect 2 "expected only options, got 'extra'" devices extra
expect 2 'device: expected a value' devices --device ''
expect 3 "no such device': 'vkattn devices' lists them" devices --device 'no such device'
expect 2 'or --ids, got 1 argument$' generate model.gguf
expect 2 'got 3 arguments: put the text in quotes' generate model.gguf two words
expect 3 'is called "4000000000": there is 0: .' check "$cases/seeds" --device 4000000000

# ---- bench --------------------------------------------------------------------------------------
sizes="--batch 1 --heads 2 --seq 5 --head-dim 3"
expect 0 '^  median ' bench matmul --m 3 --n 5 --k 7 --repeat 2
expect 0 '^  pass ' bench attention $sizes --causal --passes --repeat 1
expect 0 '"n_kv":9,.*"causal":false.*"repeat":2,' bench attention $sizes --kv-seq 9 --repeat 2 --json
expect 0 '"op":"layer".*"n_kv_head":1,"head_dim":8,"model_dim":16' \
    bench layer --batch 1 --seq 4 --model-dim 16 --heads 2 --kv-heads 1 --json --repeat 1
for key in op device driver kernels dtype batch n_q n_kv n_head n_kv_head head_dim model_dim \
    causal repeat first_ms median_ms min_ms gpu_ms gflops gbps workspace_bytes; do
    grep -q "\"$key\":" out || fail "bench --json has no $key"
done
[ "$(wc -l <out)" -eq 1 ] || fail "bench --json is not one line"
expect 0 '^  median ' bench decode --batch 2 --heads 4 --kv-heads 2 --kv-seq 33 --head-dim 5 --repeat 2
expect 2 '--kv-seq: expected' bench decode --batch 1 --heads 1 --head-dim 4
expect 2 'expected layer, attention, matmul, decode, linear or sweep' bench
expect 2 "got 'frobnicate'" bench frobnicate
expect 2 '--batch: expected, but not given' bench layer
expect 2 "--batch: .*got '0'" bench layer --batch 0
expect 0 '^  median ' bench linear --rows 2 --n 5 --k 64 --weights q4_0 --repeat 2
expect 0 '"weights":"i8"' bench linear --rows 1 --n 3 --k 5 --weights i8 --dtype f16 --repeat 1 --json
expect 0 '"key_dtype":"q4_0","value_dtype":"f8_e4m3"' bench decode --batch 1 --heads 2 --kv-heads 1 --kv-seq 40 --head-dim 32 --kv q4_0,fp8 --repeat 1 --json
expect 2 '--kv: expected K or K,V of f32' bench decode --batch 1 --heads 2 --kv-heads 1 --kv-seq 40 --head-dim 32 --kv q8_0,q9
expect 0 '"weights":"q8_0","activations":"i8"' bench linear --rows 2 --n 3 --k 96 --weights q8_0 --activations i8 --repeat 1 --json
expect 2 'weight is f32, which has no integers' bench linear --rows 2 --n 3 --k 96 --activations i8
expect 2 '--activations: expected one of input, i8' bench linear --rows 2 --n 3 --k 96 --activations i4
expect 2 "--weights: expected one of f32, f16" bench linear --rows 2 --n 5 --k 64 --weights q9
expect 2 'not whole blocks of 32 values of q4_0' bench linear --rows 2 --n 5 --k 33 --weights q4_0
expect 2 "--m: .*got '-1'" bench matmul --m -1 --n 1 --k 1
expect 2 "--m: .*got '1e3'" bench matmul --m 1e3 --n 1 --k 1
expect 2 "--m: .*got ' 4'" bench matmul --m ' 4' --n 1 --k 1
expect 2 "--k: .*got '99999999999999999999'" bench matmul --m 1 --n 1 --k 99999999999999999999
expect 2 '--k: expected a value' bench matmul --m 1 --n 1 --k
expect 2 '--dtype: expected one of f32, f16, bf16' bench matmul --m 1 --n 1 --k 1 --dtype f64
expect 2 '--path: expected one of' bench attention $sizes --path diagonal
expect 2 '--kv-heads: expected a divisor of --heads 2' bench attention $sizes --kv-heads 3
expect 2 '--heads: expected a divisor of --model-dim 64' \
    bench layer --batch 1 --seq 4 --model-dim 64 --heads 5
expect 2 '.' bench matmul --m 16777216 --n 16777216 --k 16777216
expect 2 '.' bench attention --batch 1048576 --heads 65536 --seq 16777216 --head-dim 65536

# A sweep: every length of every series in the CSV, two plots of three lines in a well-formed picture.
expect 0 '^decode  *time grows as length^' \
    bench sweep --lengths 8,16 --heads 2 --head-dim 4 --repeat 1 --csv s.csv --svg s.svg
[ "$(grep -cE '^(fused|unfused|decode),1,2,2,4,0,f32,[0-9]+,(8|16),1,[0-9.]+,' s.csv)" -eq 6 ] &&
    [ "$(wc -l <s.csv)" -eq 7 ] || fail 'the CSV file of a sweep'
[ "$(grep -c '^<polyline ' s.svg)" -eq 6 ] && [ "$(grep -c '^<circle ' s.svg)" -eq 12 ] &&
    [ "$(tail -n 1 s.svg)" = '</svg>' ] && ! grep -qE '(nan|inf)[, "<]' s.svg ||
    fail 'the plot of a sweep'
expect 2 '--lengths: expected FROM,TO' bench sweep --lengths 64,32
expect 2 '--csv: missing/s.csv: cannot create: No such file' \
    bench sweep --lengths 4,4 --head-dim 4 --repeat 1 --csv missing/s.csv
expect 2 "--svg: expected another file than --csv, got './s.csv' for both" \
    bench sweep --lengths 4,4 --head-dim 4 --repeat 1 --csv s.csv --svg ./s.csv
expect 2 '--csv: expected another file than --tuning-profile' \
    bench sweep --lengths 4,4 --head-dim 4 --repeat 1 --csv s.csv --tuning-profile "$PWD/s.csv"
expect 2 '--output: expected another file than --tuning-profile' tune --output s.csv --tuning-profile s.csv
expect 2 '--output: missing/v: cannot create' tune --output missing/v
rm s.csv s.svg

# ---- check --------------------------------------------------------------------------------------
number=$(find "$cases/seeds" -name '*.safetensors' | wc -l)
expect 0 "^$number passed, 0 failed, 0 skipped\$" check "$cases/seeds"
expect 0 '^{"passed":[1-9][0-9]*,"failed":0,"skipped":0,' check "$cases/seeds" --json
[ "$(wc -l <out)" -eq $((number + 1)) ] || fail 'check --json is not one line a case and a summary'
expect 0 '^1 passed, 0 failed, 0 skipped$' check "$cases/onnx/opset25" # a softmax of float64
seed=$cases/seeds/seed002_small.safetensors
expect 0 '^PASS seed002_small  max_abs=[^ ]* max_rel=[^ ]* row_nmse=[^ ]*$' check "$seed" "$seed"
grep -q '^1 passed, 0 failed, 0 skipped$' out || fail 'a case named twice is not run once'
mkdir bad
corrupt "$seed" bad/output.safetensors expect.output
expect 1 '^FAIL seed002_small .*output\[0,0,0\] got=.* want=1024$' check bad/output.safetensors
grep -q '^0 passed, 1 failed, 0 skipped$' out || fail 'no summary after a failure'
corrupt "$seed" bad/scores.safetensors expect.scores
expect 1 '^FAIL seed002_small .*scores\[0,0,0,0\] ' check bad/scores.safetensors
expect 1 '"result":"fail".*"output":"scores","index":\[0,0,0,0\],"got":' \
    check --json bad/scores.safetensors
# A path that is not UTF-8 is one string all the same: U+FFFD for each byte that is not, and broken,
# overlong and cut characters are no UTF-8. Long names are whole.
if ! lacks 'names that are not UTF-8'; then
odd=$(printf 'caf\303\251 \377\300\200\355\240\200\360\237')
good=$(printf 'caf\303\251 %s' "$(printf '\357\277\275%.0s' 1 2 3 4 5 6 7 8)")
cp "$seed" "$odd.safetensors"
expect 0 "\"file\":\"$good.safetensors\"" check --json "$odd.safetensors"
rm "$odd.safetensors"
fi
long=$(printf 'caf\303\251%.0s' $(seq 60)) # 300 bytes
{
    header=$(json_header "$seed" | sed 's/"seed002_small"/"'"$long"'"/')
    size=$(printf %s "$header" | wc -c)
    for byte in 0 1 2 3 4 5 6 7; do
        printf "\\$(printf %03o $((size >> 8 * byte & 255)))"
    done
    printf %s "$header"
    tail -c +$((9 + $(header_size "$seed"))) "$seed"
} >long.safetensors
expect 0 "\"case\":\"$long\"" check --json long.safetensors
expect 0 "^PASS $long  " check long.safetensors
head -c 100 "$seed" >bad/header.safetensors
expect 2 'bad/header.safetensors' check bad/header.safetensors
head -c $(($(wc -c <"$seed") - 4)) "$seed" >bad/data.safetensors
expect 2 'bad/data.safetensors' check bad/data.safetensors
expect 2 'bad/' check bad/data.safetensors "$seed"
grep -q '^1 passed, 0 failed, 0 skipped$' out || fail 'a malformed case stops the others'
: >bad/empty.safetensors
expect 2 'bad/empty.safetensors' check bad/empty.safetensors
expect 2 'expected case files or folders' check
expect 2 'missing: cannot open' check missing
mkdir none
expect 2 'none: expected case files' check none

# ---- run ----------------------------------------------------------------------------------------
query "$seed" >x.npy
raw "$seed" expect.output >want.raw
raw "$seed" expect.scores >want_scores.raw
expect 0 '' run "$seed" --query x.npy --output y.npy --scores s.npy
npy_raw y.npy >got.raw
npy_raw s.npy >got_scores.raw
same_numbers got.raw want.raw 1e-4 'the output of run'
same_numbers got_scores.raw want_scores.raw 1e-4 'the scores of run'
expect 0 '' run "$seed" --query x.npy --key x.npy --value x.npy --output y2.npy
cmp -s y.npy y2.npy || fail 'run with the query as key and value is not self-attention'
expect 0 '' run "$seed" --query x.npy --output y16.npy --dtype f16
grep -q "'<f2'" y16.npy || fail 'run --dtype f16 does not write float16'

# The first query of a causal layer sees one key: its weights are 1, 0, 0, ...
expect 0 '' run "$seed" --query x.npy --output y3.npy --scores s.npy --causal
npy_raw s.npy | head -c 20 >got.raw
printf '\000\000\200\077\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000' >want.raw
same_numbers got.raw want.raw 0 'the first causal row'
printf '\001\000\000\000\000\000\000\000\005\000\000\000\000\000\000\000' | npy '<i8' '2,' >l.npy
expect 0 '' run "$seed" --query x.npy --output y3.npy --scores s.npy --kv-lengths l.npy
npy_raw s.npy | head -c 20 >got.raw
same_numbers got.raw want.raw 0 'the first row with one key'
printf '\001\000\000\000\000' | npy '|b1' '5,' >m.npy
expect 0 '' run "$seed" --query x.npy --output y3.npy --scores s.npy --mask m.npy
npy_raw s.npy | head -c 20 >got.raw
same_numbers got.raw want.raw 0 'the first row under a mask'

# NaN and Inf in the results, one line each on stderr.
expect 0 '' run "$seed" --query x.npy --output y3.npy --count-nonfinite
grep -q '^output: 0 NaN, 0 Inf$' err || fail "no count of NaN and Inf on stderr"

# The page: whole, with its tokens, and whatever they hold cannot leave the data.
printf '<b>\n</script>\n<!--\n"\nfive\n' >t.txt
expect 0 '' run "$seed" --query x.npy --output y3.npy --html p.html --tokens t.txt --causal
[ "$(head -n 1 p.html)" = '<!doctype html>' ] && [ "$(tail -n 1 p.html)" = '</html>' ] &&
    grep -qF '"keys":["\u003cb>","\u003c/script>","\u003c!--","\"","five"]' p.html &&
    [ "$(grep -c '^</script>$\|</script>' p.html)" -eq 2 ] || fail 'the page of run'
# Model, page and cache in a folder with other letters; and a cache that cannot be written, in /proc,
# as to root a folder without permissions is none.
if ! lacks 'a cache where XDG_CACHE_HOME says'; then
letters=$(printf 'caf\303\251\320\226\346\274\242')
mkdir "$letters"
cp "$seed" "$letters/$letters.safetensors"
XDG_CACHE_HOME="$work/$letters"
expect 0 '' run "$letters/$letters.safetensors" --query x.npy --output "$letters/y.npy" \
    --html "$letters/$letters.html" --causal
cmp y3.npy "$letters/y.npy" || fail "another output in $letters"
[ -s "$letters/$letters.html" ] || fail "no page in $letters"
[ -n "$(find "$letters/vkattn" -name 'pipelines-*.bin')" ] || fail "no cache in $letters"
XDG_CACHE_HOME=/proc
expect 0 '' run "$seed" --query x.npy --output y4.npy --causal
cmp y3.npy y4.npy || fail 'another output without a cache'
XDG_CACHE_HOME="$work/cache"
fi

# A sequence-first layer, with its layout and heads from the metadata.
plain=$cases/seeds/seed000_bias_plain.safetensors
query "$plain" >p.npy
raw "$plain" expect.output >want.raw
expect 0 '' run "$plain" --query p.npy --output y.npy
npy_raw y.npy >got.raw
same_numbers got.raw want.raw 1e-4 'the output of a sequence-first layer'

# Its weights quantised: near the float ones, and not the same; widths of half a block are refused.
for type in q8_0 q4_0; do
    expect 0 '' run "$plain" --query p.npy --output y8.npy --weights $type
    npy_raw y8.npy >got.raw
    near got.raw want.raw $type "the output of a layer of $type"
done
expect 2 'whole blocks' run "$seed" --query x.npy --output y8.npy --weights q8_0
expect 2 '--weights: expected one of q8_0, q4_0' run "$seed" --query x.npy --output y8.npy \
    --weights q4_K

# What is wrong is told before anything is written, and what stands at the output stays.
echo precious >keep.npy
refuse()
{
    pattern=$1
    shift
    expect 2 "$pattern" run "$@"
    ! grep -q '^device: ' err || fail "a device was opened before: vkattn run $*"
    [ "$(cat keep.npy)" = precious ] || fail "the output was touched: vkattn run $*"
}
refuse 'expected one layer file' --query x.npy --output keep.npy
refuse '--query: expected' "$seed" --output keep.npy
refuse '--output: expected' "$seed" --query x.npy
refuse '--output: missing/y.npy: cannot create: No such file' "$seed" --query x.npy --output missing/y.npy
refuse '--output: bad: not a regular file' "$seed" --query x.npy --output bad
refuse '--output: bad/: ' "$seed" --query x.npy --output bad/
refuse '--output: keep.npy/y: ' "$seed" --query x.npy --output keep.npy/y
refuse '--output: y/: ' "$seed" --query x.npy --output y/
refuse '--output: /dev/null: not a regular file' "$seed" --query x.npy --output /dev/null
refuse '--html: missing/p.html: ' "$seed" --query x.npy --output keep.npy --html missing/p.html
refuse '--scores: missing/s.npy: ' "$seed" --query x.npy --output keep.npy --scores missing/s.npy
[ ! -d /proc/self ] || refuse '--output: /proc/self/y: cannot create' \
    "$seed" --query x.npy --output /proc/self/y
mkdir closed
chmod 555 closed
[ "$(id -u)" -eq 0 ] || refuse '--output: closed/y: cannot create' \
    "$seed" --query x.npy --output closed/y
refuse '--scores: expected another file than --output' \
    "$seed" --query x.npy --output keep.npy --scores keep.npy
refuse '--html: expected another file than --output' \
    "$seed" --query x.npy --output keep.npy --html keep.npy
refuse '--scores: expected another file than --output' \
    "$seed" --query x.npy --output keep.npy --scores ./keep.npy
refuse '--scores: expected another file than --output' \
    "$seed" --query x.npy --output new.npy --scores bad/../new.npy
ln keep.npy hard.npy
refuse '--html: expected another file than --output' \
    "$seed" --query x.npy --output keep.npy --html hard.npy
rm hard.npy

# No output is an input, by whatever spelling or link; nothing is computed before that is found out.
mkdir same same/bad
cp x.npy y.npy keep.npy same
cd same || exit 1
cp "$seed" layer.safetensors
for input in layer.safetensors q.npy k.npy v.npy m.npy l.npy t.txt profile.txt; do
    [ "$input" = layer.safetensors ] || cp x.npy "$input"
    ln -s "$input" "soft-$input"
    ln "$input" "hard-$input"
done
inputs='layer.safetensors --query q.npy --key k.npy --value v.npy --mask m.npy --kv-lengths l.npy
    --tokens t.txt --tuning-profile profile.txt'
# refuse_input NAME FILE : FILE is the input that the message calls NAME.
refuse_input()
{
    for spelling in "$2" "./$2" "bad/../$2" "$PWD/$2" "soft-$2" "hard-$2"; do
        refuse "--output: expected another file than $1, got '$spelling'" \
            $inputs --output "$spelling" --html new.html
        refuse "--scores: expected another file than $1, got '$spelling'" \
            $inputs --output new.npy --scores "$spelling" --html new.html
        refuse "--html: expected another file than $1, got '$spelling'" \
            $inputs --output new.npy --html "$spelling"
    done
}
cp layer.safetensors layer.before
refuse_input 'the layer file' layer.safetensors
refuse_input --query q.npy
refuse_input --key k.npy
refuse_input --value v.npy
refuse_input --mask m.npy
refuse_input --kv-lengths l.npy
refuse_input --tokens t.txt
refuse_input --tuning-profile profile.txt
cmp layer.safetensors layer.before || fail 'a layer file was replaced'
cmp x.npy q.npy || fail 'an input was replaced'
refuse '--output: expected another file than --query' layer.safetensors --query soft-q.npy \
    --output hard-q.npy
if ! lacks '/dev/stdin'; then
    refuse '--output: expected another file than --query' layer.safetensors --query /dev/stdin \
        --output q.npy <q.npy
fi
rm -f soft-* hard-* new.* q.npy k.npy v.npy
input=/dev/stdin
if lacks '/dev/stdin'; then
    input=x.npy
fi
expect 0 '' run layer.safetensors --query "$input" --output y2.npy --tuning-profile none <x.npy
expect 0 '' run layer.safetensors --query x.npy --output none --tuning-profile none
expect 0 '' run layer.safetensors --query x.npy --output y.npy
cmp -s y.npy y2.npy || fail 'an input from /dev/stdin gives something else'

# Names as long as the folder takes them, and one that is longer.
for length in 248 249 250 251 252 253 254 255; do
    name=$(printf "%0${length}d" 0)
    expect 0 '' run layer.safetensors --query x.npy --output "$name"
    cmp -s y.npy "$name" || fail "an output with a name of $length bytes"
    rm -f "$name"
done
refuse '--output: .*ile *name too long' layer.safetensors --query x.npy --output "${name}0"
cd ..
refuse '--tokens: expected together with --html' \
    "$seed" --query x.npy --output keep.npy --tokens t.txt
refuse_tokens()
{
    refuse "$1" "$seed" --query x.npy --output keep.npy --html refused.html --tokens t.txt
    [ ! -e refused.html ] || fail 'a page with refused tokens was written'
}
printf 'one\ntwo\n' >t.txt
refuse_tokens 't.txt: expected 5 tokens in sequence 1, one on each line, got 2'
printf '1\n2\n3\n4\n5\n\n\n1\n\n1\n' >t.txt
refuse_tokens 't.txt: expected 1 or 2 sequences with an empty line between, got 3'
printf '1\n2\n3\n4\n\377\n' >t.txt
refuse_tokens 't.txt: expected UTF-8 text, got other bytes in line 5'
printf '\n\n' >t.txt
refuse_tokens 't.txt: expected one line for each token, got none'
rm t.txt
refuse_tokens 't.txt: cannot open'
if ! lacks 'folders and pipes that can be opened'; then
    mkdir t.txt
    refuse_tokens 't.txt: expected a file'
    rmdir t.txt
    mkfifo t.txt # nobody writes to it: to wait for that would be for ever
    refuse_tokens 't.txt: expected a file'
fi
refuse 'missing.npy' "$seed" --query missing.npy --output keep.npy
refuse 'missing.safetensors' missing.safetensors --query x.npy --output keep.npy
refuse 'bad/data.safetensors' bad/data.safetensors --query x.npy --output keep.npy
refuse 'bad/empty.safetensors' bad/empty.safetensors --query x.npy --output keep.npy
refuse '7 heads' "$seed" --query x.npy --output keep.npy --heads 7
refuse "--heads: .*got '0'" "$seed" --query x.npy --output keep.npy --heads 0
refuse 'kv' "$seed" --query x.npy --output keep.npy --kv-heads 3
refuse '--window: .*comma' "$seed" --query x.npy --output keep.npy --window 3
refuse '--window: ' "$seed" --query x.npy --output keep.npy --window=-2,0
refuse '--layout: expected one of bsd, sbd' "$seed" --query x.npy --output keep.npy --layout bhsd
refuse 'p.npy: expected floats' "$seed" --query p.npy --output keep.npy
refuse 'm.npy: expected floats' "$seed" --query m.npy --output keep.npy
refuse 'x.npy: expected bools or floats that broadcast' \
    "$seed" --query x.npy --output keep.npy --mask x.npy
refuse 'm.npy: expected whole numbers' "$seed" --query x.npy --output keep.npy --kv-lengths m.npy
printf '\006\005' | npy '|u1' '2,' >l.npy
refuse 'l.npy: expected lengths from 0 to the 5 keys, got 6' \
    "$seed" --query x.npy --output keep.npy --kv-lengths l.npy
head -c 40 x.npy >t.npy
refuse 't.npy' "$seed" --query t.npy --output keep.npy
head -c 400 x.npy >t.npy
refuse 't.npy' "$seed" --query t.npy --output keep.npy
npy '<f4' '4294967295, 4294967295, 16' </dev/null >t.npy
refuse 't.npy' "$seed" --query t.npy --output keep.npy
[ -z "$(find . -name 'keep.npy?*' -o -name '*.tmp')" ] || fail 'files were left beside the output'

if [ -e /dev/full ] && ! lacks '/dev/full'; then
    checks=$((checks + 1))
    "$vkattn" help >/dev/full 2>err
    [ $? -eq 2 ] || fail 'a full disk looks like success'
    checks=$((checks + 1))
    "$vkattn" devices --json >/dev/full 2>err # more than a buffer of the stream
    [ $? -eq 2 ] && grep -q '^vkattn devices: standard output: cannot write: No space' err ||
        fail 'JSON on a full disk'
    checks=$((checks + 1))
    "$vkattn" version >&- 2>err
    [ $? -eq 2 ] && grep -q '^vkattn: standard output: cannot write: Bad file' err ||
        fail 'a closed output looks like success'
    mnist=$(dirname "$vkattn")/vkattn-mnist
    if [ -x "$mnist" ]; then
        checks=$((checks + 1))
        "$mnist" --help >/dev/full 2>err
        [ $? -eq 2 ] || fail 'vkattn-mnist on a full disk'
    fi
fi

# What a folder of a model has in place of its files.
mkdir bert
expect 2 'bert/config.json: cannot open: No such file' embed bert --ids 1,2
: >bert/config.json
expect 2 'bert/config.json: is empty' embed bert --ids 1,2
printf '{\n"model_type": "bert"' >bert/config.json
expect 2 "bert/config.json: line 2: '}' expected" embed bert --ids 1,2
if ! lacks 'folders and pipes that can be opened'; then
    rm bert/config.json
    mkdir bert/config.json
    expect 2 'bert/config.json: ' embed bert --ids 1,2
    rmdir bert/config.json
    mkfifo bert/config.json
    expect 2 'bert/config.json: not a regular file' embed bert --ids 1,2
fi

# Options behind what they are for, in an environment where C's library stops at the first such word.
export POSIXLY_CORRECT=1
expect 0 '' run "$seed" --query x.npy --output y.npy
expect 0 '1 passed' check "$seed" --path fused
expect 2 'expected one layer file, got 3' run "$seed" --query x.npy y.npy -- --output
unset POSIXLY_CORRECT

echo "$checks checks, $failures failed"
[ "$failures" -eq 0 ]
