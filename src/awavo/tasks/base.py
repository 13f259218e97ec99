"""From a task's bare dynamics to an auto-resetting environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from awavo.checks import check_limits
from awavo.types import Env, EnvSpec, Physics, Timestep

__all__ = ["Clocked", "Transition", "auto_reset", "declare_physics", "make_where_needed", "sum_costs"]

Params = TypeVar("Params")
State = TypeVar("State")
Tree = TypeVar("Tree")


class Transition(NamedTuple):
    """One step of the bare dynamics, before time limits and resets."""

    obs: Array
    reward: Array
    costs: Array
    terminated: Array


class Clocked(NamedTuple):
    """A task's own state and the number of steps since its reset."""

    inner: PyTree
    time: Array


def auto_reset(
    spec: EnvSpec,
    params: Params,
    reset_fn: Callable[[Array, Params], tuple[State, Array]],
    step_fn: Callable[[Array, State, Array, Params], tuple[State, Transition]],
    *,
    lazy: bool = False,
    physics: Physics | None = None,
) -> Env:
    """Wrap bare dynamics with the time limit `spec.horizon` and same-step auto-reset.

    Truncation is reported only where the episode did not terminate by itself. `lazy` is for resets that cost more than
    a step: they are computed only when an environment of the batch needs one. `physics` is what `declare_physics`
    returns.
    """

    def reset(key, params):
        inner, obs = reset_fn(key, params)
        return Clocked(inner, jnp.zeros((), jnp.int32)), obs

    def step(key, state, action, params):
        step_key, reset_key = jax.random.split(key)
        inner, out = step_fn(step_key, state.inner, action, params)
        time = state.time + 1
        terminated = out.terminated
        truncated = (time >= spec.horizon) & ~terminated
        done = terminated | truncated
        # The observation of the new episode is `obs`, the last one of the old `final_obs`.
        if lazy:
            state, obs = make_where_needed(reset_key, done, lambda k: reset(k, params), (Clocked(inner, time), out.obs))
        else:
            fresh, fresh_obs = reset(reset_key, params)
            state = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, Clocked(inner, time))
            obs = jnp.where(done, fresh_obs, out.obs)
        return state, Timestep(obs, out.reward, out.costs, terminated, truncated, out.obs)

    return Env(spec, params, reset, step, physics)


def declare_physics(
    params: Any, ranges: Mapping[str, tuple[float, float]], step: Callable[[Array, Array, Any], Transition]
) -> Physics:
    """Say which parameters (fields of `params`) a planner has to identify, and between which values they lie.

    `step(obs, action, params)` is one step of the bare dynamics from an observation, without noise; a task whose
    observation does not tell its state cannot declare one.
    """

    def from_theta(theta: Array, obs: Array, action: Array) -> tuple[Array, Array, Array, Array]:
        out = step(obs, action, params._replace(**dict(zip(ranges, theta, strict=True))))
        return out.obs, out.reward, out.costs, out.terminated

    low, high = zip(*ranges.values(), strict=True)
    return Physics(tuple(ranges), low, high, from_theta)


def make_where_needed(key: Array, needed: Bool[Array, ""], make: Callable[[Array], Tree], otherwise: Tree) -> Tree:
    """Return `make(key)` where needed, at no cost to a batch in which nobody needs it.

    Under vmap a `cond` computes both branches, but a loop stops once nobody is left in it. The key depends on the
    loop's counter: what does not change in a loop is computed before it, needed or not.
    """
    start = (needed, jnp.zeros((), jnp.int32), otherwise)

    def body(carry):
        _, count, _ = carry
        return jnp.zeros((), bool), count + 1, make(jax.random.fold_in(key, count))

    return jax.lax.while_loop(lambda carry: carry[0], body, start)[2]


def sum_costs(env: Env, limit: float) -> Env:
    """Replace the costs by their sum, bounded by one limit (as in the paper's plots)."""
    spec = env.spec._replace(cost_names=("total",), cost_limits=check_limits((limit,), ("total",)))

    def step(key, state, action, params):
        state, out = env.step(key, state, action, params)
        return state, out._replace(costs=out.costs.sum(-1, keepdims=True))

    def imagined(theta, obs, action):
        assert env.physics is not None
        next_obs, reward, costs, terminated = env.physics.step(theta, obs, action)
        return next_obs, reward, costs.sum(-1, keepdims=True), terminated

    physics = None if env.physics is None else env.physics._replace(step=imagined)
    return env._replace(spec=spec, step=step, physics=physics)
