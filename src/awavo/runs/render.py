"""Render one episode of a run or of a task: its data, a picture, and a video with the costs counting up."""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from awavo.config import TrainConfig
from awavo.errors import AwavoError, InputError
from awavo.files import new_folder, write_bytes
from awavo.registry import HOST_TASKS, make_host_task, make_task
from awavo.results.store import write_json
from awavo.runs.episode import Episode, play_env, play_host
from awavo.runs.problem import Problem
from awavo.runs.progress import doing
from awavo.tasks.host_core import HostEnv
from awavo.types import Discrete, EnvSpec, Fields, FieldsView

__all__ = ["PlayedRun", "Rendering", "check_request", "render_run", "render_task"]

POLICIES = ("random", "track", "awavo")
VIDEOS = ("gif", "mp4", "none")


class Rendering(NamedTuple):
    """The episode's record, the files that were written, and remarks on the pictures. A notebook shows the video."""

    record: Fields
    written: list[Path]
    notes: list[str]

    def _repr_html_(self) -> str:
        shown = self.written[-1]
        data = base64.b64encode(shown.read_bytes()).decode()
        if shown.suffix == ".mp4":
            return f'<video controls loop muted src="data:video/mp4;base64,{data}"></video>'
        return f'<img alt="one episode" src="data:image/{shown.suffix[1:]};base64,{data}">'


@runtime_checkable
class PlayedRun(Protocol):
    """What is asked of a run to play an episode of it."""

    path: Path
    config: TrainConfig
    problem: Problem

    @property
    def states(self) -> list[Any]:
        """The policy of every seed."""
        ...


def check_request(video: str, steps: int | None) -> None:
    """Refuse a kind of video or a number of steps that cannot be, before anything is played."""
    if video not in VIDEOS:
        raise InputError(f"--video {video} is not one of {', '.join(VIDEOS)}.")
    if steps is not None and steps < 1:
        raise InputError(f"--steps {steps} must be >= 1.")
    if video == "mp4":
        from awavo.results.video import find_ffmpeg

        find_ffmpeg()


def render_run(
    run: PlayedRun, out: Path | None = None, *, seed: int = 0, steps: int | None = None, video: str = "gif"
) -> Rendering:
    """Play one greedy episode of the first policy on the run's own task, and write it.

    Args:
        run: A run from `load` or `train`.
        out: Folder to write into (default: the run's own, where the report finds it).
        seed: Seed of the episode.
        steps: Steps to play (default: to the end of the episode).
        video: "gif", "mp4" (needs ffmpeg or imageio-ffmpeg) or "none".

    Returns:
        The record of the episode, the files written (flight.json for tasks in space, episode.json for others;
        picture.png; the video), and a remark where the task could not be drawn.
    """
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
        episode = play_env(problem.env, act_alone, memory, seed, steps)
    else:
        # The run's own host has its limits and its task options.
        with _no_screen(), _drawing_host(problem.make_host) as host:
            episode = play_host(host, act, memory, seed, steps)
    return _write(episode, run.path if out is None else Path(out), video, f"{run.config.task}, {run.config.algo}")


@contextmanager
def _no_screen() -> Iterator[None]:
    """Have pygame draw into memory and not look for a screen, about which it complains where there is none."""
    given = os.environ.get("SDL_VIDEODRIVER")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        yield
    finally:
        if given is None:
            del os.environ["SDL_VIDEODRIVER"]


def _drawing_host(make_host: Any) -> HostEnv:
    """One environment that draws itself; one without, where it does not know how."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's, about an environment that does not draw: we say so ourselves
            return make_host(1, render_mode="rgb_array")
    except (AwavoError, TypeError):  # no such option: what else may be wrong, the second call says
        return make_host(1)


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
    """Play one episode of a built-in task without a run, with random actions or a flight controller, and write it.

    Args:
        name: Name of the task (`awavo list`).
        out: Folder to write into.
        policy: "random", or for the quadrotor "track" or "awavo".
        options: Options of the task.
        seed: Seed of the episode.
        steps: Steps to play (default: to the end of the episode).
        video: "gif", "mp4" or "none".
    """
    check_request(video, steps)
    if policy not in POLICIES:
        raise InputError(f"--policy {policy} is not one of {', '.join(POLICIES)}.")
    if policy != "random" and name != "quadrotor":
        raise InputError(f"--policy {policy} flies the quadrotor only: use --policy random, or a RUN, with {name}.")
    if name in HOST_TASKS:
        rng = np.random.default_rng(seed)
        with make_host_task(name, num_envs=1, **(options or {})) as host:
            shape = (1, host.spec.action_space.dim)
            episode = play_host(
                host, lambda *_: (0.6 * rng.standard_normal(shape).astype(np.float32), ()), (), seed, steps
            )
    else:
        episode = _play_functional(name, policy, options or {}, seed, steps)
    return _write(episode, out, video, f"{name}, {policy if policy != 'random' else 'random actions'}")


def _play_functional(name: str, policy: str, options: FieldsView, seed: int, steps: int | None) -> Episode:
    env = make_task(name, **options)
    if policy == "random":
        return play_env(env, lambda key, *_: (_draw_action(env.spec, key), ()), (), seed, steps)
    from awavo.control.flight_policy import flight_policy
    from awavo.tasks.quadrotor.references import make_reference

    # The controller follows the reference that the task's options choose.
    reference = make_reference(
        options.get("reference", "lissajous"), options.get("waypoints"), options.get("speed", 1.5)
    )
    decide, memory = flight_policy(env, policy, reference=reference)
    return play_env(env, decide, memory, seed, steps)


def _draw_action(spec: EnvSpec, key: jax.Array) -> jax.Array:
    space = spec.action_space
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.num)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (low + high) / 2 + 0.3 * (high - low) * jax.random.normal(key, low.shape)


def _write(episode: Episode, out: Path, video: str, title: str) -> Rendering:
    """Write the record, picture.png and the video into `out`."""
    from awavo.results.pictures import film_path, save_picture
    from awavo.results.video import Totals, compose, encode_png, save_video

    record, shots = episode.record, episode.shots
    in_space = "path" in record
    record["video"] = None if video == "none" else f"video.{video}"
    record_file, picture = new_folder(out) / ("flight.json" if in_space else "episode.json"), out / "picture.png"
    names, limits = list(record["limits"]), list(record["limits"].values())
    totals = Totals.of(record["step_rewards"], record["step_costs"], names, limits)
    if in_space:
        save_picture(record, picture)
    else:
        # The picture before the last step that was filmed, with the totals of the whole episode.
        last = compose(shots[-1], totals, title, record["step_s"], at=len(record["step_rewards"]))
        write_bytes(picture, encode_png(last))
    written = [record_file, picture]
    if video != "none":
        shots = film_path(record) if in_space else shots
        with doing(f"drawing the video ({len(shots)} pictures)"):
            written.append(save_video(shots, totals, out / f"video.{video}", title=title, step_s=record["step_s"]))
    write_json(record_file, record)
    return Rendering(record, written, episode.notes)
