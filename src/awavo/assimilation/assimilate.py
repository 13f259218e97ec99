r"""Infer trajectory and parameters of a local system on a ring or grid from part of its states, with uncertainty.

One pass: (1) annealed projection of the data: q falls from `anneal[0]` to the search's `floor`; (2) the search for
modes at that q, and again where the tightened model shows a region that misfits; (3) the posterior at `model_noise`:
marginal standard deviations and an ensemble, whose members are W2 projections of noise-augmented data. A tighter model
while searching converges more slowly across patches.
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
)  # fmt: skip
from awavo.assimilation.trajectories import Data, Step

__all__ = ["AssimilationState", "Posterior", "assimilate", "first_state", "num_stages", "suspicious"]

# Sites by which segments are moved at random from round to round, and steps at the end with the tightest model.
SHIFT, TIGHTENING = 3, 3
# Searches more at most where a few regions misfit at the end beyond chance, and where it may be chance or they are
# many: of many, what can be regained is so at once (10,000 states: the same error after one as after three).
SEARCHES_AGAIN, ONCE_MORE, FEW_REGIONS = 3, 1, 4
# Segments up to which a search again begins with the most starts: fewer missed a mode of a thousand states.
FEW_SEGMENTS = 16
# The local chi2 up to which a misfit may be that of a seam.
SEAM = 3.0
# What a search that ended well adds to a site's counter of searches, and what says that it is not searched: all three
# live in one number.
FIT, ALONE = 1000, 1_000_000


class AssimilationState(NamedTuple):
    """How far an inference has come: all that is needed to resume it.

    `tries` counts the searches of each site, and FIT more for each after which it fitted; ALONE is for sites that a
    search again leaves out.
    """

    x: Float[Array, "T I"]
    theta: Float[Array, " p"]
    stage: int
    tries: Int[np.ndarray, " I"]


class Posterior(NamedTuple):
    """Mean and standard deviation of every state, draws around the mean, and the parameters with covariance.

    Where a site is not `believed`, as the observations around it do not fit or its last step was not finite, its
    standard deviations are at least the prior's; mean and draws stay those of the mode that was found. Sites of `seams`
    fitted when their region was solved as one: where they misfit all the same, patches meet, and few of these are in a
    wrong mode.
    """

    mean: Float[np.ndarray, "T I"]
    std: Float[np.ndarray, "T I"]
    draws: Float[np.ndarray, "r T I"]
    theta: Float[np.ndarray, " p"]
    theta_cov: Float[np.ndarray, "p p"]
    chi2: Float[np.ndarray, " I"]
    believed: Bool[np.ndarray, " I"]
    seams: Bool[np.ndarray, " I"]


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


class _Judged(NamedTuple):
    """Local chi2, the sites to believe, and the seams as `tries` tell them."""

    chi2: Float[np.ndarray, " I"]
    believed: Bool[np.ndarray, " I"]
    seams: Bool[np.ndarray, " I"]


def _local_chi2(engine: Engine, data: Data, x: Array, theta: Array) -> Float[np.ndarray, " I"]:
    cost, count = (np.asarray(a, float) for a in engine.chi2(data, x, theta))
    return local_chi2(cost, count, engine.settings.search.window)


def _judge(engine: Engine, data: Data, x: Array, theta: Array, tries: np.ndarray) -> _Judged:
    cost, count = (np.asarray(a, float) for a in engine.chi2(data, x, theta))
    window = engine.settings.search.window
    chi2 = local_chi2(cost, count, window)
    return _Judged(chi2, believed_sites(cost, count, window), _seams(chi2, tries))


def _seams(chi2: np.ndarray, tries: np.ndarray) -> Bool[np.ndarray, " I"]:
    """Sites that fitted when they were searched, with what is around them: if patches misfit there, their seams do."""
    return (tries % ALONE >= FIT) & (chi2 <= SEAM)


def _fitting(engine: Engine, tries: np.ndarray) -> Float[np.ndarray, " I"]:
    """The local chi2 up to which a site fits: each search raises it, as some exceed it by chance."""
    search = engine.settings.search
    return np.minimum(search.threshold * search.patience ** (tries % FIT), search.certain)


def _tolerated(engine: Engine, tries: np.ndarray) -> Float[np.ndarray, " I"]:
    """The local chi2 up to which a site is not searched (again)."""
    return np.where(tries >= 2 * FIT, np.inf, _fitting(engine, tries))


def _suspects(engine: Engine, chi2: np.ndarray, tries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First sites of the segments to search, and for every site whether it is searched."""
    search, num = engine.settings.search, len(chi2)
    length = segment_length(num, search)
    bad = chi2 > _tolerated(engine, tries)
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
    settings, (x, theta, stage, tries) = engine.settings, state
    held = max(settings.search.floor, settings.model_noise)
    schedule = [*settings.anneal, *[held] * settings.polish]
    while stage < len(schedule):
        q = max(schedule[stage], settings.model_noise)
        x, theta = engine.advance(data, x, theta, jnp.asarray(q, x.dtype))
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
            x, changed = _explore(engine, data, stage, x, theta, firsts)
            # Where segments fit, twice, and patches then do not, the seams of the patches are at fault, not the mode.
            fits = _local_chi2(engine, data, x, theta) <= _fitting(engine, tries)
            x, theta = engine.advance(data, x, theta, jnp.asarray(held, x.dtype))
            stage, tries = stage + 1, tries + (searched * (1 + FIT * fits)).astype(np.int32)
            yield AssimilationState(x, theta, stage, tries), f"modes: {len(firsts)} regions, {changed} better"
        for _ in range(TIGHTENING):
            x, theta = engine.advance(data, x, theta, jnp.asarray(settings.model_noise, x.dtype))
        judged = _judge(engine, data, x, theta, tries)
        worst = float(judged.chi2.max())
        searches = SEARCHES_AGAIN if 0 < _regions(~judged.believed) <= FEW_REGIONS else ONCE_MORE
        doubt = _doubt(engine, data)
        if length == 1 or search >= searches or worst <= doubt:
            break
        # Anew around what misfits and nowhere else: a tighter model lifts every misfit, chance's as well.
        misfits = sites_near(judged.chi2 > doubt, segment_length(len(tries), settings.search))
        stage, tries = last + 1, np.where(misfits, 0, ALONE).astype(tries.dtype)
        yield AssimilationState(x, theta, stage, tries), f"local chi2 {worst:.2f}: searching again"
    key = jax.random.fold_in(jax.random.key(settings.seed), 10_000)  # beyond every stage's number
    yield _posterior(engine, data, x, theta, judged, engine.finish(data, key, x, theta)), "posterior"


def _posterior(engine: Engine, data: Data, x: Array, theta: Array, judged: _Judged, end: Step) -> Posterior:
    move, variance, draws = (np.asarray(a) for a in (end.move, end.variance, end.draws))
    # A patch far off may break down in its last step: the others are not lost for it.
    finite = np.isfinite(move).all(0) & np.isfinite(variance).all(0) & np.isfinite(draws).all((0, 1))
    inferred, believed = engine.settings.infer_theta, judged.believed & finite
    mean = np.asarray(x) + np.where(finite, move, 0.0)
    covariance = np.linalg.inv(np.asarray(end.information)) if inferred else np.zeros((len(theta),) * 2)
    theta = theta + end.theta if inferred else theta
    std, prior = np.sqrt(np.maximum(np.where(finite, variance, 0.0), 0.0)), np.sqrt(np.asarray(data.prior_var))
    return Posterior(
        mean, np.where(believed, std, np.maximum(std, prior)), mean + np.where(finite, draws, 0.0), np.asarray(theta),
        covariance, judged.chi2, believed, judged.seams,
    )  # fmt: skip
