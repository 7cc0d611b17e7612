#!/usr/bin/env python3
"""Writes the pages of vkattn's site: those of docs/, the manuals of the commands, and a reference of the
public headers, with a heading for each function, struct and enum.

    python3 tools/dev/site.py FOLDER     # FOLDER/mkdocs.yml, FOLDER/docs
    mkdocs build -f FOLDER/mkdocs.yml    # FOLDER/site, which needs no network: PyPI's mkdocs-material

The headers are plain C with a comment before what it is about; a public function without a comment, or a
page that links to nothing, is an error. SPDX-License-Identifier: MIT"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = {
    "vkattn.h": "Devices, tensors, attention, layers, plans",
    "vkattn_cache.h": "Caches",
    "vkattn_dtype.h": "Element types",
    "vkattn_model.h": "What models have around attention",
    "vkattn_train.h": "Training",
    "vkattn_vulkan.h": "An application's own Vulkan device",
    "vkattn_io.h": "Files",
    "vkattn_mpi.h": "Several devices",
    "vkattn_operations.h": "Operations, as a table",
    "vkattn.hpp": "C++",
}
PAGES = {
    "Start": ["index.md", "start.md", "examples.md", "building.md"],
    "What it computes": ["contract.md", "robustness.md", "systems.md", "gpus.md", "benchmarks.md"],
    "Python": ["models.md", "pytorch.md"],
    "Several devices": ["several-devices.md"],
    "Inside": ["architecture.md", "contributing.md", "security.md", "changelog.md"],
}
COMMANDS = ["vkattn", "vkattn-mnist", "vkattn-mpi"]
# Words with an underscore in them, with what is called or a member, and shapes, such as [batch][n_q].
CODE = re.compile(
    r"((?<!\w)[\w.>-]*[a-zA-Z]_[\w.>-]*\w(?:\([^()]*\))?(?!\w)"
    r"|\w+::\w+(?:<\w+>)?"
    r"|(?:\[[\w.]+(?: [*+/-] [\w.]+)*\]){2,})"
)
# A table without titles has no row of them. Code of 100 columns stands whole on a wide screen. What mandoc
# indents is a quotation to Markdown alone. An option does not break behind its hyphens. Comments in code
# and links that are code have a contrast of 4.5 and more.
STYLE = """\
.md-typeset table thead:not(:has(th:not(:empty))) { display: none; }
.md-grid { max-width: 76rem; }
.md-typeset h1 { color: inherit; font-weight: 400; }
.md-typeset blockquote { color: inherit; border-left-color: var(--md-default-fg-color--lightest); }
.md-typeset .option { white-space: nowrap; }
[data-md-color-scheme="default"] { --md-default-fg-color--light: #000000a0; }
[data-md-color-scheme="slate"] { --md-typeset-a-color: #8badf5; }
"""
COMMENT = re.compile(r"/\*(.*?)\*/", flags=re.S)


def prose(comment):
    """A comment as Markdown: indented lines are code, as are words with an underscore in them."""
    lines = [re.sub(r"^ ?\* ?", "", line).rstrip() for line in comment.strip().splitlines()]
    text = "\n".join(lines)
    text = re.sub(r"^-+ (.*?) -+$", r"\1", text)
    out = []
    for line in text.splitlines():
        if not line.startswith("    "):
            line = "".join(
                f"`{word}`" if i % 2 else re.sub(r"([|\[*])", r"\\\1", word.replace("<", "&lt;"))
                for i, word in enumerate(CODE.split(line))
            )
        out.append(line)
    return "\n".join(out)


def blocks(header):
    """(comment, code) of a header in its order: what stands between empty lines, with the comment that
    opens it. A comment alone belongs to what follows it."""
    text = (ROOT / "include" / "vkattn" / header).read_text(encoding="utf-8")
    text = re.sub(r"#ifdef __cplusplus.*?#endif\n", "", text, flags=re.S)
    text = re.sub(r" *SPDX-License-Identifier: MIT", "", text)
    pending = ""
    for block in re.split(r"\n\s*\n", text):
        found = COMMENT.match(block.strip())
        comment = found.group(1) if found else ""
        code = block.strip()[found.end() :].strip() if found else block.strip()
        if not code:
            pending = f"{pending}\n\n{prose(comment)}" if pending else prose(comment)
            continue
        yield pending, prose(comment) if comment else "", code
        pending = ""


def names_of(code):
    functions = re.findall(r"\b(vka_\w+)\(", "\n".join(declarations(code)))
    types = re.findall(r"^(?:struct|enum) (vka_\w+) \{", code, flags=re.M)
    return types + functions


def declarations(code):
    """Up to the parenthesis, without what functions take."""
    bare = COMMENT.sub("", code)
    return re.findall(r"VKA_API [^;(]*\(", bare)


def reference(header):
    """The page of a header, and the public functions on it."""
    lines = [f"# {header}", "", HEADERS[header] + f": `#include <vkattn/{header}>`.", ""]
    seen = []
    for before, comment, code in blocks(header):
        title = re.match(r"^([A-Z][^\n.]{2,60})$", before.split("\n")[0]) if before else None
        if title and "\n" not in before.strip():
            lines += [f"## {title.group(1)}", ""]
        elif before:
            lines += [before, ""]
        names = names_of(code)
        if "#define VKA_API" in code:
            continue
        if not names and ("#include" in code or "#ifndef" in code or code.startswith("#endif")):
            lines += [comment, ""]  # the manual that a header opens with
            continue
        for name in names:
            lines += [f"### `{name}` {{#{name}}}", ""]
        if comment:
            lines += [comment, ""]
        code = re.sub(r"^ {8}( {20,})", r"\1", code.replace("VKA_API ", ""), flags=re.M)
        lines += ["```c" if header.endswith(".h") else "```cpp", code, "```", ""]
        seen += names
    return "\n".join(lines) + "\n", seen


def linked(text, place):
    """Relative links of a page of the repository as the site has them."""

    def link(found):
        target, anchor = found.group(2), found.group(3) or ""
        if re.match(r"^[a-z]+:|^$", target):
            return found.group(0)
        path = (ROOT / place / target).resolve()
        inside = path.relative_to(ROOT).as_posix()
        if not path.exists():
            sys.exit(f"site: {place}: {target} does not exist")
        if inside.startswith("docs/") and inside.endswith(".md"):
            target = inside[len("docs/") :]
        elif inside.startswith("include/vkattn/"):
            target = f"reference/{path.stem}_{path.suffix[1:]}.md"
        elif inside in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
            target = inside.lower()
        elif re.fullmatch(r"docs/vkattn[a-z-]*\.1", inside):
            target = f"commands/{path.stem}.md"
        elif inside.startswith("examples"):
            target, anchor = "examples.md", f"#{path.stem}" if path.is_file() else ""
        elif inside.endswith(".png"):
            target = path.name
        else:  # a file of the source: named, not linked
            return f"`{inside}`" if found.group(1) != "!" else found.group(0)
        start = found.group(0)[: found.start(2) - found.start(0)]
        return f"{start}{target}{anchor})"

    return re.sub(r"(!?)\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def manual(name):
    """A manual page as Markdown, by mandoc where that is installed."""
    page = ROOT / "docs" / f"{name}.1"
    if shutil.which("mandoc"):
        made = subprocess.run(["mandoc", "-T", "markdown", page], check=True, capture_output=True)
        _, text = made.stdout.decode().split("\n", 1)  # without the line of what manual it is
        text = re.sub(r"\*\*-[^*\n]+\*\*", r"\g<0>{ .option }", text)
        return f"# {name}\n\n" + text.replace("\n# ", "\n## ")
    return f"# {name}\n\n```\n{page.read_text()}\n```\n"


def examples():
    lines = ["# Examples", "", "Each is one file, for copying.", ""]
    folder = ROOT / "examples"
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".c", ".cpp", ".py")):
        kind = {".py": "python", ".cpp": "cpp"}.get(path.suffix, "c")
        lines += [f"## {path.name} {{#{path.stem}}}", "", f"```{kind}", path.read_text().strip(), "```", ""]
    return "\n".join(lines)


def home():
    """README, with the picture of the theme that is shown."""
    text = linked((ROOT / "README.md").read_text(encoding="utf-8"), ".")
    shown = "![What each head attends to](attention{0}.png#only-{1})"
    both = shown.format("", "light") + shown.format("-dark", "dark")
    return re.sub(r"<picture>.*?</picture>", both, text, flags=re.S)


def settings(navigation):
    return f"""site_name: vkattn
site_description: Transformers on any Vulkan GPU or none
theme:
  name: material
  font: false
  features: [navigation.tabs, navigation.sections, content.code.copy, toc.follow]
  palette: # as the system's, each day again, until a reader chooses
    - {{media: "(prefers-color-scheme)", toggle: {{icon: material/brightness-auto, name: Light}}}}
    - {{media: "(prefers-color-scheme: light)", scheme: default, primary: indigo,
       toggle: {{icon: material/weather-sunny, name: Dark}}}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, primary: indigo,
       toggle: {{icon: material/weather-night, name: As the system}}}}
markdown_extensions: [attr_list, tables, toc, pymdownx.highlight, pymdownx.superfences]
use_directory_urls: false
plugins: [search]
extra_css: [extra.css]
validation: {{links: {{not_found: warn, anchors: warn, unrecognized_links: warn}}}}
nav:
{navigation}"""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    docs = out / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    (docs / "reference").mkdir(parents=True)
    (docs / "commands").mkdir()
    pages = {path.name: linked(path.read_text(), "docs") for path in (ROOT / "docs").glob("*.md")}
    pages["index.md"] = home()
    for name in ("CHANGELOG.md", "SECURITY.md"):
        pages[name.lower()] = linked((ROOT / name).read_text(), ".")
    pages["examples.md"] = examples()
    navigation = ""
    for section, names in PAGES.items():
        navigation += f"  - {section}:\n" + "".join(f"    - {name}\n" for name in names)
    left = set(pages) - {name for names in PAGES.values() for name in names}
    if left:
        sys.exit(f"site: tools/dev/site.py names no place for {', '.join(sorted(left))}")
    navigation += "  - C and C++:\n"
    functions = 0
    for header in HEADERS:
        name = f"reference/{header.replace('.', '_')}.md"
        pages[name], seen = reference(header)
        text = (ROOT / "include" / "vkattn" / header).read_text()
        declared = re.findall(r"VKA_API [^;(]*?\b(vka_\w+)\(", text)
        missing = [function for function in declared if function not in seen]
        if missing:
            sys.exit(f"site: {header}: no heading for {', '.join(missing)}")
        functions += len(declared)
        navigation += f"    - {header}: {name}\n"
    unlisted = {p.name for p in (ROOT / "include" / "vkattn").iterdir()} - set(HEADERS)
    if unlisted:
        sys.exit(f"site: tools/dev/site.py does not list {', '.join(sorted(unlisted))}")
    navigation += "  - Commands:\n"
    for name in COMMANDS:
        pages[f"commands/{name}.md"] = manual(name)
        navigation += f"    - {name}: commands/{name}.md\n"
    for name, text in pages.items():
        (docs / name).write_text(text, encoding="utf-8")
    (docs / "extra.css").write_text(STYLE, encoding="utf-8")
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, docs)
    (out / "mkdocs.yml").write_text(settings(navigation), encoding="utf-8")
    print(f"{len(pages)} pages, {functions} functions")


main()
