r"""Energy-based slicing: slices count the more, the more they separate the two measures (Nguyen and Ho, 2023)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from awavo.errors import InputError, did_you_mean
from awavo.transport.average import Clouds, slice_costs
from awavo.transport.defining import Linear
from awavo.transport.problem import Options, finish, prepare
from awavo.types import Estimate

__all__ = ["energy_sliced_wasserstein"]

# Effective number of slices, one over the sum of the squared weights, from which there is an interval.
ENOUGH = 5
_ENERGIES = ("exponential", "identity")


@partial(jax.jit, static_argnames=("order", "energy"))
def _average(clouds: Clouds, slices: Array, *, order: float, energy: str) -> tuple[Array, Float[Array, " l"]]:
    costs = slice_costs(clouds, slices, Linear(), order)
    total = jnp.sum(costs)
    # Where all slices are equal to zero no slice counts more than another.
    flat = jnp.full_like(costs, 1 / costs.shape[0])
    share = jax.nn.softmax(costs) if energy == "exponential" else jnp.where(total > 0, costs / total, flat)
    value = jnp.sum(share * costs)
    # A ratio of means scatters like its linearisation: w_l (W_l - value), with weights of mean one. Where few slices
    # have nearly all the weight, that says nothing of the slices that were not drawn.
    influence = value + costs.shape[0] * share * (costs - value)
    return value, jnp.where(jnp.sum(share**2) * ENOUGH <= 1, influence, jnp.nan)


def energy_sliced_wasserstein(x: object, y: object, options: Options, *, energy: str = "exponential") -> Estimate:
    r"""Return the energy-based sliced distance to the power p.

    .. math::

        \frac{E_\theta[f(W_\theta)\, W_\theta]}{E_\theta[f(W_\theta)]},
        \qquad W_\theta = W_p^p(\theta_\#\mu, \theta_\#\nu), \qquad f(w) = e^w \text{ or } w

    Its weights depend on the pair, so the triangle inequality does not hold. The ratio has a bias of order 1/L.
    The interval is NaN where nearly all weight is on fewer than five slices, as `exponential` has it for large costs:
    the value is then hardly more than the largest slice that was drawn. Scale the points, or take `identity`.
    """
    if energy not in _ENERGIES:
        raise InputError(f"There is no energy '{energy}'.{did_you_mean(energy, _ENERGIES)}")
    problem = prepare(x, y, options)
    clouds = Clouds(problem.x, problem.y, problem.x_weights, problem.y_weights)
    value, influence = _average(clouds, problem.slices, order=problem.order, energy=energy)
    return finish(problem, value, influence, f"energy-based ({energy}) slices")
