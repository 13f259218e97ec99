"""The instance of A-GSWD: axioms hold for the library's program and break for wrong ones; rank and parity."""

import jax.numpy as jnp
import numpy as np
import pytest

from awavo.formal.metric import SliceInstance, certify_metric, invisible_pair, program_distance
from awavo.transport import Linear, LinearForms, Polynomial, sliced_wasserstein


def instance(defining, slices, dim, order=2.0):
    return SliceInstance(np.asarray(slices, float), order, defining, dim, "test")


def verdicts(*args, **options):
    return {c.name: c for c in certify_metric(*args, **options)}


def test_forgetting_the_root_breaks_the_triangle():
    good = instance(Linear(), np.eye(2), 2)
    power = lambda x, a, y, b: program_distance(good)(x, a, y, b) ** 2  # noqa: E731
    found = verdicts(good, distance=power)["metric.axioms"]
    assert found.verdict == "refuted"
    assert found.counterexample["axiom"] == "triangle"
    points, weights = (jnp.asarray(found.counterexample[k]) for k in ("points", "weights"))
    d = [float(power(points[i], weights[i], points[j], weights[j])) for i, j in ((0, 1), (1, 2), (0, 2))]
    assert d[2] > d[0] + d[1]


def test_a_search_that_left_the_numbers_proves_nothing():
    found = verdicts(instance(Linear(), np.eye(2), 2, order=2000.0))["metric.axioms"]
    assert found.verdict == "undecided"
    assert "left the numbers" in found.reason


def test_slices_that_depend_on_the_measures_break_the_axioms():
    def chosen(x, a, y, b):
        towards = jnp.sum(a[:, None] * x, 0)  # looks along the first measure's mean only
        return program_distance(instance(Linear(), np.eye(2), 2)._replace(slices=towards[None]))(x, a, y, b)

    found = verdicts(instance(Linear(), np.eye(2), 2), distance=chosen)["metric.axioms"]
    assert found.verdict == "refuted"


def test_even_degree_cannot_see_a_mirror_image():
    slices = np.random.default_rng(0).standard_normal((6, 3))
    found = verdicts(instance(Polynomial(2, allow_even=True), slices, 2))
    assert found["metric.parity"].verdict == "refuted"
    assert found["metric.rank"].verdict == "refuted"
    assert found["metric.axioms"].verdict == "proved"


@pytest.mark.parametrize(
    ("defining", "slices", "verdict"),
    [
        (Linear(), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "refuted"),
        (Polynomial(3), np.eye(4)[:3], "undecided"),
        (LinearForms(2), np.random.default_rng(0).standard_normal((6, 4)), "proved"),
    ],
)
def test_rank(defining, slices, verdict):
    from awavo.formal.metric import _separation

    dim = 3 if isinstance(defining, Linear) else 2
    assert _separation(instance(defining, slices, dim), "").verdict == verdict


def test_two_different_measures_no_slice_can_tell_apart():
    angles = np.linspace(0, np.pi, 5)[:-1] + 0.1
    slices = np.stack([np.cos(angles), np.sin(angles)], 1)
    pair = invisible_pair(slices)
    first, second = pair["first"], pair["second"]
    assert not np.allclose(np.sort(first, 0), np.sort(second, 0), atol=1e-3) or len(first) != len(second)
    value = sliced_wasserstein(first.astype(np.float32), second.astype(np.float32), slices=slices.astype(np.float32))
    assert float(value) < 1e-9
    seen = sliced_wasserstein(first.astype(np.float32), second.astype(np.float32), slices=np.float32([[0.96, 0.28]]))
    assert float(seen) > 1e-4


def test_the_step_printed_in_the_paper_is_false():
    """W^k(1,3) <= W^k(1,2) + W^k(2,3) fails for k = 2 at point masses 0, 1, 2."""
    d = lambda a, b: abs(a - b) ** 2  # noqa: E731
    assert d(0, 2) > d(0, 1) + d(1, 2)
