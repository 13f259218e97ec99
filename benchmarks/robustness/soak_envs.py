"""An environment for soak.py that misbehaves when it is told to."""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np

FAULT = ""


class SoakPoint(gym.Env):
    """A point that the action pushes; the cost is its distance."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Start near zero, or nowhere."""
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.1, 0.1, 2)
        if FAULT == "nan":
            self.place = self.place * np.nan
        return self.place.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Move, hang or raise."""
        if FAULT == "hang":
            time.sleep(3600)
        if FAULT == "raise":
            raise OSError("the simulator is gone")
        self.place = np.clip(self.place + np.array([0.1 * float(action[0]), 0.01]), -5, 5)
        distance = float(np.abs(self.place).sum())
        return self.place.astype(np.float32), -distance, False, False, {"cost": distance}


gym.register("SoakPoint-v0", SoakPoint, max_episode_steps=10)
