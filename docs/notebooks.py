"""The tutorials as notebooks, docs/tutorials/*.ipynb: the Markdown pages are the source, and nothing is edited here.

    python docs/notebooks.py --write

A block of Python becomes a cell for each printed result, without prompts and results; a command becomes ``!crowdwise ...``.
"""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

TUTORIALS = Path(__file__).parent / "tutorials"
SOURCES = sorted(path for path in TUTORIALS.glob("*.md") if path.name != "index.md")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def parts(text: str) -> Iterator[tuple[str, str, str]]:
    """The kind (markdown, python or sh) of each part of a page, its source, and what it prints.

    >>> list(parts("# Add\\n\\n```python\\n>>> a = 1\\n>>> a + 1\\n2\\n>>> b = 3\\n\\n```\\n\\nDone.\\n"))
    [('markdown', '# Add', ''), ('python', 'a = 1\\na + 1', '2\\n'), ('python', 'b = 3', ''), ('markdown', 'Done.', '')]
    """
    for place, part in enumerate(re.split(r"^(```(?:python|sh)\n.*?^```)$", text, flags=re.MULTILINE | re.DOTALL)):
        if place % 2 == 0:
            if part.strip():
                yield "markdown", part.strip(), ""
            continue
        language, _, code = part.removeprefix("```").removesuffix("```").partition("\n")
        if language == "sh":
            yield "sh", code.strip(), ""
            continue
        lines: list[str] = []
        for example in doctest.DocTestParser().get_examples(code):
            lines.append(example.source.rstrip("\n"))
            if example.want:
                yield "python", "\n".join(lines), example.want
                lines = []
        if lines:
            yield "python", "\n".join(lines), ""


def notebook(text: str) -> nbformat.NotebookNode:
    """A page as a notebook."""
    cells = []
    for number, (kind, source, _) in enumerate(parts(text)):
        if kind == "sh":
            source = "\n".join(f"!{line}" for line in source.splitlines())
        make = new_markdown_cell if kind == "markdown" else new_code_cell
        cells.append(make(source, id=f"cell-{number}"))
    made = new_notebook(cells=cells, metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}})
    nbformat.validate(made)
    return made


def written(path: Path) -> str:
    """The file that belongs to a page."""
    return str(nbformat.writes(notebook(path.read_text("utf-8")))) + "\n"


def main() -> None:
    for path in SOURCES:
        file = path.with_suffix(".ipynb")
        old = file.read_text("utf-8") if file.exists() else ""
        if (new := written(path)) != old:
            if "--write" not in sys.argv:
                sys.exit(f"{file.name} is not what {path.name} says; run: python docs/notebooks.py --write")
            file.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
