"""Time of one decision by inference: CartPole with an ensemble, and a 13-state rigid body with parametric physics.

    python benchmarks/latency.py [--decisions 300] [--out benchmarks/results/latency.json]

Every decision starts from the plan of the one before, as in a control loop; the clock runs from the observation in
host memory to the action in host memory. Median and 99th percentile after 20 decisions to warm up.
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

from awavo.algorithms.awavo import AwavoConfig, awavo
from awavo.inference.physics import ParametricModel, predict_parametric
from awavo.inference.planner import PlanningModel, planner, predicted_steps
from awavo.inference.sequences import PlanningConfig, sequences, slice_shape
from awavo.networks import SquashedGaussian
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.registry import make_task
from awavo.training.compilation import jit_once
from awavo.types import Box, EnvSpec


def rigid_body(theta, obs, action):
    """Position, velocity, quaternion, rates of a quadrotor under thrust and rate commands; theta = (mass, drag)."""
    position, velocity, attitude, rates = jnp.split(obs, (3, 6, 10))
    w, x, y, z = attitude
    up = jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])
    force = 9.81 * (1 + 0.5 * action[0]) * up / theta[0] - theta[1] * velocity - jnp.array([0.0, 0.0, 9.81])
    turned = 0.5 * jnp.stack(
        [-x * rates[0] - y * rates[1] - z * rates[2], w * rates[0] + y * rates[2] - z * rates[1],
         w * rates[1] - x * rates[2] + z * rates[0], w * rates[2] + x * rates[1] - y * rates[0]]
    )  # fmt: skip
    step = 0.05
    attitude = attitude + step * turned
    next_obs = jnp.concatenate(
        [position + step * velocity, velocity + step * force, attitude / jnp.linalg.norm(attitude),
         rates + step * 10 * (3 * action[1:] - rates)]
    )  # fmt: skip
    cost = (jnp.sum(position[:2] ** 2) < 0.25).astype(jnp.float32)
    return next_obs, -jnp.sum((position - 1.0) ** 2), cost[None], jnp.zeros((), bool)


def cartpole_loop(num_sequences: int, horizon: int, num_members: int, num_envs: int):
    env = make_task("cartpole")
    config = AwavoConfig(
        num_sequences=num_sequences, horizon=horizon, num_members=num_members, replay_capacity=1_000, num_envs=num_envs
    )
    algorithm = awavo(env.spec, config)
    state = jit_once(algorithm.init)(jax.random.key(0))
    assert algorithm.plan is not None
    plan = jax.jit(algorithm.plan, static_argnums=4)

    def decide(key, obs, memory):
        action, _, memory = plan(key, state, obs, memory, True)
        return action, memory

    return decide, algorithm.begin(num_envs), lambda rng: rng.uniform(-0.05, 0.05, (num_envs, 4)).astype(np.float32)


def quadrotor_loop(num_sequences: int, horizon: int, num_members: int):
    spec = EnvSpec("quadrotor-like", 13, Box((-1.0,) * 4, (1.0,) * 4), 500, ("near",), (10.0,))
    config = PlanningConfig(num_sequences=num_sequences, horizon=horizon, degree=1)
    rng = np.random.default_rng(0)
    model = ParametricModel(
        jnp.asarray(rng.normal([1.0, 0.2], [0.05, 0.05], (num_members, 2)), jnp.float32), jnp.ones(13)
    )
    still = jnp.zeros(4)
    planning = PlanningModel(
        *predicted_steps(lambda obs, action: predict_parametric(rigid_body, model, obs, action)),
        model.log_weights(),
        lambda obs: SquashedGaussian(jnp.broadcast_to(still, (*obs.shape[:-1], 4)), still - 1, still - 1, still + 1),
        lambda obs: jnp.zeros((*obs.shape[:-1], 2)),
        lambda signals: signals[..., 0] - signals[..., 1],
    )
    slices = jax.random.normal(jax.random.key(1), slice_shape(spec.action_space, config))
    run = jax.jit(lambda key, obs, plan: planner(spec, config)(key, planning, obs, plan, slices).plan)

    def decide(key, obs, memory):
        plan = run(key, obs, memory)
        return plan[:, 0].mean(0), plan

    def observe(rng):
        obs = 0.1 * rng.normal(size=13)
        obs[6:10] = (1, 0, 0, 0)
        return obs.astype(np.float32)

    return decide, sequences(spec.action_space, config).start(), observe


def measure(loop, decisions: int) -> dict[str, float]:
    decide, memory, observe = loop
    rng = np.random.default_rng(0)
    keys = list(jax.random.split(jax.random.key(0), decisions + 20))
    times = []
    for key in keys:
        obs = observe(rng)
        start = time.perf_counter()
        action, memory = decide(key, obs, memory)
        np.asarray(action)
        times.append(1e3 * (time.perf_counter() - start))
    found = np.array(times[20:])
    return {"median_ms": float(np.median(found)), "p99_ms": float(np.percentile(found, 99)), "first_ms": times[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cases = {
        "cartpole, K=128, N=20, E=5": lambda: cartpole_loop(128, 20, 5, 1),
        "cartpole, K=128, N=20, E=5, 16 states": lambda: cartpole_loop(128, 20, 5, 16),
        "13-state rigid body, K=512, N=20, 1 draw": lambda: quadrotor_loop(512, 20, 1),
        "13-state rigid body, K=512, N=20, 5 draws": lambda: quadrotor_loop(512, 20, 5),
    }
    results = {}
    for name, make in cases.items():
        results[name] = measure(make(), args.decisions)
        print(name, {k: round(v, 2) for k, v in results[name].items()}, flush=True)
    if args.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        args.out.write_text(json.dumps({"results": results, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
