"""The code of the pages on environments, velocity and navigation tasks runs as it stands there."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "environments.md"


def test_the_code_on_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL).group(1)
    assert shown in said
    assert "cost_names=('cost',), cost_limits=(30.0,)" in said


def test_the_code_on_the_page_of_velocity_tasks_runs(capsys):
    pytest.importorskip("mujoco")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "velocity_tasks.md").read_text(), re.DOTALL)
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "velocity_tasks.md", "exec"), names)
    assert capsys.readouterr().out == f"{[0.0] * 8}\n".replace(",", "").replace("0.0", "0.")
    assert names["velocity"](None, None, None, {"x_velocity": 3.3})


def test_the_code_on_the_page_of_navigation_tasks_runs(capsys):
    pytest.importorskip("mujoco")
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "navigation_tasks.md").read_text(), re.DOTALL)
    exec(compile(block, "navigation_tasks.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "[0. 0. 0. 0. 0. 0. 0. 0.]\n"
