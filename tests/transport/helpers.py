"""Small builders that several test files share."""

import numpy as np


def simplex(rng, num):
    weights = rng.random(num)
    return weights / weights.sum()


def many_slices(dim, num=12_000):
    """Enough orthogonal directions to call their average the truth."""
    return np.linalg.qr(np.random.default_rng(1).standard_normal((num // dim, dim, dim)))[0].reshape(-1, dim)
