"""Inference of any system from Python: posterior, summary and page in a folder, with the verdict on its fit."""

from __future__ import annotations

import hashlib
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from awavo.assimilation.infer import Inferred, infer, prepare
from awavo.assimilation.observations import read_numbers
from awavo.assimilation.system import System, free_parameters, num_states
from awavo.errors import InputError, RunFolderError
from awavo.files import locked
from awavo.provenance import stamp
from awavo.results.store import read_json, to_plain, write_bytes
from awavo.results.trajectory_page import SUMMARY, write_inference_report
from awavo.results.trajectory_scores import Z90, score
from awavo.runs.memory import check_inference
from awavo.runs.progress import doing
from awavo.types import Fields

__all__ = ["infer_system"]

# A component is lost when its own error is above this share of its prior's standard deviation.
LOST_SHARE = 0.55


def infer_system(
    system: System,
    observed: np.ndarray,
    noise: Any,
    *,
    times: np.ndarray | None = None,
    start: float | None = None,
    truth: np.ndarray | None = None,
    theta_truth: np.ndarray | None = None,
    num_draws: int = 16,
    most_starts: int = 12,
    seed: int = 0,
    out: str | Path | None = None,
    name: str = "own system",
) -> tuple[Inferred, Fields]:
    """Infer, and keep what was found in a folder; a posterior that does not fit is kept too, marked on every page.

    Args:
        system: The dynamics, what is seen of it, and its priors.
        observed: Observations `[rows, seen]`, NaN where one is missing.
        noise: Standard deviation of their noise: a number, one per column, or one per observation.
        times: Times of the rows (default 1, 2, ...).
        start: Time of the prior (default: the first of `times`).
        truth: The states at all times of the posterior, where they are known.
        theta_truth: The parameters, where they are known.
        num_draws: Draws of trajectories.
        most_starts: Descents at most.
        seed: Seed of starts and draws.
        out: Folder for the posterior, a summary and a page.
        name: Name of the system on the page.
    """
    check_inference(num_states(system), len(np.atleast_1d(observed)), num_draws, "float64")
    observed = read_numbers(observed, "the observations")
    numbers = prepare(system, observed, noise, times, start)  # refuses what cannot be inferred before a folder is there
    known = None if truth is None else _checked_truth(truth, (len(numbers.times), num_states(system)))
    folder = None if out is None else Path(out)
    digest = hashlib.blake2b(np.ascontiguousarray(observed).tobytes(), digest_size=12)
    digest.update(json.dumps([name, system.shape, np.asarray(noise).tolist(), seed], default=str).encode())
    old = {} if folder is None or not (folder / SUMMARY).is_file() else read_json(folder / SUMMARY)
    if old and old.get("fingerprint") != digest.hexdigest():
        raise RunFolderError(f"'{folder}' holds another inference: choose another --out or remove it.")
    with locked(folder), doing(f"inferring {name}"):
        processor, began = time.process_time(), time.perf_counter()
        found = infer(
            system, observed, noise, times=times, start=start, num_draws=num_draws, most_starts=most_starts, seed=seed,
            accept_misfit=True,
        )  # fmt: skip
        spent = {"cpu_s": time.process_time() - processor, "wall_s": time.perf_counter() - began}
        summary = _summary(system, found, noise, name, seed) | spent | {"fingerprint": digest.hexdigest()}
        hidden = _hidden(system, observed)
        if known is not None:
            lost = LOST_SHARE * float(np.median(np.asarray(system.prior_std, float)))
            summary["scores"] = score(found.mean, found.std, known, hidden, found.draws, lost=lost)
            summary["scored"] = "never observed" if hidden.any() else "all states"
        if theta_truth is not None:
            summary["theta_truth"] = np.asarray(theta_truth, float).tolist()
        if folder is not None:
            _write(folder, found, summary, hidden, known)
    return found, summary


def _checked_truth(truth: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    array = read_numbers(truth, "the true states")
    if array.shape[:1] != shape[:1] or array.size != shape[0] * shape[1]:
        raise InputError(
            f"the truth has shape {list(array.shape)}, expected {list(shape)}: the states at all times, that of the "
            "prior first."
        )
    return array.reshape(shape)


def _hidden(system: System, observed: np.ndarray) -> np.ndarray:
    """States that are never seen themselves; through an operator all are seen alike."""
    if system.observe is not None:
        return np.zeros(num_states(system), bool)
    return ~np.asarray(np.isfinite(observed.reshape(len(observed), -1)).any(0))


def _summary(system: System, found: Inferred, noise: Any, name: str, seed: int) -> Fields:
    half = Z90 * found.theta_std
    return {
        "system": name, "states": num_states(system), "seed": seed, "times": len(found.times),
        "solve_s": found.solve_s, "compile_s": None, "engine": found.engine,
        "largest_chi2": float(np.max(found.chi2)), "not_believed": int((~found.believed).sum()),
        "theta": found.theta.tolist(),
        "theta_inferred": len(free_parameters(system)) > 0,
        "theta_interval": np.stack([found.theta - half, found.theta + half], -1).tolist(),
        "names": list(system.names), "theta_names": list(system.theta_names),
        "fit": found.fit._asdict(), "num_modes": len(found.modes), "notes": list(found.fit.notes),
        "noise_std": np.asarray(noise, float).tolist() if np.size(noise) <= 64 else "one per observation",
        **stamp(),
    }  # fmt: skip


def _write(folder: Path, found: Inferred, summary: Fields, hidden: np.ndarray, truth: np.ndarray | None) -> None:
    arrays: Fields = {
        "times": found.times, "mean": found.mean, "std": found.std, "draws": found.draws, "theta": found.theta,
        "theta_cov": found.theta_cov, "chi2": found.chi2, "believed": found.believed, "hidden": hidden,
    }  # fmt: skip
    if found.filtered is not None and found.filtered_std is not None:
        arrays |= {"filtered": found.filtered, "filtered_std": found.filtered_std}
    if truth is not None:
        arrays["truth"] = truth
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(folder / "posterior.npz", buffer.getvalue())
    write_bytes(folder / SUMMARY, json.dumps(to_plain(summary), indent=1).encode())
    write_inference_report([folder], folder / "report.html")
