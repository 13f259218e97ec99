"""Train OmniSafe's CRPO and PCPO on our CartPole, to compare with ours. Runs in OmniSafe's own environment.

    OMNISAFE_PYTHON benchmarks/omnisafe_crosscheck.py --awavo-python OUR_PYTHON --algo OnCRPO PCPO --seeds 3 \
        --steps 200000 --out benchmarks/results/omnisafe_crosscheck.json

OmniSafe 0.5 pins an old gymnasium, so `awavo/CartPole-v0` runs in a worker process of our interpreter (this file with
`--worker`), and the two talk through pipes. OmniSafe has one cost and no discrete policy: the constraint is `position`
alone (limit 30), and the sign of a Gaussian action picks the push. Ours, with the same constraint:

    python benchmarks/learning.py --algo crpo pcpo --task cartpole --cost-limits 30 200
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np

ENVS = 16
LIMIT = 30.0
FIELDS = (("obs", (ENVS, 4)), ("reward", (ENVS,)), ("costs", (ENVS, 2)), ("terminated", (ENVS,)),
          ("truncated", (ENVS,)), ("final_obs", (ENVS, 4)))  # fmt: skip
SIZE = sum(int(np.prod(shape)) for _, shape in FIELDS)


def worker() -> None:
    """In our interpreter: read `r<seed>` or `s<actions>`, answer every field as float32."""
    import gymnasium as gym

    import awavo  # noqa: F401  registers the id

    envs = gym.make_vec("awavo/CartPole-v0", num_envs=ENVS, autoreset_mode="SameStep")
    zeros = np.zeros(ENVS)
    while head := sys.stdin.buffer.read(1):
        if head == b"r":
            (seed,) = np.frombuffer(sys.stdin.buffer.read(4), np.int32)
            obs, _ = envs.reset(seed=int(seed))
            values = (obs, zeros, np.zeros((ENVS, 2)), zeros, zeros, obs)
        else:
            action = np.frombuffer(sys.stdin.buffer.read(ENVS), np.uint8).astype(np.int64)
            obs, reward, terminated, truncated, info = envs.step(action)
            done = terminated | truncated
            final, costs = obs.copy(), info["costs"].copy()
            if done.any():
                final[done] = np.stack(list(info["final_obs"][done]))
                costs[done] = info["final_info"]["costs"][done]
            values = (obs, reward, costs, terminated, truncated, final)
        sys.stdout.buffer.write(np.concatenate([np.asarray(v, np.float32).ravel() for v in values]).tobytes())
        sys.stdout.buffer.flush()


class Connection:
    """Our vector environment behind two pipes."""

    def __init__(self, python: str) -> None:
        command = [python, __file__, "--worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, message: bytes) -> dict:
        """Send a message; return the fields of the answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(message)
        self.process.stdin.flush()
        flat = np.frombuffer(self.process.stdout.read(4 * SIZE), np.float32)
        ends = np.cumsum([int(np.prod(shape)) for _, shape in FIELDS])
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(shape).copy() for (name, shape), part in zip(FIELDS, parts)}  # noqa: B905


def register(python: str, episodes: list) -> None:
    """Tell OmniSafe about the task; finished episodes are appended to `episodes` as (return, position, angle)."""
    import torch
    from gymnasium import spaces

    # OmniSafe imports it for its own tasks; its dataclasses fail on Python 3.11, and nothing here needs them.
    sys.modules["safety_gymnasium"] = types.ModuleType("safety_gymnasium")
    from omnisafe.envs.core import CMDP, env_register

    @env_register
    class AwavoCartPole(CMDP):
        _support_envs = ["AwavoCartPole-v0"]  # noqa: RUF012
        need_auto_reset_wrapper = False
        need_time_limit_wrapper = False

        def __init__(self, env_id: str, num_envs: int = 1, **_: object) -> None:
            self._num_envs = num_envs
            self._observation_space = spaces.Box(-np.inf, np.inf, (4,))
            self._action_space = spaces.Box(-1.0, 1.0, (1,))
            # OmniSafe also builds an evaluation environment, which the on-policy methods never step.
            self._connection = Connection(python) if num_envs == ENVS else None
            self._totals = np.zeros((num_envs, 3))
            self._seed = 0

        def set_seed(self, seed: int) -> None:
            self._seed = seed

        def reset(self, seed=None, options=None):
            self._seed = self._seed + 1 if seed is None else seed
            self._totals[:] = 0
            return torch.as_tensor(self._connection.ask(b"r" + np.int32(self._seed).tobytes())["obs"]), {}

        def step(self, action):
            push = (action.detach().numpy().reshape(-1) > 0).astype(np.uint8)
            out = self._connection.ask(b"s" + push.tobytes())
            self._totals += np.concatenate([out["reward"][:, None], out["costs"]], -1)
            done = (out["terminated"] + out["truncated"]) > 0
            episodes.extend(self._totals[done].tolist())
            self._totals[done] = 0
            arrays = (out["obs"], out["reward"], out["costs"][:, 0], out["terminated"] > 0, out["truncated"] > 0)
            final = {"final_observation": torch.as_tensor(out["final_obs"])}
            final["_final_observation"] = torch.ones(self._num_envs, dtype=torch.bool)
            return *(torch.as_tensor(x) for x in arrays), final

        def render(self):
            raise NotImplementedError("this benchmark draws nothing")

        def close(self) -> None:
            if self._connection:
                self._connection.process.stdin.close()


def train(algo: str, seed: int, steps: int, episodes: list) -> dict:
    import omnisafe

    episodes.clear()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        configuration = {
            "seed": seed,
            "train_cfgs": {"total_steps": steps, "vector_env_nums": ENVS, "torch_threads": 1},
            "algo_cfgs": {"steps_per_epoch": 4000, "cost_limit": LIMIT},
            "logger_cfgs": {"use_wandb": False, "use_tensorboard": False, "log_dir": folder},
        }
        omnisafe.Agent(algo, "AwavoCartPole-v0", custom_cfgs=configuration).learn()
    wall = time.perf_counter() - began
    last = np.array(episodes[-100:])
    names = ("return", "position", "angle")
    return {"algo": algo, "seed": seed, "steps": steps, "wall_s": wall, "steps_per_second": steps / wall,
            **dict(zip(names, last.mean(0).tolist()))}  # fmt: skip  # noqa: B905


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--awavo-python", default=sys.executable)
    parser.add_argument("--algo", nargs="+", default=["OnCRPO", "PCPO"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.worker:
        worker()
        return
    os.environ["PYTHONWARNINGS"] = "ignore"
    episodes: list = []
    register(args.awavo_python, episodes)
    rows = []
    for algo in args.algo:
        for seed in range(args.seeds):
            rows.append(train(algo, seed, args.steps, episodes))
            print(json.dumps(rows[-1]), flush=True)
            if args.out:
                args.out.write_text(json.dumps({"command": "python " + " ".join(sys.argv), "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
