"""Seeds of a host task in one program learn what they learn one after the other."""

import functools

import gymnasium as gym
import jax
import numpy as np
import pytest

import awavo
from awavo.config import TrainConfig
from awavo.errors import BrokenEnvironmentError
from awavo.runs.problem import build_problem, resolve_config
from awavo.runs.train import state_template
from awavo.training.compilation import jit_once
from awavo.training.evaluation import evaluate_host, evaluate_hosts
from awavo.training.host_loop import HostRunner

SETTINGS = {
    "num_envs": 3, "rollout_length": 6, "num_updates": 2, "batch_size": 8, "warmup_steps": 12, "hidden": (8,),
    "num_members": 2, "horizon": 3, "num_sequences": 8, "num_rounds": 2, "num_components": 2, "replay_capacity": 200,
}  # fmt: skip


@functools.cache
def planner_problem():
    """A planner, because it has a memory that must follow its environment."""
    options = {"horizon": 10}
    return build_problem(
        resolve_config(
            TrainConfig(task="awavo/Navigation-v0", algo="paets", task_options=options, algo_options=SETTINGS)
        )
    )


def test_seeds_in_one_program_learn_the_same():
    problem = planner_problem()
    assert problem.make_host is not None
    outputs, states = {}, {}
    for axis in ("map", "vmap"):
        runner = HostRunner([3, 4], problem.make_host, problem.algorithm, 6, axis)
        legs = zip(runner.run(2), runner.run(1), strict=True)
        outputs[axis] = [jax.tree.map(lambda a, b: np.concatenate([a, b]), *both) for both in legs]
        states[axis] = runner.states
        runner.close()
    for alone, together in zip(outputs["map"], outputs["vmap"], strict=True):
        np.testing.assert_array_equal(alone.done, together.done)
        np.testing.assert_allclose(alone.episode_return, together.episode_return, rtol=1e-3, atol=1e-4)
    for alone, together in zip(states["map"], states["vmap"], strict=True):
        assert int(alone.iteration) == int(together.iteration) == 3
        models = (state.algorithm.model.nets for state in (alone, together))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), *models)
    first, second = (state.algorithm.model.nets for state in states["vmap"])
    assert any(not np.allclose(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def test_a_host_has_as_many_environments_as_asked_and_a_state_the_shapes_of_its_template():
    problem = planner_problem()
    assert problem.make_host is not None
    assert [problem.make_host(5).num_envs, problem.make_host().num_envs] == [5, problem.settings.num_envs]
    state = HostRunner([0], problem.make_host, problem.algorithm, 2).states[0]
    shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)  # noqa: E731
    assert shapes(state_template(problem)) == shapes(state)


def test_policies_in_step_are_judged_as_alone():
    problem = planner_problem()
    make_host, algorithm = problem.make_host, problem.algorithm
    assert make_host is not None
    begin = jit_once(algorithm.init)
    states = [begin(jax.random.key(i)) for i in (0, 1)]
    fresh = algorithm.begin(3)
    greedy = jax.jit(lambda k, s, o, m: algorithm.decide(k, s, o, m, True)[::2])
    alone = [
        evaluate_host(make_host(), lambda k, o, m, s=s: greedy(k, s, o, m), fresh, 5, seed)
        for s, seed in zip(states, (7, 8), strict=True)
    ]
    stacked = jax.tree.map(lambda *x: jax.numpy.stack(x), *states)
    decide = jax.jit(jax.vmap(greedy))
    together = evaluate_hosts([make_host(), make_host()], lambda k, o, m: decide(k, stacked, o, m), fresh, 5, (7, 8))
    for one, same in zip(alone, together, strict=True):
        assert len(one.returns) == 6
        for a, b in zip(one, same, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert not np.allclose(alone[0].returns, alone[1].returns)


class Fragile(gym.Env):
    """A point that raises at its 150th step in this process."""

    observation_space = gym.spaces.Box(-10, 10, (2,))
    action_space = gym.spaces.Discrete(2)
    taken = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Fragile.taken += 1
        if Fragile.taken == 150:
            raise OSError("the simulator is gone")
        return np.full(2, 0.1, np.float32), 1.0, False, False, {"cost": 0.0}


def test_an_environment_that_raises_loses_the_steps_since_the_last_checkpoint(tmp_path, monkeypatch):
    gym.register("Fragile-v0", Fragile, max_episode_steps=20)
    monkeypatch.setattr("awavo.runs.train.CHUNK_SECONDS", 0.0)
    settings = {k: v for k, v in SETTINGS.items() if k in ("num_envs", "rollout_length", "hidden")}
    config = awavo.configure("Fragile-v0", "crpo", steps=180, seeds=1, cost_limits=(1,), **settings)
    with pytest.raises(BrokenEnvironmentError) as caught:
        list(awavo.train_iter(config, tmp_path / "run", checkpoint_seconds=0))
    assert "step() raised OSError: the simulator is gone (in step," in str(caught.value)
    assert "It broke after step 144 of each seed; saved up to step 144; the same command resumes there." in str(
        caught.value
    )
    updates = list(awavo.train_iter(config, tmp_path / "run", checkpoint_seconds=0))
    assert (updates[0].resumed_at, updates[-1].phase) == (144, "finished")
