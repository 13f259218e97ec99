r"""After planning: the actor learns the stored posteriors, the slicing head learns where measures differ.

.. code-block:: text

    actor:  descend  mean_s A-GSWD(pi(.|s), q_s)                     slices of s, without gradient
    head:   ascend   mean_s A-GSWD(q_s before, nu_s) - diversity     no gradient into the actor

Slices are functions of the state alone: the distance of each state stays a pseudo-metric while the head learns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from awavo.algorithms.actor_critic import MAX_GRAD_NORM
from awavo.algorithms.orpo_dr import OrpoDrConfig
from awavo.inference.clouds import policy_cloud, to_box
from awavo.inference.sequences import ORDER, PlanningConfig, action_defining, is_joint, plan_dim
from awavo.inference.wvi import categorical_gswd
from awavo.networks import (
    ActionDistribution,
    Actor,
    Categorical,
    RunningStatistics,
    SquashedGaussian,
    SquashedMixture,
    normalize,
)
from awavo.networks.optimize import adam, all_finite, choose, descend, optimizer_state
from awavo.networks.slicing import SlicingHead, diversity_loss
from awavo.transport import adaptive_gswd
from awavo.types import ActionSpace, Box, Discrete, EnvSpec, Rollout

__all__ = [
    "AmortizationConfig",
    "Amortizer",
    "PlanRecord",
    "Posteriors",
    "amortizer",
    "empty_posteriors",
    "store",
]

# States of a rollout on which the slices are turned; Adam's step sizes of the slicing head and towards posteriors;
# gradient steps of the head after each rollout; weight of the slices' diversity in units of the distance; decisions
# stored; gradient steps of the critics for each step to stored posteriors.
MAX_PAIRS, SLICE_LR, AMORTIZE_LR, SLICE_UPDATES, DIVERSITY = 64, 1e-3, 5e-4, 2, 0.5
POSTERIORS, UPDATES_PER_PULL = 8_000, 4


@dataclass(frozen=True)
class AmortizationConfig(PlanningConfig, OrpoDrConfig):
    """Settings that learning from decisions depends on."""


class PlanRecord(NamedTuple):
    """What learning needs of a decision: q before and after, the target measure, and how peaked it was."""

    before: Array
    after: Array
    target: Array
    weights: Array
    effective_size: Array
    distance: Array


class Posteriors(NamedTuple):
    """A ring of states and the posterior of their first action: probabilities `[A]`, or particles `[P, d]`."""

    obs: Float[Array, "N d"]
    first: Array
    added: Int[Array, ""]


class Amortizer(NamedTuple):
    """What is learnt from decisions.

    `init(actor, head)` gives the optimisers' states; `pull(key, actor, opt, head, obs_stats, posteriors, env_steps)`
    moves the actor to stored posteriors, `ascend(head, opt, actor, obs_stats, rollout)` turns the head's slices to
    where q and nu differ. Both return what they moved, its optimiser's state, and the distance they saw.
    """

    init: Callable[[Actor, SlicingHead], tuple[optax.OptState, optax.OptState]]
    pull: Callable[..., tuple[Actor, optax.OptState, Array]]
    ascend: Callable[..., tuple[SlicingHead, optax.OptState, Array]]


def empty_posteriors(spec: EnvSpec, config: AmortizationConfig) -> Posteriors:
    """Allocate the ring, a whole number of rollouts."""
    rows = config.num_envs * config.rollout_length
    capacity = -(-POSTERIORS // rows) * rows
    space = spec.action_space
    shape = (space.num,) if isinstance(space, Discrete) else (config.num_particles, space.dim)
    zero = jnp.zeros((), jnp.int32)
    return Posteriors(jnp.zeros((capacity, spec.obs_dim)), jnp.zeros((capacity, *shape)), zero)


def store(posteriors: Posteriors, rollout: Rollout, spec: EnvSpec) -> Posteriors:
    """Overwrite the oldest rows with the states of a rollout and the posteriors of their first actions."""
    after = rollout.extras.after
    first = after if isinstance(spec.action_space, Discrete) else after[..., 0, :]
    rows = (_flat(rollout.obs), _flat(first))
    place = posteriors.added % posteriors.obs.shape[0]
    obs, first = (
        jax.lax.dynamic_update_slice_in_dim(ring, new, place, 0) for ring, new in zip(posteriors[:2], rows, strict=True)
    )
    return Posteriors(obs, first, posteriors.added + rows[0].shape[0])


def amortizer(spec: EnvSpec, config: AmortizationConfig) -> Amortizer:
    """Build what AWaVO learns from its decisions."""
    head_optimizer, actor_optimizer = (adam(lr, MAX_GRAD_NORM) for lr in (SLICE_LR, AMORTIZE_LR))
    defining = action_defining(spec.action_space, config)

    def init(actor: Actor, head: SlicingHead) -> tuple[optax.OptState, optax.OptState]:
        return optimizer_state(head_optimizer, head), optimizer_state(actor_optimizer, actor)

    def pull(
        key: Array, actor: Actor, opt: optax.OptState, head: SlicingHead, obs_stats: RunningStatistics,
        posteriors: Posteriors, env_steps: Array,
    ) -> tuple[Actor, optax.OptState, Float[Array, ""]]:  # fmt: skip
        stored = jnp.minimum(posteriors.added, posteriors.obs.shape[0])

        def loss(actor, key, obs, first):
            dist = actor(obs)
            slices = head(actor.net.hidden(obs))
            return jnp.mean(policy_distance(key, dist, first, slices, spec, config))

        def update(carry, key):
            actor, opt = carry
            row_key, draw_key = jax.random.split(key)
            rows = jax.random.randint(row_key, (config.batch_size,), 0, stored)
            obs = normalize(obs_stats, posteriors.obs[rows])
            value, grads = jax.value_and_grad(loss)(actor, draw_key, obs, posteriors.first[rows])
            return descend(actor_optimizer, grads, opt, actor), value

        # Decisions made while warming up were random.
        ready = env_steps > config.warmup_steps
        keys = jax.random.split(key, -(-config.num_updates // UPDATES_PER_PULL))
        (new, new_opt), losses = jax.lax.scan(update, (actor, opt), keys)
        finite = all_finite(new)
        actor, opt = choose(ready & finite, (new, new_opt), (actor, opt))
        return actor, opt, jnp.mean(losses)

    def ascend(
        head: SlicingHead, opt: optax.OptState, actor: Actor, obs_stats: RunningStatistics, rollout: Rollout
    ) -> tuple[SlicingHead, optax.OptState, Float[Array, ""]]:
        if config.slices == "random" or config.metric == "kl":
            return head, opt, jnp.zeros(())
        record: PlanRecord = rollout.extras
        rows = jnp.linspace(0, rollout.reward.size - 1, min(MAX_PAIRS, rollout.reward.size)).astype(jnp.int32)
        obs, before, target, weights = (
            _flat(x)[rows] for x in (rollout.obs, record.before, record.target, record.weights)
        )
        hidden = actor.net.hidden(normalize(obs_stats, obs))

        def seen(slices: Float[Array, "B L c"]) -> Float[Array, " B"]:
            if not is_joint(spec.action_space, config):
                return categorical_gswd(before, target, slices, defining=defining, order=ORDER)
            flat = before.reshape(*before.shape[:2], -1)
            distance = partial(adaptive_gswd, learn_slices=True, defining=defining, order=ORDER)
            return jax.vmap(lambda x, y, w, s: distance(x, y, s, y_weights=w))(flat, target, weights, slices)

        def loss(head):
            slices = head(hidden)
            distance = jnp.mean(seen(slices))
            # Relative to itself: the pull of the diversity does not fade as q nears nu.
            scale = jax.lax.stop_gradient(distance) + 1e-9
            return DIVERSITY * jnp.mean(diversity_loss(slices)) - distance / scale, distance

        def update(carry, _):
            head, opt = carry
            (_, distance), grads = jax.value_and_grad(loss, has_aux=True)(head)
            return descend(head_optimizer, grads, opt, head), distance

        (new, new_opt), distances = jax.lax.scan(update, (head, opt), None, length=SLICE_UPDATES)
        head, opt = choose(all_finite(new), (new, new_opt), (head, opt))
        return head, opt, distances[-1]

    return Amortizer(init, pull, ascend)


def policy_distance(
    key: Array, dist: ActionDistribution, first: Array, slices: Float[Array, "B L c"], spec: EnvSpec,
    config: AmortizationConfig,
) -> Float[Array, " B"]:  # fmt: skip
    """How far the policy is from the posterior in each state: A-GSWD, or the cross-entropy."""
    space = spec.action_space
    defining = action_defining(space, config)
    if isinstance(dist, Categorical):
        if config.metric == "kl":
            return -jnp.sum(first * dist.log_probs(), -1)
        slices = jax.lax.stop_gradient(slices)
        slices = first_action(slices, space, config) if is_joint(space, config) else slices
        return categorical_gswd(jax.nn.softmax(dist.logits), first, slices, defining=defining, order=ORDER)
    assert isinstance(space, Box)
    if config.metric == "kl" and isinstance(dist, SquashedMixture):
        return -jnp.mean(jax.vmap(dist.log_prob)(to_box(space, 0.999 * jnp.swapaxes(first, 0, 1))), 0)
    if config.metric == "kl":
        # Log-density before squashing; what squashing adds does not depend on the policy.
        inner = jnp.arctanh(jnp.clip(jnp.swapaxes(first, 0, 1), -0.999, 0.999))
        score = -0.5 * ((inner - dist.mean) / jnp.exp(dist.log_std)) ** 2 - dist.log_std
        return -jnp.mean(jnp.sum(score, -1), 0)
    drawn, chances = policy_cloud(key, dist, config.num_particles, space)
    forms = first_action(slices, space, config)
    if isinstance(dist, SquashedGaussian):  # equal weights, which sort faster
        distance = jax.vmap(lambda x, y, rows: adaptive_gswd(x, y, rows, defining=defining, order=ORDER))
        return distance(drawn, first, forms)
    weighted = jax.vmap(lambda x, w, y, rows: adaptive_gswd(x, y, rows, x_weights=w, defining=defining, order=ORDER))
    return weighted(drawn, chances, first, forms)


def first_action(slices: Float[Array, "B L c"], space: ActionSpace, config: PlanningConfig) -> Float[Array, "B L f"]:
    """The first action's coordinates of every linear form of slices of whole sequences."""
    dim = plan_dim(space, config)
    forms = slices.reshape(*slices.shape[:2], -1, dim)[..., : dim // config.horizon]
    return forms.reshape(*slices.shape[:2], -1)


def _flat(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])
