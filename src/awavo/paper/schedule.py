"""Where a training run is looked at, in iterations."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["checkpoint_iterations", "curve_iterations"]


def checkpoint_iterations(iterations: int, count: int, spacing: str) -> list[int]:
    """At most `count` different iterations up to the last one: `linear`, or `log` (dense early)."""
    if count <= 0:
        return []
    if spacing == "linear" or count == 1:
        wanted = [round(iterations * (k + 1) / count) for k in range(count)]
    else:
        wanted = [round(iterations ** (k / (count - 1))) for k in range(count)]
    return sorted({min(max(k, 1), iterations) for k in wanted})


def curve_iterations(iterations: int, points: int, checkpoints: Sequence[int], longest: int) -> list[int]:
    """Where the stretches of a learning curve end: about `points` of at most `longest`, every checkpoint, the end."""
    stride = max(1, min(longest, iterations // points))
    return sorted({*range(stride, iterations, stride), *checkpoints, iterations})
