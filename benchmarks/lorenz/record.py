"""Results with their provenance: seeds, settings, scores by seed, and a table."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from awavo.provenance import command_line, device_info, source_commit, versions

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("rmse", "rmse_first_quarter", "rmse_middle", "rmse_last_quarter", "coverage90", "crps", "lost")


def summarise(rows: list[dict]) -> dict:
    """Mean over seeds of every score, and the median of the error and of the times."""
    result = {name: float(np.mean([r[name] for r in rows])) for name in COLUMNS if name in rows[0]}
    result["rmse_median"] = float(np.median([r["rmse"] for r in rows]))
    for name in ("solve_s", "cpu_s"):
        if name in rows[0]:
            result[f"{name}_median"] = float(np.median([r[name] for r in rows]))
            result[f"{name}_max"] = float(np.max([r[name] for r in rows]))
    return result


def write(name: str, method: str, states: int, rows: list[dict], **more: object) -> Path:
    """Write one JSON file: what was run, every seed, the summary."""
    RESULTS.mkdir(exist_ok=True)
    content = {
        "method": method, "states": states, "seeds": [r["seed"] for r in rows], "summary": summarise(rows),
        "rows": rows,
        "command": command_line(), "commit": source_commit(), "versions": versions(), "device": device_info(),
        "date": time.strftime("%Y-%m-%d"), **more,
    }  # fmt: skip
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
