"""Figure 6 from its result files: AWaVO against PCPO and the tracking law on the flight tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from awavo.paper.claims import CONFIRMED, outperforms
from awavo.paper.comparison import difference
from awavo.paper.job import ResultRow
from awavo.paper.outputs import FigureFinding, FigureTask, Picture, merge_blocks
from awavo.paper.plotting import COLORS, LIMIT_COLOR
from awavo.results.limits import STRICT
from awavo.results.outcome import format_estimate
from awavo.results.statistics import mean_estimate
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["collect"]

NAMES = {"awavo": "AWaVO", "pcpo": "PCPO", "track": "tracking law"}
COSTS = ("clearance", "envelope")
COLLISION_COST = QuadrotorParams().collision_cost
STRAYING_LOSS = 1.0
Rows = Mapping[tuple[str, str], ResultRow]  # by flight and controller
PER_SEED = ("seed_numbers", "returns", "costs", "rms_m", "collision", "clearance_m")


def collect(task: FigureTask) -> FigureFinding:
    """Return, tracking error, costs and collisions of every task and controller."""
    blocks = merge_blocks(task.rows, ("flight", "policy"), PER_SEED)
    rows = {(row["flight"], row["policy"]): row for row in blocks}
    flights = sorted({flight for flight, _ in rows})
    text = [_sentence(flight, rows) for flight in flights]
    text.append(_against_paper(flights, rows))
    width = 3.2 * (1 + len(COSTS))
    return FigureFinding(
        "\n\n".join(text), _data(rows), _table(rows), [Picture("flights", (width, 3.2), lambda f: _draw(f, rows))]
    )


def _within(row: ResultRow) -> np.ndarray:
    return STRICT.seeds_within(row["costs"], row["limits"])


def _sentence(flight: str, rows: Rows) -> str:
    parts = []
    for policy, name in NAMES.items():
        row = rows.get((flight, policy))
        if row is not None:
            error = f", rms error {format_estimate(mean_estimate(row['rms_m']))} m" if "rms_m" in row else ""
            kept = f"{int(_within(row).sum())} of {len(row['returns'])} seeds within limits"
            parts.append(f"{name}: return {format_estimate(mean_estimate(row['returns']))}{error}, {kept}")
    return f"**{flight}.** {'; '.join(parts)}."


def _against_paper(flights: Sequence[str], rows: Rows) -> str:
    """The paper: on the real vehicle AWaVO slightly outperforms PCPO."""
    found = []
    for flight in flights:
        own, other = rows.get((flight, "awavo")), rows.get((flight, "pcpo"))
        if own is None or other is None:
            continue
        gap = difference(np.array(own["returns"]), np.array(other["returns"]))
        within = [(int(_within(row).sum()), len(row["returns"])) for row in (own, other)]
        verdict = outperforms(STRICT.holds(*within[0]), STRICT.holds(*within[1]), gap)
        verdict = "not put to the test" if verdict == CONFIRMED and not _flies(other) else verdict
        seeds = " and ".join(f"{kept} of {of}" for kept, of in within)
        told = f"return of AWaVO less that of PCPO {format_estimate(gap)}; {seeds} seeds within limits"
        found.append(f"on {flight} {verdict} ({told})")
    if not found:
        return "**Against the paper.** PCPO was not flown: its comparison with AWaVO cannot be judged."
    return (
        "**Against the paper.** AWaVO slightly outperforms PCPO (real vehicle there, simulated here): "
        + "; ".join(found)
        + ". Both decide over the same detours and braces, flown by the same tracking law; AWaVO plans in the physics "
        + "of the vehicle, PCPO learns from observations when to use them."
        + _learnt(flights, rows)
    )


def _always_collides(row: ResultRow) -> bool:
    return bool(np.array(row["costs"])[:, 0].min() >= COLLISION_COST)


def _loss(row: ResultRow) -> float:
    """Return lost a step: metres from the path, with a tenth of the error in velocity."""
    return -float(np.mean(row["returns"])) / float(row["checkpoints"][-1]["length"]["value"])


def _flies(row: ResultRow) -> bool:
    return not _always_collides(row) and _loss(row) < STRAYING_LOSS


def _learnt(flights: Sequence[str], rows: Rows) -> str:
    """Say where PCPO did not learn the task: then the paper's "slightly" has not been put to the test."""
    learners = {flight: rows[flight, "pcpo"] for flight in flights if (flight, "pcpo") in rows}
    lost = {flight: row for flight, row in learners.items() if not _flies(row)}
    if not lost:
        return ""
    hit = [flight for flight, row in lost.items() if _always_collides(row)]
    strays = [f"{_loss(row):.1f} on {flight}" for flight, row in lost.items() if flight not in hit]
    steps = max(int(row["env_steps"]) for row in lost.values())
    parts = [f" After {steps:,} steps PCPO has not learnt the task on {', '.join(lost)}."]
    if hit:
        parts.append(f"The clearance cost of every seed on {', '.join(hit)} is at least that of a collision.")
    if strays:
        parts.append(f"It stays in the air but loses {', '.join(strays)} of return a step, 1 being a metre of error.")
    return " ".join([*parts, "How two controllers that follow a path compare is the paper's question and stays open."])


def _table(rows: Rows) -> str:
    lines = ["| task | controller | return | rms error, m | clearance cost (limit 2) | envelope cost (limit 5) | "]
    lines[0] += "seeds within | collisions |"
    lines.append("|---|---|---|---|---|---|---|---|")
    for (flight, policy), row in sorted(rows.items()):
        costs = np.array(row["costs"])
        rms = format_estimate(mean_estimate(row["rms_m"])) if "rms_m" in row else "–"
        hits = f"{sum(row['collision'])} of {len(row['collision'])}" if "collision" in row else "–"
        cells = [flight, NAMES.get(policy, policy), format_estimate(mean_estimate(row["returns"])), rms]
        cells += [format_estimate(mean_estimate(costs[:, i])) for i in range(costs.shape[1])]
        cells += [f"{int(_within(row).sum())} of {len(row['returns'])}", hits]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _data(rows: Rows) -> list[ResultRow]:
    found = []
    for (flight, policy), row in rows.items():
        for i, seed in enumerate(row["seed_numbers"]):
            found.append(
                {"task": flight, "policy": policy, "seed": seed, "return": row["returns"][i],
                 **{f"cost_{name}": float(row["costs"][i][k]) for k, name in enumerate(COSTS)},
                 "rms_m": row["rms_m"][i] if "rms_m" in row else None,
                 "collision": row["collision"][i] if "collision" in row else None}
            )  # fmt: skip
    return found


def _draw(figure: Figure, rows: Rows) -> None:
    axes = figure.subplots(1, 1 + len(COSTS))
    flights = sorted({flight for flight, _ in rows})
    policies = [name for name in NAMES if any(policy == name for _, policy in rows)]
    for number, policy in enumerate(policies):
        for place, flight in enumerate(flights):
            row = rows.get((flight, policy))
            if row is None:
                continue
            values = [np.array(row["returns"]), *np.array(row["costs"]).T]
            for axis, seeds in zip(axes, values, strict=True):
                at = place + 0.22 * (number - (len(policies) - 1) / 2)
                mean = mean_estimate(seeds)
                axis.plot(np.full(len(seeds), at), seeds, ".", color=COLORS[number], alpha=0.35, markersize=4)
                label = NAMES[policy] if place == 0 or (flights[0], policy) not in rows else None
                axis.errorbar(
                    [at], [mean.value], [[mean.value - mean.low], [mean.high - mean.value]], fmt="o",
                    color=COLORS[number], label=label, capsize=3, markersize=5,
                )  # fmt: skip
    limits = next(iter(rows.values()))["limits"]
    for axis, title, limit in zip(axes, ("return", *(f"cost: {c}" for c in COSTS)), (None, *limits), strict=True):
        axis.set_xticks(range(len(flights)), flights)
        axis.set_title(title)
        if limit is not None:
            axis.axhline(limit, color=LIMIT_COLOR, linestyle=(0, (5, 3)), linewidth=1.2)
            axis.set_yscale("symlog", linthresh=1.0)
            axis.set_ylim(bottom=-0.3, top=2.5 * max(limit, axis.get_ylim()[1]))
    every = np.concatenate([row["returns"] for row in rows.values()])
    if np.ptp(every) > 100 * np.abs(every).min():  # who strays loses thousands
        axes[0].set_yscale("symlog", linthresh=10.0)
    axes[0].margins(y=0.12)
    handles, labels = axes[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(list(unique.values()), list(unique), loc="outside upper center", ncols=3)
