"""The seed axis over several devices: every device holds the same number of seeds and never talks to another."""

from __future__ import annotations

from typing import TypeVar

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

__all__ = ["seed_sharding", "shard_seeds"]

T = TypeVar("T")


def seed_sharding(num_seeds: int) -> NamedSharding | None:
    """The leading axis split over as many local devices as divide it; None where one device does."""
    devices = jax.local_devices()
    count = max(k for k in range(1, len(devices) + 1) if num_seeds % k == 0)
    if count == 1:
        return None
    return NamedSharding(Mesh(devices[:count], ("seed",)), PartitionSpec("seed"))


def shard_seeds(tree: T, num_seeds: int) -> T:
    """Arrays `[S, ...]` placed on the devices of their seeds."""
    sharding = seed_sharding(num_seeds)
    return tree if sharding is None else jax.device_put(tree, sharding)
