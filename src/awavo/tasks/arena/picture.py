"""Pictures of an arena: everything as it stands, seen from above and behind."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import UInt8

from awavo.tasks.arena.models import new_spec
from awavo.tasks.arena.physics import Bodies
from awavo.tasks.arena.settings import Arena, Things
from awavo.tasks.mujoco_drawing import Painter
from awavo.tasks.mujoco_host import load_mujoco

__all__ = ["Stage"]

COLOURS = {
    "goal": (0.1, 0.75, 0.2, 0.5), "hazards": (0.2, 0.3, 0.95, 0.6), "vases": (0.1, 0.8, 0.8, 1.0),
    "buttons": (1.0, 0.55, 0.1, 1.0), "gremlins": (0.55, 0.1, 0.9, 1.0), "pillars": (0.5, 0.5, 0.9, 1.0),
    "box": (0.95, 0.85, 0.1, 1.0), "circle": (0.1, 0.75, 0.2, 0.25), "walls": (0.95, 0.85, 0.1, 0.5),
}  # fmt: skip
BOXES = ("vases", "gremlins", "box")


class Stage:
    """A model with a body for every thing, which only draws."""

    def __init__(self, agent: str, arena: Arena, things: dict[str, Things]):
        mujoco = load_mujoco("drawing")
        spec, kinds = new_spec(agent), mujoco.mjtGeom
        reach = arena.extent + 0.6
        spec.worldbody.add_camera(pos=(0, -1.6 * reach, 1.9 * reach), xyaxes=(1, 0, 0, 0, 0.76, 0.64))
        spec.worldbody.add_light(pos=(0, 0, 4), dir=(0, 0, -1), type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
        self._names = []
        for thing in things.values():
            for i in range(thing.num):
                body = spec.worldbody.add_body(name=f"{thing.name}{i}", mocap=True)
                shape, size = _shape(kinds, thing, i)
                body.add_geom(type=shape, size=size, rgba=COLOURS[thing.name], contype=0, conaffinity=0)
                self._names.append((thing.name, i))
        self._mujoco, self._model = mujoco, spec.compile()
        self._data = mujoco.MjData(self._model)
        self._painter = Painter(self._model)

    def paint(self, bodies: Bodies, places: dict[str, np.ndarray]) -> UInt8[np.ndarray, "h w 3"]:
        """One arena; `bodies` are those of a single environment."""
        data: Any = self._data
        data.qpos[:] = bodies.qpos
        for row, (name, i) in enumerate(self._names):
            if name in BOXES:
                data.mocap_pos[row], data.mocap_quat[row] = bodies.pose[i, :3], bodies.pose[i, 3:]
            elif name == "walls":
                data.mocap_pos[row, :2] = ((1.125, 0), (-1.125, 0), (0, 1.125), (0, -1.125))[i]
            else:
                data.mocap_pos[row] = *places[name][i], {"pillars": 0.5, "buttons": 0.1}.get(name, 0.01)
        self._mujoco.mj_forward(self._model, data)
        return self._painter.paint(data)

    def close(self) -> None:
        """Free the graphics memory."""
        self._painter.close()


def _shape(kinds: Any, thing: Things, i: int) -> tuple[Any, tuple[float, ...]]:
    if thing.name in BOXES:
        return kinds.mjGEOM_BOX, (thing.size,) * 3
    if thing.name == "walls":
        return kinds.mjGEOM_BOX, (0.02, 3.5, 0.05) if i < 2 else (3.5, 0.02, 0.05)
    if thing.name == "buttons":
        return kinds.mjGEOM_SPHERE, (thing.size, 0, 0)
    return kinds.mjGEOM_CYLINDER, (thing.size, 0.5 if thing.name == "pillars" else 0.01, 0)
