"""Small builders that several test files share."""


def simplex(rng, num):
    weights = rng.random(num)
    return weights / weights.sum()
