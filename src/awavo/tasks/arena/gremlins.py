r"""Where a gremlin is that nobody touches: a function of the time alone.

Each gremlin is drawn after a target on a circle, :math:`0.35 (\sin t, \cos t)` about its centre. It starts there and
reaches the circle within a third of a second; from then on it turns with the target, at the same lag.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from awavo.tasks.arena.models import Scene, build_model
from awavo.tasks.mujoco_host import load_mujoco

__all__ = ["HEIGHT", "Track", "targets"]

RADIUS = 0.35
HEIGHT = 0.2  # of the target: half an edge above where the gremlin starts
SECONDS = 4.0  # after which the start is forgotten


def targets(time: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n 2"]:
    """Where targets are, from the centres of their circles."""
    return RADIUS * np.stack([np.sin(time), np.cos(time)], -1)


class Track:
    """Places and velocities at the ends of steps that take `seconds`, simulated once."""

    def __init__(self, seconds: float, scene: Scene):
        self._seconds = seconds
        self._places, self._speeds = _simulate(seconds, scene)

    def at(self, steps: Int[np.ndarray, " E"]) -> tuple[Float[np.ndarray, "E 3"], Float[np.ndarray, "E 3"]]:
        """Place from the centre of the circle, and velocity, after so many steps."""
        last = len(self._places) - 1
        row = np.minimum(steps, last)
        angle = (steps - row) * self._seconds  # the target turns clockwise, at 1 rad/s
        c, s = np.cos(angle), np.sin(angle)
        return _turned(self._places[row], c, s), _turned(self._speeds[row], c, s)


def _turned(vectors: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    x, y = vectors[:, 0], vectors[:, 1]
    return np.stack([c * x + s * y, c * y - s * x, vectors[:, 2]], 1)


@lru_cache(8)
def _simulate(seconds: float, scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """A gremlin alone, with the agent out of reach."""
    mujoco = load_mujoco("a navigation task")
    agent = "car" if seconds > 0.03 else "point"
    model = build_model(agent, scene._replace(free=1, solids=0))
    data = mujoco.MjData(model)
    data.qpos[0] = 100.0
    joint = model.body("free0").jntadr[0]
    place, speed = model.jnt_qposadr[joint], model.jnt_dofadr[joint]
    substeps = round(seconds / model.opt.timestep)
    count = round(SECONDS / seconds)
    places, speeds = np.zeros((count + 1, 3)), np.zeros((count + 1, 3))
    places[0] = data.qpos[place : place + 3]
    for i in range(1, count + 1):
        for _ in range(substeps):
            data.mocap_pos[0] = (*targets(np.asarray(data.time)), HEIGHT)
            mujoco.mj_step(model, data)
        places[i], speeds[i] = data.qpos[place : place + 3], data.qvel[speed : speed + 3]
    return places, speeds
