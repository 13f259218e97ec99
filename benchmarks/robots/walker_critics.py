"""Whether the critics of a learning walker know what its fresh episodes will earn, with rewards whole and cut.

    PYTHONPATH=src python benchmarks/robots/walker_critics.py --clip 0.05 [--out FILE]

Trains ORPO-DR on the walker without a limit, then runs its policy with its noise for 400 steps in fresh episodes and
compares what the critics said of the first 100 with the discounted sums of the 300 steps after each. A ridge regression
on half of the episodes, judged on the other half, is what the same observations can tell.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import awavo  # noqa: F401, I001 (silences XLA before jax is loaded)
import jax
import numpy as np

from awavo.config import TrainConfig
from awavo.runs.problem import build_problem, resolve_config
from awavo.provenance import command_line, device_info, source_commit
from awavo.training.compilation import enable_cache
from awavo.training.host_loop import HostRunner

DISCOUNT, ENVS, AHEAD, JUDGED = 0.95, 32, 300, 100
SETTINGS = {
    "num_envs": ENVS, "rollout_length": 25, "warmup_steps": 1000, "batch_size": 256, "hidden": (128, 128),
    "temperature": 0.005, "window": 32, "entropy": 0.01, "entropy_target": 2.0, "discount": DISCOUNT,
    "num_critics": 2, "critic_layers": "standardized", "weight_initial": 1e-4, "weight_min": 0.0, "num_updates": 100,
}  # fmt: skip


def measure(problem, state, seed: int) -> dict:
    """Correlations over fresh episodes of the policy with its noise."""
    decide, quantiles = jax.jit(problem.algorithm.decide, static_argnums=4), problem.algorithm.critics.quantiles
    host = problem.make_host()
    obs, rewards, said, seen = host.reset(seed), [], [], []
    for t in range(AHEAD + JUDGED):
        action, _, _ = decide(jax.random.fold_in(jax.random.key(seed), t), state, obs, (), False)
        if t < JUDGED:
            said.append(np.asarray(quantiles(state, obs, action))[:, 0].mean(-1))
            seen.append(np.asarray(obs))
        out = host.step(np.asarray(action))
        obs = np.asarray(out.obs)
        rewards.append(np.asarray(out.reward))
    weights = DISCOUNT ** np.arange(AHEAD)
    earned = np.array([weights @ np.array(rewards[t : t + AHEAD]) for t in range(JUDGED)])
    said, seen = np.array(said), np.array(seen)
    compass = seen[..., 3:5]
    features = np.concatenate([seen, (compass[..., None] * seen[..., None, :]).reshape(*seen.shape[:2], -1)], -1)
    features = (features - features.mean((0, 1))) / (features.std((0, 1)) + 1e-6)
    half = ENVS // 2
    x, y = features[:, :half].reshape(-1, features.shape[-1]), earned[:, :half].ravel()
    ridge = np.linalg.solve(x.T @ x + 300 * np.eye(x.shape[1]), x.T @ (y - y.mean()))
    return {
        "critics": float(np.corrcoef(said.ravel(), earned.ravel())[0, 1]),
        "ridge": float(np.corrcoef((features[:, half:] @ ridge).ravel(), earned[:, half:].ravel())[0, 1]),
        "said": float(said.mean()),
        "earned": float(earned.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clip", type=float, help="default: rewards whole")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    enable_cache()
    options = {**SETTINGS, "reward_clip": args.clip, "value_scale": 0.1 if args.clip else 1.0}
    config = TrainConfig(task="walker", algo="orpo-dr", cost_limits=(1000.0,), algo_options=options)
    problem = build_problem(resolve_config(config))
    rows = []
    for seed in args.seeds:
        runner = HostRunner([seed], problem.make_host, problem.algorithm, SETTINGS["rollout_length"])
        runner.run(args.steps // (ENVS * SETTINGS["rollout_length"]))
        rows.append({"seed": seed, **measure(problem, runner.states[0].algorithm, seed)})
        runner.close()
        print({k: round(v, 3) for k, v in rows[-1].items()}, flush=True)
    if args.out:
        head = {"command": command_line(), "commit": source_commit(), "device": device_info(), "clip": args.clip}
        args.out.write_text(json.dumps({**head, "steps": args.steps, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
