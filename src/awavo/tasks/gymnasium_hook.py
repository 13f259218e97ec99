"""Register our Gymnasium ids as soon as gymnasium is there, without importing it for those who do not use it.

Gymnasium loads no plugins, so importing a package is what registers its environments. Importing gymnasium takes longer
than `import awavo` may, hence: at once if it is loaded already, otherwise right after it has been imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["register_with_gymnasium"]

REGISTRATION = "awavo.tasks.registration"


class _AfterGymnasium(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Iterable[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)  # the search below must not come back here
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                importlib.import_module(REGISTRATION)

            spec.loader.exec_module = execute_and_register
        return spec


def register_with_gymnasium() -> None:
    """Register now or when gymnasium is imported."""
    if "gymnasium" in sys.modules:
        importlib.import_module(REGISTRATION)
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())
