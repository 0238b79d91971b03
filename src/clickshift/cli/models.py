"""clickshift models: which click models there are."""

from __future__ import annotations

from clickshift.cli.console import Json, show_json, show_table


def models(json: bool = Json) -> None:
    """Every click model, what it can do, and how it is learned."""
    from clickshift.display.tables import models_table

    rows = models_table()
    if json:
        show_json({"models": rows})
        return
    show_table([{name.replace("_", " "): value for name, value in row.items()} for row in rows], title="Click models")
