#!/bin/sh
# vkattn-mnist train: the losses of PyTorch, the same bytes each time and after going on with a file,
# a page, and input that must be refused. Usage: test_train.sh VKATTN_MNIST [MODEL...], by default all
# three. Exits 77 where there is no usable Vulkan device. SPDX-License-Identifier: MIT
set -u
export LC_ALL=C

mnist=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
data=$(cd "$(dirname "$0")" && pwd)
shift
models=${*:-documented executed mlp}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
    sed 's/^/    /' out err | head -n 10
}

# expect CODE PATTERN ARGUMENT... : PATTERN is on stdout, or if CODE is not 0 in the one line on stderr.
expect()
{
    code=$1 pattern=$2
    shift 2
    "$mnist" train --no-cache "$@" >out 2>err
    got=$?
    [ "$got" -eq "$code" ] || fail "exit $got, expected $code: train $*"
    if [ "$code" -eq 0 ]; then
        grep -q -e "$pattern" out || fail "no '$pattern' on stdout: train $*"
    else
        grep -v '^device: ' err >lines
        [ "$(wc -l <lines)" -eq 1 ] && grep -q -e "$pattern" lines ||
            fail "not one line with '$pattern' on stderr: train $*"
    fi
}

# The first 256 digits: 4 batches of 64.
{ printf '\000\000\010\003\000\000\001\000'; tail -c +9 "$data/images-idx3-ubyte" | head -c $((8 + 256 * 784)); } >images
{ printf '\000\000\010\001\000\000\001\000'; tail -c +9 "$data/labels-idx1-ubyte" | head -c 256; } >labels
digits='--images images --labels labels'
# 60,000 of 7 x 7 zeros.
{ printf '\000\000\010\003\000\000\352\140\000\000\000\007\000\000\000\007'; head -c 2940000 /dev/zero; } >many
{ printf '\000\000\010\001\000\000\352\140'; head -c 60000 /dev/zero; } >more

# ---- Input that must be refused, before a device is looked for -----------------------------------
expect 2 '--model: expected' $digits --output m
expect 2 '--output: expected' $digits --model mlp
expect 2 '--labels: expected' --images images --model mlp --output m
expect 2 "--model: expected one of documented, executed, mlp, got 'cnn'" $digits --model cnn --output m
expect 2 "--lr: expected a decimal number above 0, got '-1'" $digits --model mlp --output m --lr -1
expect 2 "--lr: expected a decimal number above 0, got 'nan'" $digits --model mlp --output m --lr nan
expect 2 "--lr: expected a decimal number above 0, got '0'" $digits --model mlp --output m --lr 0
expect 2 "--batch: expected a whole number from 1 to 4096, got '0'" $digits --model mlp --output m --batch 0
expect 2 '--test-labels: expected' $digits --model mlp --output m --test-images images
expect 2 'missing/m: cannot create' $digits --model mlp --output missing/m
expect 2 '--output: expected another file than --images' $digits --model mlp --output images
expect 2 'has 1000 labels, expected 256' --images images --labels "$data/labels-idx1-ubyte" \
    --model mlp --output m
{ head -c 8 labels; printf '\012'; tail -c +10 labels; } >bad
expect 2 'bad: label 0 is 10, expected a class below 10' --images images --labels bad \
    --model mlp --output m
expect 2 'expected fewer than 2^31 steps in all, got 100000 epochs of 60000' --model mlp --output m \
    --epochs 100000 --batch 1 --images many --labels more
expect 2 "metadata 'training': expected what 'vkattn-mnist train' writes" $digits \
    --resume "$data/documented.safetensors" --output m
[ -e m ] && fail 'an output was begun'

"$mnist" train --no-cache $digits --model mlp --epochs 0 --output m >out 2>err
if [ $? -eq 3 ]; then
    echo "SKIPPED: NO VULKAN DEVICE, nothing was trained; $failures failures"
    [ "$failures" -eq 0 ] && exit 77
    exit 1
fi
expect 2 '--html: expected another file than --resume' $digits --resume m --output n --html m
expect 2 '--lr: expected without --resume' $digits --resume m --output n --lr 1
expect 2 'has 1000 images, expected the 256 of the training in m' --output n --resume m \
    --images "$data/images-idx3-ubyte" --labels "$data/labels-idx1-ubyte"
head -c $(($(wc -c <m) - 4)) m >cut
expect 2 '^vkattn mnist train: cut: ' $digits --resume cut --output n

# ---- Training ------------------------------------------------------------------------------------
# losses FILE : its 8 losses, one a line; the array is the last of the file.
losses()
{
    tail -c 32 "$1" | od -An -v -t f4 | tr -s ' ' '\n' | sed '/^$/d'
}

for model in $models; do
    expect 0 '^epoch 2/2: loss ' $digits --model $model --epochs 2 --output whole --html p.html
    accuracy=$(tail -n 1 out)
    losses whole >got
    grep "^$model " "$data/losses.txt" | cut -d ' ' -f 2- | tr ' ' '\n' >want
    paste got want | awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF == 2 && d <= 1e-5) n++ }
        END { exit n != 8 }' || fail "$model: other losses than PyTorch's: $(paste got want)"
    [ "$(head -n 1 p.html)" = '<!doctype html>' ] && [ "$(tail -n 1 p.html)" = '</html>' ] &&
        [ "$(grep -c '<circle ' p.html)" -eq 2 ] && grep -q '^</svg>$' p.html ||
        fail "$model: the page"

    [ $model = executed ] && continue # as documented, and takes twice as long

    # Again, in two calls; the file replaces itself.
    expect 0 '^epoch 1/1: loss ' $digits --model $model --epochs 1 --output parts
    expect 0 '^epoch 2/2: loss ' $digits --resume parts --epochs 2 --output parts
    cmp whole parts || fail "$model: other bytes in two parts"
    expect 2 '--epochs: expected at least the 2' $digits --resume parts --epochs 1 --output parts

    # The file is a model.
    "$mnist" --no-cache --model whole $digits --html p.html >out 2>err
    [ "$(tail -n 1 out)" = "$accuracy" ] || fail "$model: $accuracy, and then $(tail -n 1 out)"
done

# A last batch that is not whole, test digits, and a loss that is no number: the file stays as it was.
expect 0 '^accuracy: .*/1000)$' $digits --model mlp --batch 100 --epochs 1 --output m \
    --test-images "$data/images-idx3-ubyte" --test-labels "$data/labels-idx1-ubyte"
expect 1 'the loss is .*; a smaller --lr may help' $digits --model mlp --lr 1e30 --epochs 3 --output m
[ -z "$(find . -name '*.tmp' -o -name 'm?*' ! -name many ! -name more)" ] || fail 'files were left beside the output'

echo "$failures failures"
[ "$failures" -eq 0 ]
