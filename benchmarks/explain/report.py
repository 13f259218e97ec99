"""Write docs/explain_results.md from the result files of this folder.

python benchmarks/explain/report.py
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TARGET = HERE.parents[1] / "docs" / "explain_results.md"
ROWS = (
    "true force, N", "probability of influence", "Shapley share of it", "transport, N", "transport, N, plug-in",
    "transport, us", "transport, us, plug-in", "transport, us over |u - idle|", "mean shift of thrust, N",
    "mean shift of motors, us",
)  # fmt: skip


def cell(entry: dict, digits: int = 3) -> str:
    low, high = entry["interval"]
    if abs(entry["value"]) >= 10:
        digits = 1
    return f"{entry['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def percent(entry: dict) -> str:
    low, high = entry["interval"]
    return f"{100 * entry['value']:+.0f}% [{100 * low:+.0f}, {100 * high:+.0f}]"


def additivity(part: dict) -> list[str]:
    lines = []
    for scene, found in part["results"].items():
        if scene == "paper":
            continue
        physics = ", ".join(f"{k} {v:g}" for k, v in found["physics"].items())
        lines += [f"**{scene.capitalize()}**{f' ({physics})' if physics else ''}:", ""]
        lines.append("| influence of the force (L0) | FT1 | FT2 | FT3 | FT1 + FT2 | gap | gap / FT3 |")
        lines.append("|---|---|---|---|---|---|---|")
        for name in ROWS:
            row = found["table"][name]
            label = (f"{name} (vector)" if row["vector"] else name).replace("|u - idle|", "the signal above idle")
            cells = [cell(row[k]) for k in ("FT1", "FT2", "FT3", "sum", "gap")]
            lines.append(f"| {label} | {' | '.join(cells)} | {percent(row['gap_share'])} |")
        pi = found["table"]["probability of influence"]
        lines += ["| paper | 0.20 | 0.18 | 0.40 | 0.38 | 0.02 | +5% |", ""]
        lines += [f"Noisy-or of FT1 and FT2: {cell(pi['noisy_or'])}; gap of FT3 to it: {cell(pi['noisy_or_gap'])}.", ""]
    return lines


def checks(part: dict) -> list[str]:
    found = part["results"]
    areas = found["area under ROC, wind on or off"]
    rank = found["rank correlation with the force"]
    lines = ["| check | found | asked for |", "|---|---|---|"]
    dummy = found["largest influence of a dummy (obstacles in FT0, FT1)"]
    lines.append(f"| dummy: obstacles where there are none, largest | {dummy:g} | 0 |")
    lines.append(f"| calm flight (FT0), mean influence of wind | {cell(found['calm FT0'])} | < 0.06 |")
    lines.append(f"| no force, obstacles (FT2 without push) | {cell(found['no force, FT2 without push'])} | < 0.12 |")
    for name, area in areas.items():
        zone, all_steps = area["in the fan's zone"], area["everywhere"]
        lines.append(f"| wind on or off, {name}: area under ROC in the zone | {zone:.4f} | >= 0.99 |")
        lines.append(f"| the same over whole flights, gusts alone included | {all_steps:.4f} | |")
    lines.append(f"| Shapley sum, largest error | {found['largest error of the Shapley sum']:.1e} | 1e-6 |")
    excess = found["largest excess over the triangle inequality"]
    lines.append(f"| sub-additivity, largest excess | {excess:.1e} | none but rounding |")
    for task, row in rank.items():
        lines.append(f"| rank correlation of influence and true force, {task} | {cell(row)} | |")
    for name in ("FT1", "FT2", "FT3"):
        lines.append(f"| influence of wind over the whole flight, {name} | {cell(found[name])} | |")
    for name in ("FT2", "FT3"):
        lines.append(
            f"| influence of obstacles over the whole flight, {name} | {cell(found[f'obstacles in {name}'])} | |"
        )
    lines.append(f"| collisions in all these flights | {found['collisions']} | |")
    return lines


def hiding(part: dict) -> list[str]:
    lines = ["| hidden | harm, mean | rank correlation with the influence, 0.5 s windows | within a flight |"]
    lines.append("|---|---|---|---|")
    for name, row in part["results"].items():
        harm = f"{row['harm']}: {row['mean harm']:.3f}"
        lines.append(f"| {name} | {harm} | {row['rank correlation']:.2f} | {cell(row['per flight'], 2)} |")
    return lines


def shuffled(part: dict) -> list[str]:
    parts = [f"{task} {cell(row)}" for task, row in part["results"].items()]
    return [f"Rank correlation of influence and true force after shuffling the force estimates: {', '.join(parts)}."]


def monotone(part: dict) -> list[str]:
    rows = part["results"]["influence at RS 02"]
    lines = ["| wind | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    lines.append("| influence at RS 02 | " + " | ".join(f"{r['value']:.3f}" for r in rows.values()) + " |")
    return [*lines, "", "Monotone." if part["results"]["monotone"] else "Not monotone."]


def stability(part: dict) -> list[str]:
    lines = ["| asked again with | influence at RS 02, FT1 | effective candidates |", "|---|---|---|"]
    return lines + [f"| {name} | {cell(row)} | {row['effective size']:.0f} |" for name, row in part["results"].items()]


def coverage(found: dict) -> list[str]:
    lines = [
        "| factor | coverage of 90% intervals, held out | before calibration | by task | mean width | cases, flights |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for name, row in found["results"].items():
        low, high = row["coverage_interval_over_flights"]
        tasks = ", ".join(f"{task} {value:.0%}" for task, value in row["by_task"].items())
        before = row["coverage_before_calibration"]
        lines.append(
            f"| {name} | {row['coverage']:.1%} [{low:.1%}, {high:.1%}] | {before:.1%} | {tasks} | "
            f"{row['mean_width']:.3f} | {row['cases']}, {row['flights']} |"
        )
    return lines


def speed(found: dict) -> list[str]:
    lines = ["| candidates | planning, ms | with explaining, ms (p95, p99) | extra per factor | within 20 ms |"]
    lines.append("|---|---|---|---|---|")
    for num, row in found["results"].items():
        both = row["plan and explain"]
        lines.append(
            f"| {num} | {row['plan']['p50']:.2f} | {both['p50']:.2f} ({both['p95']:.2f}, {both['p99']:.2f}) | "
            f"{row['explaining over planning, per factor']:.2f} | {row['share of 20 ms periods kept']:.1%} |"
        )
    return lines


def magnitudes(found: dict) -> list[str]:
    lines = ["| factor | measure | coverage of 90% intervals, held out | before calibration | small, large | by task |"]
    lines[0] += " mean value, truth | mean width (before) | cases, flights |"
    lines.append("|" + "---|" * 9)
    for name, measures in found["results"].items():
        for measure, row in measures.items():
            digits = 1 if measure == "us" else 3
            value, truth, width, before = (
                f"{row[k]:.{digits}f}" for k in ("mean_value", "mean_truth", "mean_width", "mean_width_before")
            )
            low, high = row["coverage_interval_over_flights"]
            tasks = ", ".join(f"{task} {share:.0%}" for task, share in row["by_task"].items())
            sizes = f"{row['by_size']['small']:.0%}, {row['by_size']['large']:.0%}"
            lines.append(
                f"| {name} | {measure} | {row['coverage']:.1%} [{low:.1%}, {high:.1%}] | "
                f"{row['coverage_before_calibration']:.1%} | {sizes} | {tasks} | {value}, {truth} | "
                f"{width} ({before}) | {row['cases']}, {row['flights']} |"
            )
    edges = ", ".join(f"{part['wind']['edge']:g} ({measure})" for measure, part in found["scale"].items())
    seeds = {name: f"{min(part)} to {max(part)}" for name, part in found["seeds"].items()}
    lines += ["", f"Small and large are parted at {edges}; wind is calibrated apart for both, obstacles together. "]
    lines[-1] += f"Calibrated on flights {seeds['calibration']} of each task, judged on flights {seeds['held_out']}; "
    lines[-1] += "brackets: 95%, flights drawn again."
    return lines


def mismatch(found: dict) -> list[str]:
    lines = ["| the vehicle is not the one told | flagged | influence of wind (as believed then) |"]
    lines[0] += " 90% intervals that reach 0 | lateral force held | its rms error, N | burst: start, end off (s) |"
    lines[0] += " after it: influence, intervals that reach 0 |"
    lines.append("|" + "---|" * 8)
    for name, row in found["results"].items():
        alarms = f"{row['flagged']:.0%}" + (f" ({', '.join(row['alarms'])})" if row["alarms"] else "")
        edges, after, moved = "", "", ""
        if "mean_influence" in row:
            moved = f"{row['mean_influence']:.3f} ({row['believed_influence']:.3f})"
        if "after" in row:
            spans = [row[k] for k in ("start_off_s", "end_off_s")]
            edges = "; ".join("not found" if x is None else f"{x[0]:+.2f} to {x[1]:+.2f}" for x in spans)
            after = f"{row['after']:.3f}, {row['after_holds_zero']:.0%}"
        zero = f"{row['holds_zero']:.0%}" if "holds_zero" in row else ""
        lines.append(
            f"| {name.replace('_', ' ')} | {alarms} | {moved} | {zero} | {row['force_held']:.0%} | "
            f"{row['force_rmse']:.3f} | {edges} | {after} |"
        )
    seeds = found["seeds"]
    return [
        *lines,
        "",
        f"Seeds {seeds[0]} to {seeds[-1]}, flights of 10 s. A number behind mass, drag, noise or thrust "
        "is the plant's over the one told; winds and bursts (1 s) in m/s.",
    ]


def long_record(found: dict) -> list[str]:
    lines = ["| a record of | replayed, asked | compiled programs at hand | processor time, one core | wall time |"]
    lines.append("|---|---|---|---|---|")
    for name, row in found["results"].items():
        lines.append(
            f"| {row['decisions']} decisions | {row['replayed']}, {row['asked']} | "
            f"{'none' if name == 'first' else 'all'} | {row['cpu_s']:.0f} s | {row['wall_s']:.0f} s |"
        )
    return [*lines, "", f"Other work kept the machine at a load of {found['load'][0]:.1f}."]


def source(made: dict, file: str) -> list[str]:
    device = made["device"]
    return ["", f"`{made['command']}`, commit {made['commit']}, {device['cpu']}, {device['cores']} cores ({file}).", ""]


def main() -> None:
    flights = json.loads((RESULTS / "flights.json").read_text())
    parts = [("Additivity at RS 02", additivity, "additivity"), ("Checks", checks, "checks")]
    parts += [("Force estimates shuffled in time", shuffled, "shuffled")]
    parts += [("Hiding a factor", hiding, "hiding"), ("Wind speed", monotone, "monotone")]
    parts += [("Temperature and pool", stability, "stability")]
    lines = []
    for title, make, name in parts:
        if name in flights:
            found = flights[name]
            lines += [f"### {title}", "", *make(found), *source(found, "benchmarks/explain/results/flights.json")]
    for title, make, name in (
        ("A model that is wrong", mismatch, "mismatch"),
        ("Coverage", coverage, "coverage"),
        ("Coverage of magnitudes and of necessity", magnitudes, "magnitude_coverage"),
        ("Speed", speed, "speed"),
        ("A long record", long_record, "long_record"),
    ):
        if (RESULTS / f"{name}.json").is_file():
            found = json.loads((RESULTS / f"{name}.json").read_text())
            lines += [f"### {title}", "", *make(found), *source(found, f"benchmarks/explain/results/{name}.json")]
    TARGET.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
