"""One episode of a run or of a task, as data, picture and video."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.errors import InputError
from awavo.files import new_folder
from awavo.registry import HOST_TASKS, make_host_task, make_task
from awavo.results.pictures import save_picture, save_video
from awavo.results.store import write_json
from awavo.runs.api import Run
from awavo.runs.episode import play_env, play_host

__all__ = ["Rendering", "check_request", "render_run", "render_task"]

POLICIES = ("random", "track", "awavo")
PICTURED = ("drone", "quadrotor", "walker")
VIDEOS = ("gif", "mp4", "none")


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
