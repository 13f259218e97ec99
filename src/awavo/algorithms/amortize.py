r"""After planning: the actor learns the stored posteriors, the slicing head learns where measures differ.

.. code-block:: text

    actor:  descend  mean_s A-GSWD(pi(.|s), q_s)                     slices of s, without gradient
    head:   ascend   mean_s A-GSWD(q_s before, nu_s) - diversity     no gradient into the actor

Slices are functions of the state alone: the distance of each state stays a pseudo-metric while the head learns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from awavo.algorithms.awavo_config import AwavoConfig
from awavo.inference.sequences import action_defining, to_unit
from awavo.inference.wvi import categorical_gswd
from awavo.networks import SquashedGaussian, diversity_loss, normalize
from awavo.networks.optimize import descend
from awavo.transport import adaptive_gswd
from awavo.types import Discrete, EnvSpec, Rollout

__all__ = ["Posteriors", "amortize", "ascend_slices", "empty_posteriors", "posterior_rows", "store"]

MAX_PAIRS = 64


class Posteriors(NamedTuple):
    """A ring of states and the posterior of their first action: probabilities `[A]`, or particles `[P, d]`."""

    obs: Float[Array, "N d"]
    first: Array
    added: Int[Array, ""]


def empty_posteriors(spec: EnvSpec, config: AwavoConfig) -> Posteriors:
    """Allocate the ring, a whole number of rollouts."""
    rows = config.num_envs * config.rollout_length
    capacity = -(-config.posterior_capacity // rows) * rows
    space = spec.action_space
    shape = (space.num,) if isinstance(space, Discrete) else (config.num_particles, space.dim)
    zero = jnp.zeros((), jnp.int32)
    return Posteriors(jnp.zeros((capacity, spec.obs_dim)), jnp.zeros((capacity, *shape)), zero)


def posterior_rows(rollout: Rollout, spec: EnvSpec) -> tuple[Array, Array]:
    """States of a rollout and the posteriors of their first actions."""
    after = rollout.extras.after
    first = after if isinstance(spec.action_space, Discrete) else after[..., 0, :]
    return _flat(rollout.obs), _flat(first)


def store(posteriors: Posteriors, rows: tuple[Array, Array]) -> Posteriors:
    """Overwrite the oldest rows."""
    place = posteriors.added % posteriors.obs.shape[0]
    obs, first = (
        jax.lax.dynamic_update_slice_in_dim(ring, new, place, 0) for ring, new in zip(posteriors[:2], rows, strict=True)
    )
    return Posteriors(obs, first, posteriors.added + rows[0].shape[0])


def amortize(
    key: Array, state: Any, spec: EnvSpec, config: AwavoConfig, optimizer: optax.GradientTransformation
) -> tuple[Any, Float[Array, ""]]:
    """Pull the actor to stored posteriors; return the state and the mean loss."""
    if config.amortize_updates == 0:
        return state, jnp.zeros(())
    stats, posteriors = state.orpo.obs_stats, state.posteriors
    stored = jnp.minimum(posteriors.added, posteriors.obs.shape[0])

    def loss(actor, key, obs, first):
        dist = actor(obs)
        slices = state.head(actor.net.hidden(obs))
        return jnp.mean(policy_distance(key, dist, first, slices, spec, config))

    def update(carry, key):
        actor, opt = carry
        row_key, draw_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (config.batch_size,), 0, stored)
        obs = normalize(stats, posteriors.obs[rows])
        value, grads = jax.value_and_grad(loss)(actor, draw_key, obs, posteriors.first[rows])
        return descend(optimizer, grads, opt, actor), value

    learner = state.orpo.learner
    ready = state.orpo.replay.added > config.warmup_steps
    keys = jax.random.split(key, config.amortize_updates)
    (actor, opt), losses = jax.lax.scan(update, (learner.actor, state.amortize_opt), keys)
    finite = jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), actor))
    actor, opt = jax.tree.map(
        lambda new, old: jnp.where(ready & finite, new, old), (actor, opt), (learner.actor, state.amortize_opt)
    )
    orpo = state.orpo._replace(learner=learner._replace(actor=actor))
    return state._replace(orpo=orpo, amortize_opt=opt), jnp.mean(losses)


def policy_distance(
    key: Array, dist: Any, first: Array, slices: Float[Array, "B L c"], spec: EnvSpec, config: AwavoConfig
) -> Float[Array, " B"]:
    """How far the policy is from the posterior in each state: A-GSWD, or the cross-entropy."""
    space = spec.action_space
    defining = action_defining(spec.action_space, config)
    if isinstance(space, Discrete):
        if config.metric == "kl":
            return -jnp.sum(first * dist.log_probs(), -1)
        slices = jax.lax.stop_gradient(slices)
        return categorical_gswd(jax.nn.softmax(dist.logits), first, slices, defining=defining, order=config.order)
    if config.metric == "kl":
        inner = jnp.arctanh(jnp.clip(jnp.swapaxes(first, 0, 1), -0.999, 0.999))
        score = -0.5 * ((inner - dist.mean) / jnp.exp(dist.log_std)) ** 2 - dist.log_std
        return -jnp.mean(jnp.sum(score, -1), 0)
    mean, log_std = (jnp.broadcast_to(x, (config.num_particles, *x.shape)) for x in (dist.mean, dist.log_std))
    drawn = to_unit(space, SquashedGaussian(mean, log_std, dist.low, dist.high).sample(key))
    # The first action's coordinates of every linear form.
    forms = slices.reshape(*slices.shape[:2], -1, config.horizon * space.dim)[..., : space.dim]
    forms = forms.reshape(*slices.shape[:2], -1)
    distance = jax.vmap(lambda x, y, rows: adaptive_gswd(x, y, rows, defining=defining, order=config.order))
    return distance(jnp.swapaxes(drawn, 0, 1), first, forms)


def ascend_slices(
    state: Any, rollout: Rollout, spec: EnvSpec, config: AwavoConfig, optimizer: optax.GradientTransformation
) -> tuple[Any, Float[Array, ""]]:
    """Turn the head's slices to where q and nu differ; return the state and the distance they now see."""
    if config.slice_updates == 0 or config.slices == "random" or config.metric == "kl":
        return state, jnp.zeros(())
    record = rollout.extras
    rows = jnp.linspace(0, rollout.reward.size - 1, min(MAX_PAIRS, rollout.reward.size)).astype(jnp.int32)
    obs, before, target, weights = (_flat(x)[rows] for x in (rollout.obs, record.before, record.target, record.weights))
    hidden = state.orpo.learner.actor.net.hidden(normalize(state.orpo.obs_stats, obs))
    defining = action_defining(spec.action_space, config)
    options: dict[str, Any] = dict(defining=defining, order=config.order)

    def seen(slices):
        if isinstance(spec.action_space, Discrete):
            return categorical_gswd(before, target, slices, **options)
        flat = before.reshape(*before.shape[:2], -1)
        measure = jax.vmap(lambda x, y, w, s: adaptive_gswd(x, y, s, y_weights=w, learn_slices=True, **options))
        return measure(flat, target, weights, slices)

    def loss(head):
        slices = head(hidden)
        distance = jnp.mean(seen(slices))
        scale = jax.lax.stop_gradient(distance) + 1e-9
        return config.diversity * jnp.mean(diversity_loss(slices)) - distance / scale, distance

    def update(carry, _):
        head, opt = carry
        (_, distance), grads = jax.value_and_grad(loss, has_aux=True)(head)
        return descend(optimizer, grads, opt, head), distance

    (head, opt), distances = jax.lax.scan(update, (state.head, state.head_opt), None, length=config.slice_updates)
    return state._replace(head=head, head_opt=opt), distances[-1]


def _flat(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])
