"""The pages load nothing from elsewhere: a build whose pages would ask the network for something fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

__all__ = ["loaded_from_elsewhere", "setup"]


def loaded_from_elsewhere(page: str) -> list[str]:
    """What a page would fetch over the network: scripts, pictures, frames, styles; and MathJax, which fetches more."""
    found = re.findall(r'<(?:script|img|iframe|link)[^>]+(?:src|href)="(?:https?:)?//[^"]*', page)
    return found + (["MathJax"] if "MathJax" in page else [])


def _check(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).glob("*.html")):
        found = loaded_from_elsewhere(path.read_text())
        if found:
            raise ExtensionError(f"{path.name} would load {found[0]}: give the file a place under docs/_static")


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at every page once all are written."""
    app.connect("build-finished", _check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
