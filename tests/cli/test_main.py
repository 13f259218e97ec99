"""Finding the command and reading its options: one clear line for bad input, nothing written, nothing imported."""

import os
import re
import subprocess
import sys

import pytest

from awavo.cli.main import COMMANDS

HEAVY = ("jax", "polars", "matplotlib")


BAD = {
    "command": (["trian"], "Did you mean 'train'"),
    "task": (["train", "cartpol"], "Did you mean 'cartpole'"),
    "gymnasium id": (["train", "Pendulum-v9"], "Did you mean 'Pendulum-v1'"),
    "algorithm": (["train", "cartpole", "--algo", "orpo-d"], "Did you mean 'orpo-dr'"),
    "preset": (["train", "cartpole", "--preset", "papr"], "Did you mean 'paper'"),
    "option name": (["train", "cartpole", "--option", "discont=0.9"], "Did you mean 'discount'"),
    "option form": (["train", "cartpole", "--option", "discount"], "NAME=VALUE"),
    "option type": (["train", "cartpole", "--option", "batch_size=many"], "not a whole number"),
    "option range": (["train", "cartpole", "--option", "discount=1.5"], "out of range"),
    "option choice": (["train", "cartpole", "--option", "rectify=soft"], "not one of posterior, hard"),
    "steps": (["train", "cartpole", "--steps", "-5"], "--steps -5"),
    "steps text": (["train", "cartpole", "--steps", "lots"], "--steps lots"),
    "seeds": (["train", "cartpole", "--seeds", "0"], "seeds=0"),
    "limits length": (["train", "cartpole", "--limits", "30"], "give one limit for each"),
    "limit sign": (["train", "cartpole", "--limits", "30", "-1"], "limit"),
    "two kinds of limit": (["train", "cartpole", "--limits", "1", "1", "--sum-limit", "3"], "one of the two"),
    "task option": (["train", "acrobot", "--task-option", "on_reech=reset"], "Did you mean 'on_reach'"),
    "task option value": (["train", "acrobot", "--task-option", "on_reach=stop"], "not one of"),
    "flag": (["train", "cartpole", "--sedes", "3"], "--sedes"),
    "flag type": (["train", "cartpole", "--seeds", "ten"], "--seeds"),
    "no costs": (["train", "Pendulum-v1"], "cost"),
    "cost function": (["train", "Pendulum-v1", "--cost-fn", "nowhere:f"], "MODULE:NAME"),
    "cost function on a task": (["train", "cartpole", "--cost-fn", "math:sin"], "own costs"),
    "run folder": (["evaluate", "nothing-here"], "run folder"),
    "device": (["train", "cartpole", "--device", "abacus"], "auto, cpu, gpu"),
    "no run": (["compare"], "RUN"),
    "argument as an option": (["train", "--task", "cartpole"], "an argument, not an option: awavo train cartpole"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line_exit_code_2_and_writes_nothing(case, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1, err
    assert err.startswith("awavo: ")
    assert os.listdir(tmp_path) == []


def imported(*arguments):
    """Exit code of a command in a process of its own, and the packages that it loaded."""
    code = f"""
import sys
from awavo.cli.main import main
try:
    code = main({list(arguments)!r})
except SystemExit as exit_:
    code = exit_.code
print("loaded", code, *sorted(name for name in sys.modules if "." not in name or name.startswith("awavo.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, *names = done.stdout.splitlines()[-1].removeprefix("loaded ").split()
    return int(exit_code), set(names)


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 0), (["nonsense"], 2), (["--version"], 0)])
def test_help_and_typos_import_neither_jax_nor_tyro(arguments, code):
    found, names = imported(*arguments)
    assert found == code
    assert not names & {*HEAVY, "tyro", "rich"}


def test_help_of_a_command_imports_that_command_alone_and_no_jax():
    found, names = imported("train", "--help")
    assert found == 0
    assert not names & set(HEAVY)
    files = {name.removeprefix("awavo.cli.") for name in names if name.startswith("awavo.cli.")}
    assert files == {"main", "common", "train"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, run):
    with pytest.raises(SystemExit) as exit_:
        run(name, "--help")
    assert exit_.value.code in (0, None)


def test_modules_of_commands_import_nothing_heavy():
    modules = ", ".join(f"awavo.cli.{path.split(':')[0]}" for path, _ in COMMANDS.values())
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(HEAVY)


def test_an_error_is_one_json_line_too(run):
    code, out, err = run("evaluate", "nothing-here", "--json")
    assert code == 2
    assert re.fullmatch(r'\{"error": ".*run folder.*"\}\n', out)
    assert err.startswith("awavo: ")
