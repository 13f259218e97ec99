"""Optimiser steps and averages on networks, with their types kept, and the guard against bad numbers."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, PyTree

__all__ = ["adam", "all_finite", "choose", "descend", "optimizer_state", "polyak_average"]

Net = TypeVar("Net")


def adam(step_size: float, max_grad_norm: float) -> optax.GradientTransformation:
    """Adam after clipping the global norm of the gradient."""
    return optax.flatten(optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(step_size)))


def optimizer_state(optimizer: optax.GradientTransformation, net: PyTree) -> optax.OptState:
    """The optimiser's state before the first step."""
    return optimizer.init(net)


def descend(
    optimizer: optax.GradientTransformation, grads: PyTree, opt_state: optax.OptState, net: Net
) -> tuple[Net, optax.OptState]:
    """Take one step down the gradient; return the network and the optimiser's state."""
    params: PyTree = net
    step, opt_state = optimizer.update(grads, opt_state, params)
    moved: PyTree = optax.apply_updates(params, step)
    return moved, opt_state


def polyak_average(new: Net, average: Net, rate: float) -> Net:
    """Move the average towards the new network by `rate`."""
    fresh: PyTree = new
    stale: PyTree = average
    merged: PyTree = optax.incremental_update(fresh, stale, rate)
    return merged


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every number of a tree is finite."""
    return jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), tree))


def choose(condition: Bool[Array, ""], new: Net, old: Net) -> Net:
    """The new tree where the condition holds, otherwise the old one."""
    return jax.tree.map(lambda fresh, stale: jnp.where(condition, fresh, stale), new, old)
