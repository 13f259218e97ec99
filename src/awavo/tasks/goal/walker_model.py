"""The walker of the goal task as an MJCF model, written from its numbers; needs the extra `mujoco`.

A torso held upright at 0.43 m slides along x, turns about z and slides along its own y (in this order, so that turning
swings it about a lever); two legs with hip (x, z, y), knee and ankle carry feet that touch the floor at rest.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from awavo.tasks.mujoco_host import load_mujoco

__all__ = ["JOINTS", "SENSORS", "SIDES", "load_walker", "skip_sensors", "walker_xml"]

# name: axis, range in degrees, damping, armature, stiffness, gear. Left hip_x and hip_z are mirrored.
JOINTS = {
    "hip_x": ((1, 0, 0), (-25, 5), 5, 0.01, 10, 10),
    "hip_z": ((0, 0, 1), (-30, 35), 5, 0.01, 10, 10),
    "hip_y": ((0, 1, 0), (-100, 10), 5, 0.01, 10, 30),
    "knee": ((0, -1, 0), (-100, 0), 20, 1, 0, 30),
    "ankle": ((0, -1, 0), (-45, 20), 20, 1, 0, 40),
}
SIDES = {"right": -1, "left": 1}
MIRRORED = ("hip_x", "hip_z")
PARENTS = {"thigh": "torso", "leg": "thigh", "foot": "leg"}
FRICTION = {"floor": 0.7, "foot": 2.0}
# What the sensors report, in this order: name -> length.
SENSORS = {"accelerometer": 3, "gyro": 3, "velocimeter": 3, "touch": 2, "position": 10, "velocity": 10}


def _joint(side: str, name: str, place: str) -> str:
    axis, limits, damping, armature, stiffness, _ = JOINTS[name]
    sign = -1 if side == "left" and name in MIRRORED else 1
    return (
        f'<joint name="{side}_{name}" type="hinge" pos="{place}" axis="{" ".join(str(sign * a) for a in axis)}" '
        f'range="{limits[0]} {limits[1]}" damping="{damping}" armature="{armature}" stiffness="{stiffness}"/>'
    )


def _leg(side: str, sign: int) -> str:
    hips = "".join(_joint(side, name, "0 0 0") for name in ("hip_x", "hip_z", "hip_y"))
    return f"""
      <body name="{side}_thigh" pos="0 {0.1 * sign} 0">
        {hips}
        <geom name="{side}_thigh" type="capsule" fromto="0 0 0 0 0 -0.2" size="0.03"/>
        <body name="{side}_leg" pos="0 0 -0.3">
          {_joint(side, "knee", "0 0 0.1")}
          <geom name="{side}_leg" type="capsule" fromto="0 0 0.1 0 0 -0.1" size="0.02"/>
          <body name="{side}_foot" pos="0 0 -0.1">
            {_joint(side, "ankle", "0 0 0")}
            <geom name="{side}_foot" type="capsule" fromto="0 0 0 0.05 0 0" size="0.03"/>
            <site name="{side}_touch" type="capsule" fromto="0 0 0 0.05 0 0" size="0.035"/>
          </body>
        </body>
      </body>"""


def _pairs() -> str:
    """List who may touch whom: all but neighbours in a leg, with the larger friction. Spares MuJoCo the search."""
    geoms = [("", "floor"), ("", "torso"), *((side, part) for side in SIDES for part in PARENTS)]
    rows = []
    for (side, part), (other_side, other) in itertools.combinations(geoms, 2):
        if PARENTS.get(other) == part and side in ("", other_side):
            continue
        slide = max(FRICTION.get(part, 0.9), FRICTION.get(other, 0.9))
        names = [f"{s}_{p}" if s else p for s, p in ((side, part), (other_side, other))]
        rows.append(f'<pair geom1="{names[0]}" geom2="{names[1]}" friction="{slide} {slide} 0.1 0.1 0.1"/>')
    return "".join(rows)


def walker_xml() -> str:
    """Write the model: nq = nv = 13, nu = 10, 1.5572 kg, 5 ms steps."""
    names = [f"{side}_{name}" for side in SIDES for name in JOINTS]
    motors = "".join(f'<motor joint="{n}" gear="{JOINTS[n.split("_", 1)[1]][5]}"/>' for n in names)
    positions = "".join(f'<jointpos joint="{n}"/>' for n in names)
    velocities = "".join(f'<jointvel joint="{n}"/>' for n in names)
    return f"""<mujoco model="walker">
  <compiler angle="degree" autolimits="true" inertiafromgeom="true"/>
  <option timestep="0.005" integrator="Euler" solver="Newton" iterations="100" ls_iterations="50" tolerance="1e-8"
          cone="pyramidal" gravity="0 0 -9.81"/>
  <size memory="1M"/>
  <default>
    <geom density="500" contype="0" conaffinity="0"/>
    <pair condim="6"/>
    <motor ctrlrange="-1 1" ctrllimited="true"/>
  </default>
  <worldbody>
    <light pos="0 0 4" dir="0 0 -1"/>
    <geom name="floor" type="plane" size="3.5 3.5 0.1"/>
    <body name="torso" pos="0 0 0.43">
      <joint name="base_x" type="slide" axis="1 0 0" damping="5"/>
      <joint name="base_yaw" type="hinge" axis="0 0 1" damping="1" stiffness="0.1" limited="false"/>
      <joint name="base_y" type="slide" axis="0 1 0" damping="5"/>
      <site name="torso" size="0.01"/>
      <geom name="torso" type="capsule" fromto="0 -0.1 0 0 0.1 0" size="0.03"/>{_leg("right", -1)}{_leg("left", 1)}
    </body>
  </worldbody>
  <contact>{_pairs()}</contact>
  <actuator>{motors}</actuator>
  <sensor>
    <accelerometer site="torso"/><gyro site="torso"/><velocimeter site="torso"/>
    <touch site="right_touch"/><touch site="left_touch"/>
    {positions}{velocities}
  </sensor>
</mujoco>"""


def load_walker() -> Any:
    """Compile the model."""
    return load_mujoco("the walker").MjModel.from_xml_string(walker_xml())


def skip_sensors(model: Any) -> Any:
    """Copy the model, for steps whose sensors nobody reads; constraints are solved at once, not island by island."""
    flags, quick = load_mujoco("the walker").mjtDisableBit, copy.copy(model)
    quick.opt.disableflags |= int(flags.mjDSBL_SENSOR) | int(flags.mjDSBL_ISLAND)
    return quick
