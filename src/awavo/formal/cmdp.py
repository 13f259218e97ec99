r"""Exact discounted CMDPs: values of a policy, and the optimum by linear programming over occupancy measures.

.. math::
    \max_{\mu \ge 0} \langle \mu, r \rangle \quad \text{s.t.} \quad
    \sum_a \mu(s', a) - \gamma \sum_{s,a} P(s' | s, a) \mu(s, a) = \rho(s'), \qquad \langle \mu, g_i \rangle \le b_i

with the dual :math:`\min_{V, \lambda \ge 0} \langle \rho, V \rangle + \langle \lambda, b \rangle` over
:math:`V(s) \ge r - \lambda \cdot g + \gamma P V`. Any feasible V and lambda bound the optimum from above, so a pair of
solutions with equal value proves both. Arrays here are numpy, float64.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from awavo.errors import InputError, plural

__all__ = ["ExactCMDP", "Solution", "exact_cmdp", "policy_q", "policy_totals", "random_cmdp", "solve"]

Floats = NDArray[np.float64]


class ExactCMDP(NamedTuple):
    """Transition `[S, A, S]`, signals `[1+C, S, A]` (the reward first), start distribution `[S]`, limits `[C]`."""

    transition: Floats
    signals: Floats
    initial: Floats
    limits: Floats
    discount: float


class Solution(NamedTuple):
    """Optimum with its policy and occupancy, and the dual solution that bounds it from above."""

    value: float
    costs: Floats
    policy: Floats
    occupancy: Floats
    values: Floats
    multipliers: Floats
    dual: float
    residual: float


def exact_cmdp(
    transition: ArrayLike, signals: ArrayLike, initial: ArrayLike, limits: ArrayLike, discount: float
) -> ExactCMDP:
    """Check the parts of a CMDP and put them together in float64; rows are normalised to rounding."""
    p, h, rho, b = (np.asarray(v, float) for v in (transition, signals, initial, limits))
    if p.ndim != 3 or p.shape[0] != p.shape[2] or h.shape[1:] != p.shape[:2] or rho.shape != p.shape[:1]:
        raise InputError(f"shapes {p.shape}, {h.shape}, {rho.shape} are not [S, A, S], [1+C, S, A], [S].")
    if b.shape != (h.shape[0] - 1,):
        raise InputError(f"{plural(b.size, 'limit')} for {plural(h.shape[0] - 1, 'cost')}: give one limit for each.")
    if np.any(p < 0) or not np.allclose(p.sum(-1), 1, atol=1e-5) or not np.isclose(rho.sum(), 1, atol=1e-5):
        raise InputError("transition rows and the start distribution must be probabilities of sum one.")
    if not 0 <= discount < 1:
        raise InputError(f"discount={discount} is not in [0, 1).")
    return ExactCMDP(p / p.sum(-1, keepdims=True), h, rho / rho.sum(), b, discount)


def random_cmdp(
    seed: int,
    num_states: int = 8,
    num_actions: int = 3,
    branching: int = 3,
    num_costs: int = 2,
    discount: float = 0.9,
    tightness: float = 0.4,
) -> ExactCMDP:
    """A random CMDP (Garnet) with limits that bind: between the least cost and that of the unconstrained optimum."""
    rng = np.random.default_rng(seed)
    transition = np.zeros((num_states, num_actions, num_states))
    for s, a in itertools.product(range(num_states), range(num_actions)):
        transition[s, a, rng.choice(num_states, branching, replace=False)] = rng.dirichlet(np.ones(branching))
    signals = rng.uniform(size=(1 + num_costs, num_states, num_actions))
    free = exact_cmdp(transition, signals, np.full(num_states, 1 / num_states), np.full(num_costs, np.inf), discount)
    greedy = solve(free)
    # The cheapest policy for the sum of all costs keeps every limit above what it spends.
    total = free._replace(signals=np.stack([-signals[1:].sum(0), *signals[1:]]))
    cheapest = solve(total).costs
    limits = cheapest + tightness * np.maximum(greedy.costs - cheapest, 0.05 / (1 - discount))
    return free._replace(limits=limits)


def policy_q(cmdp: ExactCMDP, policy: Floats) -> tuple[Floats, Floats]:
    """Exact Q `[1+C, S, A]` and V `[1+C, S]` of a policy `[S, A]`."""
    kernel = np.einsum("sa,sat->st", policy, cmdp.transition)
    step = np.einsum("sa,isa->si", policy, cmdp.signals)
    values = np.linalg.solve(np.eye(len(kernel)) - cmdp.discount * kernel, step).T
    return cmdp.signals + cmdp.discount * np.einsum("sat,it->isa", cmdp.transition, values), values


def policy_totals(cmdp: ExactCMDP, policy: Floats) -> Floats:
    """Discounted totals J `[1+C]` of reward and costs from the start distribution."""
    return policy_q(cmdp, policy)[1] @ cmdp.initial


def solve(cmdp: ExactCMDP) -> Solution:
    """The optimum by HiGHS, with the dual solution polished to exact feasibility."""
    from scipy.optimize import linprog  # half a second to import, and training does not need it

    num_states, num_actions, _ = cmdp.transition.shape
    size = num_states * num_actions
    # Flow balance of the occupancy: what leaves a state is what starts in it or comes to it.
    flow = np.repeat(np.eye(num_states), num_actions, 1) - cmdp.discount * cmdp.transition.reshape(size, -1).T
    bound = np.isfinite(cmdp.limits)
    costs = cmdp.signals[1:].reshape(-1, size)
    upper = {"A_ub": costs[bound], "b_ub": cmdp.limits[bound]} if bound.any() else {}
    out = linprog(-cmdp.signals[0].ravel(), A_eq=flow, b_eq=cmdp.initial, method="highs", **upper)
    if out.status == 2:
        raise InputError("no policy keeps these limits: the CMDP is infeasible; raise a limit.")
    if out.status != 0:
        raise InputError(f"the linear program was not solved: {out.message}")
    occupancy = out.x.reshape(num_states, num_actions)
    mass = occupancy.sum(1, keepdims=True)
    # A state that is never visited takes all actions alike.
    policy = np.where(mass > 1e-12, occupancy / np.maximum(mass, 1e-12), 1 / num_actions)
    multipliers = np.zeros(len(cmdp.limits))
    if bound.any():
        multipliers[bound] = np.maximum(-out.ineqlin.marginals, 0)
    values = -out.eqlin.marginals
    # A small lift of V makes the dual solution feasible exactly, so that its value is an upper bound in exact terms.
    priced = cmdp.signals[0] - np.einsum("i,isa->sa", multipliers, cmdp.signals[1:])
    slack = np.max(priced + cmdp.discount * cmdp.transition @ values - values[:, None])
    values = values + max(slack, 0.0) / (1 - cmdp.discount)
    dual = float(cmdp.initial @ values + multipliers[bound] @ cmdp.limits[bound])
    residual = float(np.abs(flow @ out.x - cmdp.initial).max())
    return Solution(float(-out.fun), costs @ out.x, policy, occupancy, values, multipliers, dual, residual)
