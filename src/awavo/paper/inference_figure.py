"""Whether the adaptive sliced distance matters: tables of the experiments about inference, with what was asked before.

A question names a measure, the arm it is about, the arm it is compared with and, where a line was drawn beforehand, the
share of it that was asked for. Differences are paired over seeds and carry a bootstrap interval; one that holds 0 is
reported as no difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from awavo.paper.comparison import FEWEST
from awavo.paper.job import ResultRow
from awavo.paper.outputs import FigureFinding, FigureTask, Picture, merge_blocks
from awavo.paper.plotting import COLORS
from awavo.results.outcome import format_estimate
from awavo.results.statistics import mean_estimate
from awavo.types import Estimate, Fields

__all__ = [
    "Question", "collect_amortisation", "collect_compression", "collect_corridor", "collect_modes", "paired_difference",
]  # fmt: skip

ASCENDED, CELLS = "ascended slices", "ascended slices, cells"


class Question(NamedTuple):
    """A comparison that was stated before the runs; `share` is of the other arm's mean, `at_least` of the measure."""

    measure: str
    arm: str
    other: str = ""
    share: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    settings: tuple[str, ...] = ()


TITLES = {
    "w2": "exact W2", "error": "error of a mean", "between": "left between two modes", "ms": "ms",
    "hit": "flights that hit the wall", "return": "return", "replanned": "re-planned", "kept": "both modes kept",
    "mass_error": "error of a mode's mass", "sliced": "sliced W2 to MCMC",
    "ratio": "in units of MCMC's own, split in half", "fit_s": "seconds to fit",
}  # fmt: skip
COMPRESSION = (
    Question("w2", CELLS, "resampling", share=0.75, settings=("D = 12, P = 8", "D = 40, P = 8")),
    Question("error", CELLS, "resampling", share=0.5, settings=("D = 12, P = 8", "D = 40, P = 8")),
    Question("between", CELLS, at_most=0.02, settings=("D = 40, P = 32",)),
    Question("w2", CELLS, "random slices, cells", settings=("D = 12, P = 8", "D = 40, P = 8", "D = 120, P = 32")),
    Question("w2", CELLS, "ascended slices, descended", settings=("D = 12, P = 8", "D = 40, P = 8")),
    Question("w2", CELLS, "ascended, degree 3, cells", settings=("D = 40, P = 8", "D = 120, P = 32")),
)
CORRIDOR = (
    Question("hit", ASCENDED, "random slices", share=0.5, settings=("P = 8",)),
    Question("hit", ASCENDED, "resampling", share=1.0, settings=("P = 8",)),
    Question("replanned", ASCENDED, at_least=0.95, settings=("P = 8",)),
    Question("hit", ASCENDED, "MPPI", settings=("P = 8",)),
    Question("hit", ASCENDED, "CEM", settings=("P = 8",)),
    Question("hit", ASCENDED, "resampling", settings=("P = 4",)),
)
MODES = (
    Question("kept", ASCENDED, at_least=0.95, settings=("P = 16", "P = 32")),
    Question("ratio", ASCENDED, at_most=1.2, settings=("P = 16", "P = 32")),
    Question("sliced", ASCENDED, "resampling", settings=("P = 16", "P = 32")),
    Question("mass_error", ASCENDED, "resampling", settings=("P = 16", "P = 32")),
    Question("mass_error", ASCENDED, "random slices", settings=("P = 16", "P = 32")),
    Question("kept", "resampling", "resampling, no memory", settings=("P = 16", "P = 32")),
)

STORED, MIXTURE = ("24 flights stored",), "mixture, ascended slices"
AMORTISATION = tuple(
    Question(measure, MIXTURE, other, settings=STORED)
    for measure, other in (
        ("hit", "mixture, likelihood"), ("hit", "mixture, likelihood, equal time"), ("hit", "mixture, random slices"),
        ("hit", "mixture, random slices, equal time"), ("hit", "mixture, ascended, degree 3"),
        ("hit", "one Gaussian, ascended slices"), ("hit", "the planner itself"), ("return", "mixture, likelihood"),
        ("return", "mixture, random slices"), ("replanned", "mixture, likelihood"),
        ("replanned", "mixture, random slices"),
    )
)  # fmt: skip


def paired_difference(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """Mean of one - other over seeds, with a 95% bootstrap interval."""
    gaps = np.asarray(one, float) - np.asarray(other, float)
    if len(gaps) < FEWEST:
        return Estimate(float(gaps.mean()), -math.inf, math.inf, len(gaps), f"no interval: fewer than {FEWEST} pairs")
    rng = np.random.default_rng(0)
    means = gaps[rng.integers(0, len(gaps), (4000, len(gaps)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(float(gaps.mean()), float(low), float(high), len(gaps), "paired bootstrap over seeds")


def answer(question: Question, found: dict[str, Fields], setting: str) -> str | None:
    """The sentence about a question in a setting; None where its arms have no results there."""
    row = found.get(question.arm)
    if row is None or (question.other and question.other not in found):
        return None
    title, values = TITLES[question.measure], _numbers(row[question.measure])
    if not values:
        return f"{setting}: {title}, {question.arm} has no value."
    begin = f"{setting}: {title}, {question.arm} {format_estimate(mean_estimate(values))}"
    if not question.other:
        line, reached = _line(question, float(np.mean(values)))
        return f"{begin}; asked: {line}: **{'reached' if reached else 'missed'}**."
    other = found[question.other]
    seeds = [seed for seed in row["seed_numbers"] if seed in other["seed_numbers"]]
    pairs = [_pair(row, other, question.measure, seed) for seed in seeds]
    known = [pair for pair in pairs if None not in pair]
    if not known:
        return f"{begin}; {question.other} has no value of the same seeds."
    one, two = zip(*known, strict=True)
    gap = paired_difference(one, two)
    text = f"{begin}, {question.other} {np.mean(two):.3g}: difference {format_estimate(gap)}, **{_told(gap)}**"
    if question.share is None:
        return f"{text}."
    ratio = float(np.mean(one) / max(np.mean(two), 1e-12))
    reached = np.mean(one) <= question.share * np.mean(two)
    return f"{text}; ratio {ratio:.2f}, asked: {question.share} or less: **{'reached' if reached else 'missed'}**."


def _told(gap: Estimate) -> str:
    if math.isinf(gap.high):
        return "too few seeds to say"
    return "no difference" if gap.low <= 0 <= gap.high else "lower" if gap.value < 0 else "higher"


def _line(question: Question, value: float) -> tuple[str, bool]:
    if question.at_least is not None:
        return f"{question.at_least} or more", value >= question.at_least
    assert question.at_most is not None
    return f"{question.at_most} or less", value <= question.at_most


def _pair(row: Fields, other: Fields, measure: str, seed: int) -> tuple[Any, Any]:
    return row[measure][row["seed_numbers"].index(seed)], other[measure][other["seed_numbers"].index(seed)]


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _collector(
    measures: Sequence[str], questions: Sequence[Question], shown: str, note: str
) -> Callable[[FigureTask], FigureFinding]:
    def collect(task: FigureTask) -> FigureFinding:
        rows = merge_blocks(task.rows, ("arm", "setting"), (*measures, "seed_numbers"))
        rows.sort(key=lambda row: ([int(number) for number in re.findall(r"\d+", row["setting"])], row["arm"]))
        settings = list(dict.fromkeys(row["setting"] for row in rows))
        by_setting = {s: {row["arm"]: row for row in rows if row["setting"] == s} for s in settings}
        said = [answer(q, by_setting[s], s) for q in questions for s in q.settings if s in by_setting]
        text = "\n".join(f"* {sentence}" for sentence in said if sentence)
        data = [
            {"arm": row["arm"], "setting": row["setting"], "seed": seed, **{m: row[m][i] for m in measures}}
            for row in rows
            for i, seed in enumerate(row["seed_numbers"])
        ]
        picture = Picture("arms", (8.4, 3.4), lambda figure: _draw(figure, by_setting, shown))
        return FigureFinding(f"{note}\n\n{text}", data, _table(rows, measures), [picture])

    return collect


def _table(rows: Sequence[ResultRow], measures: Sequence[str]) -> str:
    lines = ["| setting | arm | seeds | " + " | ".join(TITLES[m] for m in measures) + " |"]
    lines.append("|" + "---|" * (3 + len(measures)))
    for row in rows:
        cells = [row["setting"], row["arm"], str(len(row["seed_numbers"]))]
        cells += [format_estimate(mean_estimate(_numbers(row[m]))) for m in measures]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _draw(figure: Figure, by_setting: dict[str, dict[str, Fields]], measure: str) -> None:
    """The measure of every arm, with its interval, against the setting."""
    axis = figure.subplots()
    arms = list(dict.fromkeys(arm for rows in by_setting.values() for arm in rows))
    places = np.arange(len(by_setting))
    for number, arm in enumerate(arms):
        have = [(place, rows[arm]) for place, rows in zip(places, by_setting.values(), strict=True) if arm in rows]
        means = [mean_estimate(_numbers(row[measure])) for _, row in have]
        gaps = np.array([[e.value - e.low, e.high - e.value] for e in means]).T
        offset = 0.7 * (number / max(len(arms) - 1, 1) - 0.5)
        axis.errorbar(
            [place + offset for place, _ in have], [e.value for e in means], np.nan_to_num(gaps), fmt="o", capsize=2,
            markersize=4, color=COLORS[number % len(COLORS)], label=arm,
        )  # fmt: skip
    axis.set_xticks(places, list(by_setting), rotation=30 if len(by_setting) > 6 else 0, fontsize=7)
    axis.set(title=TITLES[measure], ylim=(0, None))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize=7)


collect_compression = _collector(
    ("w2", "error", "between", "ms"), COMPRESSION, "w2",
    "K = 250 weighted candidates in three uneven clusters become P particles; eight slices in every arm. What is left "
    "between two modes is of a second scene.",
)  # fmt: skip
collect_corridor = _collector(
    ("hit", "return", "replanned", "ms"), CORRIDOR, "hit",
    "Two gaps, one of which closes; exact model, few particles; every arm has as many candidates as fit into the same "
    "time of a decision.",
)  # fmt: skip
collect_modes = _collector(
    ("kept", "mass_error", "sliced", "ratio", "ms"), MODES, "mass_error",
    "A pendulum seen from the side: the gain's sign is unknown. Distances are to a long Metropolis run, and in units "
    "of what as many of its own draws have to its other half.",
)  # fmt: skip
collect_amortisation = _collector(
    ("hit", "return", "replanned", "fit_s"), AMORTISATION, "hit",
    "A network of 64 x 64 is fitted to the first actions of a planner's posteriors in 24 flights through the corridor, "
    "then flies alone, by its heaviest component. All arms have 3,000 gradient steps but those of equal time.",
)  # fmt: skip
