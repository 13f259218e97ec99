"""How fast the walker can move: a cross-entropy search over open-loop oscillations of its ten motors.

PYTHONPATH=src python benchmarks/robots/walker_gait.py [--out FILE]

A candidate is one frequency, and an amplitude, a phase and an offset for each motor; its score is the mean forward
speed (velocimeter) from the second second to the eighth.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from awavo.config import TrainConfig
from awavo.provenance import command_line, device_info, source_commit
from awavo.runs.problem import build_problem, resolve_config

CANDIDATES, ELITES, MOTORS, DT, VELOCIMETER = 64, 10, 10, 0.05, slice(59, 61)


def speeds(host, candidates: np.ndarray, seed: int) -> np.ndarray:
    """Mean velocity [m/s] along the body's x and y of each candidate."""
    host.reset(seed)
    rate = np.exp(candidates[:, :1])
    size, phase, offset = np.split(candidates[:, 1:], 3, axis=1)
    seen = []
    for t in range(160):
        wave = size * np.sin(2 * np.pi * rate * t * DT + np.pi * phase) + offset
        seen.append(np.asarray(host.step(np.clip(wave, -1, 1).astype(np.float32)).obs)[:, VELOCIMETER])
    return np.mean(seen[40:], 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    options = {"num_envs": CANDIDATES, "rollout_length": 25}
    host = build_problem(resolve_config(TrainConfig(task="walker", algo="orpo-dr", algo_options=options))).make_host()
    rng = np.random.default_rng(args.seed)
    mean, std = np.zeros(1 + 3 * MOTORS), np.full(1 + 3 * MOTORS, 0.7)
    for generation in range(args.generations):
        candidates = mean + std * rng.normal(size=(CANDIDATES, len(mean)))
        forward = speeds(host, candidates, int(rng.integers(1_000_000)))[:, 0]
        elites = candidates[np.argsort(-forward)[:ELITES]]
        mean, std = 0.3 * mean + 0.7 * elites.mean(0), 0.3 * std + 0.7 * elites.std(0) + 0.02
        print(f"{generation:3d} median {np.median(forward):.3f} best {forward.max():.3f} m/s", flush=True)
    found = speeds(host, np.repeat(mean[None], CANDIDATES, 0), args.seed)
    size, phase, offset = np.split(mean[1:], 3)
    result = {
        "forward_m_s": float(found[:, 0].mean()), "sideways_m_s": float(found[:, 1].mean()),
        "rate_hz": float(np.exp(mean[0])), "size": size.tolist(), "phase": phase.tolist(), "offset": offset.tolist(),
    }  # fmt: skip
    print({k: np.round(v, 2).tolist() for k, v in result.items()})
    if args.out:
        head = {"command": command_line(), "commit": source_commit(), "device": device_info()}
        args.out.write_text(json.dumps({**head, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
