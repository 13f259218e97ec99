"""The command line.

Exit codes: 0, 1 on a negative verdict, 2 on bad input, 3 on a fault of awavo itself, 130 when interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Protocol, get_type_hints, runtime_checkable

from awavo.errors import AwavoError, did_you_mean, printable, raised
from awavo.runs.progress import hide, showing

__all__ = ["Command", "entry", "main"]

# MODULE:CLASS of each command in this room, and one line on it. Only the module of the command asked for is imported.
COMMANDS = {
    "demo": (
        "demo:Demo",
        "Train ORPO-DR on constrained CartPole, evaluate it, write the report: the whole tour in a few minutes.",
    ),
    "train": ("train:Train", "Train an algorithm on a task. The same command again resumes the run."),
    "evaluate": ("evaluate:Evaluate", "Evaluate a run on fresh episodes, greedy and stochastic."),
    "certify": (
        "certify:Certify",
        "Certify a run's policies and its method, check stored certificates, or prove an operator.",
    ),
    "explain": (
        "explain:Explain",
        "Say why a controller decided so: a flight record, a PX4 log, a run, or a flight task flown now.",
    ),
    "fly": ("fly:Fly", "Fly a reference or a flight task over MAVLink with the planner, and record every decision."),
    "infer": ("infer:Infer", "Infer the states of a system from part of them: lorenz96, from 50 sites to a million."),
    "compare": ("compare:Compare", "Compare runs: IQM with 95% stratified bootstrap, feasibility beside return."),
    "reproduce": (
        "reproduce:Reproduce",
        "Run the paper's comparison figure by figure: data, pictures, what was found, one page.",
    ),
    "report": ("report:Report", "Write one self-contained HTML page about one or several runs."),
    "export": (
        "export:Export",
        "Write a run's policy as StableHLO and ONNX, with a manifest, for machines that do not train.",
    ),
    "render": (
        "render:Render",
        "Play one episode of a run: a picture, and a video with the costs counting up.",
    ),
    "watch": ("watch:Watch", "Show a live page of a training while it runs: curves, limits, speed, the latest video."),
    "list": ("list_names:ListNames", "List tasks and algorithms."),
    "check-env": ("check_env:CheckEnv", "Check an environment and say what is wrong and how to mend it."),
    "bridge": ("bridge:Bridge", "Make an interpreter ready for environments that cannot be installed beside jax."),
    "doctor": ("doctor:Doctor", "Show versions, device, folders, and whether what is needed works."),
}


LONGEST_LINE = 1_000  # characters of an error's line


@runtime_checkable
class Command(Protocol):
    """A command with its options read: a dataclass that tyro fills."""

    def run(self) -> int:
        """Do it, print, and return the exit code."""
        ...


def _parse(arguments: list[str]) -> Command:
    """Read the command and its options; help and typos import neither tyro nor jax."""
    name = arguments[0] if arguments else ""
    if name == "help" and len(arguments) > 1:
        return _parse([arguments[1], "--help"])
    if name in COMMANDS:
        return _parse_options(name, arguments[1:])
    if name and name != "help" and not name.startswith("-"):
        raise AwavoError(f"no command is named '{name}'.{did_you_mean(name, COMMANDS)}")
    if name == "--version":
        from awavo import __version__

        print(f"awavo {__version__}")
        raise SystemExit(0)
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items()]
    print("awavo: constrained reinforcement learning that shows its evidence\n")
    print("usage: awavo COMMAND [OPTIONS]      (awavo COMMAND --help for its options)\n")
    print("\n".join(lines))
    raise SystemExit(0 if name in ("", "help", "-h", "--help") else 2)


def _parse_options(name: str, options: list[str]) -> Command:
    """Let tyro read the options; its boxed complaint becomes one line."""
    import tyro

    path, summary = COMMANDS[name]
    module, kind = path.split(":")
    command = getattr(importlib.import_module(f"awavo.cli.{module}"), kind)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(command, prog=f"awavo {name}", description=summary, args=options)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
    # What is left of the box without its frame, its colours, its title and the hint at the help.
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│╭╮╰╯─ ") for line in complaint.getvalue().splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("For full helptext"))
    text = re.sub(r"-{5,}", "", text).strip()  # the frame where stderr has no better characters
    text = re.sub(r"^Parsing error ─*|^Unrecognized options ─*|^Required options ─*", "", text).strip()
    text = text.removesuffix(f"awavo {name} --help").strip()
    wrong = re.search(r"Error parsing (--[\w-]+): .* --[\w-]+ (?:\{None\}\|)?(INT|FLOAT)\b", text)
    if wrong:
        kind = "a whole number" if wrong[2] == "INT" else "a number"
        text = f"{wrong[1]} {_value_after(wrong[1], options)} is not {kind}"
    missing = re.search(r"Missing value for argument '([\w-]+)'", text)
    if missing:
        text = _missing_argument(name, missing[1], options)
    extra = re.fullmatch(r"Unrecognized options: ([^-\s]\S*)", text)
    if extra:
        text = f"'{extra[1]}' is one word too many{_option_for(command, extra[1])}"
    raise AwavoError(f"{text or 'the options cannot be read'} (see `awavo {name} --help`).")


def _option_for(command: type[Any], word: str) -> str:
    """`: did you mean --budget quick?` where the help of an option names the word as a value."""
    for name, hint in get_type_hints(command, include_extras=True).items():
        texts = [getattr(about, "help", None) or "" for about in getattr(hint, "__metadata__", ())]
        if any(re.search(rf"\b{re.escape(word)}\b", text) for text in texts):
            return f": did you mean --{name.replace('_', '-')} {word}?"
    return ": options begin with --"


def _value_after(name: str, options: list[str]) -> str:
    """What stands behind the last `name` among the options, after a blank or a `=`."""
    at = max(i for i, option in enumerate(options) if option.partition("=")[0].replace("_", "-") == name)
    return options[at].partition("=")[2] or " ".join(options[at + 1 : at + 2])


def _missing_argument(command: str, name: str, options: list[str]) -> str:
    """Say that an argument is missing, or that it was given as an option."""
    if name.startswith("--"):
        return f"{name} needs a value"
    given = next((i for i, option in enumerate(options) if option.split("=")[0] == f"--{name}"), None)
    if given is None:
        return f"{name.upper()} is missing: awavo {command} {name.upper()}"
    value = (options[given].partition("=")[2] or " ".join(options[given + 1 : given + 2])) or name.upper()
    return f"{name.upper()} is an argument, not an option: awavo {command} {value}"


class _Aside:
    """A stream that has the progress bar step aside before it writes."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        hide()
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Shown(_Aside):
    """That, and control characters are spelled out; of escape sequences, colours and weights alone pass."""

    COLOUR = re.compile(r"(\x1b\[(?:[0-4]|[39][0-7]|38;5;\d{1,3}|;)*m)")

    def write(self, text: str) -> int:
        if not text.isprintable():
            parts = self.COLOUR.split(text)
            text = "".join(part if i % 2 else printable(part) for i, part in enumerate(parts))
        return super().write(text)


def _fail(message: str, code: int, as_json: bool) -> int:
    line = printable(" ".join(message.split()))
    line = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
    if as_json:
        _say(sys.stdout, json.dumps({"error": line}))
    _say(sys.stdout)
    _say(sys.stderr, f"awavo: {line}")
    return code


def _say(stream: Any, *lines: str) -> None:
    """Print and flush. What a stream refuses (a full disk) is let go: Python would fail on it again at its end."""
    try:
        for line in lines:
            print(line, file=stream)
        stream.flush()
    except OSError:
        _let_go(stream)


def _let_go(stream: Any) -> None:
    with contextlib.suppress(OSError):  # a stream of Python's own has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_closed_streams() -> None:
    """Give a program that was started without stdout or stderr (`>&-`) ones that keep nothing.

    Else the next file that is opened, a checkpoint say, would get the number of stdout, and what is printed with it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


# What the file system says about a path or a disk that somebody chose, no fault of this package.
FILE_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY,
    errno.ENAMETOOLONG, errno.ELOOP, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO, errno.ENODEV,
}  # fmt: skip


def _unforeseen(error: Exception) -> tuple[str, int]:
    """One line and an exit code for an exception that no command expected."""
    if isinstance(error, OSError) and error.errno in FILE_ERRORS:
        place = f"'{error.filename}'" if error.filename else "a file"
        reason = f"{error.strerror}: choose another path, or change its permissions or the space there"
        return f"cannot use {place}: {reason}.", 2
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)[:200]:
        return f"there is not enough memory for this ({str(error)[:200] or 'out of memory'}): ask for less.", 2
    details = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {str(error)[:300]}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="awavo-error-", suffix=".txt", delete=False) as file:
            file.write(f"{sys.argv}\n{details}")
        return f"this is a fault of awavo ({what}); the details are in {file.name}: please report them.", 3
    except OSError:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"this is a fault of awavo ({what}, in {where.name} at {where.filename}:{where.lineno}).", 3


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # what its encoding does not have is spelled out, as on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    with contextlib.redirect_stdout(_Shown(sys.stdout)):
        return _run(arguments, as_json)


def _run_own_code(command: Command) -> int:
    """Run a command; code of the user's that ends the program must not make it look done."""
    try:
        return command.run()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich ends the program where the reader left
            raise error.__context__ from None
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.name}, {last.filename}:{last.lineno}"
        raise AwavoError(f"code that was run {raised(error)} (in {where}): let it return or raise instead.") from error


def _interrupted(command: Command | None) -> str:
    """What is left behind: of a command that saves on its way, whether there is something to go on from."""
    folder: Path | None = getattr(command, "folder", None)
    if folder is None:
        return "interrupted."
    if any((folder / "checkpoints").glob("step-*.safetensors")):
        return "interrupted; the last checkpoint is intact, the same command resumes from it."
    return "interrupted; nothing was saved yet."


def _run(arguments: list[str], as_json: bool) -> int:
    command = None
    try:
        command = _parse(arguments)
        # A program that reads JSON may keep what stderr says: only a person at a terminal is shown how far it is.
        with showing(quiet=as_json and not sys.stderr.isatty()), contextlib.redirect_stderr(_Aside(sys.stderr)):
            code = _run_own_code(command)
        sys.stdout.flush()  # what never arrived is not done
    except AwavoError as error:
        code = _fail(str(error), 2, as_json)
    except BrokenPipeError:  # the reader left; Python must not fail again when it flushes at the end
        _let_go(sys.stdout)
        code = 0
    except KeyboardInterrupt:
        code = _fail(_interrupted(command), 130, as_json)
    except Exception as error:
        code = _fail(*_unforeseen(error), as_json)
    return code


def entry() -> None:
    """Console script."""
    raise SystemExit(main())


if __name__ == "__main__":
    entry()
