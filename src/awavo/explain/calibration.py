"""The calibration that comes with the package, and where it holds: one planner, its own two factors."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from awavo.explain.flight_planner import FACTORS, ExplainedConfig
from awavo.explain.intervals import PROBABILITY, Band, Scale, Stretch, calibrated_band

__all__ = ["Calibration", "Constants", "NECESSITY", "UNITS", "calibration_for", "load_calibration"]

UNITS = ("N", "rad/s", "us")
NECESSITY = "necessity"


class Constants(NamedTuple):
    """The stretches of one measure by factor, and the scales they belong to."""

    stretch: dict[str, list[Stretch]]
    scale: dict[str, Scale]

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
    planners: tuple[Any, ...]


def _stretches(stored: dict[str, Any]) -> dict[str, list[Stretch]]:
    return {name: [Stretch(**part) for part in parts] for name, parts in stored.items()}


def load_calibration() -> Calibration:
    """Read the constants that come with the package."""
    found = json.loads(resources.files("awavo.explain").joinpath("calibration.json").read_text(encoding="utf-8"))
    rest = found["measures"]
    measures = {
        measure: Constants(_stretches(parts), {name: Scale(**x) for name, x in rest["scale"][measure].items()})
        for measure, parts in rest["stretch"].items()
    }
    influence = Constants(_stretches(found["stretch"]), dict.fromkeys(FACTORS, PROBABILITY))
    return Calibration(influence, measures, (found["planner"], rest["planner"]))


def calibration_for(config: ExplainedConfig, names: tuple[str, ...]) -> Calibration | None:
    """Return the calibration, or None where it was made for another planner or other factors."""
    found = load_calibration()
    same = all(_plain(planner) == _plain(config) for planner in found.planners)
    return found if same and names == FACTORS else None


def _plain(config: Any) -> list[Any]:
    """The planner's settings as a list of numbers, from a NamedTuple or from JSON."""
    values = list(config.values()) if isinstance(config, dict) else list(config)
    flat: list[Any] = []
    for value in values:
        flat += _plain(value) if isinstance(value, dict | list | tuple) else [round(float(value), 9)]
    return flat
