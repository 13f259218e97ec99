"""What host tasks on C MuJoCo share: the import of the extra, and many simulations stepped at once on threads.

MuJoCo lets go of Python's lock while it steps, so threads use all cores. `mujoco.rollout`, which does the same without
Python, takes as long (benchmarks/velocity/speed.py), starts every call from a cold solver and returns positions and
velocities alone, so that its steps are not those of an environment that keeps its simulation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Generic, TypeVar

from awavo.errors import InputError, MissingExtraError

__all__ = ["StepThreads", "load_mujoco"]

Simulation = TypeVar("Simulation")


def load_mujoco(needed_by: str) -> ModuleType:
    """Import mujoco, or say how to get it."""
    try:
        import mujoco
    except ImportError as error:
        raise MissingExtraError(
            f"{needed_by} needs MuJoCo, which is not installed: pip install 'awavo[mujoco]'."
        ) from error
    return mujoco


class StepThreads(Generic[Simulation]):
    """Threads that each take the next simulation that waits and step it; the caller's own thread is one of them."""

    def __init__(self, step: Callable[[Simulation], object], num_envs: int, threads: int = 0):
        if num_envs < 1 or threads < 0:
            raise InputError(f"num_envs={num_envs} must be >= 1 and threads={threads} >= 0.")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._step = step
        self._helpers = min(threads or cores, num_envs) - 1
        self._pool = ThreadPoolExecutor(self._helpers) if self._helpers else None

    def run(self, simulations: Iterable[Simulation]) -> None:
        """Step all of them, and return when the last one is done."""
        waiting = iter(simulations)  # shared: each thread takes the next
        helped = [self._pool.submit(self._take, waiting) for _ in range(self._helpers)] if self._pool else []
        try:
            self._take(waiting)
        finally:
            for helper in helped:
                helper.result()

    def _take(self, waiting: Iterator[Simulation]) -> None:
        for simulation in waiting:
            self._step(simulation)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
