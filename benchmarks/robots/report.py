"""Turn the results of the robots' benchmarks into the tables of docs/robots.md.

    python benchmarks/robots/report.py

Reads benchmarks/robots/results/*.json and writes docs/robots_results.md; a file that is missing is a table less.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "robots" / "results"
JOBS = ROOT / "benchmarks" / "results" / "reproduce" / "jobs" / "learning"


def fidelity(file: dict) -> list[str]:
    found = file["results"]
    drone, walker = found["drone"], found["walker"]
    steps = ", ".join(f"{1e3 * float(dt):g} ms {e:.2e} m" for dt, e in found["quadrotor_error_m"].items())
    gusts = ", ".join(
        f"{1e3 * float(dt):g} ms {min(map(min, rows)):.3f} to {max(map(max, rows)):.3f}"
        for dt, rows in found["gust_std_of_2"].items()
    )
    return [
        "| | measured | asked |",
        "|---|---|---|",
        f"| drone against MuJoCo, 300 steps of free flight, tilts to {max(drone['tilt_rad']):.2f} rad, 5 flights "
        f"| {1e3 * max(drone['error_m']):.2f} mm | 2 mm |",
        f"| walker: nq, nv, nu, mass | {walker['nq']}, {walker['nv']}, {walker['nu']}, {walker['mass_kg']:.4f} kg "
        "| 13, 13, 10, 1.557 kg |",
        f"| walker: MJX against C MuJoCo, 50 steps without contacts, joints to {walker['largest_joint']:.2f} "
        f"| {walker['mjx_joint_difference']:.1e} | 1e-3 |",
        f"| quadrotor against MuJoCo, error after 0.5 s | {steps} | halves with the step |",
        f"| gusts of standard deviation 2.0 | {gusts} | within 3% |",
    ]


def random_policy(file: dict) -> list[str]:
    lines = [
        f"Gaussian policy of standard deviation 0.6, {file['episodes']} episodes; the fact sheet's figures are of 16.",
        "",
        "| robot | | mean ± standard error | 10%, 50%, 90% | fact sheet | chance of the sheet's mean |",
        "|---|---|---|---|---|---|",
    ]
    for robot, rows in file["results"].items():
        for name, row in rows.items():
            spread = ", ".join(f"{q:.1f}" for q in row["quantiles"].values())
            lines.append(
                f"| {robot} | {name} | {row['mean']:.2f} ± {row['standard_error']:.2f} | {spread} | {row['sheet']} "
                f"| {row['chance']:.3f} |"
            )
    return lines


def flights(file: dict) -> list[str]:
    lines = [
        "| controller, task | rms error (worst seed), m | collisions | clearance, envelope (worst) | within limits "
        "| least clearance, m | decision, ms: median, 95% |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in file["results"].items():
        each = list(row["flights"].values())
        times = [sorted(f["wall_ms"][q] for f in each)[len(each) // 2] for q in ("50", "95")]
        costs = row["costs"]
        gap = f"{row['least_clearance_m']:.2f}" if row["least_clearance_m"] < 100 else "no obstacles"
        lines.append(
            f"| {name} | {row['rms_m']['mean']:.3f} ({row['rms_m']['worst']:.3f}) | {row['collisions']} of {len(each)} "
            f"| {costs['mean'][0]:.2f}, {costs['mean'][1]:.2f} ({costs['worst'][0]:.1f}, {costs['worst'][1]:.1f}) "
            f"| {row['within_limits']} of {len(each)} | {gap} | {times[0]:.1f}, {times[1]:.1f} |"
        )
    return lines


def loopback(file: dict) -> list[str]:
    stream, cut, stall, kill = (file[k] for k in ("stream", "link_cut", "stall", "kill"))
    gaps, calls = stream["interval_ms"], stream["call_us"]
    return [
        "| | |",
        "|---|---|",
        f"| {stream['seconds']:.0f} s at 100 Hz | {stream['received_hz']:.1f} Hz received, every {gaps['50']:.1f} ms "
        f"(99%: {gaps['99']:.1f} ms, longest {gaps['100']:.1f} ms), one call {calls['50']:.0f} µs "
        f"(99%: {1e-3 * calls['99']:.1f} ms), tracking error {stream['rms_error_m']:.3f} m rms |",
        f"| policy stalled | link ended ({stall['ended']}), vehicle in {stall['mode']}, "
        f"{stall['setpoints_after_the_end']} setpoints after it |",
        f"| link cut | link ended ({cut['ended']}), vehicle in {cut['mode']}; restored: {cut['after_restoring']} |",
        f"| kill switch | vehicle in {kill['mode']} at {kill['height_m']:.2f} m, {kill['setpoints_after']} setpoints |",
    ]


def speed(file: dict) -> list[str]:
    lines = ["| | steps/s | per CPU-second | compiling, s |", "|---|---|---|---|"]
    for name, row in file["results"].items():
        per_cpu = f"{row['steps_per_cpu_s']:,.0f}" if file["device"]["platform"] == "cpu" else ""
        lines.append(f"| {name} | {row['steps_per_s']:,.0f} | {per_cpu} | {row['first_call_s']:.0f} |")
    return lines


def learning(folder: Path) -> list[str]:
    """Greedy episodes of every algorithm that was trained on the drone, shortest budget first."""
    lines = [
        "### Learning the drone",
        "",
        "| algorithm | how it plans | steps a seed | seeds | return | cost | within the limit | commit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    paths = [*folder.glob("drone_*.json"), *JOBS.glob("drone-*.json")]
    files = [json.loads(path.read_text()) for path in paths]
    files.sort(key=lambda f: (f["rows"][0]["env_steps_per_seed"], f["rows"][0]["algo"]))
    for file in files:
        row = file["rows"][0]
        found, words = row["evaluation"]["greedy"], file["command"].split()
        first = int(words[words.index("--first-seed") + 1]) if "--first-seed" in words else 0
        cells = [
            f"{x['value']:.2f} [{x['low']:.2f}, {x['high']:.2f}]" for x in (found["return"], found["costs"]["hazards"])
        ]
        lines.append(
            f"| {row['algo']} | {planning(row)} | {row['env_steps_per_seed']:,} "
            f"| {first} to {first + row['seeds'] - 1} | {' | '.join(cells)} "
            f"| {found['feasible_seeds']} of {row['seeds']} | {file['commit'][:7]} |"
        )
    return [*lines, "", f"The first row: `{files[0]['command']}`, {files[0]['device']['kind']}.", ""]


def walking(folder: Path) -> list[str]:
    """What ORPO-DR learns of the walker when its actions are torques."""
    lines = [
        "### Learning the walker with torques",
        "",
        "| rewards | gradient steps a step | entropy kept, nats | cost limit | steps a seed | seeds "
        "| with its noise: return | cost | greedy: return | cost |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("walker_*.json"))]
    if not files:
        return []
    for file in files:
        row = file["rows"][0]
        settings = row["settings"]
        clip, limit = settings["reward_clip"], row["evaluation"]["greedy"]["costs"]["hazards"]["limit"]
        found = [row["evaluation"][kind] for kind in ("stochastic", "greedy")]
        figures = [x for kind in found for x in (kind["return"], kind["costs"]["hazards"])]
        cells = [
            f"cut at {clip:g}" if clip else "whole",
            f"{settings['num_updates'] / (settings['num_envs'] * settings['rollout_length']):g}",
            f"{settings['entropy_target']:g}",
            "none" if limit >= 1000 else f"{limit:g}",
            f"{row['env_steps_per_seed']:,}",
            ", ".join(map(str, row["seed_numbers"])),
            *(", ".join(f"{value:.2f}" for value in x["per_seed"]) for x in figures),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    sources = [f"`{f['command']}`, commit {f['commit'][:12]}, {f['device']['kind']}" for f in files]
    return [*lines, "", "Every seed's mean of 16 episodes or more. " + "; ".join(sources) + ".", ""]


def exploration(file: dict) -> list[str]:
    """Where random actions carry the walker."""
    lines = ["| actions | mean speed, m/s | median | 90% below | largest |", "|---|---|---|---|---|"]
    for name, row in file["rows"].items():
        lines.append(f"| {name} | {row['mean']:.3f} | {row['median']:.3f} | {row['p90']:.3f} | {row['largest']:.3f} |")
    played = {k: f"{v:.2f}" for k, v in file["episodes_at_2_hz"].items()}
    text = ", ".join(f"{name} {played[name]} ± {played[name + '_error']}" for name in ("return", "cost", "goals"))
    return [*lines, "", f"Whole episodes of gaits drawn every step, 2 Hz: {text} (128 episodes, standard errors)."]


def planning(row: dict) -> str:
    """What decides, in a few words."""
    settings = row["settings"]
    if row["algo"] != "awavo":
        return ""
    if settings["planning"] == "off":
        return "actor alone" + (", imagined transitions" if settings["imagined_batch"] else "")
    share = settings["effective_share"]
    sharp = f"T for {share:.0%} effective candidates" if share else "T = 1"
    origin = "the actor's candidates" if settings.get("initial") == "actor" else "the plan before"
    return f"q from {origin}, {settings['num_slices']} slices, {sharp}"


SECTIONS: list[tuple[str, str, Callable[[dict], list[str]]]] = [
    ("fidelity", "Against MuJoCo", fidelity),
    ("random_policy", "The goal task under a random policy", random_policy),
    ("walker_exploration", "Where random actions carry the walker", exploration),
    ("fly", "Flights: AWaVO and the tracking law alone", flights),
    ("fly_mismatch", "Flights with a wrong mass and drag", flights),
    ("loopback", "MAVLink loopback", loopback),
    ("speed_cpu", "Speed on a CPU", speed),
    ("speed_h200", "Speed on an H200", speed),
    ("speed_h200_mjx", "Speed of MJX on an H200", speed),
]


def main() -> None:
    lines: list[str] = []
    for name, title, table in SECTIONS:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            print(f"no {path.name}")
            continue
        file = json.loads(path.read_text())
        device = file["device"]
        machine = f"{device['cores']} cores, {device['cpu']}" if device["platform"] == "cpu" else device["kind"]
        load = f", load {file['load'][0]:.1f}" if "load" in file else ""
        lines += [
            f"### {title}",
            "",
            *table(file),
            "",
            *([f"Note: {file['note']}.", ""] if "note" in file else []),
            f"`{file['command']}`, commit {file['commit']}, {machine}{load}.",
            "",
        ]
    lines += learning(RESULTS / "learning")
    lines += walking(RESULTS / "learning")
    (ROOT / "docs" / "robots_results.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
