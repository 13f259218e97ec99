"""Checks of observations before anything is computed: one clear line for what cannot be inferred from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from awavo.errors import InputError

__all__ = ["LONGEST_GAP", "check_noise", "check_observations", "longest_gap", "read_numbers"]

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


def read_numbers(value: Any, what: str) -> np.ndarray:
    """Real numbers as an array of float64, NaN where a masked array has none."""
    try:
        kind = np.ma.asarray(value).dtype.kind
        array = np.ma.array(value, np.float64, copy=True).filled(np.nan) if kind not in "cmM" else np.zeros(0)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} are not numbers ({error}): give an array.") from error
    if kind in "cmM":
        given = "complex" if kind == "c" else "dates"
        raise InputError(f"{what} are {given}, expected real numbers: give what was measured as such.")
    return array


def check_noise(noise: Any, seen: Bool[np.ndarray, "K I"]) -> Float[np.ndarray, "K I"]:
    """The standard deviation of each observation's noise, which must be known wherever something was seen."""
    if noise is None:
        raise InputError("the noise is None: give its standard deviation, a number, one per column or per observation.")
    spread = read_numbers(noise, "the standard deviations of the noise")
    try:
        spread = np.broadcast_to(spread, seen.shape)
    except ValueError:
        raise InputError(
            f"the noise has shape {list(spread.shape)}: give a number, one per column, or one per observation."
        ) from None
    wrong = spread[seen & ~((spread > 0) & np.isfinite(spread))]
    if len(wrong):
        raise InputError(
            f"the standard deviation of the noise is {wrong[0]:g}: it must be above 0, and finite, wherever something "
            "was seen."
        )
    return spread


def check_observations(
    value: np.ndarray, shape: Sequence[int], noise_std: float | np.ndarray, *, longest: int = LONGEST_GAP
) -> Float[np.ndarray, "K I"]:
    """Return the observations as float64 [times, sites]; NaN marks one that is missing.

    On a ring, more than `longest` neighbours that are never seen are refused: nothing ties their states to data.
    """
    value = read_numbers(value, "the observations")
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
    seen = np.asarray(np.isfinite(value))
    if not seen.any():
        raise InputError("every observation is NaN: at least some must be there.")
    check_noise(noise_std, seen)
    if len(tuple(shape)) == 1:
        first, length = longest_gap(~np.asarray(seen.any(0)))
        if length > longest:
            raise InputError(
                f"{length} sites in a row (from site {first}) are never observed, at most {longest} can be inferred: "
                "observe more of their neighbours."
            )
    return value
