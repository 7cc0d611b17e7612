"""Chats: prompts by the templates of GGUF files and of folders, in a sandbox."""

import json
import time

import pytest
import test_models_text as small
from test_gguf import build
from test_models_gguf import number, texts

import vkattn
from vkattn.models import _chat
from vkattn.models._chat import Template, template_of
from vkattn.models._text import Text

REASON = "jinja2 IS NOT INSTALLED: NO CHAT TEMPLATE WAS RENDERED"
TOKENIZERS = "tokenizers IS NOT INSTALLED: NO CHAT WAS MADE INTO TOKENS"
load = small.load
MESSAGES = [
    {"role": "system", "content": "Be short. "},
    {"role": "user", "content": "Caf\u00e9 <b>?"},
    {"role": "assistant", "content": " th "},
    {"role": "user", "content": "a"},
]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHATML_TEXT = (
    "<|im_start|>system\nBe short. <|im_end|><|im_start|>user\nCaf\u00e9 <b>?<|im_end|>"
    "<|im_start|>assistant\n th <|im_end|><|im_start|>user\na<|im_end|><|im_start|>assistant\n"
)
LIKE_LLAMA = """{{- bos_token }}
{%- if tools is defined and tools %}
    {%- for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {%- if loop.index0 > 5 %}{% break %}{% endif %}
    {{- '<|h|>' ~ message.role ~ '<|e|>\\n\\n' + message['content'] | trim + eos_token }}
{%- endfor %}
{% generation %}{% set ns = namespace(n=0) %}{% set ns.n = messages | length %}{{ ns.n }}
{%- endgeneration %}
"""
LIKE_LLAMA_TEXT = (
    "<s><|h|>user<|e|>\n\nCaf\u00e9 <b>?</s><|h|>assistant<|e|>\n\nth</s><|h|>user<|e|>\n\na</s>4"
)


def rendered(source, messages=MESSAGES, tokens=None, **variables):
    return Template("x", source, tokens or {}).render(messages, variables)


def test_rendered():
    pytest.importorskip("jinja2", reason=REASON)
    assert rendered(CHATML) == CHATML_TEXT
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    assert rendered(LIKE_LLAMA, tokens=ends) == LIKE_LLAMA_TEXT
    tools = rendered(LIKE_LLAMA, tokens=ends, tools=[{"name": "f<\u00e9"}])
    assert tools == LIKE_LLAMA_TEXT.replace("<s>", '<s>{\n  "name": "f<\u00e9"\n}')
    assert rendered("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    assert rendered("{{ a.b }}{{ messages[0].content }}", a={"b": 3}) == "3Be short. "
    assert rendered("x{{ add_generation_prompt }}", add_generation_prompt=False) == "xFalse"


def test_as_transformers(tmp_path):
    pytest.importorskip("jinja2", reason=REASON)
    transformers = pytest.importorskip("transformers", reason="transformers IS NOT INSTALLED")
    tokenizers = pytest.importorskip("tokenizers", reason=TOKENIZERS)
    made = small.of_pieces(tokenizers, "bytes")
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    judge = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **ends)
    for source in (CHATML, LIKE_LLAMA):
        judge.chat_template = source
        want = judge.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
        assert rendered(source, tokens=ends) == want
        judge.save_pretrained(tmp_path)
        assert Text(str(tmp_path)).chat(MESSAGES, {}) == want


@pytest.mark.parametrize("source, sentence", [
    ("{{ ''.__class__.__mro__ }}", "x reaches out of the sandbox: access to attribute '__class__'"),
    ("{{ cycler.__init__.__globals__ }}", "x reaches out of the sandbox"),
    ("{{ messages.append(1) }}", "x reaches out of the sandbox"),
    ("{% for i in range(10**9) %}{% endfor %}", "x takes too much: Range too big"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "x takes too much"),
    ("{{ 'a' * (10 ** 11) }}", "x takes too much"),
    ("{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
     "x takes too much"),
    ("{{ 'a' * (2 ** 24 + 1) }}", "x takes too much: a prompt of 16777217 letters"),
    ("{% include 'secret' %}", "x cannot be rendered"),
    ("{{ open('/etc/passwd') }}", "x cannot be rendered: 'open' is undefined"),
    ("{% if %}", "x cannot be rendered: Expected an expression"),
    ("{{ 1 / 0 }}", "x cannot be rendered: ZeroDivisionError"),
    ("{{ raise_exception('no system') }}", "x refuses these messages: no system"),
])  # fmt: skip
def test_templates_that_are_refused(source, sentence):
    pytest.importorskip("jinja2", reason=REASON)
    with pytest.raises(vkattn.VkattnError) as caught:
        rendered(source)
    assert sentence in str(caught.value)


def test_endless(monkeypatch):
    """Loops in loops without a letter of output, by their time."""
    pytest.importorskip("jinja2", reason=REASON)
    monkeypatch.setattr(_chat, "SECONDS", 2.0)
    loops = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3
    with pytest.raises(vkattn.UnsupportedError, match="^x does not end$"):
        rendered(loops)


def test_messages():
    for wrong in ("hello", {"role": "user"}, 3, ["hello"], [{"content": "a"}], [{"role": 3}]):
        with pytest.raises(vkattn.InvalidError, match="messages"):
            rendered(CHATML, messages=wrong)


def test_what_is_no_json():
    pytest.importorskip("jinja2", reason=REASON)
    with pytest.raises(vkattn.InvalidError, match="messages: expected what JSON has"):
        rendered(CHATML, messages=[{"role": "user", "content": object()}])


def test_without_jinja2(monkeypatch):
    monkeypatch.setattr(_chat.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(vkattn.UnsupportedError, match="a chat needs the package jinja2"):
        rendered(CHATML)


def test_templates_of_files(tmp_path):
    """Where a template stands, and sentences where there is none."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = folder / "tokenizer_config.json"

    def wrote(**values):
        config.write_text(json.dumps(values))
        return template_of(str(folder))

    with pytest.raises(vkattn.UnsupportedError, match="there is no chat_template; give a prompt"):
        template_of(str(folder))
    with pytest.raises(vkattn.UnsupportedError, match="there is no chat_template; give a prompt"):
        wrote(chat_template=[{"name": "tool_use", "template": "a"}])
    with pytest.raises(vkattn.FileError, match="chat_template: expected a str, got 3"):
        wrote(chat_template=3)
    made = wrote(chat_template="a", bos_token={"content": "<s>"}, eos_token="</s>", pad_token=None)
    assert made.source == "a" and made.tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    both = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    assert wrote(chat_template=both).source == "b"
    (folder / "chat_template.jinja").write_text("c\u00e9", encoding="utf-8")
    assert wrote(chat_template="a").source == "c\u00e9"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(vkattn.FileError, match="chat_template.jinja: cannot be read"):
        wrote()

    path = tmp_path / "x.gguf"
    keys = [texts("tokenizer.ggml.tokens", ["a", "<s>"]), number("tokenizer.ggml.bos_token_id", 1)]
    path.write_bytes(build(keys=keys))
    with pytest.raises(vkattn.UnsupportedError, match="there is no tokenizer.chat_template; give"):
        template_of(vkattn.GGUF(path))
    path.write_bytes(build(keys=[*keys, number("tokenizer.chat_template", "t")]))
    assert template_of(vkattn.GGUF(path))[1:] == ("t", {"bos_token": "<s>"})
    path.write_bytes(build(keys=[number("tokenizer.chat_template", 3)]))
    with pytest.raises(vkattn.FileError, match="chat_template: expected a str"):
        template_of(vkattn.GGUF(path))


def test_chat(load, monkeypatch):
    """The template says where a text begins: no second id of its begin stands before it."""
    pytest.importorskip("jinja2", reason=REASON)
    pytest.importorskip("tokenizers", reason=TOKENIZERS)
    model = load(add_bos_token=True)
    model.text.where.metadata["tokenizer.chat_template"] = CHATML
    ids = model.chat_ids(MESSAGES[-1:])
    start, end = small.IM_START, small.IM_END
    assert ids == [start, *b"user\na", end, start, *b"assistant\n"]
    text = "".join(model.chat(MESSAGES[-1:], 8, stop=()))
    assert text == model.decode(model.generate(ids, 8, stop=()))
    source = "{{ raise_exception('tools: ' ~ tools) }}"
    model.text.where.metadata["tokenizer.chat_template"] = source
    with pytest.raises(vkattn.InvalidError, match="refuses these messages: tools: 5"):
        model.chat(MESSAGES, 8, variables={"tools": 5})
