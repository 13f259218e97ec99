"""Sizes that follow from the task and the number of environments, by one rule for every task; no task is named.

=====================  ==============================================  =================================================
                       small: observation + action <= `SMALL` numbers  larger
=====================  ==============================================  =================================================
environments, steps    4, 32 of each between updates                   16, 8 of each between updates
hidden layers          2 of 64                                         2 of 256
gradient steps         one for each environment step, at most 128      one for every second step, at most 64
batch                  128                                             256
planning               on                                              off
episodes a generation  4, or one of every environment                  16, or one of every environment
=====================  ==============================================  =================================================

With another number of environments a rollout has 128 steps in all, but no fewer than 8 of each. Where a rollout has more than `ROWS` steps, as with thousands of environments on an accelerator, the batch grows with
them, up to 16 times: data is cheap there, and gradient steps are not. A model of few numbers is learnt from few steps
and worth planning in; of lidars and joints it is not (docs/learner.md has the measurements). The warm-up is four
episodes, at most 4,000 steps.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from awavo.algorithms.actor_critic import ActorCriticConfig
from awavo.types import Discrete, EnvSpec

__all__ = ["generation", "is_small", "resolve_sizes"]

# Numbers in an observation and an action up to which a task is small; rows of a rollout from which the batch grows.
SMALL, ROWS = 12, 1024

Config = TypeVar("Config", bound=ActorCriticConfig)


def is_small(spec: EnvSpec) -> bool:
    """Whether observation and action have few numbers together."""
    space = spec.action_space
    return spec.obs_dim + (1 if isinstance(space, Discrete) else space.dim) <= SMALL


def generation(spec: EnvSpec, num_envs: int) -> int:
    """Episodes after which a constraint's weight has had its say: larger tasks are learnt in more of them."""
    return max(num_envs, 4 if is_small(spec) else 16)


def resolve_sizes(spec: EnvSpec, config: Config) -> Config:
    """The configuration with every size that was left to the rule."""
    small = is_small(spec)
    num_envs = config.num_envs or (4 if small else 16)
    length = config.rollout_length or max(128 // num_envs, 8)
    rows = num_envs * length
    growth = min(max(rows // ROWS, 1), 16)
    chosen: dict[str, object] = {
        "num_envs": num_envs,
        "rollout_length": length,
        "replay_capacity": -(-config.replay_capacity // rows) * rows,  # whole rollouts
        "num_updates": config.num_updates or max(1, min(rows, 128) if small else min(rows // 2, 64)),
        "batch_size": config.batch_size or growth * (128 if small else 256),
        "hidden": config.hidden or ((64, 64) if small else (256, 256)),
        "warmup_steps": config.warmup_steps or max(min(4 * spec.horizon, 4_000), rows),
    }
    if getattr(config, "planning", None) == "auto":
        chosen["planning"] = "on" if small else "off"
    return dataclasses.replace(config, **chosen)
