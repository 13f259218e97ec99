"""Sizes that follow from the task and the number of environments, by one rule for every task; no task is named.

====================  ================================  =================================  ============================
                      small and planned                 small, the policy alone            larger
====================  ================================  =================================  ============================
environments, steps   4, 32 of each between updates     16, 32 of each                     16, 8 of each
hidden layers         2 of 128                          2 of 64                            2 of 256
gradient steps        one for each environment step,    one for eight steps, at most 64    one for two steps, at most 64
                      at most 128
batch                 128                               128                                256
planning              on                                off                                off
generation            4 episodes                        16 episodes                        16 episodes
patience              1                                 1                                  5
tails seen            no                                no                                 yes
====================  ================================  =================================  ============================

Small is a task whose observation and action have at most `SMALL` numbers together: a model of few numbers is learnt
from few steps and worth planning in; of lidars and joints it is not, their ends are shown to the critics
(`networks.normalizer`), and weights are patient with what hangs on so many numbers (`constraints`). Planned steps are
dear, and more is learnt from each. With another number of environments a rollout has as many steps in all, but no fewer
than 8 of each, and a generation is at least an episode of each. Where a rollout has more than `ROWS` steps, as with
thousands of environments on an accelerator, the batch grows with them, up to 16 times: data is cheap there, and
gradient steps are not. The warm-up is four episodes, at most 4,000 steps. docs/learner.md has the measurements.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from awavo.algorithms.actor_critic import ActorCriticConfig
from awavo.types import Discrete, EnvSpec

__all__ = ["generation", "has_planner", "is_planned", "is_small", "patience", "resolve_sizes", "sees_tails"]

# Numbers in an observation and an action up to which a task is small; rows of a rollout from which the batch grows.
SMALL, ROWS = 12, 1024

Config = TypeVar("Config", bound=ActorCriticConfig)


def is_small(spec: EnvSpec) -> bool:
    """Whether observation and action have few numbers together."""
    space = spec.action_space
    return spec.obs_dim + (1 if isinstance(space, Discrete) else space.dim) <= SMALL


def generation(spec: EnvSpec, config: ActorCriticConfig) -> int:
    """Episodes after which a constraint's weight has had its say: what is planned is learnt in fewer of them."""
    return max(config.num_envs, 4 if is_planned(spec, config) else 16)


def patience(spec: EnvSpec) -> float:
    """By how much a constraint's weight answers more slowly than where costs hang on few numbers."""
    return 1.0 if is_small(spec) else 5.0


def sees_tails(spec: EnvSpec) -> bool:
    """Whether critics are shown the ends of each component's distribution."""
    return not is_small(spec)


def has_planner(config: ActorCriticConfig) -> bool:
    """Whether decisions come from a plan, in a configuration whose sizes are resolved."""
    return getattr(config, "planning", "off") != "off"


def is_planned(spec: EnvSpec, config: ActorCriticConfig) -> bool:
    """Whether sizes are those of a planned task: `planning=on` leaves a larger task the sizes that it has."""
    planning = getattr(config, "planning", "off")
    return planning == "physics" or (is_small(spec) and planning != "off")


def resolve_sizes(spec: EnvSpec, config: Config) -> Config:
    """The configuration with every size that was left to the rule."""
    small, planned = is_small(spec), is_planned(spec, config)
    num_envs = config.num_envs or (4 if planned else 16)
    length = config.rollout_length or max((512 if small and not planned else 128) // num_envs, 8)
    rows = num_envs * length
    growth = min(max(rows // ROWS, 1), 16)
    steps = min(rows, 128) if planned else min(rows // (8 if small else 2), 64)
    chosen: dict[str, object] = {
        "num_envs": num_envs,
        "rollout_length": length,
        "replay_capacity": -(-config.replay_capacity // rows) * rows,  # whole rollouts
        "num_updates": config.num_updates or max(1, steps),
        "batch_size": config.batch_size or growth * (128 if small else 256),
        "hidden": config.hidden or ((128, 128) if planned else (64, 64) if small else (256, 256)),
        "warmup_steps": config.warmup_steps or max(min(4 * spec.horizon, 4_000), rows),
    }
    if getattr(config, "planning", None) == "auto":
        chosen["planning"] = "on" if small else "off"
    return dataclasses.replace(config, **chosen)
