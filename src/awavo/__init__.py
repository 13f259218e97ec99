"""AWaVO: constrained reinforcement learning in JAX that shows its evidence.

Importing this package imports no jax: public names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from awavo import transport as transport

__all__ = ["transport"]

__version__ = "0.1.0"

_LAZY = {
    "transport": ("awavo.transport", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'awavo' has no attribute '{name}'")
    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
