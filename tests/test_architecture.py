"""Imports only go the way the design says."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "awavo"
BASE = {"types", "config", "errors", "registry", "provenance", "checks", "files"}
ALLOWED = {
    "transport": set(),
    "networks": set(),
    "inference": {"networks", "transport"},
    "algorithms": {"inference", "networks", "transport"},
    "tasks": set(),
    "training": {"algorithms", "tasks"},
    "results": set(),
    "assimilation": set(),
    "formal": {"inference", "transport", "tasks", "training"},
    "control": {"inference", "networks", "tasks", "transport"},
    "explain": {"control", "inference", "networks", "tasks", "training", "transport"},
    "deploy": {"control", "inference", "networks", "tasks", "transport"},
    "checks": set(),
    "files": set(),
    "types": set(),
    "errors": set(),
    "config": set(),
    "registry": set(),
    "provenance": set(),
}
# The top: they put the rooms together.
TOP = {"__init__", "cli", "paper", "reproduce", "runs"}


def room(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("awavo."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "awavo":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("awavo.")}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows(path):
    own = room(path)
    if own in TOP:
        return
    wrong = imports(path) - ALLOWED[own] - BASE - {own}
    assert not wrong, f"{own} must not import {wrong}"


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "results"], ids=lambda p: p.name)
def test_results_has_no_jax(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {n.split(".")[0] for n in names} & {"jax", "equinox", "optax"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_says_what_is_public(path):
    names = [
        t.id
        for n in ast.parse(path.read_text()).body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    ]
    has_body = any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in ast.parse(path.read_text()).body)
    assert "__all__" in names or not has_body


def test_no_pickle_and_no_legacy_keys():
    for path in FILES:
        text = path.read_text()
        assert "pickle" not in text.replace("unpickled", "").replace("never pickle", ""), path
        assert "PRNGKey" not in text, path
