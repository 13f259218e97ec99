r"""Explain the policies of a run: episodes with a push, their unpushed twins, and what moved each action.

Policies without a planner have the same measures on their action distributions under counterfactual observations. A
factor removes something from what the policy sees; the policy's distribution in every coalition,
:math:`\pi_S = \pi(\cdot \mid o_S)`, takes the place of the planner's posterior. For discrete actions they are compared
exactly; for Gaussian ones on a pool drawn from all of them, weighted by density over the pool's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from awavo.errors import InputError
from awavo.explain.factors import Factor, coalition_models
from awavo.explain.measures import influences, num_factors, shapley, total_variation, without
from awavo.explain.task_factors import Seen
from awavo.networks.distributions import Categorical, SquashedGaussian, SquashedMixture
from awavo.types import Algorithm, Distribution, Env, Fields

__all__ = [
    "NECESSITY", "PolicyTrace", "distribution_weights", "explain_policies", "greedy_necessity", "policy_costs",
    "policy_notes", "policy_summary",
]  # fmt: skip

POOL = 1024  # actions on which Gaussian policies are compared
NECESSITY = (
    "Necessity is the least probability that the action taken would have been another one without the factor; over all "
    "actions, each with its own probability, it averages to the influence."
)


class PolicyTrace(NamedTuple):
    """Episodes first, then time: measures by factor, all factors together, the task's costs, whether it was running.

    `necessity` is that of the most probable action.
    """

    influence: Float[Array, "E T F"]
    shares: Float[Array, "E T F"]
    together: Float[Array, "E T"]
    necessity: Float[Array, "E T F"]
    obs: Float[Array, "E T d"]
    costs: Float[Array, "E T C"]
    running: Bool[Array, "E T"]


def _play(
    env: Env, act: Callable[[Array], Array], key: Array, push: tuple[int, Array], at: int, steps: int
) -> tuple[Array, Array, Array]:
    """Observations and costs of one greedy episode, pushed before step `at`; after its end it stands still."""
    state, obs = env.reset(jax.random.fold_in(key, 2**20), env.params)

    def one(carry, t):
        state, obs, running = carry
        inner = state.inner.at[push[0]].add(jnp.where(t == at, push[1], 0.0))
        # The push is seen at once: the observation follows the state's change of speed.
        obs = jnp.where(t == at, obs.at[obs.shape[0] - state.inner.shape[0] + push[0]].add(push[1]), obs)
        new, out = env.step(jax.random.fold_in(key, t), state._replace(inner=inner), act(obs), env.params)
        done = out.terminated | out.truncated
        keep = (obs, out.costs, running)
        return (new, jnp.where(running, out.obs, obs), running & ~done), keep

    return jax.lax.scan(one, (state, obs, jnp.array(True)), jnp.arange(steps))[1]


def explain_policies(
    env: Env,
    algorithm: Algorithm,
    states: Iterable[PyTree],
    factors: Sequence[Factor],
    *,
    push: tuple[int, float],
    episodes: int = 8,
    steps: int = 200,
    seed: int = 0,
) -> list[PolicyTrace]:
    """Play pairs of episodes that differ by the push alone; compare each policy in every coalition of factors."""
    policy = algorithm.policy
    if policy is None:
        raise InputError("this algorithm has no policy network: its decisions come from its planner alone.")

    def episode(key, state):
        def act(obs):
            return algorithm.act(jax.random.key(0), state, obs[None], True)[0][0]

        def weigh(obs, unpushed):
            views = jnp.stack([world.obs for world in coalition_models(factors, Seen(obs, unpushed))])
            distributions = policy(state, views)
            weights = distribution_weights(distributions, key)
            game = total_variation(weights, weights[0])
            return influences(weights), shapley(game), game[-1], greedy_necessity(distributions)

        # One program plays both: two would round differently, and a chaotic system makes much of that.
        sizes = jnp.array([push[1], 0.0])
        obs, costs, running = jax.lax.map(lambda x: _play(env, act, key, (push[0], x), steps // 2, steps), sizes)
        return PolicyTrace(*jax.vmap(weigh)(*obs), obs[0], costs[0], running[0])

    # The policy is an argument, so that the seeds of a run share one compiled program.
    play = jax.jit(lambda keys, state: jax.lax.map(lambda key: episode(key, state), keys))
    keys = jax.random.split(jax.random.key(seed), episodes)
    return [jax.tree.map(np.asarray, play(keys, state)) for state in states]


def distribution_weights(distribution: Distribution, key: Array) -> Float[Array, "S K"]:
    """Return the coalitions' distributions (first axis of `distribution`) as weights on one pool of actions."""
    if isinstance(distribution, Categorical):
        return jnp.exp(distribution.log_probs())
    if isinstance(distribution, SquashedMixture):
        return _mixture_weights(distribution, key)
    assert isinstance(distribution, SquashedGaussian)
    # Before squashing: the map is the same for all of them and leaves ratios of densities as they are.
    mean, spread = distribution.mean, jnp.exp(jnp.broadcast_to(distribution.log_std, distribution.mean.shape))
    count = mean.shape[0]
    noise = jax.random.normal(key, (-(-POOL // count), *mean.shape))
    pool = (mean + spread * noise).reshape(-1, mean.shape[-1])
    gaps = (pool - mean[:, None]) / spread[:, None]
    log_density = -0.5 * jnp.sum(gaps**2, -1) - jnp.sum(jnp.log(spread), -1)[:, None]
    return jax.nn.softmax(log_density - jax.nn.logsumexp(log_density, 0), -1)


def _mixture_weights(mixture: SquashedMixture, key: Array) -> Float[Array, "S K"]:
    """The same for mixtures: one pool of draws of all of them, weighed by what each says of it."""
    count = mixture.logits.shape[0]
    drawn = jax.vmap(mixture.sample)(jax.random.split(key, -(-POOL // count)))
    pool = drawn.reshape(-1, drawn.shape[-1])

    def density(logits: Array, mean: Array, log_std: Array) -> Float[Array, " K"]:
        return SquashedMixture(logits, mean, log_std, mixture.low, mixture.high).log_prob(pool)

    log_density = jax.vmap(density)(*mixture[:3])
    return jax.nn.softmax(log_density - jax.nn.logsumexp(log_density, 0), -1)


def greedy_necessity(distribution: Distribution) -> Float[Array, " M"]:
    """Return how necessary each factor was for the most probable action, from the coalitions' own (log) densities."""
    modes = distribution.mode()
    # The last coalition has all factors: its action is the one that was taken.
    log_prob = distribution.log_prob(jnp.broadcast_to(modes[-1], modes.shape))
    num = num_factors(log_prob.shape[0])
    less = jnp.stack([log_prob[without(num, i)] for i in range(num)])
    return jnp.maximum(0.0, -jnp.expm1(less - log_prob[-1]))


def _interval(values: Sequence[float]) -> dict[str, float]:
    """Mean with a 95% bootstrap interval over episodes."""
    drawn = np.array(values)[np.random.default_rng(0).integers(0, len(values), (2000, len(values)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"mean": float(np.mean(values)), "low": float(low), "high": float(high)}


def policy_summary(traces: Sequence[PolicyTrace], names: Sequence[str]) -> dict[str, Fields]:
    """Return mean (95% bootstrap over the episodes of all seeds), largest value, necessity and share by factor."""
    episodes = [(trace, e, trace.running[e]) for trace in traces for e in range(len(trace.running))]
    found = {}
    for i, name in enumerate(names):
        values = [trace.influence[e, on, i] for trace, e, on in episodes]
        found[name] = {
            **_interval([float(v.mean()) for v in values]), "largest": max(float(v.max()) for v in values),
            "necessity": _interval([float(trace.necessity[e, on, i].mean()) for trace, e, on in episodes]),
            "share": float(np.mean([trace.shares[e, on, i].mean() for trace, e, on in episodes])),
            "episodes": len(values),
        }  # fmt: skip
    return found


def policy_costs(traces: Sequence[PolicyTrace], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the cost of an explained (pushed) episode, by name."""
    sums = [trace.costs[e, trace.running[e]].sum(0) for trace in traces for e in range(len(trace.running))]
    return {name: _interval([float(x[i]) for x in sums]) for i, name in enumerate(names)}


def policy_notes(plans: bool) -> list[str]:
    """Say what this explanation leaves open."""
    notes = [
        "the policy is asked what it would do if it saw something else: how it came to be trained so is not explained",
        "influences hold for the distribution whose most probable action is the greedy one, not for that action alone",
    ]
    if plans:
        notes.append("this algorithm decides by planning: its actor is explained here, not its planner's posterior")
    return notes
