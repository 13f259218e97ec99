"""A system to infer: its flow, what is seen of it, and what is known of it before anything is seen."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.assimilation.lattice import Reach
from awavo.errors import InputError

__all__ = [
    "System",
    "check_system",
    "flat_flow",
    "flat_observe",
    "free_parameters",
    "integrate",
    "num_states",
    "seen_names",
    "takes_times",
]

LAYOUTS = ("global", "ring", "lattice")


class System(NamedTuple):
    """Any differentiable system, written in JAX.

    Args:
        shape: Shape of one state.
        flow: The dynamics from one time of observation to the next: `flow(x, theta)`, `flow(x, theta, begin)` or
            `flow(x, theta, begin, end)` with the two times. `integrate` makes one from a right-hand side.
        theta: Parameters of the dynamics: the mean of their prior, and their value where they are known.
        prior_mean: Mean of the first state, a number or one for each site.
        prior_std: Its standard deviation, likewise.
        coarse: A cheaper version of the flow, for the Jacobian (rings and lattices only).
        reach: How many sites before and after it a site is felt along each axis (measured when None).
        theta_std: Standard deviation of the prior of each parameter; 0 for one that is known.
        observe: What is seen of a state, `observe(x, theta)` or `observe(x, theta, time)`, as a vector; the state
            itself when None.
        model_noise: Standard deviation of the error that the flow makes from one observation to the next, a number or
            one for each site; 0 for a model that is right.
        layout: "global" (any state may feel any other; the flow only ever sees whole states), "lattice" (sites feel
            their neighbours only, whatever happens at the ends) or "ring" (sites alike on a ring of any length, which
            can be cut out and searched by itself).
        names: Names of the states, for tables and pages; columns of a file of observations must have these.
        theta_names: Names of the parameters.
    """

    shape: tuple[int, ...]
    flow: Callable[..., Array]
    theta: Float[np.ndarray, " p"] = np.zeros(0)
    prior_mean: Any = 0.0
    prior_std: Any = 1.0
    coarse: Callable[..., Array] | None = None
    reach: Reach | None = None
    theta_std: Any = 0.0
    observe: Callable[..., Array] | None = None
    model_noise: Any = 0.0
    layout: Literal["global", "ring", "lattice"] = "global"
    names: tuple[str, ...] = ()
    theta_names: tuple[str, ...] = ()


def num_states(system: System) -> int:
    """Numbers in one state."""
    return int(np.prod(system.shape))


def free_parameters(system: System) -> np.ndarray:
    """Places of the parameters that are inferred: those whose prior has a width."""
    return np.flatnonzero(np.broadcast_to(np.asarray(system.theta_std, float), np.shape(system.theta)) > 0)


def integrate(rate: Callable[..., Array], num_steps: int, duration: float | None = None) -> Callable[..., Array]:
    """Return a flow by `num_steps` steps of RK4 of `rate(x, theta)` or `rate(x, theta, time)`.

    With a `duration` every interval of observation is that long, and the flow takes no times.
    """
    timed = _num_arguments(rate) > 2

    def slope(x, theta, time):
        return rate(x, theta, time) if timed else rate(x, theta)

    def advance(x, theta, begin, length):
        step = length / num_steps

        def one(x, number):
            time = begin + number * step
            k1 = slope(x, theta, time)
            k2 = slope(x + step / 2 * k1, theta, time + step / 2)
            k3 = slope(x + step / 2 * k2, theta, time + step / 2)
            k4 = slope(x + step * k3, theta, time + step)
            return (x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)).astype(x.dtype), None

        return jax.lax.scan(one, x, jnp.arange(num_steps))[0]

    if duration is not None and not timed:
        return lambda x, theta: advance(x, theta, 0.0, duration)
    return lambda x, theta, begin, end: advance(x, theta, begin, end - begin)


def flat_flow(system: System) -> Callable[[Array, Array, Array, Array], Array]:
    """The flow on flat states, `(x, theta, begin, end)`, whatever it takes itself."""
    extra = _num_arguments(system.flow) - 2

    def flow(x, theta, begin, end):
        made = system.flow(x.reshape(system.shape), theta, *(begin, end)[:extra])
        return jnp.asarray(made, x.dtype).reshape(x.shape)

    return flow


def flat_observe(system: System) -> Callable[[Array, Array, Array], Array]:
    """What is seen of a flat state, `(x, theta, time)`."""
    if system.observe is None:
        return lambda x, theta, time: x
    observe, timed = system.observe, _num_arguments(system.observe) > 2

    def see(x, theta, time):
        state = x.reshape(system.shape)
        return jnp.asarray(observe(state, theta, time) if timed else observe(state, theta), x.dtype).reshape(-1)

    return see


def seen_names(system: System) -> tuple[str, ...]:
    """Names of what is seen, where the states have names and each number that is seen is one of them."""
    num = check_system(system)
    if not system.names or system.observe is None:
        return tuple(system.names)
    with jax.enable_x64(True):
        x = jax.random.normal(jax.random.key(0), (num_states(system),), jnp.float64)
        seen = np.asarray(flat_observe(system)(x, jnp.asarray(system.theta, jnp.float64), jnp.zeros(())))
    place = np.argmin(np.abs(seen[:, None] - np.asarray(x)), 1)
    plain = len(set(place.tolist())) == num and (seen == np.asarray(x)[place]).all()
    return tuple(system.names[i] for i in place) if plain else ()


def _num_arguments(function: Callable[..., Any]) -> int:
    """Positional arguments without a default, 2 to 4."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(max(sum(p.kind in kinds and p.default is p.empty for p in parameters), 2), 4)


def takes_times(system: System) -> bool:
    """Whether the flow is told the time."""
    return _num_arguments(system.flow) > 2


def check_system(system: System) -> int:
    """Refuse a description that cannot be right, in one line; return how many numbers are seen at one time."""
    if system.layout not in LAYOUTS:
        raise InputError(f"layout='{system.layout}' is not one of {', '.join(LAYOUTS)}.")
    shape: Any = system.shape
    if not isinstance(shape, tuple | list) or not shape or not all(isinstance(n, int | np.integer) for n in shape):
        raise InputError(f"the system's shape is {shape!r}: expected a tuple of whole numbers, such as (3,).")
    if min(shape) < 1:
        raise InputError(f"the system's shape is {shape}: expected one whole number above 0 per axis.")
    num = num_states(system)
    for name, value, size, low in (
        ("prior_mean", system.prior_mean, num, -np.inf), ("prior_std", system.prior_std, num, 1e-300),
        ("model_noise", system.model_noise, num, 0.0), ("theta", system.theta, np.size(system.theta), -np.inf),
        ("theta_std", system.theta_std, np.size(system.theta), 0.0),
    ):  # fmt: skip
        _check_field(name, value, size, low)
    for names, count, name in (
        (system.names, num, "names"), (system.theta_names, np.size(system.theta), "theta_names")
    ):  # fmt: skip
        if names and len(names) != count:
            raise InputError(f"{name} holds {len(names)} names for {count}: give one each, or none.")
    with jax.enable_x64(True):
        x, theta, time = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((num,), np.shape(system.theta), ()))
        _shape_of("flow", flat_flow(system), x, theta, time, time)
        return int(_shape_of("observe", flat_observe(system), x, theta, time)[0])


def _check_field(name: str, value: Any, size: int, low: float) -> None:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise InputError(f"{name} is not made of numbers: give one, or one for each of {size}.") from None
    if array.size not in (1, size):
        raise InputError(f"{name} has {array.size} numbers: give one, or one for each of {size}.")
    if not np.isfinite(array).all() or (array < low).any():
        bound = "above 0" if low > 0 else "0 or more" if low == 0 else "finite"
        raise InputError(f"{name} must be {bound} everywhere: it is {float(array.min()):g} at its least.")


def _shape_of(name: str, function: Callable[..., Array], *arguments: object) -> tuple[int, ...]:
    try:
        return jax.eval_shape(function, *arguments).shape
    except Exception as error:  # the user's function may raise anything
        first = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"the system's {name} fails on a state of its shape ({first}): check what it returns."
        ) from error
