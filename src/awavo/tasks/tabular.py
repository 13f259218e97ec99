"""Finite constrained MDPs, small enough for exact work: random Garnets and a grid with hazards.

`tabular(cmdp)` turns one into an environment with one-hot observations, so that the same algorithms run on it;
`policy_values` gives the exact undiscounted episode totals of a policy by backward induction over the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.checks import check_limits
from awavo.errors import InputError
from awavo.tasks.base import Transition, auto_reset
from awavo.types import Discrete, Env, EnvSpec

__all__ = ["CMDP", "garnet", "garnet_cmdp", "hazard_grid", "hazard_grid_cmdp", "policy_values", "tabular"]


MAX_TABLE = 10**8  # entries of the table of transitions


class CMDP(NamedTuple):
    """A finite constrained MDP that never terminates by itself. `signals` are the reward, then the costs."""

    transition: Float[Array, "S A S"]
    signals: Float[Array, "signals S A"]
    initial: Float[Array, " S"]


def tabular(cmdp: CMDP, *, name: str, cost_limits: Sequence[float], horizon: int) -> Env:
    """Build an environment with one-hot observations of the state."""
    num_states, num_actions, _ = cmdp.transition.shape
    names = tuple(f"g{i}" for i in range(1, cmdp.signals.shape[0]))
    spec = EnvSpec(name, num_states, Discrete(num_actions), horizon, names, check_limits(cost_limits, names))

    def observe(state):
        return jax.nn.one_hot(state, num_states)

    def reset(key, params):
        state = jax.random.categorical(key, jnp.log(params.initial))
        return state, observe(state)

    def step(key, state, action, params):
        signals = params.signals[:, state, action]
        state = jax.random.categorical(key, jnp.log(params.transition[state, action]))
        return state, Transition(observe(state), signals[0], signals[1:], jnp.zeros((), bool))

    return auto_reset(spec, cmdp, reset, step)


def policy_values(cmdp: CMDP, policy: Float[Array, "S A"], horizon: int) -> Float[Array, " signals"]:
    """Exact expected undiscounted totals of reward and costs over an episode of `horizon` steps."""

    def backward(values, _):
        q = cmdp.signals + jnp.einsum("sat,it->isa", cmdp.transition, values)
        return jnp.einsum("sa,isa->is", policy, q), None

    start = jnp.zeros((cmdp.signals.shape[0], cmdp.transition.shape[0]), cmdp.signals.dtype)
    values, _ = jax.lax.scan(backward, start, None, length=horizon)
    return values @ cmdp.initial


def garnet_cmdp(
    num_states: int = 20, num_actions: int = 4, branching: int = 3, num_costs: int = 2, seed: int = 0
) -> CMDP:
    """Random CMDP: each (s, a) reaches `branching` random states with random weights; signals are uniform on [0, 1]."""
    if min(num_states, num_actions, num_costs) < 1 or num_states**2 * num_actions > MAX_TABLE or seed < 0:
        raise InputError(
            f"num_states={num_states}, num_actions={num_actions}, num_costs={num_costs} and seed={seed}: expected at "
            f"least 1, 1, 1 and 0, and at most {MAX_TABLE:g} transitions."
        )
    if not 1 <= branching <= num_states:
        raise InputError(f"branching={branching} must lie between 1 and num_states={num_states}.")
    rng = np.random.default_rng(seed)
    transition = np.zeros((num_states, num_actions, num_states), np.float32)
    # The order of the draws is part of the task: a seed names one CMDP.
    for s in range(num_states):
        for a in range(num_actions):
            reached = rng.choice(num_states, branching, replace=False)
            transition[s, a, reached] = rng.dirichlet(np.ones(branching))
    signals = rng.uniform(size=(1 + num_costs, num_states, num_actions)).astype(np.float32)
    initial = np.full(num_states, 1 / num_states, np.float32)
    return CMDP(jnp.asarray(transition), jnp.asarray(signals), jnp.asarray(initial))


def garnet(
    *,
    cost_limits: Sequence[float] | None = None,
    horizon: int = 50,
    num_states: int = 20,
    num_actions: int = 4,
    branching: int = 3,
    num_costs: int = 2,
    seed: int = 0,
) -> Env:
    """Garnet as a task; the default limits are 90% of the uniform policy's cost."""
    cmdp = garnet_cmdp(num_states, num_actions, branching, num_costs, seed)
    if cost_limits is None:
        uniform = jnp.full((num_states, num_actions), 1 / num_actions)
        cost_limits = [0.9 * float(v) for v in policy_values(cmdp, uniform, horizon)[1:]]
    return tabular(cmdp, name="garnet", cost_limits=cost_limits, horizon=horizon)


def hazard_grid_cmdp(size: int = 6, slip: float = 0.1) -> CMDP:
    """A square grid: +1 in the far corner, cost 1 on a diagonal of hazards, cost 0.2 for each move north or west.

    The four actions move east, north, west, south and slip to a random one with probability `slip`; walls keep the
    place.
    """
    if size < 3 or 4 * size**4 > MAX_TABLE or not 0 <= slip < 1:
        raise InputError(f"size={size} must lie between 3 and {(MAX_TABLE / 4) ** 0.25:.0f} and slip={slip} in [0, 1).")
    num_states = size * size
    moves = ((1, 0), (0, 1), (-1, 0), (0, -1))
    intended = np.zeros((num_states, 4, num_states))
    for s in range(num_states):
        x, y = s % size, s // size
        for a, (dx, dy) in enumerate(moves):
            reached = np.clip(x + dx, 0, size - 1) + size * np.clip(y + dy, 0, size - 1)
            intended[s, a, reached] = 1
    # A slip takes any of the four actions, the intended one too.
    transition = (1 - slip) * intended + slip * intended.mean(1, keepdims=True)
    x, y = np.arange(num_states) % size, np.arange(num_states) // size
    signals = np.zeros((3, num_states, 4))
    signals[0, num_states - 1] = 1  # the far corner
    signals[1] = ((x + y == size - 1) & (x != 0) & (x != size - 1))[:, None]
    signals[2, :, 1:3] = 0.2
    initial = np.eye(num_states)[0]
    return CMDP(*(jnp.asarray(v, jnp.float32) for v in (transition, signals, initial)))


def hazard_grid(
    *, cost_limits: Sequence[float] = (0.5, 5.0), horizon: int = 50, size: int = 6, slip: float = 0.1
) -> Env:
    """The hazard grid as a task."""
    return tabular(hazard_grid_cmdp(size, slip), name="hazard-grid", cost_limits=cost_limits, horizon=horizon)
