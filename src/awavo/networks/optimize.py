"""Optimiser steps and averages on networks, with their types kept."""

from __future__ import annotations

from typing import Any, TypeVar

import optax

__all__ = ["adam", "descend", "polyak_average"]

Net = TypeVar("Net")


def adam(step_size: Any, max_grad_norm: float) -> optax.GradientTransformation:
    """Adam after clipping the global norm of the gradient."""
    return optax.flatten(optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(step_size)))


def descend(optimizer: optax.GradientTransformation, grads: Any, opt_state: Any, net: Net) -> tuple[Net, Any]:
    """Take one step down the gradient; return the network and the optimiser's state."""
    params: Any = net
    step, opt_state = optimizer.update(grads, opt_state, params)
    moved: Any = optax.apply_updates(params, step)
    return moved, opt_state


def polyak_average(new: Net, average: Net, rate: float) -> Net:
    """Move the average towards the new network by `rate`."""
    fresh: Any = new
    stale: Any = average
    merged: Any = optax.incremental_update(fresh, stale, rate)
    return merged
