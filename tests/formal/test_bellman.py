"""The projected Bellman operator contracts by gamma; wrong projections, discounts and fixed points are caught."""

import numpy as np
import pytest
from scipy.special import ndtri

from awavo.errors import InputError
from awavo.formal.bellman import (
    bellman_update,
    certify_contraction,
    certify_fixed_point,
    certify_projection,
    fixed_point,
    project_quantiles,
    wasserstein_to_quantiles,
)
from awavo.formal.cmdp import policy_q, random_cmdp

CMDP = random_cmdp(0, num_states=4, num_actions=2, branching=2)
POLICY = np.random.default_rng(0).dirichlet(np.ones(2), 4)


def mean_projection(atoms, weights, num):
    return np.repeat((atoms * weights).sum(-1, keepdims=True), num, -1)


def gaussian_projection(atoms, weights, num):
    mean = (atoms * weights).sum(-1, keepdims=True)
    spread = np.sqrt(np.maximum((atoms**2 * weights).sum(-1, keepdims=True) - mean**2, 0))
    return mean + spread * ndtri((np.arange(num) + 0.5) / num)


def undiscounted(atoms, weights, num):
    return project_quantiles(atoms / CMDP.discount, weights, num)


def edge_projection(atoms, weights, num):
    """Quantiles at j / M instead of the midpoints."""
    return np.repeat(project_quantiles(atoms, weights, 2 * num)[..., 1::2], 1, -1)


def test_modulus_is_at_most_gamma_over_a_thousand_pairs():
    found = certify_contraction(CMDP, POLICY, num_quantiles=4, num_pairs=1_000)
    assert found.verdict == "supported"
    assert found.evidence[0].value == pytest.approx(CMDP.discount, rel=1e-9)


@pytest.mark.parametrize("projection", [gaussian_projection, undiscounted])
def test_an_operator_that_does_not_contract_is_refuted(projection):
    found = certify_contraction(CMDP, POLICY, num_quantiles=4, num_pairs=60, projection=projection)
    assert found.verdict == "refuted"
    first, second = (np.asarray(found.counterexample[k]) for k in ("first", "second"))
    images = [bellman_update(CMDP, POLICY, z, projection) for z in (first, second)]
    assert np.abs(images[0] - images[1]).max() > CMDP.discount * np.abs(first - second).max()


def test_the_quantile_projection_is_nearest_and_wrong_ones_are_caught():
    assert certify_projection().verdict == "supported"
    for wrong in (mean_projection, gaussian_projection, edge_projection):
        found = certify_projection(wrong)
        assert found.verdict == "refuted", wrong
        c = found.counterexample
        assert wasserstein_to_quantiles(c["image"], c["atoms"], c["weights"]) > c["nearest"]


def test_projection_of_a_known_law():
    atoms, weights = np.array([3.0, 0.0, 1.0]), np.array([0.25, 0.5, 0.25])
    np.testing.assert_array_equal(project_quantiles(atoms, weights, 4), [0, 0, 1, 3])
    assert wasserstein_to_quantiles(np.array([0.0, 0, 1, 3]), atoms, weights) == pytest.approx(0)


def test_the_fixed_point_matches_monte_carlo_and_a_wrong_one_does_not():
    found = certify_fixed_point(CMDP, POLICY, episodes=4_000)
    assert found.verdict == "supported"
    right = fixed_point(CMDP, POLICY, 32)
    shifted = certify_fixed_point(CMDP, POLICY, episodes=4_000, quantiles=right + 1.0)
    narrow = certify_fixed_point(CMDP, POLICY, episodes=4_000, quantiles=right.mean(-1, keepdims=True).repeat(32, -1))
    assert shifted.verdict == narrow.verdict == "refuted"


def test_more_quantiles_bring_the_mean_closer():
    exact = policy_q(CMDP, POLICY)[0][0]
    errors = [np.abs(fixed_point(CMDP, POLICY, m).mean(-1) - exact).max() for m in (4, 64)]
    assert errors[1] < 0.5 * errors[0]


def test_the_fixed_point_without_a_future_is_the_first_reward():
    """At a discount of 0 an episode has one step, not none."""
    assert certify_fixed_point(CMDP._replace(discount=0.0), POLICY, episodes=500).verdict == "supported"


@pytest.mark.bad_input
@pytest.mark.parametrize("discount", [1.0, 1.2, -0.5, np.nan])
def test_what_is_no_contraction_is_not_certified_as_one(discount):
    """ "Contracts by gamma = 1.2" was supported, and at gamma = 1 the fixed point was looked for without end."""
    for certify in (certify_contraction, certify_fixed_point):
        with pytest.raises(InputError, match="discount"):
            certify(CMDP._replace(discount=discount), POLICY)
        with pytest.raises(InputError, match="policy"):
            certify(CMDP, 1.5 * POLICY)
