"""Break the source in known ways and see that some test fails each time.

    python benchmarks/mutation_check.py [NAME ...] [--out benchmarks/results/mutation_check.json]

Works on a copy; a mutant that no test catches ends the command with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mutant(NamedTuple):
    """A text to replace in a source file, and the tests that must notice."""

    file: str
    old: str
    new: str
    tests: str


MUTANTS = {
    "actor gradient cut": Mutant(
        "algorithms/actor_critic.py",
        "dist = policy(obs)",
        "dist = jax.lax.stop_gradient(policy(obs))",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "terminated and truncated swapped in the replay": Mutant(
        "algorithms/replay.py",
        "rollout.next_obs, rollout.terminated)",
        "rollout.next_obs, rollout.truncated)",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "terminated and truncated swapped in the environment": Mutant(
        "tasks/base.py",
        "Timestep(obs, out.reward, out.costs, terminated, truncated, out.obs)",
        "Timestep(obs, out.reward, out.costs, truncated, terminated, out.obs)",
        "tests/training/test_loop.py tests/tasks",
    ),
    "limit compared with a discounted sum": Mutant(
        "training/rollout.py",
        "totals.returns + reward, totals.costs + costs,",
        "totals.returns + reward, totals.costs + 0.99**totals.length[:, None] * costs,",
        "tests/training/test_loop.py",
    ),
    "limit compared with a mean per step": Mutant(
        "algorithms/constraints.py",
        "return steps @ rate",
        "return steps @ rate / horizon",
        "tests/algorithms/test_constraints.py",
    ),
    "estimate that waits for episodes": Mutant(
        "algorithms/constraints.py",
        "return steps @ rate",
        "return profile.total / jnp.maximum(profile.episodes, 1.0)",
        "tests/algorithms/test_constraints.py",
    ),
    "scale from one step's range": Mutant(
        "algorithms/orpo_dr.py",
        "low, high = choose(jnp.all(state.ranges.high > state.ranges.low), state.ranges, reachable)",
        "low, high = reachable",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "cost likelihood that does not saturate": Mutant(
        "inference/operators.py",
        "lambda g, low, high: best - jax.nn.softplus((g - low) / (high - low)),",
        "lambda g, low, high: (low - g) / (high - low),",
        "tests/inference/test_operators.py",
    ),
    "units that do not follow the returns": Mutant(
        "algorithms/units.py",
        "unit = jnp.where(measured > 0, measured, 1.0)",
        "unit = jnp.ones_like(measured)",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "a weight that outlasts the violation": Mutant(
        "algorithms/constraints.py",
        "pace = jnp.where(error < 0, jnp.maximum(integral, 1.0), 1.0)",
        "pace = 1.0",
        "tests/algorithms/test_constraints.py",
    ),
    "noise drawn anew at every step": Mutant(
        "algorithms/orpo_dr.py",
        "noise = jnp.where(begun > 0, kept * noise + jnp.sqrt(1.0 - kept**2) * fresh, fresh)",
        "noise = fresh",
        "tests/algorithms/test_orpo_dr.py",
    ),
    "the mean of two ways round": Mutant(
        "inference/sequences.py",
        "return to_box(space, near @ q[:, 0] / near.sum())",
        "return to_box(space, q[:, 0].mean(0))",
        "tests/inference/test_planner.py",
    ),
    "plans that start from the step before": Mutant(
        "inference/sequences.py",
        "flat, distance = target[resample(key, weights, num)], jnp.zeros(())",
        "flat, distance = q.reshape(num, -1), jnp.zeros(())",
        "tests/inference/test_planner.py",
    ),
    "final observation lost at reset": Mutant(
        "training/rollout.py",
        "out.terminated, out.truncated, out.final_obs,",
        "out.terminated, out.truncated, out.obs,",
        "tests/training/test_loop.py",
    ),
    "cost critics never trained": Mutant(
        "networks/quantiles.py",
        "error = jax.lax.stop_gradient(targets)",
        "quantiles = quantiles.at[:, 1:].set(0.0)\n    error = jax.lax.stop_gradient(targets)",
        "tests/networks/test_quantiles.py",
    ),
    "seeds share their key": Mutant(
        "training/loop.py",
        "jax.random.split(jax.random.key(seed), 3)",
        "jax.random.split(jax.random.key(0 * seed), 3)",
        "tests/training/test_loop.py",
    ),
    "checkpoint not verified": Mutant(
        "training/checkpoint.py",
        "if stated != _digest(arrays, metadata):",
        "if False:",
        "tests/training/test_checkpoint.py",
    ),
    "environment not saved with the state": Mutant(
        "training/loop.py",
        "self._states = [jax.tree.map(jnp.asarray, state) for state in states]",
        "self._states = [jax.tree.map(jnp.asarray, s)._replace(envs=o.envs) for s, o in zip(states, self._states)]",
        "tests/training/test_loop.py",
    ),
}


def survives(mutant: Mutant) -> tuple[bool, str]:
    """Run the tests named for a mutant on a broken copy; return whether all passed, and the last line."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        path = copy / "src" / "awavo" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"'{mutant.old}' stands {text.count(mutant.old)} times in {mutant.file}, expected once")
        path.write_text(text.replace(mutant.old, mutant.new))
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "AWAVO_CACHE_DIR": str(copy / "cache")}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()]
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
        failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return done.returncode == 0, failures[0].split(" - ")[0] if failures else done.stdout.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.names or MUTANTS:
        alive, told = survives(MUTANTS[name])
        rows.append({"mutant": name, "caught": not alive, "by": told})
        print(f"{'SURVIVED' if alive else 'caught  '}  {name}: {told}", flush=True)
    if args.out:
        from awavo.provenance import source_commit

        args.out.write_text(
            json.dumps({"command": "python " + " ".join(sys.argv), "commit": source_commit(), "rows": rows}, indent=1)
            + "\n"
        )
    raise SystemExit(any(not row["caught"] for row in rows))


if __name__ == "__main__":
    main()
