"""Write the table of `docs/trajectories.md` from the result files of `systems.py` and `modes.py`.

python benchmarks/assimilation/table.py
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "trajectories.md"
BEGIN, END = "<!-- systems -->", "<!-- end systems -->"


def rows() -> list[str]:
    """One line per result file."""
    lines = [
        "| system | seeds | RMSE (started at the truth) | largest ratio | wrong, of these not marked | "
        "marked (in part) | inside 90% (± s.e.) | parameters inside | lost | first call, CPU s (wall) | "
        "later, CPU s | commit |",
        "|--|--|--|--|--|--|--|--|--|--|--|--|",
    ]
    for path in sorted((HERE / "results").glob("*.json")):
        if path.stem.startswith(("modes", "nearby", "shocks")):
            continue
        record = json.loads(path.read_text())
        s, seeds = record["summary"], [r["seed"] for r in record["rows"]]
        name = record["system"] + (f", {record['states']:,} sites" if record["states"] else "")
        name += f", unit {record['unit']:g}" if record["unit"] != 1 else ""
        theta = "" if s["theta_coverage90"] is None else f"{s['theta_coverage90']:.2f}"
        lines.append(
            f"| {name} | {seeds[0]}-{seeds[-1]} | {s['rmse']:.4g} ({s['truth_started']:.4g}) | "
            f"{s['largest_ratio']:.3f} | {s['wrong']}, {s['wrong_and_not_marked']} | {s['marked']}{_in_part(s)} | "
            f"{s['coverage90']:.3f} ± {s['coverage90_error']:.3f} | {theta} | {s['lost']:.2%} | "
            f"{s['cold_cpu_s']:.1f} ({s['cold_wall_s']:.0f}) | {s['later_cpu_s']:.2f} | {record['commit'][:7]} |"
        )
    return lines


def _in_part(summary: dict) -> str:
    """Files of before there were sites not to believe have no such number."""
    return f" ({summary['marked_in_part']})" if "marked_in_part" in summary else ""


def main() -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(rows()) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
