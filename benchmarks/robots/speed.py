"""Steps a second of the robots: Drone, quadrotor plant and flight task, and Walker (C MuJoCo on CPUs, MJX on GPUs).

    PYTHONPATH=src python benchmarks/robots/speed.py [--only drone] [--out benchmarks/robots/results/speed_NAME.json]

Needs jax, numpy, equinox and optax; the walkers also mujoco (and mujoco-mjx). Each figure is the best of three timed
calls after one to compile; `cpu_s` is the processor time of that call, which other work on the machine cannot take.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

# Two virtual devices: a batch is split over the cores of a CPU.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
FLAGS = f"--xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count={CORES}"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from awavo.provenance import command_line, device_info, source_commit, versions  # noqa: E402
from awavo.registry import make_host_task, make_task  # noqa: E402

CPU = jax.default_backend() == "cpu"


def best(call: Callable[[], object], steps: int) -> dict[str, float]:
    begin = time.perf_counter()
    jax.block_until_ready(call())
    first = time.perf_counter() - begin
    rows = []
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        rows.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = min(rows)
    return {
        "steps": steps,
        "first_call_s": first,
        "wall_s": wall,
        "cpu_s": cpu,
        "steps_per_s": steps / wall,
        "steps_per_cpu_s": steps / cpu,
    }


def spread(function: Callable, devices: int) -> Callable:
    """Map over a leading axis: on several devices at once, or on one."""
    return jax.pmap(function) if devices > 1 else jax.jit(jax.vmap(function))


def functional(name: str, num_envs: int, num_steps: int, std: float, **options) -> dict[str, float]:
    """Whole environment steps (rules, observation, reset) of a batch under Gaussian actions, split over the devices."""
    env = make_task(name, **options)
    middle = (np.array(env.spec.action_space.high) + np.array(env.spec.action_space.low)) / 2
    half = (np.array(env.spec.action_space.high) - np.array(env.spec.action_space.low)) / 2
    devices = jax.local_device_count() if CPU else 1
    share = num_envs // devices

    def start(key):
        return jax.vmap(env.reset, (0, None))(jax.random.split(key, share), env.params)[0]

    def run(key, state):
        def step(state, key):
            act_key, step_key = jax.random.split(key)
            action = middle + half * std * jax.random.normal(act_key, (share, len(half)))
            keys = jax.random.split(step_key, share)
            state, out = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, env.params)
            return state, (out.reward.mean(), out.costs.mean(), out.obs.mean())

        return jax.lax.scan(step, state, jax.random.split(key, num_steps))[1]

    program = spread(run, devices)
    keys = jax.random.split(jax.random.key(0), devices)
    states = jax.block_until_ready(spread(start, devices)(keys))
    return best(lambda: program(keys, states), devices * share * num_steps)


def plant(num: int, num_steps: int) -> dict[str, float]:
    """Euler steps of the 17-state rigid body with constant commands in wind."""
    from awavo.tasks.quadrotor.body import euler_step, hovering
    from awavo.tasks.quadrotor.params import QuadrotorParams

    params = QuadrotorParams()
    devices = jax.local_device_count() if CPU else 1
    share = num // devices

    def run(start):
        body = hovering(start, params)
        commands = body.rotors * jnp.array([1.01, 0.99, 1.0, 1.0])[:, None]
        wind = jnp.broadcast_to(jnp.array([1.0, 2.0, 0.0])[:, None], start.shape)
        return jax.lax.fori_loop(
            0, num_steps, lambda _, b: euler_step(b, commands, wind, jnp.zeros_like(wind), params, 0.002), body
        ).position

    program = spread(run, devices)
    starts = jnp.zeros((devices, 3, share))
    return best(lambda: program(starts), devices * share * num_steps)


def walker_host(num_envs: int, num_steps: int) -> dict[str, float]:
    env = make_host_task("walker", num_envs=num_envs)
    env.reset(0)
    rng = np.random.default_rng(0)
    actions = (0.6 * rng.standard_normal((num_steps, num_envs, 10))).astype(np.float32)
    found = best(lambda: [env.step(a).reward for a in actions][-1], num_envs * num_steps)
    env.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    big = not CPU
    cases: dict[str, Callable[[], dict[str, float]]] = {
        "drone, 2048 environments": lambda: functional("drone", 2048, 100, 0.6),
        "quadrotor plant, 4096 vehicles": lambda: plant(4096, 500),
        "quadrotor flight task FT3, 1024 environments": lambda: functional("quadrotor", 1024, 20, 0.05),
    }
    if big:
        cases |= {
            "drone, 65536 environments": lambda: functional("drone", 65_536, 200, 0.6),
            "quadrotor plant, 1048576 vehicles": lambda: plant(2**20, 500),
            "quadrotor flight task FT3, 65536 environments": lambda: functional("quadrotor", 65_536, 50, 0.05),
            "walker, MJX, 4096 environments": lambda: functional("walker-mjx", 4096, 20, 0.6),
        }
    else:
        cases["walker, C MuJoCo, 256 environments"] = lambda: walker_host(256, 20)
    results = {}
    for name, case in cases.items():
        if options.only not in name:
            continue
        try:
            results[name] = case()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        shown = {k: float(f"{v:.4g}") for k, v in results[name].items()}
        print(name, shown, flush=True)
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"results": results, "load": os.getloadavg(), **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
