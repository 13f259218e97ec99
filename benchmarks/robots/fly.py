"""The flight tasks under the tracking law and under AWaVO: rms error, costs, collisions, and the time of a decision.

    PYTHONPATH=src python benchmarks/robots/fly.py [--seeds 8] [--tasks FT1 FT2 FT3] [--policies awavo]
        [--out benchmarks/robots/results/fly.json]

One compiled flight of 500 steps (10 s at 50 Hz) a seed. The vehicle's true mass and drag may differ from what the
controller believes (--mismatch). The time of a decision is measured apart, as a loop on the host sees it.
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

from awavo.control.flight_planner import PlannerConfig
from awavo.control.flight_policy import awavo_step, flight_policy, start_memory
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_task
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.references import lissajous


def flight(env, policy: str, steps: int, mismatch: bool, config: PlannerConfig):
    """Build `fly(key, params) -> traces` of one episode; the controller knows the nominal parameters only."""
    decide, memory = flight_policy(env, policy, config)

    def fly(key, params):
        if mismatch:
            mass, drag = jax.random.uniform(jax.random.fold_in(key, 7), (2,), minval=-1.0, maxval=1.0)
            params = params._replace(mass=params.mass * (1 + 0.05 * mass))
            params = params._replace(**{d: getattr(params, d) * 1.4**drag for d in ("drag_x", "drag_y", "drag_z")})
        reset_key, run_key = jax.random.split(key)
        state, obs = env.reset(reset_key, params)

        def step(carry, key):
            state, obs, memory, alive = carry
            decide_key, step_key = jax.random.split(key)
            action, memory = decide(decide_key, state, obs, memory)
            inner = state.inner
            state, out = env.step(step_key, state, action, params)
            body = inner.body
            error = jnp.linalg.norm(lissajous(inner.time, params).position - body.position)
            trace = (error, out.costs, clearance(inner.forest, body.position, params), out.terminated, alive)
            return (state, out.obs, memory, alive & ~out.terminated), trace

        return jax.lax.scan(step, (state, obs, memory, jnp.ones((), bool)), jax.random.split(run_key, steps))[1]

    return jax.jit(fly)


def summary(traces, limits) -> dict:
    error, costs, gap, ended, alive = traces
    rms = np.sqrt((error**2 * alive).sum(1) / alive.sum(1))
    totals = (costs * alive[..., None]).sum(1)
    return {
        "rms_m": {"each": rms.tolist(), "mean": float(rms.mean()), "worst": float(rms.max())},
        "costs": {"each": totals.tolist(), "worst": totals.max(0).tolist(), "limits": list(limits)},
        "within_limits": int((totals <= np.array(limits)).all(1).sum()),
        "collisions": int((ended & alive).any(1).sum()),
        "least_clearance_m": float(gap[alive].min()),
    }


def latency(config: PlannerConfig, decisions: int) -> dict:
    """Time from the state on the host to the action on the host, fresh noise each time."""
    env = make_task("quadrotor", task="FT3")
    step = jax.jit(awavo_step(env.params, lissajous, config))
    state, _ = jax.jit(env.reset)(jax.random.key(0), env.params)
    memory = start_memory(config)
    walls, cpus = [], []
    for key in jax.random.split(jax.random.key(1), decisions + 20):
        wall, cpu = time.perf_counter(), time.process_time()
        decision, memory = step(key, state.inner, memory)
        np.asarray(decision.action)
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
    walls, cpus = np.array(walls[20:]), np.array(cpus[20:])
    return {
        "rollouts": config.num_detours * config.num_members,
        "horizon": config.horizon,
        "obstacles": 30,
        "wall_ms": {"median": float(np.median(walls)), "p95": float(np.percentile(walls, 95))},
        "cpu_ms": {"median": float(np.median(cpus)), "p95": float(np.percentile(cpus, 95))},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tasks", nargs="+", default=["FT1", "FT2", "FT3"])
    parser.add_argument("--policies", nargs="+", default=["track", "awavo"])
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--mismatch", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    config = PlannerConfig()
    env = make_task("quadrotor", horizon=options.steps + 1)
    results = {}
    for policy in options.policies:
        fly = flight(env, policy, options.steps, options.mismatch, config)
        for task in options.tasks:
            params = jax.tree.map(jnp.float32, make_task("quadrotor", task=task).params)
            traces = [jax.device_get(fly(jax.random.key(seed), params)) for seed in range(options.seeds)]
            results[f"{policy} {task}"] = found = summary(
                jax.tree.map(lambda *x: np.stack(x), *traces), env.spec.cost_limits
            )
            print(
                policy,
                task,
                {k: v for k, v in found.items() if k != "rms_m"}
                | {"rms": found["rms_m"]["mean"], "worst": found["rms_m"]["worst"]},
                flush=True,
            )
    timed = latency(config, options.decisions) if options.decisions else None
    print(timed)
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = {"flights": results, "seeds": options.seeds, "mismatch": options.mismatch, "latency": timed}
        options.out.write_text(json.dumps({**record, "load": os.getloadavg(), **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
