"""python -m vkattn.models FILE "prompt": what a decoder continues a prompt by, as it comes."""

from __future__ import annotations

import argparse
import sys

from .._errors import InvalidError, VkattnError
from ._decoder import Decoder
from ._load import load


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m vkattn.models", description=__doc__)
    parser.add_argument("file", help="a folder or a GGUF file")
    parser.add_argument("prompt", help="a text")
    parser.add_argument("-n", type=int, default=128, help="ids at most (128)")
    parser.add_argument("--chat", action="store_true", help="as a message, by the chat template")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the most likely ids")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    options = {"temperature": given.temperature, "seed": given.seed}
    try:
        model = load(given.file)
        if not isinstance(model, Decoder):
            kind = type(model).__name__
            raise InvalidError(f"{given.file}: its class, {kind}, continues no prompts")
        if given.chat:
            message = {"role": "user", "content": given.prompt}
            pieces = model.chat([message], given.n, **options)
        else:
            pieces = model.stream(given.prompt, given.n, **options)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
    except VkattnError as error:
        print(f"vkattn.models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
