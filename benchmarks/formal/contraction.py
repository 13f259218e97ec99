"""The modulus of the projected distributional Bellman operator over many pairs, and wrong projections that are caught.

    PYTHONPATH=src python benchmarks/formal/contraction.py

Four random MDPs a discount, 300 pairs of quantile tables each (random, shifted, tied), every pair climbed 30 steps.
"""

from __future__ import annotations

import numpy as np
from report import write

from awavo.formal.bellman import certify_contraction, certify_fixed_point, certify_projection, project_quantiles
from awavo.formal.cmdp import random_cmdp


def mean_projection(atoms, weights, num):
    """Every quantile at the mean."""
    return np.repeat((atoms * weights).sum(-1, keepdims=True), num, -1)


def gaussian_projection(atoms, weights, num):
    """Quantiles of the Gaussian with the same two moments."""
    from scipy.special import ndtri

    mean = (atoms * weights).sum(-1, keepdims=True)
    spread = np.sqrt(np.maximum((atoms**2 * weights).sum(-1, keepdims=True) - mean**2, 0))
    return mean + spread * ndtri((np.arange(num) + 0.5) / num)


def main() -> None:
    table = ["| discount | pairs | largest modulus | median | verdict |", "|---|---|---|---|---|"]
    record: dict = {"seeds": list(range(4)), "modulus": [], "wrong": []}
    for discount in (0.5, 0.9, 0.99):
        worst, medians, pairs, verdicts = 0.0, [], 0, set()
        for seed in range(4):
            cmdp = random_cmdp(seed, num_states=5, num_actions=2, branching=3, discount=discount)
            policy = np.random.default_rng(seed).dirichlet(np.ones(2), 5)
            found = certify_contraction(cmdp, policy, num_pairs=300, seed=seed)
            worst, pairs = max(worst, found.evidence[0].value), pairs + 300
            medians.append(found.evidence[1].value)
            verdicts.add(found.verdict)
        record["modulus"].append({"discount": discount, "pairs": pairs, "largest": worst, "verdicts": sorted(verdicts)})
        table.append(
            f"| {discount} | {pairs} | {worst:.12g} | {np.median(medians):.4f} | {', '.join(sorted(verdicts))} |"
        )
    cmdp = random_cmdp(0, num_states=5, num_actions=2, branching=3)
    policy = np.full((5, 2), 0.5)
    table += ["", "| projection | contraction | W_1 projection |", "|---|---|---|"]
    for name, projection in (
        ("quantile midpoints", project_quantiles),
        ("mean of the law", mean_projection),
        ("Gaussian with two moments", gaussian_projection),
    ):
        contracts = certify_contraction(cmdp, policy, num_pairs=300, projection=projection)
        nearest = certify_projection(projection)
        entry = {"projection": name, "contraction": contracts.verdict, "nearest": nearest.verdict}
        record["wrong"].append({**entry, "modulus": contracts.evidence[0].value, "excess": nearest.evidence[0].value})
        table.append(
            f"| {name} | {contracts.verdict} (modulus {contracts.evidence[0].value:.4f}, gamma 0.9) | "
            f"{nearest.verdict} (excess W_1 {nearest.evidence[0].value:.3g}) |"
        )
    matches = certify_fixed_point(cmdp, policy)
    record["fixed_point"] = {"verdict": matches.verdict, "reason": matches.reason}
    table += ["", f"Fixed point against Monte Carlo: {matches.verdict}; {matches.reason}."]
    write("contraction", "Contraction of the projected Bellman operator", record, table)


if __name__ == "__main__":
    main()
