"""The figures: how the jobs of each are listed, run and made into data, a picture and a paragraph."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

__all__ = ["FIGURES", "FigureSpec", "load"]


class FigureSpec(NamedTuple):
    """Names of functions, imported when they are needed: listing jobs needs no jax, running them no matplotlib."""

    title: str
    paper: str
    plan: str
    run: str
    collect: str


FIGURES = {
    "learning": FigureSpec(
        "Learning curves under limits", "Figure 4", "plans:learning_jobs", "training:run_learning", "learning:collect"
    ),
    "flight": FigureSpec(
        "Quadrotor flights", "Figure 6", "plans:table_jobs", "flight_run:run_flight", "flight_figure:collect"
    ),
    "interpretation": FigureSpec(
        "Interpretation at the reference states", "Figure 7", "plans:table_jobs",
        "interpretation_run:run_interpretation", "interpretation:collect",
    ),
    "convergence": FigureSpec(
        "Convergence rate", "Section 6, Theorem 2", "plans:table_jobs", "convergence_run:run_convergence",
        "convergence:collect",
    ),
    "lorenz": FigureSpec(
        "Lorenz-96 against the number of states", "Figures 8 and 9", "plans:table_jobs", "lorenz_run:run_lorenz",
        "lorenz:collect",
    ),
    "ablation": FigureSpec(
        "What each part of AWaVO is for", "ablation table", "plans:ablation_jobs", "training:run_learning",
        "ablation:collect",
    ),
    "safety": FigureSpec(
        "The field's own tasks: Safety-Gymnasium's", "beyond the paper", "plans:learning_jobs", "training:run_learning",
        "safety:collect",
    ),
    "compression": FigureSpec(
        "Many candidates into few particles", "beyond the paper", "plans:table_jobs",
        "compression_run:run_compression", "inference_figure:collect_compression",
    ),
    "modes": FigureSpec(
        "Parameters with two modes", "beyond the paper", "plans:table_jobs", "modes_run:run_modes",
        "inference_figure:collect_modes",
    ),
    "corridor": FigureSpec(
        "The split corridor", "beyond the paper", "plans:table_jobs", "corridor_run:run_corridor",
        "inference_figure:collect_corridor",
    ),
    "amortisation": FigureSpec(
        "A policy fitted to stored posteriors", "beyond the paper", "plans:table_jobs",
        "amortisation_run:run_amortisation", "inference_figure:collect_amortisation",
    ),
}  # fmt: skip


def load(path: str) -> Any:
    """Import MODULE:FUNCTION of `awavo.paper`."""
    module, name = path.split(":")
    return getattr(importlib.import_module(f"awavo.paper.{module}"), name)
