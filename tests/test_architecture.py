"""The layout of the architecture: a module imports only from layers above its own, and nothing heavy too early."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "crowdwise"
LAYERS = [
    ["errors", "constraints", "plugins", "registry", "system", "callbacks", "_moved"],
    ["storage", "data", "progress", "annotations"],
    ["agreement", "ranking"],
    ["simulate", "readers", "datasets"],
    ["aggregation"],
    ["scoring"],
    ["networks"],
    ["graph"],
    ["encoders"],
    ["engine"],
    ["methods"],
    ["quality", "comparison"],
    ["judges", "figures"],
    ["streaming"],
    ["presets"],
    ["data.inputs", "data.labelled", "data.located", "data.training"],
    ["report"],
    ["reviewing"],
    ["bench"],
    ["cluster"],
    ["tasks"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


@functools.cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """All statements of a file that import something."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path):
    """Dotted names below crowdwise."""
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "crowdwise":
            below = node.module.split(".")[1:]
            yield from (".".join([*below, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("crowdwise.") for a in node.names if a.name.startswith("crowdwise."))


def layer(name: str) -> str | None:
    """The entry of the layout that a dotted name belongs to: a file's own, or else its package's."""
    parts = name.split(".")
    return next((found for end in (2, 1) if (found := ".".join(parts[:end])) in RANK), None)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_layers_above(path):
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    if name == "__init__":
        pytest.skip("the package exports everything, lazily")
    own = layer(name)
    assert own is not None, f"{name} has no place in the layout"
    for imported in filter(None, map(layer, imports(path))):
        assert RANK[imported] <= RANK[own], f"{own} imports {imported}, which lies below it"


def test_files_are_replaced_by_one_writer():
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith("storage/"):
            found = [
                call for call in ("os.replace", "os.fsync", "mkstemp", "NamedTemporaryFile") if call in path.read_text()
            ]
            assert not found, f"{name} has a writer of its own"


def private_imports(path: Path):
    """Private names and modules that a file imports from other packages, as dotted names."""
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py").replace("__init__", "_moved")  # crowdwise's own
    for node in statements(path):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("crowdwise"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("crowdwise.")]
        for name in names:
            parts = name.split(".")[1:]
            if parts[0] != own and any(part.startswith("_") and not part.startswith("__") for part in parts):
                yield name


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_private_is_imported_from_another_package(path):
    assert list(private_imports(path)) == []


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


COMMAND_LINE = [
    ("import crowdwise.tasks", "torch sklearn scipy matplotlib numpy pandas pyarrow"),
    ("import crowdwise.cli", "torch sklearn scipy matplotlib numpy pandas pyarrow"),
]
LIBRARY = [  # what may import more comes later
    ("import crowdwise", "torch sklearn pandas numba"),
    ("import crowdwise.annotations, crowdwise.readers", "torch pandas polars sklearn numba"),
    ("import crowdwise.agreement, crowdwise.quality", "torch pandas polars sklearn numba"),
    ("import crowdwise.aggregation", "torch pandas polars sklearn numba"),
    ("import crowdwise.judges", "torch pandas polars sklearn numba"),
    ("import crowdwise.simulate", "torch sklearn pandas polars"),
    ("import crowdwise.graph", "torch sklearn pandas polars"),
    ("import crowdwise.bench.paper.theory", "torch"),
    ("from crowdwise import datasets; datasets.names()", "torch pandas polars sklearn PIL scipy.io"),
    ("from crowdwise.bench import figures, paper, rendering, tables", "torch matplotlib sklearn rich"),
    ("import crowdwise.tasks.aggregate, crowdwise.tasks.report", "torch pandas polars sklearn"),
    ("import crowdwise.report", "matplotlib"),
    ("from crowdwise import report; report.accuracy_chart({'a': 0.5})", "matplotlib.pyplot"),
    ("import crowdwise.cluster, crowdwise.streaming, crowdwise.bench.runner, crowdwise.tasks.train", "ray"),
]


@pytest.mark.parametrize("steps", [COMMAND_LINE, LIBRARY], ids=["command line", "library"])
def test_nothing_heavy_is_imported_too_early(steps):
    """One interpreter goes through all steps; what a step must not import was not imported before it either."""
    check = "{code}; print(sorted({heavy} & set(sys.modules)))"
    lines = ["import sys", *(check.format(code=code, heavy=set(heavy.split())) for code, heavy in steps)]
    found = run("\n".join(lines)).splitlines()
    assert list(zip(steps, found, strict=True)) == [(step, "[]") for step in steps]


def test_importing_crowdwise_imports_fewer_modules_than_importing_numpy():
    count = "import sys; before = set(sys.modules); import {}; print(len(set(sys.modules) - before))"
    ours, theirs = (int(run(count.format(name))) for name in ("crowdwise", "numpy"))
    assert ours < theirs


def test_every_export_exists():
    import crowdwise

    for name in crowdwise.__all__:
        assert getattr(crowdwise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        crowdwise.nonsense
