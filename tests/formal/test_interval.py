"""Intervals hold the true results: rational arithmetic and correctly rounded decimals are the judges."""

import math
import random
from decimal import Decimal, getcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from awavo.errors import InputError
from awavo.formal.enclosure import Unsupported, trace_enclosure
from awavo.formal.interval import Interval, point

getcontext().prec = 40


def holds(interval, exact):
    return Fraction(interval.lo) <= exact <= Fraction(interval.hi)


def test_the_four_operations_hold_exact_results():
    rng = random.Random(0)
    for _ in range(2_000):
        a, b = (rng.uniform(-1, 1) * 10.0 ** rng.randint(-12, 12) for _ in range(2))
        x, y, fa, fb = point(a), point(b), Fraction(a), Fraction(b)
        assert holds(x + y, fa + fb)
        assert holds(x - y, fa - fb)
        assert holds(x * y, fa * fb)
        assert holds(x / y, fa / fb)
        assert holds(x.power(3), fa**3)


def test_exact_sums_stay_exact():
    assert point(1.0) - point(1.0) == (0.0, 0.0)
    assert point(0.5) + point(0.25) == (0.75, 0.75)
    assert (point(0.1) + point(0.2)).lo < (point(0.1) + point(0.2)).hi


def test_elementary_functions_hold_correctly_rounded_decimals():
    rng = random.Random(1)
    for _ in range(500):
        a = rng.uniform(-30, 30)
        assert holds(point(a).map(math.exp, low=0.0), Fraction(Decimal(a).exp()))
        b = rng.uniform(1e-6, 100)
        assert holds(point(b).map(math.log), Fraction(Decimal(b).ln()))


def test_even_power_of_an_interval_around_zero():
    assert Interval(-2.0, 1.0).power(2).lo == 0.0
    assert Interval(-2.0, 1.0).power(2).hi >= 4.0
    assert Interval(-1.0, 1.0).reciprocal() == (-math.inf, math.inf)


FUNCTIONS = {
    "polynomial": lambda x: x**3 - 0.5 * x**2 + x,
    "exponential": lambda x: jnp.exp(-2 * x) * jnp.sin(3 * x),
    "log and root": lambda x: jnp.log1p(x**2) / jnp.sqrt(x + 2),
    "powers": lambda x: (x + 1.5) ** 0.3 + 2.0**x,
    "kinks": lambda x: jnp.abs(x - 0.2) + jnp.maximum(x, 0.1) + jnp.clip(x, -0.3, 0.4),
    "sigmoids": lambda x: jax.nn.sigmoid(3 * x) + jnp.tanh(x) + jax.nn.softplus(x) + jax.lax.erf(x),
    "soft maximum": lambda x: jnp.logaddexp(2 * x, 1 - x) - jax.nn.softplus(5 * x),
    "arctangent and cube root": lambda x: jnp.arctan(5 * x) - jnp.cbrt(x + 1.2),
    "branch": lambda x: jnp.where(x < 0.1, x**2, 1 - x),
    "steps": lambda x: jnp.floor(3 * x) + jnp.sign(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_enclosures_hold_sampled_values_and_slopes(name):
    function = FUNCTIONS[name]
    enclose = trace_enclosure(function)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        both = jax.jit(jax.vmap(jax.value_and_grad(lambda x: function(x))))
        for _ in range(15):
            low = rng.uniform(-1, 1)
            box = Interval(low, low + rng.choice([1e-3, 0.1, 0.5]))
            values, slopes = (np.asarray(v) for v in both(np.linspace(box.lo, box.hi, 64)))
            branches = enclose(box)
            assert all(any(b.value.lo - 1e-6 <= v <= b.value.hi + 1e-6 for b in branches) for v in values)
            if len(branches) == 1:
                assert slopes.min() >= branches[0].slope.lo - 1e-5
                assert slopes.max() <= branches[0].slope.hi + 1e-5


def test_undecided_comparisons_give_branches_and_decided_ones_do_not():
    enclose = trace_enclosure(lambda x: jnp.where(x < 0.5, x, 2 * x))
    assert len(enclose(Interval(0.1, 0.4))) == 1
    assert len(enclose(Interval(0.4, 0.6))) == 2


def test_a_cube_root_rises_through_zero():
    found = trace_enclosure(jnp.cbrt)(Interval(-1e-3, 1e-3))
    assert len(found) == 1
    assert found[0].slope.lo > 30.0
    assert found[0].slope.hi == math.inf
    assert found[0].value.lo <= -0.1 <= 0.1 <= found[0].value.hi


def test_softplus_is_smooth_and_known_by_what_it_computes():
    """One branch with a slope of a half at 0, where its program has a kink; another of its name has its own."""
    found = trace_enclosure(jax.nn.softplus)(Interval(-1e-3, 1e-3))
    assert len(found) == 1
    assert 0.49 < found[0].slope.lo < 0.5 < found[0].slope.hi < 0.51

    def softplus(x):
        return -x

    assert trace_enclosure(jax.jit(softplus))(Interval(0.0, 1.0))[0].slope.hi == -1.0


def test_what_has_no_rule_is_said():
    with pytest.raises(Unsupported, match="bessel"):
        trace_enclosure(jax.scipy.special.i0e)(Interval(0.0, 1.0))
    with pytest.raises(InputError, match=r"jax\.numpy"):
        trace_enclosure(lambda x: math.sin(x))
    with pytest.raises(InputError, match="one number"):
        trace_enclosure(lambda x: jnp.stack([x, x]))
