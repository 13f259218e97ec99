"""Names as people write them, and a colour for each method that never changes."""

from __future__ import annotations

__all__ = ["ALGO_COLORS", "ALGO_NAMES", "TASK_NAMES"]

TASK_NAMES = {
    "cartpole": "CartPole", "acrobot": "Acrobot", "drone": "Drone", "walker": "Walker",
    "navigation": "Navigation", "pendulum": "Pendulum", "walker-mjx": "Walker with torques",
    "halfcheetah-velocity": "HalfCheetah velocity", "hopper-velocity": "Hopper velocity",
    "walker2d-velocity": "Walker2d velocity", "ant-velocity": "Ant velocity", "swimmer-velocity": "Swimmer velocity",
    "humanoid-velocity": "Humanoid velocity", "point-goal1": "PointGoal1", "car-goal1": "CarGoal1",
    "point-goal2": "PointGoal2", "car-goal2": "CarGoal2", "point-button1": "PointButton1",
    "point-button2": "PointButton2", "car-button1": "CarButton1", "car-button2": "CarButton2",
}  # fmt: skip
ALGO_NAMES = {
    "awavo": "AWaVO", "crpo": "CRPO", "pcpo": "PCPO", "trpo-ipo": "TRPO-IPO", "paets": "PaETS", "cpo": "CPO",
    "trpo-lagrangian": "TRPO-Lagrangian", "orpo-dr": "ORPO-DR",
    "ppo-lagrangian": "PPO-Lagrangian", "sac-lagrangian": "SAC-Lagrangian", "cal": "CAL",
}  # fmt: skip
# Eight colours can be told apart: the field's own baselines share those of methods that no chart shows beside them.
SHARED_COLORS = {"ppo-lagrangian": 4, "sac-lagrangian": 2, "cal": 3}
ALGO_COLORS = {name: SHARED_COLORS.get(name, index) for index, name in enumerate(ALGO_NAMES)}
