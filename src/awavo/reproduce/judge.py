"""Fresh episodes of every seed's policy, summarised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from awavo.experiment import Problem
from awavo.results.statistics import evaluation_summary
from awavo.training.evaluation import evaluate_env, evaluate_host
from awavo.training.rollout import EpisodeTotals
from awavo.training.sharding import shard_seeds

__all__ = ["EVALUATION_SEED", "Judge"]

EVALUATION_SEED = 1_000_003


class Judge:
    """Plays `episodes` of every seed's state; compiled once for each kind of action."""

    def __init__(self, problem: Problem, seeds: Sequence[int], episodes: int, axis: str):
        self.problem, self.seeds, self.episodes = problem, seeds, episodes
        self.vmap = axis == "vmap" and problem.env is not None
        if problem.env is not None:
            plays = {g: evaluate_env(problem.env, problem.algorithm, episodes, g) for g in (True, False)}
            self.plays = {g: jax.jit(jax.vmap(play) if self.vmap else play) for g, play in plays.items()}
        else:
            decide = jax.jit(problem.algorithm.decide, static_argnums=4)
            self.plays = {g: partial(self._play_host, decide, g) for g in (True, False)}

    def __call__(self, states: Sequence[Any], greedy: bool) -> dict[str, Any]:
        """Play and summarise."""
        base = jax.random.key(EVALUATION_SEED)
        keys = [jax.random.fold_in(jax.random.fold_in(base, seed), greedy) for seed in self.seeds]
        learnt = [state.algorithm for state in states]
        if self.vmap:
            stacked = jax.tree.map(lambda *x: jax.numpy.stack(x), *zip(keys, learnt, strict=True))
            totals = jax.tree.map(np.asarray, self.plays[greedy](*shard_seeds(stacked, len(self.seeds))))
        else:
            played = [self.plays[greedy](key, state) for key, state in zip(keys, learnt, strict=True)]
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

    def _play_host(self, decide: Any, greedy: bool, key: Any, state: Any) -> EpisodeTotals:
        """Whole episodes of a host task."""
        assert self.problem.make_host is not None
        host = self.problem.make_host()
        try:
            seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
            played = evaluate_host(
                host,
                lambda k, obs, memory: decide(k, state, obs, memory, greedy)[::2],
                self.problem.algorithm.begin(host.num_envs),
                self.episodes,
                seed,
            )
            return EpisodeTotals(returns=played.returns, costs=played.costs, length=played.lengths)
        finally:
            host.close()
