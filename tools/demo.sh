#!/bin/sh
# Installs what is missing, builds, and classifies 1,000 handwritten digits with one attention layer
# on the most capable Vulkan device, which without a GPU is Mesa's CPU driver. Arguments go to
# vkattn-mnist.
set -eu

cd -- "$(dirname -- "$0")/.."
tools/setup.sh build

status=0
build/vkattn devices >build/devices.txt 2>&1 || status=$?
if [ "$status" -eq 3 ]; then
    echo "demo: no driver here offers a device; adding Mesa's CPU driver"
    tools/setup.sh driver
fi
echo "demo: classifying 1,000 digits of tests/mnist"
echo "demo: each head's attention goes to $PWD/build/mnist.html, for any browser"
exec build/vkattn-mnist --model tests/mnist/documented.safetensors \
    --images tests/mnist/images-idx3-ubyte --labels tests/mnist/labels-idx1-ubyte \
    --html build/mnist.html "$@"
