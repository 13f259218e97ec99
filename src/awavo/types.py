"""The shapes everything shares: environments, rollouts, algorithms, estimates.

Arrays are time-major `[T, E, ...]` (time, environment); costs are `[..., C]` even when C = 1.
The seed axis is added outside. `Array` is that of jax; on the host numpy's takes its place. This module imports no jax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import PyTree
else:  # annotations can be resolved without importing jax
    Array = PyTree = Any

__all__ = [
    "ActionSpace", "ActorParts", "Algorithm", "Box", "Critics", "Discrete", "Distribution", "Env", "EnvSpec",
    "Estimate", "Fields", "FieldsView", "Physics", "Rollout", "Timestep",
]  # fmt: skip

# Named values of any kind, as JSON, options and keyword arguments hold them; the second is only read.
Fields: TypeAlias = dict[str, Any]
FieldsView: TypeAlias = Mapping[str, Any]
# A number, or an array of them, of numpy or jax, traced or not.
Numbers: TypeAlias = Any

State = TypeVar("State")
Info = TypeVar("Info")


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

    obs: Array
    reward: Array
    costs: Array
    terminated: Array
    truncated: Array
    final_obs: Array


class Physics(NamedTuple):
    """A task's own dynamics as far as an observation tells them, and which of its parameters are to be identified.

    `step(theta [p], obs [d], action) -> (next_obs, reward, costs, terminated)` is one step without its noise, of an
    observation alone. `names` are the fields of `Env.params` that theta stands for, `low` and `high` the range in which
    each is believed to lie before any data.
    """

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    step: Callable[[Array, Array, Array], tuple[Array, Array, Array, Array]]


class Env(NamedTuple):
    """A functional environment: pure functions of keys, states and physics parameters.

    `reset(key, params) -> (state, obs)`; `step(key, state, action, params) -> (state, Timestep)`. Both are for ONE
    environment: vmap them for a batch, over `params` too for randomised physics. `physics` is there where a planner
    can follow the task from its observations (`planning=physics`).
    """

    spec: EnvSpec
    params: PyTree
    reset: Callable[[Array, PyTree], tuple[PyTree, Array]]
    step: Callable[[Array, PyTree, Array, PyTree], tuple[PyTree, Timestep]]
    physics: Physics | None = None


class Rollout(NamedTuple):
    """T steps of E environments. The `episode_*` fields are totals so far: of a whole episode where `done`."""

    obs: Array
    action: Array
    extras: PyTree
    reward: Array
    costs: Array
    terminated: Array
    truncated: Array
    next_obs: Array
    episode_return: Array
    episode_costs: Array
    episode_length: Array

    @property
    def done(self) -> Array:
        """Where an episode ended, for whichever reason."""
        return self.terminated | self.truncated


@runtime_checkable
class Distribution(Protocol):
    """A distribution over the actions of a task, one for each observation of a batch."""

    def sample(self, key: Array) -> Array:
        """Draw one action each."""
        ...

    def mode(self) -> Array:
        """The greedy action."""
        ...

    def log_prob(self, action: Array) -> Array:
        """Log-probability, or log-density, of one action each."""
        ...


class ActorParts(NamedTuple):
    """What decides greedily, as plain numbers, for formats that hold no jax.

    `x = clip((obs - mean) / std, -10, 10)` goes through the layers `x @ weight + bias` with `activation` between them;
    the largest of the outputs is a discrete action, `tanh` of the first `dim` of them, scaled to the box, a continuous
    one.
    With `num_components` C > 1 the last C outputs say which `dim` of the first C `dim` these are: the largest's.
    """

    mean: Array
    std: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: str
    space: ActionSpace
    num_components: int = 1


class Critics(NamedTuple, Generic[State]):
    """What certification asks of quantile critics; all signals are the reward followed by the C costs.

    `quantiles(state, obs, action) -> [..., 1 + C, M]` of the discounted returns; `signal_bounds(state)` are the
    smallest and largest signal `[1 + C]` of one step in all training; `return_bounds(state)` those of the discounted
    return that the likelihoods assume; `after_end(state) -> [1 + C]` the discounted returns that critics are told to
    count after a termination (None: nothing counts there).
    """

    quantiles: Callable[[State, Array, Array], Array]
    signal_bounds: Callable[[State], tuple[Array, Array]]
    return_bounds: Callable[[State], tuple[Array, Array]]
    after_end: Callable[[State], Array] | None = None


class Algorithm(NamedTuple, Generic[State, Info]):
    """What a factory such as `orpo_dr(spec, config)` returns.

    `init(key) -> State`; `act(key, state, obs, greedy) -> (action, extras)`, batched over environments;
    `learn(key, state, rollout) -> (State, Info)`. State holds arrays only; Info holds scalars that become
    metrics by field name.

    Nobody else looks inside a State. What export, explanation and certification need, an algorithm says here, or leaves
    out: `policy(state, obs) -> Distribution` of the actions in raw observations, whose mode is the greedy action (None
    where there is no policy network and all decisions come from planning); `actor(state)`, the same as plain numbers;
    `critics`; `slices(state, obs) -> [..., L, c]`, the slices by which it decides, where it learns them.

    An algorithm that decides by inference has a planner too, which then takes the place of `act`:
    `start(num_envs) -> Memory` and `plan(key, state, obs, memory, greedy) -> (action, extras, Memory)`, where Memory
    is what it keeps of each environment from one step of an episode to the next, the environment being the first axis.
    Without a planner `explore(key, state, obs, memory)`, which returns the same, may replace `act` in training.

    `cut_after(steps) -> [E]`, where there is one, is the age in steps at which a training episode of each environment
    is cut short and another one begun, `steps` environment steps into the training. What is cut is truncated, not
    terminated, and no episode in any table.
    """

    init: Callable[[Array], State]
    act: Callable[[Array, State, Array, bool], tuple[Array, PyTree]]
    learn: Callable[[Array, State, Rollout], tuple[State, Info]]
    policy: Callable[[State, Array], Distribution] | None = None
    start: Callable[[int], PyTree] | None = None
    plan: Callable[[Array, State, Array, PyTree, bool], tuple[Array, PyTree, PyTree]] | None = None
    explore: Callable[[Array, State, Array, PyTree], tuple[Array, PyTree, PyTree]] | None = None
    actor: Callable[[State], ActorParts] | None = None
    critics: Critics[State] | None = None
    slices: Callable[[State, Array], Array] | None = None
    cut_after: Callable[[Array], Array] | None = None

    def begin(self, num_envs: int) -> PyTree:
        """Memory at the start of an episode in each environment; `()` where nothing is kept."""
        return () if self.start is None else self.start(num_envs)

    def decide(
        self, key: Array, state: State, obs: Array, memory: PyTree, greedy: bool
    ) -> tuple[Array, PyTree, PyTree]:
        """Return action, extras and memory, from the planner where there is one."""
        if self.plan is not None:
            return self.plan(key, state, obs, memory, greedy)
        if self.explore is not None and not greedy:
            return self.explore(key, state, obs, memory)
        return *self.act(key, state, obs, greedy), memory


def _number(x: Numbers) -> Numbers:
    """What `x` counts for in arithmetic."""
    return x.value if isinstance(x, Estimate) else x


class Estimate(NamedTuple):
    """A number with its interval: every number shown to a person carries one.

    In arithmetic, comparisons with numbers, `float()`, formats and array functions it stands for its value alone; the
    result is then a plain number. Two estimates are equal if all their fields are.
    """

    value: Numbers  # numbers, or arrays of them along a curve
    low: Numbers
    high: Numbers
    count: Numbers
    method: str

    def __float__(self) -> float:
        """The number alone."""
        return float(self.value)

    def __array__(self, dtype: Numbers = None, copy: bool | None = None) -> Numbers:
        """The value as numpy sees it."""
        import numpy as np

        return np.array(self.value, dtype=dtype) if copy else np.asarray(self.value, dtype=dtype)

    def __jax_array__(self) -> Numbers:
        """The value as jax sees it."""
        return self.value

    def __format__(self, spec: str) -> str:
        """`f"{estimate:.3f}"` shows the number; without a format, all fields."""
        return format(float(self.value), spec) if spec else str(self)

    def __neg__(self) -> Numbers:
        return -self.value

    def __abs__(self) -> Numbers:
        return abs(self.value)

    def __eq__(self, other: object) -> Numbers:
        return tuple.__eq__(self, other) if isinstance(other, tuple) else self.value == other

    def __ne__(self, other: object) -> Numbers:
        return tuple.__ne__(self, other) if isinstance(other, tuple) else self.value != other

    __hash__ = tuple.__hash__

    def __add__(self, other: Numbers) -> Numbers:
        return self.value + _number(other)

    def __radd__(self, other: Numbers) -> Numbers:
        return other + self.value

    def __sub__(self, other: Numbers) -> Numbers:
        return self.value - _number(other)

    def __rsub__(self, other: Numbers) -> Numbers:
        return other - self.value

    def __mul__(self, other: Numbers) -> Numbers:
        return self.value * _number(other)

    def __rmul__(self, other: Numbers) -> Numbers:
        return other * self.value

    def __truediv__(self, other: Numbers) -> Numbers:
        return self.value / _number(other)

    def __rtruediv__(self, other: Numbers) -> Numbers:
        return other / self.value

    def __pow__(self, other: Numbers) -> Numbers:
        return self.value ** _number(other)

    def __rpow__(self, other: Numbers) -> Numbers:
        return other**self.value

    def __lt__(self, other: Numbers) -> Numbers:
        return self.value < _number(other)

    def __le__(self, other: Numbers) -> Numbers:
        return self.value <= _number(other)

    def __gt__(self, other: Numbers) -> Numbers:
        return self.value > _number(other)

    def __ge__(self, other: Numbers) -> Numbers:
        return self.value >= _number(other)
