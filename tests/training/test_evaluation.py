"""Evaluation counts whole fresh episodes, on functional and on host environments alike."""

import shutil

import gymnasium as gym
import jax
import numpy as np
import pytest

import awavo
from awavo.registry import make_task
from awavo.runs.problem import build_problem
from awavo.runs.train import state_template
from awavo.tasks.host import host_env
from awavo.training.evaluation import evaluate_env, evaluate_host
from awavo.training.loop import chunk_fn
from awavo.types import Algorithm, Discrete, EnvSpec, Timestep


def push(obs):
    """Push to the right until the pole falls, long before the time is over, with costs on the way."""
    return (obs[:, 2] > -9).astype(np.int32)


SCRIPT = Algorithm(lambda key: (), lambda key, state, obs, greedy: (push(obs), ()), lambda *a: a)


def test_functional_and_host_evaluation_agree_with_plain_gymnasium():
    horizon, episodes = 40, 32
    env = make_task("cartpole", horizon=horizon)
    ours = jax.jit(evaluate_env(env, SCRIPT, episodes, True))(jax.random.key(0), ())
    host = host_env("awavo/CartPole-v0", num_envs=8, env_options={"horizon": horizon})
    hosted = evaluate_host(host, lambda key, obs, memory: (push(obs), memory), (), episodes, seed=3)
    plain = gym.make("awavo/CartPole-v0", horizon=horizon)
    totals = []
    for episode in range(episodes):
        obs, _ = plain.reset(seed=episode)
        total, over = np.zeros(3), False
        while not over:
            obs, reward, terminated, truncated, info = plain.step(int(push(obs[None])[0]))
            total += [reward, *info["costs"]]
            over = terminated or truncated
        totals.append(total)
    expected, spread = np.mean(totals, 0), np.std(totals, 0) / np.sqrt(episodes) + 1e-6
    for result in (ours, hosted):
        got = [np.mean(result.returns), *np.mean(result.costs, 0)]
        assert np.all(np.abs(got - expected) <= 5 * spread + 0.02)
    assert np.max(ours.returns) < horizon / 2


def test_only_the_first_episode_counts():
    env = make_task("cartpole", horizon=50)
    totals = evaluate_env(env, SCRIPT, 16, True)(jax.random.key(1), ())
    assert np.all(np.asarray(totals.returns) == np.asarray(totals.length))
    assert np.all(np.asarray(totals.length) <= 50)


@pytest.fixture
def run(small_run, tmp_path):
    return awavo.load(shutil.copytree(small_run, tmp_path / "run"))


def test_evaluation_does_not_depend_on_training_keys(run):
    first, again = run.evaluate(20), run.evaluate(20)
    other = run.evaluate(20, seed=5)
    assert first["greedy"]["return"] == again["greedy"]["return"]
    assert first["greedy"]["return"] != other["greedy"]["return"]
    assert first["greedy"]["return"] != first["stochastic"]["return"]


def test_policy_of_a_run_acts(run):
    assert run.act(np.zeros(4)).shape == ()
    assert run.act(np.zeros((5, 4)), seed=1).shape == (5,)
    for bad in (dict(obs=np.zeros(3)), dict(obs=np.zeros(4), seed=9), dict(obs=np.zeros(4), greedy=False)):
        with pytest.raises(awavo.errors.InputError):
            run.act(**bad)


def test_generator_yields_progress(small_config):
    phases = [p.phase for p in awavo.train_iter(small_config)]
    assert phases[0] == "compiling"
    assert phases[-1] == "finished"


def speed_cost(obs, action, next_obs):
    return np.abs(next_obs[:, 2]) > 4


def test_host_environment_trains_saves_and_resumes(tmp_path, smallest):
    options = dict(cost_limits=(20.0,), task_options={"horizon": 40})
    config = awavo.configure("Pendulum-v1", steps=320, seeds=2, **options, **smallest)
    run = awavo.train(config, tmp_path / "run", cost_fn=speed_cost)
    assert run.env_steps == 320
    result = run.evaluate(4)
    assert len(result["greedy"]["return"]["per_seed"]) == 2
    assert result["greedy"]["return"]["value"] < 0
    assert result["greedy"]["costs"]["cost"]["limit"] == 20.0
    again = awavo.train(config, tmp_path / "run", cost_fn=speed_cost)
    assert again.env_steps == 320


def test_sum_of_costs_as_one_constraint(small):
    problem = build_problem(awavo.configure("cartpole", steps=256, seeds=1, cost_sum_limit=40.0, **small))
    assert problem.spec.cost_names == ("total",)
    assert problem.spec.cost_limits == (40.0,)
    chunk = chunk_fn(problem.env, problem.algorithm, problem.settings.rollout_length)
    _, output = jax.eval_shape(chunk, state_template(problem), np.int32(1))
    assert output.episode_costs.shape[-1] == 1


def test_an_own_environment_needs_no_registration(tmp_path, smallest):
    env = make_task("hazard-grid", size=4)
    config = awavo.configure(env, steps=256, seeds=1, **smallest)
    run = awavo.train(config, tmp_path / "run", env=env)
    assert run.problem.spec.obs_dim == 16


def test_no_decision_is_made_once_every_episode_has_ended():
    env = make_task("cartpole", horizon=200)
    calls = []

    def act(key, state, obs, greedy):
        jax.debug.callback(lambda: calls.append(1))
        return push(obs), ()

    totals = jax.jit(evaluate_env(env, SCRIPT._replace(act=act), 4, True))(jax.random.key(0), ())
    jax.effects_barrier()
    assert len(calls) == int(np.max(totals.length)) < 200


class Timed:
    """Two environments: an episode of the first lasts 3 steps, of the second 1, and costs what it lasts."""

    num_envs, spec = 2, EnvSpec("timed", 1, Discrete(2), 3, ("time",), (1.0,))

    def reset(self, seed):
        self._left = np.array([3, 1])
        return np.zeros((2, 1))

    def restart(self, seeds):
        return np.zeros((2, 1))

    def close(self):
        pass

    def step(self, action):
        self._left -= 1
        done = self._left == 0
        self._left[done] = np.array([3, 1])[done]
        obs = np.zeros((2, 1))
        return Timestep(obs, np.zeros(2), np.ones((2, 1)), done, done & False, obs)


def test_the_order_of_episodes_does_not_depend_on_how_long_they_last():
    """Whoever reads the first of them, as certificates do, must not read the shortest."""
    found = evaluate_host(Timed(), lambda key, obs, memory: (np.zeros(2), memory), (), 6, seed=0)
    assert found.lengths.tolist() == [3, 1, 3, 1, 3, 1]
    assert found.costs[:, 0].tolist() == [3, 1, 3, 1, 3, 1]
