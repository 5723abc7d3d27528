"""The verb `presets`."""

from __future__ import annotations

from typing import Any

from crowdwise.cli.console import show_table, verb


@verb
def presets() -> Any:
    from crowdwise.presets import load_preset, names

    loaded = [load_preset(name) for name in names()]
    rows = [[preset.name, str(preset.data.get("name", "-")), preset.description] for preset in loaded]
    show_table("Presets, for `crowdwise train --preset`", ("name", "data", "description"), rows)
    return loaded
