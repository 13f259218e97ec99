"""What our Gymnasium environments share, whether a compiled task or a host task is behind them. Loads no jax."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from awavo.checks import all_finite, check_choice
from awavo.errors import InputError
from awavo.tasks.contract import short
from awavo.types import Discrete, EnvSpec, Fields

__all__ = ["Options", "TaskFront", "VectorFront", "cost_info", "draw_seed"]

# Options of a task's factory, whichever it takes.
Options: TypeAlias = Fields

MODES = (AutoresetMode.NEXT_STEP.value, AutoresetMode.SAME_STEP.value)


def cost_info(costs: Float[np.ndarray, " C"], spec: EnvSpec) -> dict[str, float | np.ndarray]:
    """The cost entries of `info` for one environment."""
    named = {f"cost_{name}": float(c) for name, c in zip(spec.cost_names, costs, strict=True)}
    return {"cost": float(costs.sum()), "costs": np.array(costs, np.float32), **named}


class TaskFront:
    """Spaces and cost attributes of a task, and the time limit that its environment applies itself."""

    def _set_spec(self, spec: EnvSpec, low: np.ndarray, high: np.ndarray) -> None:
        self.task_spec = spec
        self._gym_spec: GymnasiumSpec | None = None
        self._obs_space = spaces.Box(low, high, dtype=np.float32)
        space = spec.action_space
        self._act_space = (
            spaces.Discrete(space.num)
            if isinstance(space, Discrete)
            else spaces.Box(np.array(space.low, np.float32), np.array(space.high, np.float32))
        )
        self.num_costs = spec.num_costs
        self.cost_names = spec.cost_names
        self.cost_limits = np.array(spec.cost_limits, np.float32)
        self.cost_space = spaces.Box(0.0, np.inf, (self.num_costs,), np.float32)

    def _check_action(self, action: ArrayLike) -> np.ndarray:
        """One action in the type of the space, whichever type of number it came in; others are refused."""
        own = _numbers(action)
        # As in Gymnasium's own environments a box takes float64 too.
        own = own.astype(np.float32) if isinstance(self._act_space, spaces.Box) and own.dtype.kind in "iuf" else own
        if not self._act_space.contains(own):
            raise InputError(f"action {action!r} is not in {self._act_space}: sample it from env.action_space.")
        return own.astype(self._act_space.dtype)

    @property
    def spec(self) -> GymnasiumSpec | None:
        """The Gymnasium spec, with the time limit that this environment applies itself."""
        return self._gym_spec

    @spec.setter
    def spec(self, value: GymnasiumSpec | None) -> None:
        self._gym_spec = value and dataclasses.replace(value, max_episode_steps=self.task_spec.horizon)


class VectorFront(TaskFront):
    """The same for many environments, whose infos Gymnasium wants stacked."""

    num_envs: int

    def _set_batch(self, num_envs: int, autoreset_mode: str | AutoresetMode, render_mode: str | None) -> None:
        mode = autoreset_mode.value if isinstance(autoreset_mode, AutoresetMode) else autoreset_mode
        self.same_step = check_choice("autoreset_mode", mode, MODES) == AutoresetMode.SAME_STEP.value
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode(mode)}
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space, self.single_action_space = self._obs_space, self._act_space
        self.observation_space = batch_space(self._obs_space, num_envs)
        self.action_space = batch_space(self._act_space, num_envs)

    def _check_actions(self, actions: ArrayLike) -> np.ndarray:
        """An action for each environment in the type of the space, clipped to a box; others are refused."""
        own, space = _numbers(actions), self._act_space
        shape = (self.num_envs, *space.shape)  # pyright: ignore[reportOptionalIterable]
        if own.shape != shape or own.dtype.kind not in ("iu" if isinstance(space, spaces.Discrete) else "iuf"):
            raise InputError(
                f"step(): actions have shape {own.shape} and dtype {own.dtype}, expected {shape} of {space}: sample "
                "them from envs.action_space."
            )
        if isinstance(space, spaces.Discrete):
            if (own < 0).any() or (own >= space.n).any():
                raise InputError(f"step(): actions {own.tolist()} must lie in 0 .. {space.n - 1}.")
            return own.astype(space.dtype)
        if not all_finite(own):
            raise InputError(f"step(): actions {short(own)} are not all finite, expected numbers in {space}.")
        return np.clip(own, space.low, space.high).astype(np.float32)

    def _check_reset(self, seed: int | list[int | None] | None, options: Options | None) -> list[int | None]:
        """One seed, or none, for each environment; an integer s stands for s, s + 1, ..."""
        if options and "reset_mask" in options:
            raise InputError("options['reset_mask'] is not supported: the environments reset themselves.")
        seeds: list[int | None] = (
            [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        )
        if len(seeds) != self.num_envs:
            raise InputError(
                f"{len(seeds)} seeds given for {self.num_envs} environments: give one each, or an integer."
            )
        return seeds

    def _infos(self, costs: Float[np.ndarray, "E C"], mask: np.ndarray | None = None) -> dict[str, np.ndarray]:
        entries = {"cost": costs.sum(-1), "costs": costs}
        entries |= {f"cost_{name}": costs[:, i].copy() for i, name in enumerate(self.cost_names)}
        mask = np.ones(self.num_envs, bool) if mask is None else mask
        return entries | {f"_{name}": mask.copy() for name in entries}

    def _step_infos(
        self, costs: Float[np.ndarray, "E C"], done: Bool[np.ndarray, " E"], final_obs: Float[np.ndarray, "E d"]
    ) -> Fields:
        """Infos of a step; where an episode was reset at once, its last costs and observation are the final ones."""
        done = done & self.same_step
        infos: Fields = self._infos(np.where(done[:, None], 0, costs).astype(np.float32))
        if done.any():
            finals = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                finals[i] = np.array(final_obs[i])
            final_info = self._infos(np.where(done[:, None], costs, 0).astype(np.float32), done)
            infos |= {"final_obs": finals, "_final_obs": done, "final_info": final_info, "_final_info": done.copy()}
        return infos


def _numbers(action: ArrayLike) -> np.ndarray:
    """What was given as an array, truths as 0 and 1; lists of different lengths, which are none, without numbers."""
    try:
        array = np.asarray(action)
    except ValueError:
        return np.asarray(None)
    return array.astype(np.int64) if array.dtype.kind == "b" else array


def draw_seed(rng: np.random.Generator) -> int:
    """A seed for an episode that nobody gave one."""
    return int(rng.integers(2**31))
