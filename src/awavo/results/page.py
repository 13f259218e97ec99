"""What a section of the report page is, and how its templates are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from awavo.results.compare import Comparison, Group

__all__ = ["Section", "SectionFn", "problem_title", "render"]


class Section(NamedTuple):
    """A part of the page. Plain strings in `html` are escaped: pass `Markup` from a template that escapes.

    `charts` are found by the page's script through `<figure data-chart="ID"><div class="plot">`.
    """

    id: str
    title: str
    html: Markup | str
    charts: Sequence[Mapping[str, Any]] = ()


SectionFn = Callable[[Comparison], Section | None]


@lru_cache(maxsize=1)
def _templates() -> Environment:
    """The page's templates; everything they print is escaped."""
    return Environment(
        loader=PackageLoader("awavo.results", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def render(name: str, **context: Any) -> Markup:
    """Fill a template of this package."""
    return Markup(_templates().get_template(name).render(**context))


def problem_title(group: Group) -> str:
    """The task with its limits."""
    limits = ", ".join(f"{name} ≤ {limit:g}" for name, limit in group.limits.items())
    return f"{group.task} ({limits})" if limits else group.task
