"""One short run of the walker, trained as a job of the paper's comparison, for all tests that look at a host run."""

import json

import pytest

EPISODES = 4
WALKER = {
    "task": "walker", "algo": "crpo", "steps": 64, "episodes": EPISODES, "cost_limits": [1.5],
    "task_options": {"horizon": 20, "num_hazards": 3},
    "options": {"num_envs": 4, "rollout_length": 16, "hidden": [8], "window": 4},
}  # fmt: skip


@pytest.fixture(scope="session")
def walker_job(once):
    """Run folder of two seeds, with a limit and a number of hazards of its own, and its greedy evaluation."""
    pytest.importorskip("mujoco")
    from awavo.paper.training import run_learning

    def make(folder):
        folder.mkdir()
        found = run_learning(WALKER, (3, 4), folder=folder / "run")["evaluation"]["greedy"]
        (folder / "greedy.json").write_text(json.dumps(found))

    folder = once("walker-job", make)
    return folder / "run", json.loads((folder / "greedy.json").read_text())
