"""Gymnasium ids of the tasks. Importing this module registers them; neither gymnasium nor this module loads jax."""

from __future__ import annotations

import gymnasium

__all__ = ["GYMNASIUM_IDS", "HOST_IDS", "register_all"]

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
    "awavo/QuadrotorDetours-v0": ("quadrotor-detours", 500),
}
# The same for host tasks.
HOST_IDS = {
    "awavo/HalfCheetahVelocity-v0": ("halfcheetah-velocity", 1000),
    "awavo/HopperVelocity-v0": ("hopper-velocity", 1000),
    "awavo/Walker2dVelocity-v0": ("walker2d-velocity", 1000),
    "awavo/AntVelocity-v0": ("ant-velocity", 1000),
    "awavo/SwimmerVelocity-v0": ("swimmer-velocity", 1000),
    "awavo/HumanoidVelocity-v0": ("humanoid-velocity", 1000),
    **{
        f"awavo/{agent}{arena}{level}-v0": (f"{agent}-{arena}{level}".lower(), 500 if arena == "Circle" else 1000)
        for agent in ("Point", "Car")
        for arena in ("Goal", "Button", "Push", "Circle")
        for level in (1, 2)
    },
}


def register_all() -> None:
    """Register every id once; calling it again changes nothing."""
    for ids, front in ((GYMNASIUM_IDS, "gymnasium:Task"), (HOST_IDS, "gymnasium_host:HostTask")):
        for env_id, (task, horizon) in ids.items():
            if env_id not in gymnasium.registry:
                gymnasium.register(
                    env_id,
                    entry_point=f"awavo.tasks.{front}Env",
                    vector_entry_point=f"awavo.tasks.{front}VectorEnv",
                    kwargs={"task": task, "horizon": horizon},
                )


register_all()
