"""Decisions round a disc from a symmetric start, in the exact model: default decisions against resampling.

    python benchmarks/inference/navigation.py [--seeds 200 201 202] [--out FILE]

The task's own dynamics and rewards are the model; no actor (proposals are noise), no critic (the way that is left).
Return, share of the episodes that enter the disc, and milliseconds of a decision, the arms taking turns.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from awavo.inference.ensemble import Prediction
from awavo.inference.planner import PlanningModel, planner, predicted_steps
from awavo.inference.sequences import PlanningConfig, sequences, slice_shape
from awavo.networks.distributions import SquashedGaussian
from awavo.paper.arms import milliseconds
from awavo.provenance import command_line, device_info, source_commit
from awavo.tasks.navigation import navigation

ARMS = {"default": {}, "random slices": {"slices": "random"}, "degree 3": {"degree": 3}, "resampling": {"metric": "kl"}}
AHEAD, COST_WEIGHT, EPISODES = 10.0, 1.0, 48


def model(env) -> PlanningModel:
    params, space = env.params, env.spec.action_space
    goal = jnp.asarray(params.goal)

    def predict(obs, action):
        push = jnp.clip(jnp.broadcast_to(action, (*obs.shape[:-1], 2)), -1.0, 1.0)
        velocity = obs[..., 2:] + params.time_step * push
        place = obs[..., :2] + params.time_step * velocity
        reward = -0.1 * jnp.linalg.norm(place - goal, axis=-1) - 0.01 * jnp.sum(push**2, -1)
        inside = (jnp.sum(place**2, -1) < params.radius**2).astype(jnp.float32)
        reached = jnp.concatenate([place, velocity], -1)
        return Prediction(reached, jnp.zeros_like(reached), reward, inside[..., None], jnp.zeros_like(reward))

    def values(obs):
        ahead = -0.1 * AHEAD * jnp.linalg.norm(obs[..., :2] - goal, axis=-1)
        return jnp.stack([ahead, jnp.zeros_like(ahead)], -1)

    def policy(obs):
        mean = jnp.zeros((*obs.shape[:-1], 2))
        return SquashedGaussian(mean, jnp.zeros_like(mean), jnp.asarray(space.low), jnp.asarray(space.high))

    steps = predicted_steps(predict)
    return PlanningModel(*steps, jnp.zeros(1), policy, values, lambda s: s[..., 0] - COST_WEIGHT * s[..., 1])


def arm(env, options):
    """`episodes(keys) -> (returns, steps in the disc)` and `decide(key)`."""
    config = PlanningConfig(**options)
    decide, q, exact = planner(env.spec, config), sequences(env.spec.action_space, config), model(env)

    def act(key, obs, plan):
        plan_key, slice_key, pick_key = jax.random.split(key, 3)
        slices = jax.random.normal(slice_key, slice_shape(env.spec.action_space, config))
        plan = decide(plan_key, exact, obs, plan, slices).plan
        return q.pick(pick_key, plan, True), plan

    def episode(key):
        reset_key, key = jax.random.split(key)
        state, obs = env.reset(reset_key, env.params)

        def step(carry, key):
            state, obs, plan = carry
            act_key, step_key = jax.random.split(key)
            action, plan = act(act_key, obs, plan)
            state, reached = env.step(step_key, state, action, env.params)
            return (state, reached.obs, plan), (reached.reward, reached.costs[0])

        keys = jax.random.split(key, env.spec.horizon)
        _, (rewards, costs) = jax.lax.scan(step, (state, obs, q.start()), keys)
        return rewards.sum(), costs.sum()

    first = env.reset(jax.random.key(0), env.params)[1]
    return jax.jit(lambda keys: jax.lax.map(episode, keys)), jax.jit(lambda key: act(key, first, q.start()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "navigation.json")
    args = parser.parse_args()
    env = navigation(start_spread=0.0)
    arms = {name: arm(env, options) for name, options in ARMS.items()}
    rows = []
    for name, (fly, _) in arms.items():
        returns, costs = zip(*[fly(jax.random.split(jax.random.key(s), EPISODES)) for s in args.seeds], strict=True)
        hit = np.mean(np.asarray(costs) > 0, 1)
        rows.append({"arm": name, "returns": np.mean(returns, 1).round(3).tolist(), "hit": hit.tolist(), "ms": []})
    for _ in range(6):
        for row, (_, decide) in zip(rows, arms.values(), strict=True):
            row["ms"].append(round(milliseconds(lambda decide=decide: decide(jax.random.key(0)), 40), 3))
    for row in rows:
        said = f"return {np.mean(row['returns']):.2f}, hit {np.mean(row['hit']):.3f}, {np.median(row['ms']):.2f} ms"
        print(f"{row['arm']:15s} {said}", flush=True)
    about = {"command": command_line(), "commit": source_commit(), "device": device_info(), "seeds": args.seeds}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**about, "episodes": EPISODES, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
