"""AWaVO as a whole: each part learns, none reaches where it must not, and decisions depend on what they should."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_protocol import parts
from toys import SPEC, compiled, moved, toy_rollout

from awavo.algorithms.awavo import AwavoConfig, awavo
from awavo.registry import make_task
from awavo.tasks.base import Transition, auto_reset
from awavo.training.compilation import jit_once
from awavo.training.rollout import collect, start_envs
from awavo.types import Box, EnvSpec, Rollout

SMALL = AwavoConfig(
    num_envs=2, rollout_length=8, num_updates=4, batch_size=16, hidden=(16,), num_quantiles=4, replay_capacity=64,
    num_critics=1, backup_steps=1, warmup_steps=1, imagined_batch=16, num_members=3, horizon=4, num_sequences=16,
    num_particles=8, num_slices=3,
)  # fmt: skip


def line_task():
    """A point on a line, pushed by one continuous action: reward -x^2, cost right of 1."""
    spec = EnvSpec("line", 1, Box((-1.0,), (1.0,)), 8, ("right",), (5.0,))

    def reset(key, params):
        x = jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
        return x, x

    def step(key, x, action, params):
        x = x + 0.3 * action
        return x, Transition(x, -(x[0] ** 2), (x > 1).astype(jnp.float32), jnp.zeros((), bool))

    return auto_reset(spec, (), reset, step)


class Case:
    """An algorithm on a task, compiled once."""

    def __init__(self, env, config):
        self.env, self.config = env, config
        self.algorithm = awavo(env.spec, config)
        self.init = jit_once(self.algorithm.init)
        self.learn = jax.jit(self.algorithm.learn)
        num = config.num_envs

        def roll(key, state):
            start_key, key = jax.random.split(key)
            worker = start_envs(start_key, env, num, self.algorithm.begin(num))
            return collect(key, env, self.algorithm, state, worker, config.rollout_length)

        self.roll = jax.jit(roll)


@pytest.fixture(scope="module")
def case():
    """The defaults, with continuous actions; discrete ones and other settings are decided with below."""
    return Case(line_task(), SMALL)


@pytest.fixture(scope="module")
def step(case):
    # The first rollout is random: what is looked at is decided after it.
    state = case.init(jax.random.key(0))
    state, _ = case.learn(jax.random.key(3), state, case.roll(jax.random.key(4), state)[1])
    worker, rollout = case.roll(jax.random.key(1), state)
    after, info = case.learn(jax.random.key(2), state, rollout)
    return state, worker, rollout, after, info


def changed(before, after):
    return [most > 0 for most in moved(before, after)]


def test_every_part_learns(step):
    state, _, _, after, info = step
    for before_net, after_net in (
        (state.orpo.learner.actor.net, after.orpo.learner.actor.net),
        (state.orpo.learner.critic.net, after.orpo.learner.critic.net),
        (state.model.nets, after.model.nets),
        (state.head, after.head),
    ):
        assert all(changed(before_net, after_net))
    assert not any(changed(state.model.priors, after.model.priors))
    assert int(after.posteriors.added) == 32
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(info))


def observations(case, rows=5):
    return np.random.default_rng(0).normal(size=(rows, case.env.spec.obs_dim)).astype(np.float32)


def test_slices_depend_on_the_state_and_stay_on_the_sphere(case, step):
    state = step[3]
    slices = np.asarray(jax.jit(lambda s, obs: s.head(s.orpo.learner.actor.net.hidden(obs)))(state, observations(case)))
    np.testing.assert_allclose(np.linalg.norm(slices, axis=-1), 1, rtol=1e-4)
    assert np.abs(slices[0] - slices[1]).max() > 1e-3


def test_slicing_gives_the_actor_no_gradient(case, step):
    state, obs = step[3], observations(case)
    gradient = jax.jit(jax.grad(lambda net: jnp.sum(state.head(net.hidden(obs)) ** 3)))
    assert max(np.abs(g).max() for g in map(np.asarray, jax.tree.leaves(gradient(state.orpo.learner.actor.net)))) == 0


def test_memory_is_fresh_where_an_episode_ended(case, step):
    """On the line every eighth step ends one, the last of a rollout; episodes of CartPole, below, outlast it."""
    _, worker, rollout, _, _ = step
    assert np.asarray(rollout.done)[-1].all()
    np.testing.assert_allclose(worker.memory, case.algorithm.begin(2))


def test_actions_are_those_of_the_posterior(step):
    _, _, rollout, _, _ = step
    after, action = np.asarray(rollout.extras.after), np.asarray(rollout.action)
    assert np.abs(after[..., 0, 0] - action).min(-1).max() < 1e-5


def test_the_actor_alone_needs_no_planner(case, step):
    obs = jnp.zeros((3, case.env.spec.obs_dim))
    action, extras = jax.eval_shape(lambda key, s: case.algorithm.act(key, s, obs, True), jax.random.key(0), step[3])
    assert action.shape[0] == 3
    assert extras == ()


TINY = dict(num_updates=1, rollout_length=2)
# Distances, and with the first of them the other ablations; on a task with discrete actions.
OTHERS = {
    "random-slices": dict(slices="random", degree=1, num_members=1, rectify="hard"),
    "kl": dict(metric="kl"),
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_other_distances_decide_and_learn(options):
    """What they decide is computed; learning from it is traced, the slicing head left out."""
    case = Case(make_task("cartpole"), dataclasses.replace(SMALL, **TINY, **options))
    assert case.algorithm.slices is None
    state = case.init(jax.random.key(0))
    worker, rollout = case.roll(jax.random.key(1), state)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(rollout))
    assert not np.allclose(worker.memory, case.algorithm.begin(2))
    np.testing.assert_allclose(np.asarray(rollout.extras.after).sum(-1), 1, rtol=1e-5)
    after, _ = jax.eval_shape(case.learn, jax.random.key(2), state, rollout)
    assert jax.tree.map(lambda x: x.shape, after) == jax.tree.map(lambda x: x.shape, state)


def test_learnt_slices_with_discrete_actions_are_learnt_from_too():
    """Traced: what is computed with them is compared in tests/deploy and, with continuous actions, above."""
    algorithm = awavo(make_task("cartpole").spec, dataclasses.replace(SMALL, **TINY))

    def once(key):
        state = algorithm.init(key)
        action, extras, _ = algorithm.plan(key, state, jnp.zeros((2, 4)), algorithm.begin(2), False)
        rows = jax.tree.map(lambda x: jnp.stack([x, x]), (action, extras))
        obs, flags, numbers, costs = (
            jnp.zeros((2, 2, 4)),
            jnp.zeros((2, 2), bool),
            jnp.zeros((2, 2)),
            jnp.zeros((2, 2, 2)),
        )
        lengths = jnp.ones((2, 2), jnp.int32)
        rollout = Rollout(obs, *rows, numbers, costs, flags, flags, obs, numbers, costs, lengths)
        return state, algorithm.learn(key, state, rollout)[0]

    before, after = jax.eval_shape(once, jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), before) == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert before.head is not None


def test_without_planning_it_is_orpo_dr_and_the_model_rests():
    """The program is that of tests/algorithms/test_protocol.py, which looks at all numbers that it gives."""
    factory, config = parts("awavo")
    assert config.planning == "off"
    programs = compiled(factory, config, SPEC)
    assert programs.algorithm.plan is None
    state = programs.state
    after, _ = programs.learn(jax.random.key(0), state, toy_rollout())
    assert not any(changed(state.model.nets, after.model.nets))
    assert any(changed(state.orpo.learner.actor, after.orpo.learner.actor))


def test_the_model_is_judged_before_it_learns(case, step):
    """The evidence after one `learn` is that of the members as they were, on transitions they had not seen."""
    from awavo.algorithms.model_learning import learnt_dynamics
    from awavo.inference.identification import assess

    state, _, rollout, after, _ = step
    dynamics = learnt_dynamics(case.env.spec, case.config)
    flat = [x.reshape(-1, *x.shape[2:]) for x in (rollout.obs, rollout.action, rollout.next_obs)]
    judged, _ = jax.jit(lambda model: assess(dynamics, model, *flat))(state.model)
    np.testing.assert_allclose(after.model.evidence, judged.evidence, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.model.stretch, judged.stretch, rtol=1e-5)
