"""Distributions q over action sequences, one set of functions for each kind of action, and the settings of planning.

Discrete actions: a categorical distribution for each of the N steps, `[N, A]`. Continuous ones, scaled to [-1, 1]: P
particles `[P, N, d]`, points of R^(N d). All random numbers of a decision and all that needs no imagined state are
drawn before the loop over the horizon (`prepare`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from awavo.config import setting
from awavo.inference.cells import compress
from awavo.inference.wvi import move_probabilities, resample
from awavo.networks.distributions import ActionDistribution, SquashedGaussian, SquashedMixture
from awavo.transport.defining import Defining, LinearForms, Polynomial
from awavo.types import ActionSpace, Box, Discrete

__all__ = [
    "PlanningConfig", "Sequences", "action_defining", "plan_dim", "policy_cloud", "sequences", "shares", "slice_shape",
    "to_box", "to_unit",
]  # fmt: skip

MAX_MONOMIAL_DIM = 4
# Shares of the candidates from the actor and from the shifted posterior; the rest are from the prior.
ACTOR_SHARE, MEMORY_SHARE = 0.5, 0.3
# Noise on the actor's proposals: chance of any action instead; standard deviation as a share of half the range.
DISCRETE_NOISE, BOX_NOISE = 0.2, 0.3
# Order k of A-GSWD.
ORDER = 2.0
# Steps that a decision's slices ascend; discrete actions: steps down A-GSWD in a decision.
ASCENT_STEPS, DESCENT_STEPS = 1, 4
# Share of the pairs of particles taken for neighbours, whose distance is the width of a mode; how much more the mode
# of the step before counts.
NEIGHBOURS, STAY = 0.25, 0.5


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
    num_particles: int = setting(32, "continuous actions: particles P of q", low=2, high=100_000)
    metric: str = setting("a-gswd", "what q is moved by", choices=("a-gswd", "kl"))
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


def action_defining(space: ActionSpace, config: PlanningConfig) -> Defining:
    """The defining function of the space q lives in: monomials in few dimensions, powers of linear forms in many."""
    if isinstance(space, Discrete) and space.num <= MAX_MONOMIAL_DIM:
        return Polynomial(config.degree)
    return LinearForms(num_forms=1 if config.degree == 1 else 4, degree=config.degree)


def plan_dim(space: ActionSpace, config: PlanningConfig) -> int:
    """Dimension of the space that is sliced: one-hot actions, or whole sequences of continuous ones."""
    return space.num if isinstance(space, Discrete) else config.horizon * space.dim


def slice_shape(space: ActionSpace, config: PlanningConfig) -> tuple[int, int]:
    """(L, c) of one decision's slices."""
    return config.num_slices, action_defining(space, config).num_coefficients(plan_dim(space, config))


def to_box(space: Box, unit: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """From [-1, 1] to the box."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (high + low) / 2 + (high - low) / 2 * jnp.clip(unit, -1.0, 1.0)


def to_unit(space: Box, action: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """From the box to [-1, 1]."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (2 * action - high - low) / (high - low)


def policy_cloud(
    key: Array, dist: SquashedGaussian | SquashedMixture, num: int, space: Box
) -> tuple[Float[Array, "B n d"], Float[Array, "B n"]]:
    """Draws of the policy in each state, in [-1, 1], and their weights: of a mixture as many of every component.

    Weights carry the gradient of the components' shares, which draws of one component or another would not have.
    """
    if isinstance(dist, SquashedGaussian):
        mean, log_std = (jnp.broadcast_to(x, (num, *x.shape)) for x in (dist.mean, dist.log_std))
        drawn = jnp.swapaxes(SquashedGaussian(mean, log_std, dist.low, dist.high).sample(key), 0, 1)
        return to_unit(space, drawn), jnp.full(drawn.shape[:2], 1.0 / num)
    each = -(-num // dist.logits.shape[-1])
    drawn = jax.vmap(dist.components().sample)(jax.random.split(key, each))  # [each, B, C, d]
    points = jnp.moveaxis(drawn, 0, 1).reshape(drawn.shape[1], -1, drawn.shape[-1])
    return to_unit(space, points), jnp.tile(jax.nn.softmax(dist.logits) / each, (1, each))


def shares(config: PlanningConfig) -> tuple[int, int, int]:
    """How many candidates come from the actor, from memory, from the prior."""
    actor = round(ACTOR_SHARE * config.num_sequences)
    memory = min(round(MEMORY_SHARE * config.num_sequences), config.num_sequences - actor)
    return actor, memory, config.num_sequences - actor - memory


def sequences(space: ActionSpace, config: PlanningConfig) -> Sequences:
    """Build the functions for an action space."""
    return _categorical(space, config) if isinstance(space, Discrete) else _particles(space, config)


def _categorical(space: Discrete, config: PlanningConfig) -> Sequences:
    _, num_memory, num_prior = shares(config)
    horizon, num = config.horizon, space.num
    defining = action_defining(space, config)

    def prepare(key, q):
        memory = jnp.broadcast_to(q[:, None], (horizon, num_memory, num))
        prior = jnp.full((horizon, num_prior, num), 1.0 / num)
        others = jnp.log(jnp.concatenate([memory, prior], 1) + 1e-6)
        return jax.random.gumbel(key, (horizon, config.num_sequences, num)), others

    def propose(prepared, policy):
        noise, others = prepared
        # Log-probabilities plus Gumbel noise: the largest is a sample of each candidate's own distribution.
        mixed = (1 - DISCRETE_NOISE) * jax.nn.softmax(policy.logits) + DISCRETE_NOISE / num
        return jnp.argmax(jnp.concatenate([jnp.log(mixed), others]) + noise, -1)

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


def _particles(space: Box, config: PlanningConfig) -> Sequences:
    num_actor, num_memory, num_prior = shares(config)
    horizon, dim, num = config.horizon, space.dim, config.num_particles
    defining = action_defining(space, config)

    def prepare(key, q):
        actor_key, noise_key, prior_key = jax.random.split(key, 3)
        # Memory candidates are particles again, each as often as it takes.
        rows = jnp.swapaxes(q, 0, 1)[:, jnp.arange(num_memory) % num]
        noise = BOX_NOISE * jax.random.normal(noise_key, (horizon, num_actor + num_memory, dim))
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
            flat, distance = compress(target, weights, slices, num, defining=defining, num_steps=steps)
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


def nearness(points: Float[Array, "P D"], others: Float[Array, "Q D"] | None = None) -> Float[Array, "P Q"]:
    """exp(-d^2 / (2 h^2)) between points (and others), h the distance within which a share of their pairs lies."""
    squares = jnp.sum((points[:, None] - points) ** 2, -1)
    apart = jnp.where(jnp.eye(points.shape[0], dtype=bool), jnp.nan, squares)
    width = jnp.maximum(jnp.nanquantile(apart, NEIGHBOURS), 1e-12)
    if others is not None:
        squares = jnp.sum((points[:, None] - others) ** 2, -1)
    return jnp.exp(-0.5 * squares / width)


def committed(points: Float[Array, "P D"], before: Float[Array, " D"]) -> Float[Array, "P D"]:
    """The points with the centre of the heaviest mode first; the mode that `before` lies in counts for more.

    Between two ways round an obstacle the mean is the obstacle, and two equal ways would be taken in turn.
    """
    density = nearness(points).mean(1) * (1.0 + STAY * nearness(points, before[None])[:, 0])
    first = jnp.argmax(density)
    return points.at[0].set(points[first]).at[first].set(points[0])
