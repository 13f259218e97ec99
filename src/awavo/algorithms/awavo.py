r"""AWaVO: adaptive sliced Wasserstein variational optimization (Algorithm 2 of the paper).

.. code-block:: text

    repeat
      for t = 0 .. T-1
    4     p_D(theta): judge the ensemble on the new transitions, then train it          (parameter identification)
    5     {actor, critics} <- ORPO-DR, Algorithm 1                                         (policy updating)
    6     q(a) <- argmin A-GSWD_k(q(a), p(O|tau)), slices from the actor's second head     (inference execution)
    7     a_t ~ q, execute, observe

`plan` is lines 6 and 7, `learn` lines 4 and 5, after which the actor moves to the stored posteriors by the same A-GSWD
and the slicing head ascends it. `act` is the actor alone. Docs: docs/awavo.md, with the deviations from the paper.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.algorithms import replay as ring
from awavo.algorithms.amortize import Posteriors, amortize, ascend_slices, empty_posteriors, posterior_rows, store
from awavo.algorithms.awavo_config import AwavoConfig
from awavo.algorithms.orpo_dr import (
    OrpoDrInfo,
    OrpoDrState,
    clip_rewards,
    current_weights,
    log_optimality_fn,
    orpo_dr,
)
from awavo.inference.ensemble import Ensemble, ModelBatch, bootstrap_weights, ensemble
from awavo.inference.identification import assess
from awavo.inference.operators import Operator, make_operator
from awavo.inference.planner import Beliefs, ensemble_beliefs, planner
from awavo.inference.sequences import sequences, slice_shape
from awavo.networks import SlicingHead, normalize, slicing_head
from awavo.networks.optimize import adam
from awavo.types import Algorithm, Discrete, EnvSpec, Rollout

__all__ = ["AwavoInfo", "AwavoState", "PlanRecord", "awavo", "head_slices"]


class AwavoState(NamedTuple):
    """ORPO-DR's state, the model, the slicing head, and the posteriors the actor is pulled to."""

    orpo: OrpoDrState
    model: Ensemble
    head: SlicingHead
    head_opt: Any
    amortize_opt: Any
    posteriors: Posteriors


class PlanRecord(NamedTuple):
    """What `learn` needs of a decision: q before and after, the target measure, and how peaked it was."""

    before: Array
    after: Array
    target: Array
    weights: Array
    effective_size: Array
    distance: Array


class AwavoInfo(NamedTuple):
    """Metrics of one `learn`: those of ORPO-DR, of the model and of the inference."""

    critic_loss: Array
    actor_loss: Array
    entropy: Array
    kl: Array
    feasible: Array
    cost_estimate: Array
    cost_weight: Array
    clip_rate: Array
    num_reward_updates: Array
    num_rectified_updates: Array
    skipped_updates: Array
    model_loss: Array
    model_coverage: Array
    model_pit_error: Array
    member_weight: Array
    effective_size: Array
    plan_distance: Array
    amortize_loss: Array
    slice_distance: Array


def head_slices(state: AwavoState, obs: Float[Array, "*batch d"]) -> Float[Array, "*batch L c"]:
    """The slices by which AWaVO decides in given states."""
    return state.head(state.orpo.learner.actor.net.hidden(normalize(state.orpo.obs_stats, obs)))


def awavo(spec: EnvSpec, config: AwavoConfig, operator: Operator | None = None) -> Algorithm:
    """Build AWaVO for a task; `operator` replaces the one named in the configuration."""
    likelihood = operator or make_operator(config.operator, temperature=config.temperature, kappa=config.kappa)
    orpo = orpo_dr(spec, config, likelihood)
    discrete, dreams = isinstance(spec.action_space, Discrete), config.imagined_batch > 0
    log_optimality = log_optimality_fn(config, likelihood)
    dynamics = ensemble(
        spec,
        config.num_members,
        config.model_hidden,
        config.model_lr,
        config.model_weight_decay,
        config.prior_scale,
        config.model_activation,
    )
    decide, laws = planner(spec, config), sequences(spec.action_space, config)
    head_optimizer, amortize_optimizer = (
        adam(lr, config.max_grad_norm) for lr in (config.slice_lr, config.amortize_lr)
    )

    def init(key: Array) -> AwavoState:
        orpo_key, model_key, head_key = jax.random.split(key, 3)
        base = orpo.init(orpo_key)
        head: Any = slicing_head(head_key, config.hidden[-1], *slice_shape(spec.action_space, config))
        actor_params: Any = base.learner.actor
        return AwavoState(
            base,
            dynamics.init(model_key),
            head,
            head_optimizer.init(head),
            amortize_optimizer.init(actor_params),
            empty_posteriors(spec, config),
        )

    def act(key: Array, state: AwavoState, obs: Array, greedy: bool) -> tuple[Array, Any]:
        action, _ = orpo.act(key, state.orpo, obs, greedy)
        return action, ()

    def start(num_envs: int) -> Array:
        plan = laws.start()
        return jnp.broadcast_to(plan, (num_envs, *plan.shape))

    def plan(key: Array, state: AwavoState, obs: Array, memory: Array, greedy: bool) -> tuple[Array, PlanRecord, Array]:
        slice_key, plan_key, pick_key, warm_key = jax.random.split(key, 4)
        slices = choose_slices(slice_key, state, obs)
        keys = jax.random.split(plan_key, obs.shape[0])
        result = jax.vmap(decide, (0, None, 0, 0, 0))(keys, beliefs(state), obs, memory, slices)
        action = laws.pick(pick_key, jax.vmap(laws.first)(result.plan), greedy)
        if not greedy:
            warm = state.orpo.replay.added < config.warmup_steps
            action = jnp.where(warm, laws.draw(warm_key, obs.shape[0]), action)
        # Of categorical laws, which are independent, the first step is all that learning needs.
        kept = (result.before, result.plan, result.target)
        before, after, target = (law[:, 0] for law in kept) if discrete else kept
        record = PlanRecord(before, after, target, result.weights, result.effective_size, result.distance)
        return action, record, result.plan

    def choose_slices(key: Array, state: AwavoState, obs: Array) -> Float[Array, "E L c"]:
        if config.slices == "random":
            return jax.random.normal(key, (obs.shape[0], *slice_shape(spec.action_space, config)))
        return head_slices(state, obs)

    def beliefs(state: AwavoState) -> Beliefs:
        learner, stats = state.orpo.learner, state.orpo.obs_stats

        def values(obs):
            obs = normalize(stats, obs)
            dist: Any = learner.actor(obs)
            if discrete:
                every = learner.target_critic.all_actions(obs).mean(-1)
                return jnp.einsum("...a,...as->...s", jnp.exp(dist.log_probs()), every)
            return learner.target_critic(obs, dist.mode()).mean(-1)

        return Beliefs(
            *ensemble_beliefs(dynamics, state.model),
            state.model.log_weights(),
            lambda obs: learner.actor(normalize(stats, obs)),
            values,
            lambda signals: log_optimality(signals, current_weights(state.orpo, spec, config), state.orpo.bounds)[0],
        )

    def learn(key: Array, state: AwavoState, rollout: Rollout) -> tuple[AwavoState, AwavoInfo]:
        rollout = clip_rewards(rollout, config)
        model_key, orpo_key, amortize_key = jax.random.split(key, 3)
        model, judged, losses = identify(model_key, state, rollout)
        update: Any = orpo.learn
        dream = partial(imagine, state, dynamics.fold(model)) if dreams else None
        base, info = update(orpo_key, state.orpo, rollout, dream)
        state = state._replace(orpo=base, model=model)
        if config.planning == "off":
            none = jnp.zeros(())
            return state, summary(info, model, judged, losses, none, none, none, none)
        record: PlanRecord = rollout.extras
        state = state._replace(posteriors=store(state.posteriors, posterior_rows(rollout, spec)))
        state, amortize_loss = amortize(amortize_key, state, spec, config, amortize_optimizer)
        state, slice_distance = ascend_slices(state, rollout, spec, config, head_optimizer)
        return state, summary(
            info,
            model,
            judged,
            losses,
            record.effective_size.mean(),
            record.distance.mean(),
            amortize_loss,
            slice_distance,
        )

    def imagine(state: AwavoState, model: Ensemble, key: Array, batch: ring.Transitions, policy: Any):
        """What the model says follows in stored states: random actions and the policy's, one member for each row."""
        row_key, member_key, act_key, mix_key, next_key, end_key = jax.random.split(key, 6)
        num = config.imagined_batch
        obs = batch.obs[jax.random.randint(row_key, (num,), 0, batch.obs.shape[0])]
        drawn, own = laws.draw(mix_key, num), policy(normalize(state.orpo.obs_stats, obs)).sample(act_key)
        half = (jnp.arange(num) % 2 == 0).reshape(-1, *[1] * (own.ndim - 1))
        action: Any = jnp.where(half, drawn, own)
        every = dynamics.predict(model, jnp.broadcast_to(obs, (config.num_members, *obs.shape)), action)
        member = jax.random.categorical(member_key, model.log_weights(), shape=(num,))
        guess = jax.tree.map(lambda x: x[member, jnp.arange(num)], every)
        rows = ring.Transitions(
            obs,
            action,
            jnp.concatenate([guess.reward[:, None], guess.costs], -1),
            guess.next_obs + guess.std * jax.random.normal(next_key, obs.shape),
            jax.random.bernoulli(end_key, guess.terminated),
        )
        return rows if batch.ahead is None else ring.one_step(rows, config.discount)

    def identify(key: Array, state: AwavoState, rollout: Rollout):
        """Line 4: judge the members on transitions they have not seen, then train them on all stored ones."""
        replay = ring.add(state.orpo.replay, rollout, config.discount, config.backup_steps)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (rollout.obs, rollout.action, rollout.next_obs))
        model, judged = assess(dynamics, state.model, *flat)
        model = dynamics.observe(model, rollout.obs, rollout.reward, rollout.costs, rollout.next_obs)
        stored = jnp.minimum(replay.added, config.replay_capacity)

        def update(model, key):
            rows = jax.random.randint(key, (config.num_members, config.model_batch), 0, stored)
            data = jax.tree.map(lambda x: x[rows], replay.data)
            reward, costs = data.signals[..., 0], data.signals[..., 1:]
            weight = bootstrap_weights(rows) if config.num_members > 1 else jnp.ones(rows.shape)
            batch = ModelBatch(data.obs, data.action, reward, costs, data.next_obs, data.terminated, weight)
            return dynamics.train_step(model, batch)

        model, losses = jax.lax.scan(update, model, jax.random.split(key, config.model_updates))
        return model, judged, losses

    def summary(info: OrpoDrInfo, model, judged, losses, size, distance, amortize_loss, slice_distance) -> AwavoInfo:
        return AwavoInfo(
            *info, losses[-1].mean(), judged.coverage, judged.pit_error, jnp.exp(model.log_weights()).max(), size,
            distance, amortize_loss, slice_distance,
        )  # fmt: skip

    if config.planning == "off":
        return Algorithm(init, act, learn)
    return Algorithm(init, act, learn, start, plan)
