"""The calibration reaches what is shown, in every unit, and only where it was made for."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from awavo.control.flight_planner import FACTORS
from awavo.control.planner_config import PlannerConfig
from awavo.explain import flight_report
from awavo.explain.calibration import NECESSITY, UNITS, calibration_for, load_calibrations
from awavo.explain.flight_report import explain_log
from awavo.explain.intervals import Band, MeasureScale, Stretch, calibrate, calibrated_band, stretch_band, with_value
from awavo.explain.mismatch import log_hindsight
from awavo.explain.record import read_log
from awavo.explain.summary import find_segments, not_judged, segment_text
from awavo.results.explain_page import PageContent, write_explain_page

HERE = Path(__file__).resolve()


@pytest.fixture(scope="module")
def asked(record):
    """Four decisions of the small planner, and the raw bands that its program gives."""
    log = read_log(record)
    program = flight_report.decision_program(log.config, FACTORS)
    seen = log_hindsight(log)[0]
    asked = zip(log.decisions[::10], seen.force[::10], seen.covariance[::10], strict=True)
    rows = [program(d.inputs, log.params, force, doubt) for d, force, doubt in asked]
    return log, jax.tree.map(lambda *x: np.stack(x), *rows)


def test_the_stretch_reaches_the_magnitudes_and_what_is_said_of_them(asked, monkeypatch):
    log, raw = asked
    plain = explain_log(log, every=10)
    assert not plain.calibrated
    monkeypatch.setattr(flight_report, "calibration_for", lambda config, names: load_calibrations()[0])
    found = explain_log(log, every=10)
    assert found.calibrated
    known = load_calibrations()[0]
    for u, unit in enumerate(UNITS):
        constants = known.measures[unit]
        for i, name in enumerate(FACTORS):
            band = Band(*(x[:, i, u] for x in raw.magnitude))
            expected = with_value(calibrated_band(band, constants.stretch[name], constants.scale[name]))
            np.testing.assert_allclose(found.magnitude[unit].low[:, i], expected.low, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(found.magnitude[unit].high[:, i], expected.high, rtol=1e-4, atol=1e-4)
        assert np.abs(found.magnitude[unit].high - plain.magnitude[unit].high)[:, 0].max() > 1e-3
        assert found.magnitude[unit].low.min() >= 0.0
    assert np.abs(found.necessity.high - plain.necessity.high).max() > 1e-3
    assert found.necessity.high.max() <= 1.0
    texts = [segment_text(find_segments(x, log, threshold=0.0)[0]) for x in (plain, found)]
    assert texts[0].splitlines()[1] != texts[1].splitlines()[1]
    replay = {"decisions": 40, "differing": [], "of": 40}
    assert any("not calibrated" in note for note in not_judged(log, plain, replay))
    assert not any("not calibrated" in note for note in not_judged(log, found, replay))


def test_other_settings_and_other_factors_are_not_calibrated(config):
    first = PlannerConfig()
    assert calibration_for(first, FACTORS) is not None
    assert calibration_for(config, FACTORS) is None
    assert calibration_for(first._replace(temperature=0.06), FACTORS) is None
    assert calibration_for(first, ("wind", "drag")) is None


def test_the_page_says_of_magnitudes_whether_they_are_calibrated(tmp_path):
    data = {"time": np.zeros(1), "names": ["wind"], "low": np.zeros((1, 1)), "magnitude": {"N": {}}}
    for calibrated, words in ((True, "calibrated on simulated flights"), (False, "not calibrated")):
        content = PageContent("t", "s", (), (), (), (), "c", data, calibrated)
        page = write_explain_page(content, tmp_path / "page.html").read_text()
        caption = next(line for line in page.splitlines() if "Debiased sliced Wasserstein" in line)
        assert f"90% intervals, {words};" in caption


def test_magnitudes_are_not_cut_at_one_and_never_below_zero():
    scale = MeasureScale(floor=1.0, edge=20.0, nothing=0.5)
    band = Band(np.array([-2.0, 1.0, 60.0]), np.array([-9.0, -4.0, 50.0]), np.array([3.0, 8.0, 75.0]))
    shown = stretch_band(band, Stretch(0.5, 0.5), scale)
    np.testing.assert_allclose(shown.low, [0.0, 0.0, 50.0 - 0.5 * 11.0])
    np.testing.assert_allclose(shown.high, [3.0 + 0.5 * 6.0, 8.0 + 0.5 * 8.0, 75.0 + 0.5 * 16.0])
    narrow = stretch_band(band, Stretch(-3.0, -3.0), scale)
    assert min(narrow.low.min(), narrow.high.min()) >= 0.0
    assert np.all(narrow.low <= narrow.high)
    held = with_value(stretch_band(Band(np.array([0.3, -0.1]), np.zeros(2), np.full(2, 0.3)), Stretch(0, -0.5), scale))
    assert held.high.tolist() == [0.3, 0.0]
    assert held.low.tolist() == [0.0, 0.0]


def test_calibrating_in_a_unit_gives_the_level_for_small_and_large_values():
    rng = np.random.default_rng(1)
    scale = MeasureScale(floor=1.0, edge=40.0, nothing=0.5)

    def cases(count):
        truth = rng.uniform(10, 100, count)
        value = truth * (1 + 0.2 * rng.normal(size=count)) + 2
        return Band(value, value - 0.1 * truth, value + 0.1 * truth), truth

    stretches = calibrate(*cases(4000), scale)
    band, truth = cases(8000)
    shown = calibrated_band(band, stretches, scale)
    for part in (band.value < 40, band.value >= 40):
        assert np.mean(((truth >= shown.low) & (truth <= shown.high))[part]) == pytest.approx(0.9, abs=0.025)
    together = calibrate(*cases(4000), scale._replace(edge=0.0))
    assert together[0] == together[1]


def test_the_stored_constants_say_where_they_come_from_and_are_those_of_the_results():
    stored = json.loads((HERE.parents[2] / "src/awavo/explain/calibration.json").read_text())
    results = json.loads((HERE.parents[2] / "benchmarks/explain/results/magnitude_coverage.json").read_text())
    part = stored["measures"]
    assert set(part["stretch"]) == {*UNITS, NECESSITY}
    for name in ("command", "commit", "device", "versions", "seeds", "planner"):
        assert part[name]
        assert stored[name]
    assert part["stretch"] == results["stretch"]
    assert part["scale"] == results["scale"]
