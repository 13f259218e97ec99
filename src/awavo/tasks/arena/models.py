"""MuJoCo models of the agents and of what they may touch, written from Safety-Gymnasium's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from awavo.tasks.mujoco_host import load_mujoco

__all__ = ["AGENTS", "Agent", "Scene", "build_model", "new_spec"]

RED, BLUE, GREY = (0.74, 0.04, 0.18, 1.0), (0.0, 0.15, 0.4, 1.0), (0.85, 0.87, 0.9, 1.0)
EVERY_TOUCH = 6  # condim: sliding, turning and rolling friction, for all things and the floor
GREMLIN_PULL = (0.02, 1.5)  # solref of the weld that draws a gremlin after its target
LIGHT = 0.001  # density of vases, gremlins


class Agent(NamedTuple):
    """What is particular to an agent."""

    timestep: float
    height: float  # of the body's frame at the start
    reach: float  # no part is further than this from the body's frame, seen from above
    speed: float  # an upper bound, m/s


AGENTS = {"point": Agent(0.002, 0.1, 0.16, 1.6), "car": Agent(0.004, 0.1, 0.23, 1.2)}


class Scene(NamedTuple):
    """What a model holds besides the agent and the floor.

    The `free` boxes have joints of their own, `solids` stand where MuJoCo's mocap arrays say. With `pulled`, every free
    box is drawn after a target, whose mocap entries come after those of the solids.
    """

    free: int = 0
    free_half: float = 0.1
    free_density: float = LIGHT
    posts: bool = False  # at the corners of a free box
    pulled: bool = False
    solids: int = 0
    solid: str = ""  # "buttons" or "pillars"


def new_spec(agent: str) -> Any:
    """The floor, with an agent on it."""
    mujoco = load_mujoco("a navigation task")
    spec = mujoco.MjSpec()
    spec.option.timestep = AGENTS[agent].timestep
    # The collisions of MuJoCo 2, which Safety-Gymnasium has: cylinders and boxes meet otherwise since.
    spec.option.disableflags = int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=(3.5, 3.5, 0.1), condim=EVERY_TOUCH, rgba=GREY)
    (_point if agent == "point" else _car)(mujoco, spec)
    return spec


def _point(mujoco: Any, spec: Any) -> None:
    """A ball with a nose that slides over the plane: a motor pushes it, a servo turns it.

    Its joints are those of the world's axes. Safety-Gymnasium's are turned by the first heading, which changes nothing:
    both slides have the same damping. Ball and floor touch in one point without force: they are left out.
    """
    kinds, joints, geoms, drives = mujoco.mjtObj, mujoco.mjtJoint, mujoco.mjtGeom, mujoco.mjtTrn
    body = spec.worldbody.add_body(name="agent", pos=(0, 0, 0.1))
    body.add_joint(name="x", type=joints.mjJNT_SLIDE, axis=(1, 0, 0), damping=0.01)
    body.add_joint(name="y", type=joints.mjJNT_SLIDE, axis=(0, 1, 0), damping=0.01)
    body.add_joint(name="turn", type=joints.mjJNT_HINGE, axis=(0, 0, 1), damping=0.005)
    ball, nose = (0.1, 0, 0), (0.05,) * 3
    shared = {"density": 1.0, "condim": EVERY_TOUCH}
    body.add_geom(type=geoms.mjGEOM_SPHERE, size=ball, friction=(1, 0.01, 0.01), rgba=RED, **shared)
    body.add_geom(type=geoms.mjGEOM_BOX, size=nose, pos=(0.1, 0, 0), rgba=BLUE, **shared)
    body.add_site(name="agent")
    spec.add_exclude(bodyname1="world", bodyname2="agent")
    push = _limited(spec.add_actuator(target="agent", trntype=drives.mjTRN_SITE), 0.3, 0.05)
    push.set_to_motor()
    turn = _limited(spec.add_actuator(target="turn", trntype=drives.mjTRN_JOINTINPARENT), 0.3, 0.05)
    turn.set_to_velocity(kv=1.0)
    _feel(mujoco, spec, kinds)


def _car(mujoco: Any, spec: Any) -> None:
    """A box on two driven wheels and a free ball; it drives towards -y."""
    kinds, joints, geoms, drives = mujoco.mjtObj, mujoco.mjtJoint, mujoco.mjtGeom, mujoco.mjtTrn
    shared = {"density": 5.0, "condim": EVERY_TOUCH}
    body = spec.worldbody.add_body(name="agent", pos=(0, 0, 0.1))
    body.add_freejoint()
    parts = {
        (0, 0, 0): (0.1, 0.1, 0.05),
        (0, 0.15, 0): (0.1, 0.01, 0.05),  # back bumper
        (0, 0.125, 0): (0.01, 0.025, 0.03),
        (0, -0.165, 0): (0.05, 0.01, 0.05),  # front bumper
        (0, -0.13, 0.04): (0.05, 0.03, 0.01),
    }
    for where, half in parts.items():
        body.add_geom(type=geoms.mjGEOM_BOX, pos=where, size=half, rgba=RED if where == (0, 0, 0) else BLUE, **shared)
    body.add_site(name="agent")
    for side, name in ((-1, "left"), (1, "right")):
        wheel = body.add_body(name=name, pos=(0.1 * side, 0.1, -0.05))
        wheel.add_joint(name=name, type=joints.mjJNT_HINGE, axis=(1, 0, 0), damping=0.001)
        ends = sorted((0.055 * side, 0.005 * side))
        across = (ends[0], 0, 0, ends[1], 0, 0)
        wheel.add_geom(type=geoms.mjGEOM_CYLINDER, size=(0.05, 0, 0), fromto=across, rgba=RED, **shared)
    ball = body.add_body(name="ball", pos=(0, -0.1, -0.05))
    ball.add_joint(name="ball", type=joints.mjJNT_BALL, damping=0.001)
    ball.add_geom(type=geoms.mjGEOM_SPHERE, size=(0.05, 0, 0), rgba=RED, **shared)
    for name in ("left", "right"):
        motor = _limited(spec.add_actuator(target=name, trntype=drives.mjTRN_JOINTINPARENT), 1.0, 0.02)
        motor.set_to_motor()
    _feel(mujoco, spec, kinds)


def _limited(actuator: Any, gear: float, force: float) -> Any:
    actuator.gear = (gear, 0, 0, 0, 0, 0)
    actuator.ctrllimited, actuator.ctrlrange = True, (-1, 1)
    actuator.forcelimited, actuator.forcerange = True, (-force, force)
    return actuator


def _feel(mujoco: Any, spec: Any, kinds: Any) -> None:
    """The accelerometer, which needs the solver; the other sensors are functions of positions and velocities."""
    spec.add_sensor(type=mujoco.mjtSensor.mjSENS_ACCELEROMETER, objtype=kinds.mjOBJ_SITE, objname="agent")


def build_model(agent: str, scene: Scene) -> Any:
    """Compile agent, free boxes and solids; after the accelerometer one sensor for each thing says if it is touched."""
    mujoco = load_mujoco("a navigation task")
    spec, kinds = new_spec(agent), mujoco.mjtGeom
    world, names = spec.worldbody, []
    for i in range(scene.solids):
        body = world.add_body(name=f"solid{i}", mocap=True)
        pillar = scene.solid == "pillars"
        shape, size = (kinds.mjGEOM_CYLINDER, (0.2, 0.5, 0)) if pillar else (kinds.mjGEOM_SPHERE, (0.1, 0, 0))
        body.add_geom(type=shape, size=size, condim=EVERY_TOUCH)
        names.append(body.name)
    for i in range(scene.free):
        body = world.add_body(name=f"free{i}", pos=(0, 0, scene.free_half))
        body.add_freejoint()
        for where, half in _free_parts(scene):
            body.add_geom(
                type=kinds.mjGEOM_BOX, pos=where, size=half, density=scene.free_density, condim=EVERY_TOUCH
            )  # fmt: skip
        names.append(body.name)
    for i in range(scene.free if scene.pulled else 0):
        world.add_body(name=f"target{i}", mocap=True)
        weld = spec.add_equality(type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY)
        weld.name1, weld.name2 = f"target{i}", f"free{i}"
        weld.solref = GREMLIN_PULL
        weld.data[:11] = (0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1)  # no offset, no turn
    for name in names:
        sensor = spec.add_sensor(
            type=mujoco.mjtSensor.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_XBODY, objname="agent",
            reftype=mujoco.mjtObj.mjOBJ_BODY, refname=name,
        )  # fmt: skip
        sensor.intprm[:3] = (1, 0, 1)  # whether there is any
    return spec.compile()


def _free_parts(scene: Scene) -> Sequence[tuple[tuple[float, ...], tuple[float, ...]]]:
    half = scene.free_half
    parts = [((0.0, 0.0, 0.0), (half,) * 3)]
    if scene.posts:
        parts += [((x * half, y * half, 0.0), (half / 2, half / 2, half)) for y in (1, -1) for x in (1, -1)]
    return parts
