"""An environment of your own with two costs: train, evaluate, film and report it.

    python examples/own_environment.py [RUN_FOLDER]

A boat crosses a river of changing current. Every step it may use fuel, and near the rocks it is in danger: two costs,
each with its own limit on the total of an episode.
"""

import sys

import gymnasium as gym
import numpy as np

import awavo


class River(gym.Env):
    """Position across and along the river, the current; pushes in both directions."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    cost_names = ("fuel", "danger")  # the order of info["costs"]
    cost_limits = (25.0, 4.0)  # on the total of an episode

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.current = np.array([0.0, 0.0]), self.np_random.uniform(-0.1, 0.1)
        return self._observe(), {}

    def step(self, action):
        push = np.clip(action, -1, 1)
        self.current += 0.02 * self.np_random.standard_normal()
        self.place = self.place + 0.1 * push + np.array([0.0, 0.1 * self.current])
        reached = self.place[0] > 2
        rocks = np.hypot(self.place[0] - 1, self.place[1]) < 0.4
        reward = 10.0 if reached else 0.1 * push[0] - 0.01
        costs = np.array([np.abs(push).sum(), float(rocks)])
        return self._observe(), reward, bool(reached), False, {"costs": costs}

    def render(self):
        """A picture for `awavo render`: water, the rocks, the boat. Leave it out and your observations are drawn."""
        picture = np.full((90, 120, 3), (214, 234, 248), np.uint8)
        rows, columns = np.mgrid[:90, :120]
        across, along = columns / 40 - 0.5, (45 - rows) / 40
        picture[np.hypot(across - 1, along) < 0.4] = (120, 120, 120)
        picture[np.hypot(across - self.place[0], along - self.place[1]) < 0.1] = (200, 60, 20)
        return picture

    def _observe(self):
        return np.array([*self.place, self.current], np.float32)


gym.register("examples/River-v0", River, max_episode_steps=60)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/river"
    config = awavo.configure("examples/River-v0", "orpo-dr", steps=40_000, seeds=2)
    run = awavo.train(config, out)
    for name, figure in run.evaluate(20)["greedy"]["costs"].items():
        print(
            f"{name:<8} {figure['value']:.1f} [{figure['low']:.1f}, {figure['high']:.1f}]  (limit {figure['limit']:g})"
        )
    print("video:", run.render().written[-1])
    print("report page:", run.report())


if __name__ == "__main__":
    main()
