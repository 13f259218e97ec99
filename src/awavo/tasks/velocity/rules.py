r"""Observation, reward and cost of a velocity task, from what MuJoCo shows at the end of a step.

.. code-block:: text

    v = (place after - place before) / dt
    r = forward v_x + alive - control |a|^2 - contact cost (v5)
    g = 1 if speed > threshold, else 0;   speed = v_x, or |v| for Ant and Humanoid

Written in Gymnasium's order of operations and in its precisions: rewards are equal to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from awavo.tasks.velocity.bodies import Body, Contact

__all__ = ["Readings", "Score", "observe", "score"]

FREE_JOINT = 6  # rows of generalised forces that no motor moves: v5 leaves them out


class Readings(NamedTuple):
    """What a task reads of E simulations, in MuJoCo's precision; `extras` are the further arrays that it observes."""

    qpos: Float[np.ndarray, "E q"]
    qvel: Float[np.ndarray, "E v"]
    place: Float[np.ndarray, "E 2"]
    extras: dict[str, np.ndarray]


class Score(NamedTuple):
    """What a step earned and cost, and whether the body fell."""

    reward: Float[np.ndarray, " E"]
    cost: Float[np.ndarray, " E"]
    fell: Bool[np.ndarray, " E"]


def observe(body: Body, rules: str, now: Readings) -> Float[np.ndarray, "E d"]:
    """Joint positions but the place, velocities, and the extras, of which v5 leaves out constant rows."""
    speed = body.seen_speed
    parts = [now.qpos[:, body.unseen :], np.clip(now.qvel, -speed, speed)]
    for name, values in now.extras.items():
        if name == "cfrc_ext" and body.contact is not None:
            values = np.clip(values, -body.contact.clip, body.contact.clip)
        if rules == "v5":  # neither the world's rows nor the forces on the root
            values = values[:, FREE_JOINT if name == "qfrc_actuator" else 1 :]
        parts.append(values.reshape(len(values), -1))
    return np.concatenate(parts, 1).astype(np.float32)


def score(
    body: Body,
    rules: str,
    before: Float[np.ndarray, "E 2"],
    now: Readings,
    action: Float[np.ndarray, "E a"],
    seconds: float,
) -> Score:
    """Reward and cost of one step of `seconds`."""
    velocity = (now.place - before) / seconds
    x, y = velocity[:, 0], velocity[:, 1]
    stands = np.ones(len(x), bool) if body.healthy is None else body.healthy(now.qpos, now.qvel)
    alive = body.alive if rules == "v4" else stands * body.alive
    paid = body.control * np.square(action.astype(body.action_type)).sum(1)
    if rules == "v5" and body.contact is not None:
        paid = paid + contact_cost(body.contact, now.extras["cfrc_ext"])
    speed = np.sqrt(x**2 + y**2) if body.planar else x
    return Score(body.forward * x + alive - paid, (speed > body.threshold).astype(np.float32), ~stands)


def contact_cost(contact: Contact, forces: Float[np.ndarray, "E b 6"]) -> Float[np.ndarray, " E"]:
    """What touching the ground costs under rules v5."""
    clipped = np.clip(forces, -contact.clip, contact.clip).reshape(len(forces), -1)
    return np.minimum(contact.weight * np.square(clipped).sum(1), contact.most)
