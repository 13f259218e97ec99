r"""Two modes of p(theta | D): a pendulum seen from the side shows its height, not which way it was pushed.

.. code-block:: text

    a'' = -g sin a - (c / m) a' + (b / m) u,    observed: cos a + noise,    theta = (b, log m)

b and -b explain the heights equally well; the prior prefers positive gains a little and is far wider than each mode, so
that hardly one of its draws lies in either. Every arm is `awavo.inference.wvi.infer` with the same candidates a round.
The reference is a long Metropolis run with jumps from b to -b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.inference.wvi import infer
from awavo.paper.arms import milliseconds, sliced_w2
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.transport.defining import Linear

__all__ = ["ARMS", "log_posterior", "metropolis", "observe", "run_modes"]

TIME_STEP, NUM_TIMES, GRAVITY, FRICTION, NOISE = 0.05, 60, 9.8, 0.5, 0.03
TRUTH = (1.0, 0.0)
PRIOR_MEAN, PRIOR_STD = (0.5, 0.0), (2.0, 0.7)
NUM_CHAINS, NUM_KEPT, THINNED = 16, 256, 40
NUM_ROUNDS, PER_PARTICLE = 25, 8
# Steps down the sliced distance, steps up of its slices, rounds of candidates that are kept.
ARMS: dict[str, tuple[int, int, int]] = {
    "resampling, no memory": (0, 0, 1),
    "ascended slices, no memory": (4, 3, 1),
    "resampling": (0, 0, 8),
    "random slices": (4, 0, 8),
    "ascended slices": (4, 3, 8),
}


def heights(theta: Float[Array, "2"]) -> Float[Array, " T"]:
    """The height of the bob at every time, for a gain and the logarithm of a mass."""
    gain, mass = theta[0], jnp.exp(theta[1])
    pushes = 1.5 * jnp.sign(jnp.sin(3.0 * TIME_STEP * jnp.arange(NUM_TIMES)))

    def step(state: tuple[Array, Array], push: Array) -> tuple[tuple[Array, Array], Array]:
        angle, speed = state
        speed = speed + TIME_STEP * (-GRAVITY * jnp.sin(angle) - FRICTION / mass * speed + gain / mass * push)
        angle = angle + TIME_STEP * speed
        return (angle, speed), jnp.cos(angle)

    return jax.lax.scan(step, (jnp.zeros(()), jnp.zeros(())), pushes)[1]


def observe(seed: int) -> Float[Array, " T"]:
    """What was seen of the true pendulum."""
    return heights(jnp.asarray(TRUTH)) + NOISE * jax.random.normal(jax.random.key(seed), (NUM_TIMES,))


def log_posterior(data: Float[Array, " T"]) -> Callable[[Float[Array, "n 2"]], Float[Array, " n"]]:
    """Log-density of p(theta | D), up to a constant."""

    def one(theta: Float[Array, "2"]) -> Float[Array, ""]:
        prior = jnp.sum(((theta - jnp.asarray(PRIOR_MEAN)) / jnp.asarray(PRIOR_STD)) ** 2)
        return -0.5 * prior - 0.5 * jnp.sum(((heights(theta) - data) / NOISE) ** 2)

    return jax.vmap(one)


def metropolis(key: Array, data: Float[Array, " T"]) -> Float[Array, "n c 2"]:
    """A long run from the truth: local steps, every third a jump to the other sign; thinned."""
    density = log_posterior(data)

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        x, value = state
        count, key = inputs
        noise_key, accept_key = jax.random.split(key)
        near = x + jnp.array([0.25, 0.2]) * jax.random.normal(noise_key, x.shape)
        tried = jnp.where(count % 3 == 0, x * jnp.array([-1.0, 1.0]), near)
        new = density(tried)
        taken = jnp.log(jax.random.uniform(accept_key, value.shape)) < new - value
        x, value = jnp.where(taken[:, None], tried, x), jnp.where(taken, new, value)
        return (x, value), x

    start = jnp.broadcast_to(jnp.asarray(TRUTH), (NUM_CHAINS, 2))
    total = THINNED * (NUM_KEPT + 50)
    keys = jax.random.split(key, total)
    _, visited = jax.lax.scan(step, (start, density(start)), (jnp.arange(total), keys))
    return visited[::THINNED][50:]


@cache
def _reference(seed: int) -> np.ndarray:
    draws = jax.jit(metropolis)(jax.random.fold_in(jax.random.key(seed), 1), observe(seed))
    return np.asarray(draws)


def _split_half(reference: np.ndarray, num: int) -> float:
    """Sliced W2 of `num` draws of half of the chains to the other half, averaged over disjoint sets of them."""
    one, other = (reference[:, chains].reshape(-1, 2) for chains in (np.s_[::2], np.s_[1::2]))
    rng = np.random.default_rng(0)
    sets = rng.permutation(len(one))[: len(one) // num * num].reshape(-1, num)
    return float(np.mean([sliced_w2(one[rows], other) for rows in sets]))


def run_modes(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Of each seed, over `draws` runs on its data: both modes kept, error of a mode's mass and of the whole, time."""
    name, num = settings["arm"], settings["particles"]
    num_steps, num_ascents, memory = ARMS[name]

    def infer_one(key: Array, data: Array) -> Array:
        prior_key, key = jax.random.split(key)
        prior = jnp.asarray(PRIOR_MEAN) + jnp.asarray(PRIOR_STD) * jax.random.normal(prior_key, (num, 2))
        return infer(
            key, log_posterior(data), prior,
            slices=lambda key: jax.random.normal(key, (8, 2)), defining=Linear(), num_rounds=NUM_ROUNDS,
            num_steps=num_steps, num_ascents=num_ascents, per_particle=PER_PARTICLE, memory=memory,
        ).particles  # fmt: skip

    run = jax.jit(infer_one)
    measures = ("kept", "mass_error", "sliced", "ratio", "ms")
    scores: dict[str, list[float]] = {measure: [] for measure in measures}
    for seed in seeds:
        data, reference = observe(seed), _reference(seed)
        flat = reference.reshape(-1, 2)
        mass = float(np.mean(flat[:, 0] > 0))
        found = [np.asarray(run(key, data)) for key in jax.random.split(jax.random.key(seed), settings["draws"])]
        positive = np.array([np.mean(x[:, 0] > 0) for x in found])
        scores["kept"].append(float(np.mean((positive > 0) & (positive < 1))))
        scores["mass_error"].append(float(np.sqrt(np.mean((positive - mass) ** 2))))
        scores["sliced"].append(float(np.mean([sliced_w2(x, flat) for x in found])))
        scores["ratio"].append(scores["sliced"][-1] / _split_half(reference, num))
        scores["ms"].append(milliseconds(lambda seed=seed, data=data: run(jax.random.key(seed), data), 5))
    on_progress(f"{name}, P = {num}: both modes in {np.mean(scores['kept']):.2f}, {np.mean(scores['sliced']):.3f}")
    return {"arm": name, "setting": f"P = {num}", "seed_numbers": list(seeds), **scores}
