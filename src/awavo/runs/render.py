"""`awavo render`: one episode of a run or of a task, as data, picture and video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from awavo.cli.commands import read_pairs
from awavo.errors import InputError
from awavo.registry import HOST_TASKS, TASKS, make_host_task, make_task
from awavo.results.pictures import save_picture, save_video
from awavo.results.store import write_json
from awavo.runs.episode import record_functional, record_host

__all__ = ["render_command", "render_episode"]

POLICIES = ("random", "track", "awavo")
PICTURED = ("drone", "quadrotor", "walker")


def _of_run(folder: Path, seed: int, steps: int | None, trust: bool) -> dict[str, Any]:
    from awavo.runs import api

    run = api.load(folder, trust=trust)
    problem, state = run.problem, run.states[0]
    algorithm = problem.algorithm
    if problem.env is not None:
        play = jax.jit(lambda key, obs, memory: algorithm.decide(key, state, obs[None], memory, True))

        def decide(key, _, obs, memory):
            action, _, memory = play(key, obs, memory)
            return action[0], memory

        return record_functional(problem.env, decide, algorithm.begin(1), seed, steps)
    if run.config.task not in HOST_TASKS:
        raise InputError(f"task '{run.config.task}' has no picture: render drone, quadrotor or walker.")
    host = make_host_task(run.config.task, num_envs=1, **run.config.task_options)
    on_host = jax.jit(lambda key, obs, memory: algorithm.decide(key, state, obs, memory, True))

    def decide_host(key, obs, memory):
        action, _, memory = on_host(key, obs, memory)
        return action, memory

    return record_host(host, decide_host, algorithm.begin(1), seed, steps)


def _of_task(name: str, policy: str, options: dict[str, Any], seed: int, steps: int | None) -> dict[str, Any]:
    if name not in PICTURED:
        raise InputError(f"task '{name}' has no picture: render {', '.join(PICTURED)}.")
    if policy not in POLICIES:
        raise InputError(f"--policy {policy} is not one of {', '.join(POLICIES)}.")
    if policy != "random" and name != "quadrotor":
        raise InputError(f"--policy {policy} flies the quadrotor only: use --policy random, or a RUN, with {name}.")
    if name in HOST_TASKS:
        host = make_host_task(name, num_envs=1, **options)
        rng = np.random.default_rng(seed)
        return record_host(
            host, lambda *_: (0.6 * rng.standard_normal((1, 10)).astype(np.float32), ()), (), seed, steps
        )
    env = make_task(name, **options)
    if policy == "random":
        low, high = jnp.asarray(env.spec.action_space.low), jnp.asarray(env.spec.action_space.high)

        def draw(key, *_):
            return (low + high) / 2 + 0.3 * (high - low) * jax.random.normal(key, low.shape), ()

        return record_functional(env, draw, (), seed, steps)
    from awavo.control.flight_policy import flight_policy
    from awavo.tasks.quadrotor.references import make_reference

    reference = make_reference(
        options.get("reference", "lissajous"), options.get("waypoints"), options.get("speed", 1.5)
    )
    decide, memory = flight_policy(env, policy, reference=reference)
    return record_functional(env, decide, memory, seed, steps)


def render_episode(record: dict[str, Any], out: Path, video: str) -> list[Path]:
    """Write flight.json, picture.png and the video into `out`."""
    if video not in ("gif", "mp4", "none"):
        raise InputError(f"--video {video} is not one of gif, mp4, none.")
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "flight.json", record)
    written = [out / "flight.json", save_picture(record, out / "picture.png")]
    return written if video == "none" else [*written, save_video(record, out / f"video.{video}")]


def render_command(args: Any) -> int:
    """Play, write, and say where."""
    if args.video not in ("gif", "mp4", "none"):
        raise InputError(f"--video {args.video} is not one of gif, mp4, none.")
    if args.steps is not None and args.steps < 1:
        raise InputError(f"--steps {args.steps} must be >= 1.")
    known = args.target in TASKS or args.target in HOST_TASKS
    if known:
        options = read_pairs(args.task_option, "--task-option")
        record = _of_task(args.target, args.policy, options, args.seed, args.steps)
    else:
        record = _of_run(Path(args.target), args.seed, args.steps, args.trust)
    out = args.out or (Path("renders") / args.target if known else Path(args.target))
    written = render_episode(record, out, args.video)
    if args.json:
        shown = {k: record[k] for k in ("task", "seed", "ended", "return", "costs")}
        print(json.dumps({**shown, "written": [str(p) for p in written]}))
    else:
        print("\n".join(map(str, written)))
    return 0
