"""The six bodies of the velocity tasks: Gymnasium's models and constants, Safety-Gymnasium's speed limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["BODIES", "RULES", "Body"]

RULES = ("v4", "v5")

Healthy = Callable[[Float[np.ndarray, "E q"], Float[np.ndarray, "E v"]], Bool[np.ndarray, " E"]]


def upright(low: float, high: float, angle: float, rest: float = math.inf) -> Healthy:
    """Torso between two heights and within an angle of the vertical; everything but x and height within `rest`."""

    def healthy(qpos, qvel):
        height = (low < qpos[:, 1]) & (qpos[:, 1] < high)
        others = np.concatenate([qpos[:, 2:], qvel], 1)
        return height & (np.abs(qpos[:, 2]) < angle) & (np.abs(others) < rest).all(1)

    return healthy


def ant_stands(qpos: Float[np.ndarray, "E q"], qvel: Float[np.ndarray, "E v"]) -> Bool[np.ndarray, " E"]:
    """Torso from 0.2 to 1 m, ends included, and nothing infinite."""
    finite = np.isfinite(qpos).all(1) & np.isfinite(qvel).all(1)
    return finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0)


def humanoid_stands(qpos: Float[np.ndarray, "E q"], qvel: Float[np.ndarray, "E v"]) -> Bool[np.ndarray, " E"]:
    """Torso above 1 m and below 2 m."""
    return (qpos[:, 2] > 1.0) & (qpos[:, 2] < 2.0)


class Contact(NamedTuple):
    """The contact cost of rules v5: `weight` times the sum of squared forces, clipped to +- `clip`, at most `most`."""

    weight: float
    clip: float = math.inf
    most: float = math.inf


class Body(NamedTuple):
    """What is particular to one task; an episode ends by itself only where `healthy` is given."""

    model: str  # in Gymnasium's folder of models
    substeps: int
    threshold: float  # of speed, in m/s: above it a step costs 1
    control: float  # weight of the squared action
    noise: float  # of the start
    normal_speeds: bool = False  # start with normal instead of uniform velocities
    forward: float = 1.0  # weight of the x velocity
    alive: float = 0.0  # reward of every step; v5 does not pay it on the step that ends the episode
    healthy: Healthy | None = None
    place: str = "root"  # what moves: joints of the root, frame of the torso, or centre of mass
    planar: bool = False  # the cost looks at the speed in the plane, not at the signed x velocity
    unseen: int = 1  # leading joint positions that are not observed
    seen_speed: float = math.inf  # observed velocities are clipped to this
    extras_v4: tuple[str, ...] = ()  # more of MjData that is observed
    extras_v5: tuple[str, ...] = ()
    contact: Contact | None = None
    model_v5: str = ""  # where v5 has another one
    action_type: type = np.float32  # in which actions are squared: Humanoid reads MuJoCo's copy of them


INERTIA_AND_FORCES = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
BODIES = {
    "halfcheetah": Body(
        "half_cheetah.xml", substeps=5, threshold=3.2096, control=0.1, noise=0.1, normal_speeds=True
    ),
    "hopper": Body(
        "hopper.xml", substeps=4, threshold=0.7402, control=1e-3, noise=0.005, alive=1.0,
        healthy=upright(0.7, math.inf, 0.2, rest=100.0), seen_speed=10.0,
    ),
    "walker2d": Body(
        "walker2d.xml", model_v5="walker2d_v5.xml", substeps=4, threshold=2.3415, control=1e-3, noise=0.005, alive=1.0,
        healthy=upright(0.8, 2.0, 1.0), seen_speed=10.0,
    ),
    "ant": Body(
        "ant.xml", substeps=5, threshold=2.6222, control=0.5, noise=0.1, normal_speeds=True, alive=1.0,
        healthy=ant_stands, place="torso", planar=True, unseen=2, extras_v5=("cfrc_ext",),
        contact=Contact(5e-4, clip=1.0),
    ),
    "swimmer": Body("swimmer.xml", substeps=4, threshold=0.2282, control=1e-4, noise=0.1, unseen=2),
    "humanoid": Body(
        "humanoid.xml", substeps=5, threshold=1.4149, control=0.1, noise=0.01, forward=1.25, alive=5.0,
        healthy=humanoid_stands, place="mass", planar=True, unseen=2,
        extras_v4=INERTIA_AND_FORCES, extras_v5=INERTIA_AND_FORCES, contact=Contact(5e-7, most=10.0),
        action_type=np.float64,
    ),
}  # fmt: skip
