r"""Wasserstein variational inference: a measure moved towards a likelihood-weighted one by A-GSWD.

One engine for action sequences, parameters and states. Candidates :math:`A_k` with log-likelihoods :math:`\ell_k`
carry the target measure

.. math::  \nu = \sum_k w_k \delta(A_k), \qquad w_k \propto \exp(\ell_k / T),

and q, particles or categorical probabilities, descends :math:`f(q) = \text{A-GSWD}_p^p(q, \nu)`. As f is zero at the
target, the length of a step follows from its value (Polyak 1987), whatever the scale of the space:

.. math::  q \leftarrow q - \eta\, \frac{f(q)}{\lVert \nabla f(q) \rVert^2} \nabla f(q),

with :math:`\eta` the degree at which f vanishes there. Probabilities enter f convexly; particles do not, and a step of
theirs that does not lower f is taken back and shortened.

With KL in place of A-GSWD q is the target itself: its categorical marginals, or candidates drawn by weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from awavo.transport import adaptive_gswd
from awavo.transport.ascent import ascend_slices
from awavo.transport.defining import Defining
from awavo.transport.staircase import power_cost

__all__ = [
    "Posterior", "categorical_gswd", "effective_sample_size", "infer", "move_particles", "move_probabilities",
    "resample", "tempered_weights",
]  # fmt: skip

# Log of the temperature in standard deviations of the log-likelihood: 32^4 steps between the ends.
_LOG_TEMPERATURES = (-30.0, 8.0)
_GRID = 32
_ROUNDS = 4
# Candidates that an inference keeps at most; how far a step of its slices' ascent goes.
MAX_POOL = 4096
ASCENT_STEP = 0.3


class Posterior(NamedTuple):
    """Particles of equal weight, and how they came about."""

    particles: Float[Array, "P D"]
    effective_size: Float[Array, ""]
    temperature: Float[Array, ""]
    distance: Float[Array, ""]


def effective_sample_size(weights: Float[Array, "*n K"]) -> Float[Array, "*n"]:
    """Return 1 / sum of squares: K for uniform weights, 1 for a single one."""
    return 1.0 / jnp.sum(weights**2, -1)


def tempered_weights(
    log_likelihood: Float[Array, " K"], target_size: float | Array, minimum: float = 0.0
) -> tuple[Float[Array, " K"], Float[Array, ""]]:
    """Return weights of effective size `target_size`, and their temperature, which is at least `minimum`.

    The effective size grows with the temperature: each of a few rounds looks at a row of temperatures at once and goes
    on between the two that enclose it. Equal likelihoods give equal weights.
    """
    centred = log_likelihood - jnp.max(log_likelihood)
    spread = jnp.maximum(jnp.std(centred), 1e-12)
    low, high = jnp.asarray(_LOG_TEMPERATURES[0], centred.dtype), jnp.asarray(_LOG_TEMPERATURES[1], centred.dtype)
    shares = jnp.linspace(0.0, 1.0, _GRID + 1)
    for _ in range(_ROUNDS):
        row = low + (high - low) * shares
        sizes = effective_sample_size(jax.nn.softmax(centred / (spread * jnp.exp(row[:, None])), -1))
        large = jnp.argmax((sizes >= target_size).at[-1].set(True))
        low, high = row[jnp.maximum(large - 1, 0)], row[large]
    temperature = jnp.maximum(spread * jnp.exp(high), minimum)
    return jax.nn.softmax(centred / temperature), temperature


def _descend(
    value_and_grad: Callable[[Array], tuple[Array, Array]],
    project: Callable[[Array], Array],
    start: Float[Array, "rows ..."],
    num_steps: int,
    power: float,
    convex: bool,
) -> tuple[Array, Array]:
    """Polyak steps, one length for each row.

    Where f is convex each brings q nearer to the target even if f rises (it has kinks); otherwise a step that does not
    lower a row's value is taken back and shortened.
    """
    value, grad = value_and_grad(start)
    axes = tuple(range(value.ndim, start.ndim))

    def wide(x: Array) -> Array:
        return x.reshape(x.shape + (1,) * len(axes))

    def step(carry: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        x, value, grad, share = carry
        length = jnp.sum(grad**2, axes)
        # f / |grad f|^2: the step that would reach zero if f were linear; `share` is what experience leaves of it.
        pace = share * power * value / jnp.where(length > 1e-20, length, jnp.inf)
        trial = project(x - wide(pace) * grad)
        trial_value, trial_grad = value_and_grad(trial)
        better = (trial_value < value) | convex
        x, grad = (jnp.where(wide(better), new, old) for new, old in ((trial, x), (trial_grad, grad)))
        share = jnp.where(better, jnp.minimum(2 * share, 1.0), 0.3 * share)
        return (x, jnp.where(better, trial_value, value), grad, share), None

    last, _ = jax.lax.scan(step, (start, value, grad, jnp.ones_like(value)), None, length=num_steps)
    return last[0], last[1]


def move_particles(
    particles: Float[Array, "P D"],
    candidates: Float[Array, "K N"],
    weights: Float[Array, " K"],
    slices: Float[Array, "L c"],
    *,
    defining: Defining,
    order: float = 2,
    num_steps: int = 3,
    forward: Callable[[Float[Array, "P D"]], Float[Array, "P N"]] = lambda x: x,
) -> tuple[Float[Array, "P D"], Float[Array, ""]]:
    """Descend A-GSWD from the particles to the weighted candidates; return them and the distance left (to the p).

    Particles seen through a model are compared as `forward(x)`; where that lies on a manifold of fewer dimensions than
    the candidates' space, use its tangent slices (`projection`), as others overstate the spread.
    """
    candidates, weights = jax.lax.stop_gradient((candidates, weights))

    def distance(x):
        return adaptive_gswd(forward(x), candidates, slices, y_weights=weights, defining=defining, order=order)

    return _descend(jax.value_and_grad(distance), lambda x: x, particles, num_steps, power=order, convex=False)


def categorical_gswd(
    probabilities: Float[Array, "*batch A"],
    target: Float[Array, "*batch A"],
    slices: Float[Array, "*batch L c"],
    *,
    defining: Defining,
    order: float = 2,
) -> Float[Array, "*batch"]:
    r"""A-GSWD^p between two distributions on the same A one-hot vectors, each pair with its own slices.

    With the atoms sorted along a slice and cumulated F and G, the monotone coupling of so few atoms is written down,
    :math:`\gamma_{ij} = (\min(F_i, G_j) - \max(F_{i-1}, G_{j-1}))_+`, faster than the general staircase.
    """
    num = probabilities.shape[-1]
    features = defining.features(jnp.eye(num, dtype=probabilities.dtype))
    flat = slices.reshape(-1, slices.shape[-1])
    points = defining.project(features, flat).reshape(*slices.shape[:-1], num)
    # The order of the atoms along a slice carries no gradient, their places do.
    place = jnp.argsort(jax.lax.stop_gradient(points), -1)
    points = jnp.take_along_axis(points, place, -1)

    def levels(p):
        ordered = jnp.take_along_axis(jnp.broadcast_to(p[..., None, :], points.shape), place, -1)
        inner = jnp.cumsum(ordered, -1)[..., :-1]
        ends = [jnp.zeros_like(inner[..., :1]), inner, jnp.ones_like(inner[..., :1])]
        full = jnp.concatenate(ends, -1)
        return full[..., :-1], full[..., 1:]

    (f_low, f_high), (g_low, g_high) = levels(probabilities), levels(target)
    top = jnp.minimum(f_high[..., :, None], g_high[..., None, :])
    bottom = jnp.maximum(f_low[..., :, None], g_low[..., None, :])
    costs = power_cost(points[..., :, None] - points[..., None, :], order)
    return jnp.mean(jnp.sum(jnp.maximum(top - bottom, 0.0) * costs, (-2, -1)), -1)


def move_probabilities(
    probabilities: Float[Array, "N A"],
    target: Float[Array, "N A"],
    slices: Float[Array, "L c"],
    *,
    defining: Defining,
    order: float = 2,
    num_steps: int = 3,
) -> tuple[Float[Array, "N A"], Float[Array, " N"]]:
    """Descend A-GSWD in the probabilities of N independent categorical distributions, which stay on the simplex."""
    target = jax.lax.stop_gradient(target)
    rows = jnp.broadcast_to(jax.lax.stop_gradient(slices), (probabilities.shape[0], *slices.shape))

    def distance(p):
        values = categorical_gswd(p, target, rows, defining=defining, order=order)
        return jnp.sum(values), values

    def rise(p):
        (_, values), grad = jax.value_and_grad(distance, has_aux=True)(p)
        # Along the simplex: adding the same to all probabilities changes nothing.
        return values, grad - jnp.mean(grad, -1, keepdims=True)

    def project(p):
        p = jnp.maximum(p, 1e-9)
        return p / jnp.sum(p, -1, keepdims=True)

    # Moving mass costs in proportion to it, whatever the order: f is homogeneous of degree 1 around the target.
    return _descend(rise, project, probabilities, num_steps, power=1.0, convex=True)


def infer(
    key: Array,
    log_density: Callable[[Float[Array, "P D"]], Float[Array, " P"]],
    particles: Float[Array, "P D"],
    *,
    slices: Callable[[Array], Float[Array, "L c"]],
    defining: Defining,
    jitter: float = 0.5,
    num_rounds: int = 20,
    target_share: float = 0.3,
    order: float = 2,
    num_steps: int = 5,
    num_ascents: int = 0,
    per_particle: int = 4,
    memory: int | None = None,
) -> Posterior:
    """Infer a posterior from draws of the prior: parameters of a model, states, anything with a density.

    Each round draws candidates from a kernel estimate of q, half of them as wide as `jitter` standard deviations of all
    particles and half as wide as those near each particle, so that narrow modes far apart are reached. They join those
    of the last `memory` rounds; all are weighed by `log_density`, which need not be normalised, over the density of all
    the estimates they came from: what a round says of the mass of a mode is not forgotten in the next, and q does not
    drift out of one. The weights are tempered to an effective share of `target_share` until that holds by itself; from
    then on they are those of importance sampling and the target is the posterior. q starts at resampled candidates and
    descends A-GSWD to all of them along `slices(key)`, ascended `num_ascents` steps; 0 of `num_steps` is resampling.
    """
    num, dim = particles.shape
    drawn = per_particle * num
    memory = max(1, min(num_rounds, MAX_POOL // drawn)) if memory is None else memory

    def propose(key: Array, x: Float[Array, "P D"]) -> tuple[Array, Array, Array]:
        """Candidates, and the centres and widths of the Gaussians they came from."""
        centres = jnp.concatenate([x, x])
        widths = jnp.concatenate([jnp.broadcast_to(jitter * (jnp.std(x, 0) + 1e-9), x.shape), _near_widths(x)])
        rows = jnp.arange(drawn) % (2 * num)
        return centres[rows] + widths[rows] * jax.random.normal(key, (drawn, dim)), centres, widths

    def one_round(carry: tuple[Array, ...], inputs: tuple[Array, Array]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        x, *kept = carry
        number, key = inputs
        noise_key, slice_key, start_key = jax.random.split(key, 3)
        new = propose(noise_key, x)
        place = number % memory
        fresh = (new[0], log_density(new[0]), *new[1:])
        kept = [ring.at[place].set(row) for ring, row in zip(kept, fresh, strict=True)]
        candidates, density, centres, widths = (ring.reshape(-1, *ring.shape[2:]) for ring in kept)
        gaps = jnp.sum(((candidates[:, None] - centres) / widths) ** 2, -1)
        log_proposal = jax.nn.logsumexp(-0.5 * gaps - jnp.sum(jnp.log(widths), -1), -1)
        weights, temperature = tempered_weights(density - log_proposal, target_share * drawn, minimum=1.0)
        moved, distance = candidates[resample(start_key, weights, num)], jnp.zeros(())
        if num_steps:
            lines = slices(slice_key)
            if num_ascents:
                lines = ascend_slices(
                    moved, candidates, lines, y_weights=weights, defining=defining, order=order, num_steps=num_ascents,
                    step=ASCENT_STEP,
                )  # fmt: skip
            moved, distance = move_particles(
                moved, candidates, weights, lines, defining=defining, order=order, num_steps=num_steps
            )
        return (moved, *kept), (effective_sample_size(weights), temperature, distance)

    # The rings begin full, of draws around the first particles.
    first_key, key = jax.random.split(key)
    first = jax.vmap(lambda key: propose(key, particles))(jax.random.split(first_key, memory))
    start = (particles, first[0], jax.vmap(log_density)(first[0]), *first[1:])
    (moved, *_), trace = jax.lax.scan(one_round, start, (jnp.arange(num_rounds), jax.random.split(key, num_rounds)))
    return Posterior(moved, *(values[-1] for values in trace))


def _near_widths(x: Float[Array, "P D"]) -> Float[Array, "P D"]:
    """Standard deviations of the nearest eighth of the particles around each of them."""
    scale = jnp.std(x, 0) + 1e-9
    count = min(max(3, x.shape[0] // 8), x.shape[0] - 1)
    distances = jnp.sum(((x[:, None] - x) / scale) ** 2, -1)
    near = x[jnp.argsort(distances, 1)[:, : count + 1]]
    return jnp.sqrt(jnp.mean((near - x[:, None]) ** 2, 1)) + 1e-3 * scale


def resample(key: Array, weights: Float[Array, " K"], num: int) -> Int[Array, " P"]:
    """Systematic resampling: indices whose counts differ from the expected ones by less than 1."""
    points = (jnp.arange(num) + jax.random.uniform(key)) / num
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), points), weights.shape[0] - 1)
