"""The calibrations that come with the package, and where each holds: one setting of the planner, its two factors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import NamedTuple

import numpy as np

from awavo.control.flight_planner import FACTORS
from awavo.control.planner_config import PlannerConfig, stored_planner
from awavo.explain.intervals import PROBABILITY, Band, MeasureScale, Stretch, calibrated_band

__all__ = ["Calibration", "Constants", "NECESSITY", "UNITS", "calibration_for", "load_calibrations"]

UNITS = ("N", "rad/s", "us")
NECESSITY = "necessity"
# One file for each setting of the planner that was calibrated.
FILES = ("calibration.json",)


class Constants(NamedTuple):
    """The stretches of one measure by factor, and the scales they belong to."""

    stretch: dict[str, list[Stretch]]
    scale: dict[str, MeasureScale]

    def apply(self, band: Band) -> Band:
        """Stretch bands [T, M] of the planner's own factors."""
        columns = [
            calibrated_band(Band(*(np.asarray(x)[:, i] for x in band)), self.stretch[name], self.scale[name])
            for i, name in enumerate(FACTORS)
        ]
        return Band(*(np.stack([np.asarray(column[k]) for column in columns], 1) for k in range(3)))


class Calibration(NamedTuple):
    """The constants of an influence and of every other measure (`UNITS` and `NECESSITY`), with the planners of both."""

    influence: Constants
    measures: dict[str, Constants]
    planners: tuple[PlannerConfig, ...]


def _stretches(stored: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, list[Stretch]]:
    return {name: [Stretch(**part) for part in parts] for name, parts in stored.items()}


def _load(name: str) -> Calibration:
    found = json.loads(resources.files("awavo.explain").joinpath(name).read_text(encoding="utf-8"))
    rest = found["measures"]
    measures = {
        measure: Constants(_stretches(parts), {name: MeasureScale(**x) for name, x in rest["scale"][measure].items()})
        for measure, parts in rest["stretch"].items()
    }
    influence = Constants(_stretches(found["stretch"]), dict.fromkeys(FACTORS, PROBABILITY))
    return Calibration(influence, measures, tuple(stored_planner(part["planner"]) for part in (found, rest)))


def load_calibrations() -> tuple[Calibration, ...]:
    """Read the constants that come with the package."""
    return tuple(_load(name) for name in FILES)


def calibration_for(config: PlannerConfig, names: tuple[str, ...]) -> Calibration | None:
    """Return the calibration of these settings, or None where there is none for them or for these factors."""
    fits = (found for found in load_calibrations() if all(planner == config for planner in found.planners))
    return next(fits, None) if names == FACTORS else None
