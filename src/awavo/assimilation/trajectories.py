r"""Trajectories of a local dynamical system, projected on noise-augmented data by Gauss-Newton steps on patches.

The control is :math:`X = (x_0..x_K)`, the states at the times of observation, and perhaps parameters. The forward map

.. math::  G(X, \theta) = \big((x_0 - \mu)/s,\ H x_k/\sigma,\ (x_{k+1} - M_\theta(x_k))/q \big)

is projected on by `projection.project`; the step comes from here. Its linear system is a smoothing problem: solved
exactly on a short ring, else on overlapping patches of which each decides its core, with the rest held where it is.
What a patch's sites do to the model's steps just outside it is left out of such a solution, so that patches alone end
beside the minimum: where two meet, sites misfit. *Joined* steps put it back (`_Outside`): its gradient as a force, its
stiffness, in part, as a weight. They have the minimum itself as their fixed point, and are for the end, as they
converge more slowly.

Parameters enter through the multipliers :math:`\lambda` of the steps. With the derivatives
:math:`B_k = \partial M_\theta(x_k)/\partial\theta` as further right-hand sides, X responds by S and the
multipliers by :math:`\lambda'`, so that with the prior :math:`N(\bar\theta, P)`

.. math::  A = P^{-1} - \sum_k B_k^\top \lambda'_{k+1}, \qquad
           \delta\theta = A^{-1} \big( P^{-1} (\bar\theta - \theta) + \sum_k B_k^\top \lambda_{k+1} \big), \qquad
           \delta X = \delta X_0 + S\, \delta\theta,

A is the information about :math:`\theta` and its inverse the covariance.

Where the squared residuals of a patch exceed `tolerated` times its observations, q^2 is raised by as much: a region in
a wrong mode then neither throws its neighbours off nor claims to be sure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from awavo.assimilation.lattice import Lattice
from awavo.assimilation.smoother import filter_chains, smooth_chains, smoothed_variance

__all__ = ["Data", "Flow", "Step", "index_table", "jacobian_entries", "site_cost", "tangent_step", "tangents"]

Flow = Callable[[Array, Array], Array]
TOLERATED = 1.5  # squared residuals per observation up to which a patch keeps the model's own noise
# Share of what bounds the stiffness of the steps outside a patch that its sites are held by in joined steps: with more
# they converge slowly, and with all of it some regions swing; without any they diverge.
HELD = 0.1


class Data(NamedTuple):
    """A prior at time 0, observations at the later times, the variance q^2 allowed to the model, a prior of theta."""

    prior_mean: Float[Array, " I"]
    prior_var: Float[Array, " I"]
    value: Float[Array, "K I"]
    weight: Float[Array, "K I"]
    noise: Float[Array, "K I"]
    theta: Float[Array | np.ndarray, " p"] = np.zeros(0)
    theta_std: Float[Array | np.ndarray, " p"] = np.zeros(0)


class Step(NamedTuple):
    """Moves of X and theta, and the posterior at this linearisation where asked for.

    That is variances of X, the covariance of theta, and draws of both around it.
    """

    move: Float[Array, "T I"]
    theta: Float[Array, " p"]
    variance: Float[Array, "T I"]
    theta_cov: Float[Array, "p p"]
    draws: Float[Array, "r T I"]
    theta_draws: Float[Array, "r p"]


def index_table(values: Array | np.ndarray) -> Array:
    """An index table that the compiler does not try to compute with: for a million sites that takes it minutes."""
    return lax.optimization_barrier(jnp.asarray(values, jnp.int32))


def jacobian_entries(lattice: Lattice, sites: Int[Array, "P n"]) -> Int[Array, "P n n"]:
    """Where the Jacobian of patches stands in the flattened tangents.

    J[r, c] is the tangent of c's colour at site r, where c reaches r (`within`): others of that colour do not.
    """
    num = int(np.prod(lattice.shape))
    return index_table(lattice.colour)[sites][:, None, :] * num + sites[:, :, None]


def _mapped(lattice: Lattice, flow: Flow) -> Flow:
    return lambda x, theta: flow(x.reshape(x.shape[0], *lattice.shape), theta).reshape(x.shape)


def tangents(
    lattice: Lattice, flow: Flow, x: Float[Array, "K I"], theta: Array
) -> tuple[Float[Array, "K I"], Float[Array, "K colours I"]]:
    """M(x) and its tangents along the probes, one for each colour."""
    probes = (jnp.arange(lattice.num_colours)[:, None] == index_table(lattice.colour)).astype(x.dtype)
    mapped = _mapped(lattice, flow)

    def push(probe):
        return jax.jvp(lambda x: mapped(x, theta), (x,), (jnp.broadcast_to(probe, x.shape),))

    return jax.vmap(push, out_axes=(None, 1))(probes)


def site_cost(lattice: Lattice, flow: Flow, x: Float[Array, "T I"], theta: Array, data: Data) -> Float[Array, "T I"]:
    """Squared residuals of every time and site; half their sum is the objective."""
    prior = (x[0] - data.prior_mean) ** 2 / data.prior_var
    model = (x[1:] - _mapped(lattice, flow)(x[:-1], theta)) ** 2 / data.noise
    return jnp.concatenate([prior[None], data.weight * (x[1:] - data.value) ** 2 + model])


def tangent_step(
    lattice: Lattice,
    flow: Flow,
    x: Float[Array, "T I"],
    theta: Float[Array, " p"],
    data: Data,
    *,
    coarse: Flow | None = None,
    infer_theta: bool = False,
    variance: bool = False,
    key: Array | None = None,
    num_draws: int = 0,
    groups: int = 1,
    tolerated: float = TOLERATED,
    joined: Float[Array, ""] | None = None,
) -> Step:
    """One Gauss-Newton step of X, and of theta, which has the prior of `data`, with `infer_theta`.

    `coarse` is a cheaper map for the Jacobian alone. `groups` solves the patches a group at a time to save memory.
    `joined` is 1 for a joined step and 0 for one of patches alone, as None is, which spares the work.
    """
    # TF32 products lose the covariances of a long chain: full precision on every device.
    with jax.default_matmul_precision("highest"):
        return _tangent_step(
            lattice, flow, x, theta, data, coarse or flow, infer_theta, variance, key, num_draws, groups, tolerated,
            joined,
        )  # fmt: skip


class _Outside(NamedTuple):
    """What the model's steps at all sites do to each, and what makes their part within a patch; zero unless joined."""

    gradient: Float[Array, "K I"]
    stiffness: Float[Array, "K I"]  # a bound on it by sums of magnitudes
    defect: Float[Array, "K I"]  # over the variance of the model, and so the rows
    row: Float[Array, "K I"]  # sums of the Jacobian's magnitudes


def _outside(lattice: Lattice, flat: Float[Array, "K c"], defect: Array, precision: Array) -> _Outside:
    num = int(np.prod(lattice.shape))
    numbers, colour = index_table(np.arange(num)).reshape(lattice.shape), index_table(lattice.colour)
    sums = jnp.sum(jnp.abs(flat.reshape(len(flat), -1, num)), 1)
    shifts = np.meshgrid(*(np.arange(-before, after + 1) for before, after in lattice.reach), indexing="ij")
    shifts = index_table(np.stack([a.ravel() for a in shifts], 1))
    scaled, row = defect * precision, sums * precision

    def one(i, total):
        # Where each site is felt that far away: J[site + shift, site].
        felt = jnp.roll(numbers, -shifts[i], tuple(range(len(lattice.shape)))).reshape(-1)
        entry = flat[:, colour * num + felt]
        return total[0] + entry * scaled[:, felt], total[1] + jnp.abs(entry) * row[:, felt]

    gradient, stiffness = lax.fori_loop(0, len(shifts), one, (jnp.zeros_like(row), jnp.zeros_like(row)))
    return _Outside(gradient, stiffness, scaled, row)


def _tangent_step(
    lattice, flow, x, theta, data, coarse, infer_theta, variance, key, num_draws, groups, tolerated, joined
) -> Step:
    # Without parameters to infer, theta has no columns.
    num_theta = theta.shape[0] if infer_theta else 0
    _, probe = tangents(lattice, coarse, x[:-1], theta)
    flat = lax.optimization_barrier(probe.reshape(probe.shape[0], -1))
    weight = jnp.concatenate([jnp.zeros_like(x[:1]), data.weight])
    misfit = jnp.sum(site_cost(lattice, flow, x, theta, data), 0)
    count = jnp.sum(data.weight > 0, 0)
    starts, defects, residuals = _right_hand_sides(lattice, flow, x, theta, data, num_theta, key, num_draws)
    within = jnp.asarray(lattice.within, x.dtype)
    outside = None if joined is None else _outside(lattice, flat, defects[..., 0], joined / data.noise)

    def solve(sites):
        jacobian = lax.optimization_barrier(flat[:, jacobian_entries(lattice, sites)] * within)
        weights = weight[:, sites]
        initial = data.prior_var[sites][:, :, None] * jnp.eye(sites.shape[1], dtype=x.dtype)
        # A patch in a wrong mode gets a looser model, by as much as it misfits.
        ratio = jnp.sum(misfit[sites], 1) / jnp.maximum(jnp.sum(count[sites], 1), 1)
        noise = data.noise[:, sites] * jnp.maximum(ratio / tolerated, 1.0)[:, None]
        push = weights[..., None] * residuals[:, sites]
        if outside is not None:
            here = _Outside(*(a[:, sites] for a in outside))
            force = jnp.einsum("kbij,kbi->kbj", jacobian, here.defect) - here.gradient
            stiff = here.stiffness - jnp.einsum("kbij,kbi->kbj", jnp.abs(jacobian), here.row)
            push = push.at[:-1, ..., 0].add(force)
            weights = weights.at[:-1].add(HELD * jnp.maximum(stiff, 0.0))
        covariance = filter_chains(jacobian, initial, noise, weights)
        delta, multiplier = smooth_chains(jacobian, covariance, starts[sites], defects[:, sites], weights, push)
        spread = smoothed_variance(jacobian, covariance, weights) if variance else weights[:0]
        return delta, multiplier[..., : 0 if not num_theta else None], spread

    sites = index_table(lattice.patch_site)
    if groups > 1:
        parts = lax.map(solve, sites.reshape(groups, -1, sites.shape[1]))
        parts = [jnp.moveaxis(a, 0, 1).reshape(a.shape[1], len(sites), *a.shape[3:]) for a in parts]
    else:
        parts = solve(sites)
    home = index_table(lattice.home)  # each site's place in the core of its own patch
    delta, multiplier, spread = (a.reshape(a.shape[0], sites.size, *a.shape[3:])[:, home] for a in parts)
    about = _about_theta(theta, data, key, num_draws) if num_theta else None
    return _assemble(delta, multiplier, spread, defects, data.theta_std, about)


def _right_hand_sides(lattice, flow, x, theta, data, num_theta, key, num_draws):
    """Columns: the residual itself, the responses to theta, then draws of the noise that augments the data."""
    mapped = _mapped(lattice, flow)
    defects, starts = [mapped(x[:-1], theta) - x[1:]], [data.prior_mean - x[0]]
    residuals = [jnp.concatenate([jnp.zeros_like(x[:1]), data.value - x[1:]])]
    for unit in jnp.eye(theta.shape[0], dtype=theta.dtype)[:num_theta]:
        defects.append(jax.jvp(lambda t: mapped(x[:-1], t), (theta,), (unit,))[1])
        starts.append(jnp.zeros_like(x[0]))
        residuals.append(jnp.zeros_like(x))
    starts, defects, residuals = (jnp.stack(a, -1) for a in (starts, defects, residuals))
    if num_draws:
        keys = jax.random.split(key, 3)
        noise = [jax.random.normal(k, (*a.shape[:-1], num_draws), x.dtype)
                 for k, a in zip(keys, (starts, defects, residuals), strict=True)]  # fmt: skip
        noise_std = lax.rsqrt(jnp.maximum(data.weight, 1e-12))[..., None]
        noise_std = jnp.concatenate([jnp.zeros_like(noise_std[:1]), noise_std])
        starts = jnp.concatenate([starts, jnp.sqrt(data.prior_var)[:, None] * noise[0]], -1)
        defects = jnp.concatenate([defects, jnp.sqrt(data.noise)[..., None] * noise[1]], -1)
        residuals = jnp.concatenate([residuals, noise_std * noise[2]], -1)
    return starts, defects, residuals


def _about_theta(theta, data, key, num_draws):
    """What the prior says of theta, in its standard deviations: how far off the mean is, 0 for responses, draws."""
    known = data.theta_std == 0
    off = ~known * (data.theta - theta) / (data.theta_std + known)
    columns = [off[:, None], jnp.zeros((len(theta),) * 2, theta.dtype)]
    if num_draws:
        columns.append(jax.random.normal(jax.random.fold_in(key, 3), (len(theta), num_draws), theta.dtype))
    return jnp.concatenate(columns, 1)


def _assemble(delta, multiplier, spread, defects, theta_std, about) -> Step:
    """Close the system for theta and add its response to every column."""
    num_theta = 0 if about is None else len(about)
    first = 1 + num_theta
    response = delta[..., 1:first]
    if num_theta:
        # push[:, 0] is B^T lambda, the columns after it -A without its prior; all in the prior's standard deviations.
        scale = theta_std[:, None]
        push = scale * jnp.einsum("kip,kir->pr", defects[..., 1:first], multiplier)
        information = jnp.eye(num_theta, dtype=push.dtype) - push[:, 1:first] * theta_std
        covariance = scale * jnp.linalg.inv(0.5 * (information + information.T)) * theta_std
        moves = scale * jnp.linalg.solve(0.5 * (information + information.T), about + push)
        delta = delta + jnp.einsum("tip,pr->tir", response, moves)
        spread = spread + jnp.einsum("tip,pq,tiq->ti", response, covariance, response) if spread.size else spread
    else:
        covariance, moves = jnp.zeros((0, 0), delta.dtype), jnp.zeros((0, delta.shape[-1]), delta.dtype)
    draws = jnp.moveaxis(delta[..., first:], -1, 0)
    return Step(delta[..., 0], moves[:, 0], spread, covariance, draws, moves[:, first:].T)
