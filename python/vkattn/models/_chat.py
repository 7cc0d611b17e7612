"""Chats: the template that a model's files bring along, and the prompts that it makes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from .._config import read_json_file, shown
from .._errors import FileError, InvalidError, UnsupportedError
from .._gguf import GGUF

SECONDS = 60.0  # in which a template ends, or is ended: it may use 10 s of processor time
_RENDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_render.py")
_SENTENCES = {
    "said": "refuses these messages",
    "sandbox": "reaches out of the sandbox",
    "endless": "takes too much",
    "wrong": "cannot be rendered",
}
Messages = Sequence[Mapping[str, Any]]


class Template(NamedTuple):
    where: str  # what sentences call it
    source: str
    tokens: dict[str, str]  # such as bos_token

    def render(self, messages: Messages, variables: Mapping[str, Any]) -> str:
        """The prompt that asks for an answer."""
        _check(messages)
        given = {"add_generation_prompt": True, **self.tokens, **variables}
        if importlib.util.find_spec("jinja2") is None:
            raise UnsupportedError(
                "a chat needs the package jinja2 (pip install jinja2); prompts do not"
            )
        if not sys.executable:
            raise UnsupportedError("a chat needs sys.executable, which renders its template")
        path = [place for place in sys.path if place]
        variables = {**given, "messages": messages}
        asked = {"path": path, "template": self.source, "variables": variables}
        try:
            sent = json.dumps(asked)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"messages: expected what JSON has: {error}") from error
        answer = self._run(sent)
        if "text" in answer:
            return str(answer["text"])
        why = _SENTENCES[answer["kind"]]
        kind = InvalidError if answer["kind"] == "said" else UnsupportedError
        raise kind(f"{self.where} {why}: {answer['error']}")

    def _run(self, sent: str) -> Any:
        try:
            done = subprocess.run(
                [sys.executable, "-I", _RENDER],
                input=sent.encode(),
                capture_output=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise UnsupportedError(f"{self.where} does not end") from error
        if done.returncode < 0:
            raise UnsupportedError(f"{self.where} does not end")
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise UnsupportedError(f"{self.where} cannot be rendered: {said}") from error


def _check(messages: Any) -> None:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidError("messages: expected a list of dicts with role and content")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidError(
                f"messages[{i}]: expected a dict with role and content, got {shown(message)}"
            )


def template_of(where: str | GGUF) -> Template:
    """The one of a GGUF file or a folder."""
    return _of_gguf(where) if isinstance(where, GGUF) else _of_folder(where)


def _of_gguf(file: GGUF) -> Template:
    source = file.metadata.get("tokenizer.chat_template")
    if source is None:
        raise UnsupportedError(f"{file.path}: there is no tokenizer.chat_template; give a prompt")
    if not isinstance(source, str):
        raise FileError(f"{file.path}: tokenizer.chat_template: expected a str")
    tokens, own = file.metadata.get("tokenizer.ggml.tokens"), {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        i = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(tokens, list) and type(i) is int and 0 <= i < len(tokens):
            own[f"{name}_token"] = tokens[i]
    return Template(f"{file.path}: tokenizer.chat_template", source, own)


def _of_folder(folder: str) -> Template:
    config = os.path.join(folder, "tokenizer_config.json")
    values = read_json_file(config) if os.path.isfile(config) else {}
    own = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = values.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            own[name] = token
    alone = os.path.join(folder, "chat_template.jinja")
    if os.path.isfile(alone):
        try:
            with open(alone, encoding="utf-8") as file:
                return Template(alone, file.read(), own)
        except (OSError, UnicodeError) as error:
            raise FileError(f"{alone}: cannot be read: {error}") from error
    source = values.get("chat_template")
    if isinstance(source, list):  # several with names
        named = [x for x in source if isinstance(x, dict) and x.get("name") == "default"]
        source = named[0].get("template") if named else None
    if source is None:
        raise UnsupportedError(f"{config}: there is no chat_template; give a prompt")
    if not isinstance(source, str):
        raise FileError(f"{config}: chat_template: expected a str, got {shown(source)}")
    return Template(f"{config}: chat_template", source, own)
