"""Deciding by inference: what it reduces to, and what it achieves with a perfect model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from awavo.inference.ensemble import Prediction, ensemble
from awavo.inference.operators import make_operator
from awavo.inference.planner import EFFECTIVE_SHARE, PlanningModel, ensemble_steps, planner, predicted_steps
from awavo.inference.sequences import LASTING, PlanningConfig, candidate_noise, sequences, slice_shape
from awavo.inference.wvi import resample
from awavo.networks import Categorical, SquashedGaussian
from awavo.tasks.tabular import hazard_grid_cmdp
from awavo.types import Box, Discrete, EnvSpec

KEY = jax.random.key(0)
CONFIG = PlanningConfig(num_sequences=64, horizon=6, num_slices=4, num_particles=16, discount=0.9)
BOX = EnvSpec("toy", 1, Box((-2.0,), (2.0,)), 10, ("g",), (5.0,))
OPERATOR = make_operator("log", temperature=0.1)
LOW, HIGH = -20.0, 20.0


def push_model(spec, weights=(1.0, 0.0), sharpness=1.0, gains=(0.9, 1.1), std=0.0):
    """A cart on a line: reward -x^2, cost where x > 1; members that disagree on the push."""
    num_members = len(gains)
    gains = jnp.array(gains)[:, None]

    def predict(obs, action):
        push = (action - 0.5) * 2 if isinstance(spec.action_space, Discrete) else action[..., 0]
        x = obs[..., 0] + 0.5 * gains * push
        cost = jax.nn.sigmoid(20 * (x - 1))
        return Prediction(x[..., None], jnp.full_like(obs, std), -(x**2), cost[..., None], jnp.zeros_like(x))

    def policy(obs):
        if isinstance(spec.action_space, Discrete):
            return Categorical(jnp.zeros((*obs.shape[:-1], spec.action_space.num)))
        return SquashedGaussian(jnp.zeros_like(obs), jnp.zeros_like(obs), jnp.array([-2.0]), jnp.array([2.0]))

    def log_optimality(signals):
        reward = OPERATOR.reward_log_likelihood(signals[..., 0], LOW, HIGH)
        cost = OPERATOR.cost_log_likelihood(signals[..., 1], LOW, HIGH)
        return sharpness * (weights[0] * reward + weights[1] * cost)

    log_weights = jnp.full(num_members, -np.log(num_members))
    return PlanningModel(
        *predicted_steps(predict), log_weights, policy, lambda obs: jnp.zeros((*obs.shape[:-1], 2)), log_optimality
    )


def run(spec, config, obs=(1.5,), weights=(1.0, 0.0), sharpness=1.0, gains=(0.9, 1.1), std=0.0):
    """One decision in the model; whatever is weighed and wherever it begins, it is the same program."""
    return jax.device_get(
        program(spec, config, gains)(KEY, np.float32(obs), np.float32(weights), np.float32(sharpness), np.float32(std))
    )


@functools.cache
def program(spec, config, gains):
    decide = planner(spec, config)

    @jax.jit
    def go(key, obs, weights, sharpness, std):
        slices = jax.random.normal(jax.random.key(9), slice_shape(spec.action_space, config))
        model = push_model(spec, weights, sharpness, gains, std)
        return decide(key, model, obs, sequences(spec.action_space, config).start(), slices)

    return go


def test_log_operator_with_kl_gives_the_weights_of_mppi():
    """One member, KL: w_k = exp(R_k / lambda) / sum, with R_k computed here, step by step."""
    config = dataclasses.replace(CONFIG, metric="kl")
    result = run(BOX, config, gains=(1.1,))
    returns = []
    for actions in np.asarray(result.target, np.float64).reshape(config.num_sequences, config.horizon):
        x, total = 1.5, 0.0
        for step, unit in enumerate(actions):
            x += 0.5 * 1.1 * 2.0 * unit
            total -= config.discount**step * x**2
        returns.append(total)
    scale = 0.1 * (HIGH - LOW) * float(result.temperature)
    weights = np.exp((np.array(returns) - max(returns)) / scale)
    np.testing.assert_allclose(result.weights, weights / weights.sum(), atol=1e-5)


@pytest.mark.parametrize("spec", [BOX, BOX._replace(action_space=Discrete(2))], ids=["box", "discrete"])
def test_the_scale_of_the_likelihoods_does_not_matter(spec):
    """T follows their spread: the same share of the candidates counts, and the same ones do."""
    found = [run(spec, CONFIG, sharpness=s, gains=(1.1,)) for s in (0.01, 1.0, 30.0)]
    for one in found:
        assert float(one.effective_size) == pytest.approx(max(EFFECTIVE_SHARE * CONFIG.num_sequences, 1.0), rel=0.2)
        np.testing.assert_allclose(one.weights, found[0].weights, atol=1e-3)


@pytest.mark.parametrize("metric", ["a-gswd", "kl"])
def test_particles_go_where_the_reward_is_and_stay_in_the_box(metric):
    result = run(BOX, dataclasses.replace(CONFIG, metric=metric, degree=1))
    assert np.abs(result.plan).max() <= 1
    assert float(result.plan[:, 0].mean()) < -0.4


def test_costs_move_the_decision():
    free = run(BOX, dataclasses.replace(CONFIG, degree=1), obs=(1.2,), weights=(0.0, 0.0))
    bound = run(BOX, dataclasses.replace(CONFIG, degree=1), obs=(1.2,), weights=(0.0, 1.0))
    assert float(bound.plan[:, 0].mean()) < float(free.plan[:, 0].mean()) - 0.2


def test_the_spread_that_members_predict_enters_the_likelihood():
    """Reward -x^2 of steps shaken by sigma: what is expected of step k falls by sigma^2 for each of k shakes."""
    sigma, options = 0.3, dict(obs=(0.0,), gains=(1.0,) * 512, sharpness=0.01)
    calm, shaken = (run(BOX, CONFIG, std=std, **options) for std in (0.0, sigma))
    steps = np.arange(CONFIG.horizon)
    expected = 0.01 * sigma**2 * np.sum(CONFIG.discount**steps * steps) / (0.1 * (HIGH - LOW))
    fallen = calm.log_likelihood - shaken.log_likelihood
    assert float(fallen.mean()) == pytest.approx(expected, rel=0.25)
    assert float(fallen.std()) < expected  # the same shaking for all candidates


def test_noise_that_lasts_is_as_wide_at_every_step_and_half_of_it_is_left_in_the_next():
    noise = np.asarray(candidate_noise(jax.random.key(0), (6, 20_000, 2))).reshape(6, -1)
    np.testing.assert_allclose(noise.std(1), 1.0, atol=0.02)
    ago = np.abs(np.subtract.outer(range(6), range(6)))
    np.testing.assert_allclose(np.corrcoef(noise), LASTING**ago, atol=0.02)
    # The candidates of a decision have it: those of the actor here.
    q = sequences(Box((-1.0,), (1.0,)), PlanningConfig(horizon=3, num_sequences=20_000))
    drawn = np.asarray(q.prepare(jax.random.key(1), q.start())[1])[..., 0]
    np.testing.assert_allclose(np.corrcoef(drawn), LASTING ** ago[:3, :3], atol=0.05)


def test_warm_start_carries_over(monkeypatch):
    """With no candidates but those of the posterior before, the next decision starts from the shifted plan."""
    spec = BOX._replace(action_space=Discrete(2))
    monkeypatch.setattr("awavo.inference.sequences.ACTOR_SHARE", 0.0)
    monkeypatch.setattr("awavo.inference.sequences.MEMORY_SHARE", 1.0)
    config = CONFIG
    plan = np.float32([[0.0, 1.0]] * config.horizon)
    slices = np.ones(slice_shape(spec.action_space, config), np.float32)
    decide = jax.jit(lambda plan: planner(spec, config)(KEY, push_model(spec), jnp.array([0.0]), plan, slices))
    result = jax.device_get(decide(plan))
    np.testing.assert_allclose(result.before[:-1, 1], 1)
    np.testing.assert_allclose(result.before[-1], 0.5)
    np.testing.assert_allclose(result.plan[:-1, 1], 1, atol=1e-3)


def two_ways(config, dim=4):
    """Candidates of two modes, at -0.6 and 0.6 of the first axis, and the functions of their space."""
    space = Box((-1.0,) * dim, (1.0,) * dim)
    own = sequences(space, config)
    actions = 0.03 * np.random.default_rng(1).normal(size=(config.horizon, config.num_sequences, dim))
    actions[..., 0] += np.where(2 * np.arange(config.num_sequences) < config.num_sequences, -0.6, 0.6)
    return own, actions.astype(np.float32), slice_shape(space, config)


@pytest.mark.parametrize("metric", ["a-gswd", "kl"])
def test_no_particle_is_left_between_two_modes(metric):
    config = dataclasses.replace(CONFIG, metric=metric, degree=1, horizon=8, num_slices=8)
    own, actions, shape = two_ways(config)
    weights = np.full(config.num_sequences, 1 / config.num_sequences, np.float32)
    slices = jax.random.normal(KEY, shape)
    start = np.zeros((config.num_particles, 8, 4), np.float32)
    moved = np.asarray(jax.jit(own.move)(KEY, start, actions, weights, slices)[0])
    assert (np.abs(moved[:, :, 0].mean(1)) > 0.4).all()
    assert 0.3 < (moved[:, 0, 0] > 0).mean() < 0.7


def test_ascended_slices_place_few_particles_better_than_resampling():
    """W2 of 8 particles to 128 candidates of uneven weights, by exact transport over 12 draws."""
    config = dataclasses.replace(CONFIG, degree=1, horizon=6, num_particles=8, num_slices=8)
    own, actions, shape = two_ways(config, dim=2)
    other = sequences(Box((-1.0,) * 2, (1.0,) * 2), dataclasses.replace(config, metric="kl"))
    weights = np.exp(np.random.default_rng(5).normal(size=config.num_sequences))
    weights = (weights / weights.sum()).astype(np.float32)
    start = np.zeros((8, 6, 2), np.float32)
    gaps = []
    for functions in (own, other):
        move = jax.jit(functions.move)
        found = [move(jax.random.key(i), start, actions, weights, jax.random.normal(jax.random.key(50 + i), shape))[0]
                 for i in range(12)]  # fmt: skip
        target = np.swapaxes(np.asarray(actions), 0, 1).reshape(config.num_sequences, -1)
        gaps.append(np.mean([exact_w2(np.asarray(q).reshape(8, -1), target, np.asarray(weights)) for q in found]))
    assert gaps[0] < 0.97 * gaps[1]


def exact_w2(points, others, weights):
    """W2^2 of equal weights to given ones, by a linear programme."""
    costs = ((points[:, None] - others) ** 2).sum(-1)
    num, count = costs.shape
    rows = np.kron(np.eye(num), np.ones(count))
    columns = np.kron(np.ones(num), np.eye(count))
    weights = weights.astype(float) / weights.sum()
    found = scipy.optimize.linprog(
        costs.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([np.full(num, 1 / num), weights])
    )
    return found.fun


def test_the_action_commits_to_a_mode_and_stays_with_it():
    """Two equal ways round: the greedy action is one of them, and the next decision keeps it where both are as good."""
    config = dataclasses.replace(CONFIG, degree=1, horizon=8)
    own, actions, shape = two_ways(config)
    weights = np.full(config.num_sequences, 1 / config.num_sequences, np.float32)
    slices = jax.random.normal(KEY, shape)
    move, pick, shift = jax.jit(own.move), jax.jit(own.pick, static_argnums=2), jax.jit(own.shift)
    for side in (-0.6, 0.6):
        before = np.zeros((config.num_particles, 8, 4), np.float32)
        before[..., 0] = side
        for seed in range(6):
            q = move(jax.random.key(seed), before, actions, weights, slices)[0]
            chosen, drawn = (np.asarray(pick(jax.random.key(seed), q, greedy)) for greedy in (True, False))
            assert np.sign(chosen[0]) == np.sign(side)
            assert abs(chosen[0]) > 0.5
            assert abs(drawn[0]) > 0.4
            before = shift(q)


def test_joint_sequences_keep_two_ways_apart(monkeypatch):
    """All left or all right, equally good: particles are one or the other, so are the next candidates; one is kept."""
    monkeypatch.setattr("awavo.inference.sequences.ACTOR_SHARE", 0.0)
    monkeypatch.setattr("awavo.inference.sequences.MEMORY_SHARE", 1.0)
    space, config = Discrete(2), dataclasses.replace(CONFIG, metric="cells", horizon=8, num_particles=8)
    own, shape = sequences(space, config), slice_shape(space, config)
    assert shape == (config.num_slices, 16)
    way = (jnp.arange(config.num_sequences) % 2)[None]
    actions = jnp.where(jax.random.uniform(KEY, (8, config.num_sequences)) < 0.05, 1 - way, way)
    weights = jnp.full(config.num_sequences, 1 / config.num_sequences)
    nobody = Categorical(jnp.zeros((0, 2)))

    @jax.jit
    def go(key, before):
        q = own.move(key, before, actions, weights, jax.random.normal(key, shape))[0]
        drawn = jax.vmap(lambda prepared: own.propose(prepared, nobody))(own.prepare(key, q))
        sampled = jax.vmap(lambda key: own.pick(key, q, False))(jax.random.split(key, 64))
        return q, drawn, own.pick(key, q, True), sampled

    for side in (0, 1):
        before = jnp.broadcast_to(jax.nn.one_hot(side, 2), (8, 8, 2))
        for seed in range(4):
            q, drawn, greedy, sampled = go(jax.random.key(seed), before)
            np.testing.assert_allclose(q.sum(-1), 1, rtol=1e-5)
            right = np.asarray(q)[..., 1].mean(1)
            assert (np.abs(right - 0.5) > 0.15).all()  # those that slipped most have a cell of their own
            assert 0.3 < (right > 0.5).mean() < 0.7
            assert np.abs(np.asarray(drawn).mean(0) - 0.5).mean() > 0.3  # independent steps: 0.14
            assert int(greedy) == side
            assert np.mean(np.asarray(sampled) == side) > 0.75
            before = own.shift(q)
            np.testing.assert_allclose(before[:, -1], 0.5)


def test_systematic_resampling_keeps_shares():
    weights = jnp.array([0.5, 0.25, 0.25, 0.0])
    counts = np.bincount(resample(KEY, weights, 16), minlength=4)
    np.testing.assert_array_equal(counts, [8, 4, 4, 0])


def test_a_perfect_model_plans_within_one_percent_of_the_optimum(monkeypatch):
    """A grid without slips, N = the horizon: R - 0.5 G1 - 0.5 G2 of the executed episode against backward induction."""
    cmdp = hazard_grid_cmdp(4, slip=0.0)
    horizon, weights = 12, np.array([1.0, -0.5, -0.5])
    transition, signals = np.asarray(cmdp.transition), np.asarray(cmdp.signals)
    utility = np.einsum("i,isa->sa", weights, signals)
    values = np.zeros(16)
    for _ in range(horizon):
        values = (utility + transition @ values).max(1)
    spec = EnvSpec("grid", 16, Discrete(4), horizon, ("g1", "g2"), (1.0, 1.0))
    for name, share in (
        ("sequences.ACTOR_SHARE", 0.0),
        ("sequences.MEMORY_SHARE", 0.6),
        ("planner.EFFECTIVE_SHARE", 0.01),
        ("sequences.DESCENT_STEPS", 8),
    ):
        monkeypatch.setattr(f"awavo.inference.{name}", share)
    config = PlanningConfig(num_sequences=1024, horizon=horizon, discount=1 - 1e-5, num_slices=4)
    following = jnp.argmax(cmdp.transition, -1)

    def predict(obs, action):
        state = jnp.argmax(obs, -1)
        found = cmdp.signals[:, state, action]
        return Prediction(jax.nn.one_hot(following[state, action], 16), jnp.zeros_like(obs), found[0],
                          jnp.moveaxis(found[1:], 0, -1), jnp.zeros(state.shape))  # fmt: skip

    model = PlanningModel(
        *predicted_steps(predict),
        jnp.zeros(1),
        lambda obs: Categorical(jnp.zeros((*obs.shape[:-1], 4))),
        lambda obs: jnp.zeros((*obs.shape[:-1], 3)),
        lambda s: s @ jnp.asarray(weights),
    )
    slices = jax.random.normal(KEY, slice_shape(spec.action_space, config))
    decide = jax.jit(lambda key, obs, plan: planner(spec, config)(key, model, obs, plan, slices).plan)

    leads = np.asarray(following)
    state, total, plan = 0, 0.0, np.asarray(sequences(spec.action_space, config).start())
    for step in range(horizon):
        for again in range(4):
            # A decision begins with the plan of the step before, shifted; thinking again begins with the plan itself.
            known = plan if again == 0 else np.roll(plan, 1, 0)
            plan = np.asarray(decide(jax.random.key(100 * step + again), np.eye(16, dtype=np.float32)[state], known))
        action = int(np.argmax(plan[0]))
        total += utility[state, action]
        state = int(leads[state, action])
    assert total >= values[0] - 0.01 * abs(values[0])


def test_what_steps_mean_is_the_same_asked_at_once_and_all_together(monkeypatch):
    """On a CPU step by step, elsewhere in one batch."""
    dynamics = ensemble(BOX, 2, (8,), 1e-3, 1e-4, 0.1, "relu")
    model, actions, start = dynamics.init(KEY), jax.random.normal(KEY, (3, 5, 1)), jnp.ones((2, 5, 1))
    found = []
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        advance, outcomes = ensemble_steps(dynamics, model)

        def step(obs, action, advance=advance):
            next_obs, said = advance(obs, action, None)
            return next_obs, (obs, next_obs, said)

        last, (visited, reached, said) = jax.lax.scan(step, start, actions)
        found.append((last, *outcomes(said, visited, actions, reached)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
