"""The one shape of host environments, whatever runs them.

Flattened float32 observations, actions `0 .. n-1` or in the environment's own units, costs `[E, C]`, same-step
auto-reset. The last costs and the last observation of an episode are read before the reset. This loads no jax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from numpy.typing import ArrayLike

from awavo.checks import LARGEST, all_finite, all_usable, check_limits
from awavo.errors import BrokenEnvironmentError, InputError, plural
from awavo.tasks.cost_functions import CostFn, apply_cost_fn
from awavo.types import Discrete, EnvSpec, Timestep

if TYPE_CHECKING:
    from gymnasium import spaces

__all__ = ["Backend", "CostSource", "HostEnv", "HostStep", "find_costs", "name_costs"]

COST_REMEDY = (
    "report info['cost'] (or info['costs'] of shape (C,), or named info['cost_<name>']) on every step, "
    "or give a function cost_fn(obs, action, next_obs) or cost_fn(obs, action, next_obs, info): --cost-fn "
    "MODULE:FUNCTION, in Python cost_fn=FUNCTION."
)


class HostStep(NamedTuple):
    """One step of a backend, after its auto-reset; `costs` is None where a cost function supplies them.

    `info` is what that function gets of the infos of the steps, where it asks for them.
    """

    obs: Float[np.ndarray, "E d"]
    reward: Float[np.ndarray, " E"]
    costs: Float[np.ndarray, "E C"] | None
    terminated: Bool[np.ndarray, " E"]
    truncated: Bool[np.ndarray, " E"]
    final_obs: Float[np.ndarray, "E d"]
    info: dict[str, np.ndarray] | None = None


@runtime_checkable
class Backend(Protocol):
    """What runs the environments of a `HostEnv`: Gymnasium in this process, or a bridge to another one."""

    def reset(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere."""
        ...

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment."""
        ...

    def restart(self, which: Int[np.ndarray, " n"], seeds: list[int]) -> Float[np.ndarray, "n d"]:
        """Break off some of the episodes and begin others in their place."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


class CostSource(NamedTuple):
    """Where the costs stand in `info`, and their names."""

    keys: tuple[str, ...]
    names: tuple[str, ...]

    def read(self, info: Mapping[str, ArrayLike]) -> Float[np.ndarray, " C"]:
        """Costs of one step; a missing or misshapen entry is an error, never a silent zero."""
        try:
            rows = [np.ravel(np.asarray(info[key])) for key in self.keys]
            if any(row.dtype.kind not in "biuf" for row in rows):  # "1.0" too, which numpy would read
                raise TypeError(" ".join(f"{[info[key] for key in self.keys]!r:.60}".split()))
            costs = np.concatenate([row.astype(np.float32) for row in rows])
        except KeyError as error:
            raise BrokenEnvironmentError(
                f"step(): info has no {error}, which an earlier step had: {COST_REMEDY}"
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise BrokenEnvironmentError(f"step(): a cost in info is no number ({error}): {COST_REMEDY}") from error
        if costs.shape != (len(self.names),):
            raise BrokenEnvironmentError(
                f"step(): info has {plural(len(costs), 'cost')}, an earlier step had {len(self.names)}: report all."
            )
        return costs


def find_costs(info: Mapping[str, ArrayLike], wanted: Sequence[str] | None, known: Sequence[str] | None) -> CostSource:
    """Find the costs in the `info` of a step: `costs`, then the wanted names, then `cost`, then every `cost_<name>`.

    `known` are the names that the environment itself gives them.
    """
    named = tuple(sorted(k for k in info if k.startswith("cost_") and k != "cost_sum" and np.ndim(info[k]) == 0))
    if "costs" in info:
        number = int(np.size(info["costs"]))
        names = tuple(wanted or known or (f"g{i + 1}" for i in range(number)))
        keys: tuple[str, ...] = ("costs",)
    elif wanted and all(f"cost_{name}" in info for name in wanted):
        names, keys = tuple(wanted), tuple(f"cost_{name}" for name in wanted)
        number = len(keys)
    elif "cost" in info:
        number, keys = int(np.size(info["cost"])), ("cost",)
        names = tuple(wanted or (known if known and len(known) == number else ("cost",)))
    elif named:
        keys = tuple(f"cost_{name}" for name in known or ())
        keys = keys if keys and set(keys) <= set(named) else named  # the environment's own order, where it has one
        names = tuple(wanted or (key.removeprefix("cost_") for key in keys))
        number = len(keys)
    else:
        raise BrokenEnvironmentError(f"step(): info has no cost, only {sorted(info) or 'nothing'}: {COST_REMEDY}")
    if len(names) != number:
        raise InputError(
            f"{plural(len(names), 'cost name')} {names} for {plural(number, 'cost')} in info ({', '.join(keys)}): "
            "name each one."
        )
    return CostSource(keys, names)


class HostEnv:
    """E copies of an environment that lives on the host: numpy in, numpy out, same-step auto-reset."""

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        backend: Backend,
        action_start: int = 0,
        cost_fn: CostFn | None = None,
        obs_space: spaces.Space | None = None,
        act_space: spaces.Space | None = None,
    ):
        self.spec = spec
        self.obs_space = obs_space  # before it is flattened, where that is known
        self.act_space = act_space  # the environment's own, where that differs from the one of `spec`
        self.num_envs = num_envs
        self._backend = backend
        self._start = action_start
        self._cost_fn = cost_fn
        self._obs: np.ndarray | None = None

    def reset(self, seed: int) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere; different seeds share no stream of any environment."""
        seeds = np.random.SeedSequence(seed).generate_state(self.num_envs)
        return self.start([int(s) >> 1 for s in seeds])

    def start(self, seeds: list[int]) -> Float[np.ndarray, "E d"]:
        """Start an episode everywhere, with a seed for each environment."""
        obs = self._backend.reset(seeds)
        self._check_numbers("reset()", observation=obs)
        self._obs = obs
        return obs.copy()

    def restart(self, seeds: Sequence[int | None]) -> Float[np.ndarray, "E d"]:
        """Begin another episode where a seed is given, the others stay where they are; returns what all observe."""
        if self._obs is None:
            raise InputError("restart() was called before reset(): call reset(seed) first.")
        if len(seeds) != self.num_envs:
            raise InputError(
                f"restart(): {len(seeds)} seeds for {self.num_envs} environments: give a seed or None each."
            )
        given = {i: seed for i, seed in enumerate(seeds) if seed is not None}
        if given:
            obs = self._backend.restart(np.array(list(given)), list(given.values()))
            self._check_numbers("reset()", observation=obs)
            self._obs = self._obs.copy()
            self._obs[list(given)] = obs
        return self._obs.copy()

    def step(self, action: Shaped[np.ndarray, " E *d"], hold: Bool[np.ndarray, " E"] | None = None) -> Timestep:
        """Step every environment with actions `0 .. n-1`, or in the environment's own units.

        Those on `hold`, which only some backends can, stay where they are.
        """
        if self._obs is None:
            raise InputError("step() was called before reset(): call reset(seed) first.")
        action = self._check_action(np.asarray(action))
        out = self._backend.step(action) if hold is None else self._backend.step(action, hold)  # pyright: ignore[reportCallIssue]
        costs = out.costs
        if self._cost_fn is not None:
            costs = apply_cost_fn(self._cost_fn, self._obs, action, out.final_obs, out.info)
        self._check_numbers("step()", observation=out.final_obs, reward=out.reward, cost=costs)
        self._check_numbers("reset() after an episode", observation=out.obs)
        self._obs = out.obs
        # As everywhere: truncated only where the episode did not end by itself.
        truncated = out.truncated & ~out.terminated
        return Timestep(out.obs.copy(), out.reward, costs, out.terminated, truncated, out.final_obs)  # pyright: ignore

    def _check_numbers(self, where: str, **parts: np.ndarray | None) -> None:
        """Refuse numbers that would spoil the normaliser and every network behind it."""
        for name, values in parts.items():
            if values is None or not all_usable(values):
                raise BrokenEnvironmentError(
                    f"{where}: the {name} of {self.spec.name} is not finite or is beyond {LARGEST:g}: "
                    "run `awavo check-env` on it."
                )

    def picture(self) -> UInt8[np.ndarray, "h w 3"] | None:
        """What the first environment looks like now; None where nothing draws it."""
        draw = getattr(self._backend, "picture", None)
        return None if draw is None else draw()

    @property
    def step_seconds(self) -> float | None:
        """Seconds of the task that one step takes, where that is known."""
        return getattr(self._backend, "seconds", None)

    def close(self) -> None:
        """Close the environments."""
        self._backend.close()

    def __enter__(self) -> HostEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_action(self, action: np.ndarray) -> np.ndarray:
        space = self.spec.action_space
        if isinstance(space, Discrete):
            if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
                raise InputError(f"step(): {_describe(action)}, expected integers of shape ({self.num_envs},).")
            if (action < 0).any() or (action >= space.num).any():
                raise InputError(f"step(): actions {action.tolist()} must lie in 0 .. {space.num - 1}.")
            return action.astype(np.int64) + self._start
        if action.shape != (self.num_envs, space.dim) or action.dtype.kind != "f" or not all_finite(action):
            raise InputError(
                f"step(): {_describe(action)}, expected finite floats of shape {(self.num_envs, space.dim)}."
            )
        return np.clip(action, space.low, space.high).astype(np.float32)


def _describe(action: np.ndarray) -> str:
    return f"actions have shape {action.shape} and dtype {action.dtype}"


def name_costs(
    costs: np.ndarray, names: Sequence[str] | None, limits: Sequence[float] | None
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Names and limits for the columns of `costs`, defaults included."""
    number = costs.shape[-1]
    names = tuple(names or (("cost",) if number == 1 else (f"g{i + 1}" for i in range(number))))
    if len(names) != number:
        raise InputError(
            f"{plural(len(names), 'cost name')} {names} for {plural(number, 'cost')}: give one name for each."
        )
    if limits is None:
        raise InputError(
            f"cost_limits is missing: give one limit on the episode total of each cost ({', '.join(names)})."
        )
    return names, check_limits(limits, names)
