"""The walker as a functional environment through MJX, for GPUs: same rules, same observations as on C MuJoCo.

On a CPU MJX is a hundred times slower than C MuJoCo: use the task `walker` there. `iterations` and `ls_iterations`
bound MJX's solver: contacts are solved less exactly than with MuJoCo's own 100 and 50, and several times faster.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.errors import MissingExtraError
from awavo.tasks.goal.gait import gait_torques
from awavo.tasks.goal.rules import GoalParams, check_layout
from awavo.tasks.goal.walker import SUBSTEPS, WalkerTask, advance_task, start_task, walker_spec
from awavo.tasks.goal.walker_model import load_walker
from awavo.types import Env

__all__ = ["WalkerState", "load_mjx", "walker_mjx"]


class WalkerState(NamedTuple):
    """The task's state, and joint positions, speeds and the solver's warm start of the walker."""

    task: WalkerTask
    qpos: Float[Array, " 13"]
    qvel: Float[Array, " 13"]
    warm: Float[Array, " 13"]


def load_mjx() -> ModuleType:
    """Import MJX, or say how to get it."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it says there which of its backends are missing
            from mujoco import mjx
    except ImportError as error:
        raise MissingExtraError("walker-mjx needs MJX, which is not installed: pip install 'awavo[mujoco]'.") from error
    return mjx


def walker_mjx(
    *,
    cost_limits: Sequence[float] = (1.0,),
    horizon: int = 1000,
    num_hazards: int = 8,
    iterations: int = 4,
    ls_iterations: int = 4,
    gait_hz: float = 0.0,
    **sizes: float,
) -> Env:
    """Build the task; `sizes` overrides fields of `GoalParams`, `gait_hz` is as in `awavo.tasks.goal.walker.walker`."""
    mjx = load_mjx()
    params = GoalParams(**sizes)
    check_layout(params, num_hazards)
    spec = walker_spec(cost_limits, horizon, gait_hz)
    host_model = load_walker()
    host_model.opt.iterations, host_model.opt.ls_iterations = iterations, ls_iterations
    model = mjx.put_model(host_model)
    blank = mjx.make_data(host_model)
    rest = jax.jit(mjx.forward)(model, blank)

    def reset(key, params):
        task, obs = start_task(key, rest.sensordata, params, num_hazards, gait_hz)
        return WalkerState(task, rest.qpos, rest.qvel, jnp.zeros_like(rest.qacc_warmstart)), obs

    def step(key, state, action, params):
        if gait_hz:
            action = gait_torques(jnp, gait_hz, action, state.qpos[3:], state.task.time)
        data = blank.replace(
            qpos=state.qpos, qvel=state.qvel, qacc_warmstart=state.warm, ctrl=jnp.clip(action, -1.0, 1.0)
        )
        data = jax.lax.fori_loop(0, SUBSTEPS, lambda _, d: mjx.step(model, d), data)
        data = mjx.forward(model, data)
        # MJX raises no warnings: what C MuJoCo would call diverged is seen in the numbers.
        broken = ~jnp.all(jnp.isfinite(data.qpos) & (jnp.abs(data.qvel) < 1e10) & jnp.isfinite(data.qacc))
        task, out = advance_task(
            key, state.task, data.qpos[:3], data.sensordata, broken, rest.sensordata, params, num_hazards, horizon,
            gait_hz,
        )  # fmt: skip
        done = out.terminated | out.truncated
        moved = (data.qpos, data.qvel, data.qacc_warmstart)
        start = (rest.qpos, rest.qvel, jnp.zeros_like(rest.qacc_warmstart))
        return WalkerState(task, *jax.tree.map(lambda a, b: jnp.where(done, a, b), start, moved)), out

    return Env(spec, params, reset, step)
