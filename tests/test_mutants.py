"""Every mutant still applies: its text stands in the source once, changes it into Python, and its tests exist."""

import ast
import importlib
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module", params=["mutation_check.MUTANTS", "mutants.ATTACKS"])
def mutants(request):
    module, name = request.param.split(".")
    before, known = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "robustness")]
    try:
        return getattr(importlib.import_module(module), name)
    finally:
        sys.path[:] = before
        for added in set(sys.modules) - known:
            if getattr(sys.modules[added], "__file__", None) and str(BENCHMARKS) in str(sys.modules[added].__file__):
                del sys.modules[added]


def test_every_mutant_applies_once_and_is_python(mutants):
    for name, mutant in mutants.items():
        text = (ROOT / "src" / "awavo" / mutant.file).read_text()
        assert text.count(mutant.old) == 1, f"{name}: its text stands {text.count(mutant.old)} times in {mutant.file}"
        assert mutant.old != mutant.new, name
        ast.parse(text.replace(mutant.old, mutant.new))


def test_the_tests_of_every_mutant_exist(mutants):
    for name, mutant in mutants.items():
        for test in shlex.split(mutant.tests):
            file, _, function = test.partition("::")
            path = ROOT / file
            assert path.exists(), f"{name}: there is no {file}"
            if function:
                tree = ast.parse(path.read_text())
                known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
                assert function.split("[")[0] in known, f"{name}: {file} has no {function}"
