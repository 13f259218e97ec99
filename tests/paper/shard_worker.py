"""Train two seeds in one program over all devices, the second again beside another, with jax and its friends alone."""

import json
import sys

BLOCKED = {"tyro", "polars", "matplotlib", "gymnasium", "scipy", "rich", "jinja2", "mujoco", "safetensors", "ray"}


class Blocker:
    """Refuses what a bare GPU machine does not have."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not installed here")


sys.meta_path.insert(0, Blocker())

import jax  # noqa: E402

import awavo.paper.jobs  # noqa: E402
import awavo.paper.plans  # noqa: E402
from awavo.paper.training import run_learning  # noqa: E402
from awavo.training.compilation import enable_cache  # noqa: E402

SETTINGS = {
    "task": "cartpole",
    "algo": "crpo",
    "steps": 1024,
    "points": 2,
    "checkpoints": 2,
    "spacing": "linear",
    "episodes": 4,
    "options": {"num_envs": 8, "rollout_length": 32, "hidden": [8], "window": 4},
}

if __name__ == "__main__":
    enable_cache()
    rows = {name: run_learning(SETTINGS, seeds, axis="vmap") for name, seeds in (("both", [0, 1]), ("moved", [1, 2]))}
    planned = len(awavo.paper.plans.plan_jobs("learning", "full"))
    json.dump({"devices": jax.device_count(), "planned": planned, "rows": rows}, sys.stdout)
