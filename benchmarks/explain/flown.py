"""Flights as small arrays, kept in a folder, so that a stopped experiment resumes."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import jax
import numpy as np

from awavo.control.flight_planner import DEFAULT as CONFIG
from awavo.explain.measures import total_variation
from awavo.explain.simulation import explained_flight, flight_params


@partial(jax.jit, static_argnames=("steps", "shuffled"))
def flight(seed, params, seen=3, shuffled=False, steps=500):
    """The whole trace."""
    return explained_flight(seed, params, CONFIG, steps, seen, shuffled)


@jax.jit
def _small(trace):
    weights = jax.nn.softmax(trace.log_likelihood, -1)
    kept = {name: getattr(trace, name) for name in ("influence", "shares", "together", "effective_size")}
    kept |= {name: getattr(trace, name) for name in ("true_force", "error", "clearance", "alive")}
    kept |= {"time": trace.inputs.time, "position": trace.inputs.body.position}
    # What obstacles change where the wind is removed already: the second leg of the triangle inequality.
    return kept | {"rest": total_variation(weights[:, 2], weights[:, 0])}


def keep(folder: Path | None, name: list, make) -> dict[str, np.ndarray]:
    """Return the arrays of `make()`, from the folder where they are there already."""
    path = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.blake2b(json.dumps([name, CONFIG]).encode(), digest_size=10).hexdigest()
        path = folder / f"{digest}.npz"
        if path.is_file():
            with np.load(path) as file:
                return dict(file)
    found = {key: np.asarray(value) for key, value in make().items()}
    if path is not None:
        part = path.with_suffix(".part.npz")
        np.savez(part, **found)
        part.rename(path)
    return found


def flown(folder: Path | None, task: str, seed: int, seen=3, steps=500, shuffled=False, **physics):
    """Small arrays of one flight."""
    params = flight_params(task, **physics)
    name = ["flight", task, seed, seen, steps, shuffled, physics]
    return keep(folder, name, lambda: _small(flight(seed, params, seen, shuffled, steps)))
