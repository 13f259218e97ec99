"""Finding the command and reading its options: one clear line for bad input, nothing written, nothing imported."""

import os
import re
import subprocess
import sys

import pytest

from awavo.cli.main import COMMANDS, _run_own_code

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
    "no time": (["train", "cartpole", "--checkpoint-seconds", "nan"], "--checkpoint-seconds is nan, expected a finite"),
    "endless time": (["train", "cartpole", "--checkpoint-seconds", "inf"], "--checkpoint-seconds is inf, expected"),
    "a time before": (["train", "cartpole", "--checkpoint-seconds", "-1"], "--checkpoint-seconds is -1.0, expected"),
    "steps text": (["train", "cartpole", "--steps", "lots"], "--steps lots"),
    "seeds": (["train", "cartpole", "--seeds", "0"], "seeds=0"),
    "limits length": (["train", "cartpole", "--limits", "30"], "give one limit for each"),
    "limit sign": (["train", "cartpole", "--limits", "30", "-1"], "limit"),
    "two kinds of limit": (["train", "cartpole", "--limits", "1", "1", "--sum-limit", "3"], "one of the two"),
    "task option": (["train", "acrobot", "--task-option", "on_reech=reset"], "Did you mean 'on_reach'"),
    "task option value": (["train", "acrobot", "--task-option", "on_reach=stop"], "not one of"),
    "flag": (["train", "cartpole", "--sedes", "3"], "--sedes"),
    "part of an episode": (["evaluate", "x", "--episodes", "1.5"], "--episodes 1.5 is not a whole number (see"),
    "a number with a sign": (["train", "cartpole", "--sum-limit=a"], "--sum-limit a is not a number (see `awavo train"),
    "no value": (["train", "cartpole", "--seeds"], "--seeds needs a value (see"),
    "flag type": (["train", "cartpole", "--seeds", "ten"], "--seeds"),
    "limit text": (["train", "cartpole", "--limits", "30,ten"], "--limits ten is not a number: give 30 10 or 30,10"),
    "no costs": (["train", "Pendulum-v1"], "--cost-fn MODULE:FUNCTION"),
    "cost function": (["train", "Pendulum-v1", "--cost-fn", "nowhere:f"], "MODULE:NAME, with MODULE.py in the current"),
    "function of a module": (["train", "Pendulum-v1", "--cost-fn", "math:sqr"], "Did you mean 'sqrt'"),
    "module of an environment": (["train", "nowhere:Env-v0"], "task='nowhere:Env-v0' cannot be imported"),
    "class of a module": (["train", "gymnasium:Enf"], "has no 'Enf' and registers no such id"),
    "number of a module": (["train", "math:pi"], "is an instance of float, expected a class or a function"),
    "figure": (["reproduce", "fig"], "expected one of learning, flight"),
    "a word too many": (["reproduce", "learning", "quick"], "did you mean --budget quick?"),
    "cost function on a task": (["train", "cartpole", "--cost-fn", "math:sin"], "own costs"),
    "run folder": (["evaluate", "nothing-here"], "run folder"),
    "device": (["train", "cartpole", "--device", "abacus"], "auto, cpu, gpu"),
    "no run": (["compare"], "RUN"),
    "steps without end": (["train", "cartpole", "--steps", "inf"], "--steps inf is not a whole number"),
    "steps beyond a float": (["train", "cartpole", "--steps", "1e400"], "--steps 1e400 is not a whole number"),
    "a huge option": (["train", "cartpole", "--option", f"discount=1{'0' * 400}"], "is not finite"),
    "an option of 5000 digits": (["train", "cartpole", "--option", f"batch_size={'9' * 5000}"], "whole number"),
    "lists in lists": (["train", "cartpole", "--option", f"hidden={'[' * 9000}"], "lists in lists"),
    "a list of lists": (["train", "cartpole", "--option", "hidden=[[[[16]]]]"], "not a whole number"),
    "a long option": (["train", "cartpole", "--option", f"hidden={'1,' * 9000}1"], "at most 10000"),
    "the last seed": (["train", "cartpole", "--seed", "2147483647", "--seeds", "2"], "ends above 2147483647"),
    "a huge seed": (["train", "cartpole", "--seed", str(10**23)], "out of range"),
    "relative module": (["train", "Pendulum-v1", "--cost-fn", ".x:y"], "does not begin with a dot"),
    "a long name": (["evaluate", "x" * 300], "File name too long"),
    "no folder": (["train", "cartpole", "--out", "/dev/null/x"], "'/dev/null/x': '/dev/null' is not a folder"),
    "seed of an evaluation": (["evaluate", "run", "--seed", str(10**23)], "--seed"),
    "seed of a certificate": (["certify", "run", "--seed", "-1"], "--seed -1"),
    "a tiny delta": (["certify", "run", "--delta", "1e-320"], "--delta"),
    "no temperature": (["certify", "operator", "log", "--temperature", "0"], "--temperature 0"),
    "kappa without end": (["certify", "operator", "power", "--kappa", "inf"], "--kappa inf"),
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


def failing(monkeypatch, error):
    """Let `awavo doctor` end with an exception that nobody foresaw."""

    def examine():
        raise error

    monkeypatch.setattr("awavo.cli.doctor.examine", examine)


def test_a_fault_of_ours_is_one_line_exit_code_3_and_details_in_a_file(run, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing(monkeypatch, ZeroDivisionError("half of\nnothing"))
    code, out, err = run("doctor")
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1
    assert "ZeroDivisionError: half of nothing" in err
    (details,) = tmp_path.iterdir()
    assert str(details) in err
    assert "in examine" in details.read_text()
    assert details.stat().st_mode & 0o077 == 0


def test_a_fault_where_nothing_can_be_written_says_where_it_is(run, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    failing(monkeypatch, KeyError("x"))
    code, _, err = run("doctor")
    assert code == 3
    assert re.search(r"in examine at .*test_main.py:\d+", err)


def test_an_interruption_promises_a_checkpoint_only_where_there_is_one(run, monkeypatch, tmp_path):
    failing(monkeypatch, KeyboardInterrupt())
    assert run("doctor")[::2] == (130, "awavo: interrupted.\n")

    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("awavo.runs.problem.check_names", press)
    train = ("train", "cartpole", "--out", tmp_path)
    assert run(*train)[::2] == (130, "awavo: interrupted; nothing was saved yet.\n")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000000064.safetensors").touch()
    code, _, err = run(*train)
    assert code == 130
    assert err.endswith("the same command resumes from it.\n")


@pytest.mark.parametrize("code", [0, None, "enough"])
def test_code_that_ends_the_program_is_bad_input(run, monkeypatch, code):
    failing(monkeypatch, SystemExit(code))
    told, _, err = run("doctor")
    assert told == 2
    assert re.fullmatch(r"awavo: code that was run called sys.exit\(.*\) \(in examine, .*:\d+\): let it .*\n", err)


class HalfRead:
    """Rich turns a broken pipe into a SystemExit."""

    def run(self):
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904


def test_a_reader_that_leaves_a_table_half_read_is_no_fault():
    with pytest.raises(BrokenPipeError):
        _run_own_code(HalfRead())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/run/x"), "cannot use '/run/x': Permission denied"),
        (OSError(28, "No space left on device"), "cannot use a file: No space left on device"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_what_the_machine_refuses_is_bad_input(run, monkeypatch, error, message):
    failing(monkeypatch, error)
    code, _, err = run("doctor")
    assert code == 2
    assert message in err


EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31mb\u202ec\rd"


def test_names_cannot_drive_the_terminal(run, monkeypatch):
    code, out, err = run("evaluate", EVIL, "--json")
    assert code == 2
    assert err.strip().isprintable()
    assert "\\x1b]0;owned\\x07" in err
    assert out.strip().isprintable()


def test_what_is_printed_cannot_drive_the_terminal_but_may_be_coloured(run, monkeypatch):
    from awavo.cli.doctor import HealthCheck

    monkeypatch.setattr("awavo.cli.doctor.examine", lambda: [HealthCheck(EVIL, True, "\x1b[1;32mfine\x1b[0m\x1b[8m")])
    code, out, _ = run("doctor")
    assert code == 0
    assert re.findall(r"[^ -~\n]\S\S", out) == ["\x1b[1", "\x1b[0"]


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


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), ([], 0), (["help"], 0), (["nonsense"], 2), (["--version"], 0)]
)
def test_help_and_typos_import_neither_jax_nor_tyro(arguments, code):
    found, names = imported(*arguments)
    assert found == code
    assert not names & {*HEAVY, "tyro", "rich"}


@pytest.mark.parametrize(
    "arguments",
    [
        "train cartpol", "train Pendulum-v9", "train cartpole --algo orpo", "train cartpole --preset papr",
        "train cartpole --seeds 0", "train cartpole --option discont=1",
        "train cartpole --limits 30,x", "evaluate nowhere", "certify nowhere",
        "explain nowhere", "export nowhere", "reproduce fig", "infer lorenz",
    ],
)  # fmt: skip
def test_typos_are_answered_without_loading_jax(arguments):
    found, names = imported(*arguments.split())
    assert found == 2
    assert "jax" not in names


@pytest.mark.parametrize("arguments", [("train", "--help"), ("help", "train")])
def test_help_of_a_command_imports_that_command_alone_and_no_jax(arguments):
    found, names = imported(*arguments)
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


@pytest.mark.bad_input
def test_a_result_that_never_arrives_is_no_verdict():
    """On a full disk: neither a traceback, nor the code 1 of a negative verdict, nor 0."""
    code = [sys.executable, "-m", "awavo.cli", "list", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(code, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.bad_input
def test_closed_and_full_streams_change_no_exit_code():
    words = [sys.executable, "-m", "awavo.cli"]
    shell = 'exec "$@" >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell, "sh", *words, "compare", "nowhere", "--json"]).returncode == 2
    assert subprocess.run(["sh", "-c", shell, "sh", *words, "list", "--json"]).returncode == 0
    with open("/dev/full", "w") as full:
        assert subprocess.run([*words, "compare", "nowhere"], stderr=full).returncode == 2


def test_a_stream_that_has_not_every_character_gets_the_rest_spelled_out(tmp_path):
    """After an hour of work its result was lost to an encoding."""
    code = (
        "import sys; from awavo.cli.main import main; from awavo.cli.doctor import Doctor\n"
        r"Doctor.run = lambda self: print('a\u00b7\u65e5 \udcff') or 0"
        "\nsys.exit(main(['doctor']))"
    )
    for encoding, said in (("ascii", b"a\\xb7\\u65e5 "), ("utf-8", "a·日 ".encode())):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(said)
