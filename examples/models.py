"""Runs a whole decoder on a Vulkan device: a GGUF file, or a folder with config.json and safetensors
files. Needs numpy and cffi alone; a text as the prompt needs the package tokenizers.

    python models.py MODEL "Vulkan is"
    python models.py MODEL 1,5,9          # ids in, ids out

SPDX-License-Identifier: MIT"""

import sys

import vkattn.models


def main(path: str, prompt: str, count: int = 16) -> None:
    model = vkattn.models.load(path)
    if prompt.replace(",", "").isdigit():
        ids = [int(word) for word in prompt.split(",")]
        for token in model.generate(ids, count, stop=()):
            print(token, end=" ", flush=True)
    else:
        for text in model.stream(prompt, count):
            print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
