"""Train two seeds in one vmapped program on as many devices as there are, and print what came out."""

import json
import sys

import jax

from awavo.reproduce.training import run_learning

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
    row = run_learning(SETTINGS, [0, 1], axis="vmap")
    kept = {key: row[key] for key in ("curve", "checkpoints", "evaluation", "last_info")}
    for part in (*kept["curve"], *kept["checkpoints"]):
        del part["wall_s"]
    json.dump({"devices": jax.device_count(), "row": kept}, sys.stdout)
