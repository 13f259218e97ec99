"""Policies explained by counterfactual observations."""

import json
from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.cli import main
from awavo.explain.measures import influences
from awavo.explain.policy import law_weights
from awavo.explain.run_explanation import explain_policy
from awavo.explain.task_factors import TASK_PUSHES, Seen, task_factors
from awavo.networks.distributions import Categorical
from awavo.networks.normalizer import RunningStatistics, running_statistics
from awavo.networks.stochastic import Gaussian
from awavo.registry import make_task


class Law(eqx.Module):
    """A hand-written policy in the shape of an on-policy one: it pushes towards where the pole leans."""

    weights: jax.Array

    def __call__(self, obs):
        lean = obs @ self.weights
        return Categorical(jnp.stack([-lean, lean], -1))


class Estimates(NamedTuple):
    obs_stats: RunningStatistics


class State(NamedTuple):
    average: Law
    estimates: Estimates


class Greedy:
    plan = None

    def act(self, key, state, obs, greedy):
        return jnp.argmax(state.average(obs).logits, -1), ()


@pytest.fixture(scope="module")
def balanced():
    """A policy that looks at everything but where the cart is."""
    return State(Law(jnp.array([0.0, 0.5, 10.0, 1.0])), Estimates(running_statistics(4)))


def test_a_policy_that_ignores_where_the_cart_is_is_not_moved_by_bands(balanced):
    env, factors = make_task("cartpole"), task_factors("cartpole")
    trace = explain_policy(env, Greedy(), balanced, factors, push=TASK_PUSHES["cartpole"], episodes=2, steps=60, seed=1)
    names = [f.name for f in factors]
    band, gravity, push = (trace.influence[..., names.index(n)] for n in ("position band", "gravity", "push"))
    assert band.max() == 0.0
    assert gravity[trace.running].mean() > 0.01
    assert push[:, :30].max() == 0.0
    assert push[:, 30:].max() > 0.0
    np.testing.assert_allclose(trace.shares.sum(-1), trace.together, atol=1e-6)


def test_factors_change_nothing_outside_their_region():
    factors = {f.name: f for f in task_factors("cartpole")}
    obs = jnp.array([0.6, 0.3, 0.02, -0.1])
    seen = Seen(obs, obs)
    for name in ("push", "position band", "angle limit"):
        np.testing.assert_array_equal(factors[name].remove(seen).obs, obs)
    assert float(factors["position band"].remove(Seen(obs.at[0].set(0.05), obs)).obs[0]) == pytest.approx(0.6)
    acrobot = {f.name: f for f in task_factors("acrobot")}
    view = jnp.array([1.0, 0.0, 1.0, 0.0, -1.0, 2.0])
    np.testing.assert_array_equal(acrobot["link 1 cost"].remove(Seen(view, view)).obs, view)
    assert float(acrobot["link 2 cost"].remove(Seen(view, view)).obs[5]) == 0.0
    np.testing.assert_array_equal(acrobot["gravity"].remove(Seen(view, view)).obs, view)


def test_gaussian_laws_are_compared_on_one_pool():
    from scipy.stats import norm

    law = Gaussian(jnp.array([[0.0], [1.0]]), jnp.zeros((2, 1)))
    weigh = jax.jit(lambda law, key: influences(law_weights(law, key))[0])
    found = [float(weigh(law, jax.random.key(i))) for i in range(8)]
    assert np.mean(found) == pytest.approx(2 * norm.cdf(0.5) - 1, rel=0.05)
    same = Gaussian(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    assert float(weigh(same, jax.random.key(0))) == 0.0


def test_a_run_is_explained_in_files(tmp_path, balanced, monkeypatch, capsys):
    env = make_task("cartpole", horizon=60)
    problem = SimpleNamespace(env=env, spec=env.spec, algorithm=Greedy())
    config = SimpleNamespace(task="cartpole", algo="own")
    run = SimpleNamespace(path=tmp_path / "run", config=config, problem=problem, states=[balanced] * 2, seeds=[0, 1])
    run.path.mkdir()
    monkeypatch.setattr("awavo.api.load", lambda path, trust: run)
    assert main(["explain", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes_per_seed"] == 2
    assert set(found["factors"]) == {"push", "position band", "angle limit", "gravity"}
    for row in found["factors"].values():
        assert 0 <= row["low"] <= row["mean"] <= row["high"] <= row["largest"] + 1e-9 <= 1 + 1e-6
    for name in ("explanation.json", "explanation.csv", "explanation.html", "explanations.parquet"):
        assert (tmp_path / "run" / name).is_file()
    assert main(["explain", str(tmp_path / "run"), "--episodes", "0"]) == 2
