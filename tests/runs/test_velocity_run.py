"""A velocity task from training to a verdict: its options reach the simulation, and a run resumes."""

import pytest

import awavo


def test_a_velocity_task_is_trained_resumed_and_evaluated(tmp_path, smallest):
    pytest.importorskip("mujoco")
    options = dict(task_options={"horizon": 20, "rules": "v5"}, cost_limits=(5.0,), seeds=2)
    config = awavo.configure("ant-velocity", steps=128, **options, **smallest)
    for _ in awavo.train_iter(config, tmp_path / "run"):
        break  # as if interrupted
    run = awavo.train(config, tmp_path / "run")
    assert (run.problem.spec.obs_dim, run.problem.spec.cost_limits) == (105, (5.0,))
    greedy = run.evaluate(episodes=2)["greedy"]
    assert set(greedy["costs"]) == {"velocity"}
    assert greedy["length"]["value"] <= 20
