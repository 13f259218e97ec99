r"""Infer trajectory and parameters of a local system on a ring or grid from part of its states, with uncertainty.

One pass: (1) annealed projection of the data: q falls from `anneal[0]` to the search's `floor`; (2) the search for
modes at that q, and again where the tightened model shows a region that misfits; (3) the posterior at `model_noise`:
marginal standard deviations and an ensemble, whose members are W2 projections of noise-augmented data. A tighter model
while searching converges more slowly across patches. Joined steps (`trajectories`) end each stage whose misfits are
looked at: of patches alone, sites would misfit where two meet. On long rings the steps that follow a search of few
regions are taken around these only (`nearby`).
Everything is a projection of the WVI engine (`projection`). Stages are separate calls, so that a run can be stopped
between any two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from awavo.assimilation.engine import Engine, Settings
from awavo.assimilation.modes import (
    STARTS_PER_JOIN,
    believed_sites,
    local_chi2,
    segment_length,
    segments_around,
    segments_at_once,
    sites_near,
    unseen_holes,
)  # fmt: skip
from awavo.assimilation.nearby import Patches
from awavo.assimilation.trajectories import Data, Step

__all__ = ["AssimilationState", "Posterior", "assimilate", "first_state", "num_stages", "suspicious"]

# Sites by which segments are moved at random from round to round.
SHIFT = 3
# Steps at the end with the tightest model, of patches alone and joined.
TIGHTENING, JOINING = 4, 6
# Searches more at most where a few regions misfit at the end beyond chance, and where it may be chance or they are
# many: of many, what can be regained is so at once (10,000 states: the same error after one as after three).
SEARCHES_AGAIN, ONCE_MORE, FEW_REGIONS = 3, 1, 4
# A rise of the local chi2 by which joined steps are known to swing, and the share of the sites up to which only the
# regions around these go back to what patches alone found: where more swing, joined steps do not converge.
SWING, CALM = 0.5, 0.002
# Segments up to which a search again begins with the most starts: fewer missed a mode of a thousand states.
FEW_SEGMENTS = 16


class AssimilationState(NamedTuple):
    """How far an inference has come: all that is needed to resume it.

    `tries` counts the searches of each site. `changed` are the sites searched since the model was last tightened; None
    stands for the whole ring, and always does where no steps are taken `nearby`.
    """

    x: Float[Array, "T I"]
    theta: Float[Array, " p"]
    stage: int
    tries: Int[np.ndarray, " I"]
    changed: Bool[np.ndarray, " I"] | None = None


class Posterior(NamedTuple):
    """Mean and standard deviation of every state, draws around the mean, and the parameters with covariance.

    Where a site is not `believed`, as the observations around it do not fit, a ring has none around it or its spread is
    not finite, its standard deviations are at least the prior's; mean and draws stay those of the mode that was found.
    """

    mean: Float[np.ndarray, "T I"]
    std: Float[np.ndarray, "T I"]
    draws: Float[np.ndarray, "r T I"]
    theta: Float[np.ndarray, " p"]
    theta_cov: Float[np.ndarray, "p p"]
    chi2: Float[np.ndarray, " I"]
    believed: Bool[np.ndarray, " I"]


def num_stages(settings: Settings, searched: bool) -> int:
    """Stages of a whole run at most, the posterior included; `searched` where there is a search for modes."""
    rounds = (settings.search.rounds + 1) * (SEARCHES_AGAIN + 1) if searched and settings.search.rounds else 0
    return len(settings.anneal) + settings.polish + rounds + 1


def _explore(engine: Engine, data: Data, number: int, x: Array, theta: Array, firsts: np.ndarray) -> tuple[Array, int]:
    """Search all segments, some at a time; return x and how many found better."""
    search, settings = engine.search, engine.settings
    assert search is not None
    changed: list[tuple[np.ndarray, Array]] = []
    before = number - len(settings.anneal) - settings.polish
    if len(firsts) > FEW_SEGMENTS:  # of many, searched again, most need few starts
        before %= settings.search.rounds + 1
    starts = settings.search.starts[min(before, len(settings.search.starts) - 1)]
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    shift = np.random.default_rng(number).integers(-SHIFT, SHIFT + 1, len(firsts))
    firsts = (firsts + shift) % x.shape[1]
    for begin, count in segments_at_once(len(firsts), starts, settings.search.slots):
        # Places left over share the starts of the same segments, not below what makes one mosaic.
        chosen = np.resize(firsts[begin : begin + count], count)
        shared = -(-starts * len(firsts[begin : begin + count]) // count)
        tried = jnp.asarray(max(shared, min(starts, STARTS_PER_JOIN)), jnp.int32)
        x, better = search(data, jax.random.fold_in(key, begin), tried, x, theta, jnp.asarray(chosen))
        changed.append((chosen, better))
    return x, len(np.unique(np.concatenate([chosen[np.asarray(better)] for chosen, better in changed])))


def _advance(
    engine: Engine,
    data: Data,
    x: Array,
    theta: Array,
    q: float,
    alone: int = 1,
    joined: int = 0,
    near: Patches | None = None,
) -> tuple[Array, Array]:
    """Take steps of patches alone, then joined ones; where these swing, what patches alone found stays.

    All patches take them, or those `near` what has changed.
    """
    x, theta = apart = _steps(engine, data, x, theta, q, 0, alone, near)
    if not joined or not engine.joins:
        return apart
    x, theta = _steps(engine, data, x, theta, q, 1, joined, near)
    swings = ~(_local_chi2(engine, data, x, theta) <= np.maximum(_local_chi2(engine, data, *apart), 1.0) + SWING)
    if swings.mean() > CALM:
        return apart
    back = sites_near(swings, engine.settings.core + 2 * engine.settings.margin)
    return jnp.where(jnp.asarray(back), apart[0], x), theta


def _steps(
    engine: Engine, data: Data, x: Array, theta: Array, q: float, joined: int, count: int, near: Patches | None
) -> tuple[Array, Array]:
    noise, kind = jnp.asarray(q, x.dtype), jnp.asarray(joined, x.dtype)
    for _ in range(count):
        if near is None or engine.nearby is None:
            x, theta = engine.advance(data, x, theta, noise, kind)
        else:
            x = engine.nearby.advance(data, x, theta, noise, kind, near)
    return x, theta


def _near(engine: Engine, changed: np.ndarray | None) -> Patches | None:
    """The patches around what has changed, where steps of these alone are taken."""
    return None if engine.nearby is None or changed is None else engine.nearby.choose(changed)


def _local_chi2(engine: Engine, data: Data, x: Array, theta: Array) -> Float[np.ndarray, " I"]:
    return _judged(engine, data, x, theta)[0]


def _judged(
    engine: Engine, data: Data, x: Array, theta: Array
) -> tuple[Float[np.ndarray, " I"], Bool[np.ndarray, " I"]]:
    """Local chi2, and the sites to believe."""
    cost, count = (np.asarray(a, float) for a in engine.chi2(data, x, theta))
    window = engine.settings.search.window
    return local_chi2(cost, count, window), believed_sites(cost, count, window)


def _suspects(engine: Engine, chi2: np.ndarray, tries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First sites of the segments to search, and for every site whether it is searched."""
    search, num = engine.settings.search, len(chi2)
    length = segment_length(num, search)
    # Each search that a site has seen raises what is tolerated there, as some exceed it by chance.
    bad = chi2 > np.minimum(search.threshold * search.patience**tries, search.certain)
    # 8 less than the inner sites: a segment that is shifted by SHIFT either way still holds its region.
    firsts = segments_around(bad, length, length - 2 * search.border - 8)
    searched = np.zeros(num, bool)
    searched[(firsts[:, None] + np.arange(search.border, length - search.border)) % num] = True
    return firsts, searched


def suspicious(sites: int, count: float, window: int) -> float:
    """The local chi2 that about one lattice of this size in ten has somewhere by chance, and most wrong modes have."""
    beyond = 1.1 * np.sqrt(2 * np.log(max(sites / 5, 2.0)))
    inside = count / sites * min(2 * window + 1, sites)
    return float(1 + beyond * np.sqrt(2 / max(inside, 1.0)))


def _regions(wrong: np.ndarray) -> int:
    """Runs of wrong sites around the ring."""
    return int(np.count_nonzero(wrong & ~np.roll(wrong, 1))) or int(wrong.all())


def _doubt(engine: Engine, data: Data) -> float:
    return suspicious(data.value.shape[1], float((data.weight > 0).sum()), engine.settings.search.window)


def first_state(data: Data, theta: Float[np.ndarray, " p"]) -> AssimilationState:
    """Begin at the observations, and at the prior's mean where there is none."""
    start = jnp.where(data.weight > 0, data.value, data.prior_mean)
    start = jnp.concatenate([start[:1], start])
    return AssimilationState(start, jnp.asarray(theta, start.dtype), 0, np.zeros(start.shape[1], np.int32))


def assimilate(
    engine: Engine, data: Data, state: AssimilationState
) -> Iterator[tuple[AssimilationState | Posterior, str]]:
    """Yield `(state, text)` after every stage; the last item is `(posterior, text)`.

    A state may be stored and handed in again: what follows is the same as if nothing had stopped.
    """
    settings, (x, theta, stage, tries, changed) = engine.settings, state
    held = max(settings.search.floor, settings.model_noise)
    schedule = [*settings.anneal, *[held] * settings.polish]
    while stage < len(schedule):
        q = max(schedule[stage], settings.model_noise)
        x, theta = _advance(engine, data, x, theta, q, joined=int(stage >= len(settings.anneal)))
        stage += 1
        yield AssimilationState(x, theta, stage, tries), f"annealing, q = {q:g}"
    # A search is some rounds and, as one more stage, the tightening of the model, after which it is judged.
    length = 1 + (settings.search.rounds if engine.search is not None else 0)
    while True:
        search = (stage - len(schedule)) // length
        last = len(schedule) + search * length + length - 1
        while stage < last:
            firsts, searched = _suspects(engine, _local_chi2(engine, data, x, theta), tries)
            if len(firsts) == 0:
                break
            x, better = _explore(engine, data, stage, x, theta, firsts)
            near = _near(engine, searched)
            x, theta = _advance(engine, data, x, theta, held, joined=1, near=near)
            stage, tries = stage + 1, tries + searched.astype(np.int32)
            changed = None if near is None or changed is None else changed | searched
            yield AssimilationState(x, theta, stage, tries, changed), f"modes: {len(firsts)} regions, {better} better"
        near = _near(engine, changed)
        x, theta = _advance(engine, data, x, theta, settings.model_noise, TIGHTENING, JOINING, near)
        chi2, believed = _judged(engine, data, x, theta)
        worst = float(chi2.max())
        searches = SEARCHES_AGAIN if 0 < _regions(~believed) <= FEW_REGIONS else ONCE_MORE
        doubt = _doubt(engine, data)
        if length == 1 or search >= searches or worst <= doubt:
            break
        # Anew around what misfits; elsewhere with the patience that the searches before have left.
        misfits = sites_near(chi2 > doubt, segment_length(len(tries), settings.search))
        stage, tries = last + 1, np.where(misfits, 0, tries).astype(tries.dtype)
        changed = None if engine.nearby is None else np.zeros(len(tries), bool)
        yield AssimilationState(x, theta, stage, tries, changed), f"local chi2 {worst:.2f}: searching again"
    key = jax.random.fold_in(jax.random.key(settings.seed), 10_000)  # beyond every stage's number
    end = engine.finish(data, key, x, theta)
    if len(engine.lattice.shape) == 1:
        believed &= ~unseen_holes(np.asarray((data.weight > 0).sum(0)), settings.search.window)
    yield _posterior(engine, data, x, theta, chi2, believed, end), "posterior"


def _posterior(
    engine: Engine, data: Data, x: Array, theta: Array, chi2: np.ndarray, believed: np.ndarray, end: Step
) -> Posterior:
    # The states are those of the joined steps; the last one, of patches alone, is for the spread around them.
    mean, variance, draws = (np.asarray(a) for a in (x, end.variance, end.draws))
    # A patch far off may break down there: the others are not lost for it.
    finite = np.isfinite(variance).all(0) & np.isfinite(draws).all((0, 1))
    inferred, believed = engine.settings.infer_theta, believed & finite
    covariance = np.asarray(end.theta_cov) if inferred else np.zeros((len(theta),) * 2)
    std, prior = np.sqrt(np.maximum(np.where(finite, variance, 0.0), 0.0)), np.sqrt(np.asarray(data.prior_var))
    return Posterior(
        mean, np.where(believed, std, np.maximum(std, prior)), mean + np.where(finite, draws, 0.0), np.asarray(theta),
        covariance, chi2, believed,
    )  # fmt: skip
