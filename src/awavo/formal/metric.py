r"""Axioms of one instance of A-GSWD: its slices, its order, its defining function.

For fixed slices and :math:`k \ge 1`, :math:`D = (\sum_l w_l W_k^k(\theta_l))^{1/k}` is the :math:`\ell_k(w)` norm of
the vector of one-dimensional distances, each a pseudo-metric: Minkowski's inequality gives the triangle for D. (The
paper's printed step :math:`W_k^k(1,3) \le W_k^k(1,2) + W_k^k(2,3)` is false for k > 1: point masses at 0, 1, 2.)
The proof needs slices that do not depend on the measures; the program is attacked by gradient ascent on the violation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import softmax

from awavo.checks import all_finite
from awavo.formal.certificate import PROVED, REFUTED, UNDECIDED, Assumption, Certificate, Evidence, digest
from awavo.transport import Defining, Linear, LinearForms, Polynomial, adaptive_gswd, draw_slices, root, unit_slices
from awavo.types import Discrete, EnvSpec

__all__ = ["SliceInstance", "certify_metric", "default_instance", "invisible_pair"]

# The attack: atoms of a measure, random triples, steps of ascent from each.
POINTS = 5
STARTS = 24
STEPS = 40
# What rounding in float64 may do to an axiom, and to a distance that is a root of something near 0.
ROUNDING = 1e-7
SELF = 1e-6


class SliceInstance(NamedTuple):
    """A-GSWD as it is used: slices `[L, c]`, order k, defining function, dimension of the points."""

    slices: Float[np.ndarray, "L c"]
    order: float
    defining: Defining
    dim: int
    source: str


# Of points, weights, points, weights.
Distance = Callable[[Array, Array, Array, Array], Array]


def default_instance(spec: EnvSpec, *, num_slices: int = 64, order: float = 2) -> SliceInstance:
    """The library's A-GSWD on a task's actions: all cubic monomials up to dimension 4, sums of cubes above."""
    space = spec.action_space
    dim = space.num if isinstance(space, Discrete) else space.dim
    defining = Polynomial(3) if dim <= 4 else LinearForms(4, 3)
    length = defining.num_coefficients(dim)
    scale = defining.coefficient_scale(dim)

    def draw(key):
        slices, _ = draw_slices(key, max(num_slices, length), length, sampling="orthogonal")
        return unit_slices(slices if scale is None else slices * jnp.asarray(scale, slices.dtype))

    slices = jax.jit(draw)(jax.random.key(0))
    return SliceInstance(np.asarray(slices), order, defining, dim, "library default for this task's actions")


def program_distance(instance: SliceInstance) -> Distance:
    """The distance as the library computes it: the k-th root of `adaptive_gswd`."""

    def distance(x, x_weights, y, y_weights):
        power = adaptive_gswd(
            x, y, jnp.asarray(instance.slices, x.dtype), order=instance.order, x_weights=x_weights,
            y_weights=y_weights, defining=instance.defining,
        )  # fmt: skip
        return root(power, instance.order)

    return distance


def certify_metric(
    instance: SliceInstance, *, seed: int = 0, distance: Distance | None = None, label: str = ""
) -> list[Certificate]:
    """Certify the axioms of a pseudo-metric, what the slices can see, and the parity of the defining function."""
    with jax.enable_x64(True):
        attack = _attack(distance or program_distance(instance), instance.dim, seed)
        return [
            _axioms(instance, attack, seed, distance is None, label),
            _separation(instance, label),
            _parity(instance, attack, seed, label),
        ]


class Attack(NamedTuple):
    """The worst triangle found with its measures; the worst of the other axioms; one measure and its mirror image."""

    triangle: float
    points: np.ndarray
    weights: np.ndarray
    negative: float
    asymmetry: float
    self_distance: float
    mirror: float
    mirrored: np.ndarray


# Pairs of measures whose distances one evaluation gives: three sides, a side reversed, a measure with itself shuffled,
# a measure with its mirror image.
_PAIRS = np.array([(0, 1), (1, 2), (0, 2), (1, 0), (0, 3), (0, 4)])


def _attack(distance: Distance, dim: int, seed: int) -> Attack:
    """Gradient ascent on the relative violation of the triangle inequality, from many random triples."""

    def distances(params):
        points, logits = params
        weights = jax.nn.softmax(logits, axis=-1)
        points = jnp.concatenate([points, points[:1, ::-1], -points[:1]])
        weights = jnp.concatenate([weights, weights[:1, ::-1], weights[:1]])
        first, second = _PAIRS.T
        pairs = points[first], weights[first], points[second], weights[second]
        return jax.lax.map(lambda pair: distance(*pair), pairs)

    def violation(params):
        found = distances(params)
        d12, d23, d13 = found[:3]
        return (d13 - d12 - d23) / (d12 + d23 + d13 + 1e-9), found

    def climb(start):
        def step(carry, _):
            params, best, at = carry
            (value, found), grads = jax.value_and_grad(violation, has_aux=True)(params)
            length = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads))) + 1e-12
            new = jax.tree.map(lambda p, g: jnp.where(jnp.isfinite(length), p + 0.05 * g / length, p), params, grads)
            at = jax.tree.map(lambda old, now: jnp.where(value > best, now, old), at, params)
            return (new, jnp.maximum(best, value), at), found

        (_, best, at), found = jax.lax.scan(step, (start, -jnp.inf, start), None, length=STEPS)
        return best, at, found

    rng = np.random.default_rng(seed)
    # A shift makes every start differ from its mirror image.
    starts = (rng.standard_normal((STARTS, 3, POINTS, dim)) + 0.5, rng.standard_normal((STARTS, 3, POINTS)))
    best, at, found = jax.tree.map(np.asarray, jax.jit(lambda s: jax.lax.map(climb, s))(starts))
    worst, mirror = int(np.argmax(best)), float(found[0, 0, 5])
    found = found.reshape(-1, len(_PAIRS))
    with np.errstate(invalid="ignore"):  # infinite distances: `_axioms` says so
        asymmetry = np.abs(found[:, 0] - found[:, 3]) / (1e-9 + np.abs(found[:, 0]))
    weights, own = softmax(at[1][worst], axis=-1), float(np.abs(found[:, 4]).max())
    others = (float(np.max(-found)), float(asymmetry.max()), own)
    return Attack(float(best[worst]), at[0][worst], weights, *others, mirror, starts[0][0, 0])


def _axioms(instance: SliceInstance, attack: Attack, seed: int, own: bool, label: str) -> Certificate:
    slices = np.asarray(instance.slices)
    premises = all_finite(slices) and instance.order >= 1
    failures = {
        "triangle": attack.triangle > ROUNDING,
        "negative": attack.negative > 0,
        "asymmetric": attack.asymmetry > ROUNDING,
        "self-distance": attack.self_distance > SELF,
    }
    broken = [name for name, bad in failures.items() if bad]
    # A search that left the numbers, as with a huge order, has found nothing and excludes nothing.
    told = np.isfinite([attack.triangle, attack.negative, attack.asymmetry, attack.self_distance]).all()
    none = "no violation found" if told else "the search for a violation left the numbers"
    counter = {"violation": attack.triangle, "points": attack.points, "weights": attack.weights}
    return Certificate(
        name=f"metric.axioms{label}",
        claim=f"A-GSWD of order {instance.order:g} on these {len(slices)} slices is a pseudo-metric",
        source="Proposition 1 (the printed triangle step is false for k > 1; Minkowski on W_k itself proves the claim)",
        method=f"Minkowski for fixed slices; {STARTS} gradient ascents of {STEPS} steps on the violation, in float64",
        verdict=REFUTED if broken else PROVED if premises and own and told else UNDECIDED,
        reason=(f"violated: {broken[0]}" if broken else none)
        + f"; largest relative triangle excess {attack.triangle:.3g}",
        assumptions=(
            Assumption(
                "slices are finite, fixed for a state and do not depend on the measures",
                PROVED if premises and own else UNDECIDED,
                instance.source,
            ),
            Assumption(f"order k = {instance.order:g} >= 1", PROVED if instance.order >= 1 else REFUTED),
        ),
        evidence=(
            Evidence("triangle excess", attack.triangle, required=f"<= {ROUNDING:g}", ok=not failures["triangle"]),
            Evidence("asymmetry", attack.asymmetry, required=f"<= {ROUNDING:g}", ok=not failures["asymmetric"]),
            Evidence("self-distance", attack.self_distance, required=f"<= {SELF:g}", ok=not failures["self-distance"]),
        ),
        counterexample={"axiom": broken[0], **counter} if broken else None,
        inputs=_input_digest(instance, seed),
    )


def _separation(instance: SliceInstance, label: str) -> Certificate:
    """Rank of the slices as functions: full rank separates points; no finite set separates all measures."""
    rng = np.random.default_rng(0)
    degree = getattr(instance.defining, "degree", 1)
    length = Polynomial(degree, allow_even=True).num_coefficients(instance.dim)
    project = jax.jit(lambda x, slices: instance.defining.project(instance.defining.features(x), slices))
    x = rng.standard_normal((4 * length + 8, instance.dim))
    values = np.asarray(project(x, np.asarray(instance.slices, float)))
    singular = np.linalg.svd(values / np.linalg.norm(values, axis=1, keepdims=True), compute_uv=False)
    rank = int((singular > 1e-9 * singular[0]).sum())
    # An even polynomial takes the same value at x and -x: parity decides where the rank cannot.
    full, odd = rank >= length, degree % 2 == 1
    known = isinstance(instance.defining, Linear | Polynomial | LinearForms)
    pair = invisible_pair(np.asarray(instance.slices)) if isinstance(instance.defining, Linear) else None
    if not full and isinstance(instance.defining, Linear):
        verdict, reason = REFUTED, f"rank {rank} of {length}: points that differ in the null space are at distance 0"
        blind = np.linalg.svd(np.asarray(instance.slices, float))[2][-1]
        counter = {"points": [np.zeros(instance.dim), blind], "distance": 0.0}
    else:
        verdict = PROVED if full and odd and known else REFUTED if not odd else UNDECIDED
        reason = (
            f"rank {rank} of {length}, degree {degree}; on all measures a finite set of slices is only a pseudo-metric"
        )
        counter = {"points": "x and -x", "degree": degree} if not odd else None
    return Certificate(
        name=f"metric.rank{label}",
        claim="these slices tell any two points (Dirac measures) apart",
        source="Remark 1: a metric if and only if the transform is injective; a finite set of slices never is",
        method="rank of the slices as polynomials (values at random points), parity of the degree",
        verdict=verdict,
        reason=reason,
        assumptions=(Assumption("the defining function is homogeneous of odd degree", PROVED if odd else REFUTED),),
        evidence=(
            Evidence("rank", rank, required=f">= {length}", ok=full),
            Evidence("smallest over largest singular value", float(singular[min(rank, length) - 1] / singular[0])),
        ),
        counterexample=counter,
        inputs=_input_digest(instance, 0),
        details={} if pair is None else {"two different measures at distance 0": pair},
    )


def _parity(instance: SliceInstance, attack: Attack, seed: int, label: str) -> Certificate:
    """A measure against its mirror image: an even degree cannot tell them apart."""
    seen = attack.mirror > SELF * float(np.abs(attack.mirrored).max())
    return Certificate(
        name=f"metric.parity{label}",
        claim="a measure and its mirror image are at a positive distance",
        source="Section 4.1: homogeneous polynomials; odd degree is needed, which the paper does not say",
        method="distance of a random asymmetric measure to its mirror image",
        verdict=PROVED if seen else REFUTED,
        reason=f"the distance is {attack.mirror:.4g}",
        evidence=(Evidence("distance to the mirror image", attack.mirror, required="> 0", ok=seen),),
        counterexample=None if seen else {"points": attack.mirrored, "distance to its mirror image": attack.mirror},
        inputs=_input_digest(instance, seed),
    )


def invisible_pair(slices: Float[np.ndarray, "L d"]) -> dict[str, np.ndarray] | None:
    """Two different measures with equal projections on a few linear slices of a plane or more; None above ten slices.

    The signed measure * (delta_v - delta_-v) over v orthogonal to one slice each vanishes on every slice.
    """
    if slices.shape[1] < 2 or len(slices) > 10:
        return None
    atoms, signs = np.zeros((1, slices.shape[1])), np.ones(1)
    for number, theta in enumerate(slices):
        across = np.linalg.svd(theta[None].astype(float))[2][1] * (1 + 0.1 * number)
        atoms = np.concatenate([atoms + across, atoms - across])
        signs = np.concatenate([signs, -signs])
    return {"first": atoms[signs > 0], "second": atoms[signs < 0]}


def _input_digest(instance: SliceInstance, seed: int) -> str:
    return digest(np.asarray(instance.slices), instance.order, repr(instance.defining), instance.dim, seed)
