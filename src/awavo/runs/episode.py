"""One episode of a run or of a task: what it did step by step, and pictures of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from awavo.provenance import stamp
from awavo.results.video import Film, Picture, Shot
from awavo.runs.progress import doing
from awavo.tasks.drawings import draw_numbers, env_drawing
from awavo.tasks.goal.drone import DroneParams, drone_pose
from awavo.tasks.goal.rules import GoalParams, Layout
from awavo.tasks.goal.walker import WalkerBackend
from awavo.tasks.host_core import HostEnv
from awavo.tasks.making import missing_module
from awavo.tasks.quadrotor.flight import MARKS, FlightState, mark_time
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import lissajous
from awavo.types import Env, EnvSpec, Fields

__all__ = ["Episode", "Filming", "play_env", "play_host"]

FLIGHTS = ("quadrotor", "quadrotor-detours")
STEP_SECONDS = {
    "drone": 0.08, "walker": 0.05, "walker-mjx": 0.05, "hazard-grid": 0.2, "garnet": 0.2, **dict.fromkeys(FLIGHTS, 0.02)
}  # fmt: skip
SECONDS = 0.05  # of a step of a task that does not say
ROWS = ("position", "target", "force", "reward", "costs")
Decide = Callable[[Array, PyTree, Array, PyTree], tuple[Array, PyTree]]


class Episode(NamedTuple):
    """The record of an episode, its pictures (none where a path in space is drawn afterwards), and remarks."""

    record: Fields
    shots: list[Shot]
    notes: list[str]


class Filming:
    """Pictures of what a task shows of itself, or of its observation where it shows nothing."""

    def __init__(self, draw: Callable[[], Picture | None] | None, name: str, wanted: bool = True):
        self._draw, self._name, self._wanted = draw, name, wanted
        self._film = Film()
        self._seen: tuple[np.ndarray, np.ndarray] | None = None
        self.notes: list[str] = []
        if draw is None and wanted:
            self._explain("nothing draws it")

    @property
    def shots(self) -> list[Shot]:
        """The pictures kept."""
        return self._film.shots

    def look(self, step: int, obs: np.ndarray) -> None:
        """Take the picture before a step, if it is needed."""
        low, high = (obs, obs) if self._seen is None else self._seen
        self._seen = np.minimum(low, obs), np.maximum(high, obs)
        if not self._wanted or not self._film.wants(step):
            return
        picture = self._own()
        if picture is None:
            picture = draw_numbers(obs.tolist(), self._seen[0].tolist(), self._seen[1].tolist())
        self._film.add(step, picture)

    def _own(self) -> Picture | None:
        if self._draw is None:
            return None
        try:
            picture = self._draw()
            reason = "it makes no rgb_array"
        except Exception as error:  # an environment's own code may raise anything
            picture, reason = None, f"{type(error).__name__}: {error}"
            if missing_module(error) == "pygame":  # with which Gymnasium draws what is no MuJoCo
                reason = "pygame is not installed: pip install 'awavo[render]'"
            elif isinstance(error.__cause__ or error, NotImplementedError):
                reason = "its class has no render()"
        if picture is None:
            self._explain(reason)
        return picture

    def _explain(self, reason: str) -> None:
        self._draw = None
        self.notes.append(f"there is no picture of {self._name} ({reason}): its observation is shown as bars instead.")


def play_env(env: Env, decide: Decide, memory: PyTree, seed: int, steps: int | None, film: bool = True) -> Episode:
    """Play one episode; `decide(key, state, obs, memory) -> (action, memory)` sees the environment's inner state."""
    name = env.spec.name
    flies = name in ("drone", *FLIGHTS)
    step, reset = jax.jit(env.step), jax.jit(env.reset)
    key = jax.random.key(seed)
    state, obs = reset(jax.random.fold_in(key, 0), env.params)
    pose, scene = _pose_fn(env), {}
    if name in FLIGHTS:
        scene = _quadrotor_scene(state.inner, pose(state.inner, obs)[1], env.params)
    elif name == "drone":
        scene = _goal_scene(state.inner.goal.layout, env.params, True)
    draw = env_drawing(env)
    filming = Filming(None if draw is None else lambda: draw(state.inner), name, film and not flies)
    rows: dict[str, list[Any]] = {name: [] for name in ROWS}
    ended = "steps"
    for t in _each_step(env.spec, steps):
        decide_key, step_key = jax.random.split(jax.random.fold_in(key, t + 1))
        if flies:
            _add_path(rows, pose(state.inner, obs))
        filming.look(t, np.asarray(obs))
        action, memory = decide(decide_key, state, obs, memory)
        state, out = step(step_key, state, action, env.params)
        rows["reward"].append(float(out.reward))
        rows["costs"].append(np.asarray(out.costs).tolist())
        obs = out.obs
        if bool(out.terminated) or bool(out.truncated):
            ended = "terminated" if bool(out.terminated) else "time limit"
            break
    seconds = STEP_SECONDS.get(name, float(getattr(env.params, "time_step", SECONDS)))
    return Episode(_finish(name, env.spec, seed, ended, rows, scene, seconds), filming.shots, filming.notes)


def play_host(
    host: HostEnv,
    decide: Callable[[Array, np.ndarray, PyTree], tuple[Array | np.ndarray, PyTree]],
    memory: PyTree,
    seed: int,
    steps: int | None,
    film: bool = True,
) -> Episode:
    """Play one episode of a single environment on the host; `decide(key, obs [1, d], memory) -> (action, memory)`."""
    backend, spec = host._backend, host.spec
    walker = backend if isinstance(backend, WalkerBackend) else None
    obs = host.reset(seed)
    scene = {} if walker is None else _goal_scene(walker.layout(0), walker.params, False)
    filming = Filming(host.picture, spec.name, film and walker is None)
    rows: dict[str, list[Any]] = {name: [] for name in ROWS}
    ended = "steps"
    for t in _each_step(spec, steps):
        if walker is not None:
            _add_path(rows, (walker.place(0), walker.layout(0).goal, np.zeros(3)))
        filming.look(t, obs[0])
        action, memory = decide(jax.random.fold_in(jax.random.key(seed), t), obs, memory)
        out = host.step(np.asarray(action))
        rows["reward"].append(float(out.reward[0]))
        rows["costs"].append(out.costs[0].tolist())
        obs = np.asarray(out.obs)
        if out.terminated[0] or out.truncated[0]:
            ended = "terminated" if out.terminated[0] else "time limit"
            break
    seconds = STEP_SECONDS.get(spec.name, host.step_seconds or SECONDS)
    return Episode(_finish(spec.name, spec, seed, ended, rows, scene, seconds), filming.shots, filming.notes)


def _each_step(spec: EnvSpec, steps: int | None) -> Iterator[int]:
    """Numbers of the steps, shown while they are played."""
    total = min(steps or spec.horizon, spec.horizon)
    with doing("playing the episode", total, "steps (at most)") as work:
        yield from work.each(range(total))


def _add_path(rows: dict[str, list[Any]], pose: tuple[Any, Any, Any]) -> None:
    for field, value in zip(("position", "target", "force"), pose, strict=True):
        rows[field].append(np.round(np.asarray(value), 4).tolist())


def _pose_fn(env: Env) -> Callable[[PyTree, Array], tuple[Array, Array, Array]]:
    """Position, target (reference or goal) and external force; a flight's observation starts with its error."""
    if env.spec.name in FLIGHTS:
        return lambda s, obs: (s.body.position, s.body.position + obs[:3], s.true_force)
    zero = jnp.zeros(3)
    return lambda s, _: (drone_pose(s)[0], s.goal.layout.goal, zero)


def _quadrotor_scene(state: FlightState, target: Array, params: QuadrotorParams) -> Fields:
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


def _goal_scene(layout: Layout, params: GoalParams | DroneParams, three_d: bool) -> Fields:
    """Hazards: spheres in space, flat discs in the plane."""
    radius = float(params.hazard_radius)
    hazards = np.asarray(layout.hazards).tolist()
    if three_d:
        return {"spheres": [{"centre": h, "radius": radius} for h in hazards]}
    return {"cylinders": [{"x": h[0], "y": h[1], "radius": radius, "height": 0.02} for h in hazards]}


def _finish(
    name: str, spec: EnvSpec, seed: int, ended: str, rows: dict[str, list[Any]], scene: Fields, seconds: float
) -> Fields:
    costs = np.array(rows["costs"])
    path = {k: rows[k] for k in ("position", "target", "force")}
    return {
        "task": name,
        "seed": seed,
        "ended": ended,
        "step_s": seconds,
        "return": float(np.sum(rows["reward"])),
        "costs": dict(zip(spec.cost_names, costs.sum(0).tolist(), strict=True)),
        "limits": dict(zip(spec.cost_names, spec.cost_limits, strict=True)),
        **({"path": path} if path["position"] else {}),
        "step_rewards": rows["reward"],
        "step_costs": rows["costs"],
        **scene,
        **stamp("command", "commit"),
    }
