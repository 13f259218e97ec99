"""Training a run: the one driver, the folder it resumes from, the lock on it, and what it says on the way."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.algorithms.sizes import is_small
from awavo.config import TrainConfig, fingerprint
from awavo.errors import BrokenEnvironmentError, RunFolderError
from awavo.files import locked
from awavo.interruption import stop_flag
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.results.recorder import Recorder
from awavo.runs.problem import Problem
from awavo.training.host_loop import HostRunner, host_init_fn
from awavo.training.loop import MAX_CHUNK, ChunkOutput, CompiledRunner, Runner, TrainState, chunk_fn, init_fn
from awavo.types import Fields

__all__ = ["Progress", "Training", "make_runner", "run_training", "seed_axis", "state_template"]

CHUNK_SECONDS = 1.0


class Progress(NamedTuple):
    """What training says between chunks. `phase` is "compiling", "training", "finished" or "interrupted".

    `recent` are means of the last finished episodes. With `early_only` they are no fair sample: others were cut short
    while they were young, so that only those that ended by themselves are among them. `small` as in `sizes.is_small`.
    """

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
    early_only: bool = False
    small: bool = True


def seed_axis(config: TrainConfig) -> str:
    """`vmap` on accelerators, `map` on a CPU, unless the configuration says which."""
    if config.seed_axis != "auto":
        return config.seed_axis
    return "map" if jax.default_backend() == "cpu" else "vmap"


def make_runner(config: TrainConfig, problem: Problem, seeds: Sequence[int]) -> Runner:
    """Put seeds on the axis of a configuration."""
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


class Training:
    """The ONE driver: seeds of a problem, their tables, and the folder from which an interrupted training resumes.

    Without a folder everything stays in memory.
    """

    def __init__(self, config: TrainConfig, problem: Problem, out: Path | None = None):
        self.config, self.problem, self.out = config, problem, out
        self.seeds = list(range(config.seed, config.seed + config.seeds))
        self.per_iteration = problem.settings.num_envs * problem.settings.rollout_length
        self.total = -(-config.steps // self.per_iteration)
        self.recorder = Recorder(problem.spec.cost_names)
        self.runner = make_runner(config, problem, self.seeds)
        self.iteration, self.notes, self.steps_per_second = 0, (), 0.0
        self._fingerprint, self._seal = fingerprint(config), ""
        if out is not None:
            self._resume(out)
        self.resumed_at = self.iteration

    @property
    def env_steps(self) -> int:
        """Environment steps of each seed so far."""
        return self.iteration * self.per_iteration

    @property
    def finished(self) -> bool:
        """Whether every step has been taken."""
        return self.iteration >= self.total

    def advance(
        self,
        stops: Iterable[int] = (),
        *,
        checkpoint_seconds: float = 20.0,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Iterator[int]:
        """Train in chunks of about a second and yield the iteration after each; some chunk ends at every stop.

        The folder is saved between chunks, at the end, and when `stopping` says so.
        """
        if not self.finished and not stopping():
            self.runner.compile()
        left = sorted(stop for stop in stops if self.iteration < stop < self.total)
        saved_at, saved_iteration, length = time.monotonic(), self.iteration, 1
        while not self.finished and not stopping():
            left = [stop for stop in left if stop > self.iteration]
            length = min(length, min(left, default=self.total) - self.iteration)
            took = self._run_or_say_what_is_saved(length, saved_iteration)
            length = int(np.clip(CHUNK_SECONDS * length / took, 1, min(MAX_CHUNK, 2 * length)))
            if time.monotonic() - saved_at >= checkpoint_seconds and not self.finished:
                self.save()
                saved_at, saved_iteration = time.monotonic(), self.iteration
            yield self.iteration
        if self.iteration > saved_iteration:
            self.save()
        if isinstance(self.runner, HostRunner):
            self.runner.close()

    def _run_or_say_what_is_saved(self, length: int, saved: int) -> float:
        """One chunk; an environment that breaks loses the steps since the last checkpoint, and no more."""
        try:
            return self._run(length)
        except BrokenEnvironmentError as error:
            if isinstance(self.runner, HostRunner):
                self.runner.close()
            if self.out is None:
                raise
            steps = saved * self.per_iteration
            kept = f"saved up to step {steps}; the same command resumes there" if steps else "nothing was saved yet"
            raise BrokenEnvironmentError(
                f"{str(error).rstrip('.')}. It broke after step {self.env_steps} of each seed; {kept}."
            ) from error

    def _run(self, length: int) -> float:
        """One chunk, recorded; return its seconds."""
        began, busy = time.perf_counter(), time.process_time()
        outputs = self.runner.run(length)
        took, cpu = time.perf_counter() - began, time.process_time() - busy
        self.steps_per_second = length * self.per_iteration * len(self.seeds) / took
        times = {"time/steps_per_second": self.steps_per_second, "time/cpu_seconds": cpu / length}
        names = self.problem.spec.cost_names
        for seed, output in zip(self.seeds, outputs, strict=True):
            record_chunk(self.recorder, seed, output, self.iteration, self.per_iteration, names, times)
        self.iteration += length
        return took

    def leave(self) -> None:
        """Save and close, where nobody asks for the next chunk."""
        if self.iteration > self.resumed_at and not sys.is_finalizing():
            self.save()
        if isinstance(self.runner, HostRunner):
            self.runner.close()

    def save(self) -> None:
        """Write tables and checkpoint."""
        if self.out is None:
            return
        self.recorder.write(self.out, self._seal)
        from awavo.training.checkpoint import write_checkpoint

        place: Fields = dict(fingerprint=self._fingerprint, iteration=self.iteration, env_steps=self.env_steps)
        write_checkpoint(self.out / "checkpoints", self.seeds, self.runner.states, **place, seal=self._seal)

    def _resume(self, out: Path) -> None:
        """Start the run folder or take it up where its newest good checkpoint is."""
        from awavo.training.checkpoint import latest_checkpoint, restore, resume_notes, seed_arrays

        if (out / "config.json").exists():
            meta = check_same(out, self.config, self._fingerprint)
        else:
            meta = _start_folder(out, self.config, self.problem, self._fingerprint)
        self._seal = meta.get("seal", "")
        checkpoint, refused = latest_checkpoint(out / "checkpoints", self._fingerprint)
        self.notes = resume_notes(checkpoint, refused)
        if checkpoint is None:
            return
        self.recorder.load(out, checkpoint.env_steps, self._seal)
        templates = [jax.eval_shape(lambda s=state: s) for state in self.runner.states]
        self.runner.states = [
            restore(seed_arrays(checkpoint, s), t, checkpoint.path) for s, t in zip(self.seeds, templates, strict=True)
        ]
        self.iteration = checkpoint.iteration


def run_training(
    config: TrainConfig, problem: Problem, out: Path | None, checkpoint_seconds: float = 20.0
) -> Iterator[Progress]:
    """Train (or resume training) and yield between chunks; `out=None` keeps everything in memory.

    A stop signal (Ctrl-C, SIGTERM) lets the chunk in flight finish, saves, and ends the iteration with the phase
    "interrupted". Left before its end, it saves what it has.
    """
    spec = problem.spec
    with stop_flag() as stopping, locked(out):
        training = Training(config, problem, out)

        def progress(phase: str) -> Progress:
            return Progress(
                phase=phase,
                env_steps=training.env_steps,
                total_steps=training.total * training.per_iteration,
                seeds=config.seeds,
                steps_per_second=training.steps_per_second,
                compile_s=training.runner.compile_seconds,
                recent=training.recorder.recent(),
                limits=dict(zip(spec.cost_names, spec.cost_limits, strict=True)),
                notes=training.notes,
                resumed_at=training.resumed_at * training.per_iteration,
                early_only=_early_only(problem, training.env_steps),
                small=is_small(spec),
            )

        if not training.finished:
            yield progress("compiling")
        try:
            for _ in training.advance(checkpoint_seconds=checkpoint_seconds, stopping=stopping):
                yield progress("training")
        except GeneratorExit:  # whoever leaves the loop finds in the folder what was seen last
            training.leave()
            raise
        yield progress("finished" if training.finished else "interrupted")


def _early_only(problem: Problem, env_steps: int) -> bool:
    """Whether episodes were still cut while the last finished ones lived: a horizon ago in every environment."""
    if problem.algorithm.cut_after is None:
        return False
    then = max(env_steps - problem.spec.horizon * problem.settings.num_envs, 0)
    return bool(np.isfinite(problem.algorithm.cut_after(jnp.asarray(then, jnp.int32))).any())


def record_chunk(
    recorder: Recorder,
    seed: int,
    output: ChunkOutput,
    iteration: int,
    per_iteration: int,
    cost_names: Sequence[str],
    times: Mapping[str, float],
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
    columns |= {name: np.full(count, value) for name, value in times.items()}
    recorder.add_metrics(seed, ends, columns)
    totals = (output.episode_return, output.episode_length, output.episode_costs)
    chunk, step, _ = np.nonzero(done)
    if len(chunk):
        env_steps = (iteration + chunk) * per_iteration + (step + 1) * num_envs
        recorder.add_episodes(seed, env_steps, *(np.asarray(total)[done] for total in totals))


def _start_folder(out: Path, config: TrainConfig, problem: Problem, mark: str) -> Fields:
    from awavo.results.store import FORMAT, write_sealed

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
    return write_sealed(out / "config.json", meta)


def check_same(out: Path, config: TrainConfig, mark: str) -> Fields:
    """The content of config.json; a folder that holds another run is not resumed."""
    from awavo.results.store import read_config

    meta = read_config(out)[0]
    if meta["fingerprint"] == mark:
        return meta
    theirs, ours = meta.get("config", {}), dataclasses.asdict(config)
    flat = lambda c: {**c, **c.get("algo_options", {}), **c.get("task_options", {})}  # noqa: E731
    old, new = flat(theirs), flat(ours)
    names = [k for k in new if k not in ("algo_options", "task_options") and _plain(old.get(k)) != _plain(new[k])]
    told = ", ".join(f"{k}={old.get(k)!r} (now {new[k]!r})" for k in names[:4]) or "its configuration"
    raise RunFolderError(f"'{out}' holds a run with {told}: give another --out, or the same options to resume it.")


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
