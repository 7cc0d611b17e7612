"""Renders a chat template: a program of its own, which `_chat.py` starts, with bounds, since a
template is a program that a model's file brings along.

Reads {"path", "template", "variables"} as JSON and writes {"text"}, or {"kind", "error"}.
"""

import datetime
import json
import sys
from typing import Any

SECONDS = 10  # of processor time
BYTES = 1 << 30  # of addresses
MOST = 1 << 24  # letters of a prompt


class Raised(Exception):
    """What a template raises itself."""


def limit() -> None:
    try:
        import resource
    except ImportError:  # Windows: whoever started this one waits no longer than it wants
        return
    for what, most in ((resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_AS, BYTES)):
        hard = resource.getrlimit(what)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (soft, hard))


def environment() -> Any:
    """With what transformers gives templates."""
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what a model said, which matters where one is trained."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: Any) -> None:
        raise Raised(str(message))

    def tojson(value: Any, indent: Any = None, ensure_ascii: bool = False, **more: Any) -> str:
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, **more)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def render(asked: Any) -> Any:
    from jinja2 import TemplateError
    from jinja2.exceptions import SecurityError

    try:
        text = environment().from_string(asked["template"]).render(**asked["variables"])
    except Raised as error:
        return {"kind": "said", "error": str(error)}
    except SecurityError as error:
        return {"kind": "sandbox", "error": str(error)}
    except (MemoryError, RecursionError, OverflowError) as error:
        return {"kind": "endless", "error": str(error) or type(error).__name__}
    except TemplateError as error:
        return {"kind": "wrong", "error": str(error)}
    except Exception as error:  # whatever its expressions raise
        return {"kind": "wrong", "error": f"{type(error).__name__}: {error}"}
    if len(text) > MOST:
        return {"kind": "endless", "error": f"a prompt of {len(text)} letters"}
    return {"text": text}


def main() -> None:
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    limit()
    json.dump(render(asked), sys.stdout)


if __name__ == "__main__":
    main()
