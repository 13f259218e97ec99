"""Gymnasium ids of the tasks. Importing this module registers them; neither gymnasium nor this module loads jax."""

from __future__ import annotations

import gymnasium

__all__ = ["GYMNASIUM_IDS", "register_all"]

# id -> (task, horizon). The horizon stands in the registered keywords because the environments truncate themselves:
# a registered `max_episode_steps` would cut `gymnasium.make(id, horizon=...)` short.
GYMNASIUM_IDS = {
    "awavo/CartPole-v0": ("cartpole", 200),
    "awavo/Acrobot-v0": ("acrobot", 500),
    "awavo/Navigation-v0": ("navigation", 100),
    "awavo/Garnet-v0": ("garnet", 50),
    "awavo/HazardGrid-v0": ("hazard-grid", 50),
    "awavo/Drone-v0": ("drone", 1000),
    "awavo/Quadrotor-v0": ("quadrotor", 500),
}


def register_all() -> None:
    """Register every id once; calling it again changes nothing."""
    for env_id, (task, horizon) in GYMNASIUM_IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="awavo.tasks.gymnasium:TaskEnv",
                vector_entry_point="awavo.tasks.gymnasium:TaskVectorEnv",
                kwargs={"task": task, "horizon": horizon},
            )


register_all()
