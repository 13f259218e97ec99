"""How good an inferred trajectory is when the truth is known: errors, lost components, calibration."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from awavo.types import Fields

__all__ = ["LOST", "Z90", "fair_crps", "score"]

LOST = 2.0
Z90 = 1.6448536269514722


def fair_crps(draws: Float[np.ndarray, "r *n"], truth: Float[np.ndarray, "*n"]) -> float:
    """Continuous ranked probability score of an ensemble, unbiased in its size (Ferro 2014), averaged."""
    num = len(draws)
    near = np.abs(draws - truth).mean(0)
    ordered = np.sort(draws, 0)
    rank = (2 * np.arange(1, num + 1) - num - 1).reshape(-1, *[1] * (draws.ndim - 1))
    spread = (rank * ordered).sum(0) / (num * (num - 1))
    return float(np.mean(near - spread))


def score(
    mean: Float[np.ndarray, "T I"],
    std: Float[np.ndarray, "T I"],
    truth: Float[np.ndarray, "T I"],
    hidden: Bool[np.ndarray, " I"],
    draws: Float[np.ndarray, "r T I"] | None = None,
    lost: float = LOST,
) -> Fields:
    """Scores over the components never observed, at the times of observation (all but the first row).

    Where every component is observed, over all of them. A component is lost when its own RMSE is above `lost`.
    """
    hidden = hidden if hidden.any() else ~hidden
    error = (mean - truth)[1:][:, hidden].astype(np.float64)
    width = std[1:][:, hidden]
    quarter = max(len(error) // 4, 1)

    def rmse(e):
        return float(np.sqrt(np.mean(e**2)))

    own = np.sqrt(np.mean(error**2, 0))
    result = {
        "rmse": rmse(error),
        "rmse_first_quarter": rmse(error[:quarter]),
        "rmse_middle": rmse(error[quarter:-quarter]),
        "rmse_last_quarter": rmse(error[-quarter:]),
        "median_absolute_error": float(np.median(np.abs(error))),
        "lost": float(np.mean(own > lost)),
        "coverage90": float(np.mean(np.abs(error) <= Z90 * width)),
        "components": int(hidden.sum()),
    }
    if draws is not None and len(draws) > 1:
        inside = draws[:, 1:][:, :, hidden]
        result["crps"] = fair_crps(inside, truth[1:][:, hidden])
        spread = inside.std(0, ddof=1)
        result["draws_coverage90"] = float(np.mean(np.abs(inside.mean(0) - truth[1:][:, hidden]) <= Z90 * spread))
    return result
