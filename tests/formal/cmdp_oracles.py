"""The optimum of a CMDP by two methods that share nothing with the linear program."""

import itertools

import numpy as np

from awavo.errors import InputError
from awavo.formal.cmdp import policy_q, policy_totals


def brute_force(cmdp) -> float:
    """The optimum over all mixtures of at most C + 1 deterministic policies, for tiny CMDPs with C <= 2."""
    num_states, num_actions, _ = cmdp.transition.shape
    if num_actions**num_states > 300 or len(cmdp.limits) > 2:
        raise InputError("brute force is for at most 300 deterministic policies and 2 costs.")
    points = np.array(
        [
            policy_totals(cmdp, np.eye(num_actions)[list(choice)])
            for choice in itertools.product(range(num_actions), repeat=num_states)
        ]
    )
    gaps = points[:, 1:] - cmdp.limits
    feasible = (gaps <= 1e-12).all(1)
    best = points[feasible, 0].max(initial=-np.inf)
    for size in range(2, len(cmdp.limits) + 2):
        chosen = np.array(list(itertools.combinations(range(len(points)), size)))
        for active in itertools.combinations(range(len(cmdp.limits)), size - 1):
            rows = np.concatenate([np.ones((len(chosen), 1, size)), gaps[chosen][..., list(active)].swapaxes(1, 2)], 1)
            usable = np.abs(np.linalg.det(rows)) > 1e-12
            weights = np.linalg.solve(rows[usable], np.eye(size)[0][:, None])[..., 0]
            kept = (weights >= -1e-12).all(1)
            kept &= (np.einsum("nk,nkc->nc", weights, gaps[chosen[usable]]) <= 1e-9).all(1)
            values = np.einsum("nk,nk->n", weights, points[chosen[usable], 0])
            best = max(best, values[kept].max(initial=-np.inf))
    return float(best)


def _priced_optimum(cmdp, multipliers: np.ndarray) -> tuple[float, np.ndarray]:
    """Max over policies of J_r - lambda (J_g - b), by policy iteration, and J_g - b of the maximiser."""
    price = np.concatenate([[1.0], -multipliers])
    actions = np.zeros(len(cmdp.initial), int)
    while True:
        q, values = policy_q(cmdp, np.eye(cmdp.transition.shape[1])[actions])
        priced = np.einsum("i,isa->sa", price, q)
        current = priced[np.arange(len(actions)), actions]
        better = priced.max(1) > current + 1e-12
        if not better.any():
            totals = values @ cmdp.initial
            return float(price @ totals + multipliers @ cmdp.limits), totals[1:] - cmdp.limits
        actions = np.where(better, priced.argmax(1), actions)


def dual_value(cmdp, highest: float = 50.0, halvings: int = 42) -> float:
    """The optimum by a second method: minimise the Lagrangian dual by nested bisection on its subgradient.

    No linear program: policy iteration inside, one bisection per multiplier. The subgradients on both sides of an inner
    minimum are mixed so that its own component vanishes: that is the subgradient of the outer function.
    """

    def minimise(fixed: tuple[float, ...]) -> tuple[float, np.ndarray]:
        level = len(fixed)
        if level == len(cmdp.limits):
            return _priced_optimum(cmdp, np.array(fixed))
        best, above = minimise((*fixed, 0.0))
        if above[level] <= 0:
            return best, above
        low, high, below = 0.0, highest, None
        for _ in range(halvings):
            middle = 0.5 * (low + high)
            value, gaps = minimise((*fixed, middle))
            best = min(best, value)
            if gaps[level] > 0:
                low, above = middle, gaps
            else:
                high, below = middle, gaps
        if below is None:
            raise InputError(f"a multiplier exceeds {highest:g}: the limits are (almost) infeasible.")
        share = above[level] / (above[level] - below[level])
        return best, (1 - share) * above + share * below

    return minimise(())[0]
