"""The command line. Exit codes: 0, 1 on a negative verdict, 2 on bad input, 130 when interrupted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from awavo.errors import AwavoError, did_you_mean

__all__ = ["entry", "main"]

COMMANDS = {
    "demo": (
        "Demo",
        "Train ORPO-DR on constrained CartPole, evaluate it, write the report: the whole tour in a few minutes.",
    ),
    "train": ("Train", "Train an algorithm on a task. The same command again goes on where the run stopped."),
    "evaluate": ("Evaluate", "Evaluate a run on fresh episodes, greedy and stochastic."),
    "certify": ("Certify", "Certify a run's policies and its method, check stored certificates, or prove an operator."),
    "explain": (
        "Explain",
        "Say why a controller decided so: a flight record, a PX4 log, a run, or a flight task flown now.",
    ),
    "infer": ("Infer", "Infer the states of a system from part of them: lorenz96, from 50 sites to a million."),
    "compare": ("Compare", "Compare runs: IQM with 95% stratified bootstrap, feasibility beside return."),
    "reproduce": (
        "Reproduce",
        "Run the paper's comparison figure by figure: data, pictures, what was found, one page.",
    ),
    "report": ("Report", "Write one self-contained HTML page about one or several runs."),
    "export": (
        "Export",
        "Write a run's policy as StableHLO and ONNX, with a manifest, for machines that do not train.",
    ),
    "render": ("Render", "Fly or walk one episode and write its path, a picture and a video."),
    "list": ("ListAll", "List tasks and algorithms."),
    "check-env": ("CheckEnv", "Check an environment and say what is wrong and how to mend it."),
    "doctor": ("Doctor", "Show versions, device, folders, and whether what is needed works."),
}


def _parse(arguments: list[str]) -> Any:
    kind = arguments[0] if arguments else ""
    if kind in COMMANDS:
        return _parse_options(kind, arguments[1:])
    if kind and not kind.startswith("-"):
        raise AwavoError(f"no command is named '{kind}'.{did_you_mean(kind, COMMANDS)}")
    from awavo import __version__

    if kind == "--version":
        print(f"awavo {__version__}")
        raise SystemExit(0)
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items()]
    print("awavo: constrained reinforcement learning that shows its evidence\n")
    print("usage: awavo COMMAND [OPTIONS]      (awavo COMMAND --help for its options)\n")
    print("\n".join(lines))
    raise SystemExit(0 if kind in ("", "-h", "--help") else 2)


def _parse_options(kind: str, options: list[str]) -> Any:
    """Let tyro read the options; its boxed complaint becomes one line."""
    import tyro

    from awavo.cli import options as known

    name, summary = COMMANDS[kind]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(getattr(known, name), prog=f"awavo {kind}", description=summary, args=options)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│╭╮╰╯─ ") for line in complaint.getvalue().splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("For full helptext"))
    text = re.sub(r"^Parsing error ─*|^Unrecognized options ─*|^Required options ─*", "", text).strip()
    text = text.removesuffix(f"awavo {kind} --help").strip()
    missing = re.search(r"Missing value for argument '([\w-]+)'", text)
    if missing:
        text = _missing_argument(kind, missing[1], options)
    raise AwavoError(f"{text or 'the options cannot be read'} (see `awavo {kind} --help`).")


def _missing_argument(kind: str, name: str, options: list[str]) -> str:
    given = next((i for i, option in enumerate(options) if option.split("=")[0] == f"--{name}"), None)
    if given is None:
        return f"{name.upper()} is missing: awavo {kind} {name.upper()}"
    value = (options[given].partition("=")[2] or " ".join(options[given + 1 : given + 2])) or name.upper()
    return f"{name.upper()} is an argument, not an option: awavo {kind} {value}"


def _fail(message: str, code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": message}))
    print(f"awavo: {message}", file=sys.stderr)
    return code


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    try:
        command: Any = _parse(arguments)
        action: Callable[[], int] = command.run
        code = action()
    except AwavoError as error:
        code = _fail(" ".join(str(error).split()), 2, as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = _fail("interrupted; the last checkpoint is intact, the same command goes on from it.", 130, as_json)
    return code


def entry() -> None:
    """Console script."""
    raise SystemExit(main())


if __name__ == "__main__":
    entry()
