"""Names as people write them, and a colour for each method that never changes."""

from __future__ import annotations

__all__ = ["ALGO_COLORS", "ALGO_NAMES", "TASK_NAMES"]

TASK_NAMES = {"cartpole": "CartPole", "acrobot": "Acrobot", "drone": "Drone", "walker": "Walker"}
ALGO_NAMES = {
    "awavo": "AWaVO", "crpo": "CRPO", "pcpo": "PCPO", "trpo-ipo": "TRPO-IPO", "paets": "PaETS", "cpo": "CPO",
    "trpo-lagrangian": "TRPO-Lagrangian", "orpo-dr": "ORPO-DR",
    "ppo-lagrangian": "PPO-Lagrangian", "sac-lagrangian": "SAC-Lagrangian", "cal": "CAL",
}  # fmt: skip
ALGO_COLORS = {name: index for index, name in enumerate(ALGO_NAMES)}
