"""The shapes everything shares: environments, rollouts, algorithms, estimates.

Arrays are time-major `[T, E, ...]` (time, environment); costs are `[..., C]` even when C = 1.
The seed axis is added outside. Fields typed `Any` hold arrays of jax, or of numpy where the environment lives on the
host. This module imports no jax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jax import Array


__all__ = [
    "ActionSpace",
    "Algorithm",
    "Box",
    "Discrete",
    "Env",
    "EnvSpec",
    "Estimate",
    "Rollout",
    "Timestep",
]


class Discrete(NamedTuple):
    """Actions `0 .. num - 1`."""

    num: int


class Box(NamedTuple):
    """Actions in a box of R^d, one bound per component."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def dim(self) -> int:
        """Number of action components."""
        return len(self.low)


ActionSpace = Discrete | Box


class EnvSpec(NamedTuple):
    """What an algorithm may know of a task before the first step.

    `cost_limits` bound the UNDISCOUNTED episode total of each cost. `horizon` is the number of
    steps after which an episode is truncated.
    """

    name: str
    obs_dim: int
    action_space: ActionSpace
    horizon: int
    cost_names: tuple[str, ...]
    cost_limits: tuple[float, ...]

    @property
    def num_costs(self) -> int:
        """Number of constraints C."""
        return len(self.cost_names)


class Timestep(NamedTuple):
    """What one step of an auto-resetting environment returns.

    After the end of an episode `obs` is the first observation of the next one and `final_obs` the last
    of the episode that ended; otherwise both are equal.
    """

    obs: Any
    reward: Any
    costs: Any
    terminated: Any
    truncated: Any
    final_obs: Any


class Env(NamedTuple):
    """A functional environment: pure functions of keys, states and physics parameters.

    `reset(key, params) -> (state, obs)`; `step(key, state, action, params) -> (state, Timestep)`. Both are for ONE
    environment: vmap them for a batch, over `params` too for randomised physics.
    """

    spec: EnvSpec
    params: Any
    reset: Callable[[Array, Any], tuple[Any, Array]]
    step: Callable[[Array, Any, Array, Any], tuple[Any, Timestep]]


class Rollout(NamedTuple):
    """T steps of E environments. The `episode_*` fields are totals so far: of a whole episode where `done`."""

    obs: Any
    action: Any
    extras: Any
    reward: Any
    costs: Any
    terminated: Any
    truncated: Any
    next_obs: Any
    episode_return: Any
    episode_costs: Any
    episode_length: Any

    @property
    def done(self) -> Any:
        """Where an episode ended, for whichever reason."""
        return self.terminated | self.truncated


class Algorithm(NamedTuple):
    """What a factory such as `orpo_dr(spec, config)` returns.

    `init(key) -> State`; `act(key, state, obs, greedy) -> (action, extras)`, batched over environments;
    `learn(key, state, rollout) -> (State, Info)`. State holds arrays only; Info holds scalars that become
    metrics by field name.

    An algorithm that decides by inference has a planner too, which then takes the place of `act`:
    `start(num_envs) -> Memory` and `plan(key, state, obs, memory, greedy) -> (action, extras, Memory)`, where Memory
    is what it keeps of each environment from one step of an episode to the next, the environment being the first axis.
    """

    init: Callable[[Array], Any]
    act: Callable[[Array, Any, Array, bool], tuple[Array, Any]]
    learn: Callable[[Array, Any, Rollout], tuple[Any, Any]]
    start: Callable[[int], Any] | None = None
    plan: Callable[[Array, Any, Array, Any, bool], tuple[Array, Any, Any]] | None = None

    def begin(self, num_envs: int) -> Any:
        """Memory at the start of an episode in each environment; `()` without a planner."""
        return () if self.start is None else self.start(num_envs)

    def decide(self, key: Any, state: Any, obs: Any, memory: Any, greedy: bool) -> tuple[Any, Any, Any]:
        """Return action, extras and memory, from the planner where there is one."""
        if self.plan is None:
            return *self.act(key, state, obs, greedy), memory
        return self.plan(key, state, obs, memory, greedy)


class Estimate(NamedTuple):
    """A number with its interval: every number shown to a person carries one."""

    value: Any
    low: Any
    high: Any
    count: Any
    method: Any
