"""Formulas as MathML, made while the pages are built: a browser shows them without any script and without a network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

__all__ = ["setup", "to_mathml"]


def to_mathml(latex: str, display: str) -> str:
    """One formula; one that cannot be read stops the build."""
    latex = re.sub(r"\\label\{[^}]*\}|\\(?:no)?number\b|\\notag\b", "", latex).strip()
    latex = re.sub(r"\\arg(?![A-Za-z])", r"\\operatorname{arg}", latex)
    # Rows aligned at & are a table to MathML.
    if display == "block" and "\\begin" not in latex and re.search(r"(?<!\\)&|\\\\", latex):
        latex = rf"\begin{{align*}}{latex}\end{{align*}}"
    latex = re.sub(r"\\(begin|end)\{(?:aligned|split|gathered)\}", r"\\\1{align*}", latex)
    try:
        made = convert(latex, display=display)
    except Exception as error:
        raise ExtensionError(f"the formula '{latex}' cannot be turned into MathML: {error!r}") from error
    unread = re.search(r"<m[io]>(?:\\[A-Za-z]+|&)</m[io]>", made)
    if unread:
        raise ExtensionError(f"the formula '{latex}' has a command that MathML does not know: {unread[0]}")
    return made


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(to_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="math", TABINDEX="0"))
    writer.body.append(to_mathml(node.astext(), "block"))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))  # pyright: ignore[reportArgumentType]
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
