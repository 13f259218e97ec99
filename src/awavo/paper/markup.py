"""The little markdown that findings use (paragraphs, lists, bold, tables), as escaped HTML."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

__all__ = ["to_html"]


def to_html(text: str) -> Markup:
    """Blocks are separated by empty lines."""
    return Markup("\n").join(_block(block) for block in re.split(r"\n\s*\n", text.strip()) if block)


def _block(block: str) -> Markup:
    lines = block.splitlines()
    if lines[0].startswith("|"):
        return _table(lines)
    if all(line.startswith("* ") for line in lines):
        return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(_bold(x[2:])) for x in lines))
    return Markup("<p>{}</p>").format(_bold(" ".join(lines)))


def _bold(text: str) -> Markup:
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text))))


def _table(lines: list[str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(cell) for cell in rows[0])
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(_bold(cell)) for cell in row))
        for row in rows[2:]
    )
    return Markup('<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>').format(
        head, body
    )
