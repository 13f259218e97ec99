"""Fresh episodes of every seed's policy, summarised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from awavo.results.statistics import evaluation_summary
from awavo.runs.problem import Problem
from awavo.training.evaluation import evaluate_env, evaluate_host, evaluate_hosts
from awavo.training.rollout import EpisodeTotals
from awavo.training.sharding import shard_seeds
from awavo.types import Algorithm

__all__ = ["EVALUATION_SEED", "Judge"]

EVALUATION_SEED = 1_000_003


class Judge:
    """Plays `episodes` of every seed's state; compiled once for each kind of action."""

    def __init__(self, problem: Problem, seeds: Sequence[int], episodes: int, axis: str):
        self.problem, self.seeds, self.episodes = problem, seeds, episodes
        self.vmap = axis == "vmap"
        if problem.env is not None:
            one = {g: evaluate_env(problem.env, problem.algorithm, episodes, g) for g in (True, False)}
        else:
            one = {g: partial(_decide, problem.algorithm, g) for g in (True, False)}
        self.programs = {g: jax.jit(jax.vmap(play) if self.vmap else play) for g, play in one.items()}

    def __call__(self, states: Sequence[Any], greedy: bool) -> dict[str, Any]:
        """Play and summarise."""
        base = jax.random.key(EVALUATION_SEED)
        keys = [jax.random.fold_in(jax.random.fold_in(base, seed), greedy) for seed in self.seeds]
        learnt = [state.algorithm for state in states]
        program = self.programs[greedy]
        if self.problem.make_host is not None:
            totals = self._play_hosts(program, keys, learnt)
        elif self.vmap:
            stacked = shard_seeds(_stack(list(zip(keys, learnt, strict=True))), len(self.seeds))
            totals = jax.tree.map(np.asarray, program(*stacked))
        else:
            played = [program(key, state) for key, state in zip(keys, learnt, strict=True)]
            totals = jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *played)
        spec = self.problem.spec
        return evaluation_summary(
            totals.returns,
            totals.costs,
            totals.length,
            cost_names=spec.cost_names,
            cost_limits=spec.cost_limits,
            tolerance=self.problem.settings.tolerance,
        )

    def _play_hosts(self, decide: Any, keys: Sequence[Any], learnt: Sequence[Any]) -> EpisodeTotals:
        """Whole episodes of a host task, the seeds in step or one after the other."""
        make_host = self.problem.make_host
        assert make_host is not None
        count = min(self.problem.settings.num_envs, self.episodes)
        hosts = [make_host(count) for _ in (keys if self.vmap else keys[:1])]
        fresh = self.problem.algorithm.begin(hosts[0].num_envs)
        starts = [int(jax.random.randint(key, (), 0, 2**31 - 1)) for key in keys]
        try:
            if self.vmap:
                together = partial(decide, _stack(list(learnt)))
                played = evaluate_hosts(hosts, together, fresh, self.episodes, starts)
            else:
                played = [
                    evaluate_host(hosts[0], partial(decide, state), fresh, self.episodes, start)
                    for state, start in zip(learnt, starts, strict=True)
                ]
        finally:
            for host in hosts:
                host.close()
        returns, costs, lengths = (jnp.asarray(np.stack(values)) for values in zip(*played, strict=True))
        return EpisodeTotals(returns=returns, costs=costs, length=lengths)


def _decide(algorithm: Algorithm, greedy: bool, state: Any, key: Any, obs: Any, memory: Any) -> tuple[Any, Any]:
    action, _, memory = algorithm.decide(key, state, obs, memory, greedy)
    return action, memory


@jax.jit
def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
