"""Gymnasium's spaces as ours: which actions and observations are accepted."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped

from awavo.checks import all_finite
from awavo.errors import InputError
from awavo.types import ActionSpace, Box, Discrete

__all__ = ["action_spec", "check_observation_space", "own_actions"]


def action_spec(space: spaces.Space) -> tuple[ActionSpace, int]:
    """Our action space for a Gymnasium one, and the number of its first discrete action."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n)), int(space.start)
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
        raise InputError(
            f"action_space is {space}, expected Discrete or a Box of floats: wrap the environment to offer one."
        )
    low, high = space.low.ravel(), space.high.ravel()
    if not all_finite(low, high):
        raise InputError(
            f"action_space {space} has infinite bounds, expected finite ones: give its Box a low and a high, "
            "or wrap it in gymnasium.wrappers.TransformAction with a finite space."
        )
    return Box(tuple(map(float, low)), tuple(map(float, high))), 0


def own_actions(space: spaces.Space, actions: Shaped[np.ndarray, " B *n"]) -> np.ndarray:
    """Actions `0 .. n-1`, or flat ones of a box, as an environment with this space takes them.

    A box of float64 has bounds that float32 rounds, to either side of them: its actions are clipped in its own type.
    """
    if isinstance(space, spaces.Discrete):
        return actions + space.dtype.type(space.start)
    if not isinstance(space, spaces.Box):
        return actions
    return np.clip(np.asarray(actions, space.dtype).reshape(-1, *space.shape), space.low, space.high)


def check_observation_space(space: spaces.Space) -> int:
    """Length of the flattened observation; images and unbounded structures are refused."""
    if not space.is_np_flattenable:
        raise InputError(
            f"observation_space {space} cannot be flattened to a vector: wrap the environment to return one."
        )
    for leaf in _leaves(space):
        if isinstance(leaf, spaces.Box) and (len(leaf.shape) > 2 or (len(leaf.shape) == 2 and leaf.dtype == np.uint8)):
            raise InputError(
                f"observation_space holds an image {leaf.shape}, expected a vector: use the state version, "
                "or wrap it in a feature extractor that returns a vector."
            )
    return spaces.flatdim(space)


def _leaves(space: spaces.Space) -> list[spaces.Space]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [leaf for s in inner for leaf in _leaves(s)]
    return [space]
