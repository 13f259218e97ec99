r"""Lorenz-96: a ring of sites whose neighbours push and damp each other, the usual proving ground of data assimilation.

.. math::  \dot x_i = (x_{i+1} - x_{i-2})\, x_{i-1} - x_i + F, \qquad i = 1..I \text{ on a ring}, \quad F = 8.

Not a task to act in: states of it are inferred. `twin_experiment` makes a truth on the attractor and noisy observations
of some of its components; a third of them is never seen (Appendix E.5 of the paper, after Gorbach et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from awavo.errors import InputError
from awavo.types import Fields

__all__ = [
    "REGIMES", "Regime", "TIME_STEP", "Twin", "lorenz96_flow", "lorenz96_system", "twin_experiment",
]  # fmt: skip

# Mean and standard deviation of a site over a long time, at F = 8.
CLIMATE_MEAN, CLIMATE_STD = 2.34, 3.64
TIME_STEP = 0.025
SPIN_UP = 800  # steps from near the fixed point x = F to the attractor


class Regime(NamedTuple):
    """Standard deviation of the observations' noise, model steps between them, and how many times are observed."""

    noise: float
    steps: int
    num_times: int


REGIMES = {"G": Regime(1.0, 5, 32), "D": Regime(0.1**0.5, 4, 40)}


class Twin(NamedTuple):
    """A truth and what was seen of it: `truth[k]` at time k, `observed[k]` at time k + 1, NaN where nothing was."""

    truth: Float[np.ndarray, "T I"]
    observed: Float[np.ndarray, "K I"]
    seen: Bool[np.ndarray, " I"]


def _tendency(x: Float[Array, "... J"], forcing: Float[Array, ""] | float) -> Float[Array, "... J-3"]:
    """The right-hand side at all but the first two sites and the last one."""
    return (x[..., 3:] - x[..., :-3]) * x[..., 1:-2] - x[..., 2:-1] + forcing


@lru_cache(maxsize=64)
def lorenz96_flow(num_steps: int, time_step: float = TIME_STEP) -> Callable[[Array, Array], Array]:
    """Return `flow(x, theta)`: `num_steps` steps of RK4 with forcing `theta[0]`.

    The ring is opened once a step: a halo of 8 and 4 sites shrinks by 2 and 1 with each of the four stages. The same
    arguments give the same function, for which programs are kept.
    """

    def flow(x: Float[Array, "... I"], theta: Float[Array, " 1"]) -> Float[Array, "... I"]:
        def stage(x, slope, scale):
            return lax.optimization_barrier(x[..., 2:-1] + scale * slope)

        def step(x, _):
            wide = jnp.concatenate([x[..., -8:], x, x[..., :4]], -1)
            k1 = _tendency(wide, theta[0])
            k2 = _tendency(stage(wide, k1, time_step / 2), theta[0])
            k3 = _tendency(stage(wide[..., 2:-1], k2, time_step / 2), theta[0])
            k4 = _tendency(stage(wide[..., 4:-2], k3, time_step), theta[0])
            slopes = k1[..., 6:-3] + 2 * k2[..., 4:-2] + 2 * k3[..., 2:-1] + k4
            return lax.optimization_barrier(x + time_step / 6 * slopes), None

        return lax.scan(step, x, None, length=num_steps)[0]

    return flow


def lorenz96_system(num_states: int, steps: int = 5, forcing: float = 8.0) -> Fields:
    """The fields of an `assimilation.System`: the flow, a coarse one for Jacobians, reach and climate.

    Two RK4 steps instead of five change an entry of the Jacobian by at most 0.02 (typically 5e-4) and cost less than
    half. A site is felt 5 sites before and 10 after it.
    """
    return dict(
        shape=(num_states,), flow=lorenz96_flow(steps), theta=np.array([forcing]), prior_mean=CLIMATE_MEAN,
        prior_std=CLIMATE_STD, coarse=lorenz96_flow(2, steps * TIME_STEP / 2), reach=((5, 10),), layout="ring",
    )  # fmt: skip


def twin_experiment(
    num_states: int, *, regime: str = "G", unobserved: float = 1 / 3, seed: int = 0, forcing: float = 8.0
) -> Twin:
    """Draw a truth on the attractor and its observations; floor(I * unobserved) components are never seen."""
    if num_states < 16:
        raise InputError(f"--states {num_states} is below 16: the ring needs more sites than its flow reaches.")
    if not 0 <= unobserved < 1:
        raise InputError(f"--unobserved {unobserved:g} is not in [0, 1).")
    if regime not in REGIMES:
        raise InputError(f"regime '{regime}' is not one of {', '.join(REGIMES)}.")
    noise, steps, num_times = REGIMES[regime]
    rng = np.random.default_rng(seed)
    start = 8.0 + rng.standard_normal(num_states)
    hidden = rng.choice(num_states, int(num_states * unobserved + 1e-9), replace=False)
    with jax.enable_x64(True):
        theta = jnp.asarray([forcing])
        start = lorenz96_flow(SPIN_UP)(jnp.asarray(start), theta)
        between = lorenz96_flow(steps)

        def advance(x, _):
            x = between(x, theta)
            return x, x

        later = lax.scan(advance, start, None, length=num_times)[1]
        truth = np.concatenate([np.asarray(start)[None], np.asarray(later)])
    observed = truth[1:] + noise * rng.standard_normal((num_times, num_states))
    observed[:, hidden] = np.nan
    seen = np.ones(num_states, bool)
    seen[hidden] = False
    return Twin(truth, observed, seen)
