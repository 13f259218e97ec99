r"""AWaVO: adaptive sliced Wasserstein variational optimization (Algorithm 2 of the paper).

.. code-block:: text

    1  initialise actor and critics
    2  repeat
    3    for t = 0 .. T-1
    4      p_D(theta) <- inference of p(theta | D)                                        (parameter identification)
    5      {actor, critics} <- ORPO-DR, Algorithm 1                                       (policy updating)
    6      q(a) <- argmin A-GSWD_k(q(a), p(O | tau)), slices from the actor's second head (inference execution)
    7      a_t ~ q, execute, observe
    8    end
    9  until convergence

`plan` is lines 6 and 7, `learn` lines 4 and 5, after which the actor moves to the stored posteriors by the same A-GSWD
and the slicing head ascends it. `act` is the actor alone. Docs: docs/awavo.md, with the deviations from the paper.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from awavo.algorithms import replay as ring
from awavo.algorithms.actor_critic import Imagine
from awavo.algorithms.amortize import AmortizationConfig, PlanRecord, Posteriors, amortizer, empty_posteriors, store
from awavo.algorithms.known_physics import PhysicsModel, known_physics
from awavo.algorithms.model_learning import ModelConfig, ModelInfo, imagination, learnt_model
from awavo.algorithms.orpo_dr import OrpoDrConfig, OrpoDrInfo, OrpoDrState, orpo_dr_parts
from awavo.algorithms.sizes import resolve_sizes
from awavo.errors import ConfigError
from awavo.inference.ensemble import Ensemble
from awavo.inference.operators import Operator
from awavo.inference.planner import PlanningModel, planner
from awavo.inference.sequences import PlanningConfig, is_joint, sequences, slice_shape
from awavo.networks import Categorical, SlicingHead, normalize, slicing_head
from awavo.networks.normalizer import normalize_with_tails
from awavo.types import Algorithm, Critics, Discrete, EnvSpec, Physics, Rollout

__all__ = ["AwavoConfig", "AwavoInfo", "AwavoState", "DecisionInfo", "awavo"]

# Of a task that cannot be followed from its observations.
NO_PHYSICS = "declares no physics that a planner could follow: use planning=auto, which plans in a learnt model."


@dataclass(frozen=True)
class AwavoConfig(AmortizationConfig, PlanningConfig, ModelConfig, OrpoDrConfig):
    """Settings of AWaVO: those of its parts. One set for every task; the paper's are the preset `paper`."""


class AwavoState(NamedTuple):
    """ORPO-DR's state, the model, the slicing head, and the posteriors the actor is pulled to."""

    orpo: OrpoDrState
    model: Ensemble | PhysicsModel
    head: SlicingHead
    head_opt: optax.OptState
    amortize_opt: optax.OptState
    posteriors: Posteriors


class DecisionInfo(NamedTuple):
    """Metrics of the decisions, and of what was learnt from them; 0 without planning."""

    effective_size: Array
    plan_distance: Array
    amortize_loss: Array
    slice_distance: Array


# Metrics of one `learn`: those of ORPO-DR, then its own.
AwavoInfo = namedtuple("AwavoInfo", (*OrpoDrInfo._fields, *ModelInfo._fields, *DecisionInfo._fields))


def awavo(
    spec: EnvSpec, config: AwavoConfig, operator: Operator | None = None, physics: Physics | None = None
) -> Algorithm[AwavoState, AwavoInfo]:
    """Build AWaVO for a task; `operator` replaces the one named in the configuration.

    `physics` is what the task declares of its own, for `planning=physics`.
    """
    config = resolve_sizes(spec, config)
    orpo = orpo_dr_parts(spec, config, operator)
    if config.planning == "physics":
        if physics is None:
            raise ConfigError(f"planning=physics: task '{spec.name}' {NO_PHYSICS}")
        dynamics = known_physics(spec, physics, config)
    else:
        dynamics = learnt_model(spec, config, config.num_updates)
    decide, distributions = planner(spec, config), sequences(spec.action_space, config)
    amortization = amortizer(spec, config)
    decides = config.planning != "off"

    def init(key: Array) -> AwavoState:
        orpo_key, model_key, head_key = jax.random.split(key, 3)
        base = orpo.init(orpo_key)  # line 1
        head = slicing_head(head_key, config.hidden[-1], *slice_shape(spec.action_space, config))
        model = dynamics.init(model_key)
        return AwavoState(
            base, model, head, *amortization.init(base.learner.actor, head), empty_posteriors(spec, config)
        )

    def learn(key: Array, state: AwavoState, rollout: Rollout) -> tuple[AwavoState, AwavoInfo]:
        model_key, orpo_key, amortize_key = jax.random.split(key, 3)
        model, modelled, imagine = identified(model_key, state, rollout)  # line 4
        base, info = orpo.learn(orpo_key, state.orpo, rollout, imagine)  # line 5
        state = state._replace(orpo=base, model=model)
        state, decided = learn_from_decisions(amortize_key, state, rollout)  # from what line 6 decided
        return state, AwavoInfo(**info._asdict(), **modelled._asdict(), **decided._asdict())

    def identified(
        key: Array, state: AwavoState, rollout: Rollout
    ) -> tuple[Ensemble | PhysicsModel, ModelInfo, Imagine | None]:
        """The model after a rollout, and what it adds to the batches; as it was where nothing is planned in it."""
        if not decides:
            none = jnp.zeros(())
            return state.model, ModelInfo(none, none, none, none), None
        replay = ring.add(state.orpo.replay, rollout, config.discount, config.backup_steps)
        model, info = dynamics.identify(key, state.model, rollout, replay)
        imagine = imagination(
            dynamics.predict(model), dynamics.log_weights(model), state.orpo.obs_stats, distributions.draw,
            config.discount, config,
        )  # fmt: skip
        return model, info, imagine

    def plan(key: Array, state: AwavoState, obs: Array, memory: Array, greedy: bool) -> tuple[Array, PlanRecord, Array]:
        slice_key, plan_key, pick_key, warm_key = jax.random.split(key, 4)
        slices = choose_slices(slice_key, state, obs)
        keys = jax.random.split(plan_key, obs.shape[0])
        result = jax.vmap(decide, (0, None, 0, 0, 0))(keys, planning_model(state), obs, memory, slices)  # line 6
        picks = jax.random.split(pick_key, obs.shape[0])
        action = jax.vmap(lambda key, q: distributions.pick(key, q, greedy))(picks, result.plan)  # line 7
        if not greedy:  # before there is a model worth planning in
            warm = state.orpo.replay.added < config.warmup_steps
            action = jnp.where(warm, distributions.draw(warm_key, obs.shape[0]), action)
        # Of the first action learning needs the probabilities; of categorical distributions, which are independent,
        # that is all it needs.
        before, after, target = result.before, result.plan, result.target
        if not is_joint(spec.action_space, config):
            before, after, target = (q[:, 0] for q in (before, after, target))
        elif isinstance(spec.action_space, Discrete):
            after = after[:, :, 0].mean(1)
        record = PlanRecord(before, after, target, result.weights, result.effective_size, result.distance)
        return action, record, result.plan

    def learn_from_decisions(key: Array, state: AwavoState, rollout: Rollout) -> tuple[AwavoState, DecisionInfo]:
        """Pull the actor to the posteriors, and turn the slices to where q and its targets differed."""
        if not decides:
            none = jnp.zeros(())
            return state, DecisionInfo(none, none, none, none)
        record: PlanRecord = rollout.extras
        learner, stats = state.orpo.learner, state.orpo.obs_stats
        posteriors = store(state.posteriors, rollout, spec)
        actor, amortize_opt, amortize_loss = amortization.pull(
            key, learner.actor, state.amortize_opt, state.head, stats, posteriors, state.orpo.replay.added
        )
        head, head_opt, slice_distance = amortization.ascend(state.head, state.head_opt, actor, stats, rollout)
        base = state.orpo._replace(learner=learner._replace(actor=actor))
        info = DecisionInfo(
            effective_size=record.effective_size.mean(),
            plan_distance=record.distance.mean(),
            amortize_loss=amortize_loss,
            slice_distance=slice_distance,
        )
        return AwavoState(base, state.model, head, head_opt, amortize_opt, posteriors), info

    def start(num_envs: int) -> Array:
        plan = distributions.start()
        return jnp.broadcast_to(plan, (num_envs, *plan.shape))

    def head_slices(state: AwavoState, obs: Float[Array, "*batch d"]) -> Float[Array, "*batch L c"]:
        return state.head(state.orpo.learner.actor.net.hidden(normalize(state.orpo.obs_stats, obs)))

    def choose_slices(key: Array, state: AwavoState, obs: Array) -> Float[Array, "E L c"]:
        if config.slices == "random":
            return jax.random.normal(key, (obs.shape[0], *slice_shape(spec.action_space, config)))
        return head_slices(state, obs)

    def planning_model(state: AwavoState) -> PlanningModel:
        learner, stats, unit = state.orpo.learner, state.orpo.obs_stats, state.orpo.units.unit

        def values(obs: Float[Array, "... d"]) -> Float[Array, "... signals"]:
            dist, seen = learner.actor(normalize(stats, obs)), normalize_with_tails(stats, obs)
            if isinstance(dist, Categorical):
                # The exact mean over the policy's actions; for continuous ones that of its mode.
                every = unit * learner.target_critic.all_actions(seen).mean(-1)
                return jnp.einsum("...a,...as->...s", jnp.exp(dist.log_probs()), every)
            return unit * learner.target_critic(seen, dist.mode()).mean(-1)

        return PlanningModel(
            *dynamics.steps(state.model),
            dynamics.log_weights(state.model),
            lambda obs: learner.actor(normalize(stats, obs)),
            values,
            lambda signals: orpo.log_optimality(state.orpo, signals),
        )

    def lasting(key: Array, state: AwavoState, obs: Array, memory: Array) -> tuple[Array, tuple[()], Array]:
        assert orpo.explore is not None
        return orpo.explore(key, state.orpo, obs, memory)

    told_after_end = orpo.critics.after_end
    adaptive = decides and config.metric != "kl" and config.slices == "adaptive"
    return Algorithm(
        init,
        lambda key, state, obs, greedy: orpo.act(key, state.orpo, obs, greedy),
        learn,
        policy=lambda state, obs: orpo.policy(state.orpo, obs),
        start=start if decides else orpo.start,
        plan=plan if decides else None,
        explore=lasting if not decides and orpo.explore else None,
        actor=lambda state: orpo.actor(state.orpo),
        critics=Critics(
            lambda state, obs, action: orpo.critics.quantiles(state.orpo, obs, action),
            lambda state: orpo.critics.signal_bounds(state.orpo),
            lambda state: orpo.critics.return_bounds(state.orpo),
            None if told_after_end is None else lambda state: told_after_end(state.orpo),
        ),
        slices=head_slices if adaptive else None,
        cut_after=orpo.cut_after,
    )
