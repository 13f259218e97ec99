"""The variants of the sliced distance that people look for, behind one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from awavo.errors import InputError, did_you_mean
from awavo.transport.ascent import max_sliced_wasserstein
from awavo.transport.checks import check_order, one_of
from awavo.transport.distances import generalized_sliced_wasserstein, sliced_wasserstein
from awavo.transport.energy import energy_sliced_wasserstein
from awavo.transport.line import root as take_root
from awavo.transport.partial import partial_sliced_wasserstein
from awavo.transport.plans import sliced_plan
from awavo.transport.problem import Options
from awavo.transport.programs import as_key
from awavo.transport.spherical import spherical_sliced_wasserstein
from awavo.types import Estimate

__all__ = ["VARIANTS", "sliced_distance"]


def _max(x: Any, y: Any, **options: Any) -> Estimate:
    """The largest slice, found by ascent."""
    order = check_order(one_of(2, order=options.pop("order", None), p=options.pop("p", None)))
    names = {
        "x_weights": ("a",), "y_weights": ("b",), "key": ("seed",), "num_starts": ("num_slices", "n_projections"),
    }  # fmt: skip
    for ours, others in names.items():
        options[ours] = one_of(None, **{name: options.pop(name, None) for name in (ours, *others)})
    rooted = options.pop("root", False)
    if options["key"] is None:
        raise InputError("No key was given, expected one for the starts: pass key=jax.random.key(0), or seed=0.")
    starts = options.pop("num_starts")
    options |= {"key": as_key(options["key"]), "order": order, "num_starts": 8 if starts is None else starts}
    found = max_sliced_wasserstein(x, y, **options).value
    method = f"power {order:g}, largest slice found by ascent: a lower bound of the maximum"
    result = Estimate(found, found, found, options["num_starts"], method)
    return take_root(result, order) if rooted else result


def _common(variant: Callable[..., Estimate]) -> Callable[..., Estimate]:
    """Sort out the options that all variants share."""

    def call(x: Any, y: Any, **options: Any) -> Estimate:
        shared = {name: options.pop(name) for name in Options._fields if name in options}
        return variant(x, y, Options(**shared), **options)

    return call


VARIANTS: dict[str, Callable[..., Estimate]] = {
    "average": sliced_wasserstein,
    "max": _max,
    "generalized": generalized_sliced_wasserstein,
    "energy": _common(energy_sliced_wasserstein),
    "spherical": _common(spherical_sliced_wasserstein),
    "partial": _common(partial_sliced_wasserstein),
    "plan": lambda x, y, **options: sliced_plan(x, y, "min", **options).estimate,
    "expected-plan": lambda x, y, **options: sliced_plan(x, y, "expected", **options).estimate,
}


def sliced_distance(
    x: Any, y: Any, a: Any = None, b: Any = None, n_projections: int | None = None, *, variant: str = "average",
    **options: Any,
) -> Estimate:  # fmt: skip
    r"""Return a variant of the sliced distance to the power p, as an `Estimate`; `root=True` for the distance.

    | `variant` | what it is | its own options |
    |---|---|---|
    | `average` | `sliced_wasserstein` | all of its options |
    | `max` | the largest slice, by ascent | `num_starts` (`num_slices`), `num_steps`, `defining`, `step` |
    | `generalized` | polynomials, spheres or networks as slices | `defining` |
    | `energy` | slices weighted by how much they separate | `energy`: `exponential` or `identity` |
    | `spherical` | unit vectors, great circles | |
    | `partial` | points may stay alone, for a price | `penalty` |
    | `plan`, `expected-plan` | cost of a plan from slices, a bound of W_p^p | `sliced_plan` gives the plan itself |

    Points, weights (`x_weights` and `y_weights`, or `a` and `b`), `key` or `seed`, `num_slices` or `n_projections`,
    `order` or `p` mean the same for all of them.
    """
    if variant not in VARIANTS:
        raise InputError(f"There is no variant '{variant}'.{did_you_mean(variant, VARIANTS)}")
    given = {"a": a, "b": b, "n_projections": n_projections}
    options |= {name: value for name, value in given.items() if value is not None}
    try:
        return VARIANTS[variant](x, y, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        name = str(error).rsplit("'", 2)[-2]
        raise InputError(f"The variant '{variant}' has no option '{name}': see help(sliced_distance).") from None
