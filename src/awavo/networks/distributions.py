"""Action distributions: categorical, and a Gaussian, or a mixture of a few, squashed into a box."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = ["ActionDistribution", "Categorical", "SquashedGaussian", "SquashedMixture"]

# Largest |tanh(u)| that an action is taken back from: beyond it u is infinite in float32.
MAX_TANH = 1.0 - 1e-6


class Categorical(NamedTuple):
    """Probabilities `softmax(logits)` over the last axis."""

    logits: Float[Array, "... A"]

    def sample(self, key: Array) -> Int[Array, "..."]:
        """Draw one action each."""
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "..."]:
        """The most probable action."""
        return jnp.argmax(self.logits, -1)

    def log_probs(self) -> Float[Array, "... A"]:
        """Log-probabilities of all actions."""
        return jax.nn.log_softmax(self.logits)

    def log_prob(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        """Log-probability of one action each."""
        return jnp.take_along_axis(self.log_probs(), action[..., None], -1)[..., 0]

    def entropy(self) -> Float[Array, "..."]:
        """Shannon entropy in nats."""
        log_probs = self.log_probs()
        return -jnp.sum(jnp.exp(log_probs) * log_probs, -1)

    def kl(self, other: Categorical) -> Float[Array, "..."]:
        """KL(self || other)."""
        log_probs = self.log_probs()
        return jnp.sum(jnp.exp(log_probs) * (log_probs - other.log_probs()), -1)


class SquashedGaussian(NamedTuple):
    """`center + half_range * tanh(u)` with `u ~ N(mean, exp(log_std)^2)`, independent components."""

    mean: Float[Array, "... d"]
    log_std: Float[Array, "... d"]
    low: Float[Array, " d"]
    high: Float[Array, " d"]

    def _squash(self, u: Array) -> Array:
        return (self.high + self.low) / 2 + (self.high - self.low) / 2 * jnp.tanh(u)

    def mode(self) -> Float[Array, "... d"]:
        """The squashed mean."""
        return self._squash(self.mean)

    def sample(self, key: Array) -> Float[Array, "... d"]:
        """Draw one action each, differentiable in the parameters."""
        return self.sample_with_log_prob(key)[0]

    def at(self, noise: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """The action of a draw of standard normal noise."""
        return self._squash(self.mean + jnp.exp(self.log_std) * noise)

    def anywhere(self, key: Array) -> Float[Array, "... d"]:
        """An action of the box each, all equally likely."""
        return jax.random.uniform(key, self.mean.shape, minval=self.low, maxval=self.high)

    def sample_with_log_prob(self, key: Array) -> tuple[Float[Array, "... d"], Float[Array, "..."]]:
        """Draw an action and its log-density, squashing included."""
        noise = jax.random.normal(key, self.mean.shape)
        u = self.mean + jnp.exp(self.log_std) * noise
        log_gauss, log_slope = self._log_terms(u, noise)
        return self._squash(u), jnp.sum(log_gauss - log_slope, -1)

    def log_prob(self, action: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Log-density of one action each."""
        share = (2 * action - self.high - self.low) / (self.high - self.low)
        u = jnp.arctanh(jnp.clip(share, -MAX_TANH, MAX_TANH))
        log_gauss, log_slope = self._log_terms(u, (u - self.mean) * jnp.exp(-self.log_std))
        return jnp.sum(log_gauss - log_slope, -1)

    def _log_terms(self, u: Array, noise: Array) -> tuple[Array, Array]:
        """Logs of the Gaussian's density at u, and of the slope by which squashing divides it."""
        log_gauss = -0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(u)^2) in a form that stays finite for large |u|
        log_slope = 2 * (math.log(2.0) - u - jax.nn.softplus(-2 * u)) + jnp.log((self.high - self.low) / 2)
        return log_gauss, log_slope

    def kl(self, other: SquashedGaussian) -> Float[Array, "..."]:
        """KL(self || other): that of the Gaussians, as both are squashed by the same map."""
        ratio = jnp.exp(2 * (self.log_std - other.log_std))
        shift = ((other.mean - self.mean) / jnp.exp(other.log_std)) ** 2
        return jnp.sum(0.5 * (ratio + shift - 1) + other.log_std - self.log_std, -1)


class SquashedMixture(NamedTuple):
    """`softmax(logits)` of C Gaussians, all squashed into the same box: a policy that keeps ways apart."""

    logits: Float[Array, "... C"]
    mean: Float[Array, "... C d"]
    log_std: Float[Array, "... C d"]
    low: Float[Array, " d"]
    high: Float[Array, " d"]

    def components(self) -> SquashedGaussian:
        """All of them, side by side."""
        return SquashedGaussian(self.mean, self.log_std, self.low, self.high)

    def _one(self, which: Int[Array, "..."]) -> SquashedGaussian:
        mean, log_std = (
            jnp.take_along_axis(x, which[..., None, None], -2)[..., 0, :] for x in (self.mean, self.log_std)
        )
        return SquashedGaussian(mean, log_std, self.low, self.high)

    def choose(self, key: Array) -> SquashedGaussian:
        """One component each, drawn by weight."""
        return self._one(jax.random.categorical(key, self.logits))

    def mode(self) -> Float[Array, "... d"]:
        """The squashed mean of the heaviest component: between two ways the mean of all is neither."""
        return self._one(jnp.argmax(self.logits, -1)).mode()

    def sample(self, key: Array) -> Float[Array, "... d"]:
        """Draw one action each; differentiable in the component that was drawn, not in the weights."""
        which, noise = jax.random.split(key)
        return self.choose(which).sample(noise)

    def log_prob(self, action: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Log-density of one action each."""
        each = self.components().log_prob(action[..., None, :])
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + each, -1)

    def every(self, key: Array) -> tuple[Float[Array, "C ... d"], Float[Array, "C ..."], Float[Array, "C ..."]]:
        """A draw of every component, the mixture's log-density there, and the weights: expectations that learn them."""
        drawn = jnp.moveaxis(self.components().sample(key), -2, 0)
        return drawn, jax.vmap(self.log_prob)(drawn), jnp.moveaxis(jax.nn.softmax(self.logits), -1, 0)

    def kl(self, other: SquashedMixture) -> Float[Array, "..."]:
        """An upper bound of KL(self || other): that of the weights and, by weight, of the components in their order."""
        log_shares = jax.nn.log_softmax(self.logits)
        apart = log_shares - jax.nn.log_softmax(other.logits) + self.components().kl(other.components())
        return jnp.sum(jnp.exp(log_shares) * apart, -1)


# What a policy gives for a batch of observations, by the kind of the action space.
ActionDistribution = Categorical | SquashedGaussian | SquashedMixture
