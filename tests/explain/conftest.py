"""One short recorded flight for all tests of this folder."""

import pytest

from awavo.control.planner_config import PlannerConfig

# The margin and the bound of the records that the intervals were calibrated on.
SMALL = PlannerConfig(num_candidates=64, num_particles=8, clearance_margin=0.42, max_rate=6.0)


@pytest.fixture(scope="session")
def config():
    return SMALL


@pytest.fixture(scope="session")
def record(once):
    """An FT3 flight of 40 decisions, logged."""
    pytest.importorskip("mcap")
    from awavo.explain.recording import record_flight

    def make(folder):
        folder.mkdir()
        record_flight(folder / "flight.mcap", task="FT3", seed=3, steps=40, config=SMALL)

    return once("flight", make) / "flight.mcap"
