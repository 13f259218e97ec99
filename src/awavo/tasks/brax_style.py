"""Brax-style environments (CRAX, Brax, MuJoCo Playground) as functional ones; none of these packages is imported here.

Such an environment has `reset(rng) -> state` and `step(state, action) -> state`, both pure, where a state has `obs`,
`reward`, `done`, `metrics` and `info`, and actions are in [-1, 1]. CRAX puts its cost into `info` and `metrics` as
`cost`. Time limits and resets are ours: give the environment itself, without training wrappers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from awavo.checks import check_limits
from awavo.errors import InputError
from awavo.registry import check_option
from awavo.tasks.base import Transition, auto_reset
from awavo.types import Box, Env, EnvSpec

__all__ = ["BraxStyle", "brax_env"]

# What Brax's training wrappers leave in `info`: of a time limit, and of automatic resets.
WRAPPED = ("truncation", "first_obs", "first_state")
HORIZON = 1_000


@runtime_checkable
class BraxStyle(Protocol):
    """What is asked of an environment."""

    def reset(self, rng: Array) -> Any:
        """The first state of an episode."""
        ...

    def step(self, state: Any, action: Array) -> Any:
        """The next state."""
        ...

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        ...


def brax_env(
    env: BraxStyle,
    *,
    cost_limits: Sequence[float],
    cost_names: Sequence[str] = ("cost",),
    horizon: int | None = None,
    name: str | None = None,
) -> Env:
    """Build the functional environment.

    Args:
        env: Such as `crax.envs.get_environment("safe_goal_point", level=1)`.
        cost_limits: Limit on the undiscounted total of each cost in an episode.
        cost_names: Entries of `info`, or of `metrics`, that are costs.
        horizon: Steps of an episode; the environment's own `episode_length` unless given, or else 1,000.
        name: Name of the task; that of the environment's class unless given.
    """
    names = tuple(cost_names)
    name = name or type(getattr(env, "unwrapped", env)).__name__
    limits = check_limits(tuple(cost_limits), names)
    steps = check_option("horizon", horizon or getattr(env, "episode_length", None) or HORIZON, 1)
    size = int(env.action_size)
    first = jax.eval_shape(lambda key: env.reset(_raw(key)), jax.random.key(0))
    obs_dim = _check_state(name, env, first, size, names)
    space = Box((-1.0,) * size, (1.0,) * size)

    def reset(key: Array, params: tuple[()]) -> tuple[PyTree, Array]:
        state = env.reset(_raw(key))
        return state, jnp.asarray(state.obs, jnp.float32)

    def step(key: Array, state: Any, action: Array, params: tuple[()]) -> tuple[PyTree, Transition]:
        # Types stay those of a first state: a loop cannot carry what changes.
        state = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), env.step(state, action), first)
        costs = jnp.stack([jnp.asarray(_read(state, own), jnp.float32) for own in names])
        obs, reward = jnp.asarray(state.obs, jnp.float32), jnp.asarray(state.reward, jnp.float32)
        return state, Transition(obs, reward, costs, jnp.asarray(state.done) > 0.5)

    # A reset of such a simulation costs more than a step.
    return auto_reset(EnvSpec(name, obs_dim, space, steps, names, limits), (), reset, step, lazy=True)


def _raw(key: Array) -> Array:
    """The key in the older form, of plain numbers, which these packages expect."""
    return jax.random.key_data(key)


def _read(state: Any, name: str) -> Any:
    return state.info[name] if name in state.info else state.metrics[name]


def _check_state(name: str, env: BraxStyle, first: Any, size: int, cost_names: tuple[str, ...]) -> int:
    """Refuse what cannot be stepped in a compiled loop, before anything is compiled; returns the observation's size."""
    wrapped = [own for own in WRAPPED if own in first.info]
    if wrapped:
        raise InputError(
            f"{name} has training wrappers (info holds {wrapped[0]!r}): give the environment without them, as "
            "get_environment() returns it; time limit and resets are added here."
        )
    shape = getattr(first.obs, "shape", None)
    if shape is None or len(shape) != 1:
        seen = "a dictionary" if shape is None else f"shape {tuple(shape)}"
        raise InputError(f"{name}'s observation is {seen}: expected one vector of numbers, of a single environment.")
    _check_step(name, env.step, first, size)
    for own in cost_names:
        known = [*first.info, *(key for key in first.metrics if key not in first.info)]
        if own not in known:
            raise InputError(f"{name} has no cost '{own}' in info or metrics, only {known}: pass cost_names.")
        if getattr(_read(first, own), "shape", ()) != ():
            raise InputError(f"{name}'s cost '{own}' has shape {_read(first, own).shape}: expected one number.")
    return shape[0]


def _check_step(name: str, step: Callable[[Any, Array], Any], first: Any, size: int) -> None:
    after = jax.eval_shape(step, first, jax.ShapeDtypeStruct((size,), jnp.float32))
    before_leaves, after_leaves = (
        {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
        for state in (first, after)
    )
    changed = sorted(
        own for own in before_leaves.keys() | after_leaves.keys() if before_leaves.get(own) != after_leaves.get(own)
    )
    if changed:
        raise InputError(f"{name}'s state is another one after step() than after reset(): it differs in {changed[0]}.")
