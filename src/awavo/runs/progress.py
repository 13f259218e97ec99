"""What a person sees while something takes its time: what is being done, how far it is, about how long it still takes.

On a terminal that is a bar below everything else, in a notebook one line that is written over, in a log a line every
few seconds; all of it on stderr. Work says so with `doing`; blocks inside a block take its place while they last.
"Compiling" is shown while jax compiles, and not counted in the estimate. This module loads no jax.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from awavo.errors import printable
from awavo.runs.display import Display, Doing, Stream, figure_text, time_text

if TYPE_CHECKING:
    from awavo.runs.train import Progress

__all__ = ["Doing", "doing", "follow", "hide", "say", "showing", "stop_showing", "time_text"]

MEASURE_SECONDS = 3.0  # of training, before its speed is believed
COMPILE_EVENTS = "/jax/core/compile/"  # what jax calls its stages of compiling

# While first episodes are cut short, only those that end before that are whole: all crashes, say, and nothing else.
EARLY_ONLY = "(so far only of episodes that ended early, the others were cut short: evaluate for fair figures)"

_display: Display | None = None


@contextmanager
def showing(*, quiet: bool = False) -> Iterator[Display | None]:
    """Have a display while the block lasts; inside another such block it is that one's."""
    global _display
    stream: Stream | None = sys.stderr  # None in a program without a console
    unwanted = quiet or os.environ.get("AWAVO_QUIET") or not _is_main_thread()
    if _display is not None or unwanted or stream is None:
        yield _display
        return
    _display = display = Display(stream)
    try:
        yield display
    finally:
        _display = None
        display.close()


@contextmanager
def doing(what: str, total: float | None = None, unit: str = "", *, first: float = 0) -> Iterator[Doing]:
    """Say what is being done until the block ends; `advance` of what it yields counts what is done of the total."""
    work = Doing(what, total, unit, done=first, first=first)
    with showing() as display:
        if display is not None:
            _watch_compiler()
            display.push(work)
        try:
            yield work
        finally:
            if display is not None:
                display.pop(work)


def hide() -> None:
    """Take away what is shown, before something is written to the terminal."""
    if _display is not None:
        _display.hide()


def stop_showing() -> None:
    """Show nothing more: what follows is no work, but waits for a person."""
    if _display is not None:
        _display.close()


def say(line: str) -> None:
    """A line on stderr that stays."""
    hide()
    print(printable(line), file=sys.stderr, flush=True)


def follow(
    updates: Iterable[Progress], *, expected: Callable[[Progress], str] | None = None, quiet: bool = False
) -> Progress:
    """Show a training while it runs and return its last update.

    What `expected` makes of the first update is said before it compiles, unless it resumes; `quiet`, and AWAVO_QUIET,
    print no lines that stay, but for warnings.
    """
    quiet = quiet or bool(os.environ.get("AWAVO_QUIET"))
    last, chunks, measured = None, 0, quiet
    with doing("starting") as work:
        for last in updates:
            if work.what == "starting":
                _say_start(last, quiet)
                if expected is not None and not quiet and last.phase == "compiling" and not last.resumed_at:
                    say(expected(last))
            work.what = "training" if last.phase == "compiling" else last.phase
            work.done, work.total, work.unit = last.env_steps, last.total_steps, "steps"
            chunks += last.phase == "training"
            if chunks <= 1:  # the first one may compile, and whatever else is done once
                work.time_from_here()
            left = work.left()
            if not measured and left is not None and time.monotonic() - (work.timed_from or 0) > MEASURE_SECONDS:
                measured = True
                say(f"measured here: about {time_text(left)} to the end")
            speed = f"{last.steps_per_second:,.0f} steps/s"
            work.details = [(speed, ""), *_recent(last)] if last.steps_per_second else []
        assert last is not None
        if not quiet:
            recent = "  ".join(text for text, _ in _recent(last))
            say(f"{last.phase} {last.env_steps} of {last.total_steps} steps  {recent}".rstrip())
    return last


def _say_start(update: Progress, quiet: bool) -> None:
    """From where training resumes, and, whoever reads it, which checkpoints were refused."""
    for note in update.notes:
        say(f"warning: {note}")
    if update.resumed_at and not quiet:
        say(f"resuming from {update.resumed_at} steps")


def _recent(update: Progress) -> list[tuple[str, str]]:
    """The last episodes in a few words, a cost above its limit in red; no verdict on a sample that is not fair."""
    parts = []
    for name, value in update.recent.items():
        cost = name.removeprefix("cost_")
        limit = None if name == "return" else update.limits.get(cost)
        if limit is None:
            parts.append((f"{cost} {figure_text(value, abs(value))}", ""))
        else:
            verdict = "" if update.early_only else "red" if value > limit else "green"
            parts.append((f"{cost} {figure_text(value, limit or abs(value))}/{limit:g}", verdict))
    return [*parts, (EARLY_ONLY, "")] if parts and update.early_only else parts


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


_watching = False


def _watch_compiler() -> None:
    """Have jax say when a stage of compiling (tracing, lowering, XLA) begins, and when it has ended."""
    global _watching
    if _watching or "jax" not in sys.modules:
        return
    from jax import monitoring

    def begins(event: str, value: float, **kwargs: object) -> None:
        if _display is not None and event.startswith(COMPILE_EVENTS):
            _display.compiling(True)

    def ended(event: str, duration_secs: float, **kwargs: object) -> None:
        if _display is not None and event.startswith(COMPILE_EVENTS):
            _display.compiling(False)

    monitoring.register_scalar_listener(begins)
    monitoring.register_event_duration_secs_listener(ended)
    _watching = True
