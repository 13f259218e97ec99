"""Whether what was asked for fits into memory, told from shapes before the first array is made.

Counted is what no compiler can avoid: the states of all seeds, the arrays of a rollout, and in a decision the largest
result of a matrix product, a loop or a sort. What is refused would not have fitted; what is accepted may still fail,
with one line too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from awavo.errors import ConfigError

if TYPE_CHECKING:
    from awavo.config import TrainConfig
    from awavo.runs.problem import Problem
    from awavo.training.loop import TrainState

__all__ = [
    "available_bytes", "check_inference", "check_playing", "check_training", "require_memory", "training_bytes",
]  # fmt: skip

MATERIALISED = ("dot_general", "scan", "while", "sort")
# The settings that make each part large.
REMEDIES = {
    "states": "hidden, replay_capacity, num_particles, num_envs or seeds",
    "rollouts": "num_envs, rollout_length, num_sequences or num_particles",
    "decisions": "num_envs, num_sequences, horizon, num_members or hidden",
    "learning": "hidden, batch_size, num_envs or rollout_length",
    "episodes": "the number of episodes",
    "trajectories": "--states or --draws",
}


def available_bytes() -> int | None:
    """Memory that is free for arrays: of the machine and its control group, or of the accelerator; None if unknown."""
    device = _device_bytes()
    if device is not None:
        return device
    found = [_meminfo_bytes(), _group_bytes()]
    return min((size for size in found if size is not None), default=None)


def _device_bytes() -> int | None:
    import jax

    if jax.default_backend() == "cpu":
        return None
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if not all("bytes_limit" in own for own in stats):
        return None
    return sum(own["bytes_limit"] - own.get("bytes_in_use", 0) for own in stats)


def _meminfo_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _group_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container's limit leaves; pages of files in it can be given back."""
    try:
        limit, used = ((folder / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        pages = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(limit) - int(used) + int(pages["inactive_file"])
    except (OSError, ValueError, KeyError):  # no container, no limit ("max"), or an older kernel
        return None


def require_memory(parts: dict[str, int], what: str) -> None:
    """Refuse what needs more bytes than are free; `parts` are the bytes of each part, named as in `REMEDIES`."""
    free, needed = available_bytes(), sum(parts.values())
    if free is None or needed <= free:
        return
    largest = max(parts, key=lambda name: parts[name])
    raise ConfigError(
        f"{what} would take at least {_size(needed)} of memory, {_size(parts[largest])} of it for {largest}, but "
        f"{_size(free)} are free: lower {REMEDIES[largest]}."
    )


def _size(number: int) -> str:
    shown, unit = (number / 2**30, "GB") if number >= 2**27 else (number / 2**20, "MB")
    return f"{shown:,.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"


def check_training(config: TrainConfig, problem: Problem) -> None:
    """Refuse a training that does not fit."""
    from awavo.runs.problem import check_copies
    from awavo.runs.train import seed_axis

    if problem.env is None:
        check_copies(config, config.seeds * problem.settings.num_envs)
    require_memory(training_bytes(problem, config.seeds, together=seed_axis(config) == "vmap"), "this training")


def training_bytes(problem: Problem, seeds: int, *, together: bool) -> dict[str, int]:
    """Bytes of the parts of a training, all seeds in one program (`together`) or a few at a time."""
    from awavo.runs.train import state_template
    from awavo.training.loop import MAX_CHUNK

    settings, spec = problem.settings, problem.spec
    state = state_template(problem)
    out, largest = _decision(problem, state, settings.num_envs)
    rows = settings.num_envs * settings.rollout_length
    # An observation before and after, an action and what explains it, costs, and seven single numbers.
    row = (_bytes(out) // settings.num_envs) + 4 * (2 * spec.obs_dim + spec.num_costs + 7)
    told = rows * (13 + 4 * spec.num_costs) * (MAX_CHUNK if problem.env is not None else 1)
    learnt = 4 * getattr(settings, "batch_size", rows) * sum(getattr(settings, "hidden", ()))
    at_once = seeds if together else 1 if problem.env is None else min(seeds, 2 * (os.cpu_count() or 1))
    return {
        "states": seeds * _bytes(state),
        "rollouts": at_once * (rows * row + told),
        "decisions": at_once * largest,
        "learning": at_once * learnt,
    }


def check_playing(problem: Problem, episodes: int) -> None:
    """Refuse episodes that are all played at once and whose decisions do not fit."""
    from awavo.runs.train import state_template

    if problem.env is not None:
        largest = _decision(problem, state_template(problem), episodes)[1]
        require_memory({"episodes": largest}, f"{episodes} episodes at once")


def check_inference(sites: int, times: int, draws: int, dtype: str) -> None:
    """Refuse an inference whose trajectories do not fit: observations, mean, deviation, and every draw."""
    numbers = sites * (times + 1) * (draws + 4)
    require_memory({"trajectories": numbers * np.dtype(dtype).itemsize}, "this inference")


def _decision(problem: Problem, state: TrainState, num_envs: int) -> tuple[Any, int]:
    """Shapes of an action and what explains it, and the bytes of the largest array that a decision makes."""
    import jax
    import jax.numpy as jnp

    algorithm = problem.algorithm
    obs = jax.ShapeDtypeStruct((num_envs, problem.spec.obs_dim), jnp.float32)
    memory = jax.eval_shape(lambda: algorithm.begin(num_envs))
    decide = jax.make_jaxpr(algorithm.decide, static_argnums=4, return_shape=True)
    program, (action, extras, _) = decide(state.key, state.algorithm, obs, memory, False)
    return (action, extras), max((_bytes(own) for own in _results(program.jaxpr)), default=0)


def _results(program: Any) -> Iterator[list[Any]]:
    """What every operation makes that the compiler cannot fuse into the next one, those inside of loops too."""
    for operation in program.eqns:
        if operation.primitive.name in MATERIALISED:
            yield [variable.aval for variable in operation.outvars]
        for value in operation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _results(inner)


def _bytes(tree: Any) -> int:
    """Bytes of all arrays of a tree of shapes."""
    import jax

    leaves = jax.tree.leaves(tree)
    return sum(leaf.size * getattr(leaf.dtype, "itemsize", 8) for leaf in leaves)
