"""The Python interface: `configure`, `train`, `train_iter`, `load`, `evaluate`, `certify`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from gymnasium import spaces

from awavo.checks import LARGEST, LARGEST_SEED, MOST_EPISODES, all_usable, check_seconds, check_whole
from awavo.config import TrainConfig, without_retired
from awavo.errors import CheckpointError, InputError, RunFolderError, UnknownNameError
from awavo.files import require_writable
from awavo.interruption import stop_flag
from awavo.provenance import command_line
from awavo.results.limits import STRICT, LimitRule
from awavo.results.store import RunData, load_run, read_config, write_sealed
from awavo.runs.budget import default_episodes, guess_time
from awavo.runs.certify import certify_run, recheck_run, require_certified_operator
from awavo.runs.configure import OwnEnv, configure
from awavo.runs.evaluate import EVALUATION_SEED, Evaluator
from awavo.runs.memory import check_playing, check_training
from awavo.runs.problem import Problem, build_problem, named_code, resolve_config
from awavo.runs.progress import doing, follow
from awavo.runs.train import Progress, run_training, state_template
from awavo.runs.trust import is_trusted, missing_module, remember
from awavo.tasks.contract import short, try_flatten
from awavo.tasks.spaces import own_actions
from awavo.training.checkpoint import latest_checkpoint, restore, seed_arrays
from awavo.training.compilation import enable_cache
from awavo.types import Fields, FieldsView

if TYPE_CHECKING:
    from awavo.results.watch import Watch
    from awavo.runs.render import Rendering

__all__ = ["Run", "certify", "configure", "evaluate", "load", "train", "train_iter"]

CERTIFICATION_SEED = 2_000_003
READ_ONLY = "Make it writable, or copy the run elsewhere."


def train_iter(
    config: TrainConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    env: OwnEnv | None = None,
    cost_fn: Callable[..., Any] | None = None,
    operator: Any = None,
    checkpoint_seconds: float = 20.0,
) -> Iterator[Progress]:
    """Train as a generator: a `Progress` after every chunk; resumes the run in `out`.

    A loop that is left with `break` saves first: what the folder then holds is the policy of the last `Progress`.
    The operator is certified first: one whose conditions are refuted is refused with the counter-example.

    Args:
        config: What to train, from `configure`.
        out: Run folder (None: everything stays in memory).
        env: An environment of your own in JAX, in the place of the task's name.
        cost_fn: Your own costs, `cost_fn(obs, action, next_obs)`, for a Gymnasium environment.
        operator: Your own operator of optimality, from `operator_from_maps`.
        checkpoint_seconds: Least time between checkpoints, in seconds; 0 writes one after every chunk.
    """
    _require(config, TrainConfig, "awavo.configure(task, algo, ...)")
    checkpoint_seconds = check_seconds("checkpoint_seconds", checkpoint_seconds)
    with stop_flag():
        enable_cache()
        problem = build_problem(config, env=env, cost_fn=cost_fn, operator=operator)
        require_certified_operator(problem.settings, operator)
        check_training(config, problem)
        remember(dataclasses.asdict(config), _left_to_import(config, env, cost_fn, operator).values())
        yield from run_training(config, problem, None if out is None else Path(out), checkpoint_seconds)


def train(
    config: TrainConfig,
    out: str | os.PathLike[str],
    *,
    on_progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Run:
    """Train to the end (or take up where the folder stopped) and return the run.

    Ctrl-C and SIGTERM let the chunk in flight finish, save, and raise KeyboardInterrupt: what stands behind this call
    is not done with half a training. The same call resumes.

    Args:
        config: A configuration from `configure`.
        out: Run folder.
        on_progress: Takes every `Progress`; without it, how far training is stands on stderr.
        **options: As for `train_iter`: `env`, `cost_fn`, `operator`, `checkpoint_seconds`.

    Returns:
        The trained run.
    """
    if out is None:
        raise InputError("train() was given no folder to write the run to: pass one, or use train_iter without.")
    updates = train_iter(config, out, **options)
    if on_progress is None:
        last = follow(updates, expected=lambda first: guess_time(config, jax.default_backend(), first.small))
    else:
        last = None
        for last in updates:
            on_progress(last)
    if last is not None and last.phase == "interrupted":
        kept = f"saved up to step {last.env_steps}" if last.env_steps else "nothing was saved yet"
        raise KeyboardInterrupt(f"training was interrupted, {kept}: the same call resumes.")
    own = {name: options.get(name) for name in ("env", "cost_fn", "operator")}
    return load(out, **own, trust=True)


def load(
    path: str | os.PathLike[str],
    *,
    env: OwnEnv | None = None,
    cost_fn: Callable[..., Any] | None = None,
    operator: Any = None,
    trust: bool = False,
) -> Run:
    """Open a run folder: its tables, and its policy of every seed.

    A configuration may name code (a cost function, an operator, a module with the environment, another interpreter).
    Somebody else's folder must not make it run: it is refused unless the caller passes those parts, or `trust`, or has
    let this configuration run this very code before (`awavo.runs.trust`).

    Args:
        path: Run folder, as given to `train`.
        env: The environment that `train` was given, if any.
        cost_fn: The cost function that `train` was given, if any.
        operator: The operator that `train` was given, if any.
        trust: Let the configuration import the code that it names.
    """
    with doing("opening the run"):
        return _load(Path(path), env, cost_fn, operator, trust)


def _load(folder: Path, env: OwnEnv | None, cost_fn: Any, operator: Any, trust: bool) -> Run:
    meta, notes = read_config(folder)
    stored = without_retired(meta["config"])
    try:
        if stored.get("cost_limits") is not None:
            stored["cost_limits"] = tuple(stored["cost_limits"])
        settings = resolve_config(TrainConfig(**stored))
    except (TypeError, UnknownNameError) as error:
        raise RunFolderError(
            f"'{folder}/config.json' does not fit this version of awavo ({str(error).rstrip('.')}): open the run with "
            "the version that trained it (CHANGELOG)."
        ) from error
    named = _left_to_import(settings, env, cost_fn, operator)
    if named and not trust and not is_trusted(meta["config"], named.values()):
        told = ", ".join(f"{name}='{value}'" for name, value in named.items())
        if missing := missing_module(meta["config"], named.values()):
            module, place = missing
            where = f"run this in {place}, where it was then" if place else "run this in the folder that has it"
            raise RunFolderError(
                f"'{folder}/config.json' names code ({told}) whose module '{module}' is not found from here "
                f"({Path.cwd()}): {where}, or put that folder on PYTHONPATH."
            )
        raise RunFolderError(
            f"'{folder}/config.json' names code to run ({told}) that you did not run with it before, or that has "
            "changed since: if you trust it, add --trust once (in Python trust=True, or pass the part itself)."
        )
    problem = build_problem(settings, env=env, cost_fn=cost_fn, operator=operator)
    remember(meta["config"], named.values())
    return Run(folder, settings, meta, problem, operator, notes)


def _left_to_import(config: TrainConfig, env: Any, cost_fn: Any, operator: Any) -> dict[str, str]:
    """The code that a configuration names and the caller did not pass."""
    own = {"task": env, "cost_fn": cost_fn, "operator": operator}
    return {name: value for name, value in named_code(config).items() if own[name] is None}


def _require(given: object, kind: type[Any], remedy: str) -> None:
    """Refuse what is not the one thing that a function works on."""
    if not isinstance(given, kind):
        raise InputError(f"{short(given)} is no {kind.__name__}: give {remedy}.")


class Run:
    """A run on disk, with its trained policies."""

    def __init__(
        self,
        path: Path,
        config: TrainConfig,
        meta: FieldsView,
        problem: Problem,
        operator: Any = None,
        notes: Sequence[str] = (),
    ):
        self.path = path
        self.config = config
        self.meta = meta
        self.problem = problem
        self.operator = operator
        checkpoint, refused = latest_checkpoint(path / "checkpoints", meta["fingerprint"])
        if checkpoint is None:
            reason = f" ({refused[0]})" if refused else ""
            raise CheckpointError(f"'{path}' has no usable checkpoint{reason}: run the same `awavo train` again.")
        if refused:  # what is judged must not be another policy than the one that was trained last
            raise CheckpointError(
                f"{refused[0].rstrip('.')}. The checkpoint of step {checkpoint.env_steps} is intact: run the same "
                f"`awavo train` again to train on from it, or delete the damaged file to judge that one."
            )
        self.env_steps = checkpoint.env_steps
        self.checkpoint_path = checkpoint.path
        self.notes = list(notes)
        self.seeds = list(range(config.seed, config.seed + config.seeds))
        template = state_template(problem)
        self.states = [restore(seed_arrays(checkpoint, s), template, checkpoint.path).algorithm for s in self.seeds]
        self._decide = jax.jit(problem.algorithm.decide, static_argnums=4)
        self._act = jax.jit(problem.algorithm.act, static_argnums=3)

    @property
    def data(self) -> RunData:
        """Metrics, episodes and evaluation as tables."""
        return load_run(self.path)

    def act(
        self, obs: Any, *, seed: int | None = None, greedy: bool = True, key: Any = None, planner: bool = True
    ) -> np.ndarray | np.generic:
        """Choose actions for one observation or a batch `[B, d]`, with the policy of one seed (default: the first).

        Args:
            obs: One observation as the environment gives it, a dictionary too (behind a bridge: flattened), or a batch
                of flattened ones `[B, d]`.
            seed: Whose policy (default: the first seed's).
            greedy: The most likely action, or one drawn at random.
            key: Random key of a stochastic action.
            planner: An algorithm with a planner plans from scratch; False asks its actor alone.

        Returns:
            What the environment's own `step` takes: numbers that begin where its `Discrete` begins, or boxes of its
            shape and type (behind a bridge: flat ones of float32).
        """
        seed = self.seeds[0] if seed is None else seed
        if seed not in self.seeds:
            raise InputError(f"this run has no seed {seed}: it has {self.seeds[0]} to {self.seeds[-1]}.")
        obs = self._flat(obs)
        if not greedy and key is None:
            raise InputError("a stochastic action needs a random key: pass key=jax.random.key(0).")
        if key is not None and not isinstance(key, jax.Array | np.ndarray):
            raise InputError(f"key={short(key)} is no random key: pass key=jax.random.key(0).")
        batch = np.atleast_2d(obs)
        key = jax.random.key(0) if key is None else key
        state = self.states[seed - self.seeds[0]]
        if planner:
            action = self._decide(key, state, batch, self.problem.algorithm.begin(len(batch)), greedy)[0]
        else:
            action = self._act(key, state, batch, greedy)[0]
        actions, space = np.asarray(action), self.problem.act_space
        actions = actions if space is None else own_actions(space, actions)
        return actions if obs.ndim == 2 else actions[0]

    def _flat(self, obs: Any) -> np.ndarray:
        """Observations as training flattens them, or an error where there is none."""
        dim, space = self.problem.spec.obs_dim, self.problem.obs_space
        try:
            flat = np.asarray(obs, np.float32)
        except (TypeError, ValueError):
            flat = None
        if flat is None or flat.shape[-1:] != (dim,) or flat.ndim > 2:
            seen = f"is {short(obs)}" if flat is None else f"has shape {flat.shape}"
            flat = None if space is None else try_flatten(space, obs)
            if flat is None:
                known = f", or one of {space}" if isinstance(space, spaces.Dict | spaces.Tuple) else ""
                raise InputError(f"obs {seen}, expected numbers of shape ({dim},) or (B, {dim}){known}.")
        if not all_usable(flat):
            raise InputError(f"obs has numbers that are not finite or are beyond {LARGEST:g}: no policy knows them.")
        return flat

    def evaluate(self, episodes: int | None = None, **options: Any) -> Fields:
        """Evaluate every seed (options as for `awavo.evaluate`); write and return evaluation.json."""
        require_writable(self.path, READ_ONLY)
        result = evaluate(self, episodes, **options)
        # It names the run that it judges: beside another run's configuration it is refused.
        write_sealed(self.path / "evaluation.json", {**result, "run": self.meta.get("seal")})
        return result

    def certify(self, **options: Any) -> Fields:
        """Certify the run (options as for `awavo.certify`); write and return certificates.json."""
        require_writable(self.path, READ_ONLY)
        return write_sealed(self.path / "certificates.json", certify(self, **options))

    def recheck(self, on_progress: Callable[[str], None] | None = None) -> dict[str, list[str]]:
        """Compute the stored certificates again; where the record differs, in words, by the part of it."""
        return recheck_run(self, on_progress)

    def render(self, out: str | os.PathLike[str] | None = None, **options: Any) -> Rendering:
        """Play one episode and write record, picture and video (default: into the run; options as for `render_run`)."""
        from awavo.runs.render import render_run

        require_writable(self.path if out is None else Path(out))
        return render_run(self, None if out is None else Path(out), **options)

    def watch(self, port: int = 0) -> Watch:
        """Serve a live page of the run on this machine alone (port 0: any free one); `close()` ends it."""
        from awavo.results.watch import Watch

        return Watch(self.path, port=port).start()

    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Write the report page and return its path (default: report.html in the run folder)."""
        from awavo.results.report import write_report

        path = self.path / "report.html" if out is None else Path(out)
        require_writable(path.parent)
        with doing("writing the page"):
            write_report([self.data], path)
        return path


def evaluate(
    run: Run,
    episodes: int | None = None,
    *,
    seed: int = EVALUATION_SEED,
    planner: bool = True,
    rule: LimitRule = STRICT,
) -> Fields:
    """Undiscounted return and costs of `episodes` fresh episodes of each seed, greedy and stochastic.

    Args:
        run: A run from `load` or `train`.
        episodes: Fresh episodes of each seed and policy (default: 100, behind a bridge 10).
        seed: Seed of the episodes.
        planner: False lets an algorithm that plans act with its actor alone.
        rule: What "within limits" means.

    Returns:
        The content of evaluation.json: an entry for the greedy and one for the stochastic policy (docs/metrics.md).
    """
    _require(run, Run, "awavo.load(folder), or what awavo.train returns")
    rule.require_seeds(len(run.seeds))
    episodes = default_episodes(run.config.task) if episodes is None else episodes
    episodes, seed = check_whole("episodes", episodes, 1, MOST_EPISODES), check_whole("seed", seed, 0, LARGEST_SEED)
    with doing("evaluating", 2 * episodes * len(run.seeds), "episodes") as work:
        evaluator = Evaluator(run.problem, run.seeds, episodes, planner=planner, on_played=work.advance)
        if planner:
            check_playing(run.problem, episodes)
        result = {}
        for name, greedy in (("greedy", True), ("stochastic", False)):
            began = time.perf_counter()
            result[name] = evaluator.summarize(
                run.states, greedy, seed, rule, env_steps=run.env_steps, command=command_line()
            ) | {"wall_s": time.perf_counter() - began}
    return result


def certify(
    run: Run,
    *,
    episodes: int = 1_000,
    delta: float = 0.05,
    anytime: bool | None = None,
    max_violation: float | None = None,
    seed: int = CERTIFICATION_SEED,
    on_progress: Callable[[str], None] | None = None,
) -> Fields:
    """Certify the run's policies and what its method rests on, on fresh episodes; nothing is written.

    Args:
        run: A run from `load` or `train`.
        episodes: Fresh episodes of each seed's greedy policy (at most, with `anytime`).
        delta: All bounds on all policies hold together with probability at least 1 - delta.
        anytime: Stop as soon as every policy is decided, with bounds that allow it (default: where it plans).
        max_violation: Largest accepted probability that an episode's cost exceeds its limit.
        seed: Seed of the fresh episodes.
        on_progress: Takes a line after every batch of episodes.

    Returns:
        The content of certificates.json.
    """
    _require(run, Run, "awavo.load(folder), or what awavo.train returns")
    return certify_run(
        run, on_progress, episodes=episodes, delta=delta, anytime=anytime, max_violation=max_violation, seed=seed
    )
