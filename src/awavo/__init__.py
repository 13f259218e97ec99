"""AWaVO: constrained reinforcement learning in JAX that shows its evidence.

Importing this package imports no jax: public names are resolved on first use.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from awavo.tasks.gymnasium_hook import register_with_gymnasium

# XLA logs a long false alarm whenever it loads a program from the compilation cache; errors still raise.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if TYPE_CHECKING:
    from awavo import errors as errors
    from awavo import formal as formal
    from awavo import transport as transport
    from awavo.inference.operators import operator_from_maps
    from awavo.registry import make_task
    from awavo.runs.api import Run, certify, configure, evaluate, load, train, train_iter

__all__ = [
    "Run", "certify", "configure", "errors", "evaluate", "formal", "load", "make_task", "operator_from_maps", "train",
    "train_iter", "transport",
]  # fmt: skip

__version__ = "0.2.0"

register_with_gymnasium()

_LAZY = {
    "Run": ("awavo.runs.api", "Run"),
    "certify": ("awavo.runs.api", "certify"),
    "configure": ("awavo.runs.api", "configure"),
    "errors": ("awavo.errors", None),
    "evaluate": ("awavo.runs.api", "evaluate"),
    "formal": ("awavo.formal", None),
    "load": ("awavo.runs.api", "load"),
    "make_task": ("awavo.registry", "make_task"),
    "operator_from_maps": ("awavo.inference.operators", "operator_from_maps"),
    "train": ("awavo.runs.api", "train"),
    "train_iter": ("awavo.runs.api", "train_iter"),
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
