r"""Sliced Wasserstein distances: averages of one-dimensional ones over slices of the space."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from awavo.errors import InputError, did_you_mean
from awavo.transport import line
from awavo.transport.checks import (
    check_measures,
    check_order,
    check_positive,
    check_slices,
    is_known,
    one_of,
)
from awavo.transport.defining import Defining, Linear, Polynomial
from awavo.transport.host import fits_host, host_average, host_mean, host_slice_costs
from awavo.transport.intervals import block_variance, check_confidence, half_width
from awavo.transport.programs import Drawing, Measures, as_key, drawn_on_host, estimate, on_host, on_slices
from awavo.transport.slices import block_length, check_sampling, default_sampling, is_circle, mix_slices, unit_slices
from awavo.types import Estimate

__all__ = ["adaptive_gswd", "generalized_sliced_wasserstein", "sliced_wasserstein"]

FirstPoints = Float[Array, "*batch n d"] | np.ndarray | list
FirstWeights = Float[Array, "*#batch n"] | np.ndarray | list | None
SecondPoints = Float[Array, "*batch m d"] | np.ndarray | list
SecondWeights = Float[Array, "*#batch m"] | np.ndarray | list | None
_TARGETS = ("sample", "population")


def sliced_wasserstein(
    x: FirstPoints,
    y: SecondPoints,
    a: FirstWeights = None,
    b: SecondWeights = None,
    n_projections: int | None = None,
    *,
    key: Key[Array, ""] | int | np.integer | None = None,
    num_slices: int | None = None,
    order: float | None = None,
    x_weights: FirstWeights = None,
    y_weights: SecondWeights = None,
    slices: Float[Array, "l c"] | np.ndarray | None = None,
    defining: Defining | None = None,
    sampling: str | None = None,
    control_variate: bool = False,
    confidence: float | None = 0.95,
    target: str = "sample",
    root: bool = False,
    chunk: int | None = None,
    p: float | None = None,
    seed: int | np.integer | None = None,
    projections: Float[Array, "c l"] | np.ndarray | None = None,
) -> Estimate:
    r"""Return the sliced Wasserstein distance to the power p, with its interval.

    .. math::

        SW_p^p(\mu, \nu) = \int W_p^p(\alpha(\cdot, \theta)_\# \mu,\ \alpha(\cdot, \theta)_\# \nu)\, d\sigma(\theta)
        \approx \frac{1}{L} \sum_{l \le L} W_p^p(\theta_l)

    The average is unbiased for the power, not for its root: take the root last, by `root=True` or `root(estimate)`.
    Axioms of a metric hold exactly between values on the same `slices`.

    The result is always an `Estimate`, which counts as its value in arithmetic; differentiate its `.value`. Outside jit
    and on a CPU known arrays are computed by NumPy, and `float64` stays so; elsewhere jax's own precision holds, and
    what it narrows is warned of.

    Args:
        x: Points `[n, d]` of the first measure, or `[..., n, d]`: a batch of problems on the same slices.
        y: Points `[m, d]` of the second one, with the same batch axes.
        a: `x_weights`, as POT calls them.
        b: `y_weights`, likewise.
        n_projections: `num_slices`, likewise.
        key: Random key, or a seed, that draws the slices; not needed when `slices` are given.
        num_slices: Number L of slices drawn, 100 when None. Multiples of d, and at least 4 d, suit orthogonal ones.
        order: The exponent p >= 1; 2 when None.
        x_weights: Weights of `x`, non-negative, of sum one; uniform when None.
        y_weights: Weights of `y`, likewise.
        slices: Rows `[L, c]` to use instead of drawn ones. They must be of length one where they are directions;
            coefficients of polynomials are taken as they are. Lengths are not checked under jit.
        defining: The defining function alpha; linear when None.
        sampling: `iid`, `orthogonal` or `spiral`; None is spirals for slices of length 2 and 3, orthogonal blocks else.
        control_variate: Subtract the Gaussian surrogate (order 2 and alpha linear in theta only).
        confidence: Level of the interval; None for none, which lets orthogonal blocks and the spiral be whole.
        target: What the interval is for. `sample`: the distance between these points over all slices. `population`: the
            distance between what they were drawn from, over all points and slices; the value is then debiased.
        root: Return the distance SW_p and the roots of the ends, in place of the power SW_p^p.
        chunk: Number of slices held in memory at once; None decides by size. A chunked gradient is reverse mode only.
        p: `order`, as POT calls it.
        seed: `key`, likewise.
        projections: Columns `[c, L]`, likewise: the transpose of `slices`.

    Returns:
        `Estimate(value, low, high, count, method)`, with the batch's shape. On given slices and for the sample the
        value is exact, and both ends are equal to it.

    Raises:
        InputError: For unusable points, weights, slices or options.
    """
    x_weights, y_weights = one_of(None, x_weights=x_weights, a=a), one_of(None, y_weights=y_weights, b=b)
    num_slices = check_positive("num_slices", one_of(100, num_slices=num_slices, n_projections=n_projections))
    order, key = check_order(one_of(2, order=order, p=p)), one_of(None, key=key, seed=seed)
    if projections is not None:
        columns = projections if hasattr(projections, "T") else np.asarray(projections)
        slices = one_of(None, slices=slices, projections=columns.T)
    defining = Linear() if defining is None else defining
    host = fits_host(x, y, x_weights, y_weights, slices, key) and target == "sample" and not control_variate
    measures: Measures = check_measures(x, y, x_weights, y_weights, host=host, batch=True)
    dim = defining.num_coefficients(measures[0].shape[-1])
    chunk = None if chunk is None else check_positive("chunk", chunk)
    confidence, population = check_confidence(confidence), _check_target(target, measures)
    if slices is not None:
        if key is not None or control_variate:
            raise InputError(
                "slices were given with a key or a control variate, expected slices alone: drop the others."
            )
        unit = defining.coefficient_scale(measures[0].shape[-1]) is None
        rows = check_slices(slices, dim, measures[0], unit=unit)
        found = _on_given(measures, rows, defining, order, chunk, population, confidence)
    elif key is None:
        raise InputError("Neither key nor slices were given, expected one: pass key=jax.random.key(0), or seed=0.")
    else:
        sampling = check_sampling(default_sampling(dim) if sampling is None else sampling)
        drawing = Drawing(num_slices, dim, sampling, confidence is not None)
        found = _on_drawn(key, measures, drawing, defining, order, control_variate, confidence, chunk, population)
    return line.root(found, order) if root else found


def _check_target(target: str, measures: Measures) -> bool:
    if target == "sample":
        return False
    if target not in _TARGETS:
        raise InputError(f"There is no target '{target}'.{did_you_mean(target, _TARGETS)}")
    smallest = min(measures[0].shape[-2], measures[1].shape[-2])
    if smallest < 4:
        raise InputError(f"A cloud has {smallest} points, expected at least 4 for target='population': draw more.")
    return True


def _on_given(
    measures: Measures, slices: Any, defining: Defining, order: float, chunk: int | None, population: bool,
    confidence: float | None,
) -> Estimate:  # fmt: skip
    """The value on given slices: exact for the sample, with an interval over points for the population."""
    num = slices.shape[0]
    if population:
        drawing = Drawing(num, slices.shape[1], "iid", False)
        value, low, high = estimate(
            as_key(0), measures, slices, drawing=drawing, block=num, defining=defining, order=order,
            control_variate=False, confidence=confidence, chunk=None, population=True,
        )  # fmt: skip
        return Estimate(value, low, high, num, _method(order, "given slices", confidence, None, population))
    if isinstance(measures[0], np.ndarray):
        value = on_host(host_average, measures, slices, defining, order, chunk)
    else:
        value = on_slices(measures, slices, None, defining=defining, order=order, chunk=chunk)
    return Estimate(value, value, value, num, f"power {order:g}, exact on {num} given slices")


def _on_drawn(
    key: Any, measures: Measures, drawing: Drawing, defining: Defining, order: float, control_variate: bool,
    confidence: float | None, chunk: int | None, population: bool,
) -> Estimate:  # fmt: skip
    if control_variate and not (order == 2 and defining.linear):
        raise InputError(
            f"control_variate needs order 2 and a defining function linear in the slice, not order {order} with "
            f"{type(defining).__name__}: set control_variate=False."
        )
    num = drawing.num_slices
    block = block_length(drawing.sampling, num, drawing.dim, split=drawing.split)
    if isinstance(measures[0], np.ndarray):
        rows = drawn_on_host(key, drawing, defining, measures[0])
        costs = on_host(host_slice_costs, measures, rows, defining, order, chunk)
        value, half = host_mean(costs), _half(costs, block, drawing, confidence)
        low, high = np.maximum(value - half, 0), value + half
    else:
        value, low, high = estimate(
            as_key(key), measures, drawing=drawing, block=block, defining=defining, order=order,
            control_variate=control_variate, confidence=confidence, chunk=chunk, population=population,
        )  # fmt: skip
    name = f"{drawing.sampling} slices{', Gaussian surrogate' if control_variate else ''}"
    return Estimate(value, low, high, num, _method(order, name, confidence, -(-num // block), population))


def _half(costs: np.ndarray, block: int, drawing: Drawing, confidence: float | None) -> Any:
    spread = block_variance(costs, block, circle=is_circle(drawing.sampling, drawing.dim))
    return half_width([spread], confidence).astype(costs.dtype)


def _method(order: float, slices: str, confidence: float | None, blocks: int | None, population: bool) -> str:
    """One line that says what the number and its interval are."""
    words = [f"power {order:g}", slices]
    if population:
        words.append("debiased, of the population")
    if confidence is not None and blocks == 1:
        words.append("no interval from one block of slices")
    elif confidence is not None:
        over = " and ".join(
            (["points"] if population else []) + ([] if blocks is None else [f"{blocks} blocks of slices"])
        )
        words.append(f"{confidence:.0%} t interval over {over}")
    return ", ".join(words)


def generalized_sliced_wasserstein(
    x: FirstPoints, y: SecondPoints, *weights: Any, defining: Defining | None = None, **options: Any
) -> Estimate:
    r"""Return GSW_p^p: `sliced_wasserstein` with cubic polynomials in place of hyperplanes by default.

    For :math:`\alpha = \langle \theta, \phi(x) \rangle` it is :math:`SW_p^p(\phi_\# \mu, \phi_\# \nu)`, so a metric if
    and only if phi is injective. Polynomial coefficients follow the Kostlan distribution, which makes the distance
    invariant under rotations of the space. `options` as in `sliced_wasserstein`.
    """
    return sliced_wasserstein(x, y, *weights, defining=Polynomial() if defining is None else defining, **options)


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
    return on_slices(measures, slices, weights, defining=defining, order=order, chunk=chunk)
