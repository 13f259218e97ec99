"""Decisions in exact models: joint sequences of discrete actions, and the spread of the model in the likelihood.

    python benchmarks/inference/decisions.py [--seeds 100 101 102 103] [--scenes grid thrusts spread] [--out FILE]

`grid`: 11 x 7 cells with a block of 9 between start and goal, with and without slips, of which plans know nothing; the
best value is that of backward induction. `thrusts`: the point mass round the disc with five thrusts. Both compare
per-step distributions (the default, and by KL) with particles over joint sequences (`metric=cells`). `spread`: the
point mass with continuous thrust and noise that the model predicts; five members follow its mean, or draws of it.
No actor (proposals are noise), no critic (the way that is left). Tuning seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from awavo.inference.ensemble import Prediction
from awavo.inference.planner import PlanningModel, planner, predicted_steps
from awavo.inference.sequences import PlanningConfig, sequences, slice_shape
from awavo.networks.distributions import Categorical, SquashedGaussian
from awavo.provenance import command_line, device_info, source_commit
from awavo.tasks.navigation import NavigationParams
from awavo.types import ActionSpace, Box, Discrete, EnvSpec

WIDTH, HEIGHT, START, GOAL, GRID_STEPS = 11, 7, (0, 3), (10, 3), 24
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
POINT = NavigationParams(start_spread=0.0)
DISCRETE = {"per step": {}, "per step, kl": {"metric": "kl"}, "joint": {"metric": "cells"}}


class Scene(NamedTuple):
    """`step(key, obs, action) -> (obs, reward, cost)`; what an episode is worth is reward less cost."""

    space: ActionSpace
    model: PlanningModel
    start: Array
    step: Callable[[Array, Array, Array], tuple[Array, Array, Array]]
    length: int
    options: dict[str, Any]
    best: float | None = None


def exact(space: ActionSpace, predict: Any, value: Callable[[Array], Array], members: int = 1) -> PlanningModel:
    """A planner's model without actor; `value` is what is left at the end of a plan."""

    def policy(obs):
        if isinstance(space, Discrete):
            return Categorical(jnp.zeros((*obs.shape[:-1], space.num)))
        mean = jnp.zeros((*obs.shape[:-1], space.dim))
        return SquashedGaussian(mean, jnp.zeros_like(mean), jnp.asarray(space.low), jnp.asarray(space.high))

    def values(obs):
        left = value(obs)
        return jnp.stack([left, jnp.zeros_like(left)], -1)

    weights = jnp.full(members, -np.log(members))
    return PlanningModel(*predicted_steps(predict), weights, policy, values, lambda s: s[..., 0] - s[..., 1])


def grid(slip: float) -> Scene:
    """Cells as numbers; a slip is a random move instead."""
    x, y = (part.ravel() for part in np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)))
    places = [np.clip(y + dy, 0, HEIGHT - 1) * WIDTH + np.clip(x + dx, 0, WIDTH - 1) for dx, dy in MOVES]
    following, rewards = np.stack(places, 1), -0.1 * (np.abs(x - GOAL[0]) + np.abs(y - GOAL[1]))
    costs = 2.0 * ((np.abs(x - 5) <= 1) & (np.abs(y - 3) <= 1))
    values = np.zeros(WIDTH * HEIGHT)
    for _ in range(GRID_STEPS):
        ahead = (rewards - costs + values)[following]
        values = ((1 - slip) * ahead + slip * ahead.mean(1, keepdims=True)).max(1)
    follow, reward, cost = jnp.asarray(following), jnp.asarray(rewards, jnp.float32), jnp.asarray(costs, jnp.float32)

    def reach(cell):
        return cell[..., None].astype(jnp.float32), reward[cell], cost[cell]

    def predict(obs, action):
        cell = obs[..., 0].astype(jnp.int32)
        obs, gained, paid = reach(follow[cell, jnp.broadcast_to(action, cell.shape)])
        return Prediction(obs, jnp.zeros_like(obs), gained, paid[..., None], jnp.zeros_like(gained))

    def step(key, obs, action):
        slip_key, move_key = jax.random.split(key)
        slipped = jax.random.uniform(slip_key) < slip
        move = jnp.where(slipped, jax.random.randint(move_key, (), 0, 4), action)
        return reach(follow[obs[0].astype(jnp.int32), move])

    start = START[1] * WIDTH + START[0]
    left = lambda obs: 5.0 * reward[obs[..., 0].astype(jnp.int32)]  # noqa: E731
    options = {"horizon": 12, "discount": 0.999, "num_particles": 16}
    space = Discrete(4)
    model = exact(space, predict, left)
    return Scene(space, model, jnp.array([float(start)]), step, GRID_STEPS, options, float(values[start]))


def point(space: ActionSpace, thrust: Callable[[Array], Array], noise: float, spread: bool, members: int = 1) -> Scene:
    """The point mass of the task `navigation`, from a symmetric start; with `spread` its noise is predicted."""
    dt, goal = POINT.time_step, jnp.asarray(POINT.goal)

    def move(obs, push, shake):
        velocity = obs[..., 2:] + dt * (push + noise * shake)
        place = obs[..., :2] + dt * velocity
        reward = -0.1 * jnp.linalg.norm(place - goal, axis=-1) - 0.01 * jnp.sum(push**2, -1)
        inside = (jnp.sum(place**2, -1) < POINT.radius**2).astype(jnp.float32)
        return jnp.concatenate([place, velocity], -1), reward, inside

    def predict(obs, action):
        push = jnp.broadcast_to(thrust(action), (*obs.shape[:-1], 2))
        reached, reward, inside = move(obs, push, jnp.zeros(2))
        std = spread * noise * dt * jnp.array([dt, dt, 1.0, 1.0])
        stds = jnp.broadcast_to(std, reached.shape)
        return Prediction(reached, stds, reward, inside[..., None], jnp.zeros_like(reward))

    def step(key, obs, action):
        return move(obs, thrust(action), jax.random.normal(key, (2,)))

    left = lambda obs: -jnp.linalg.norm(obs[..., :2] - goal, axis=-1)  # noqa: E731
    return Scene(space, exact(space, predict, left, members), jnp.array([*POINT.start, 0.0, 0.0]), step, 100, {})


def scenes() -> dict[str, dict[str, tuple[Scene, dict[str, Any]]]]:
    """Every scene's arms: the scene as the arm sees it, and the settings of its planner."""
    table = jnp.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
    thrusts = point(Discrete(5), lambda action: table[action], 0.1, False)
    found = {f"grid, slip {slip}": {k: (grid(slip), v) for k, v in DISCRETE.items()} for slip in (0.0, 0.1)}
    found["thrusts"] = {k: (thrusts, v) for k, v in DISCRETE.items()}
    box = Box((-1.0, -1.0), (1.0, 1.0))
    for noise in (0.1, 0.5):
        arms = {"mean": False, "spread": True}
        found[f"spread, noise {noise}"] = {
            k: (point(box, lambda action: jnp.clip(action, -1.0, 1.0), noise, v, 5), {}) for k, v in arms.items()
        }
    return found


def play(scene: Scene, options: dict[str, Any], seeds: list[int], episodes: int) -> dict[str, Any]:
    """Greedy episodes of every seed: what they are worth, and the share with any cost."""
    config = PlanningConfig(**scene.options, **options)
    spec = EnvSpec("scene", scene.start.shape[0], scene.space, scene.length, ("cost",), (1.0,))
    decide, q = planner(spec, config), sequences(scene.space, config)

    def step(carry, key):
        obs, plan = carry
        plan_key, slice_key, pick_key, step_key = jax.random.split(key, 4)
        slices = jax.random.normal(slice_key, slice_shape(scene.space, config))
        plan = decide(plan_key, scene.model, obs, plan, slices).plan
        obs, reward, cost = scene.step(step_key, obs, q.pick(pick_key, plan, True))
        return (obs, plan), (reward, cost)

    def episode(key):
        _, (reward, cost) = jax.lax.scan(step, (scene.start, q.start()), jax.random.split(key, scene.length))
        return reward.sum(), cost.sum()

    run = jax.jit(jax.vmap(episode))
    played = [run(jax.random.split(jax.random.key(seed), episodes)) for seed in seeds]
    reward, cost = (np.stack(part) for part in zip(*played, strict=True))
    worth = reward - cost
    return {
        "worth": worth.mean(1, dtype=float).round(3).tolist(), "mean": round(float(worth.mean()), 3),
        "error": round(float(worth.std() / worth.size**0.5), 3), "hit": round(float((cost > 0).mean()), 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103])
    parser.add_argument("--scenes", nargs="+", default=["grid", "thrusts", "spread"])
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "decisions.json")
    args = parser.parse_args()
    about = {"command": command_line(), "commit": source_commit(), "device": device_info(), "seeds": args.seeds}
    rows: list[dict[str, Any]] = []
    for name, arms in scenes().items():
        if name.split(",")[0] not in args.scenes:
            continue
        for arm, (scene, options) in arms.items():
            rows.append(
                {"scene": name, "best": scene.best, "arm": arm, **play(scene, options, args.seeds, args.episodes)}
            )
            print(json.dumps(rows[-1]), flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps({**about, "episodes": args.episodes, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
