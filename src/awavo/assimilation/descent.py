r"""Gauss-Newton for any small system: states at all times of observation and parameters together, exact in each step.

Unknowns are :math:`x_0..x_K` and :math:`\theta`; the least squares are

.. math::
    J = \lVert (x_0-\mu)/s \rVert^2 + \lVert (\theta-\bar\theta)/s_\theta \rVert^2
      + \sum_k \lVert (y_k - h(x_k, \theta))/\sigma_k \rVert^2
      + \sum_k \lVert (x_{k+1} - M_k(x_k, \theta))/q \rVert^2 .

Parameters ride along as states that do not change, so one smoother (`chain`) solves every step exactly, with q = 0 too.
The model is believed little at first and ever more (q falls with the stages), or the window of what is looked at grows;
each step is shortened until it lowers J. All scales are the system's own: q begins at what a state moves in one
interval under the prior.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.stages import Wrapped
from jaxtyping import Array, Bool, Float

from awavo.assimilation.chain import Chain, Smoothed, smooth_chain
from awavo.assimilation.krylov import krylov_solver, spread_of_draws
from awavo.assimilation.system import System, flat_flow, flat_observe, free_parameters

__all__ = ["Descent", "Found", "Observed", "Schedule", "annealing", "growing", "make_descent", "polishing"]

# Stages before the model's own noise holds, q at their end as a share of q at their begin, steps at most after them.
STAGES, TIGHT, POLISH = 24, 1e-4, 40
# Whole steps at the very end with the model's own noise, which may be none.
WHOLE = 6
SHARES = (1.0, 0.7, 0.4, 0.2, 0.1, 0.03, 0.01, 0.0)
SCALE_DRAWS = 64
# A step that lowers J by less ends the descent: noise alone changes it by far more.
ENOUGH = 1e-3
# Programs that run once are compiled unoptimised on a CPU: optimising takes far longer than running them.
CHEAP = {"xla_backend_optimization_level": "0"}


class Observed(NamedTuple):
    """The problem in numbers: times of all states, what was seen, its noise, and the priors."""

    times: Float[Array, " T"]
    value: Float[Array, "T m"]
    seen: Bool[Array, "T m"]
    noise: Float[Array, "T m"]
    prior_mean: Float[Array, " n"]
    prior_std: Float[Array, " n"]
    model_noise: Float[Array, " n"]
    theta: Float[Array, " p"]
    theta_std: Float[Array, " f"]


class Schedule(NamedTuple):
    """Model noise of each stage as a share of its first, and how many times are looked at."""

    share: Float[np.ndarray, " S"]
    horizon: Float[np.ndarray, " S"]


class Found(NamedTuple):
    """Where a descent ended: states, parameters, the least squares of observations, prior and model, and the steps."""

    x: Float[Array, "T n"]
    theta: Float[Array, " p"]
    cost: Float[Array, ""]
    steps: Array


class Descent(NamedTuple):
    """Compiled for all observations of one shape.

    `descend(observed, schedule, x, theta) -> Found`, `finish(observed, key, x, theta) -> (Smoothed, defects)`,
    `residuals(observed, x, theta) -> (seen [T, m], model [K, n], prior [n + p])` in standard deviations.
    """

    descend: Wrapped
    finish: Wrapped
    residuals: Wrapped


def annealing(num_times: int, factor: float = 1.0) -> Schedule:
    """All times from the start, the model believed ever more."""
    return Schedule(factor * np.geomspace(1.0, TIGHT, STAGES), np.full(STAGES, float(num_times)))


def growing(num_times: int) -> Schedule:
    """A model believed nearly as it is, on a window that grows."""
    ends = np.concatenate([np.linspace(min(3, num_times), num_times, STAGES - 4), np.full(4, num_times)])
    return Schedule(np.concatenate([np.full(STAGES - 4, 0.03), np.geomspace(0.03, TIGHT, 4)]), ends)


def polishing(num_times: int) -> Schedule:
    """No stage but the last: for a start that is near already."""
    return Schedule(np.full(STAGES, np.nan), np.full(STAGES, float(num_times)))


def where(condition: Array, yes: Array | float | int, no: Array | float | int) -> Array:
    """`jnp.where` of three arguments: a choice, never a tuple of places."""
    return jnp.where(condition, yes, no)


def make_descent(system: System, num_draws: int, dense: bool = True) -> Descent:
    """Build the programs; they are compiled at their first call, and kept for others of the same shape.

    Steps are solved by matrices (`chain`), or where these would be too large by conjugate gradients (`krylov`).
    """
    flow, see, free = flat_flow(system), flat_observe(system), free_parameters(system)
    num = int(np.prod(system.shape))
    conjugate = krylov_solver(flow, see, jnp.asarray(free))

    def forward(observed, x, theta):
        return jax.vmap(flow, (0, None, 0, 0))(x[:-1], theta, observed.times[:-1], observed.times[1:])

    def residuals(observed: Observed, x, theta, q):
        """Residuals of what is seen, of the model and of the priors, in standard deviations."""
        seen = jax.vmap(see, (0, None, 0))(x, theta, observed.times)
        prior = (x[0] - observed.prior_mean) / observed.prior_std
        about = (theta - observed.theta)[free] / observed.theta_std
        return (
            jnp.where(observed.seen, (observed.value - seen) / observed.noise, 0.0),
            (x[1:] - forward(observed, x, theta)) / q,
            jnp.concatenate([prior, about]),
        )

    def cost(observed, x, theta, q):
        total = sum(jnp.sum(r**2) for r in residuals(observed, x, theta, q))
        return jnp.where(jnp.isfinite(total), total, jnp.inf)

    def linearise(observed: Observed, x, theta, q) -> tuple[Chain, Array]:
        """The chain around (x, theta), parameters as further states, and what was seen less what would be."""
        size = num + len(free)

        def both(z, begin, end):
            at = theta.at[free].set(z[num:])
            return flow(z[:num], at, begin, end)

        def shown(z, time):
            at = theta.at[free].set(z[num:])
            made = see(z[:num], at, time)
            return made, made

        z = jnp.concatenate([x, jnp.broadcast_to(theta[free], (len(x), len(free)))], 1)
        step = jax.vmap(jax.jacfwd(both))(z[:-1], observed.times[:-1], observed.times[1:])
        still = jnp.broadcast_to(jnp.eye(len(free), size, num, dtype=x.dtype), (len(x) - 1, len(free), size))
        seen, made = jax.vmap(jax.jacfwd(shown, has_aux=True))(z, observed.times)
        keep = observed.seen[..., None]
        q2 = jnp.concatenate([q**2, jnp.zeros(len(free), x.dtype)])
        first = jnp.concatenate([observed.prior_std, observed.theta_std]) ** 2
        chain = Chain(
            jnp.concatenate([step, still], 1), jnp.broadcast_to(q2, (len(x) - 1, size)), where(keep, seen, 0.0),
            where(observed.seen, observed.noise**2, 1.0), first,
        )  # fmt: skip
        return chain, where(observed.seen, observed.value - made, 0.0)

    def right_hand_side(observed, x, theta):
        first = jnp.concatenate([observed.prior_mean - x[0], (observed.theta - theta)[free]])
        defect = jnp.pad(forward(observed, x, theta) - x[1:], ((0, 0), (0, len(free))))
        return first, defect

    def step(observed, x, theta, q):
        """The Gauss-Newton step of states and parameters."""
        first, defect = right_hand_side(observed, x, theta)
        if not dense:
            return conjugate(observed, x, theta, q, first, defect, surprises(observed, x, theta))
        chain, surprise = linearise(observed, x, theta, q)
        return smooth_chain(chain, first[:, None], defect[..., None], surprise[..., None], variance=False).delta[..., 0]

    def surprises(observed, x, theta):
        seen = jax.vmap(see, (0, None, 0))(x, theta, observed.times)
        return where(observed.seen, observed.value - seen, 0.0)

    def scales(observed):
        """How far states move in the first interval under the prior."""
        noise = jax.random.normal(jax.random.key(0), (SCALE_DRAWS, num), observed.times.dtype)
        x = observed.prior_mean + observed.prior_std * noise
        moved = jax.vmap(flow, (0, None, None, None))(x, observed.theta, observed.times[0], observed.times[1]) - x
        bad = ~jnp.isfinite(moved)
        limit = 2 * observed.prior_std
        square = where(bad, limit, jnp.clip(moved, -limit, limit)) ** 2
        return jnp.sqrt(jnp.mean(square, 0)) + 1e-3 * observed.prior_std

    @jax.jit
    def descend(observed: Observed, schedule: Schedule, x, theta) -> Found:
        scale = scales(observed)
        least = jnp.maximum(observed.model_noise, TIGHT * scale)
        number = jnp.arange(len(observed.times))

        def stage(i):
            """What is looked at, and the noise of the model; of the last steps it is the model's own."""
            at = jnp.minimum(i, STAGES - 1)
            final = (i >= STAGES) | jnp.isnan(schedule.share[at])
            share = where(final, 0.0, schedule.share[at])
            looked = observed.seen & (number < where(final, jnp.inf, schedule.horizon[at]))[:, None]
            return observed._replace(seen=looked), jnp.maximum(share * scale, least), final

        def advance(state):
            i, whole, x, theta, _ = state
            window, q, final = stage(i)
            own = whole > 0
            delta = step(window, x, theta, where(own, observed.model_noise, q))
            limit = jnp.concatenate([4 * observed.prior_std, 2 * observed.theta_std])
            delta = jnp.clip(jnp.nan_to_num(delta, nan=0.0), -limit, limit)
            # All lengths of the step at once; the last is none at all.
            shares = jnp.asarray(SHARES, x.dtype)

            def moved(share):
                return x + share * delta[:, :num], theta.at[free].add(share * delta[-1, num:])

            costs = jax.vmap(lambda s: cost(window, *moved(s), q))(shares)
            best = where(own & jnp.isfinite(costs[0]), 0, jnp.argmin(costs))
            x, theta = moved(shares[best])
            done = final & ((costs[-1] - costs[best] < ENOUGH) | (i >= STAGES + POLISH))
            return i + 1, where(done | own, whole + 1, 0), x, theta, costs[best]

        # A schedule without stages begins at the end.
        begin = where(jnp.isnan(schedule.share[0]), STAGES, 0)
        start = (begin, 0, x, theta, jnp.asarray(jnp.inf, x.dtype))
        end = lax.while_loop(lambda state: jnp.less_equal(state[1], WHOLE), advance, start)
        return Found(end[2], end[3], end[4], end[0])

    def by_draws(observed: Observed, key, x, theta) -> tuple[Smoothed, Array]:
        """The last step and draws around it, each solved by itself; variances are those of the draws."""
        q, (first, defect) = observed.model_noise, right_hand_side(observed, x, theta)
        spread = jnp.concatenate([observed.prior_std, observed.theta_std])
        wide = jnp.pad(q, (0, len(free)))

        def draw(key):
            noise = [jax.random.normal(k, a.shape, x.dtype) for k, a in
                     zip(jax.random.split(key, 3), (first, defect, observed.value), strict=True)]  # fmt: skip
            seen = jnp.where(observed.seen, observed.noise * noise[2], 0.0)
            return conjugate(observed, x, theta, q, spread * noise[0], wide * noise[1], seen)

        own = conjugate(observed, x, theta, q, first, defect, surprises(observed, x, theta))
        draws = lax.map(draw, jax.random.split(key, num_draws))
        variance = spread_of_draws(draws) ** 2
        last = draws[:, -1, num:]
        nothing = jnp.full((len(x), num + len(free)), jnp.nan, x.dtype)
        covariance = jnp.zeros((num + len(free),) * 2 if len(free) else (0, 0), x.dtype)
        if len(free):
            covariance = covariance.at[num:, num:].set(last.T @ last / num_draws)
        columns = jnp.concatenate([own[..., None], jnp.moveaxis(draws, 0, -1)], -1)
        return Smoothed(columns, variance, nothing[..., None], nothing, covariance), defect[:, :num]

    once = CHEAP if jax.default_backend() == "cpu" else None

    @partial(jax.jit, compiler_options=once)
    def finish(observed: Observed, key, x, theta) -> tuple[Smoothed, Array]:
        if not dense:
            return by_draws(observed, key, x, theta)
        chain, surprise = linearise(observed, x, theta, observed.model_noise)
        first, defect = right_hand_side(observed, x, theta)
        keys = jax.random.split(key, 3)
        # Draws: the noise that the data carry, smoothed like the data.
        noise = [
            jnp.sqrt(var)[..., None] * jax.random.normal(k, (*var.shape, num_draws), x.dtype)
            for k, var in zip(keys, (chain.first_var, chain.step_var, chain.seen_var), strict=True)
        ]
        columns = [
            jnp.concatenate([own[..., None], drawn], -1)
            for own, drawn in zip((first, defect, surprise), noise, strict=True)
        ]
        columns[2] = jnp.where(observed.seen[..., None], columns[2], 0.0)
        return smooth_chain(chain, columns[0], columns[1], columns[2]), defect[:, :num]

    @partial(jax.jit, compiler_options=once)
    def measure(observed: Observed, x, theta):
        return residuals(observed, x, theta, jnp.where(observed.model_noise > 0, observed.model_noise, jnp.inf))

    return Descent(descend, finish, measure)
