"""One episode of a run or of a task: where the robot was, what it did, what stood around it; as picture and video."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from awavo.errors import InputError
from awavo.files import new_folder
from awavo.provenance import stamp
from awavo.registry import HOST_TASKS, make_host_task, make_task
from awavo.results.pictures import save_picture, save_video
from awavo.results.store import write_json
from awavo.runs.api import Run
from awavo.tasks.goal.drone import DroneParams, drone_pose
from awavo.tasks.goal.rules import GoalParams, Layout
from awavo.tasks.goal.walker import WalkerBackend
from awavo.tasks.host_core import HostEnv
from awavo.tasks.quadrotor.flight import MARKS, FlightState, mark_time
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous
from awavo.types import Env, EnvSpec

__all__ = ["Rendering", "check_request", "render_run", "render_task"]

POLICIES = ("random", "track", "awavo")
PICTURED = ("drone", "quadrotor", "walker")
VIDEOS = ("gif", "mp4", "none")
STEP_SECONDS = {"drone": 0.08, "walker": 0.05, "walker-mjx": 0.05, "quadrotor": 0.02}
ROWS = ("position", "target", "force", "reward", "costs")
Decide = Callable[[Array, PyTree, Array, PyTree], tuple[Array, PyTree]]
NO_PICTURE = "task '{}' has no picture: render drone, quadrotor or walker."


class Rendering(NamedTuple):
    """The episode as it stands in flight.json, and the files that were written."""

    record: dict[str, Any]
    written: list[Path]


def check_request(video: str, steps: int | None) -> None:
    """Refuse a kind of video or a number of steps that cannot be, before anything is played."""
    if video not in VIDEOS:
        raise InputError(f"--video {video} is not one of {', '.join(VIDEOS)}.")
    if steps is not None and steps < 1:
        raise InputError(f"--steps {steps} must be >= 1.")


def render_run(
    run: Run, out: Path | None = None, *, seed: int = 0, steps: int | None = None, video: str = "gif"
) -> Rendering:
    """Play one greedy episode of the first policy on the run's own task, and write it (default: into the run)."""
    check_request(video, steps)
    problem, state = run.problem, run.states[0]
    decide = jax.jit(lambda key, obs, memory: problem.algorithm.decide(key, state, obs, memory, True))

    def act(key, obs, memory):
        action, _, memory = decide(key, obs, memory)
        return action, memory

    def act_alone(key, _, obs, memory):
        action, memory = act(key, obs[None], memory)
        return action[0], memory

    memory = problem.algorithm.begin(1)
    if problem.env is not None:
        record = play_env(problem.env, act_alone, memory, seed, steps)
    elif run.config.task in HOST_TASKS and problem.make_host is not None:
        # The run's own host has its limits and its task options.
        with problem.make_host(1) as host:
            record = play_host(host, act, memory, seed, steps)
    else:
        raise InputError(f"task '{run.config.task}' has no picture: render {', '.join(PICTURED)}.")
    return _write(record, run.path if out is None else out, video)


def render_task(
    name: str,
    out: Path,
    *,
    policy: str = "random",
    options: Mapping[str, object] | None = None,
    seed: int = 0,
    steps: int | None = None,
    video: str = "gif",
) -> Rendering:
    """Play one episode of a task without a run, with random actions or a flight controller, and write it."""
    check_request(video, steps)
    if name not in PICTURED:
        raise InputError(f"task '{name}' has no picture: render {', '.join(PICTURED)}.")
    if policy not in POLICIES:
        raise InputError(f"--policy {policy} is not one of {', '.join(POLICIES)}.")
    if policy != "random" and name != "quadrotor":
        raise InputError(f"--policy {policy} flies the quadrotor only: use --policy random, or a RUN, with {name}.")
    if name in HOST_TASKS:
        rng = np.random.default_rng(seed)
        with make_host_task(name, num_envs=1, **(options or {})) as host:
            shape = (1, host.spec.action_space.dim)
            record = play_host(
                host, lambda *_: (0.6 * rng.standard_normal(shape).astype(np.float32), ()), (), seed, steps
            )
    else:
        record = _play_functional(name, policy, options or {}, seed, steps)
    return _write(record, out, video)


def _play_functional(
    name: str, policy: str, options: Mapping[str, Any], seed: int, steps: int | None
) -> dict[str, Any]:
    env = make_task(name, **options)
    if policy == "random":
        low, high = jnp.asarray(env.spec.action_space.low), jnp.asarray(env.spec.action_space.high)

        def draw(key, *_):
            return (low + high) / 2 + 0.3 * (high - low) * jax.random.normal(key, low.shape), ()

        return play_env(env, draw, (), seed, steps)
    from awavo.control.flight_policy import flight_policy
    from awavo.tasks.quadrotor.references import make_reference

    # The controller follows the reference that the task's options choose.
    reference = make_reference(
        options.get("reference", "lissajous"), options.get("waypoints"), options.get("speed", 1.5)
    )
    decide, memory = flight_policy(env, policy, reference=reference)
    return play_env(env, decide, memory, seed, steps)


def _write(record: dict[str, Any], out: Path, video: str) -> Rendering:
    """Write flight.json, picture.png and the video into `out`."""
    write_json(new_folder(out) / "flight.json", record)
    written = [out / "flight.json", save_picture(record, out / "picture.png")]
    return Rendering(record, written if video == "none" else [*written, save_video(record, out / f"video.{video}")])


def _quadrotor_scene(state: FlightState, target: Array, params: QuadrotorParams) -> dict[str, Any]:
    """Cylinders, and the marks where the reference is the figure of eight."""
    forest = state.forest
    # Cylinders that a forest does not need stand far away.
    shown = bool(params.obstacles_on) & (np.abs(np.asarray(forest.x)) < 100)
    columns = [np.asarray(c)[shown] for c in (forest.x, forest.y, forest.radius, forest.height)]
    eight = np.allclose(lissajous(state.time, params).position, target, atol=1e-3)
    marks = [np.asarray(lissajous(mark_time(i, params), params).position) for i in range(MARKS * eight)]
    names = ("x", "y", "radius", "height")
    return {
        "cylinders": [dict(zip(names, map(float, row), strict=True)) for row in zip(*columns, strict=True)],
        "marks": [{"name": f"RS {i:02d}", "position": m.tolist()} for i, m in enumerate(marks)],
    }


def _goal_scene(layout: Layout, params: GoalParams | DroneParams, three_d: bool) -> dict[str, Any]:
    """Hazards: spheres in space, flat discs in the plane."""
    radius = float(params.hazard_radius)
    hazards = np.asarray(layout.hazards).tolist()
    if three_d:
        return {"spheres": [{"centre": h, "radius": radius} for h in hazards]}
    return {"cylinders": [{"x": h[0], "y": h[1], "radius": radius, "height": 0.02} for h in hazards]}


def play_env(env: Env, decide: Decide, memory: PyTree, seed: int, steps: int | None) -> dict[str, Any]:
    """Play one episode; `decide(key, state, obs, memory) -> (action, memory)` sees the environment's inner state."""
    name = env.spec.name
    if name not in ("drone", "quadrotor"):
        raise InputError(NO_PICTURE.format(name))
    step, reset = jax.jit(env.step), jax.jit(env.reset)
    key = jax.random.key(seed)
    state, obs = reset(jax.random.fold_in(key, 0), env.params)
    pose = _pose_fn(env)
    if name == "quadrotor":
        scene = _quadrotor_scene(state.inner, pose(state.inner, obs)[1], env.params)
    else:
        scene = _goal_scene(state.inner.goal.layout, env.params, True)
    rows: dict[str, list[Any]] = {name: [] for name in ROWS}
    ended = "steps"
    for t in range(min(steps or env.spec.horizon, env.spec.horizon)):
        decide_key, step_key = jax.random.split(jax.random.fold_in(key, t + 1))
        for field, value in zip(("position", "target", "force"), pose(state.inner, obs), strict=True):
            rows[field].append(np.round(np.asarray(value), 4).tolist())
        action, memory = decide(decide_key, state, obs, memory)
        state, out = step(step_key, state, action, env.params)
        rows["reward"].append(float(out.reward))
        rows["costs"].append(np.asarray(out.costs).tolist())
        obs = out.obs
        if bool(out.terminated) or bool(out.truncated):
            ended = "terminated" if bool(out.terminated) else "time limit"
            break
    return _finish(name, env.spec, seed, ended, rows, scene)


def _pose_fn(env: Env) -> Callable[[PyTree, Array], tuple[Array, Array, Array]]:
    """Position, target (reference or goal) and external force; a flight's observation starts with its error."""
    if env.spec.name == "quadrotor":
        return lambda s, obs: (s.body.position, s.body.position + obs[:3], s.true_force)
    zero = jnp.zeros(3)
    return lambda s, _: (drone_pose(s)[0], s.goal.layout.goal, zero)


def play_host(
    host: HostEnv,
    decide: Callable[[Array, np.ndarray, PyTree], tuple[Array | np.ndarray, PyTree]],
    memory: PyTree,
    seed: int,
    steps: int | None,
) -> dict[str, Any]:
    """Play one episode of a single walker on the host; `decide(key, obs [1, d], memory) -> (action, memory)`."""
    backend, spec = host._backend, host.spec
    if not isinstance(backend, WalkerBackend):
        raise InputError(NO_PICTURE.format(spec.name))
    obs = host.reset(seed)
    scene = _goal_scene(backend.layout(0), backend.params, False)
    rows: dict[str, list[Any]] = {name: [] for name in ROWS}
    ended = "steps"
    for t in range(min(steps or spec.horizon, spec.horizon)):
        rows["position"].append(np.round(backend.place(0), 4).tolist())
        rows["target"].append(np.asarray(backend.layout(0).goal).tolist())
        rows["force"].append([0.0, 0.0, 0.0])
        action, memory = decide(jax.random.fold_in(jax.random.key(seed), t), obs, memory)
        out = host.step(np.asarray(action))
        rows["reward"].append(float(out.reward[0]))
        rows["costs"].append(out.costs[0].tolist())
        obs = np.asarray(out.obs)
        if out.terminated[0] or out.truncated[0]:
            ended = "terminated" if out.terminated[0] else "time limit"
            break
    return _finish("walker", spec, seed, ended, rows, scene)


def _finish(
    name: str, spec: EnvSpec, seed: int, ended: str, rows: dict[str, list[Any]], scene: dict[str, Any]
) -> dict[str, Any]:
    costs = np.array(rows["costs"])
    return {
        "task": name,
        "seed": seed,
        "ended": ended,
        "step_s": STEP_SECONDS[name],
        "return": float(np.sum(rows["reward"])),
        "costs": dict(zip(spec.cost_names, costs.sum(0).tolist(), strict=True)),
        "limits": dict(zip(spec.cost_names, spec.cost_limits, strict=True)),
        "path": {k: rows[k] for k in ("position", "target", "force")},
        "step_costs": rows["costs"],
        **scene,
        **stamp("command", "commit"),
    }
