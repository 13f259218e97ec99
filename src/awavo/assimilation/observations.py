"""Checks of observations before anything is computed: one clear line for what cannot be inferred from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from awavo.errors import InputError

__all__ = ["LONGEST_GAP", "check_observations", "longest_gap"]

LONGEST_GAP = 16  # hidden neighbours on a ring


def longest_gap(hidden: Bool[np.ndarray, " I"]) -> tuple[int, int]:
    """First site and length of the longest run of hidden sites around a ring."""
    num = len(hidden)
    if hidden.all():
        return 0, num
    # Begin at a seen site: then no run of hidden ones wraps.
    turn = int(np.flatnonzero(~hidden)[0])
    rolled = np.concatenate([np.roll(hidden, -turn), [False]])
    best, first, begin = 0, 0, 0
    for end in np.flatnonzero(~rolled):
        if end - begin > best:
            best, first = int(end - begin), int(begin)
        begin = end + 1
    return (first + turn) % num, best


def check_observations(
    value: np.ndarray, shape: Sequence[int], noise_std: float, *, longest: int = LONGEST_GAP
) -> Float[np.ndarray, "K I"]:
    """Return the observations as float64 [times, sites]; NaN marks one that is missing.

    On a ring, more than `longest` neighbours that are never seen are refused: nothing ties their states to data.
    """
    try:
        value = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the observations are not numbers ({error}): give an array [times, sites].") from error
    sites = int(np.prod(shape))
    if value.ndim == 1 + len(tuple(shape)) and value.shape[1:] == tuple(shape):
        value = value.reshape(len(value), sites)
    if value.ndim != 2 or value.shape[1] != sites:
        raise InputError(
            f"the observations have shape {list(value.shape)}, expected [times, {sites}]: one row per time."
        )
    if len(value) < 2:
        raise InputError(f"there are {len(value)} times of observation, at least 2 are needed.")
    if np.isinf(value).any():
        raise InputError(f"{int(np.isinf(value).sum())} observations are infinite: mark missing ones as NaN.")
    if not noise_std > 0:
        raise InputError(f"the standard deviation of the noise is {noise_std:g}: it must be above 0.")
    seen = np.isfinite(value)
    if not seen.any():
        raise InputError("every observation is NaN: at least some must be there.")
    if len(tuple(shape)) == 1:
        first, length = longest_gap(~np.asarray(seen.any(0)))
        if length > longest:
            raise InputError(
                f"{length} sites in a row (from site {first}) are never observed, at most {longest} can be inferred: "
                "observe more of their neighbours."
            )
    return value
