"""What a section of the report page is, and how its templates are filled."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from awavo.results.compare import Comparison, Group
from awavo.types import FieldsView

__all__ = ["Section", "SectionFn", "asset", "frame", "problem_title", "render"]


class Section(NamedTuple):
    """A part of the page. Plain strings in `html` are escaped: pass `Markup` from a template that escapes.

    `charts` are found by the page's script through `<figure data-chart="ID"><div class="plot">`.
    """

    id: str
    title: str
    html: Markup | str
    charts: Sequence[FieldsView] = ()


SectionFn = Callable[[Comparison], Section | None]


@lru_cache(maxsize=1)
def _templates() -> Environment:
    """The page's templates; everything they print is escaped."""
    return Environment(
        loader=PackageLoader("awavo.results", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def render(name: str, **context: object) -> Markup:
    """Fill a template of this package."""
    return Markup(_templates().get_template(name).render(**context))


def problem_title(group: Group) -> str:
    """The task with its limits."""
    limits = ", ".join(f"{name} ≤ {limit:g}" for name, limit in group.limits.items())
    return f"{group.task} ({limits})" if limits else group.task


def asset(name: str) -> str:
    """Text of a file beside the templates."""
    return resources.files("awavo.results").joinpath("templates", name).read_text(encoding="utf-8")


def frame(*scripts: str, media: str = "data:") -> dict[str, Markup | str]:
    """Style and scripts of a page, and a policy: run these scripts and nothing else, load nothing from anywhere.

    `media` is where pictures and videos may come from: the page itself.
    """
    script = "\n".join(asset(name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src {media}"
    policy += f"; media-src {media}"
    return {"style": Markup(asset("style.css")), "script": Markup(script), "policy": policy}
