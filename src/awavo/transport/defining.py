r"""Defining functions: the maps alpha(x, theta) whose level sets replace hyperplanes.

All but the circular one and the sum of powers are linear in theta,
:math:`\alpha = \langle \theta, \phi(x) \rangle`. For those, the generalised sliced distance is the sliced distance of
the images under phi, hence a metric if and only if phi is injective (for slices from a distribution of full support).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.errors import InputError
from awavo.transport.line import root

__all__ = [
    "Circular", "Defining", "Linear", "LinearForms", "Neural", "Polynomial", "host_monomials",
    "host_monomials_pullback", "monomial_weights",
]  # fmt: skip


@runtime_checkable
class Defining(Protocol):
    """What a defining function offers; instances are immutable and hashable, so they can be static under jit."""

    @property
    def linear(self) -> bool:
        """Whether alpha is linear in the slice, so that power steps and the Gaussian surrogate apply."""
        ...

    def num_coefficients(self, dim: int) -> int:
        """Length of one slice for points of dimension `dim`."""
        ...

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """What can be computed from the points alone, once for all slices."""
        ...

    def project(self, features: Float[Array, "n k"], slices: Float[Array, "l c"]) -> Float[Array, "l n"]:
        """Return alpha for every slice and point."""
        ...

    def coefficient_scale(self, dim: int) -> np.ndarray | None:
        """Standard deviations of the coefficients in the default slice distribution; None when they are all equal."""
        ...


def _project_linear(features: Float[Array, "n k"], slices: Float[Array, "l k"]) -> Float[Array, "l n"]:
    return jax.lax.dot_general(slices, features, (((1,), (1,)), ((), ())), precision=jax.lax.Precision.HIGHEST)


def _check_degree(degree: int, allow_even: bool) -> None:
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
        raise InputError(f"degree is {degree!r}, expected a whole number >= 1: take 3.")
    if degree % 2 == 0 and not allow_even:
        raise InputError(
            f"degree is {degree}, expected an odd one: an even degree cannot tell a measure from its mirror image; "
            "take 3, or pass allow_even=True for that pseudo-metric."
        )


class _OnPoints:
    """What most defining functions share: slices of the points themselves, drawn isotropically."""

    def num_coefficients(self, dim: int) -> int:
        """The dimension of the points."""
        return dim

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The points themselves."""
        return x

    def project(self, features: Float[Array, "n d"], slices: Float[Array, "l d"]) -> Float[Array, "l n"]:
        """Inner products."""
        return _project_linear(features, slices)

    def coefficient_scale(self, dim: int) -> None:
        """Isotropic."""
        return None


@dataclass(frozen=True)
class Linear(_OnPoints):
    r"""Hyperplanes: :math:`\alpha(x, \theta) = \langle \theta, x \rangle`. A metric."""

    linear = True


@dataclass(frozen=True)
class Polynomial:
    r"""Homogeneous polynomials in all monomials: :math:`\alpha(x, \theta) = \sum_{|k| = m} \theta_k x^k`.

    A metric for odd m (the :math:`x_i^m` determine x) on measures with finite moments of order m p; for even m a
    measure and its mirror image are at distance zero, so an even degree is refused unless `allow_even` is set.
    It scales as the m-th power of the points; `rooted` takes :math:`\mathrm{sgn}(\alpha) |\alpha|^{1/m}` instead, which
    scales as the points and is as injective.
    """

    degree: int = 3
    allow_even: bool = False
    rooted: bool = False

    def __post_init__(self) -> None:
        _check_degree(self.degree, self.allow_even)

    @property
    def linear(self) -> bool:
        """Linear in the coefficients unless rooted."""
        return not self.rooted

    def num_coefficients(self, dim: int) -> int:
        """Number of monomials, C(d + m - 1, m)."""
        return math.comb(dim + self.degree - 1, self.degree)

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """All monomials, in lexicographic order of their variables: the first variable times one of lower degree."""
        variables = monomials = x.T
        for degree in range(2, self.degree + 1):
            # Each monomial is one product: a variable times a monomial of the degree below.
            first, rest = _monomial_factors(x.shape[1], degree)
            leading = variables.at[first].get(mode="promise_in_bounds", indices_are_sorted=True)
            monomials = leading * monomials.at[rest].get(mode="promise_in_bounds")
        return monomials.T

    def project(self, features: Float[Array, "n k"], slices: Float[Array, "l k"]) -> Float[Array, "l n"]:
        """Values of the polynomials, rooted if asked."""
        alpha = _project_linear(features, slices)
        return jnp.sign(alpha) * root(jnp.abs(alpha), self.degree) if self.rooted else alpha

    def coefficient_scale(self, dim: int) -> np.ndarray:
        """The Kostlan (Bombieri) distribution: the distance does not change when both clouds are rotated."""
        return monomial_weights(dim, self.degree)


@lru_cache(maxsize=16)
def _monomial_factors(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """For every monomial of a degree, its first variable and the place of the rest among those of one degree less."""
    place = {rest: k for k, rest in enumerate(combinations_with_replacement(range(dim), degree - 1))}
    monomials = list(combinations_with_replacement(range(dim), degree))
    rest = [place[variables[1:]] for variables in monomials]
    return np.asarray([variables[0] for variables in monomials], np.int32), np.asarray(rest, np.int32)


def host_monomials(x: Float[np.ndarray, "*batch n d"], degree: int) -> Float[np.ndarray, "*batch n k"]:
    """The features of `Polynomial` by NumPy, monomial by monomial in memory."""
    return _monomial_columns(x, degree)[-1].swapaxes(-1, -2)


def _monomial_columns(x: Float[np.ndarray, "*batch n d"], degree: int) -> list[np.ndarray]:
    """The monomials of every degree up to one, each `[*batch, k, n]`."""
    found = [np.ascontiguousarray(x.swapaxes(-1, -2))]
    for k in range(2, degree + 1):
        first, rest = _monomial_factors(x.shape[-1], k)
        leading = found[0].take(first, axis=-2)
        leading *= found[-1].take(rest, axis=-2)
        found.append(leading)
    return found


def host_monomials_pullback(
    x: Float[np.ndarray, "*batch n d"], gradient: Float[np.ndarray, "*batch n k"], degree: int
) -> Float[np.ndarray, "*batch n d"]:
    """The gradient in the points, from that in their monomials."""
    lower, above = _monomial_columns(x, degree - 1), gradient.swapaxes(-1, -2)
    variables = lower[0]
    found = np.zeros_like(variables)
    for k in range(degree, 1, -1):
        rests = lower[k - 2]
        below, start = np.zeros_like(rests), 0
        for i in range(x.shape[-1]):
            # Monomials whose first variable is i are it times those of one degree less in the variables from i on.
            count = math.comb(x.shape[-1] - i + k - 2, k - 1)
            part = above[..., start : start + count, :]
            below[..., -count:, :] += part * variables[..., i : i + 1, :]
            found[..., i, :] += np.einsum("...kn,...kn->...n", part, rests[..., -count:, :])
            start += count
        above = below
    return (found + above).swapaxes(-1, -2)


@lru_cache(maxsize=16)
def monomial_weights(dim: int, degree: int) -> np.ndarray:
    r"""Return :math:`\sqrt{m! / k!}` for every monomial :math:`x^k` of degree m.

    With independent :math:`\theta_k \sim \sqrt{m!/k!}\, N(0, 1)`,
    :math:`E[\alpha(x) \alpha(y)] = \langle x, y \rangle^m`.
    """
    weights = []
    for variables in combinations_with_replacement(range(dim), degree):
        powers = np.unique(variables, return_counts=True)[1]
        weights.append(math.factorial(degree) / math.prod(math.factorial(int(k)) for k in powers))
    found = np.sqrt(np.asarray(weights))
    found.flags.writeable = False  # it is remembered
    return found


@dataclass(frozen=True)
class LinearForms(_OnPoints):
    r"""Sums of odd powers of linear forms, :math:`\alpha(x, u) = R^{(m-1)/2} \sum_{j \le R} \langle u_j, x \rangle^m`.

    Every homogeneous polynomial of degree m is such a sum for R large enough; the cost grows with R d instead of
    C(d + m - 1, m). One slice is the row (u_1, ..., u_R). A metric for every R >= 1: R = 1 is a monotone function of a
    linear slice.
    """

    num_forms: int = 4
    degree: int = 3
    linear = False

    def __post_init__(self) -> None:
        _check_degree(self.degree, allow_even=False)
        if self.num_forms < 1:
            raise InputError(f"num_forms is {self.num_forms}, expected at least 1: take 4.")

    def num_coefficients(self, dim: int) -> int:
        """R forms of the dimension of the points."""
        return self.num_forms * dim

    def project(self, features: Float[Array, "n d"], slices: Float[Array, "l c"]) -> Float[Array, "l n"]:
        """Powers of all forms, summed."""
        dim = features.shape[1]
        values = _project_linear(features, slices.reshape(-1, dim)) ** self.degree
        # Keeps the size of alpha for unit slices, whose forms shrink as R grows.
        scale = self.num_forms ** ((self.degree - 1) / 2)
        return scale * values.reshape(-1, self.num_forms, features.shape[0]).sum(axis=1)


@dataclass(frozen=True)
class Circular(_OnPoints):
    r"""Spheres: :math:`\alpha(x, \theta) = |x - r \theta|`, for unit theta.

    A metric on measures of compact support; it tends to linear slices as the radius grows. Not homogeneous in theta.
    """

    radius: float = 1.0
    linear = False

    def __post_init__(self) -> None:
        if not (self.radius > 0 and math.isfinite(self.radius)):
            raise InputError(f"radius is {self.radius}, expected a finite number > 0: take the size of the clouds.")

    def project(self, features: Float[Array, "n d"], slices: Float[Array, "l d"]) -> Float[Array, "l n"]:
        """Distances to the centres; the derivative is zero where a point is a centre."""
        centres = self.radius * slices
        # |x - c|^2 in one matrix product; rounding may leave it below zero.
        squares = jnp.sum(centres**2, axis=1)[:, None] + jnp.sum(features**2, axis=1)[None]
        return root(jnp.maximum(squares - 2 * _project_linear(features, centres), 0), 2)


@dataclass(frozen=True, eq=False)
class Neural(_OnPoints):
    r"""An injective augmentation: :math:`\alpha(x, \theta) = \langle \theta, (x, g(x)) \rangle` for a network g.

    A metric for every g, because (x, g(x)) determines x. `network` maps one point `[d]` to `[k]`; gradients reach its
    parameters when it closes over them. Bound its Lipschitz constant before maximising the distance over it.
    """

    network: Callable[[Float[Array, " d"]], Float[Array, " k"]]
    linear = True

    def num_coefficients(self, dim: int) -> int:
        """Dimension of the points plus the width of the network's output."""
        return dim + jax.eval_shape(self.network, jax.ShapeDtypeStruct((dim,), jnp.float32)).shape[0]

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """Points next to their images."""
        return jnp.concatenate([x, jax.vmap(self.network)(x).astype(x.dtype)], axis=1)
