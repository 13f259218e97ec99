"""A run's policy as files for machines that do not train."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from awavo.deploy.export import PROBES, export_policy, spec_contract, write_files
from awavo.errors import InputError
from awavo.files import require_writable
from awavo.provenance import stamp
from awavo.runs.api import Run

__all__ = ["export_run"]


def export_run(run: Run, out: Path | None = None, *, seed: int | None = None, onnx: bool = True) -> Path:
    """Export the policy of one seed (default: the first) into a new folder; return the manifest's path.

    The probes on which the files are compared with the policy follow the run's own statistics.
    """
    seed = run.seeds[0] if seed is None else seed
    if seed not in run.seeds:
        raise InputError(f"this run has no seed {seed}: it has {run.seeds[0]} to {run.seeds[-1]}.")
    folder = run.path / "export" if out is None else out
    require_writable(folder)
    state = run.states[seed - run.seeds[0]]
    spec = run.problem.spec
    actor = run.problem.algorithm.actor
    parts = None if actor is None else actor(state)
    draws = np.random.default_rng(0).standard_normal((PROBES, spec.obs_dim))
    probes = draws if parts is None else np.asarray(parts.mean) + draws * np.asarray(parts.std)
    files, notes = export_policy(spec, run.problem.algorithm, state, probes.astype(np.float32), onnx=onnx)
    about = {
        **spec_contract(spec),
        "algorithm": run.config.algo,
        "seed": seed,
        "env_steps": run.env_steps,
        "tolerance": run.problem.settings.tolerance,
        **stamp("command", "commit", "versions"),
    }
    return write_files(folder, files, notes, about)
