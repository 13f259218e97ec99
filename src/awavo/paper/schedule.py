"""Where a training run is stopped to be looked at, in iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Leg", "checkpoint_iterations", "legs"]


class Leg(NamedTuple):
    """A stretch of training: iterations before and after it, and whether it ends with an evaluation."""

    start: int
    end: int
    is_checkpoint: bool


def checkpoint_iterations(iterations: int, count: int, spacing: str) -> list[int]:
    """At most `count` different iterations up to the last one: `linear`, or `log` (dense early)."""
    if count <= 0:
        return []
    if spacing == "linear" or count == 1:
        wanted = [round(iterations * (k + 1) / count) for k in range(count)]
    else:
        wanted = [round(iterations ** (k / (count - 1))) for k in range(count)]
    return sorted({min(max(k, 1), iterations) for k in wanted})


def legs(iterations: int, points: int, checkpoints: list[int], longest: int) -> Iterator[Leg]:
    """Cut a run at the points of its curve and at its checkpoints into legs of at most `longest` iterations."""
    stride = max(1, min(longest, iterations // points))
    stops = set(checkpoints)
    start = 0
    while start < iterations:
        grid = (start // stride + 1) * stride
        end = min([iterations, grid, *(stop for stop in stops if stop > start)])
        yield Leg(start, end, end in stops)
        start = end
