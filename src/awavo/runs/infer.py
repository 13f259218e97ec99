"""Inference of trajectories from Python: a system, observations, and a folder from which a stopped call resumes."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.assimilation.assimilate import AssimilationState, Posterior, assimilate, first_state, num_stages
from awavo.assimilation.engine import Settings, System, make_data, reuse_engine, seconds_later
from awavo.assimilation.observations import check_observations
from awavo.checks import check_seconds
from awavo.errors import InputError, RunFolderError
from awavo.files import locked
from awavo.provenance import stamp
from awavo.results.store import to_plain, write_bytes
from awavo.results.trajectory_page import SUMMARY, write_inference_report
from awavo.results.trajectory_scores import Z90, score
from awavo.runs.memory import check_inference
from awavo.runs.progress import doing
from awavo.training.checkpoint import latest_checkpoint, resume_notes, write_checkpoint
from awavo.types import Fields

__all__ = ["Inference", "infer_trajectories"]


class Inference(NamedTuple):
    """The posterior and what there is to say about it."""

    posterior: Posterior
    summary: Fields


def _fingerprint(observed: np.ndarray, noise_std: float | np.ndarray, system: System, settings: Settings) -> str:
    digest = hashlib.blake2b(np.ascontiguousarray(observed).tobytes(), digest_size=12)
    plain = [
        system.shape,
        np.asarray(system.theta).tolist(),
        np.asarray(system.theta_std).tolist(),
        system.prior_mean,
        system.prior_std,
        system.reach,
        np.asarray(noise_std).tolist(),
    ]
    digest.update(json.dumps([plain, settings], default=str).encode())
    return digest.hexdigest()


def infer_trajectories(
    system: System,
    observed: np.ndarray,
    noise_std: float | np.ndarray,
    *,
    settings: Settings | None = None,
    truth: np.ndarray | None = None,
    out: str | Path | None = None,
    times: np.ndarray | None = None,
    name: str = "own system",
    on_stage: Callable[[int, int, str], None] | None = None,
    checkpoint_seconds: float = 20.0,
) -> Inference:
    """Infer the states [K + 1, sites] at times 0..K from observations [K, sites] at 1..K, NaN where there is none.

    Args:
        system: The dynamics and the prior of the first state.
        observed: Observations `[K, sites]`, NaN where nothing was measured.
        noise_std: Standard deviation of their noise: a number, one per column, or one per observation.
        settings: How to infer (default: `Settings()`).
        truth: The states `[K + 1, sites]` where they are known: the summary then has errors and calibration.
        out: Folder for the posterior, a summary and a report page; the same call resumes a stopped one.
        times: Times `[K + 1]` for the pictures.
        name: Name of the system on the page.
        on_stage: Called with the stage, their number and what it does.
        checkpoint_seconds: Seconds between checkpoints.
    """
    settings = settings or Settings()
    checkpoint_seconds = check_seconds("checkpoint_seconds", checkpoint_seconds)
    observed = check_observations(observed, system.shape, noise_std)
    check_inference(observed.shape[1], len(observed), settings.num_draws, settings.dtype)
    truth = None if truth is None else _checked_truth(truth, (len(observed) + 1, observed.shape[1]))
    folder = None if out is None else Path(out)
    with locked(folder), doing("inferring", unit="stages (at most)") as work:

        def stage(done: int, total: int, text: str) -> None:
            if work.total is None:
                work.first = done
            work.done, work.total, work.details = done, total, [] if text == "compiling" else [(text, "")]
            if on_stage is not None:
                on_stage(done, total, text)

        return _infer(system, observed, noise_std, settings, truth, folder, times, name, stage, checkpoint_seconds)


def _infer(
    system: System,
    observed: np.ndarray,
    noise_std: float | np.ndarray,
    settings: Settings,
    truth: np.ndarray | None,
    folder: Path | None,
    times: np.ndarray | None,
    name: str,
    on_stage: Callable[[int, int, str], None],
    checkpoint_seconds: float,
) -> Inference:
    fingerprint = _fingerprint(observed, noise_std, system, settings)
    state, notes = _resume(folder, fingerprint, settings)
    data = make_data(system, observed, noise_std, settings)
    state = state or first_state(data, system.theta)
    on_stage(state.stage, num_stages(settings, len(system.shape) == 1), "compiling")
    engine, compile_s = reuse_engine(system, data, settings)
    before_s = seconds_later(engine)
    began, saved, resumed_at, last = time.perf_counter(), time.perf_counter(), state.stage, state
    processor = time.process_time()
    posterior: Posterior | None = None
    for item, text in assimilate(engine, data, state):
        if isinstance(item, Posterior):
            posterior = item
        else:
            last = item
            jax.block_until_ready(item.x)  # a stage that is only queued must not be shown or saved as done
            if folder is not None and time.perf_counter() - saved >= checkpoint_seconds:
                _save(folder, item, fingerprint)
                saved = time.perf_counter()
        most = num_stages(settings, engine.search is not None)
        on_stage(most if isinstance(item, Posterior) else item.stage, most, text)
    assert posterior is not None
    later_s = seconds_later(engine) - before_s
    summary = {
        "system": name, "states": int(np.prod(system.shape)), "seed": settings.seed, "times": len(observed),
        "solve_s": time.perf_counter() - began - later_s, "cpu_s": time.process_time() - processor,
        "compile_s": compile_s + later_s,
        "stages": last.stage, "resumed_at": resumed_at, "largest_chi2": float(posterior.chi2.max()), "notes": notes,
        "not_believed": int((~posterior.believed).sum()),
        "theta": posterior.theta.tolist(), "theta_inferred": settings.infer_theta,
        "theta_interval": _interval(posterior),
        "settings": settings._asdict() | {"search": settings.search._asdict()},
        "noise_std": np.asarray(noise_std, float).tolist() if np.size(noise_std) <= 64 else "one per observation",
        **stamp(),
    }  # fmt: skip
    hidden = ~np.asarray(np.isfinite(observed).any(0))
    if truth is not None:
        summary["scores"] = score(posterior.mean, posterior.std, truth, hidden, posterior.draws)
    if folder is not None:
        _write(folder, posterior, summary, hidden, truth, times)
    return Inference(posterior, summary)


def _checked_truth(truth: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    truth = np.asarray(truth, np.float64)
    if truth.shape[:1] != shape[:1] or truth.size != shape[0] * shape[1]:
        raise InputError(
            f"the truth has shape {list(truth.shape)}, expected {list(shape)}: their times and time 0 before."
        )
    if not np.isfinite(truth).all():
        raise InputError(f"{int((~np.isfinite(truth)).sum())} values of the truth are not finite: leave it out.")
    return truth.reshape(shape)


def _interval(posterior: Posterior) -> list[list[float]]:
    half = Z90 * np.sqrt(np.maximum(np.diagonal(posterior.theta_cov), 0.0))
    return [[float(t - h), float(t + h)] for t, h in zip(posterior.theta, half, strict=True)]


def _resume(folder: Path | None, fingerprint: str, settings: Settings) -> tuple[AssimilationState | None, list[str]]:
    if folder is None or not (folder / "checkpoints").is_dir():
        return None, []
    found, refused = latest_checkpoint(folder / "checkpoints", fingerprint)
    notes = list(resume_notes(found, refused))
    if found is None:
        other = latest_checkpoint(folder / "checkpoints")[0]
        if other is not None:
            raise RunFolderError(f"'{folder}' holds another inference: choose another --out or remove it.")
        return None, notes
    arrays = {name.split("/", 1)[1]: jnp.asarray(a) for name, a in found.arrays.items()}
    changed = np.asarray(arrays["changed"]) if "changed" in arrays else None
    return AssimilationState(arrays["x"], arrays["theta"], found.iteration, np.asarray(arrays["tries"]), changed), notes


def _save(folder: Path, state: AssimilationState, fingerprint: str) -> None:
    arrays = {"x": np.asarray(state.x), "theta": np.asarray(state.theta), "tries": state.tries}
    arrays |= {} if state.changed is None else {"changed": state.changed}
    write_checkpoint(
        folder / "checkpoints", [0], [arrays], fingerprint=fingerprint, iteration=state.stage, env_steps=state.stage
    )


def _write(
    folder: Path,
    posterior: Posterior,
    summary: Fields,
    hidden: np.ndarray,
    truth: np.ndarray | None,
    times: np.ndarray | None,
) -> None:
    arrays = posterior._asdict() | {
        "hidden": hidden,
        "times": np.arange(len(posterior.mean)) if times is None else times,
    }
    if truth is not None:
        arrays["truth"] = truth
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(folder / "posterior.npz", buffer.getvalue())
    write_bytes(folder / SUMMARY, json.dumps(to_plain(summary), indent=1).encode())
    write_inference_report([folder], folder / "report.html")
