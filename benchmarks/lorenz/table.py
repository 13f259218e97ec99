"""Write the tables of docs/trajectories.md from the JSON files in results: `python benchmarks/lorenz/table.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "trajectories.md"
HEAD = (
    "| states | method | seeds | RMSE mean (median) | quarters: first / middle half / last | inside 90% | CRPS | lost "
    "| s median (max) | to compile, s | commit |\n|--|--|--|--|--|--|--|--|--|--|--|"
)
FORCING = "| states | seeds | forcing: mean, range | largest error | mean half-width of 90% | inside | commit |"
SCALING = "| states | seed | device | RMSE | lost | inside 90% | s | processor s | to compile, s | peak GB | commit |"


def load(pattern: str) -> list[dict]:
    """Results whose file name matches, small sizes first."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(pattern))]
    return sorted(found, key=lambda r: r.get("states", 0))


def comparison(results: list[dict]) -> str:
    """One row per method and size."""
    lines = [HEAD]
    for r in results:
        s = r["summary"]
        quarters = " / ".join(f"{s[f'rmse_{part}']:.2f}" for part in ("first_quarter", "middle", "last_quarter"))
        crps = f"{s['crps']:.3f}" if "crps" in s else ""
        longest = max(row["solve_s"] for row in r["rows"])
        compiled = f"{r['compile_s']:.0f}" if "compile_s" in r else ""
        lines.append(
            f"| {r['states']:,} | {r['method']} | {_span(r['seeds'])} | {s['rmse']:.3f} ({s['rmse_median']:.3f}) | "
            f"{quarters} | {s['coverage90']:.3f} | {crps} | {s['lost']:.2%} | {s['solve_s_median']:.2f} ({longest:.2f})"
            f" | {compiled} | {r['commit'][:7]} |"
        )
    return "\n".join(lines)


def forcing(results: list[dict]) -> str:
    """The inferred forcing (truth 8) with its interval."""
    lines = [FORCING, "|--|--|--|--|--|--|--|"]
    for r in results:
        values = [row["forcing"] for row in r["rows"]]
        half = sum(row["half90"] for row in r["rows"]) / len(values)
        inside = sum(row["inside90"] for row in r["rows"])
        worst = max(abs(value - 8) / 8 for value in values)
        lines.append(
            f"| {r['states']:,} | {_span(r['seeds'])} | {sum(values) / len(values):.4f}, {min(values):.3f} to "
            f"{max(values):.3f} | {worst:.2%} | {half:.4f} | {inside} of {len(values)} | {r['commit'][:7]} |"
        )
    return "\n".join(lines)


def scaling(results: list[dict]) -> str:
    """Error, time and memory against size, and the exponent of time."""
    lines = [SCALING, "|--|--|--|--|--|--|--|--|--|--|--|"]
    for r in results:
        for row in r["rows"]:
            peak = f"{row['peak_gb']:.1f}" if row["peak_gb"] else ""
            processor = f"{row['cpu_s']:.1f}" if "cpu_s" in row else ""
            lines.append(
                f"| {row['states']:,} | {row['seed']} | {r['device']} | {row['rmse']:.3f} | {row['lost']:.2%} | "
                f"{row['coverage90']:.3f} | {row['solve_s']:.1f} | {processor} | {row['compile_s']:.0f} | {peak} | "
                f"{r['commit'][:7]} |"
            )
    kinds = {"time_exponent": "wall", "exponent_solve_s": "wall", "exponent_cpu_s": "processor"}
    exponents = [f"{r[k]:.2f} ({r['device']}, {kind})" for r in results for k, kind in kinds.items() if r.get(k)]
    return "\n".join([*lines, "", f"Exponent of time against size: {', '.join(exponents)}."])


def _span(seeds: list[int]) -> str:
    return f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def main() -> None:
    regime_g = [*load("awavo_*_G.json"), *load("awavo_*_oracle.json"), *load("local_smoother_*_G.json"),
                *load("dapper_*.json")]  # fmt: skip
    tables = {
        "regime-g": comparison(sorted(regime_g, key=lambda r: r["states"])),
        "regime-d": comparison(load("awavo_*_D.json")),
        "forcing": forcing(load("awavo_*_forcing.json")),
        "scaling": scaling(load("scaling_*.json")),
    }
    text = PAGE.read_text()
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda m, t=table: m[1] + t + "\n" + m[2], text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} has no place for the table '{name}'.")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
