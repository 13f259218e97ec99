"""All certificates of one training run, put together from what the run hands over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from awavo.formal.bellman import certify_contraction, certify_fixed_point, certify_projection
from awavo.formal.calibration import certify_calibration
from awavo.formal.certificate import PROVED, REFUTED, SUPPORTED, UNDECIDED, Assumption, Certificate, Evidence, digest
from awavo.formal.cmdp import random_cmdp
from awavo.formal.episodes import critic_samples
from awavo.formal.metric import SliceInstance, certify_metric, default_instance
from awavo.formal.operator_proof import certify_operator
from awavo.formal.rates import LEAST_STEPS, certify_learning_rate
from awavo.formal.safety import certify_safety, decided, hopeless
from awavo.formal.schedule import schedule
from awavo.inference.operators import Operator
from awavo.inference.sequences import ORDER, action_defining, plan_dim
from awavo.types import Algorithm, Env, EnvSpec

__all__ = ["Findings", "Plan", "Subject", "certify_subject"]

CRITIC_EPISODES = 400
SUM_ROUNDING = 1e-4  # of the range of an episode's cost: what a sum in single precision may be off by


class Plan(NamedTuple):
    """What was asked for; stored with the certificates so that they can be checked again."""

    episodes: int = 1_000
    delta: float = 0.05
    anytime: bool = False
    max_violation: float | None = None
    seed: int = 2_000_003
    batch: int = 250


class Subject(NamedTuple):
    """A trained run as certification sees it.

    `play(index, batch, num)` gives returns `[N]` and costs `[N, C]` of fresh episodes of one seed's greedy policy;
    `say` takes lines on how far it has come.
    `long_env` is the same task without its time limit, where there is one; `curves` are returns per seed and step.
    """

    spec: EnvSpec
    settings: Any
    algorithm: Algorithm
    states: Sequence[PyTree]
    seeds: Sequence[int]
    fingerprint: str
    play: Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]
    env: Env | None
    long_env: Env | None
    operator: Operator | None
    steps: np.ndarray
    curves: np.ndarray
    iterations: int
    say: Callable[[str], None] = lambda line: None


class Findings(NamedTuple):
    """The certificates, the seed whose policy to deliver (None when no policy is certified safe), what was left out."""

    certificates: list[Certificate]
    delivered: int | None
    episodes: dict[int, int]
    returns: dict[int, float]
    skipped: list[str]


def certify_subject(subject: Subject, plan: Plan) -> Findings:
    """Certify safety of every seed's policy, then everything the run's method rests on."""
    safety, returns = _safety(subject, plan)
    subject.say("the method and its parts")
    safe = [s for s, c in zip(subject.seeds, safety, strict=True) if c.verdict == SUPPORTED]
    delivered = max(safe, key=lambda s: returns[s], default=None)
    certificates, skipped = list(safety), []
    if subject.operator is not None:
        certificates += certify_operator(subject.operator, _ranges(subject, delivered))
    calibrated, reason = _calibration(subject, plan, delivered)
    certificates += calibrated
    skipped += [reason] if reason else []
    certificates += _reference(subject.settings)
    slices = _slices(subject, _index(subject, delivered))
    certificates += certify_metric(slices or default_instance(subject.spec))
    if slices is None:
        skipped.append("slices of the run: this algorithm computes no A-GSWD, so the library's default was certified")
    if subject.curves.size and np.isfinite(subject.curves).all(0).sum() >= LEAST_STEPS:
        best = float(np.nanmax(subject.curves))
        proxy = "the best smoothed return of any seed"
        certificates.append(certify_learning_rate(subject.steps, subject.curves, best, proxy, known=False))
    else:
        skipped.append("rate of the learning curve: too few training episodes of some seed came to their end")
    if subject.algorithm.critics is not None:  # Theorem 2 is about ORPO-DR
        certificates.append(_premises(subject))
    counts = {s: int(c.details["episodes"]) for s, c in zip(subject.seeds, safety, strict=True)}
    return Findings(certificates, delivered, counts, returns, skipped)


def _safety(subject: Subject, plan: Plan) -> tuple[list[Certificate], dict[int, float]]:
    """A certificate for each seed's policy. With `anytime`, until the seed is decided or cannot be."""
    found, means = [], {}
    size = min(plan.batch, plan.episodes)
    for index, seed in enumerate(subject.seeds):
        played: list[tuple[np.ndarray, np.ndarray]] = []
        while True:
            played.append(subject.play(index, len(played), size))
            returns, costs = (np.concatenate(parts)[: plan.episodes] for parts in zip(*played, strict=True))
            subject.say(f"seed {seed}: {len(costs)} of {'at most ' if plan.anytime else ''}{plan.episodes} episodes")
            # Bounds for a number of episodes fixed in advance may be looked at only once all of them are there.
            if not plan.anytime and len(costs) < plan.episodes:
                continue
            certificate = _safety_of(subject, plan, index, seed, costs)
            if decided([certificate]) or len(costs) >= plan.episodes or hopeless(certificate, plan.episodes):
                break
        found.append(certificate)
        means[seed] = float(returns.mean())
    return found, means


def _safety_of(subject: Subject, plan: Plan, index: int, seed: int, costs: np.ndarray) -> Certificate:
    spans, bounds_known = _spans(subject, index, costs)
    return certify_safety(
        costs,
        names=subject.spec.cost_names,
        limits=subject.spec.cost_limits,
        span=spans,
        delta=plan.delta,
        anytime=plan.anytime,
        max_violation=plan.max_violation,
        policies=len(subject.seeds),
        label=f"seed_{seed}",
        bounds_known=bounds_known,
        inputs=subject.fingerprint,
    )


def _index(subject: Subject, delivered: int | None) -> int:
    """Where the delivered seed stands among the states; the first when none is delivered."""
    return 0 if delivered is None else list(subject.seeds).index(delivered)


def _slices(subject: Subject, index: int) -> SliceInstance | None:
    """The slices by which the algorithm decides in the first state of an episode; None where it learns none."""
    slices_fn, settings = subject.algorithm.slices, subject.settings
    if slices_fn is None:
        return None
    obs = jnp.zeros(subject.spec.obs_dim)
    if subject.env is not None:
        obs = subject.env.reset(jax.random.key(0), subject.env.params)[1]
    space = subject.spec.action_space
    source = f"the slicing head of seed {subject.seeds[index]} in the first state of an episode"
    slices = np.asarray(slices_fn(subject.states[index], obs))
    return SliceInstance(slices, ORDER, action_defining(space, settings), plan_dim(space, settings), source)


def _spans(subject: Subject, index: int, costs: np.ndarray) -> tuple[list[tuple[float, float]], Assumption]:
    """Bounds of an episode's cost: the horizon times the extreme costs of one step seen in training."""
    horizon, critics = subject.spec.horizon, subject.algorithm.critics
    if critics is not None:
        low, high = (np.asarray(v, float)[1:] for v in critics.signal_bounds(subject.states[index]))
        seen = ", ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))
        note = f"extremes over all training steps of this seed: {seen}"
    else:
        low, high = np.minimum(costs.min(0), 0) / horizon, np.maximum(costs.max(0), 1e-3)
        note = "no record of step costs: the largest episode total is taken for one step"
    low, high = horizon * np.minimum(low, 0), horizon * np.maximum(high, 1e-3)
    text = f"the cost of one step never leaves the range seen in training, times at most {horizon} steps"
    rounding = SUM_ROUNDING * (high - low)
    beyond = np.any((costs < low - rounding) | (costs > high + rounding), axis=0)
    names = ", ".join(name for name, out in zip(subject.spec.cost_names, beyond, strict=True) if out)
    known = Assumption(text, SUPPORTED, note)
    if names:
        known = replace(known, verdict=REFUTED, note=f"an episode left it ({names}); {note}")
    low, high = np.minimum(low, costs.min(0)), np.maximum(high, costs.max(0))
    return list(zip(low.tolist(), high.tolist(), strict=True)), known


def _ranges(subject: Subject, delivered: int | None) -> list[tuple[float, float]]:
    """The unit range, and the return ranges this run's likelihoods were computed on."""
    critics = subject.algorithm.critics
    if critics is None:
        return [(0.0, 1.0)]
    state = subject.states[_index(subject, delivered)]
    low, high = (np.asarray(v, float) for v in critics.return_bounds(state))
    return [(0.0, 1.0), *dict.fromkeys(zip(low.tolist(), high.tolist(), strict=True))]


def _calibration(subject: Subject, plan: Plan, delivered: int | None) -> tuple[list[Certificate], str | None]:
    """Calibration of the critics behind the delivered policy (the first seed's when none is)."""
    index = _index(subject, delivered)
    state = subject.states[index]
    env, critics = subject.long_env or subject.env, subject.algorithm.critics
    if env is None or critics is None:
        return [], "critic calibration: needs quantile critics and a functional environment"
    run = critic_samples(
        env,
        subject.algorithm,
        critics,
        num=CRITIC_EPISODES,
        latest_start=subject.spec.horizon,
        discount=subject.settings.discount,
    )
    key = jax.random.fold_in(jax.random.key(plan.seed), 7 + index)
    samples = jax.tree.map(np.asarray, jax.jit(run)(key, state))
    cut = float(samples.cut.mean())
    verdict = PROVED if cut == 0 else UNDECIDED
    tail = Assumption(
        "the return is that of the task without its time limit, as truncation bootstraps; its tail is below 0.001",
        verdict,
        "" if cut == 0 else f"{cut:.0%} of the returns were cut by a time limit that this task cannot lift",
    )
    later = np.zeros(1 + subject.spec.num_costs) if critics.after_end is None else np.asarray(critics.after_end(state))
    names = ("reward", *subject.spec.cost_names)
    found = []
    for i, name in enumerate(names):
        quantiles, returns = samples.quantiles[:, i], samples.returns[:, i]
        label, whole = f".seed_{subject.seeds[index]}", tail
        if later[i]:
            text = f"after a termination {later[i]:.4g} more, as if another life began: the critic was told so"
            whole = replace(tail, text=f"{tail.text}; {text}")
        found += certify_calibration(quantiles, returns, signal=name, label=label, tail=whole, seed=plan.seed)
    return found, None


def _reference(settings: Any) -> list[Certificate]:
    """Contraction, projection and fixed point with this run's discount and quantiles, on a reference CMDP."""
    discount = min(float(getattr(settings, "discount", 0.9)), 0.99)
    num = min(int(getattr(settings, "num_quantiles", 8)), 8)
    cmdp = random_cmdp(0, num_states=4, num_actions=2, branching=2, discount=discount)
    policy = np.random.default_rng(0).dirichlet(np.ones(2), 4)
    found = [
        certify_contraction(cmdp, policy, num_quantiles=num, num_pairs=300, seed=0),
        certify_projection(num=num),
        certify_fixed_point(cmdp._replace(discount=min(discount, 0.9)), policy, episodes=5_000),
    ]
    about = "on a fixed random CMDP of 4 states, not on this run's task or policy: "
    return [replace(c, claim=about + c.claim) for c in found]


def _premises(subject: Subject) -> Certificate:
    """Whether this run followed the schedule under which Theorem 2 speaks."""
    settings = subject.settings
    width, layers = max(settings.hidden), len(settings.hidden)
    plan = schedule(settings.discount, width, layers, max(subject.iterations, 1))
    enough = settings.num_updates >= plan.td_steps_proof
    small = settings.actor_lr <= plan.step_size
    holds = enough and small
    failed: dict[str, object] = {}
    if not enough:
        failed |= {"critic steps": settings.num_updates, "K_td": plan.td_steps_proof}
    if not small:
        failed |= {"actor step size": settings.actor_lr, "l_Q": plan.step_size}
    return Certificate(
        name="schedule.theorem2",
        claim="this run's settings follow the schedule of Theorem 2, so that its rate is promised",
        source="Theorem 2: K_td, l_Q and tau_c as functions of gamma, m, H and T",
        method="the schedule calculator (constants 1), compared with the stored configuration",
        verdict=UNDECIDED if holds else REFUTED,
        reason=f"{settings.num_updates} critic steps an iteration, K_td asks {plan.td_steps_proof} (proof) or "
        f"{plan.td_steps_statement} (statement); an actor step of {settings.actor_lr:g}, at most {plan.step_size:.4g}"
        + ("" if holds else ": Theorem 2 promises nothing about this run, its evidence is what was measured"),
        assumptions=(Assumption("Assumptions 2 and 3 of the paper (regular features, Q in the class)", UNDECIDED),),
        evidence=(
            Evidence(
                "critic steps per iteration", settings.num_updates, required=f">= {plan.td_steps_proof}", ok=enough
            ),
            Evidence("actor step size", settings.actor_lr, required=f"<= {plan.step_size:.4g}", ok=small),
            Evidence("tau_c of the schedule (discounted units)", plan.tolerance),
            Evidence("floor C6 / ((1 - gamma) m^(H/4)) at C6 = 1", plan.floor),
        ),
        counterexample=failed or None,
        inputs=digest(settings.discount, width, layers, subject.iterations, settings.num_updates, settings.actor_lr),
    )
