r"""Amortisation: a small policy fitted to stored posteriors of the split corridor, then flown without a planner.

.. code-block:: text

    store   a planner flies the corridor; kept are the states and the particles of their first action, both ways in them
    fit     the same network, steps and batches in every arm, which differ in what is descended:
            likelihood  - mean log pi(a) over the particles (forward KL: covers)
            slices      A-GSWD between draws of pi and the particles, along slices drawn anew for every state, or
                        ascended there, straight or cubic
    fly     the policy alone, its heaviest component; no plan, no model

One Gaussian has to put its mean between two ways; a mixture can keep them apart if what fits it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.inference.clouds import policy_cloud, to_box
from awavo.inference.sequences import ORDER
from awavo.networks.distributions import ActionDistribution, Categorical
from awavo.networks.optimize import adam, descend, optimizer_state
from awavo.networks.policy import Actor, actor
from awavo.paper.corridor_run import LENGTH, NOISE, SPACE, Act, arm, episode, move, score_flights, start_flight
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.transport import adaptive_gswd
from awavo.transport.ascent import ascend_slices
from awavo.transport.defining import Defining, Linear, Polynomial

__all__ = ["ARMS", "run_amortisation"]

# Flights stored, and the planner that flies them; how much its actions are disturbed, so that states differ.
FLIGHTS, SEQUENCES, PARTICLES, DISTURBANCE = 24, 256, 32, 0.3
HIDDEN, BATCH, LEARNING_RATE, NUM_SLICES, ASCENTS = (64, 64), 64, 1e-3, 4, 2


class Arm(NamedTuple):
    """Components of the policy, and what fits it; slices of 0 ascents are drawn and stay."""

    components: int
    likelihood: bool = False
    ascents: int = 0
    defining: Defining = Linear()


ARMS = {
    "one Gaussian, likelihood": Arm(1, likelihood=True),
    "one Gaussian, ascended slices": Arm(1, ascents=ASCENTS),
    "mixture, likelihood": Arm(3, likelihood=True),
    "mixture, random slices": Arm(3),
    "mixture, ascended slices": Arm(3, ascents=ASCENTS),
    "mixture, ascended, degree 3": Arm(3, ascents=ASCENTS, defining=Polynomial(3)),
    # With as many steps as fit into the time that ascended slices take.
    "mixture, likelihood, equal time": Arm(3, likelihood=True),
    "mixture, random slices, equal time": Arm(3),
}
PLANNER = "the planner itself"


class Stored(NamedTuple):
    """States, and the particles of their first action in [-1, 1]."""

    obs: Float[Array, "N 6"]
    first: Float[Array, "N P 2"]


def store_posteriors(seed: int) -> Stored:
    """Fly with a planner, one flight after the other."""
    act, first = arm("resampling", PARTICLES, SEQUENCES)

    def flight(key: Array) -> Stored:
        *start_keys, key = jax.random.split(key, 4)
        obs, closes, ahead = start_flight(jnp.stack(start_keys))

        def step(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Stored]:
            obs, plan = carry
            count, key = inputs
            act_key, noise_key, hand_key = jax.random.split(key, 3)
            obs = closes(obs, count, ahead)[0]
            action, plan = act(act_key, obs, plan)
            action = action + DISTURBANCE * jax.random.normal(hand_key, (2,))
            reached = move(obs, action, NOISE * jax.random.normal(noise_key, (2,)))
            return (reached, plan), Stored(obs, plan[:, 0])

        return jax.lax.scan(step, (obs, first), (jnp.arange(LENGTH), jax.random.split(key, LENGTH)))[1]

    rows = jax.jit(lambda keys: jax.lax.map(flight, keys))(jax.random.split(jax.random.key(seed), FLIGHTS))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


def loss_of(chosen: Arm) -> Callable[[Array, ActionDistribution, Array], Float[Array, ""]]:
    """What an arm descends: `loss(key, policy in B states, their particles)`."""

    def likelihood(key: Array, dist: ActionDistribution, first: Float[Array, "B P 2"]) -> Float[Array, ""]:
        # The box's edges have no density: a particle there is taken a little inside.
        inside = to_box(SPACE, 0.999 * jnp.swapaxes(first, 0, 1))
        return -jnp.mean(jax.vmap(dist.log_prob)(inside))

    def sliced(key: Array, dist: ActionDistribution, first: Float[Array, "B P 2"]) -> Float[Array, ""]:
        assert not isinstance(dist, Categorical)
        draw_key, slice_key = jax.random.split(key)
        points, shares = policy_cloud(draw_key, dist, PARTICLES, SPACE)
        count = chosen.defining.num_coefficients(2)
        slices = jax.random.normal(slice_key, (first.shape[0], NUM_SLICES, count))

        def one(x: Array, w: Array, y: Array, rows: Array) -> Array:
            if chosen.ascents:
                rows = ascend_slices(x, y, rows, x_weights=w, defining=chosen.defining, num_steps=chosen.ascents)
            return adaptive_gswd(x, y, rows, x_weights=w, defining=chosen.defining, order=ORDER)

        return jnp.mean(jax.vmap(one)(points, shares, first, slices))

    return likelihood if chosen.likelihood else sliced


def fitter(chosen: Arm, steps: int) -> Callable[[Array, Stored], tuple[Actor, Float[Array, ""]]]:
    """`fit(key, stored) -> (policy, last losses)`."""
    optimizer, loss = adam(LEARNING_RATE, 10.0), loss_of(chosen)

    def fit(key: Array, stored: Stored) -> tuple[Actor, Float[Array, ""]]:
        policy = actor(key, 6, SPACE, HIDDEN, chosen.components)

        def step(carry, key):
            policy, opt = carry
            row_key, loss_key = jax.random.split(key)
            rows = jax.random.randint(row_key, (BATCH,), 0, stored.obs.shape[0])
            value, grads = jax.value_and_grad(lambda p: loss(loss_key, p(stored.obs[rows]), stored.first[rows]))(policy)
            return descend(optimizer, grads, opt, policy), value

        begin = (policy, optimizer_state(optimizer, policy))
        (policy, _), losses = jax.lax.scan(step, begin, jax.random.split(key, steps))
        return policy, jnp.mean(losses[-steps // 10 :])

    return fit


def _flown(policy: Actor) -> tuple[Act, Array]:
    def act(key: Array, obs: Array, plan: Array) -> tuple[Array, Array]:
        return policy(obs).mode(), plan

    return act, jnp.zeros(1)


def run_amortisation(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Hits, return and re-plans of every seed's policy in `episodes` flights, and the seconds it took to fit."""
    name = settings["arm"]
    keys = {seed: jax.random.split(jax.random.key(seed), settings["episodes"]) for seed in seeds}
    scores: dict[str, list[float | None]] = {measure: [] for measure in ("hit", "return", "replanned", "fit_s")}
    if name == PLANNER:
        act, first = arm("resampling", PARTICLES, SEQUENCES)
        planned = jax.jit(lambda keys: jax.lax.map(lambda key: episode(act, first, key), keys))
        for seed in seeds:
            score_flights(planned(keys[seed]), scores)
            scores["fit_s"].append(0.0)
    else:
        fit = jax.jit(fitter(ARMS[name], settings["steps"]))
        alone = jax.jit(lambda policy, keys: jax.lax.map(lambda key: episode(*_flown(policy), key), keys))
        stored = [store_posteriors(seed) for seed in seeds]
        jax.block_until_ready(fit(jax.random.key(0), stored[0]))  # compiling is no fitting
        for seed, rows in zip(seeds, stored, strict=True):
            began = time.perf_counter()
            policy, _ = jax.block_until_ready(fit(jax.random.key(seed), rows))
            scores["fit_s"].append(time.perf_counter() - began)
            score_flights(alone(policy, keys[seed]), scores)
    about = {"arm": name, "setting": f"{FLIGHTS} flights stored", "steps": settings["steps"]}
    on_progress(f"{name}: {np.mean(np.asarray(scores['hit'], float)):.2f} hit")
    return {**about, "seed_numbers": list(seeds), **scores}
