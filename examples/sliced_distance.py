"""Distances between clouds of points, without any reinforcement learning: sliced Wasserstein with its interval.

python examples/sliced_distance.py
"""

import jax

from awavo.transport import root, sliced_wasserstein


def main():
    keys = jax.random.split(jax.random.key(0), 3)
    here = jax.random.normal(keys[0], (500, 8))
    there = jax.random.normal(keys[1], (400, 8)) + 0.5  # other sizes are fine
    found = sliced_wasserstein(here, there, key=keys[2], num_slices=256)
    print(f"SW_2^2 = {float(found.value):.3f} [{float(found.low):.3f}, {float(found.high):.3f}]")
    print(f"SW_2   = {float(root(found.value, 2)):.3f}")


if __name__ == "__main__":
    main()
