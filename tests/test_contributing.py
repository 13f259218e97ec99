"""The skeletons of CONTRIBUTING.md work as they stand there: written to modules, registered, checked, trained."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import awavo
from awavo import registry

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
BLOCKS = re.findall(r"```python\n# src/(\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
TABLES = {"penalty": registry.ALGORITHMS, "ledge": registry.TASKS}


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """The modules under the names that the page gives them, and their lines in the registry."""
    for path, code in BLOCKS:
        if path == "awavo/registry.py":
            lines = eval(f"{{{code}}}", {"Registration": registry.Registration})
            for name, line in lines.items():
                monkeypatch.setitem(TABLES[name], name, line)
            continue
        file = tmp_path / Path(path).name
        file.write_text(code)
        name = path.removesuffix(".py").replace("/", ".")
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)


def test_the_page_has_both_skeletons_and_their_lines():
    assert [path for path, _ in BLOCKS] == [
        "awavo/algorithms/penalty.py",
        "awavo/registry.py",
        "awavo/tasks/ledge.py",
        "awavo/registry.py",
    ]


def test_the_algorithm_learns_the_task(registered, tmp_path):
    from awavo.tasks.check_env import check_functional

    assert not check_functional(awavo.make_task("ledge"), steps=200)
    config = awavo.configure("ledge", "penalty", steps=16_384, seeds=1, hidden=(16,), cost_limits=(10.0,))
    run = awavo.train(config, tmp_path / "run")
    episodes = run.data.episodes
    assert {"return", "cost_beyond"} <= set(episodes.columns)
    first, last = episodes[:50], episodes[-50:]
    assert last["return"].mean() > first["return"].mean() + 5
    assert last["cost_beyond"].mean() < 20
    assert run.act([[0.0], [0.5]]).shape == (2, 1)


def test_what_make_test_leaves_out_the_whole_check_runs():
    """Every test is run by one of the two targets that .ci/run calls."""
    targets = re.findall(r"^(test[\w-]*):.*\n\t(.*)$", (PAGE.parent / "Makefile").read_text(), re.MULTILINE)
    marks = {name: re.search(r'-m ("not long"|long)$', command) for name, command in targets}
    called = re.findall(r"^make (test[\w-]*)$", (PAGE.parent / ".ci" / "run").read_text(), re.MULTILINE)
    assert called == ["test", "test-long"]
    assert {marks[name].group(1) for name in called} == {'"not long"', "long"}
