"""The map of the package, kept: every import of every file goes the way `ARROWS` says, and no imports run in a circle.

Imports inside functions count like those at the top of a file. docs/architecture.md explains the rooms.
"""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "awavo"

# What everyone may import. Each of them stands on what is named here.
BASE = {
    "errors": set(),
    "types": set(),
    "config": {"errors", "types"},
    "checks": {"errors"},
    "files": {"errors", "types"},
    "interruption": set(),
    "provenance": {"errors", "files", "types"},
    "registry": {"errors", "types"},  # it names tasks and algorithms by strings, resolved on first use
}
# What a room may import beside itself and the base.
ARROWS = {
    "transport": set(),
    "networks": set(),
    "tasks": set(),
    "results": set(),
    "inference": {"networks", "transport"},
    "assimilation": {"inference", "transport"},  # particles moved by A-GSWD
    "algorithms": {"inference", "networks", "transport"},
    "training": {"algorithms", "tasks"},
    "formal": {"inference", "tasks", "training", "transport"},
    "control": {"inference", "networks", "tasks", "transport"},
    "explain": {"control", "inference", "networks", "tasks", "transport"},
    "deploy": {"control", "networks", "tasks"},
}
LOWER = set(ARROWS)
ARROWS["runs"] = LOWER
# The experiments of the paper fly, certify, explain and infer; `training` for the cache of compiled programs.
ARROWS["paper"] = {
    "assimilation",
    "control",
    "explain",
    "formal",
    "inference",
    "networks",
    "results",
    "runs",
    "tasks",
    "training",
    "transport",
}
ARROWS["reproduce"] = {"paper"}
ARROWS["cli"] = LOWER | {"__init__", "paper", "runs"}
ARROWS["__init__"] = LOWER | {"runs"}
ALLOWED = {name: others | {name} for name, others in BASE.items()} | {
    name: others | {name} | set(BASE) for name, others in ARROWS.items()
}

FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}


def module_name(path: Path) -> str:
    """`awavo.results.store` for results/store.py, `awavo.results` for results/__init__.py."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "awavo"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if (node.module or "").split(".")[0] == "awavo":
                # `from awavo.a import b` imports the file a/b.py where there is one, or a name of a.
                submodules = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {name if name in MODULES else node.module for name in submodules}
    return found


def named_in_strings(path: Path) -> set[str]:
    """Modules of the package that a file names in a string such as "awavo.paper.plans:jobs", to import them later."""
    strings = {n.value for n in ast.walk(TREES[path]) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    names = {text.split(":")[0] for text in strings if re.fullmatch(r"awavo(\.\w+)+(:\w+)?", text)}
    return names & set(MODULES)


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """A circle among the arrows, or nothing."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        found = next((c for other in sorted(arrows[name]) if (c := walk(other, [*way, name]))), [])
        done.add(name)
        return found

    return next((c for name in sorted(arrows) if (c := walk(name, []))), [])


def test_the_top_level_stays_small_and_every_room_is_on_the_map():
    assert len(list(SOURCE.glob("*.py"))) <= 9
    assert {room(name) for name in MODULES} <= set(ALLOWED)


@pytest.mark.parametrize("module", MODULES)
def test_arrows(module):
    used = imports(MODULES[module])
    if module != "awavo.registry":
        used |= named_in_strings(MODULES[module])
    wrong = sorted(name for name in used if room(name) not in ALLOWED[room(module)])
    assert not wrong, f"{room(module)} must not import {wrong}"


def test_no_circle_of_files():
    found = circle({name: imports(path) - {name} for name, path in MODULES.items()})
    assert not found, " -> ".join(found)


def test_no_circle_of_rooms():
    found = circle({name: others - {name} for name, others in ALLOWED.items()})
    assert not found, " -> ".join(found)


def test_the_checks_see_a_circle_and_an_import_inside_a_function(monkeypatch):
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    monkeypatch.setitem(TREES, SOURCE, ast.parse("def f():\n    from awavo.results import store"))
    assert imports(SOURCE) == {"awavo.results.store"}


@pytest.mark.parametrize("path", [p for p in FILES if room(module_name(p)) == "results"], ids=lambda p: p.name)
def test_results_has_no_jax(path):
    for node in ast.walk(TREES[path]):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {n.split(".")[0] for n in names} & {"jax", "equinox", "optax"}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_is_public(module):
    body = TREES[MODULES[module]].body
    names = [t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    has_body = any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in body)
    assert "__all__" in names or not has_body


def test_no_pickle_and_no_legacy_keys():
    for path in FILES:
        text = path.read_text()
        assert "pickle" not in text.replace("unpickled", "").replace("never pickle", ""), path
        assert "PRNGKey" not in text, path
