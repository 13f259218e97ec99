"""Shapes and types checked while the tests run: what an annotation of the package says holds in every call.

jaxtyping's import hook puts `check` around every function and dataclass of the package, so that `Float[Array, "n dim"]`
in a signature is checked whenever a test calls it, however deep inside. Functions inside functions are left as they
are, and so are the shapes of functions that have none: jaxtyping's decorator compiles code for every function that it
is put on and binds the arguments of every call, some 4% of the time of the tests. beartype takes milliseconds to
compile its check of a signature: done at the first call instead of at import, the hook costs each test process three
seconds instead of ten.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, UnionType
from typing import Annotated, Any, Generic, Union, get_args, get_origin

import jax
import jaxtyping
import numpy as np
import pytest
from beartype import BeartypeConf, FrozenDict, beartype
from beartype.vale import IsInstance
from numpy.typing import ArrayLike

__all__ = ["check"]

SOURCE = Path(__file__).resolve().parents[1] / "src"
# Interval arithmetic on single numbers, millions of calls: no shapes to check, and the checks would take minutes.
UNCHECKED = {"awavo.formal.enclosure", "awavo.formal.interval"}
# A number may be numpy's, or traced by jax; beartype cannot check numpy's recursive ArrayLike.
OVERRIDES = {
    float: float | int | np.number | jax.Array,
    int: int | np.integer,
    bool: bool | np.bool_,
    ArrayLike: object,
}

# Annotations of these words alone hold no array.
PLAIN = {
    "None", "bool", "int", "float", "str", "bytes", "object", "Any", "dict", "list", "tuple", "set", "type", "Mapping",
    "Sequence", "Iterable", "Iterator", "Callable", "Path", "os", "PathLike", "Fields", "FieldsView", "Numbers",
}  # fmt: skip

_beartype = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(OVERRIDES)))


def install() -> None:
    """Check the package's modules from their first import on: this plugin is loaded before any of them."""
    # On the host numpy's arrays take the place of jax's: the annotations mean either.
    jaxtyping.Array = jax.Array | np.ndarray | np.generic  # pyright: ignore
    jaxtyping.jaxtyped = functools.partial(where_needed, jaxtyping.jaxtyped)  # pyright: ignore
    files = (path.relative_to(SOURCE).with_suffix("") for path in (SOURCE / "awavo").rglob("*.py"))
    modules = {".".join(file.parts) for file in files if not file.name.startswith("__")}
    jaxtyping.install_import_hook(sorted(modules - UNCHECKED), "typechecker.check")


def where_needed(jaxtyped: Callable[..., Any], *, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """jaxtyping's decorator, left out for functions inside functions and for those whose annotations hold no array."""

    def decorate(target: Any) -> Any:
        if not isinstance(target, FunctionType):
            return jaxtyped(typechecker=typechecker)(target)
        if "<locals>" in target.__qualname__:
            return target
        words = {word for hint in target.__annotations__.values() for word in re.findall(r"[^\W\d]\w*", str(hint))}
        return typechecker(target) if words <= PLAIN else jaxtyped(typechecker=typechecker)(target)

    return decorate


def supported(hint: Any) -> Any:
    """The hint, with a plain check of the class wherever it names a generic NamedTuple, which beartype cannot check."""
    origin = get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, tuple) and issubclass(origin, Generic):
        return Annotated[object, IsInstance[origin]]
    if origin in (Union, UnionType, tuple) and get_args(hint):
        parts = tuple(supported(part) for part in get_args(hint))
        return Union[parts] if origin is not tuple else tuple[parts]  # noqa: UP007
    return hint


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with its arguments and result checked."""
    function.__annotations__ = {name: supported(hint) for name, hint in function.__annotations__.items()}
    checked: Callable[..., Any] | None = None

    @functools.wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if checked is None:
            checked = function  # should beartype import a module, and the import call an import hook of the package
            checked = _beartype(function)
        return checked(*args, **kwargs)

    return checking


@pytest.fixture(autouse=True)
def _bad_input_is_let_through(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check nothing in a test with the marker `bad_input`, so that the package's own refusal is what it sees."""
    off = request.node.get_closest_marker("bad_input") is not None
    jaxtyping.config.update("jaxtyping_disable", off)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


install()
