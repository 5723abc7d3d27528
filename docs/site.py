"""What the documentation site adds to the pages: the reference, the project's own documents, and the diagram as a picture.

MkDocs calls the ``on_...`` functions (``hooks`` in mkdocs.yml), and Griffe the class, which turns examples into code blocks.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import merm
from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import crowdwise

ROOT = Path(__file__).parents[1]
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE")
FURTHER = (
    "crowdwise.annotations",
    "crowdwise.callbacks",
    "crowdwise.cluster",
    "crowdwise.scoring",
    "crowdwise.registry",
)


def reference() -> dict[str, list[str]]:
    """The public modules and, for each, the places where its public things are defined."""
    modules = [name for name in crowdwise.__all__ if inspect.ismodule(getattr(crowdwise, name))]
    top = [name for name in crowdwise.__all__ if name not in modules and not name.startswith("_")]
    pages = {"crowdwise": [_place(crowdwise, name) for name in top]}
    for name in sorted([*(f"crowdwise.{name}" for name in modules), *FURTHER]):
        module = importlib.import_module(name)
        pages[name] = [_place(module, public) for public in _public(module)]
    return pages


def _public(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return sorted(name for name in module.__all__ if not inspect.ismodule(getattr(module, name)))
    return [
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__ and name[0] != "_"
    ]


def _place(module: Any, name: str) -> str:
    """Where it is defined, as Griffe finds it without running anything; constants stay where they are public."""
    thing = getattr(module, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return f"{thing.__module__}.{thing.__qualname__}"
    return f"{module.__name__}.{name}"


def _reference_page(module: str, places: list[str]) -> str:
    about = inspect.getdoc(importlib.import_module(module)) or ""
    lines = [f"# {module}", "", examples_as_code(about.replace("::\n", ":\n")), ""]
    return "\n".join(lines + [_entry(place) for place in dict.fromkeys(places)])


def _entry(place: str) -> str:
    module, _, name = place.rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return f"::: {place}\n"
    kind = type(thing).__name__
    return f"### {name}\n\n" + (f"`{thing!r}`\n" if len(repr(thing)) < 200 else f"A constant: `{kind}`\n")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fence = {"name": "mermaid", "class": "diagram", "format": _diagram}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    config.mdx_configs["toc"]["slugify"] = anchor
    config.nav = [  # type: ignore[assignment]
        *(config.nav or []),
        {"Reference": [_path(name) for name in reference()]},
        {"Project": [name if name.endswith(".md") else f"{name}.md" for name in PROJECT]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, places in reference().items():
        files.append(File.generated(config, _path(name), content=_reference_page(name, places)))
    for name in PROJECT:
        text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text) if name.endswith(".md") else _plain(config, name, text))
    return files


def _path(module: str) -> str:
    return f"reference/{module.removeprefix('crowdwise.')}.md"


def _plain(config: MkDocsConfig, name: str, text: str) -> File:
    return File.generated(config, f"{name}.md", content=f"# {name.capitalize()}\n\n```text\n{text}\n```\n")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to documents beside docs/ lead to their copies in the site."""
    return re.sub(rf"\]\(((?:\.\./)*)\.\./({'|'.join(map(re.escape, PROJECT))})", r"](\1\2", markdown)


def anchor(heading: str, separator: str) -> str:
    """Headings become anchors as on GitHub, where the pages are read, too."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _diagram(source: str, *_: Any, **__: Any) -> str:
    return f'<div class="diagram">{merm.render_diagram(source)}</div>'


def examples_as_code(text: str) -> str:
    """Doctests within fences; without, Markdown would take them for quotations."""
    return "\n".join(_fenced(text.splitlines()))


def _fenced(lines: list[str]) -> Iterator[str]:
    """An example begins with ``>>>`` and ends with a blank line; those inside of a fence stay as they are."""
    inside, fence = False, False
    for line in lines:
        fence ^= line.lstrip().startswith("```")
        starts = line.lstrip().startswith(">>> ") and not fence
        indent = line[: len(line) - len(line.lstrip())]
        if starts and not inside:
            inside = True
            yield f"\n{indent}```python"
        elif inside and not line.strip():
            inside = False
            yield "```"
        yield line
    if inside:
        yield "```"


class Examples(Extension):
    """Griffe's hook: every docstring passes through `examples_as_code`."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = examples_as_code(obj.docstring.value)
