"""Ctrl-C and SIGTERM as a flag, installed before anything that takes time.

An exception raised by a signal is lost where a library swallows it, as imports and compilers do; a flag is not.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stop_flag"]

_outermost: threading.Event | None = None


@contextmanager
def stop_flag() -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT or SIGTERM into a flag; a second one interrupts at once.

    Inside another `stop_flag` it is that one's flag: what came before is not forgotten.
    """
    global _outermost
    if _outermost is not None:
        yield _outermost.is_set
        return
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped.is_set
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    _outermost = stopped
    try:
        yield stopped.is_set
    finally:
        _outermost = None
        for number, handler in before.items():
            signal.signal(number, handler)
