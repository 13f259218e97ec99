import numpy as np
import pytest

from awavo.errors import InputError
from awavo.results.curves import diagnostic_names, learning_curve, steps_to_reach, training_curve
from awavo.results.statistics import iqm
from awavo.results.store import RunData, load_run, write_table


def _replace_episodes(folder, columns):
    costs = {f"cost_{name}": np.zeros(len(columns["seed"])) for name in ("position", "angle")}
    write_table(folder / "episodes.parquet", {"length": columns["return"], **costs, **columns})
    write_table(folder / "metrics.parquet", {"seed": columns["seed"], "env_steps": columns["env_steps"]})
    return load_run(folder)


def test_a_known_curve(run_folder):
    steps = np.arange(1, 101)
    columns = {"seed": np.repeat([3, 4], 100), "env_steps": np.tile(steps, 2), "return": np.tile(steps, 2) * 1.0}
    curve = learning_curve(_replace_episodes(run_folder, columns), points=10, window=0.05)
    np.testing.assert_allclose(curve.env_steps, np.arange(10, 101, 10))
    np.testing.assert_allclose(curve.centre, np.arange(10, 101, 10) - 2.0)
    np.testing.assert_allclose(curve.per_seed, [curve.centre] * 2)
    assert curve.seeds == [3, 4]


def test_an_empty_window_keeps_the_last_episode_and_nothing_comes_before_the_first(run_folder):
    columns = {"seed": np.zeros(3, int), "env_steps": np.array([40, 50, 100]), "return": np.array([4.0, 6.0, 8.0])}
    curve = learning_curve(_replace_episodes(run_folder, columns), points=10, window=0.2)
    expected = [np.nan, np.nan, np.nan, 4.0, 5.0, 6.0, 6.0, 6.0, 6.0, 8.0]
    np.testing.assert_allclose(curve.per_seed[0], expected)
    assert np.isnan(curve.low).all()


def test_pooled_line_is_the_iqm_within_its_band(run_folder):
    run = load_run(run_folder)
    curve = learning_curve(run, "cost_position")
    known = np.isfinite(curve.centre)
    assert known.mean() > 0.95
    np.testing.assert_allclose(curve.centre[known], iqm(curve.per_seed, axis=0)[known])
    assert (curve.low[known] <= curve.centre[known]).all()
    assert (curve.high[known] >= curve.centre[known]).all()
    assert curve.limit == 30.0
    mean = learning_curve(run, "cost_position", statistic="mean")
    np.testing.assert_allclose(mean.centre[known], curve.per_seed.mean(axis=0)[known])


def test_a_seed_that_lags_behind_ends_the_pooled_line(run_folder):
    seeds, steps = np.repeat([0, 1], [100, 40]), np.concatenate([np.arange(1, 101), np.arange(1, 41)])
    columns = {"seed": seeds, "env_steps": steps, "return": steps * 1.0}
    curve = learning_curve(_replace_episodes(run_folder, columns), points=20)
    assert np.isfinite(curve.per_seed[0][-1])
    assert np.isnan(curve.per_seed[1][-1])
    assert np.isnan(curve.centre[-1])
    assert np.isfinite(curve.centre[5])


def test_training_curves_skip_gaps(run_folder):
    run = load_run(run_folder)
    assert diagnostic_names(run)[0] == "train/critic_loss"
    curve = training_curve(run, "train/critic_loss")
    assert curve.centre[-1] < curve.centre[2]
    assert curve.limit is None
    assert training_curve(run, "train/cost_estimate_angle").limit == 10.0
    assert np.isfinite(training_curve(run, "rollout/return").centre[-1])
    with pytest.raises(InputError, match="no column 'train/nothing'"):
        training_curve(run, "train/nothing")
    with pytest.raises(InputError, match="expected 'iqm' or 'mean'"):
        learning_curve(run, statistic="median")


def test_steps_to_reach(run_folder):
    curve = learning_curve(load_run(run_folder))
    half = steps_to_reach(curve, 100.0)
    assert half is not None
    assert 0 < half < 20_000
    assert steps_to_reach(curve, 1e9) is None


def test_no_data_at_all(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r"))
    empty = RunData(run.path, run.meta, run.metrics.head(0), run.episodes.head(0), None)
    assert np.isnan(learning_curve(empty).centre).all()
    assert empty.env_steps == 0
