"""A run: a folder, a lock on it, training that goes on where it stopped, evaluation, the trained policy."""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.config import TrainConfig, fingerprint
from awavo.errors import RunFolderError
from awavo.runs.problem import Problem
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.results.recorder import Recorder
from awavo.results.store import FORMAT, read_json, write_json
from awavo.training.checkpoint import latest_checkpoint, restore, seed_arrays, write_checkpoint
from awavo.training.host_loop import HostRunner, host_init_fn
from awavo.training.loop import MAX_CHUNK, ChunkOutput, CompiledRunner, Runner, TrainState, chunk_fn, init_fn

__all__ = ["Progress", "make_runner", "run_training", "state_template"]

CHUNK_SECONDS = 1.0


class Progress(NamedTuple):
    """What training says between chunks. `phase` is "compiling", "training", "finished" or "interrupted"."""

    phase: str
    env_steps: int
    total_steps: int
    seeds: int
    steps_per_second: float
    compile_s: float
    recent: dict[str, float]
    limits: dict[str, float]
    notes: tuple[str, ...] = ()
    resumed_at: int = 0


def seed_axis(config: TrainConfig) -> str:
    """`vmap` on accelerators, `map` on a CPU, unless the configuration says which."""
    if config.seed_axis != "auto":
        return config.seed_axis
    return "map" if jax.default_backend() == "cpu" else "vmap"


def make_runner(config: TrainConfig, problem: Problem) -> Runner:
    """Put the seeds of a configuration on their axis."""
    seeds = range(config.seed, config.seed + config.seeds)
    settings, algorithm = problem.settings, problem.algorithm
    if problem.env is None:
        assert problem.make_host is not None
        return HostRunner(seeds, problem.make_host, algorithm, settings.rollout_length, seed_axis(config))
    init = init_fn(problem.env, algorithm, settings.num_envs)
    chunk = chunk_fn(problem.env, algorithm, settings.rollout_length)
    return CompiledRunner(seeds, init, chunk, seed_axis(config))


def state_template(problem: Problem) -> TrainState:
    """Shapes and types of one seed's state; nothing is computed."""
    if problem.env is None:
        init = host_init_fn(problem.algorithm)
    else:
        init = init_fn(problem.env, problem.algorithm, problem.settings.num_envs)
    return jax.eval_shape(init, jax.ShapeDtypeStruct((), jnp.int32))


def run_training(
    config: TrainConfig, problem: Problem, out: Path | None, checkpoint_seconds: float = 20.0
) -> Iterator[Progress]:
    """Train (or go on training) and yield between chunks; `out=None` keeps everything in memory.

    A stop signal (Ctrl-C, SIGTERM) lets the chunk in flight finish, saves, and ends the iteration with the phase
    "interrupted".
    """
    with _locked(out), _stop_flag() as stopping:
        yield from _train(config, problem, out, checkpoint_seconds, stopping)


def _train(
    config: TrainConfig, problem: Problem, out: Path | None, checkpoint_seconds: float, stopping: Callable[[], bool]
) -> Iterator[Progress]:
    settings, spec = problem.settings, problem.spec
    mark = fingerprint(config)
    per_iteration = settings.num_envs * settings.rollout_length
    total = -(-config.steps // per_iteration)
    seeds = range(config.seed, config.seed + config.seeds)
    recorder = Recorder(spec.cost_names)
    runner = make_runner(config, problem)
    iteration, notes = 0, ()
    if out is not None:
        iteration, notes = _resume(out, config, problem, runner, recorder, mark)
    start_iteration = iteration

    def progress(phase: str, speed: float = 0.0) -> Progress:
        return Progress(
            phase, iteration * per_iteration, total * per_iteration, config.seeds, speed, runner.compile_seconds,
            recorder.recent(), dict(zip(spec.cost_names, spec.cost_limits, strict=True)), notes, start_iteration *
            per_iteration,
        )  # fmt: skip

    def save() -> None:
        if out is None:
            return
        recorder.write(out)
        write_checkpoint(
            out / "checkpoints",
            seeds,
            runner.states,
            fingerprint=mark,
            iteration=iteration,
            env_steps=iteration * per_iteration,
        )

    if iteration < total:
        yield progress("compiling")
        runner.compile()
    saved_at, saved_iteration, length, speed = time.monotonic(), iteration, 1, 0.0
    while iteration < total and not stopping():
        length = min(length, total - iteration)
        began = time.perf_counter()
        outputs = runner.run(length)
        took = time.perf_counter() - began
        speed = length * per_iteration * config.seeds / took
        for seed, output in zip(seeds, outputs, strict=True):
            record_chunk(recorder, seed, output, iteration, per_iteration, spec.cost_names, speed)
        iteration += length
        length = int(np.clip(CHUNK_SECONDS * length / took, 1, min(MAX_CHUNK, 2 * length)))
        if time.monotonic() - saved_at >= checkpoint_seconds and iteration < total:
            save()
            saved_at, saved_iteration = time.monotonic(), iteration
        yield progress("training", speed)
    if iteration > saved_iteration:
        save()
    if isinstance(runner, HostRunner):
        runner.close()
    yield progress("finished" if iteration >= total else "interrupted", speed)


def record_chunk(
    recorder: Recorder,
    seed: int,
    output: ChunkOutput,
    iteration: int,
    per_iteration: int,
    cost_names: tuple[str, ...],
    speed: float,
) -> None:
    """Turn the arrays of one chunk into rows."""
    count, _length, num_envs = output.done.shape
    ends = (iteration + 1 + np.arange(count)) * per_iteration
    done = output.done
    finished = done.sum((1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = lambda x: np.where(done, x, 0).sum((1, 2)) / finished  # noqa: E731
        columns = {"rollout/return": mean(output.episode_return), "rollout/length": mean(output.episode_length)}
        for i, name in enumerate(cost_names):
            columns[f"rollout/cost_{name}"] = mean(output.episode_costs[..., i])
    for name, values in output.info._asdict().items():
        if np.ndim(values) == 1:
            columns[f"train/{name}"] = values
        else:
            columns |= {f"train/{name}_{cost}": values[:, i] for i, cost in enumerate(cost_names)}
    columns["time/steps_per_second"] = np.full(count, speed)
    recorder.add_metrics(seed, ends, columns)
    chunk, step, _ = np.nonzero(done)
    if len(chunk):
        env_steps = (iteration + chunk) * per_iteration + (step + 1) * num_envs
        recorder.add_episodes(
            seed, env_steps, output.episode_return[done], output.episode_length[done], output.episode_costs[done]
        )


def _resume(
    out: Path, config: TrainConfig, problem: Problem, runner: Runner, recorder: Recorder, mark: str
) -> tuple[int, tuple[str, ...]]:
    """Start or take up the run folder; return the iteration to go on from and what was refused."""
    if (out / "config.json").exists():
        check_same(out, config, mark)
    else:
        _start_folder(out, config, problem, mark)
    checkpoint, refused = latest_checkpoint(out / "checkpoints", mark)
    if checkpoint is None:
        return 0, tuple(refused)
    recorder.load(out, checkpoint.env_steps)
    seeds = range(config.seed, config.seed + config.seeds)
    templates = [jax.eval_shape(lambda s=state: s) for state in runner.states]
    runner.states = [
        restore(seed_arrays(checkpoint, s), t, checkpoint.path) for s, t in zip(seeds, templates, strict=True)
    ]
    return checkpoint.iteration, tuple(refused)


def _start_folder(out: Path, config: TrainConfig, problem: Problem, mark: str) -> None:
    meta = {
        "format": FORMAT,
        "fingerprint": mark,
        "config": dataclasses.asdict(config),
        "spec": {**problem.spec._asdict(), "action_space": repr(problem.spec.action_space)},
        "versions": versions(),
        "device": {**device_info(), "seed_axis": seed_axis(config)},
        "command": command_line(),
        "commit": source_commit(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(out / "config.json", meta)


def check_same(out: Path, config: TrainConfig, mark: str) -> None:
    """Refuse to go on in a folder that holds another run."""
    meta = read_json(out / "config.json")
    if meta.get("fingerprint") == mark:
        return
    theirs, ours = meta.get("config", {}), dataclasses.asdict(config)
    flat = lambda c: {**c, **c.get("algo_options", {}), **c.get("task_options", {})}  # noqa: E731
    old, new = flat(theirs), flat(ours)
    names = [k for k in new if k not in ("algo_options", "task_options") and _plain(old.get(k)) != _plain(new[k])]
    told = ", ".join(f"{k}={old.get(k)!r} (now {new[k]!r})" for k in names[:4]) or "its configuration"
    raise RunFolderError(f"'{out}' holds a run with {told}: give another --out, or the same options to go on with it.")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@contextmanager
def _locked(out: Path | None) -> Iterator[None]:
    """Hold the run folder for this process alone."""
    if out is None:
        yield
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunFolderError(f"Cannot use '{out}' as a run folder: {error.strerror}. Give another --out.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise RunFolderError(f"'{out}' is in use by another process: wait for it, or give another --out.") from error
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def _stop_flag() -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT or SIGTERM into a flag; a second one interrupts at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped.is_set
        return

    def handle(number: int, frame: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
