"""The parts of docs/ that follow from the code: methods, TAIDTM's defaults, and the diagram of the packages.

    python docs/generated.py            # print them
    python docs/generated.py --write    # put them into the documents

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end of generated -->``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csr_array

from crowdwise import TAIDTM
from crowdwise.registry import METHODS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "crowdwise"
DOCUMENTS = tuple(ROOT / "docs" / f"{name}.md" for name in ("methods", "architecture", "taidtm"))
HIDDEN = {"__init__", "__main__", "theory"}  # the exports, the entry point, an old name
EVERYWHERE = {"errors", "plugins", "registry", "progress"}  # too basic to be drawn

T = TypeVar("T", str, tuple[str, ...])
Group: TypeAlias = tuple[str, ...]


def methods() -> str:
    """Every registered method, with the first sentence of its docstring."""
    rows = [f"| `{name}` | {summary(METHODS[name].__doc__)} |" for name in METHODS]
    return "\n".join(["| name | what it is |", "|---|---|", *rows])


def summary(docstring: str | None) -> str:
    """The first paragraph in one line, without the full stop."""
    return " ".join((docstring or "").strip().split("\n\n")[0].split()).removesuffix(".").replace("|", r"\|")


def packages() -> str:
    """The packages from the command line down to the basics; an arrow leads from a package to what it builds on."""
    graph = components(imports())
    order = layered(graph)
    names = {group: f"{group[0]}_" for group in order}  # "graph" alone is a word of Mermaid
    nodes = [f"  {names[group]}[{', '.join(group)}]" for group in order if not EVERYWHERE & set(group)]
    arrows = []
    for group in order:
        below = [names[other] for other in reduced(graph, group) if not EVERYWHERE & set(other)]
        arrows += [f"  {names[group]} --> {' & '.join(below)}"] if below else []
    rows = [f"| `{name}` | {summary(docstring(name))} |" for group in order for name in group]
    head = ["| package | what it holds |", "|---|---|"]
    return "\n".join(["```mermaid", "flowchart TD", *nodes, *arrows, "```", "", *head, *rows])


def taidtm_defaults() -> str:
    """What TAIDTM does where a parameter is not given: on pictures, on feature vectors, and by the paper."""
    kinds = [(TAIDTM(), (3, 32, 32)), (TAIDTM(), (10,)), (TAIDTM(recipe="paper"), (3, 32, 32))]
    rows: dict[str, list[str]] = {}
    for model, shape in kinds:
        problem: Any = SimpleNamespace(shape=shape, train=range(1000))
        recipe, features = model.training(problem), model.for_features(shape)
        heads = model.mapped_heads(csr_array(np.eye(3)), 1, 2, None, features=features)
        bottleneck = [weight.shape[0] for weight in model.new_transition(shape).bottleneck.parameters()]
        found = {
            "`warmup_epochs`": f"5, at least {recipe.early_steps} steps",
            "`transition_epochs`": "5, at least 200 steps over the distilled examples",
            "`gcn_epochs`": "10, at least 200 steps over the distilled examples",
            "`min_examples`": "30, or half of what an annotator has on average",
            "`k`": ", ".join(f"{model.neighbours(size, features)} of {size}" for size in (44, 60, 300)),
            "`gcn_hidden`": str(next(weight.shape[1] for weight in heads.parameters() if weight.shape[0] == 3)),
            "`bottleneck`": str(bottleneck[0]) if bottleneck else "none",
            "`optimiser`, `lr`": f"{recipe.optimiser} {recipe.lr:g}",
            "`batch_size`": str(recipe.batch_size),
            "`classifier_start`": model.usual_start(shape),
        }
        for name, value in found.items():
            rows.setdefault(name, []).append(value)
    head = ['| parameter | pictures | feature vectors | `recipe="paper"` |', "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items())])


def docstring(package: str) -> str | None:
    path = SOURCE / package / "__init__.py"
    return ast.get_docstring(ast.parse((path if path.exists() else SOURCE / f"{package}.py").read_text("utf-8")))


def imports() -> dict[str, set[str]]:
    """The import graph of the source, imports inside functions included and those for type checkers alone left out."""
    graph: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package not in HIDDEN and not package.startswith("_"):
            graph.setdefault(package, set()).update(_imported(ast.parse(path.read_text("utf-8"))))
    return {package: {name for name in found if name in graph} - {package} for package, found in graph.items()}


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and node.module == "crowdwise":
        yield from (alias.name for alias in node.names)
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    yield from (name.split(".")[1] for name in names if name.startswith("crowdwise."))
    for child in ast.iter_child_nodes(node):
        yield from _imported(child)


def reachable(graph: Mapping[T, set[T]], start: T) -> set[T]:
    """Everything that ``start`` imports, directly or not."""
    found: set[T] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def components(graph: Mapping[str, set[str]]) -> dict[Group, set[Group]]:
    """The graph of groups of packages that import each other; most groups are one package."""
    reach = {name: reachable(graph, name) for name in graph}
    group = {name: (name, *sorted(o for o in reach[name] - {name} if name in reach[o])) for name in graph}
    group = {name: tuple(sorted(members)) for name, members in group.items()}
    return {
        members: {group[other] for name in members for other in graph[name]} - {members} for members in group.values()
    }


def layered(graph: Mapping[Group, set[Group]]) -> list[Group]:
    """The groups, each before everything that it imports."""

    @functools.cache
    def height(group: Group) -> int:
        return 1 + max((height(other) for other in graph[group]), default=0)

    return sorted(graph, key=lambda group: (-height(group), group))


def reduced(graph: Mapping[Group, set[Group]], group: Group) -> list[Group]:
    """What a group imports, without what it would also reach through another of its imports."""
    return sorted(graph[group] - {far for other in graph[group] for far in reachable(graph, other)})


def filled(text: str, parts: Mapping[str, str]) -> str:
    """The document with its generated parts as the code has them."""
    pattern = r"(<!-- generated: (\w+) -->)\n.*?(<!-- end of generated -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{parts[found[2]]}\n{found[3]}", text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the parts into the pages of docs")
    parts = {"methods": methods(), "packages": packages(), "taidtm_defaults": taidtm_defaults()}
    if not parser.parse_args().write:
        print("\n\n".join(parts.values()))
        return
    for path in DOCUMENTS:
        path.write_text(filled(path.read_text("utf-8"), parts), "utf-8")


if __name__ == "__main__":
    main()
