"""AWaVO: constrained reinforcement learning in JAX that shows its evidence.

Importing this package imports no jax: public names are resolved on first use.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from awavo.tasks.gymnasium_hook import register_with_gymnasium

# XLA logs a long false alarm whenever it loads a program from the compilation cache; errors still raise. Importing jax
# sets 1, which its child processes inherit, so 1 is nobody's choice; XLA reads it once, when jax is first imported.
if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

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

# Where each public name is found: in a module, or the module itself.
_LAZY = {
    **dict.fromkeys(("Run", "certify", "configure", "evaluate", "load", "train", "train_iter"), "awavo.runs.api"),
    **{name: f"awavo.{name}" for name in ("errors", "formal", "transport")},
    "make_task": "awavo.registry",
    "operator_from_maps": "awavo.inference.operators",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'awavo' has no attribute '{name}'")
    module = importlib.import_module(_LAZY[name])
    return module if module.__name__ == f"awavo.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
