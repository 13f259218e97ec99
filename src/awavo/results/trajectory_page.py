"""The report page of inferred trajectories: scores, figures, how to do it again. Opens from disk, calls no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from awavo.errors import RunFolderError
from awavo.files import read_arrays
from awavo.results.page import Section, frame, render
from awavo.results.store import read_json, write_bytes
from awavo.results.trajectory_scores import Z90
from awavo.types import Fields, FieldsView

__all__ = ["SUMMARY", "is_inference", "read_inference", "write_inference_report"]

SUMMARY = "inference.json"
SITES_SHOWN = 200
FEW = 8  # states that are all shown over time, and not as a picture of space and time
MAX_BYTES = 2**34  # of the arrays of an inference, unpacked
LABELS = {
    "rmse": "RMSE",
    "rmse_first_quarter": "first quarter",
    "rmse_middle": "middle half",
    "rmse_last_quarter": "last quarter",
    "median_absolute_error": "median absolute error",
    "lost": "components lost",
    "coverage90": "inside 90% intervals",
    "draws_coverage90": "inside 90% of the ensemble",
    "crps": "CRPS",
}
MEANINGS = {
    "rmse": "root mean squared error of components that nobody measured (of all where every one was seen)",
    "lost": "share of components whose own RMSE is above half of their spread (2 for Lorenz-96)",
    "coverage90": "share of the truth inside them; 0.9 is right",
    "draws_coverage90": "the same by draws from the posterior",
    "crps": "error of the whole distribution: 0 is best, in the unit of the states",
}


def is_inference(folder: Path) -> bool:
    """Whether a folder was written by `awavo infer`."""
    return (folder / SUMMARY).is_file()


def read_inference(folder: Path) -> tuple[Fields, dict[str, np.ndarray]]:
    """The summary and the arrays of a folder."""
    try:
        summary = read_json(folder / SUMMARY)
        return summary, read_arrays(folder / "posterior.npz", MAX_BYTES)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"'{folder}' holds no readable inference ({error}): run `awavo infer` again.") from error


def write_inference_report(folders: Sequence[Path], out: Path) -> Path:
    """One page for one or several inferences; with several, error and time against the number of states come first."""
    read = [read_inference(Path(folder)) for folder in folders]
    try:
        page = _page(read)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        named = ", ".join(map(str, folders))
        raise RunFolderError(f"'{named}' cannot be shown ({error!r}): run `awavo infer` again.") from error
    write_bytes(Path(out), page.encode())
    return Path(out)


def _page(read: Sequence[tuple[Fields, dict[str, np.ndarray]]]) -> str:
    summaries = [summary for summary, _ in read]
    figures = []
    if len(read) > 1:
        figures.append(
            _figure("scaling", "Size", "Error and time against the number of states.", scaling_figure(summaries))
        )
    for number, (summary, posterior) in enumerate(read):
        name = f"{summary['system']}, {summary['states']:,} states, seed {summary['seed']}" if len(read) > 1 else ""
        wide = posterior["mean"].shape[1] > FEW
        which = "Components never observed" if posterior["hidden"].any() else "Trajectories"
        if wide:
            seen = "The first sites; marks: never observed."
            figures.append(_figure(f"space-{number}", f"Space and time {name}", seen, space_time_figure(posterior)))
        figures.append(_figure(f"bands-{number}", f"{which} {name}", "Bands hold 90% of the posterior.",
                               components_figure(posterior, names=summary.get("names") or ())))  # fmt: skip
    names = [f"{s['states']:,} states, seed {s['seed']}" for s in summaries]
    scores = render("sections/inference_scores.html", names=names, rows=_rows(summaries))
    blocks = [
        {"title": name, "lines": [s["command"], f"# commit {s['commit']}, {s['device'].get('kind', '')}"]}
        for name, s in zip(names, summaries, strict=True)
    ]
    sections = [
        Section("scores", "Figures", scores),
        *(Section(f["id"], f["title"], render("sections/inference_figure.html", figure=f)) for f in figures),
        Section("reproduce", "Reproduce", render("sections/commands.html", blocks=blocks)),
    ]
    return render(
        "report.html",
        kind="inference",
        title=f"Inference: {', '.join(dict.fromkeys(s['system'] for s in summaries))}",
        subtitle="Trajectories inferred from part of their components by Gauss-Newton steps (no sliced distance).",
        verdicts=[
            _verdict(s, name if len(summaries) > 1 else "")
            for name, s in zip(names, summaries, strict=True)
            if "fit" in s
        ],
        notes=[note for s in summaries for note in s.get("notes", ())],
        sections=sections,
        version=summaries[0].get("versions", {}).get("awavo", ""),
        charts="{}",
        footnote="Bands and intervals hold 90% of the posterior. Hidden components were never observed.",
        **frame("chart.js", "chart_events.js", "page.js"),
    )


def _verdict(summary: FieldsView, label: str) -> dict[str, str]:
    """Whether the posterior fits what was observed; where it does not, what to do."""
    fit = summary["fit"]
    state = "bad" if not fit["good"] else "part" if fit["notes"] else "ok"
    lost = summary.get("not_believed", 0)
    fits = "The posterior fits what was observed, " + (
        f"but for {lost} components that are not to be believed." if lost else "as far as its noise says."
    )
    text = " ".join(fit["problems"]) or fits
    chi2 = "not finite" if fit["chi2"] is None else f"{fit['chi2']:.2f}"
    source = f"Squared residuals per observation {chi2}; 1 is as noisy as they are"
    return {"state": state, "text": text[:1].upper() + text[1:], "source": source, "label": label}


def _rows(summaries: Sequence[FieldsView]) -> list[Fields]:
    def row(name: str, cells: list[str], meaning: str = "") -> Fields:
        return {"name": name, "meaning": meaning, "cells": cells}

    rows = [
        row(label, [_number(s.get("scores", {}).get(key)) for s in summaries], MEANINGS.get(key, ""))
        for key, label in LABELS.items()
        if any(key in s.get("scores", {}) for s in summaries)
    ]
    if any(s.get("theta_inferred") for s in summaries):
        rows.append(row("parameters (90% interval)", [_theta(s) for s in summaries]))
    fit = "misfit of the worst region to its measurements; about 1 is as noisy as they are"
    rows.append(row("largest local chi²", [_number(s["largest_chi2"]) for s in summaries], fit))
    if any("not_believed" in s for s in summaries):
        told = "components among observations that do not fit: their intervals are the prior's"
        rows.append(row("components not believed", [str(s.get("not_believed", "")) for s in summaries], told))
    apart = "" if all(s.get("compile_s") is None for s in summaries) else " (compilation apart)"
    rows.append(row(f"seconds{apart}", [f"{s['solve_s']:.2f}" for s in summaries]))
    if any(s.get("compile_s") is not None for s in summaries):
        rows.append(row("compilation, s", [_number(s.get("compile_s")) for s in summaries]))
    return rows


def _theta(summary: FieldsView) -> str:
    names = summary.get("theta_names") or [""] * len(summary["theta"])
    truth = summary.get("theta_truth") or [None] * len(names)
    parts = zip(names, summary["theta"], summary["theta_interval"], truth, strict=True)
    return ", ".join(
        f"{name} {value:.4g} [{low:.4g}, {high:.4g}]".strip() + ("" if known is None else f" (truth {known:.4g})")
        for name, value, (low, high), known in parts
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _figure(name: str, title: str, text: str, figure: Any) -> dict[str, str]:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return {"id": name, "title": title, "text": text, "data": base64.b64encode(buffer.getvalue()).decode()}


def _new(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", figsize=size)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=rows > 1)


def space_time_figure(posterior: Mapping[str, np.ndarray]) -> Any:
    """Truth, inference and error where the truth is known; else inference and deviation. Ticks mark hidden sites."""
    times, shown = posterior["times"], slice(0, SITES_SHOWN)
    mean, hidden = posterior["mean"][:, shown], posterior["hidden"][shown]
    panels = [("inference", mean, "viridis", None)]
    if "truth" in posterior:
        truth = posterior["truth"][:, shown]
        panels = [("truth", truth, "viridis", None), *panels, ("error", mean - truth, "RdBu_r", 3.0)]
    else:
        panels.append(("deviation", posterior["std"][:, shown], "magma", None))
    figure, axes = _new(1, len(panels), (3.6 * len(panels), 4.2))
    limits = (float(np.min(panels[0][1])), float(np.max(panels[0][1])))
    for axis, (title, values, colours, symmetric) in zip(axes[0], panels, strict=True):
        low, high = (-symmetric, symmetric) if symmetric else limits if title != "deviation" else (None, None)
        extent = (times[0], times[-1], mean.shape[1], 0)
        image = axis.imshow(values.T, aspect="auto", cmap=colours, vmin=low, vmax=high, extent=extent)
        axis.set(title=title, xlabel="time")
        axis.plot(np.full(int(hidden.sum()), times[0]), np.flatnonzero(hidden) + 0.5, "k_", ms=4, clip_on=False)
        figure.colorbar(image, ax=axis, shrink=0.8)
    axes[0][0].set_ylabel("site (marks: never observed)")
    return figure


def components_figure(posterior: Mapping[str, np.ndarray], count: int = 6, names: Sequence[str] = ()) -> Any:
    """Hidden components over time with their 90% bands, and the truth where it is known."""
    places = np.flatnonzero(posterior["hidden"])
    places = places if len(places) else np.arange(posterior["mean"].shape[1])
    places = places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]
    rows = -(-len(places) // 2)
    figure, axes = _new(rows, 2, (9, 2.0 * rows))
    for axis, place in zip(axes.flat, places, strict=False):
        mean, std = posterior["mean"][:, place], posterior["std"][:, place]
        axis.fill_between(posterior["times"], mean - Z90 * std, mean + Z90 * std, alpha=0.3, label="90% interval")
        axis.plot(posterior["times"], mean, label="inference")
        if "truth" in posterior:
            axis.plot(posterior["times"], posterior["truth"][:, place], "k--", lw=1, label="truth")
        axis.set_ylabel(names[place] if names else f"$x_{{{place}}}$")
    for axis in axes[-1]:
        axis.set_xlabel("time")
    axes[0][0].legend(fontsize=7, ncols=3)
    return figure


def scaling_figure(summaries: Sequence[FieldsView]) -> Any:
    """RMSE of the hidden components and solving time against the number of states."""
    figure, axes = _new(1, 2, (9, 3.2))
    sizes = np.array([s["states"] for s in summaries])
    known = [(s["states"], s["scores"]["rmse"]) for s in summaries if s.get("scores")]
    if known:
        axes[0][0].semilogx(*zip(*known, strict=True), "o")
    axes[0][0].set(xlabel="states", ylabel="RMSE, never observed", ylim=(0, None))
    axes[0][1].loglog(sizes, [s["solve_s"] for s in summaries], "o")
    axes[0][1].set(xlabel="states", ylabel="seconds, without compilation")
    return figure
