"""The drawing of progress: what is being done, how far it is and about how long it still takes, on one stream.

A bar on a terminal, one line that is written over in a notebook, a line every few seconds in a log. No jax here.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from awavo.errors import printable

__all__ = ["Display", "Doing", "Stream", "figure_text", "time_text"]

T = TypeVar("T")
Styled = Sequence[tuple[str, str]]  # pieces of text, each with a style of rich's

# Seconds: until something is shown on a terminal, between two pictures of the bar, of rest after something was written,
# until the first line of a log (bad input is answered before it), and between its lines.
BAR_AFTER, FRAME, AFTER_WRITING, FIRST_LINE, NEXT_LINE = 0.3, 0.15, 0.4, 2.5, 5.0


@runtime_checkable
class Stream(Protocol):
    """Where it is shown: stderr, a notebook's, or a file."""

    def write(self, text: str, /) -> int:
        """Write."""
        ...

    def flush(self) -> None:
        """Let it be seen."""
        ...

    def isatty(self) -> bool:
        """Whether a person sees it at once."""
        ...


def time_text(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def figure_text(value: float, scale: float) -> str:
    """A return or a cost with one decimal, with more where what it is held against is below 1: two digits of that."""
    if not 0 < scale < 1:
        return f"{value:.1f}"
    decimals = 1 + math.ceil(-math.log10(scale))
    return f"{value:.{decimals}f}" if decimals <= 6 else f"{value:.3g}"


@dataclass
class Doing:
    """A piece of work: what it is, and how much of it is done."""

    what: str
    total: float | None = None
    unit: str = ""
    done: float = 0
    first: float = 0  # done before it began, by an earlier call
    details: Styled = ()
    began: float = field(default_factory=time.monotonic)
    timed_from: float | None = None  # from when on `first` and `compiled` count, if later
    compiled: float = 0.0  # seconds of compiling since then

    def time_from_here(self) -> None:
        """Let the estimate be of what comes from here on."""
        self.timed_from, self.first, self.compiled = time.monotonic(), self.done, 0.0

    def advance(self, count: float = 1) -> None:
        """So much more is done."""
        self.done += count

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The items; each is done when the next is asked for."""
        for item in items:
            yield item
            self.advance()

    def left(self) -> float | None:
        """Seconds that the rest will take, at the speed so far without compiling."""
        here = self.done - self.first
        if not self.total or here <= 0:
            return None
        busy = time.monotonic() - (self.timed_from or self.began) - self.compiled
        return max(busy, 0.0) / here * (self.total - self.done)

    def words(self, compiling: bool) -> str:
        """One line on it, which may be compiling now."""
        if compiling:
            return f"{self.what}: compiling, {time_text(time.monotonic() - self.began)}"
        parts = [self.what]
        if self.total:
            parts[0] += f" {self.done:,.0f} of {self.total:,.0f} {self.unit}".rstrip()
        parts.append(time_text(time.monotonic() - self.began))
        left = self.left()
        if left is not None and self.done < (self.total or 0):
            parts.append(f"about {time_text(left)} left")
        return ", ".join(parts)


class Display:
    """Shows the innermost piece of work until it is closed; a thread of its own draws."""

    def __init__(self, stream: Stream):
        self._stream, self._work = stream, [Doing("starting")]
        self._lock, self._closed = threading.RLock(), threading.Event()
        self._compiling: float | None = None  # since when
        self._programs = 0  # that are being compiled
        self._bar: Any = None
        self._written = 0  # characters of a notebook's line
        self._resume_at = 0.0  # when to draw again after somebody wrote
        self.kind = "notebook" if _in_notebook() else "bar" if stream.isatty() and not _is_dumb() else "lines"
        self._thread = threading.Thread(target=self._run, name="awavo-progress", daemon=True)
        self._thread.start()

    def push(self, work: Doing) -> None:
        """Show this piece of work from now on."""
        with self._lock:
            self._work[0].what = "working"  # between two pieces of it
            self._work.append(work)

    def pop(self, work: Doing) -> None:
        """It is done: show again what was shown before."""
        with self._lock:
            if work in self._work:
                self._work.remove(work)

    def compiling(self, begins: bool) -> None:
        """The compiler begins with a stage of a program, which may have others inside, or has ended one."""
        with self._lock:
            now = time.monotonic()
            self._programs = max(self._programs + (1 if begins else -1), 0)
            if begins:
                self._compiling = self._compiling or now
            elif self._compiling is not None and not self._programs:
                for work in self._work:
                    work.compiled += now - max(self._compiling, work.began)
                self._compiling = None

    def _compiles(self) -> bool:
        """Whether it has been compiling for long enough to be worth a word."""
        return self._compiling is not None and time.monotonic() - self._compiling > BAR_AFTER

    def line(self) -> str:
        """What there is to say now."""
        with self._lock:
            work = self._work[-1]
            details = "  ".join(text for text, _ in work.details)
            return printable("  ".join(part for part in (work.words(self._compiles()), details) if part))

    def hide(self) -> None:
        """Take the bar away, so that somebody can write; it comes back when they have ended."""
        # Where the reader left or the stream is closed, there is nothing to take away.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._resume_at = time.monotonic() + AFTER_WRITING
            if self._bar is not None:
                bar, self._bar = self._bar, None
                bar.stop()
            if self._written:
                width, self._written = self._written, 0
                self._stream.write("\r" + " " * width + "\r")

    def close(self) -> None:
        """Show nothing more."""
        self._closed.set()
        self.hide()

    def _run(self) -> None:
        lines = self.kind == "lines"
        wait = FIRST_LINE if lines else BAR_AFTER
        while not self._closed.wait(wait):
            try:
                with self._lock:
                    if not self._closed.is_set() and (lines or time.monotonic() > self._resume_at):
                        {"lines": self._print_line, "notebook": self._write_over, "bar": self._draw}[self.kind]()
            except (OSError, ValueError):  # the reader left, or the stream was closed
                return
            wait = NEXT_LINE if lines else FRAME

    def _print_line(self) -> None:
        self._stream.write(self.line() + "\n")
        self._stream.flush()

    def _write_over(self) -> None:
        text = self.line()[:110]
        self._stream.write("\r" + text.ljust(self._written))
        self._stream.flush()
        self._written = len(text)

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn
        from rich.text import Text

        class Words(ProgressColumn):
            def render(self, task: Any) -> Text:
                return task.fields["words"]

        if self._bar is None:
            console = Console(file=self._stream, force_terminal=True)  # pyright: ignore[reportArgumentType]
            self._bar = Progress(
                SpinnerColumn(), BarColumn(20), Words(), console=console, auto_refresh=False, transient=True,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._bar.add_task("", total=None, words=Text(""))
            self._bar.start()
        work = self._work[-1]
        words = Text(printable(work.words(self._compiles())), no_wrap=True, overflow="ellipsis")
        for text, style in work.details:
            words.append("  ").append(printable(text), style)
        self._bar.update(self._bar.task_ids[0], total=work.total, completed=work.done, words=words)
        self._bar.refresh()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", {})
