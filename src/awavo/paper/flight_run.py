"""Flights of the quadrotor tasks under a controller, whole episodes compiled; or a learner trained on the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.flight_policy import flight_policy
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.paper.training import run_learning
from awavo.registry import make_task
from awavo.tasks.quadrotor.forest import clearance
from awavo.tasks.quadrotor.references import lissajous

__all__ = ["run_flight"]

CONTROLLERS = ("awavo", "track")


def run_flight(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Per-seed figures of one task under one policy.

    `settings`: flight (FT1, FT2, FT3), policy (awavo, track, or an algorithm that learns), steps of an episode, and for
    a learner those of `run_learning` under `learning`.
    """
    if settings["policy"] in CONTROLLERS:
        return {**_facts(settings, seeds), **_fly(settings, seeds, on_progress)}
    learning = {**settings["learning"], "task_options": {"task": settings["flight"]}}
    row = run_learning(learning, seeds, on_progress=on_progress)
    found = row["evaluation"]["greedy"]
    costs = [found["costs"][name]["per_seed"] for name in found["costs"]]
    return {
        **_facts(settings, seeds),
        "returns": found["return"]["per_seed"],
        "costs": np.array(costs).T.tolist(),
        "limits": [cost["limit"] for cost in found["costs"].values()],
        "episodes": found["episodes_per_seed"],
        "env_steps": row["env_steps_per_seed"],
        "checkpoints": row["checkpoints"],
    }


def _facts(settings: JobSettings, seeds: Sequence[int]) -> ResultRow:
    return {"flight": settings["flight"], "policy": settings["policy"], "seed_numbers": list(seeds)}


def _fly(settings: JobSettings, seeds: Sequence[int], on_progress: Progress) -> ResultRow:
    """One episode for each seed; what comes after a collision does not count."""
    env = make_task("quadrotor", task=settings["flight"], horizon=settings["steps"] + 1)
    env = env._replace(params=jax.tree.map(jnp.float32, env.params))
    decide, memory = flight_policy(env, settings["policy"])

    @jax.jit
    def fly(seed):
        key = jax.random.key(seed)
        state, obs = env.reset(jax.random.fold_in(key, 2**20), env.params)

        def step(carry, t):
            state, obs, memory, alive = carry
            plan_key, step_key = jax.random.split(jax.random.fold_in(key, t))
            action, memory = decide(plan_key, state, obs, memory)
            after, out = env.step(step_key, state, action, env.params)
            place = after.inner
            wanted = lissajous(place.time, env.params).position
            error = jnp.linalg.norm(wanted - place.body.position)
            gap = clearance(place.forest, place.body.position, env.params)
            row = (out.reward, out.costs, error, gap, out.terminated, alive)
            return (after, out.obs, memory, alive & ~out.terminated), row

        carry = (state, obs, memory, jnp.array(True))
        return jax.lax.scan(step, carry, jnp.arange(settings["steps"]))[1]

    flights: dict[str, list[Any]] = {name: [] for name in ("returns", "costs", "rms_m", "collision", "clearance_m")}
    for seed in seeds:
        reward, costs, error, gap, hit, alive = map(np.asarray, fly(seed))
        # The step that collides counts; its error and gap are those of the next start.
        flown = alive & ~hit
        flights["returns"].append(float(reward[alive].sum()))
        flights["costs"].append(costs[alive].sum(0).tolist())
        flights["rms_m"].append(float(np.sqrt(np.mean(error[flown] ** 2))))
        flights["collision"].append(bool((hit & alive).any()))
        flights["clearance_m"].append(float(gap[flown].min()))
        on_progress(f"{settings['policy']} {settings['flight']} seed {seed}: rms {flights['rms_m'][-1]:.3f} m")
    return {**flights, "limits": list(env.spec.cost_limits), "episodes": 1}
