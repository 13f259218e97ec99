r"""Sliced Wasserstein distances: averages of one-dimensional ones over slices of the space."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from awavo.errors import InputError
from awavo.transport.average import Clouds, slice_average
from awavo.transport.checks import check_measures, check_order, check_positive, check_slices, is_known
from awavo.transport.defining import Defining, Linear, Polynomial
from awavo.transport.intervals import block_variance, check_confidence, half_width, surrogate_costs, surrogate_mean
from awavo.transport.slices import (
    block_length,
    check_sampling,
    default_sampling,
    draw_slices,
    mix_slices,
    unit_slices,
)  # fmt: skip
from awavo.types import Estimate

__all__ = ["adaptive_gswd", "generalized_sliced_wasserstein", "sliced_wasserstein"]

FirstPoints = Float[Array, "n d"] | np.ndarray
FirstWeights = Float[Array, " n"] | np.ndarray | None
SecondPoints = Float[Array, "m d"] | np.ndarray
SecondWeights = Float[Array, " m"] | np.ndarray | None
# Points and weights of both, checked.
Measures: TypeAlias = tuple[Array, Array, Array | None, Array | None]


def _clouds(x: Array, y: Array, x_weights: Array | None, y_weights: Array | None, defining: Defining) -> Clouds:
    return Clouds(defining.features(x), defining.features(y), x_weights, y_weights)


def _slicer(defining: Defining) -> Defining:
    """What acts on features: a plain linear slice wherever alpha is linear, so that compiled programs are shared."""
    return Linear() if defining.linear else defining


def sliced_wasserstein(
    x: FirstPoints,
    y: SecondPoints,
    *,
    key: Key[Array, ""] | int | None = None,
    num_slices: int = 100,
    order: float = 2,
    x_weights: FirstWeights = None,
    y_weights: SecondWeights = None,
    slices: Float[Array, "l c"] | np.ndarray | None = None,
    defining: Defining | None = None,
    sampling: str | None = None,
    control_variate: bool = False,
    confidence: float | None = 0.95,
    chunk: int | None = None,
) -> Estimate | Float[Array, ""]:
    r"""Return the sliced Wasserstein distance to the power p, with its interval, or exactly on given slices.

    .. math::

        SW_p^p(\mu, \nu) = \int W_p^p(\alpha(\cdot, \theta)_\# \mu,\ \alpha(\cdot, \theta)_\# \nu)\, d\sigma(\theta)
        \approx \frac{1}{L} \sum_{l \le L} W_p^p(\theta_l)

    The average is unbiased for the power, not for its root: take `root(estimate.value, order)` last. Axioms of a metric
    hold exactly between values on the same `slices`.

    Args:
        x: Points `[n, d]` of the first measure.
        y: Points `[m, d]` of the second one.
        key: Random key, or a seed, that draws the slices; not needed when `slices` are given.
        num_slices: Number L of slices drawn. Multiples of d suit orthogonal ones.
        order: The exponent p >= 1.
        x_weights: Weights of `x`, non-negative, of sum one; uniform when None.
        y_weights: Weights of `y`, likewise.
        slices: Rows `[L, c]` to use instead of drawn ones; the result is then a plain value.
        defining: The defining function alpha; linear when None.
        sampling: `iid`, `orthogonal` or `spiral`; None is spirals for slices of length 2 and 3, orthogonal blocks else.
        control_variate: Subtract the Gaussian surrogate (order 2 and alpha linear in theta only).
        confidence: Level of the interval; None for none, which lets the spiral use one single lattice.
        chunk: Number of slices held in memory at once; None decides by size. A chunked gradient is reverse mode only.

    Returns:
        `Estimate(value, low, high, count, method)`, or the value when `slices` are given.

    Raises:
        InputError: For unusable points, weights, slices or options.
    """
    order, defining = check_order(order), Linear() if defining is None else defining
    measures = check_measures(x, y, x_weights, y_weights)
    dim = defining.num_coefficients(measures[0].shape[1])
    chunk = None if chunk is None else check_positive("chunk", chunk)
    if slices is not None:
        if key is not None or control_variate:
            raise InputError(
                "slices were given with a key or a control variate, expected slices alone: drop the others."
            )
        slices = check_slices(slices, dim, measures[0])
        return _on_slices(measures, slices, None, defining=defining, order=order, chunk=chunk)
    if key is None:
        raise InputError("Neither key nor slices were given, expected one: pass key=jax.random.key(0).")
    if control_variate and not (order == 2 and defining.linear):
        raise InputError(
            f"control_variate needs order 2 and a defining function linear in the slice, not order {order} with "
            f"{type(defining).__name__}: set control_variate=False."
        )
    sampling = check_sampling(default_sampling(dim) if sampling is None else sampling)
    num_slices, confidence = check_positive("num_slices", num_slices), check_confidence(confidence)
    value, low, high = _estimate(
        jax.random.key(key) if isinstance(key, int | np.integer) else key, measures,
        defining=defining, dim=dim, num_slices=num_slices, order=order, sampling=sampling,
        control_variate=control_variate, confidence=confidence, chunk=chunk,
    )  # fmt: skip
    method = f"{sampling} slices{', Gaussian surrogate' if control_variate else ''}"
    if confidence is not None:
        blocks = -(-num_slices // block_length(sampling, num_slices, dim, split=True))
        method += f", {confidence:.0%} t interval over {blocks} blocks"
    return Estimate(value, low, high, num_slices, method)


# Calls outside jit run these compiled programs, one for each shape and set of options.
@partial(jax.jit, static_argnames=("defining", "order", "chunk"))
def _on_slices(
    measures: Measures, slices: Array, weights: Array | None, *, defining: Defining, order: float, chunk: int | None
) -> Float[Array, ""]:
    clouds = _clouds(*measures, defining)
    return slice_average(clouds, slices, weights, defining=_slicer(defining), order=order, chunk=chunk)[0]


@partial(
    jax.jit,
    static_argnames=(
        "defining", "dim", "num_slices", "order", "sampling", "control_variate", "confidence", "chunk",
    ),
)  # fmt: skip
def _estimate(
    key: Key[Array, ""], measures: Measures, *, defining: Defining, dim: int, num_slices: int, order: float,
    sampling: str, control_variate: bool, confidence: float | None, chunk: int | None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The mean over drawn slices and the ends of its interval."""
    clouds = _clouds(*measures, defining)
    scale, slicer = defining.coefficient_scale(measures[0].shape[1]), _slicer(defining)
    draw_key, cheap_key = jax.random.split(key)
    slices, block = draw_slices(draw_key, num_slices, dim, sampling=sampling, split=confidence is not None)
    slices = slices.astype(clouds.x.dtype)
    slices = slices if scale is None else slices * scale.astype(slices.dtype)
    # Expensive slices are averaged; the surrogate, known from many cheap ones, takes out most of their scatter.
    value, costs = slice_average(clouds, slices, None, defining=slicer, order=order, chunk=chunk)
    parts: list[tuple[Array, int]] = []
    if control_variate:
        mean, spread, freedom = surrogate_mean(cheap_key, clouds, dim, sampling, scale)
        parts.append((spread, freedom))
        cheap = surrogate_costs(clouds, slices)
        value, costs = value + mean - jnp.mean(cheap), costs - lax.stop_gradient(cheap)
    parts.append(block_variance(costs, block))
    half = lax.stop_gradient(half_width(parts, confidence))
    return value, jnp.maximum(value - half, 0), value + half


def generalized_sliced_wasserstein(
    x: FirstPoints, y: SecondPoints, *, defining: Defining | None = None, **options: Any
) -> Estimate | Float[Array, ""]:
    r"""Return GSW_p^p: `sliced_wasserstein` with cubic polynomials in place of hyperplanes by default.

    For :math:`\alpha = \langle \theta, \phi(x) \rangle` it is :math:`SW_p^p(\phi_\# \mu, \phi_\# \nu)`, so a metric if
    and only if phi is injective. Polynomial coefficients follow the Kostlan distribution, which makes the distance
    invariant under rotations of the space. `options` as in `sliced_wasserstein`.
    """
    return sliced_wasserstein(x, y, defining=Polynomial() if defining is None else defining, **options)


def adaptive_gswd(
    x: FirstPoints,
    y: SecondPoints,
    slices: Float[Array, "l c"] | np.ndarray,
    *,
    order: float = 2,
    x_weights: FirstWeights = None,
    y_weights: SecondWeights = None,
    defining: Defining | None = None,
    epsilon: float | Float[Array, ""] = 0.0,
    full_support: Float[Array, "k c"] | np.ndarray | None = None,
    learn_slices: bool = False,
    chunk: int | None = None,
) -> Float[Array, ""]:
    r"""Return A-GSWD_p^p: the generalised sliced distance on slices handed in, as by a network for a state s.

    .. math::

        D_s^p(\mu, \nu) = \frac{1 - \epsilon}{L} \sum_l W_p^p\big(\theta_l(s)\big)
                        + \frac{\epsilon}{K} \sum_k W_p^p(\zeta_k)

    Slices may depend on the state but never on the measures: then D_s is a pseudo-metric for each s, and with
    :math:`\epsilon > 0` and `full_support` slices zeta of full support a metric in the limit of many. Slices are scaled
    to unit length. Minimising a distance over its slices makes them blind, so no gradient reaches them unless
    `learn_slices` is set, for ascent.

    `slices` are rows `[L, c]` with c = `defining.num_coefficients(d)`, and `full_support` rows `[K, c]`, fixed in
    advance, needed where `epsilon`, their share, is positive. The defining function is a cubic polynomial when None;
    the other arguments are as in `sliced_wasserstein`. Returns D_s^p; its p-th root is the distance.
    """
    order, defining = check_order(order), Polynomial() if defining is None else defining
    measures = check_measures(x, y, x_weights, y_weights)
    dim = defining.num_coefficients(measures[0].shape[1])
    slices = unit_slices(check_slices(slices, dim, measures[0]))
    slices = slices if learn_slices else lax.stop_gradient(slices)
    if is_known(epsilon) and not 0 <= float(epsilon) <= 1:
        raise InputError(f"epsilon is {epsilon}, expected a share between 0 and 1: take 0.1.")
    weights = None
    if full_support is not None:
        slices, weights = mix_slices(slices, check_slices(full_support, dim, measures[0]), epsilon)
    elif not is_known(epsilon) or float(epsilon) > 0:
        raise InputError(
            "epsilon is positive without full_support, expected slices to mix in: pass orthogonal_slices(...)."
        )
    chunk = None if chunk is None else check_positive("chunk", chunk)
    return _on_slices(measures, slices, weights, defining=defining, order=order, chunk=chunk)
