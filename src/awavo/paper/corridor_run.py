r"""The split corridor: two equal gaps in a wall, one of which may close; who has few particles must keep both in mind.

.. code-block:: text

    a point mass as in `navigation`; wall at |x| < 0.15 with gaps at y = -GAP and y = +GAP, goal behind it
    at a random step before it the gap that is headed for, or the other, closes; the state shows which are open
    model exact, no learnt actor or critic: K candidates a decision, P particles of q from one step to the next

All arms share the likelihood, the rule of the temperature and noise that lasts; they differ in how K weighted
candidates become the next q and an action. MPPI keeps a mean, CEM a mean and a spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from awavo.inference.ensemble import Prediction
from awavo.inference.planner import EFFECTIVE_SHARE, PlanningModel, planner, predicted_steps
from awavo.inference.sequences import PlanningConfig, candidate_noise, sequences, slice_shape
from awavo.inference.wvi import tempered_weights
from awavo.networks.distributions import SquashedGaussian
from awavo.paper.arms import milliseconds
from awavo.paper.job import JobSettings, Progress, ResultRow
from awavo.types import Box, EnvSpec

__all__ = ["ARMS", "Episode", "episode", "run_corridor", "score_flights", "start_flight"]

GAP, HALF_WIDTH, WALL, GOAL = 0.7, 0.22, 0.15, 1.5
TIME_STEP, NOISE, LENGTH, HORIZON = 0.1, 0.1, 80, 20
CLOSES = (4, 11)  # the step at which a gap closes: early enough to stop before the wall
# A step in the wall costs more than a whole flight, or speed buys it; the rest of the way, in the last rewards.
COST_WEIGHT, AHEAD = 10.0, 10.0
SPACE = Box((-1.0, -1.0), (1.0, 1.0))
SPEC = EnvSpec("corridor", 6, SPACE, LENGTH, ("wall",), (0.0,))
ARMS: dict[str, dict[str, object]] = {
    "resampling": {"metric": "kl"},
    "random slices": {"slices": "random"},
    "ascended slices": {},
    "ascended, degree 3": {"degree": 3},
    "MPPI": {},
    "CEM": {},
}
Act = Callable[[Array, Array, Array], tuple[Array, Array]]


class Episode(NamedTuple):
    """What happened: steps in the wall, return, whether the gap ahead closed, whether the goal's side was reached."""

    hits: Float[Array, ""]
    reward: Float[Array, ""]
    had_to_turn: Float[Array, ""]
    through: Float[Array, ""]


def move(
    obs: Float[Array, "... 6"], action: Float[Array, "... 2"], noise: float | Array = 0.0
) -> Float[Array, "... 6"]:
    """One step of the point mass; the gaps stay as they are."""
    velocity = obs[..., 2:4] + TIME_STEP * (jnp.clip(action, -1.0, 1.0) + noise)
    return jnp.concatenate([obs[..., :2] + TIME_STEP * velocity, velocity, obs[..., 4:]], -1)


def in_wall(obs: Float[Array, "... 6"]) -> Float[Array, "..."]:
    """1 inside the wall; an open gap is no wall."""
    x, y = obs[..., 0], obs[..., 1]
    lower = (jnp.abs(y + GAP) < HALF_WIDTH) & (obs[..., 4] > 0.5)
    upper = (jnp.abs(y - GAP) < HALF_WIDTH) & (obs[..., 5] > 0.5)
    return ((jnp.abs(x) < WALL) & ~lower & ~upper).astype(jnp.float32)


def reward_of(obs: Float[Array, "... 6"]) -> Float[Array, "..."]:
    """The length of the way that is left, each step: before the wall through the nearest open gap."""
    x, y = obs[..., 0], obs[..., 1]

    def length(across: Array | float, along: Array) -> Array:
        return jnp.sqrt(across**2 + along**2 + 1e-9)

    through = [
        jnp.where(obs[..., 4 + side] > 0.5, length(x, y - gap) + length(GOAL, jnp.asarray(gap)), jnp.inf)
        for side, gap in enumerate((-GAP, GAP))
    ]
    return -0.1 * jnp.where(x < 0, jnp.minimum(*through), length(x - GOAL, y))


def _predict(obs: Array, action: Array) -> Prediction:
    reached = move(obs, action)
    zero = jnp.zeros(reached.shape[:-1])
    return Prediction(reached, jnp.zeros_like(reached), reward_of(reached), in_wall(reached)[..., None], zero)


def _likelihood(signals: Float[Array, "... 2"]) -> Float[Array, "..."]:
    return signals[..., 0] - COST_WEIGHT * signals[..., 1]


def _model() -> PlanningModel:
    def values(obs: Float[Array, "... 6"]) -> Float[Array, "... 2"]:
        return jnp.stack([AHEAD * reward_of(obs), jnp.zeros(obs.shape[:-1])], -1)

    def policy(obs: Float[Array, "... 6"]) -> SquashedGaussian:
        mean = jnp.zeros((*obs.shape[:-1], 2))
        return SquashedGaussian(mean, jnp.zeros_like(mean), jnp.asarray(SPACE.low), jnp.asarray(SPACE.high))

    return PlanningModel(*predicted_steps(_predict), jnp.zeros(1), policy, values, _likelihood)


def _by_inference(config: PlanningConfig) -> tuple[Act, Array]:
    decide, distributions, model = planner(SPEC, config), sequences(SPACE, config), _model()

    def act(key: Array, obs: Array, plan: Array) -> tuple[Array, Array]:
        plan_key, slice_key, pick_key = jax.random.split(key, 3)
        slices = jax.random.normal(slice_key, slice_shape(SPACE, config))
        found = decide(plan_key, model, obs, plan, slices).plan
        return distributions.pick(pick_key, found, True), found

    return act, distributions.start()


def _score(obs: Array, actions: Float[Array, "K N 2"]) -> Float[Array, " K"]:
    """The likelihood of the planner above, for whole sequences."""
    model = _model()

    def follow(state: Array, action: Array) -> tuple[Array, Array]:
        reached = move(state, action)
        return reached, jnp.stack([reward_of(reached), in_wall(reached)], -1)

    start = jnp.broadcast_to(obs, (actions.shape[0], 6))
    last, signals = jax.lax.scan(follow, start, jnp.swapaxes(actions, 0, 1))
    discounts = 0.99 ** jnp.arange(HORIZON)
    total = jnp.einsum("n,nks->ks", discounts, signals) + 0.99**HORIZON * model.values(last)
    return _likelihood(total)


def _by_mean(config: PlanningConfig, rounds: int) -> tuple[Act, Array]:
    """MPPI with one round; CEM with several, each around the mean and spread of the best tenth before."""
    num = config.num_sequences // rounds

    def act(key: Array, obs: Array, plan: Array) -> tuple[Array, Array]:
        mean = jnp.concatenate([plan[1:], plan[-1:]])
        spread = jnp.full_like(mean, 0.5)
        for key_ in jax.random.split(key, rounds):
            noise = jnp.swapaxes(candidate_noise(key_, (HORIZON, num, 2)), 0, 1)
            drawn = jnp.clip(mean + spread * noise, -1.0, 1.0)
            score = _score(obs, drawn)
            if rounds == 1:
                weights = tempered_weights(score, max(EFFECTIVE_SHARE * num, 1.0))[0]
            else:
                weights = (score >= jnp.quantile(score, 0.9)).astype(jnp.float32)
                weights = weights / weights.sum()
            mean = jnp.einsum("k,knd->nd", weights, drawn)
            spread = jnp.sqrt(jnp.einsum("k,knd->nd", weights, (drawn - mean) ** 2)) + 0.05
        return mean[0], mean

    return act, jnp.zeros((HORIZON, 2))


def arm(name: str, num_particles: int, num_sequences: int) -> tuple[Act, Array]:
    """`act(key, obs, plan) -> (action, plan)` of an arm, and the first plan."""
    sizes = PlanningConfig(horizon=HORIZON, num_particles=num_particles, num_sequences=num_sequences, **ARMS[name])  # pyright: ignore[reportArgumentType]
    if name in ("MPPI", "CEM"):
        return _by_mean(sizes, 1 if name == "MPPI" else 3)
    return _by_inference(sizes)


def start_flight(keys: Array) -> tuple[Array, Callable[[Array, Array, Array], tuple[Array, Array]], Array]:
    """From three keys the first state, what closes a gap, and whether it will be the one ahead, as in half of flights.

    `closes(obs, count, ahead) -> (obs with its gaps as they are now, whether one just closed)`; ahead is by the sign of
    where y will be a moment later.
    """
    place_key, close_key, side_key = keys
    place = jnp.asarray([-1.5, 0.0]) + 0.1 * jax.random.uniform(place_key, (2,), minval=-1.0, maxval=1.0)
    when = jax.random.randint(close_key, (), *CLOSES)

    def closes(obs: Array, count: Array, ahead: Array) -> tuple[Array, Array]:
        upper = (obs[1] + obs[3] > 0) == ahead
        now = (count == when) & (obs[0] < -WALL)
        gaps = jnp.where(now, jnp.where(upper, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])), obs[4:])
        return jnp.concatenate([obs[:4], gaps]), now

    return jnp.concatenate([place, jnp.zeros(2), jnp.ones(2)]), closes, jax.random.bernoulli(side_key)


def episode(act: Act, first: Array, key: Array) -> Episode:
    """Fly once."""
    *start_keys, key = jax.random.split(key, 4)
    obs, closes, ahead = start_flight(jnp.stack(start_keys))

    def step(carry: tuple[Array, ...], inputs: tuple[Array, Array]) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        obs, plan, turned = carry
        count, key = inputs
        act_key, noise_key = jax.random.split(key)
        obs, now = closes(obs, count, ahead)
        action, plan = act(act_key, obs, plan)
        reached = move(obs, action, NOISE * jax.random.normal(noise_key, (2,)))
        return (reached, plan, turned | (now & ahead)), (in_wall(reached), reward_of(reached))

    begin, steps = (obs, first, jnp.asarray(False)), (jnp.arange(LENGTH), jax.random.split(key, LENGTH))
    (last, _, turned), (hits, rewards) = jax.lax.scan(step, begin, steps)
    return Episode(hits.sum(), rewards.sum(), turned.astype(jnp.float32), (last[0] > WALL).astype(jnp.float32))


def score_flights(done: Episode, scores: dict[str, list[float | None]]) -> None:
    """Add one seed's flights: the share that hit the wall, the mean return, the share that turned and passed."""
    turned = np.asarray(done.had_to_turn) > 0
    good = (np.asarray(done.hits) == 0) & (np.asarray(done.through) > 0)
    scores["hit"].append(float(np.mean(np.asarray(done.hits) > 0)))
    scores["return"].append(float(np.mean(done.reward)))
    scores["replanned"].append(float(good[turned].mean()) if turned.any() else None)


def run_corridor(
    settings: JobSettings, seeds: Sequence[int], *, on_progress: Progress = lambda line: None, **_: object
) -> ResultRow:
    """Hits, returns and re-plans of every seed, each with `episodes` flights, and the milliseconds of a decision."""
    act, first = arm(settings["arm"], settings["particles"], settings["sequences"])
    fly = jax.jit(lambda keys: jax.lax.map(lambda key: episode(act, first, key), keys))
    scores: dict[str, list[float | None]] = {name: [] for name in ("hit", "return", "replanned", "ms")}
    decide = jax.jit(act)
    obs = jnp.asarray([-1.5, 0.0, 0.0, 0.0, 1.0, 1.0])
    for seed in seeds:
        done = fly(jax.random.split(jax.random.key(seed), settings["episodes"]))
        score_flights(done, scores)
        scores["ms"].append(milliseconds(lambda seed=seed: decide(jax.random.key(seed), obs, first)))
        on_progress(f"{settings['arm']}, seed {seed}: {scores['hit'][-1]:.2f} hit")
    about = {"arm": settings["arm"], "setting": f"P = {settings['particles']}", "sequences": settings["sequences"]}
    return {**about, "seed_numbers": list(seeds), **scores}
