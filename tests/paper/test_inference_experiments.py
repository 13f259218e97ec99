"""The experiments about inference: what they measure is right, and what was asked is answered, also where it is no."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import result
from test_collect import collected

from awavo.paper import modes_run
from awavo.paper.amortisation_run import ARMS, Stored, fitter
from awavo.paper.arms import exact_w2, milliseconds, sliced_w2
from awavo.paper.corridor_run import CLOSES, GAP, in_wall, reward_of, run_corridor, start_flight
from awavo.paper.inference_figure import Question, answer, paired_difference
from awavo.paper.modes_run import heights, log_posterior, observe, run_modes

SHIFT = np.array([3.0, 4.0])


@pytest.fixture(autouse=True)
def _untimed(monkeypatch):
    """What a decision takes is not looked at here: measuring it compiles the planner once more."""
    for room in ("modes_run", "corridor_run"):
        monkeypatch.setattr(f"awavo.paper.{room}.milliseconds", lambda call, repeats=20: 1.0)


def test_milliseconds_are_the_median_of_calls_after_the_first():
    taken = iter([0.1, 0.001, 0.02, 0.001])
    assert 1.0 <= milliseconds(lambda: time.sleep(next(taken)), 3) < 19.0
    assert list(taken) == []


def test_exact_and_sliced_distances_of_shifted_clouds():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(6, 2))
    assert exact_w2(points, points + SHIFT, np.ones(6)) == pytest.approx(5.0, rel=1e-6)
    # A shift of length 5 is seen by a slice as 5 |cos|, whose mean square is half of its square.
    assert sliced_w2(points, np.repeat(points + SHIFT, 2, 0)) == pytest.approx(5 / np.sqrt(2), rel=1e-3)


def test_the_pendulum_does_not_show_the_sign_of_its_gain():
    theta = jnp.array([1.3, 0.2])
    np.testing.assert_allclose(heights(theta), heights(theta * jnp.array([-1.0, 1.0])), atol=1e-5)
    assert not np.allclose(heights(theta), heights(theta + jnp.array([0.5, 0.0])), atol=1e-2)
    # The prior alone tells the two apart: b = 1 and b = -1 are 0.5 and 1.5 from its mean, in units of 2.
    values = log_posterior(observe(0))(jnp.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert float(values[0] - values[1]) == pytest.approx((1.5**2 - 0.5**2) / 2 / 4, abs=0.02)


def test_memory_keeps_both_modes(monkeypatch):
    for name, value in (("NUM_KEPT", 20), ("THINNED", 2)):  # of the reference, which is not what is looked at
        monkeypatch.setattr(modes_run, name, value)
    kept = {
        arm: np.mean(run_modes({"arm": arm, "particles": 16, "draws": 5}, [100])["kept"])
        for arm in ("resampling, no memory", "resampling")
    }
    assert kept["resampling"] == 1.0
    assert kept["resampling, no memory"] <= 0.4


def test_the_wall_has_two_gaps_that_can_close():
    def at(y, lower=1.0, upper=1.0):
        return jnp.array([0.0, y, 0.0, 0.0, lower, upper])

    assert [float(in_wall(at(y))) for y in (-GAP, 0.0, GAP)] == [0, 1, 0]
    assert float(in_wall(at(GAP, upper=0.0))) == 1
    # With the nearer gap closed the way is longer; behind the wall it does not matter.
    before, behind = (jnp.array([x, 0.5, 0.0, 0.0, 1.0, 1.0]) for x in (-1.0, 1.0))
    assert float(reward_of(before.at[5].set(0))) < float(reward_of(before))
    assert float(reward_of(behind.at[5].set(0))) == float(reward_of(behind))


def test_a_gap_closes_in_every_flight_and_the_one_ahead_in_half_of_them():
    starts = []
    for seed in range(20):
        obs, closes, ahead = start_flight(jax.random.split(jax.random.key(seed), 3))
        above = obs.at[1].set(0.4)  # the upper gap is ahead
        seen = [closes(above, jnp.int32(count), ahead) for count in range(*CLOSES)]
        assert sum(bool(now) for _, now in seen) == 1
        shut = next(np.asarray(after[4:]) for after, now in seen if now)
        np.testing.assert_array_equal(shut, [1, 0] if bool(ahead) else [0, 1])
        starts.append(bool(ahead))
    assert 4 <= sum(starts) <= 16


def test_a_policy_fitted_to_two_ways_takes_one_and_one_gaussian_takes_neither(monkeypatch):
    """Stored posteriors with a quarter of their particles left and the rest right, in the same place of every state."""
    rng = np.random.default_rng(0)
    places = np.where(np.arange(32) < 8, -0.8, 0.8)[:, None] * np.array([0.0, 1.0])
    first = jnp.asarray(places + 0.05 * rng.normal(size=(40, 32, 2)), jnp.float32)
    stored = Stored(jnp.asarray(rng.normal(size=(40, 6)), jnp.float32), first)
    for name, value in (("BATCH", 8), ("LEARNING_RATE", 5e-3), ("HIDDEN", (16,))):
        monkeypatch.setattr(f"awavo.paper.amortisation_run.{name}", value)
    across = {}
    for name in ("one Gaussian, likelihood", "mixture, ascended slices"):
        policy, _ = jax.jit(fitter(ARMS[name], 200))(jax.random.key(0), stored)
        across[name] = np.asarray(policy(stored.obs).mode())[:, 1]
    assert 0.3 < np.mean(across["one Gaussian, likelihood"]) < 0.65  # drawn to both, and on neither
    assert np.mean(across["mixture, ascended slices"]) == pytest.approx(0.8, abs=0.1)


def test_few_particles_pass_the_corridor_and_a_mean_does_not():
    settings = {"particles": 8, "sequences": 64, "episodes": 8}
    found = {arm: run_corridor({**settings, "arm": arm}, [100]) for arm in ("ascended slices", "CEM")}
    assert found["ascended slices"]["hit"][0] <= 0.25 <= found["CEM"]["hit"][0]


def rows(values):
    seeds = list(range(200, 210))
    return [
        result("corridor", arm, {
            "arm": arm, "setting": "P = 8", "seed_numbers": seeds, "hit": list(hit + np.linspace(0, 0.01, 10)),
            "return": [-8.0] * 10, "replanned": [None, *[0.97] * 9], "ms": [1.0] * 10,
        })
        for arm, hit in values.items()
    ]  # fmt: skip


def test_answers_say_reached_missed_and_no_difference(write):
    text, data = collected(
        write(*rows({"ascended slices": 0.02, "random slices": 0.1, "resampling": 0.02})), "corridor"
    )
    assert "random slices 0.105: difference -0.08" in text
    assert "ratio 0.24, asked: 0.5 or less: **reached**" in text
    assert "difference 0.0" in text
    assert "**no difference**; ratio 1.00, asked: 1.0 or less: **reached**" in text
    assert "asked: 0.95 or more: **reached**" in text
    assert data.height == 30


def test_a_missed_line_is_said(write):
    text, _ = collected(write(*rows({"ascended slices": 0.09, "random slices": 0.1, "resampling": 0.02})), "corridor")
    assert "asked: 0.5 or less: **missed**" in text
    assert "**higher**; ratio 3.8" in text


def test_few_seeds_show_no_difference():
    question = Question("hit", "a", "b")
    arms = {
        "a": {"seed_numbers": [1, 2, 3], "hit": [1.0, 1.1, 1.2]},
        "b": {"seed_numbers": [1, 2, 3], "hit": [0.0] * 3},
    }
    assert "**too few seeds to say**" in answer(question, arms, "P = 8")
    apart = arms | {"b": {"seed_numbers": [7, 8, 9], "hit": [0.0] * 3}}
    assert "b has no value of the same seeds" in answer(question, apart, "P = 8")
    assert "a has no value" in answer(question, arms | {"a": {"seed_numbers": [1], "hit": [None]}}, "P = 8")


def test_differences_are_paired_over_seeds():
    base = np.random.default_rng(0).normal(size=20) * 100
    gap = paired_difference(list(base + 1.0), list(base))
    assert (gap.low, gap.value, gap.high) == pytest.approx((1.0, 1.0, 1.0))
    assert jax.tree.all(jax.tree.map(np.isfinite, gap[:3]))
