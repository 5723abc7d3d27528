"""The layout of the architecture: a module imports only from layers above its own, and nothing heavy too early."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "crowdwise"
LAYERS = [
    ["errors", "registry"],
    ["cluster"],
    ["storage", "data", "progress", "annotations"],
    ["agreement"],
    ["simulate", "readers", "datasets"],
    ["aggregation"],
    ["networks"],
    ["graph"],
    ["engine"],
    ["methods"],
    ["quality", "theory", "comparison"],
    ["streaming"],
    ["presets"],
    ["material"],
    ["report"],
    ["bench"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("crowdwise"):
            parts = node.module.split(".")
            yield from ([parts[1]] if len(parts) > 1 else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("crowdwise."))


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_layers_above(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own == "__init__":
        pytest.skip("the package exports everything, lazily")
    assert own in RANK, f"{own} has no place in the layout"
    for imported in imports(path):
        if imported in RANK:
            assert RANK[imported] <= RANK[own], f"{own} imports {imported}, which lies below it"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import crowdwise", "torch sklearn pandas numba"),
        ("import crowdwise.cli", "torch sklearn scipy matplotlib numpy pandas pyarrow"),
        ("import crowdwise.annotations, crowdwise.readers", "torch pandas polars sklearn numba"),
        ("import crowdwise.agreement, crowdwise.quality", "torch pandas polars sklearn numba"),
        ("import crowdwise.aggregation", "torch pandas polars sklearn numba"),
        ("import crowdwise.simulate", "torch sklearn pandas polars"),
        ("import crowdwise.graph", "torch sklearn pandas polars"),
        ("import crowdwise.theory", "torch"),
        ("from crowdwise import datasets; datasets.names()", "torch pandas polars sklearn PIL scipy.io"),
        ("from crowdwise.bench import figures, paper, rendering, tables", "torch matplotlib sklearn rich"),
        ("import crowdwise.report", "matplotlib"),
        ("from crowdwise import report; report.accuracy_chart({'a': 0.5})", "matplotlib.pyplot"),
        ("import crowdwise.cluster, crowdwise.streaming, crowdwise.bench.runner, crowdwise.cli._training", "ray"),
    ],
)
def test_nothing_heavy_is_imported_too_early(code, heavy):
    assert run(f"import sys; {code}; print(sorted({set(heavy.split())} & set(sys.modules)))") == "[]\n"


def test_importing_crowdwise_is_fast():
    times = []
    for _ in range(3):
        started = time.perf_counter()
        run("import crowdwise")
        times.append(time.perf_counter() - started)
    assert min(times) < 0.5


def test_every_export_exists():
    import crowdwise

    for name in crowdwise.__all__:
        assert getattr(crowdwise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        crowdwise.nonsense
