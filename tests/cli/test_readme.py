"""What README says about one's own environment works: its class, its lines of Python, its four commands."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

TEXT = Path(__file__).parents[2].joinpath("README.md").read_text()
SECTION = TEXT.split("## Your own environment\n")[1].split("\n## ")[0]
CLASS, LINES = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
COMMANDS = re.search(r"```bash\n(.*?)```", SECTION, re.DOTALL)[1].splitlines()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder holds mine.py alone and is on no path; episodes are short."""
    (tmp_path / "mine.py").write_text(CLASS.replace("(10, 2), 60", "(10, 2), 8"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", os.getcwd())])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_the_lines_of_python(folder, smallest, monkeypatch, capsys):
    lines = [line for line in LINES.splitlines() if line.strip()]
    assert len(lines) <= 10
    monkeypatch.syspath_prepend(str(folder))  # as in the folder of a script
    # Whatever the method: CRPO compiles fastest.
    code = LINES.replace('"orpo-dr", steps=60_000, seeds=2', "steps=64, seeds=1, **small")
    assert code.count("**small") == 1
    exec(compile(code.replace("evaluate()", "evaluate(4)"), "README.md", "exec"), {"small": smallest})
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[:2]] == ["speed", "zone"]
    assert said[0].endswith("of 10.0")
    assert said[-1] == "runs/mine/report.html"
    assert (folder / "runs/mine/config.json").read_text().count("mine:Point") == 1
    for name in ("episode.json", "picture.png", "video.gif"):
        assert (folder / "runs/mine" / name).is_file(), name
    assert (folder / said[-1]).is_file()


def test_the_four_commands(folder, run, smallest, monkeypatch):
    words = [shlex.split(line)[1:] for line in COMMANDS]
    assert [w[0] for w in words] == ["train", "evaluate", "render", "report"]
    train, evaluate, render, report = words
    assert train[2:6] == ["--steps", "60000", "--seeds", "2"]
    options = [f"{name}={value}" for name, value in {**smallest, "hidden": 8}.items() if name != "algo"]
    words = ["--algo", smallest["algo"], *(word for option in options for word in ("--option", option))]
    code, out, err = run(*train[:2], "--steps", "64", "--seeds", "1", *words, *train[6:])
    assert code == 0, err
    assert "Next: awavo evaluate runs/mine" in out
    sys.modules.pop("mine")  # as in a new process
    assert run(*evaluate, "--episodes", "4")[0] in (0, 1)
    assert run(*render)[0] == 0
    assert run(*report)[1].strip() == "runs/mine/report.html"
    (folder / "mine.py").write_text(CLASS)
    code, _, err = run(*evaluate)
    assert code == 2
    assert "names code to run (task='mine:Point')" in err
