"""A control loop that is never late: the planner has its own thread, and its last plan bridges a missed deadline."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from awavo.errors import InputError

__all__ = ["RealTimeLoop", "TimedAction"]


class TimedAction(NamedTuple):
    """An action, whether the planner missed its deadline, and how many ticks old the plan is."""

    action: Float[np.ndarray, " k"]
    late: bool
    age: int


class RealTimeLoop:
    """Call `act` once a tick. `plan(observation) -> [H, k]` returns an action for this tick and for those after it."""

    def __init__(self, plan: Callable[[Any], Float[np.ndarray, "H k"]], period_s: float, share: float = 0.9):
        if not period_s > 0 or not 0 < share <= 1:
            raise InputError(f"period_s={period_s} must be > 0 and share={share} in (0, 1].")
        self._plan_fn, self._wait_s = plan, period_s * share
        self._pool = ThreadPoolExecutor(1)
        self._running: Future | None = None
        self._plan: np.ndarray | None = None
        self._age = self._since = 0
        self.misses, self.ticks = 0, 0

    def act(self, observation: Any) -> TimedAction:
        """Return this tick's action within the period; only the first plan of all is waited for.

        A plan that comes late was made for an earlier tick: it enters at the tick it has reached by now.
        """
        self.ticks += 1
        if self._running is None:
            self._running, self._since = self._pool.submit(self._plan_fn, observation), self.ticks
        deadline = None if self._plan is None else self._wait_s
        try:
            self._plan = np.asarray(self._running.result(deadline))
            self._running, self._age = None, self.ticks - self._since
            late = False
        except TimeoutError:
            self._age += 1
            self.misses += 1
            late = True
        assert self._plan is not None
        return TimedAction(self._plan[min(self._age, len(self._plan) - 1)], late, self._age)

    def close(self) -> None:
        """Wait for the planner's thread and end it."""
        self._pool.shutdown(wait=True)
