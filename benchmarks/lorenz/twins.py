"""Write the protocol's twin experiments as .npz files, for methods that live in other environments.

python benchmarks/lorenz/twins.py --states 50 --seeds 20 --out twins
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from awavo.tasks.lorenz96 import REGIMES, twin_experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--regime", choices=tuple(REGIMES), default="G")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    regime = REGIMES[options.regime]
    for seed in range(options.first, options.first + options.seeds):
        twin = twin_experiment(options.states, regime=options.regime, seed=seed)
        path = options.out / f"{options.states}_{options.regime}_{seed}.npz"
        np.savez(path, **twin._asdict(), seed=seed, noise=regime.noise, steps=regime.steps)


if __name__ == "__main__":
    main()
