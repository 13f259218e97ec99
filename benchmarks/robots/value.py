"""ORPO-DR's critics in the flight controller: learn them from its own flights, then fly with and without them.

    PYTHONPATH=src python benchmarks/robots/value.py [--flights 64] [--seeds 16] [--horizons 20 8]
        [--out benchmarks/robots/results/value.json]

Critics are learned for each horizon from flights of FT3 (seeds from 10,000 up) under the same controller without them.
Coverage: share of held-out states (flights of other seeds) whose realised discounted sum lies within the critics' 5% to
95% quantiles. Then FT2 and FT3 with seeds 0, 1, ...: rms error, costs, collisions, with and without the critics.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.detours import flight_signals
from awavo.control.flight_planner import PlannerConfig
from awavo.control.flight_policy import awavo_step, start_memory
from awavo.control.flight_value import Passage, ValueConfig, features, learn_value, value_quantiles
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_task
from awavo.tasks.quadrotor.body import thrust_axis
from awavo.tasks.quadrotor.flight import ACTION_HIGH, ACTION_LOW, DT, FLIGHT_TASKS, flight_functions
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.references import lissajous
from awavo.types import Box

PARAMS = make_task("quadrotor").params
LIMITS = np.array(make_task("quadrotor").spec.cost_limits)


def flights(config: PlannerConfig, steps: int):
    """Build `fly(seeds, value, params)`: whole flights, side by side, and what happened in every step."""
    reset, step = flight_functions(lissajous, Box(ACTION_LOW, ACTION_HIGH))

    def one(seed, value, params):
        key = jax.random.key(seed)
        control = awavo_step(params, lissajous, config, value)

        def advance(carry, key):
            state, memory, over = carry
            plan_key, step_key = jax.random.split(key)
            decision, memory = control(plan_key, state, memory)
            body = state.body
            now = (body.position, body.velocity, body.attitude, body.rates)
            seen = features(*now, state.time, memory.belief.mean[:3], state.forest, lissajous, params)
            moved, out = step(step_key, state, decision.action, params)
            wanted, body = lissajous(moved.time, params), moved.body
            error = jnp.linalg.norm(wanted.position - body.position)
            drift = jnp.linalg.norm(wanted.velocity - body.velocity)
            gap = clearance(moved.forest, body.position, params)
            signals = DT * flight_signals(error, drift, gap, thrust_axis(body.attitude)[2], params, config)
            row = (seen, decision.action, signals, out.terminated, error, out.costs, gap, over)
            return (moved, memory, over | out.terminated), row

        start = (reset(jax.random.fold_in(key, 2**20), params)[0], start_memory(config), jnp.zeros((), bool))
        return jax.lax.scan(advance, start, jax.random.split(key, steps))[1]

    return jax.jit(jax.vmap(one, (0, None, None)))


def passages(rows) -> Passage:
    seen, action, signals, ended, _, _, _, over = rows
    alive = ~np.asarray(over)[:, :-1].ravel()
    flat = lambda x, part: np.asarray(x)[:, part].reshape(-1, *x.shape[2:])[alive]  # noqa: E731
    now, later = slice(0, -1), slice(1, None)
    return Passage(
        flat(seen, now), flat(action, now), flat(signals, now), flat(seen, later), flat(action, later), flat(ended, now)
    )


def coverage(value, rows, discount: float) -> list[float]:
    """Share of realised discounted sums (with at least 300 steps to come) within the 5% to 95% quantiles."""
    seen, action, signals = (np.asarray(x) for x in rows[:3])
    sums = np.zeros_like(signals)
    total = np.zeros_like(signals[:, 0])
    for t in range(signals.shape[1] - 1, -1, -1):
        total = signals[:, t] + discount * total
        sums[:, t] = total
    early = slice(0, max(1, signals.shape[1] - 300))
    quantiles = np.asarray(value_quantiles(value, seen[:, early], action[:, early]))
    levels = (np.arange(quantiles.shape[-1]) + 0.5) / quantiles.shape[-1]
    ordered = np.sort(quantiles, -1)
    ends = np.apply_along_axis(lambda q: np.interp((0.05, 0.95), levels, q), -1, ordered)
    low, high = ends[..., 0], ends[..., 1]
    inside = (sums[:, early] >= low - 1e-4) & (sums[:, early] <= high + 1e-4)
    return inside.mean((0, 1)).tolist()


def outcome(rows) -> dict:
    _, _, _, ended, error, costs, gap, over = (np.asarray(x) for x in rows)
    alive = ~over
    rms = np.sqrt((error**2 * alive).sum(1) / alive.sum(1))
    sums = (costs * alive[..., None]).sum(1)
    return {
        "rms_m": {"mean": float(rms.mean()), "standard_error": float(rms.std(ddof=1) / len(rms) ** 0.5)},
        "collisions": int((ended & alive).any(1).sum()),
        "costs_mean": sums.mean(0).tolist(),
        "within_limits": int((sums <= LIMITS).all(1).sum()),
        "least_clearance_m": float(np.where(alive, gap, np.inf).min()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flights", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--horizons", type=int, nargs="+", default=[20, 8])
    parser.add_argument("--tasks", nargs="+", default=["FT2", "FT3"], choices=list(FLIGHT_TASKS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results, settings = {}, ValueConfig()
    for horizon in options.horizons:
        config = PlannerConfig(horizon=horizon)
        fly = flights(config, options.steps)
        begin = time.process_time()
        own = fly(10_000 + jnp.arange(options.flights), None, PARAMS)
        collected = time.process_time() - begin
        held_out = jax.tree.map(lambda x: x[-options.flights // 8 :], own)
        data = passages(jax.tree.map(lambda x: x[: -options.flights // 8], own))
        begin = time.process_time()
        value, losses = jax.jit(learn_value, static_argnums=2)(jax.random.key(0), data, settings)
        jax.block_until_ready(losses)
        found = {
            "transitions": len(data.ended),
            "collect_cpu_s": collected,
            "learn_cpu_s": time.process_time() - begin,
            "coverage_90": coverage(value, held_out, settings.discount),
        }
        for task in options.tasks:
            wind, obstacles = FLIGHT_TASKS[task]
            params = PARAMS._replace(wind_on=wind, obstacles_on=obstacles)
            for name, critics in (("without critics", None), ("with critics", value)):
                found[f"{task} {name}"] = outcome(fly(jnp.arange(options.seeds), critics, params))
                print(horizon, task, name, json.dumps(found[f"{task} {name}"]), flush=True)
        print(horizon, {k: v for k, v in found.items() if not k.startswith("FT")}, flush=True)
        results[f"horizon {horizon}"] = found
        if options.out:
            made = {"command": command_line(), "commit": source_commit(), "device": device_info()}
            made |= {"versions": versions(), "planner": config._asdict(), "value": settings._asdict()}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps({"results": results, "seeds": options.seeds, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
