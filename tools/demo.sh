#!/bin/sh
# Installs what is missing, builds, and classifies 1,000 handwritten digits with one attention layer
# on the most capable Vulkan device, which without a GPU is Mesa's CPU driver. Arguments go to
# vkattn-mnist.
set -eu

classify() {
    build/vkattn-mnist --model tests/mnist/documented.safetensors \
        --images tests/mnist/images-idx3-ubyte --labels tests/mnist/labels-idx1-ubyte \
        --html build/mnist.html "$@"
}

cd -- "$(dirname -- "$0")/.."
tools/setup.sh build
echo "demo: classifying the 1,000 digits of tests/mnist"
echo "demo: for a browser, each head's attention: $PWD/build/mnist.html"
status=0
classify "$@" || status=$?
if [ "$status" -eq 3 ] && [ "$#" -eq 0 ]; then
    echo "demo: the drivers here offer no device; adding Mesa's CPU driver"
    tools/setup.sh driver
    status=0
    classify || status=$?
fi
exit "$status"
