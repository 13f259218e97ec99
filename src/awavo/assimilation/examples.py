r"""Systems to try the inference on, each with a truth and what was seen of it.

.. code-block:: text

    pendulum         a'' = -g sin a - c a'                          angle seen, friction c inferred
    lorenz63         x' = s (y - x), y' = x (r - z) - y, z' = x y - b z   x seen, s, r and b inferred
    double-pendulum  two equal rods and masses, angles from the vertical  both angles seen
    ks               u_t = -u u_x - u_xx - u_xxxx, periodic         a third of the sites never seen
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.assimilation.kuramoto import kuramoto_flow
from awavo.assimilation.system import System, flat_flow, flat_observe, integrate
from awavo.errors import InputError, UnknownNameError, did_you_mean

__all__ = ["EXAMPLES", "Example", "double_pendulum", "kuramoto_sivashinsky", "lorenz63", "make_example", "pendulum"]

GRAVITY = 9.81


class Example(NamedTuple):
    """A system, a truth of it at all `times` (the first is that of the prior), and what was seen at the later ones."""

    system: System
    times: Float[np.ndarray, " T"]
    truth: Float[np.ndarray, "T n"]
    theta: Float[np.ndarray, " p"]
    observed: Float[np.ndarray, "K m"]
    noise: float


def _pendulum_rate(x: Array, theta: Array) -> Array:
    return jnp.stack([x[1], -GRAVITY * jnp.sin(x[0]) - theta[0] * x[1]])


def _lorenz63_rate(x: Array, theta: Array) -> Array:
    return jnp.stack([theta[0] * (x[1] - x[0]), x[0] * (theta[1] - x[2]) - x[1], x[0] * x[1] - theta[2] * x[2]])


def _double_pendulum_rate(x: Array, theta: Array) -> Array:
    """Equal masses on rods of length 1."""
    one, two, first, second = x
    gap = one - two
    c, s = jnp.cos(gap), jnp.sin(gap)
    low = 2 - c**2
    push = -GRAVITY * jnp.sin(two) + first**2 * s
    pull = -2 * GRAVITY * jnp.sin(one) - second**2 * s
    return jnp.stack([first, second, (pull - c * push) / low, (2 * push - c * pull) / low])


def _first_site(x: Array, theta: Array) -> Array:
    return x[:1]


def _two_angles(x: Array, theta: Array) -> Array:
    return x[:2]


# One flow object each: programs are kept by it.
_pendulum_flow = integrate(_pendulum_rate, 10)
_lorenz63_flow = integrate(_lorenz63_rate, 10)
_double_pendulum_flow = integrate(_double_pendulum_rate, 10)


def pendulum(rng: np.random.Generator, num_times: int = 50) -> Example:
    """A pendulum of which the angle is seen ten times a second; its friction is not known."""
    system = System(
        (2,), _pendulum_flow, np.array([0.5]), np.zeros(2), np.array([1.5, 3.0]), theta_std=np.array([0.5]),
        observe=_first_site, names=("angle", "rate"), theta_names=("friction",),
    )  # fmt: skip
    start = np.array([rng.uniform(0.5, 2.5) * rng.choice([-1, 1]), rng.normal()])
    return _twin(rng, system, start, np.array([rng.uniform(0.1, 0.9)]), 0.1 * np.arange(num_times + 1), 0.1)


def lorenz63(rng: np.random.Generator, num_times: int = 60) -> Example:
    """Lorenz's butterfly: x is seen, y and z and all three parameters are not."""
    system = System(
        (3,), _lorenz63_flow, np.array([9.0, 25.0, 3.0]), np.array([0.0, 0.0, 23.0]), np.array([8.0, 9.0, 9.0]),
        theta_std=np.array([2.0, 4.0, 0.5]), observe=_first_site, names=("x", "y", "z"),
        theta_names=("sigma", "rho", "beta"),
    )  # fmt: skip
    theta = np.array([10.0, 28.0, 8 / 3])
    start = _run(system, rng.normal(size=3) + np.array([0.0, 1.0, 23.0]), theta, np.linspace(0, 20, 201))[-1]
    return _twin(rng, system, start, theta, 0.1 * np.arange(num_times + 1), 1.0)


def double_pendulum(rng: np.random.Generator, num_times: int = 50) -> Example:
    """Two pendulums, one on the other, in chaos: both angles are seen, no rate is."""
    system = System(
        (4,), _double_pendulum_flow, prior_mean=np.zeros(4), prior_std=np.array([2.0, 2.0, 4.0, 4.0]),
        observe=_two_angles, names=("upper angle", "lower angle", "upper rate", "lower rate"),
    )  # fmt: skip
    start = np.concatenate([rng.uniform(1.2, 2.2, 2) * rng.choice([-1, 1], 2), 0.5 * rng.normal(size=2)])
    return _twin(rng, system, start, np.zeros(0), 0.1 * np.arange(num_times + 1), 0.05)


def kuramoto_sivashinsky(rng: np.random.Generator, num_times: int = 20, sites: int = 128) -> Example:
    """Waves and chaos on a ring of `sites` (0.785 apart), solved by Fourier modes; a third is never seen."""
    if not 16 <= sites <= 65536:
        raise InputError(f"--states {sites} is out of range: expected 16 to 65536.")
    large = sites > 512
    system = System(
        (sites,), kuramoto_flow(sites, 4, 0.25), prior_mean=0.0, prior_std=1.3,
        layout="lattice" if large else "global", reach=((12, 12),) if large else None,
    )  # fmt: skip
    start = _run(system, rng.normal(size=sites), np.zeros(0), np.arange(61.0))[-1]
    made = _twin(rng, system, start, np.zeros(0), np.arange(num_times + 1.0), 0.3)
    hidden = rng.choice(sites, sites // 3, replace=False)
    made.observed[:, hidden] = np.nan
    return made


@lru_cache(maxsize=16)
def _trajectory(system: tuple) -> Callable[..., Array]:
    shape, flow = system
    step = flat_flow(System(shape, flow))

    @jax.jit
    def run(x, theta, times):
        def advance(x, pair):
            x = step(x, theta, pair[0], pair[1])
            return x, x

        return jax.lax.scan(advance, x, jnp.stack([times[:-1], times[1:]], 1))[1]

    return run


def _run(system: System, start: np.ndarray, theta: np.ndarray, times: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        later = _trajectory((system.shape, system.flow))(jnp.asarray(start), jnp.asarray(theta), jnp.asarray(times))
        return np.concatenate([np.asarray(start)[None], np.asarray(later)])


def _twin(rng, system: System, start: np.ndarray, theta: np.ndarray, times: np.ndarray, noise: float) -> Example:
    truth, see = _run(system, start, theta, times), flat_observe(system)
    with jax.enable_x64(True):
        shown = np.asarray(jax.vmap(lambda x: see(x, jnp.asarray(theta), jnp.zeros(())))(jnp.asarray(truth[1:])))
    return Example(system, times, truth, theta, shown + noise * rng.standard_normal(shown.shape), noise)


EXAMPLES: dict[str, Callable[..., Example]] = {
    "pendulum": pendulum, "lorenz63": lorenz63, "double-pendulum": double_pendulum, "ks": kuramoto_sivashinsky,
}  # fmt: skip


def make_example(name: str, seed: int, **options: int) -> Example:
    """Draw a truth and its observations."""
    if name not in EXAMPLES:
        raise UnknownNameError(f"no system is named '{name}'.{did_you_mean(name, [*EXAMPLES, 'lorenz96'])}")
    return EXAMPLES[name](np.random.default_rng(seed), **options)
