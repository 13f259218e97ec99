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
        "awavo.reproduce.plans:learning_jobs",
        "awavo.reproduce.training:run_learning",
        "awavo.reproduce.learning:collect",
    ),
    "flight": FigureSpec(
        "Quadrotor flights",
        "Figure 6",
        "awavo.reproduce.plans:table_jobs",
        "awavo.reproduce.flight_run:run_flight",
        "awavo.reproduce.flight:collect",
    ),
    "interpretation": FigureSpec(
        "Interpretation at the reference states",
        "Figure 7",
        "awavo.reproduce.plans:table_jobs",
        "awavo.reproduce.interpretation_run:run_interpretation",
        "awavo.reproduce.interpretation:collect",
    ),
    "convergence": FigureSpec(
        "Convergence rate",
        "Section 6, Theorem 2",
        "awavo.reproduce.plans:table_jobs",
        "awavo.reproduce.convergence_run:run_convergence",
        "awavo.reproduce.convergence:collect",
    ),
    "lorenz": FigureSpec(
        "Lorenz-96 against the number of states",
        "Figures 8 and 9",
        "awavo.reproduce.plans:table_jobs",
        "awavo.reproduce.lorenz_run:run_lorenz",
        "awavo.reproduce.lorenz:collect",
    ),
    "ablation": FigureSpec(
        "What each part of AWaVO is for",
        "ablation table",
        "awavo.reproduce.plans:ablation_jobs",
        "awavo.reproduce.training:run_learning",
        "awavo.reproduce.ablation:collect",
    ),
}


def load(path: str) -> Any:
    """Import MODULE:FUNCTION of this package."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)
