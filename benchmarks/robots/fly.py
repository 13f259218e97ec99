"""The flight tasks under AWaVO (or the tracking law alone): rms error, costs, collisions, and the time of a decision.

    PYTHONPATH=src python benchmarks/robots/fly.py [--seeds 8] [--tasks FT1 FT2 FT3] [--policies awavo]
        [--mismatch] [--move cells] [--particles 32] [--out benchmarks/robots/results/fly.json]

Episodes of 500 steps (10 s at 50 Hz). With --mismatch the vehicle's true mass (within 5%) and drag (within a factor of
1.4) differ from what the controller believes. Times run from the state on the host to the action and the commands
ahead on the host, with fresh noise; `cpu` is the processor time of the same call.
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

from awavo.control.flight_planner import DEFAULT
from awavo.control.flight_policy import awavo_step, flight_policy, start_memory, tick_plan
from awavo.control.planner_config import MOVES, PlannerConfig
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_task
from awavo.tasks.base import Clocked
from awavo.tasks.quadrotor.flight import ACTION_HIGH, ACTION_LOW, DT, FLIGHT_TASKS, flight_functions
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.references import lissajous
from awavo.types import Box


def controllers(env, config: PlannerConfig):
    """Build `decide(key, state, memory, params) -> (plan by ticks, memory)` of both policies, and their memory."""
    step = jax.jit(lambda key, state, memory, params: awavo_step(params, lissajous, config)(key, state, memory))

    def awavo(key, state, memory, params):
        plan, memory = step(key, state, memory, params)
        return tick_plan(plan, config.dt, DT), memory

    law = jax.jit(
        lambda state, params: flight_policy(env._replace(params=params), "track")[0](None, Clocked(state, 0), None, ())[
            0
        ]
    )

    def track(key, state, memory, params):
        return np.asarray(law(state, params))[None], memory

    return {"awavo": (awavo, start_memory(config)), "track": (track, ())}


def true_params(params, seed: int, mismatch: bool):
    if not mismatch:
        return params
    mass, drag = np.random.default_rng(seed).uniform(-1, 1, 2)
    changed = {name: getattr(params, name) * 1.4**drag for name in ("drag_x", "drag_y", "drag_z")}
    return params._replace(mass=params.mass * (1 + 0.05 * mass), **changed)


def fly(decide, memory, reset, advance, seed: int, steps: int, params, truth) -> dict:
    """One episode, by a loop on the host."""
    key = jax.random.key(seed)
    state = reset(jax.random.fold_in(key, 2**20), truth)
    rows, walls, cpus = [], [], []
    for t in range(steps):
        plan_key, step_key = jax.random.split(jax.random.fold_in(key, t))
        wall, cpu = time.perf_counter(), time.process_time()
        plan, memory = decide(plan_key, state, memory, params)
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
        state, seen = advance(step_key, state, np.asarray(plan[0], np.float32), truth)
        rows.append(jax.device_get(seen))
        if rows[-1][3]:
            break
    error, costs, gap, hit = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "steps": len(rows),
        "rms_m": float(np.sqrt((error**2).mean())),
        "worst_error_m": float(error.max()),
        "costs": costs.sum(0).tolist(),
        "collision": bool(hit.any()),
        "least_clearance_m": float(gap.min()),
        "wall_ms": {q: float(np.percentile(walls[5:], q)) for q in (50, 95, 99)},
        "cpu_ms": {q: float(np.percentile(cpus[5:], q)) for q in (50, 95)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tasks", nargs="+", default=["FT1", "FT2", "FT3"], choices=list(FLIGHT_TASKS))
    parser.add_argument("--policies", nargs="+", default=["awavo"], choices=["awavo", "track"])
    parser.add_argument("--mismatch", action="store_true")
    parser.add_argument("--move", choices=MOVES, default=DEFAULT.move)
    parser.add_argument("--particles", type=int, default=DEFAULT.num_particles)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    config = DEFAULT._replace(move=options.move, num_particles=options.particles)
    env = make_task("quadrotor")
    bare_reset, bare_step = flight_functions(lissajous, Box(ACTION_LOW, ACTION_HIGH))
    reset = jax.jit(lambda key, params: bare_reset(key, params)[0])

    @jax.jit
    def advance(key, state, action, params):
        state, out = bare_step(key, state, action, params)
        error = jnp.linalg.norm(lissajous(state.time, params).position - state.body.position)
        return state, (error, out.costs, clearance(state.forest, state.body.position, params), out.terminated)

    limits = np.array(env.spec.cost_limits)
    results: dict[str, dict] = {}
    for policy in options.policies:
        decide, memory = controllers(env, config)[policy]
        for task in options.tasks:
            wind, obstacles = FLIGHT_TASKS[task]
            params = jax.tree.map(jnp.float32, env.params._replace(wind_on=wind, obstacles_on=obstacles))
            flights = {}
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                truth = jax.tree.map(jnp.float32, true_params(params, seed, options.mismatch))
                flights[seed] = fly(decide, memory, reset, advance, seed, options.steps, params, truth)
                print(policy, task, seed, json.dumps(flights[seed]), flush=True)
            each = list(flights.values())
            costs = np.array([f["costs"] for f in each])
            results[f"{policy} {task}"] = {
                "rms_m": {"mean": float(np.mean([f["rms_m"] for f in each])), "worst": max(f["rms_m"] for f in each)},
                "collisions": sum(f["collision"] for f in each),
                "costs": {"mean": costs.mean(0).tolist(), "worst": costs.max(0).tolist(), "limits": limits.tolist()},
                "within_limits": int((costs <= limits).all(1).sum()),
                "least_clearance_m": min(f["least_clearance_m"] for f in each),
                "flights": flights,
            }
            print(policy, task, {k: v for k, v in results[f"{policy} {task}"].items() if k != "flights"}, flush=True)
            if options.out:
                made = {"command": command_line(), "commit": source_commit(), "device": device_info()}
                made |= {"versions": versions(), "load": os.getloadavg(), "planner": config._asdict()}
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
