"""Patience with somebody else's environment: what it raises becomes one line, and a call that hangs ends."""

from __future__ import annotations

import math
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from awavo.errors import AwavoError, BrokenEnvironmentError, InputError, raised

__all__ = ["TIMEOUT", "check_timeout", "watched"]

TIMEOUT = 600.0
"""Seconds that one call of an environment may take unless the task option `timeout` says otherwise."""


def check_timeout(seconds: object) -> float:
    """Return the timeout, which must be a number of seconds above 0 and at most a day."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
        raise InputError(f"timeout={seconds!r} is not a number of seconds above 0 and up to 86400.")
    return float(seconds)


@contextmanager
def watched(call: str, timeout: float = math.inf) -> Iterator[None]:
    """Run a call of an environment: whatever it raises, a call of `sys.exit` and one that takes too long break it.

    The clock is a signal, which only the main thread gets, and which Python code and system calls notice; an
    environment stuck in compiled code of its own needs `vectorization=async` or the bridge.
    """
    on_time = math.isfinite(timeout) and threading.current_thread() is threading.main_thread()

    def late(number: int, frame: FrameType | None) -> None:
        raise BrokenEnvironmentError(f"{call} did not return within {timeout:g} s (task option timeout=SECONDS).")

    before = signal.signal(signal.SIGALRM, late) if on_time else None
    if on_time:
        signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        yield
    except AwavoError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.name}, {last.filename}:{last.lineno}"
        raise BrokenEnvironmentError(f"{call} {raised(error)} (in {where}).") from error
    finally:
        if on_time:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
