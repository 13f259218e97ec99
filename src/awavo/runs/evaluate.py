"""The ONE evaluator: fresh episodes of every seed's policy, for `evaluate`, `certify` and the paper's jobs.

Seed s plays with the random key `fold_in(fold_in(key(seed), s), greedy)`; host environments, which take numbers, are
reset with `seed + 2 s + greedy`. The same states and the same seed therefore give the same episodes wherever they are
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from awavo.errors import InputError
from awavo.results.limits import STRICT, LimitRule
from awavo.results.statistics import evaluation_summary
from awavo.runs.problem import Problem
from awavo.training.evaluation import Episodes, evaluate_env, evaluate_host, evaluate_hosts
from awavo.training.loop import shard_seeds
from awavo.types import Fields

__all__ = ["EVALUATION_SEED", "Evaluator", "summarize_episodes"]

EVALUATION_SEED = 1_000_003
States = Sequence[PyTree]  # of the algorithm, one a seed


class Evaluator:
    """Plays `episodes` of every seed's policy. Programs are compiled once for each kind of action.

    With the axis `vmap` all seeds play in one program. `planner=False` asks the actor of an algorithm that plans.
    `on_played` hears how many more episodes have been played.
    """

    def __init__(
        self,
        problem: Problem,
        seeds: Sequence[int],
        episodes: int,
        *,
        axis: str = "map",
        planner: bool = True,
        on_played: Callable[[int], None] = lambda count: None,
    ):
        if episodes < 1:
            raise InputError(f"episodes={episodes} must be >= 1.")
        self._problem, self._seeds, self._episodes = problem, list(seeds), episodes
        self._together, self._on_played = axis == "vmap", on_played
        self._algorithm = problem.algorithm if planner else problem.algorithm._replace(start=None, plan=None)
        self._programs: dict[bool, Callable[..., Any]] = {}

    def play(self, states: States, greedy: bool, seed: int = EVALUATION_SEED) -> list[Episodes]:
        """Totals of fresh episodes of every seed; `states` are the algorithm's, one a seed."""
        return self._play(list(range(len(self._seeds))), states, greedy, seed)

    def play_one(self, state: PyTree, index: int, greedy: bool, seed: int = EVALUATION_SEED) -> Episodes:
        """The same episodes of the seed at `index` alone."""
        return self._play([index], [state], greedy, seed)[0]

    def _play(self, indices: list[int], states: States, greedy: bool, seed: int) -> list[Episodes]:
        if greedy not in self._programs:
            one = self._program(greedy)
            self._programs[greedy] = jax.jit(jax.vmap(one) if self._together else one)
        program = self._programs[greedy]
        numbers = [self._seeds[index] for index in indices]
        if self._problem.make_host is not None:
            return self._play_hosts(program, states, [seed + 2 * number + greedy for number in numbers])
        base = jax.random.key(seed)
        keys = [jax.random.fold_in(jax.random.fold_in(base, number), greedy) for number in numbers]
        if self._together:
            stacked = shard_seeds(_stack(list(zip(keys, states, strict=True))), len(numbers))
            totals = jax.tree.map(np.asarray, program(*stacked))
            return [Episodes(*(part[i] for part in totals)) for i in range(len(numbers))]
        played = [program(key, state) for key, state in zip(keys, states, strict=True)]
        return [self._finish(totals) for totals in played]

    def _finish(self, totals: Any) -> Episodes:
        """Wait for the episodes of a seed."""
        found = Episodes(*map(np.asarray, totals))
        self._on_played(self._episodes)
        return found

    def summarize(
        self, states: States, greedy: bool, seed: int = EVALUATION_SEED, rule: LimitRule = STRICT, **about: Any
    ) -> Fields:
        """Play and summarise as one entry of evaluation.json; `about` are its env_steps and command."""
        return summarize_episodes(self.play(states, greedy, seed), self._problem, rule, **about)

    def _program(self, greedy: bool) -> Callable[..., Any]:
        """Whole episodes of a functional environment, or one decision in host environments."""
        algorithm, env = self._algorithm, self._problem.env
        if env is not None:
            return evaluate_env(env, algorithm, self._episodes, greedy)

        def decide(state: PyTree, key: Array, obs: Array, memory: PyTree) -> tuple[Array, PyTree]:
            action, _, memory = algorithm.decide(key, state, obs, memory, greedy)
            return action, memory

        return decide

    def _play_hosts(self, decide: Callable[..., Any], states: States, starts: Sequence[int]) -> list[Episodes]:
        """Whole episodes in host environments, the seeds in step or one after the other."""
        make_host = self._problem.make_host
        assert make_host is not None
        count = min(self._problem.settings.num_envs, self._episodes)
        hosts = [make_host(count) for _ in (starts if self._together else starts[:1])]
        fresh = self._algorithm.begin(hosts[0].num_envs)
        try:
            if self._together:
                return evaluate_hosts(hosts, partial(decide, _stack(list(states))), fresh, self._episodes, starts)
            return [
                evaluate_host(hosts[0], partial(decide, state), fresh, self._episodes, start, self._on_played)
                for state, start in zip(states, starts, strict=True)
            ]
        finally:
            for host in hosts:
                host.close()


def summarize_episodes(played: Sequence[Episodes], problem: Problem, rule: LimitRule = STRICT, **about: Any) -> Fields:
    """What the episodes of all seeds say, judged by the rule."""
    returns, costs, lengths = (np.stack(values) for values in zip(*played, strict=True))
    spec = problem.spec
    return evaluation_summary(
        returns, costs, lengths, cost_names=spec.cost_names, cost_limits=spec.cost_limits, rule=rule, **about
    )


@jax.jit
def _stack(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
