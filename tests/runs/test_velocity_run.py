"""Tasks of the field from training to a verdict: their options reach the simulation, and a run resumes."""

import pytest

import awavo


@pytest.mark.parametrize(
    ("task", "options", "obs_dim", "cost"),
    [
        ("ant-velocity", {"horizon": 20, "rules": "v5"}, 105, "velocity"),
        ("point-goal1", {"horizon": 20}, 60, "sum"),
    ],
)
def test_a_task_is_trained_resumed_and_evaluated(tmp_path, smallest, task, options, obs_dim, cost):
    pytest.importorskip("mujoco")
    config = awavo.configure(task, steps=128, task_options=options, cost_limits=(5.0,), seeds=2, **smallest)
    for _ in awavo.train_iter(config, tmp_path / "run"):
        break  # as if interrupted
    run = awavo.train(config, tmp_path / "run")
    assert (run.problem.spec.obs_dim, run.problem.spec.cost_limits) == (obs_dim, (5.0,))
    greedy = run.evaluate(episodes=2)["greedy"]
    assert set(greedy["costs"]) == {cost}
    assert greedy["length"]["value"] <= 20
