"""One configuration on one task: all seeds in one program, every seed evaluated greedily on the way and at the end.

    python benchmarks/learner/measure.py --algo awavo --task cartpole --limits 30 10 --steps 20000 \
        --first-seed 200 --checks 10 --from-step 14000 --out benchmarks/learner/results/cartpole.json

Tasks in JAX run as one program on the device; host tasks (halfcheetah-velocity, ..) with all seeds' environments in one
pool of threads. `--num-envs 2048` is the regime of thousands of environments; nothing else of our learner is ever set.
Baselines (every name of `awavo list`) have their `--preset` and `--option NAME=VALUE`. `--also-on walker` evaluates the
policies of a task in JAX on a host task too: those of walker-mjx on C MuJoCo, whose contacts are solved to the end.
`--scale` multiplies rewards, costs and limits; `--task-option gait_hz=1.5` sets an option of the task. `--until` stops
after so many seconds and evaluates what there is. A row's `course` is what each seed's learner thought of its costs on
the way, and how much weight it gave them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

from awavo.algorithms.actor_critic import ActorCriticConfig
from awavo.algorithms.sizes import resolve_sizes
from awavo.config import TrainConfig, config_from_mapping, parse_value
from awavo.provenance import device_info, source_commit
from awavo.registry import ALGORITHMS, HOST_TASKS, make_host_task, make_task, resolve
from awavo.runs.problem import resolve_config, settings_class
from awavo.training.compilation import jit_once
from awavo.training.evaluation import evaluate_env
from awavo.training.loop import MAX_CHUNK, chunk_fn, init_fn
from awavo.training.rollout import select
from awavo.types import Algorithm, Env, EnvSpec, Physics, Rollout

jax.config.update("jax_default_matmul_precision", "highest")
Array2 = Array3 = np.ndarray  # [seeds, episodes] and [seeds, episodes, costs]


def device_task(name: str, options: dict[str, Any], scale: float) -> Env:
    """A task in JAX, its rewards, costs and limits multiplied."""
    if name == "pendulum":
        from pendulum import pendulum  # beside this file

        env = pendulum()
    else:
        env = make_task(name, **options)
    if scale == 1.0:
        return env

    def step(key, state, action, params, inner=env.step):
        state, out = inner(key, state, action, params)
        return state, out._replace(reward=scale * out.reward, costs=scale * out.costs)

    limits = tuple(scale * limit for limit in env.spec.cost_limits)
    return Env(env.spec._replace(cost_limits=limits), env.params, env.reset, step)


def sized(args: argparse.Namespace, spec: EnvSpec, physics: Physics | None = None) -> tuple[Any, Algorithm]:
    """The configuration, with its sizes by the rule where the algorithm has one, and the algorithm."""
    options = {name: parse_value(value) for name, value in (pair.split("=", 1) for pair in args.option)}
    if args.num_envs:
        options["num_envs"] = args.num_envs
    resolved = resolve_config(
        TrainConfig(task=args.task, algo=args.algo, steps=args.steps, preset=args.preset, algo_options=options)
    )
    config = config_from_mapping(settings_class(args.algo), resolved.algo_options, args.algo)
    if isinstance(config, ActorCriticConfig):
        config = resolve_sizes(spec, config)
    extra = {"physics": physics} if getattr(config, "planning", "") == "physics" else {}
    return config, resolve(args.algo, ALGORITHMS, "algorithm")(spec, config, **extra)


Found = tuple[int, Array2, Array3, dict[str, tuple[Array2, Array3]]]  # steps, returns, costs, those on other tasks

COURSE = 60  # how often at most the learner's own view of its costs is written down, evenly over the steps


class Course:
    """What a learner thinks of its costs on the way: costs that swing around a limit are not seen at its marks."""

    def __init__(self, steps: int):
        self.every, self.noted, self.rows = steps / COURSE, 0, []

    def note(self, steps: int, info: Any) -> None:
        """Keep estimate and weights of every seed, `[seeds, costs]`, where it is time to."""
        if steps < self.noted + self.every:
            return
        self.noted = steps
        told = {name: getattr(info, f"cost_{name}", None) for name in ("estimate", "weight")}
        self.rows.append(
            {"steps": steps} | {k: np.asarray(v, float).round(3).tolist() for k, v in told.items() if v is not None}
        )

    def take(self) -> list[dict[str, Any]]:
        """What was kept since it was last asked for."""
        taken, self.rows = self.rows, []
        return taken


def on_device(args: argparse.Namespace, seeds: jax.Array, marks: list[int]) -> Iterator[Found]:
    """Train tasks in JAX; at each mark the steps, the returns and the costs of every seed's episodes."""
    env = device_task(args.task, args.options, args.scale)
    config, algorithm = sized(args, env.spec, env.physics)
    rows = config.num_envs * config.rollout_length
    start = jit_once(jax.vmap(init_fn(env, algorithm, config.num_envs)))
    run = jax.jit(jax.vmap(chunk_fn(env, algorithm, config.rollout_length), (0, None)), donate_argnums=0)
    play = jax.jit(jax.vmap(evaluate_env(env, algorithm, args.episodes, True)))
    keys = jax.vmap(lambda seed: jax.random.key(seed + 99_991))(seeds)
    state, done, pace = jax.tree.map(jnp.copy, start(seeds)), 0, 1
    for mark in marks:
        if done and args.left() <= 10:
            return
        while done < -(-mark // rows) and args.left() > 10:
            piece, begun = min(-(-mark // rows) - done, pace), time.perf_counter()
            state, output = jax.block_until_ready(run(state, jnp.int32(piece)))
            done = done + piece
            args.course.note(done * rows, jax.tree.map(lambda x, last=piece - 1: x[:, last], output.info))
            # The clock is looked at about every second, however fast a task is: pieces change no result.
            fitting = int(piece / max(time.perf_counter() - begun, 1e-3))
            pace = max(1, min(fitting, 2 * pace, MAX_CHUNK))
        totals, others = play(keys, state.algorithm), {}
        if args.also_on:
            act = partial(greedy(algorithm), state.algorithm)
            others[args.also_on] = host_episodes(args, args.also_on, env.spec, len(seeds), act)
        yield done * rows, np.asarray(totals.returns), np.asarray(totals.costs), others


def greedy(algorithm: Algorithm) -> Any:
    """The greedy actions of all seeds at once."""
    return jax.jit(jax.vmap(lambda state, obs: algorithm.act(jax.random.key(0), state, obs, True)[0]))


def on_host(args: argparse.Namespace, seeds: jax.Array, marks: list[int]) -> Iterator[Found]:
    """Train tasks whose simulator is not in JAX: the environments of all seeds step together."""
    with make_host_task(args.task, num_envs=1, **args.options) as probe:
        spec = probe.spec
    config, algorithm = sized(args, spec)
    num, envs, length = len(seeds), config.num_envs, config.rollout_length
    split = jax.jit(jax.vmap(lambda key: jax.random.split(key, length + 2)))

    @jax.jit
    def decide(split: jax.Array, t: jax.Array, state: Any, obs: jax.Array, memory: Any) -> Any:
        return jax.vmap(algorithm.decide, (0, 0, 0, 0, None))(split[:, 2 + t], state, obs, memory, False)

    learn = jax.jit(jax.vmap(algorithm.learn), donate_argnums=1)
    act = greedy(algorithm)
    keys = jax.vmap(jax.random.key)(seeds)
    state, done = jit_once(jax.vmap(algorithm.init))(keys), 0
    fresh = jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *x.shape)), algorithm.begin(envs))
    forget = jax.jit(lambda where, memory: jax.vmap(select)(where, fresh, memory))
    with make_host_task(args.task, num_envs=num * envs, **args.options) as host:
        host_state = HostState(host, num, envs, int(seeds[0]))
        memory = fresh
        for mark in marks:
            if done and args.left() <= 40:
                return
            while done < -(-mark // (envs * length)) and args.left() > 40:
                drawn = split(keys)
                keys, rows = drawn[:, 0], []
                for t in range(length):
                    action, extras, memory = decide(drawn, np.int32(t), state, host_state.obs, memory)
                    rows.append(host_state.step(np.asarray(action), jax.tree.map(np.asarray, extras)))
                    ended = rows[-1].terminated | rows[-1].truncated
                    if ended.any():
                        memory = forget(ended, memory)
                if algorithm.cut_after is not None:
                    cut = host_state.cut(np.asarray(algorithm.cut_after(jnp.int32(done * envs * length))), done)
                    rows[-1] = rows[-1]._replace(truncated=rows[-1].truncated | cut)
                    memory = forget(cut, memory) if cut.any() else memory
                rollout = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *rows)
                state, info = learn(drawn[:, 1], state, rollout)
                done += 1
                args.course.note(done * envs * length, info)
            yield done * envs * length, *host_episodes(args, args.task, spec, num, partial(act, state)), {}


class HostState:
    """The environments of all seeds, and the totals of their running episodes."""

    def __init__(self, host: Any, num: int, envs: int, seed: int):
        self.host, self.shape, self.seed = host, (num, envs), seed
        self.obs = np.asarray(host.reset(seed)).reshape(num, envs, -1)
        self.totals = (
            np.zeros(self.shape, np.float32),
            np.zeros((num, envs, host.spec.num_costs), np.float32),
            np.zeros(self.shape, np.int32),
        )

    def step(self, action: np.ndarray, extras: Any) -> Rollout:
        """One step of every environment, as a row of each seed's rollout."""
        out = self.host.step(action.reshape(-1, action.shape[-1]))
        out = jax.tree.map(lambda x: np.asarray(x).reshape(*self.shape, *np.shape(x)[1:]), out)
        returns, costs, length = self.totals
        totals = (returns + out.reward, costs + out.costs, length + 1)
        row = Rollout(
            self.obs, action, extras, out.reward, out.costs, out.terminated, out.truncated, out.final_obs, *totals
        )
        self.totals, self.obs = totals, out.obs
        self.forget(out.terminated | out.truncated)
        return row

    def cut(self, ages: np.ndarray, iteration: int) -> np.ndarray:
        """Begin another episode where one is as old as that; returns where."""
        old = self.totals[2] >= np.maximum(ages, 1)
        if old.any():
            seeds = np.random.default_rng([self.seed, iteration]).integers(0, 2**31 - 1, old.size)
            starts = [int(seed) if now else None for seed, now in zip(seeds, old.reshape(-1), strict=True)]
            self.obs = self.host.restart(starts).reshape(*self.shape, -1)
            self.forget(old)
        return old

    def forget(self, ended: np.ndarray) -> None:
        """Zero the totals of episodes that ended."""
        returns, costs, length = self.totals
        self.totals = np.where(ended, 0, returns), np.where(ended[..., None], 0, costs), np.where(ended, 0, length)


def host_episodes(args: argparse.Namespace, task: str, spec: EnvSpec, num: int, act: Any) -> tuple[Array2, Array3]:
    """Returns and costs of one greedy episode in each of the evaluation's environments of a host task."""
    returns, costs = np.zeros((num, args.episodes)), np.zeros((num, args.episodes, spec.num_costs))
    alive = np.ones((num, args.episodes), bool)
    with make_host_task(task, num_envs=num * args.episodes, **args.options) as host:
        obs = np.asarray(host.reset(10_000 + args.first_seed)).reshape(num, args.episodes, -1)
        for _ in range(spec.horizon):
            out = host.step(np.asarray(act(obs)).reshape(num * args.episodes, -1))
            returns += alive * out.reward.reshape(alive.shape)
            costs += alive[..., None] * out.costs.reshape(costs.shape)
            alive &= ~np.asarray(out.terminated | out.truncated).reshape(alive.shape)
            obs = np.asarray(out.obs).reshape(num, args.episodes, -1)
    return returns, costs


def means(returns: Array2, costs: Array3) -> dict[str, list]:
    """Every seed's mean return and costs."""
    return {
        "returns": [round(float(x), 4) for x in returns.mean(1)],
        "costs": [[round(float(x), 4) for x in row] for row in costs.mean(1)],
    }


def told() -> str:
    """The command that makes the result again, without where it was put."""
    words = sys.argv[1:]
    if "--out" in words:
        words = words[: words.index("--out")] + words[words.index("--out") + 2 :]
    return " ".join(["python benchmarks/learner/measure.py", *words])


def read(words: list[str]) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=sorted(ALGORITHMS), default="awavo")
    parser.add_argument("--task", default="cartpole")
    parser.add_argument("--limits", type=float, nargs="*", help="the task's own, if not given")
    parser.add_argument("--task-option", nargs="*", default=[], help="NAME=NUMBER")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--num-envs", type=int, default=0)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--option", nargs="*", default=[], help="NAME=VALUE, settings of a baseline")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--checks", type=int, default=1)
    parser.add_argument("--from-step", type=int, default=0, help="no evaluation before it")
    parser.add_argument("--marks", type=int, nargs="*", help="steps to evaluate at, in place of checks")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument(
        "--also-on", choices=sorted(HOST_TASKS), help="a host task with the same observations and actions"
    )
    parser.add_argument("--until", type=float, default=1e9, help="seconds")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)
    args.options = {name: float(value) for name, value in (pair.split("=") for pair in args.task_option)}
    if args.limits:
        args.options["cost_limits"] = tuple(args.limits)
    return args


def rows_of(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train and yield what every seed earned and cost at each mark."""
    begun, args.course = time.perf_counter(), Course(args.steps)
    args.left = lambda: args.until - (time.perf_counter() - begun)
    evenly = [args.steps * (i + 1) // args.checks for i in range(args.checks)]
    marks = args.marks or [mark for mark in evenly if mark >= args.from_step]
    measured = (on_host if args.task in HOST_TASKS else on_device)(args, jnp.asarray(seeds_of(args), jnp.int32), marks)
    for steps, returns, costs, others in measured:
        row = {"steps": steps, "seconds": round(time.perf_counter() - begun, 1), **means(returns, costs)}
        row |= {f"on_{task}": means(*found) for task, found in others.items()}
        print(json.dumps(row), flush=True)
        yield row | {"course": args.course.take()}


def seeds_of(args: argparse.Namespace) -> list[int]:
    """The seeds of one program."""
    return list(range(args.first_seed, args.first_seed + args.seeds))


def main() -> None:
    args, rows = read(sys.argv[1:]), []
    for row in rows_of(args):
        rows.append(row)
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            head = {"command": told(), "commit": source_commit(), "device": device_info()}
            facts = {"algo": args.algo, "task": args.task, "seeds": seeds_of(args)}
            args.out.write_text(json.dumps({**head, **facts, "episodes": args.episodes, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
