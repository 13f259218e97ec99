r"""PaETS: variational inference model-predictive control with ensemble dynamics (Okada and Taniguchi, 2019).

The posterior over action sequences is a mixture q(a) = sum_m pi_m N(mu_m, diag sigma_m^2). Every action is planned:

.. code-block:: text

    1  draw K sequences a_k from q; roll each through every member of the ensemble (a particle keeps its network)
    2  R_k     = mean over members of sum_t alive_t r_t  [ - beta sum_i max(0, G_ki - d_i H / T) with constraints on ]
    3  omega_k = softmax(R_k / (lambda std R) - kappa log q(a_k))                      (mirror descent on q)
    4  eta_km  = responsibility of component m for a_k
    5  pi_m <- sum_k omega_k eta_km;  mu_m, sigma_m^2 <- moments of a_k under omega_k eta_km / pi_m
    6  after J rounds execute the first action of a component drawn by pi (greedy: of the largest)

`learn` stores the rollout and trains the ensemble. With one component and kappa = 0 lines 1-5 are MPPI. Deviations:
planning starts afresh in every state, from components spread at random, as `act` keeps no memory between steps;
particles follow their network's mean; reward, costs and termination are learnt heads of the model; discrete actions are
thresholds of a relaxed action in [-1, 1]. The paper has no constraints: they are off unless `constrained="on"`, with
each limit's share for the planning horizon, whatever the episode has spent already, and at a finite price beta: where
no plan meets the limits, the one that pays least is followed. G_ki is of one member; the mean over members comes last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.algorithms import replay as ring
from awavo.algorithms.episodes import EpisodeWindow, cost_estimate, empty_window, push_episodes
from awavo.algorithms.model_learning import train_ensemble
from awavo.config import setting
from awavo.inference.ensemble import Ensemble, ensemble
from awavo.networks.optimize import all_finite, choose
from awavo.types import ActionSpace, Algorithm, Discrete, EnvSpec, Rollout

__all__ = ["Mixture", "PaetsConfig", "PaetsInfo", "PaetsState", "execute", "paets", "refit", "sequence_weights"]


@dataclass(frozen=True)
class PaetsConfig:
    """Settings of PaETS. The defaults were chosen by measurement; the paper's are the preset `paper`."""

    num_envs: int = setting(4, "environments stepped together", low=1, high=65_536)
    rollout_length: int = setting(50, "steps of each environment between trainings of the model", low=1, high=100_000)
    num_updates: int = setting(100, "gradient steps of the model after each rollout", low=1, high=100_000)
    batch_size: int = setting(256, "transitions per gradient step and member", low=1, high=1_000_000)
    replay_capacity: int = setting(100_000, "transitions kept", low=1, high=1_000_000_000)
    warmup_steps: int = setting(400, "environment steps with random actions", low=0, high=1_000_000_000)
    hidden: tuple[int, ...] = setting((128, 128), "sizes of the model's hidden layers", low=1, high=65_536)
    num_members: int = setting(5, "members of the ensemble", low=1, high=1_000)
    model_lr: float = setting(1e-3, "Adam step size of the model", low=0.0, high=1.0)
    weight_decay: float = setting(3e-5, "weight decay of the model", low=0.0, high=1.0)
    horizon: int = setting(25, "steps planned ahead", low=1, high=10_000)
    num_sequences: int = setting(128, "sequences drawn in each round of planning", low=2, high=1_000_000)
    num_rounds: int = setting(4, "rounds of planning", low=1, high=1_000)
    num_components: int = setting(5, "components of the mixture", low=1, high=1_000)
    temperature: float = setting(0.2, "lambda, in standard deviations of the returns", low=1e-6, high=1e6)
    entropy: float = setting(0.0, "weight kappa of the density's flattening", low=0.0, high=10.0)
    initial_std: float = setting(0.7, "first standard deviation of every relaxed action", low=1e-6, high=10.0)
    min_std: float = setting(0.05, "smallest standard deviation of a relaxed action", low=1e-6, high=10.0)
    constrained: str = setting("off", "penalise predicted costs above the limits' share", choices=("off", "on"))
    penalty: float = setting(5.0, "constraints on: return lost per unit of predicted excess", low=0.0, high=1e6)
    tolerance: float = setting(0.5, "tolerance on every limit", low=0.0, high=1e9)
    window: int = setting(16, "finished episodes W in the constraint estimate", low=1, high=100_000)


class Mixture(NamedTuple):
    """q over sequences of relaxed actions in [-1, 1]."""

    weight: Float[Array, " M"]
    mean: Float[Array, "M H a"]
    std: Float[Array, "M H a"]

    def log_densities(self, sequences: Float[Array, "K H a"]) -> Float[Array, "K M"]:
        """The logs of pi_m N(a_k; mu_m, sigma_m), without the constant that all share."""
        z = (sequences[:, None] - self.mean) / self.std
        return jnp.log(self.weight) - jnp.sum(0.5 * z**2 + jnp.log(self.std), (-2, -1))


class PaetsState(NamedTuple):
    """The model, its data and the finished episodes."""

    model: Ensemble
    replay: ring.ReplayBuffer
    window: EpisodeWindow


class PaetsInfo(NamedTuple):
    """Metrics of one `learn`."""

    model_loss: Array
    feasible: Array
    cost_estimate: Array


def paets(spec: EnvSpec, config: PaetsConfig) -> Algorithm[PaetsState, PaetsInfo]:
    """Build PaETS for a task. It has no policy network: what it decides is the plan, computed afresh for each state."""
    limits = np.asarray(spec.cost_limits, np.float32)
    # A plan knows no time limit: one that is longer than an episode spends on beyond it.
    budget = limits * (config.horizon / spec.horizon)
    dim = 1 if isinstance(spec.action_space, Discrete) else spec.action_space.dim
    members = config.num_members
    dynamics = ensemble(spec, members, config.hidden, config.model_lr, config.weight_decay)

    def init(key: Array) -> PaetsState:
        rows = config.num_envs * config.rollout_length
        replay = ring.empty_replay(spec, -(-config.replay_capacity // rows) * rows)  # whole rollouts
        return PaetsState(dynamics.init(key), replay, empty_window(config.window, spec.num_costs))

    def act(key: Array, state: PaetsState, obs: Float[Array, "E d"], greedy: bool) -> tuple[Array, tuple[()]]:
        plan_key, pick_key, random_key = jax.random.split(key, 3)
        plan_keys, pick_keys = (jax.random.split(k, obs.shape[0]) for k in (plan_key, pick_key))
        plans = jax.vmap(lambda k, o: plan(k, state.model, o))(plan_keys, obs)
        # Line 6: the first action of one component; before the warm-up ends, a random one.
        log_weight = jnp.log(plans.weight)
        chosen = jnp.argmax(log_weight, -1) if greedy else jax.vmap(jax.random.categorical)(pick_keys, log_weight)
        first = jnp.take_along_axis(plans.mean[:, :, 0], chosen[:, None, None], 1)[:, 0]
        ready = state.replay.added >= config.warmup_steps
        relaxed = jnp.where(ready, first, jax.random.uniform(random_key, first.shape, minval=-1.0, maxval=1.0))
        return execute(spec.action_space, relaxed), ()

    def plan(key: Array, model: Ensemble, obs: Float[Array, " d"]) -> Mixture:
        shape = (config.num_components, config.horizon, dim)
        start_key, *keys = jax.random.split(key, 1 + config.num_rounds)
        # Spread at random around the centre, so that components can follow different plans.
        spread = config.initial_std * jax.random.normal(start_key, shape)
        start = Mixture(
            jnp.full(shape[0], 1.0 / shape[0]), spread - spread.mean(0), jnp.full(shape, config.initial_std)
        )

        def improve(mixture, key):
            pick_key, noise_key = jax.random.split(key)
            component = jax.random.categorical(pick_key, jnp.log(mixture.weight), shape=(config.num_sequences,))
            noise = jax.random.normal(noise_key, (config.num_sequences, *shape[1:]))
            sequences = jnp.clip(mixture.mean[component] + mixture.std[component] * noise, -1.0, 1.0)
            returns = imagine(model, obs, sequences)  # lines 1 and 2
            densities = mixture.log_densities(sequences)
            weights = sequence_weights(returns, jax.nn.logsumexp(densities, -1), config.temperature, config.entropy)
            return refit(mixture, sequences, weights, jax.nn.softmax(densities), config), None  # lines 4 and 5

        return jax.lax.scan(improve, start, jnp.stack(keys))[0]

    def imagine(model: Ensemble, obs: Float[Array, " d"], sequences: Float[Array, "K H a"]) -> Float[Array, " K"]:
        """R_k of line 2, on the members' mean next observations."""
        actions = execute(spec.action_space, jnp.swapaxes(sequences, 0, 1))

        def advance(carry, action):
            # `alive` is the probability that the episode still runs: an end is predicted, not sampled.
            obs, alive, total, spent = carry
            guess = dynamics.predict(model, obs, action)
            total = total + alive * guess.reward
            spent = spent + alive[..., None] * guess.costs
            return (guess.next_obs, alive * (1.0 - guess.terminated), total, spent), None

        count = sequences.shape[0]
        none = jnp.zeros((members, count))
        start = (
            jnp.broadcast_to(obs, (members, count, spec.obs_dim)),
            none + 1,
            none,
            jnp.zeros((members, count, spec.num_costs)),
        )
        (_, _, total, spent), _ = jax.lax.scan(advance, start, actions)
        if config.constrained == "on":
            total = total - config.penalty * jnp.maximum(spent - budget, 0.0).sum(-1)
        return total.mean(0)

    def learn(key: Array, state: PaetsState, rollout: Rollout) -> tuple[PaetsState, PaetsInfo]:
        replay = ring.add(state.replay, rollout)
        model = dynamics.observe(state.model, rollout.obs, rollout.reward, rollout.costs, rollout.next_obs)
        # A single member has nobody to differ from: it gets every row.
        new, losses = train_ensemble(
            key, dynamics, model, replay,
            num_updates=config.num_updates, batch_size=config.batch_size, bootstrap=members > 1,
        )  # fmt: skip
        model = choose(all_finite(new.nets), new, model)
        state = PaetsState(model, replay, push_episodes(state.window, rollout))
        totals = cost_estimate(state.window)
        feasible = jnp.all(totals <= limits + config.tolerance)
        return state, PaetsInfo(losses[-1].mean(), feasible.astype(jnp.float32), totals)

    return Algorithm(init, act, learn)


def execute(space: ActionSpace, relaxed: Float[Array, "... a"]) -> Array:
    """The action that a relaxed one in [-1, 1] stands for."""
    if isinstance(space, Discrete):
        index = jnp.floor((relaxed[..., 0] + 1) / 2 * space.num)
        return jnp.clip(index, 0, space.num - 1).astype(jnp.int32)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return (high + low) / 2 + (high - low) / 2 * relaxed


def sequence_weights(
    returns: Float[Array, " K"], log_density: Float[Array, " K"], temperature: float, entropy: float
) -> Float[Array, " K"]:
    """Line 3: exponential weights of the standardised returns, flattened by the density they were drawn from."""
    return jax.nn.softmax(returns / (temperature * (returns.std() + 1e-6)) - entropy * log_density)


def refit(
    mixture: Mixture,
    sequences: Float[Array, "K H a"],
    weights: Float[Array, " K"],
    responsibility: Float[Array, "K M"],
    config: PaetsConfig,
) -> Mixture:
    """Line 5; a component that explains nothing starts again around the best sequence."""
    joint = weights[:, None] * responsibility
    share = joint.sum(0)
    alive = (share > 1e-3)[:, None, None]
    # Weighted moments of every component.
    portion = joint / jnp.maximum(share, 1e-8)
    mean = jnp.einsum("km,kha->mha", portion, sequences)
    second = jnp.einsum("km,kha->mha", portion, sequences**2)
    std = jnp.sqrt(jnp.maximum(second - mean**2, config.min_std**2))
    best = sequences[jnp.argmax(weights)]
    weight = jnp.maximum(share, 1e-3)
    return Mixture(weight / weight.sum(), jnp.where(alive, mean, best), jnp.where(alive, std, config.initial_std))
