"""A page from content: one self-contained HTML file that never executes data."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from crowdwise.datasets.files import cache_folder, write_atomically
from crowdwise.errors import ConfigError
from crowdwise.readers.table import replacing
from crowdwise.report.content import Content
from crowdwise.report.limits import safe_json

TEMPLATES = Path(__file__).parent / "templates"
HINT = "the interactive report needs altair and vl-convert-python: pip install 'crowdwise[report]'"
ENTRY = "window.vegaEmbed = vegaEmbed;"  # exported by the charts' JavaScript
SCRIPTS = ("core.js", "annotators.js", "map.js", "items.js", "start.js")


def render(page: Content, *, live: str | None = None) -> str:
    """The whole page.

    ``live`` is a stamp of its sources; with it, the page asks its server for ``progress`` every two seconds, and reloads
    when the stamp has changed.
    """
    try:
        import jinja2

        from crowdwise.report import charts
    except ImportError as error:
        raise ConfigError(HINT) from error
    data = dataclasses.asdict(page) | {"specs": charts.specs(page.classes), "themes": charts.themes(), "live": live}
    bundle, script = _bundle(), _script()
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return templates.get_template("page.html").render(
        page=page,
        sections=_sections(page),
        policy=_policy(bundle, script, live=live is not None),
        style=(TEMPLATES / "style.css").read_text("utf-8"),
        data=safe_json(data),
        bundle=bundle,
        script=script,
    )


def write(page: Content, path: str | os.PathLike[str]) -> Path:
    """Write the page atomically."""
    path, html = Path(path), render(page).encode("utf-8", "replace")
    with replacing(path) as file:
        file.write(html)
    return path


def _sections(page: Content) -> list[tuple[str, str]]:
    """Anchor and name of the page's sections."""
    every = {
        "overview": ("Overview", page.overview),
        "annotators": ("Annotators", page.annotators),
        "map": ("Map", page.map),
        "models": ("Models and people", page.models),
        "items": ("Items", page.items),
        "next": ("Label next", page.next),
        "ranking": ("Methods", page.ranking),
        "training": ("Training" if page.training else "Methods", page.training or page.comparison),
    }
    return [(anchor, name) for anchor, (name, content) in every.items() if content]


def _policy(*scripts: str, live: bool) -> str:
    """Only these scripts may run, and nothing may be loaded, except from the page's own server while live."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}"
    )


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as bundled by vl-convert; building them takes seconds, so they are cached."""
    try:
        import vl_convert
    except ImportError as error:
        raise ConfigError(HINT) from error
    kept = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        script = kept.read_bytes().decode()
        if ENTRY.split()[0] in script:
            return _checked(script)
    script = _checked(vl_convert.javascript_bundle(ENTRY))
    with suppress(OSError):  # without a writable cache it only takes longer
        write_atomically(kept, lambda file: file.write(script.encode()))
    return script


@functools.cache
def _script() -> str:
    parts = [(TEMPLATES / name).read_text("utf-8") for name in SCRIPTS]
    return _checked("(() => {\n" + "\n".join(parts) + "})();\n")


def _checked(script: str) -> str:
    """A script that HTML parsers leave unchanged, so that its hash stays valid."""
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    for sequence in ("</script", "<!--", "<script"):
        if sequence in script.lower():
            raise ConfigError(f"the script of the page contains {sequence!r}, which would end or hide it")
    return script
