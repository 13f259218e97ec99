"""Policies explained by counterfactual observations."""

import json
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.explain.measures import influences
from awavo.explain.run_explanation import distribution_weights, explain_policies
from awavo.explain.task_factors import TASK_PUSHES, Seen, task_factors
from awavo.networks import Categorical, SquashedGaussian
from awavo.registry import make_task
from awavo.runs.api import Run
from awavo.types import Algorithm


class LeanPolicy(eqx.Module):
    """A hand-written policy: it pushes towards where the pole leans, or not at all."""

    weights: jax.Array
    idle: bool = eqx.field(static=True, default=False)

    def __call__(self, obs):
        lean = obs @ self.weights
        return Categorical(jnp.stack([-lean, 0 * lean, lean] if self.idle else [-lean, lean], -1))


GREEDY = Algorithm(
    init=lambda key: (),
    act=lambda key, state, obs, greedy: (state(obs).mode(), ()),
    learn=lambda *args: args,
    policy=lambda state, obs: state(obs),
)


@pytest.fixture(scope="module")
def balanced():
    """A policy that looks at everything but where the cart is."""
    return LeanPolicy(jnp.array([0.0, 0.5, 10.0, 1.0]))


def test_a_policy_that_ignores_where_the_cart_is_is_not_moved_by_bands(balanced):
    env, factors = make_task("cartpole"), task_factors("cartpole")
    (trace,) = explain_policies(
        env, GREEDY, [balanced], factors, push=TASK_PUSHES["cartpole"], episodes=2, steps=60, seed=1
    )
    names = [f.name for f in factors]
    band, gravity, push = (trace.influence[..., names.index(n)] for n in ("position band", "gravity", "push"))
    assert band.max() == 0.0
    assert gravity[trace.running].mean() > 0.01
    assert push[:, :30].max() == 0.0
    assert push[:, 30:].max() > 0.0
    np.testing.assert_allclose(trace.shares.sum(-1), trace.together, atol=1e-6)


def test_each_factor_of_acrobot_moves_a_policy_that_looks_at_it_and_no_other():
    """Policies that look at the speed of link 1, of link 2, or at an angle alone: the influence has a closed form."""
    seen = {"link 1 cost": 4, "link 2 cost": 5, "gravity": 1}
    states = [LeanPolicy(2.0 * jnp.eye(6)[entry], idle=True) for entry in seen.values()]
    factors = task_factors("acrobot")
    names = [factor.name for factor in factors]
    traces = explain_policies(
        make_task("acrobot"), GREEDY, states, factors, push=TASK_PUSHES["acrobot"], episodes=1, steps=40
    )
    for (name, entry), trace in zip(seen.items(), traces, strict=True):
        value = 2.0 * trace.obs[0, :, entry].astype(float)
        kept = np.zeros_like(value) if name == "gravity" else np.minimum(value, 0)
        views = [np.exp(np.stack([-x, 0 * x, x], 1)) for x in (value, kept)]
        whole, less = (view / view.sum(1, keepdims=True) for view in views)
        np.testing.assert_allclose(trace.influence[0, :, names.index(name)], 0.5 * abs(whole - less).sum(1), atol=1e-5)
        best = whole.argmax(1)[:, None]
        ratio = np.take_along_axis(less, best, 1) / np.take_along_axis(whole, best, 1)
        np.testing.assert_allclose(trace.necessity[0, :, names.index(name)], np.maximum(1 - ratio[:, 0], 0), atol=1e-5)
        assert trace.influence[0, :, names.index(name)].max() > 0.2
        for other in set(seen) - {name}:
            assert trace.influence[..., names.index(other)].max() == 0.0
        assert trace.influence[0, :20, names.index("push")].max() == 0.0
        assert trace.influence[0, 20:, names.index("push")].max() > 0.01


def test_factors_follow_the_options_of_the_task():
    view = jnp.array([1.0, 0.0, 1.0, 0.0, -1.0, 2.0])
    lineage = {f.name: f for f in task_factors("acrobot", {"gate": "lineage"})}
    assert float(lineage["link 1 cost"].remove(Seen(view, view)).obs[4]) == 0.0
    assert float(lineage["link 2 cost"].remove(Seen(view, view)).obs[5]) == 2.0
    lean = jnp.array([0.0, 0.0, 0.2, 0.0])
    wide = {f.name: f for f in task_factors("cartpole", {"cost_angle": 0.24})}
    assert float(wide["angle limit"].remove(Seen(lean, lean)).obs[2]) == pytest.approx(0.16)


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


def test_gaussians_are_compared_on_one_pool():
    from scipy.stats import norm

    box = jnp.array([-2.0]), jnp.array([2.0])
    apart = SquashedGaussian(jnp.array([[0.0], [1.0]]), jnp.zeros((2, 1)), *box)
    weigh = jax.jit(lambda distribution, key: influences(distribution_weights(distribution, key))[0])
    found = [float(weigh(apart, jax.random.key(i))) for i in range(8)]
    assert np.mean(found) == pytest.approx(2 * norm.cdf(0.5) - 1, rel=0.05)
    same = SquashedGaussian(jnp.zeros((2, 1)), jnp.zeros((2, 1)), *box)
    assert float(weigh(same, jax.random.key(0))) == 0.0


def test_an_algorithm_without_a_policy_is_refused(balanced):
    alone = GREEDY._replace(policy=None)
    with pytest.raises(InputError, match="no policy network"):
        explain_policies(
            make_task("cartpole"), alone, [balanced], task_factors("cartpole"), push=TASK_PUSHES["cartpole"]
        )


def test_a_run_is_explained_in_files(tmp_path, balanced, monkeypatch, capsys):
    env = make_task("cartpole", horizon=60)
    problem = SimpleNamespace(env=env, spec=env.spec, algorithm=GREEDY)
    config = SimpleNamespace(task="cartpole", algo="own", task_options={})
    run = object.__new__(Run)  # no folder behind it
    run.path, run.config, run.problem, run.states, run.seeds = tmp_path / "run", config, problem, [balanced] * 2, [0, 1]
    run.path.mkdir()
    monkeypatch.setattr("awavo.runs.api.load", lambda path, trust: run)
    assert main(["explain", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes_per_seed"] == 2
    assert set(found["factors"]) == {"push", "position band", "angle limit", "gravity"}
    for row in found["factors"].values():
        assert 0 <= row["low"] <= row["mean"] <= row["high"] <= row["largest"] + 1e-9 <= 1 + 1e-6
        assert 0 <= row["necessity"]["low"] <= row["necessity"]["high"] <= 1
    assert set(found["costs"]) == {"position", "angle"} == set(env.spec.cost_names)
    for name in ("explanation.json", "explanation.csv", "explanation.html", "explanations.parquet"):
        assert (tmp_path / "run" / name).is_file()
    assert main(["explain", str(tmp_path / "run"), "--episodes", "0"]) == 2
    capsys.readouterr()
    for option in (["--factor", "nosuch"], ["--mass", "2"], ["--every", "3"], ["--steps", "9"]):
        assert main(["explain", str(tmp_path / "run"), *option]) == 2
        assert f"{option[0]} does nothing for a run folder" in capsys.readouterr().err
