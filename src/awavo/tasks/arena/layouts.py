"""Where things stand: placement by rejection, from the numbers that Safety-Gymnasium draws.

Safety-Gymnasium draws from numpy's `RandomState(seed)`: the same numbers in the same order make equal seeds give equal
layouts, headings and goals. Many numbers are taken at once and looked at together; those that are left over come next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from awavo.errors import BrokenEnvironmentError

__all__ = ["Numbers", "Placed", "Places", "draw_layout", "draw_place"]

TRIES, LAYOUTS, GOALS = 100, 10_000, 10_000  # for one thing, for a layout, for a goal
BLOCK = 4096  # words that are drawn at once
FIRST = 8  # places that are looked at first: most often one of them is free


class Numbers:
    """The random numbers of `numpy.random.RandomState(seed)`, which may be looked at before they are used up."""

    def __init__(self, seed: int):
        self._source = np.random.RandomState(seed)
        self._words = np.zeros(0, np.uint32)
        self._at = 0  # the next word
        self._numbers = np.zeros(0)  # made of two words each, from word `_from` on
        self._from = 0

    def look(self, count: int) -> Float[np.ndarray, " count"]:
        """The next numbers in [0, 1), not used up."""
        ahead, odd = divmod(self._at - self._from, 2)
        if odd or ahead + count > len(self._numbers):
            self._fill(2 * count)
            self._from, ahead = self._at, 0
            words = self._words[self._at : self._at + (len(self._words) - self._at) // 2 * 2].astype(np.uint64)
            high, low = words[::2] >> np.uint64(5), words[1::2] >> np.uint64(6)
            self._numbers = (high * 67108864.0 + low) / 9007199254740992.0
        return self._numbers[ahead : ahead + count]

    def skip(self, count: int) -> None:
        """Use up that many numbers."""
        self._fill(2 * count)
        self._at += 2 * count

    def take(self, count: int) -> Float[np.ndarray, " count"]:
        """The next numbers in [0, 1)."""
        numbers = self.look(count)
        self._at += 2 * count
        return numbers

    def choose(self, count: int) -> int:
        """One of 0 .. count - 1."""
        mask = (1 << (count - 1).bit_length()) - 1
        while True:
            self._fill(1)
            word = int(self._words[self._at]) & mask
            self._at += 1
            if word < count:
                return word

    def _fill(self, count: int) -> None:
        """Have that many words ahead."""
        missing = self._at + count - len(self._words)
        if missing > 0:
            fresh = self._source.randint(0, 2**32, max(missing, BLOCK), np.uint32)
            self._words, self._from = np.concatenate([self._words[self._at :], fresh]), self._from - self._at
            self._at = 0


class Places(NamedTuple):
    """N squares to place things in, in order, and the distance that each keeps."""

    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    keepout: Float[np.ndarray, " n"]


class Placed(NamedTuple):
    """A layout: places of all things in the order of `Places`, and an angle for each."""

    xy: Float[np.ndarray, "n 2"]
    angles: Float[np.ndarray, " n"]


def draw_layout(numbers: Numbers, places: Places) -> Placed:
    """Place one thing after the other; where one finds no place in 100 tries, all begin again."""
    for _ in range(LAYOUTS):
        xy = _try_layout(numbers, places)
        if xy is not None:
            return Placed(xy, 2 * np.pi * numbers.take(len(xy)))
    raise BrokenEnvironmentError(f"no layout was found in {LAYOUTS} tries.")


def _try_layout(numbers: Numbers, places: Places) -> Float[np.ndarray, "n 2"] | None:
    xy = np.empty((len(places.low), 2))
    for i in range(len(xy)):
        found = _first_free(numbers, places, i, xy[:i], places.keepout[:i] + places.keepout[i], TRIES)
        if found is None:
            return None
        xy[i] = found
    return xy


def _first_free(
    numbers: Numbers, places: Places, i: int, others: np.ndarray, apart: np.ndarray, tries: int
) -> Float[np.ndarray, " 2"] | None:
    """The first of the next places that is free; those before it, and it, are used up."""
    low, width = places.low[i], places.high[i] - places.low[i]
    for count in (FIRST, tries - FIRST):
        tried = low + width * numbers.look(2 * count).reshape(count, 2)
        x, y = tried[:, 0, None] - others[:, 0], tried[:, 1, None] - others[:, 1]
        free = ~(np.sqrt(x * x + y * y) < apart).any(1)
        used = int(free.argmax())
        if free[used]:
            numbers.skip(2 * (used + 1))
            return tried[used]
        numbers.skip(2 * count)
    return None


def draw_place(
    numbers: Numbers, places: Places, i: int, xy: Float[np.ndarray, "n 2"], others: Int[np.ndarray, " m"]
) -> Float[np.ndarray, " 2"] | None:
    """Another place for thing `i`, free of the `others` as they stand at `xy`; None after 10,000 tries."""
    apart = places.keepout[others] + places.keepout[i]
    for _ in range(GOALS // TRIES):
        found = _first_free(numbers, places, i, xy[others], apart, TRIES)
        if found is not None:
            return found
    return None
