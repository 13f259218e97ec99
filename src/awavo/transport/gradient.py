"""The sliced distance with its gradient in one call, for code that is not differentiated by jax."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from awavo.errors import InputError, did_you_mean
from awavo.transport.checks import (
    check_measures,
    check_order,
    check_positive,
    check_slices,
    one_of,
)
from awavo.transport.defining import Defining, Linear, Polynomial, host_monomials, host_monomials_pullback
from awavo.transport.host import fits_host
from awavo.transport.host_gradient import HostGradient, host_gradient
from awavo.transport.programs import Drawing, Measures, as_key, drawn_on_host, on_slices
from awavo.transport.slices import default_sampling, draw_slices

__all__ = ["SlicedGradient", "sliced_gradient"]

_NAMES = ("x", "y", "x_weights", "y_weights")


class SlicedGradient(NamedTuple):
    """SW_p^p on its slices, and its gradient in what was asked for; None elsewhere."""

    value: Any
    x: Any = None
    y: Any = None
    x_weights: Any = None
    y_weights: Any = None


@partial(jax.jit, static_argnames=("defining", "order", "chunk", "places"))
def _compiled(
    measures: Measures, slices: Array, *, defining: Defining, order: float, chunk: int | None, places: tuple[int, ...]
) -> Any:
    def total(parts: dict[int, Array]) -> tuple[Array, Array]:
        whole = tuple(parts.get(i, part) for i, part in enumerate(measures))
        value = on_slices(whole, slices, None, defining=defining, order=order, chunk=chunk)
        return value.sum(), value

    (_, value), found = jax.value_and_grad(total, has_aux=True)({i: measures[i] for i in places})
    return value, found


def sliced_gradient(
    x: Float[Array, "*batch n d"] | np.ndarray,
    y: Float[Array, "*batch m d"] | np.ndarray,
    a: Float[Array, " n"] | np.ndarray | None = None,
    b: Float[Array, " m"] | np.ndarray | None = None,
    n_projections: int | None = None,
    *,
    wrt: tuple[str, ...] = ("x",),
    key: Key[Array, ""] | int | np.integer | None = None,
    num_slices: int | None = None,
    order: float | None = None,
    x_weights: Float[Array, " n"] | np.ndarray | None = None,
    y_weights: Float[Array, " m"] | np.ndarray | None = None,
    slices: Float[Array, "l c"] | np.ndarray | None = None,
    defining: Defining | None = None,
    chunk: int | None = None,
    p: float | None = None,
    seed: int | np.integer | None = None,
) -> SlicedGradient:
    """Return SW_p^p and its gradient in `wrt`, of `x`, `y`, `x_weights` and `y_weights`.

    The numbers are those of `jax.value_and_grad`; outside jit, for known arrays on a CPU, NumPy computes them, faster,
    where slices are linear (`defining=None`) or those of a `Polynomial` without a root; others are compiled.
    A batch `[..., n, d]` of problems shares its slices, and has no weights. Slices are drawn whole
    (`confidence=None`): there is no interval here. Other arguments as in `sliced_wasserstein`.
    """
    for name in wrt:
        if name not in _NAMES:
            raise InputError(f"There is no gradient in '{name}'.{did_you_mean(name, _NAMES)}")
    order = check_order(one_of(2, order=order, p=p))
    x_weights, y_weights = one_of(None, x_weights=x_weights, a=a), one_of(None, y_weights=y_weights, b=b)
    key = one_of(None, key=key, seed=seed)
    if (key is None) == (slices is None):
        raise InputError("Neither or both of key and slices were given, expected one: pass key=jax.random.key(0).")
    num = check_positive("num_slices", one_of(100, num_slices=num_slices, n_projections=n_projections))
    chunk = None if chunk is None else check_positive("chunk", chunk)
    defining = Linear() if defining is None else defining
    host = fits_host(x, y, x_weights, y_weights, slices, key) and _by_numpy(defining)
    measures = check_measures(x, y, x_weights, y_weights, host=host, batch=True)
    in_weights = x_weights is not None or y_weights is not None or bool({"x_weights", "y_weights"} & set(wrt))
    if measures[0].ndim > 2 and in_weights:
        raise InputError("A batch was given with weights, expected one problem: vmap over the batch.")
    rows = _slices(slices, key, num, defining, measures)
    if host:
        found = _on_host(measures, np.asarray(rows), defining, order, frozenset(wrt), chunk)
        value = found.costs.mean(axis=-1, dtype=np.float64).astype(found.costs.dtype)
        return SlicedGradient(value, *found[1:])
    for i, name in ((2, "x_weights"), (3, "y_weights")):
        if name in wrt and measures[i] is None:
            num_points = measures[i - 2].shape[-2]
            uniform = jax.numpy.full((num_points,), 1 / num_points, measures[0].dtype)
            measures = (*measures[:i], uniform, *measures[i + 1 :])
    places = tuple(i for i, name in enumerate(_NAMES) if name in wrt)
    value, parts = _compiled(measures, rows, defining=defining, order=order, chunk=chunk, places=places)
    return SlicedGradient(value, *(parts.get(i) for i in range(4)))


def _by_numpy(defining: Defining) -> bool:
    return type(defining) is Linear or (type(defining) is Polynomial and defining.linear)


def _slices(slices: Any, key: Any, num: int, defining: Defining, measures: Measures) -> Any:
    """The slices that were given, checked, or as many as are wanted."""
    dim = defining.num_coefficients(measures[0].shape[-1])
    scale = defining.coefficient_scale(measures[0].shape[-1])
    if slices is not None:
        return check_slices(slices, dim, measures[0], unit=scale is None)
    if isinstance(measures[0], np.ndarray):
        return drawn_on_host(key, Drawing(num, dim, default_sampling(dim), False), defining, measures[0])
    drawn = draw_slices(jax.random.split(as_key(key))[0], num, dim)[0]
    return (drawn if scale is None else drawn * scale).astype(measures[0].dtype)


def _on_host(
    measures: Measures, rows: np.ndarray, defining: Defining, order: float, wanted: frozenset[str], chunk: int | None
) -> HostGradient:
    """`host_gradient`, through the monomials of the points where slices are polynomials."""
    x, y, x_weights, y_weights = measures
    if not isinstance(defining, Polynomial):
        return host_gradient(x, y, rows, x_weights, y_weights, order, wanted, chunk)
    degree = defining.degree
    images = host_monomials(x, degree), host_monomials(y, degree)
    found = host_gradient(*images, rows, x_weights, y_weights, order, wanted, chunk)
    return found._replace(
        x=None if found.x is None else host_monomials_pullback(x, found.x, degree),
        y=None if found.y is None else host_monomials_pullback(y, found.y, degree),
    )
