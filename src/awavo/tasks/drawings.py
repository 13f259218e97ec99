"""Pictures of the built-in tasks that live in the plane or in a table, and of any observation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw

from awavo.tasks.cartpole import BANDS
from awavo.types import Env

__all__ = ["Canvas", "Picture", "draw_numbers", "env_drawing"]

Picture = UInt8[np.ndarray, "h w 3"]
Draw = Callable[[Any], Picture]  # from the task's own state

WIDTH, HEIGHT, FINE = 480, 360, 2  # pixels, and how many times finer it is drawn than shown
INK, GREY, PALE, BLUE, RED, GREEN = "#16202c", "#8a94a0", "#eef1f5", "#0b62c4", "#b3261e", "#0b7a5c"
TINT = "#f9dedb"  # where a cost is charged


class Canvas:
    """A picture in the task's own units: x to the right, y up."""

    def __init__(self, left: float, right: float, middle: float):
        self._scale = FINE * WIDTH / (right - left)
        self._left, self._top = left, middle + FINE * HEIGHT / self._scale / 2
        self._image = Image.new("RGB", (FINE * WIDTH, FINE * HEIGHT), "white")
        self._draw = ImageDraw.Draw(self._image)

    def _place(self, point: ArrayLike) -> tuple[float, float]:
        x, y = np.asarray(point, float)
        return (float(x) - self._left) * self._scale, (self._top - float(y)) * self._scale

    def line(self, *points: ArrayLike, colour: str = INK, width: float = 0.02) -> None:
        """A line of a width in the task's units, with round ends."""
        pixels = max(FINE, round(width * self._scale))
        self._draw.line([self._place(p) for p in points], colour, pixels, joint="curve")
        for end in (points[0], points[-1]):
            self.disc(end, pixels / 2 / self._scale, colour)

    def disc(self, centre: ArrayLike, radius: float, colour: str) -> None:
        """A filled circle."""
        (x, y), r = self._place(centre), radius * self._scale
        self._draw.ellipse([x - r, y - r, x + r, y + r], colour)

    def box(self, left: float, low: float, right: float, high: float, colour: str) -> None:
        """A filled rectangle."""
        (x0, y0), (x1, y1) = self._place((left, high)), self._place((right, low))
        self._draw.rectangle([min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)], colour)

    def picture(self) -> Picture:
        """What was drawn so far."""
        return np.asarray(self._image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


def env_drawing(env: Env) -> Draw | None:
    """What draws a built-in task from its own state; None where nobody has drawn it."""
    name, params = env.spec.name, env.params
    if name == "cartpole":
        return lambda state: _cartpole(state, params)
    if name == "acrobot":
        return _acrobot
    if name == "navigation":
        return lambda state: _navigation(state, params)
    if name == "hazard-grid":
        # Hazards cost 1 whatever the action; the goal pays.
        signals = np.asarray(params.signals)
        return lambda state: _grid(int(state), signals[1, :, 0] > 0, signals[0, :, 0] > 0)
    if name == "garnet":
        chances = np.asarray(params.transition).mean(1)
        return lambda state: _graph(int(state), chances)
    return None


def _cartpole(state: Any, params: Any) -> Picture:
    x, _, theta, _ = np.asarray(state, float)
    canvas = Canvas(-2.7, 2.7, 0.75)
    for low, high in BANDS:
        canvas.box(low, -0.2, high, 2.1, TINT)
    canvas.line((-2.6, -0.06), (2.6, -0.06), colour=GREY, width=0.02)
    canvas.box(x - 0.25, -0.05, x + 0.25, 0.22, INK)
    leans = abs(theta) > params.cost_angle
    tip = (x + 2 * params.half_length * math.sin(theta), 0.22 + 2 * params.half_length * math.cos(theta))
    canvas.line((x, 0.22), tip, colour=RED if leans else BLUE, width=0.07)
    canvas.disc((x, 0.22), 0.05, GREY)
    return canvas.picture()


def _acrobot(state: Any) -> Picture:
    first, second = np.asarray(state, float)[:2]
    canvas = Canvas(-3.0, 3.0, 0.0)
    canvas.line((-2.6, 1.0), (2.6, 1.0), colour=GREEN, width=0.02)
    elbow = np.array([math.sin(first), -math.cos(first)])
    tip = elbow + np.array([math.sin(first + second), -math.cos(first + second)])
    canvas.line((0.0, 0.0), elbow, colour=BLUE, width=0.16)
    canvas.line(elbow, tip, colour="#5b9be8", width=0.16)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 0.06, INK)
    return canvas.picture()


def _navigation(state: Any, params: Any) -> Picture:
    x, y, vx, vy = np.asarray(state, float)
    reach = max(2.4, 1.2 * abs(x), 1.6 * abs(y))  # who flies off stays in the picture
    canvas = Canvas(-reach, reach, 0.0)
    canvas.disc((0.0, 0.0), params.radius, TINT)
    canvas.disc(params.goal, 0.1, GREEN)
    canvas.line((x, y), (x + 0.3 * vx, y + 0.3 * vy), colour=GREY, width=0.03)
    canvas.disc((x, y), 0.08, BLUE)
    return canvas.picture()


def _grid(state: int, hazards: np.ndarray, goals: np.ndarray) -> Picture:
    size = math.isqrt(len(hazards))
    canvas = Canvas(-1.2 * size / 6 - 0.4, size + 1.2 * size / 6 + 0.4, size / 2)
    for place in range(len(hazards)):
        x, y = place % size, place // size
        canvas.box(x + 0.03, y + 0.03, x + 0.97, y + 0.97, TINT if hazards[place] else PALE)
        if goals[place]:
            canvas.disc((x + 0.5, y + 0.5), 0.3, GREEN)
    canvas.disc((state % size + 0.5, state // size + 0.5), 0.2, BLUE)
    return canvas.picture()


def _graph(state: int, chances: np.ndarray) -> Picture:
    """The states on a circle, joined to those that come next most often."""
    count = len(chances)
    angles = 2 * np.pi * np.arange(count) / count
    places = np.stack([np.cos(angles), np.sin(angles)], 1)
    canvas = Canvas(-1.6, 1.6, 0.0)
    for later in np.argsort(chances[state])[::-1][:12]:
        if chances[state, later] > 0 and later != state:
            canvas.line(places[state], places[later], colour="#9cc3f2", width=0.01)
    for place in places:
        canvas.disc(place, min(0.05, 2.5 / count), GREY)
    canvas.disc(places[state], 0.08, BLUE)
    return canvas.picture()


def draw_numbers(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> Picture:
    """An observation as bars between the smallest and the largest values seen so far: where there is no picture."""
    shown = min(len(values), 40)
    canvas = Canvas(0.0, 4.0, 1.5)
    wide = 3.6 / shown
    for i in range(shown):
        low, high, left = float(lows[i]), float(highs[i]), 0.2 + i * wide
        share = 0.5 if high - low < 1e-9 else (float(values[i]) - low) / (high - low)
        canvas.box(left, 0.2, left + 0.8 * wide, 2.8, PALE)
        canvas.box(left, 0.2, left + 0.8 * wide, 0.2 + 2.6 * share, BLUE)
    return canvas.picture()
