"""Distributions q over action sequences, one set of functions for each kind of action, and the settings of planning.

Discrete actions: a categorical distribution for each of the N steps, `[N, A]`; or, with `metric=cells`, P particles
over joint sequences, `[P, N, A]`, each the probabilities of one cell of the candidates: two ways stay two. Continuous
ones, scaled to [-1, 1]: P particles `[P, N, d]`, points of R^(N d). All random numbers of a decision and all that needs
no imagined state are drawn before the loop over the horizon (`prepare`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from awavo.config import setting
from awavo.inference.cells import compress
from awavo.inference.clouds import committed, nearness, to_box, to_unit
from awavo.inference.wvi import move_probabilities, resample
from awavo.networks.distributions import ActionDistribution
from awavo.transport.defining import Defining, LinearForms, Polynomial
from awavo.types import ActionSpace, Box, Discrete

__all__ = [
    "PlanningConfig", "Sequences", "action_defining", "candidate_noise", "is_joint", "plan_dim", "sequences", "shares",
    "slice_shape",
]  # fmt: skip

MAX_MONOMIAL_DIM = 4
# Shares of the candidates from the actor and from the shifted posterior; the rest are from the prior.
ACTOR_SHARE, MEMORY_SHARE = 0.5, 0.3
# Noise on the actor's proposals: chance of any action instead; standard deviation as a share of half the range.
DISCRETE_NOISE, BOX_NOISE = 0.2, 0.3
# Share of a continuous candidate's noise that lasts into its next step: what trembles goes nowhere.
LASTING = 0.5
# Chance of any action instead of one that a particle over joint sequences remembers.
JOINT_NOISE = 0.1
# Order k of A-GSWD.
ORDER = 2.0
# Steps that a decision's slices ascend; discrete actions: steps down A-GSWD in a decision.
ASCENT_STEPS, DESCENT_STEPS = 2, 4
# Slices that each cell of a decision's particles looks at: with two a decision takes a fifth longer.
LOOKED = 1


@dataclass(frozen=True)
class PlanningConfig:
    """Settings of the inference that decides."""

    discount: float = setting(0.99, "discount gamma of critics and plans", low=0.0, high=0.99999)
    planning: str = setting(
        "auto",
        "decide by inference in a learnt model (on), in the task's own physics with parameters identified from data "
        "(physics), or with the actor alone (off); auto: on or off by the rule of sizes",
        choices=("auto", "on", "physics", "off"),
    )
    horizon: int = setting(20, "steps N planned ahead", low=1, high=10_000)
    num_sequences: int = setting(128, "candidate action sequences K of a decision", low=2, high=1_000_000)
    num_particles: int = setting(
        32, "particles P of q: continuous actions, and discrete ones with metric=cells", low=2, high=100_000
    )
    metric: str = setting(
        "a-gswd",
        "what q is moved by; cells: a-gswd with particles over joint sequences of discrete actions too",
        choices=("a-gswd", "cells", "kl"),
    )
    slices: str = setting("adaptive", "slices from the actor's head, or drawn", choices=("adaptive", "random"))
    degree: int = setting(1, "odd degree m of the defining function; 1 for linear slices", low=1, high=9)
    num_slices: int = setting(8, "slices L", low=1, high=10_000)


class Sequences(NamedTuple):
    """What a planner does with q; `K` candidates, relaxed actions `[K]` or `[K, d]`.

    `start() -> q`; `shift(q)` one step later, its last step unknown again; `prepare(key, q)`, scanned over the steps;
    `propose(prepared, policy) -> actions`, from the policy at the first candidates; `execute(actions)`, as the
    environment takes them; `move(key, q, actions, weights, slices) -> (q, target, distance)`; `pick(key, q, greedy)`,
    an action of the first step; `draw(key, num)` random actions.
    """

    start: Callable[[], Array]
    shift: Callable[[Array], Array]
    prepare: Callable[[Array, Array], PyTree]
    propose: Callable[[PyTree, ActionDistribution], Array]
    execute: Callable[[Array], Array]
    move: Callable[[Array, Array, Array, Array, Array], tuple[Array, Array, Array]]
    pick: Callable[[Array, Array, bool], Array]
    draw: Callable[[Array, int], Array]


def is_joint(space: ActionSpace, config: PlanningConfig) -> bool:
    """Whether q is particles over whole sequences: always for continuous actions."""
    return config.metric == "cells" or not isinstance(space, Discrete)


def action_defining(space: ActionSpace, config: PlanningConfig) -> Defining:
    """The defining function of the space q lives in: monomials in few dimensions, powers of linear forms in many."""
    if isinstance(space, Discrete) and space.num <= MAX_MONOMIAL_DIM and not is_joint(space, config):
        return Polynomial(config.degree)
    return LinearForms(num_forms=1 if config.degree == 1 else 4, degree=config.degree)


def plan_dim(space: ActionSpace, config: PlanningConfig) -> int:
    """Dimension of the space that is sliced: one-hot actions, or whole sequences."""
    dim = space.num if isinstance(space, Discrete) else space.dim
    return config.horizon * dim if is_joint(space, config) else dim


def slice_shape(space: ActionSpace, config: PlanningConfig) -> tuple[int, int]:
    """(L, c) of one decision's slices."""
    return config.num_slices, action_defining(space, config).num_coefficients(plan_dim(space, config))


def shares(config: PlanningConfig) -> tuple[int, int, int]:
    """How many candidates come from the actor, from memory, from the prior."""
    actor = round(ACTOR_SHARE * config.num_sequences)
    memory = min(round(MEMORY_SHARE * config.num_sequences), config.num_sequences - actor)
    return actor, memory, config.num_sequences - actor - memory


def sequences(space: ActionSpace, config: PlanningConfig) -> Sequences:
    """Build the functions for an action space."""
    if not isinstance(space, Discrete):
        return _particles(space, config)
    return _joint(space, config) if is_joint(space, config) else _categorical(space, config)


def _proposals(
    space: Discrete, config: PlanningConfig, remembered: Callable[[Array], Float[Array, "N m A"]]
) -> tuple[Callable[[Array, Array], PyTree], Callable[[PyTree, ActionDistribution], Array]]:
    """`prepare` and `propose` of discrete actions; `remembered(q)` are the probabilities of the memory's candidates."""
    num, num_prior = space.num, shares(config)[2]

    def prepare(key, q):
        prior = jnp.full((config.horizon, num_prior, num), 1.0 / num)
        others = jnp.log(jnp.concatenate([remembered(q), prior], 1) + 1e-6)
        return jax.random.gumbel(key, (config.horizon, config.num_sequences, num)), others

    def propose(prepared, policy):
        noise, others = prepared
        # Log-probabilities plus Gumbel noise: the largest is a sample of each candidate's own distribution.
        mixed = (1 - DISCRETE_NOISE) * jax.nn.softmax(policy.logits) + DISCRETE_NOISE / num
        return jnp.argmax(jnp.concatenate([jnp.log(mixed), others]) + noise, -1)

    return prepare, propose


def _categorical(space: Discrete, config: PlanningConfig) -> Sequences:
    horizon, num, num_memory = config.horizon, space.num, shares(config)[1]
    defining = action_defining(space, config)
    prepare, propose = _proposals(space, config, lambda q: jnp.broadcast_to(q[:, None], (horizon, num_memory, num)))

    def move(key, q, actions, weights, slices):
        target = jnp.einsum("k,nka->na", weights, jax.nn.one_hot(actions, num))
        if config.metric == "kl":
            return target, target, jnp.zeros(())
        moved, left = move_probabilities(q, target, slices, defining=defining, order=ORDER, num_steps=DESCENT_STEPS)
        return moved, target, jnp.mean(left)

    def pick(key, q, greedy):
        return jnp.argmax(q[0]) if greedy else jax.random.categorical(key, jnp.log(q[0] + 1e-9))

    return Sequences(
        start=lambda: jnp.full((horizon, num), 1.0 / num),
        shift=lambda q: jnp.concatenate([q[1:], jnp.full_like(q[:1], 1.0 / num)]),
        prepare=prepare,
        propose=propose,
        execute=lambda actions: actions,
        move=move,
        pick=pick,
        draw=lambda key, count: jax.random.randint(key, (count,), 0, num),
    )


def _joint(space: Discrete, config: PlanningConfig) -> Sequences:
    horizon, num, count, num_memory = config.horizon, space.num, config.num_particles, shares(config)[1]
    defining = action_defining(space, config)

    def remembered(q):
        # Drawn around each particle as its neighbours mix: what one mode has found is joined, what two have is not.
        near = nearness(q.reshape(count, -1))
        mixed = jnp.einsum("pr,rna->npa", near / near.sum(1, keepdims=True), q)
        return ((1 - JOINT_NOISE) * mixed + JOINT_NOISE / num)[:, jnp.arange(num_memory) % count]

    def move(key, q, actions, weights, slices):
        # A whole sequence is one point of R^(N A); the mean of a cell is the probabilities of its actions.
        target = jnp.swapaxes(jax.nn.one_hot(actions, num), 0, 1).reshape(config.num_sequences, -1)
        steps = ASCENT_STEPS if config.slices == "adaptive" else 0
        flat, distance = compress(target, weights, slices, count, defining=defining, num_steps=steps, looked=LOOKED)
        return committed(flat, q[0].reshape(-1)).reshape(q.shape), target, distance

    def pick(key, q, greedy):
        near = nearness(q.reshape(count, -1))[0]
        first = near @ q[:, 0] / near.sum()
        return jnp.argmax(first) if greedy else jax.random.categorical(key, jnp.log(first + 1e-9))

    prepare, propose = _proposals(space, config, remembered)
    return Sequences(
        start=lambda: jnp.full((count, horizon, num), 1.0 / num),
        shift=lambda q: jnp.concatenate([q[:, 1:], jnp.full_like(q[:, :1], 1.0 / num)], 1),
        prepare=prepare,
        propose=propose,
        execute=lambda actions: actions,
        move=move,
        pick=pick,
        draw=lambda key, total: jax.random.randint(key, (total,), 0, num),
    )


def candidate_noise(key: Array, shape: tuple[int, int, int]) -> Float[Array, "N K d"]:
    """Standard normal at every one of N steps; LASTING of it remains in the next step."""
    ago = np.subtract.outer(np.arange(shape[0]), np.arange(shape[0]))
    mixing = np.where(ago >= 0, LASTING ** np.maximum(ago, 0), 0.0)
    mixing[:, 1:] *= np.sqrt(1 - LASTING**2)
    return jnp.einsum("nm,mkd->nkd", jnp.asarray(mixing, jnp.float32), jax.random.normal(key, shape))


def _particles(space: Box, config: PlanningConfig) -> Sequences:
    num_actor, num_memory, num_prior = shares(config)
    horizon, dim, num = config.horizon, space.dim, config.num_particles
    defining = action_defining(space, config)

    def prepare(key, q):
        actor_key, noise_key, prior_key = jax.random.split(key, 3)
        # Memory candidates are particles again, each as often as it takes.
        rows = jnp.swapaxes(q, 0, 1)[:, jnp.arange(num_memory) % num]
        noise = BOX_NOISE * candidate_noise(noise_key, (horizon, num_actor + num_memory, dim))
        prior = jax.random.uniform(prior_key, (horizon, num_prior, dim), minval=-1.0, maxval=1.0)
        others = jnp.concatenate([rows + noise[:, num_actor:], prior], 1)
        return jax.random.split(actor_key, horizon), noise[:, :num_actor], jnp.clip(others, -1.0, 1.0)

    def propose(prepared, policy):
        key, noise, others = prepared
        actor = to_unit(space, policy.sample(key)) + noise
        return jnp.concatenate([jnp.clip(actor, -1.0, 1.0), others])

    def move(key, q, actions, weights, slices):
        # A whole sequence is one point of R^(N d).
        target = jnp.swapaxes(actions, 0, 1).reshape(config.num_sequences, -1)
        if config.metric == "kl":
            flat, distance = target[resample(key, weights, num)], jnp.zeros(())
        else:
            steps = ASCENT_STEPS if config.slices == "adaptive" else 0
            flat, distance = compress(target, weights, slices, num, defining=defining, num_steps=steps, looked=LOOKED)
        return committed(flat, q[0].reshape(-1)).reshape(q.shape), target, distance

    def pick(key, q, greedy):
        near = nearness(q.reshape(num, -1))[0]
        if greedy:
            return to_box(space, near @ q[:, 0] / near.sum())
        return to_box(space, q[jax.random.categorical(key, jnp.log(near + 1e-9)), 0])

    return Sequences(
        # At the centre: the prior's candidates spread them.
        start=lambda: jnp.zeros((num, horizon, dim)),
        shift=lambda q: jnp.concatenate([q[:, 1:], q[:, -1:]], 1),
        prepare=prepare,
        propose=propose,
        execute=lambda actions: to_box(space, actions),
        move=move,
        pick=pick,
        draw=lambda key, count: to_box(space, jax.random.uniform(key, (count, dim), minval=-1.0, maxval=1.0)),
    )
