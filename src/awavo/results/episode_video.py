"""The video of an episode that `awavo render` left in a run folder, for the report and the live page.

It is somebody's file: its kind is read from its first bytes, and its size is bounded.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from awavo.results.compare import Comparison
from awavo.results.page import Section, render
from awavo.types import Fields

__all__ = ["MOST_BYTES", "episode_section", "read_media"]

MOST_BYTES = 8_000_000
KINDS = {"image/gif": (b"GIF87a", b"GIF89a"), "image/png": (b"\x89PNG\r\n\x1a\n",)}
NAMES = ("video.gif", "video.mp4", "picture.png")


def read_media(folder: Path) -> tuple[str, bytes] | None:
    """Kind and bytes of the newest video of a folder, or of its picture; None where there is none to show."""
    videos = [path for name in NAMES[:2] if (path := folder / name).is_file()]
    newest = sorted(videos, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in (*newest, folder / NAMES[2]):
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        kind = _kind(content)
        if kind is not None:
            return kind, content
    return None


def _kind(content: bytes) -> str | None:
    if content[4:8] == b"ftyp":
        return "video/mp4"
    return next((kind for kind, starts in KINDS.items() if content.startswith(starts)), None)


def episode_section(comparison: Comparison) -> Section | None:
    """The videos of the runs that have one."""
    shown = []
    for row in (row for group in comparison.groups for row in group.rows):
        media = read_media(row.run.path)
        if media is not None:
            data = f"data:{media[0]};base64,{base64.b64encode(media[1]).decode()}"
            shown.append({"label": row.label, "kind": media[0], "data": data, "about": _about(row.run.path)})
    return Section("episode", "One episode", render("sections/episode.html", shown=shown)) if shown else None


def _about(folder: Path) -> str:
    """Seed and totals of the episode as its record tells them; nothing where it is not one."""
    for name in ("episode.json", "flight.json"):
        try:
            record: Fields = json.loads((folder / name).read_text(encoding="utf-8"))
            costs = [f"{k} {float(v):.4g} (limit {float(record['limits'][k]):g})" for k, v in record["costs"].items()]
            steps = len(record["step_costs"])
            ended = {"terminated": "ended by itself", "time limit": "to its time limit"}.get(record["ended"], "cut")
            total = f"return {float(record['return']):.4g}, {', '.join(costs)}"
            return f"Seed {int(record['seed'])}, {steps} steps, {ended}: {total}."
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            continue
    return ""
