"""How often intervals in the plane hold the truth, and what a last lattice of angles that is cut short costs.

    python benchmarks/transport/circle.py     # writes results/circle.json, a minute

Slices in the plane are four lattices of even angles, each turned at random. W_2^2 of four pairs of clouds is computed
once at 40,000 angles; a lattice then is a walk over this table, so that 20,000 runs of each number of slices are cheap.
Held: the share of runs whose interval holds the mean over all angles, by Student's t with three degrees of freedom, as
four blocks have, and with two, as `block_variance` takes for even angles. Spread: of 50 slices, the last lattice being
11 even angles, or 11 of 13.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from awavo.provenance import stamp
from awavo.transport.intervals import student_quantile

ANGLES, RUNS, BLOCKS = 40_000, 20_000, 4
CLOUDS = ((30, 40, 0.5), (30, 40, 2.0), (500, 500, 0.5), (200, 150, 0.0))  # points of both, shift


def table(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """W_2^2 of the projections at every angle."""
    angle = np.pi * np.arange(ANGLES) / ANGLES
    slices = np.stack([np.cos(angle), np.sin(angle)])
    ends = np.union1d(*((np.arange(1, len(a) + 1) / len(a)).round(12) for a in (x, y)))
    mass = np.diff(ends, prepend=0.0)
    x_rank, y_rank = (((ends - mass / 2) * len(a)).astype(int) for a in (x, y))
    parts = np.array_split(slices, 20, axis=1)
    return np.concatenate([mass @ (np.sort(x @ s, 0)[x_rank] - np.sort(y @ s, 0)[y_rank]) ** 2 for s in parts])


def lattices(costs: np.ndarray, num: int, rng: np.random.Generator, *, cut: bool) -> tuple[np.ndarray, list[int]]:
    """Sums over each lattice of every run, and their sizes; `cut` takes the last one from a longer lattice."""
    block = -(-num // BLOCKS)
    sizes, sums = [block] * (num // block) + [num % block] * (num % block > 0), []
    for size in sizes:
        step = ANGLES / (block if cut else size)
        places = rng.integers(0, ANGLES, (RUNS, 1)) + ((np.arange(size) + 0.5) * step).astype(int)
        sums.append(costs[places % ANGLES].sum(1))
    return np.stack(sums, 1), sizes


def main() -> None:
    rng, rows = np.random.default_rng(0), []
    for n, m, shift in CLOUDS:
        x, y = rng.standard_normal((n, 2)), rng.standard_normal((m, 2)) * (1.5, 0.7) + shift
        costs = table(x, y)
        truth = costs.mean()
        for num in (20, 40, 50, 100, 200):
            sums, sizes = lattices(costs, num, rng, cut=False)
            mean = sums.sum(1) / num
            apart = (sums - np.asarray(sizes) * mean[:, None]) / num
            spread = np.sqrt(len(sizes) / (len(sizes) - 1) * (apart**2).sum(1))
            held = {f: float(np.mean(np.abs(mean - truth) <= student_quantile(0.95, f) * spread)) for f in (3, 2)}
            row = {"points": [n, m], "shift": shift, "slices": num, "held_3": held[3], "held_2": held[2]}
            if num == 50:
                row["spread"] = float(mean.std() / truth)
                row["spread_cut"] = float((lattices(costs, num, rng, cut=True)[0].sum(1) / num).std() / truth)
            rows.append(row)
            print(json.dumps(row), flush=True)
    summary = {
        f"held_{f}": [min(h), float(np.mean(h)), max(h)] for f in (3, 2) for h in [[r[f"held_{f}"] for r in rows]]
    }
    out = Path(__file__).parent / "results" / "circle.json"
    out.write_text(json.dumps({**stamp(), "runs": RUNS, "summary": summary, "rows": rows}, indent=1) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
