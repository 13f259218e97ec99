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
        "Learning curves under limits",
        "Figure 4",
        "awavo.paper.plans:learning_jobs",
        "awavo.paper.training:run_learning",
        "awavo.paper.learning:collect",
    ),
    "flight": FigureSpec(
        "Quadrotor flights",
        "Figure 6",
        "awavo.paper.plans:table_jobs",
        "awavo.paper.flight_run:run_flight",
        "awavo.paper.flight_figure:collect",
    ),
    "interpretation": FigureSpec(
        "Interpretation at the reference states",
        "Figure 7",
        "awavo.paper.plans:table_jobs",
        "awavo.paper.interpretation_run:run_interpretation",
        "awavo.paper.interpretation:collect",
    ),
    "convergence": FigureSpec(
        "Convergence rate",
        "Section 6, Theorem 2",
        "awavo.paper.plans:table_jobs",
        "awavo.paper.convergence_run:run_convergence",
        "awavo.paper.convergence:collect",
    ),
    "lorenz": FigureSpec(
        "Lorenz-96 against the number of states",
        "Figures 8 and 9",
        "awavo.paper.plans:table_jobs",
        "awavo.paper.lorenz_run:run_lorenz",
        "awavo.paper.lorenz:collect",
    ),
    "ablation": FigureSpec(
        "What each part of AWaVO is for",
        "ablation table",
        "awavo.paper.plans:ablation_jobs",
        "awavo.paper.training:run_learning",
        "awavo.paper.ablation:collect",
    ),
}


def load(path: str) -> Any:
    """Import MODULE:FUNCTION of this package."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)
