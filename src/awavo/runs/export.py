"""A run's policy as files for machines that do not train."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from awavo.deploy.export import PROBES, export_policy, policy_file, spec_contract, write_files
from awavo.errors import InputError
from awavo.files import require_writable
from awavo.provenance import stamp
from awavo.results.certificate_record import binding, read_record, why_unbound
from awavo.runs.api import Run
from awavo.runs.progress import doing
from awavo.types import Fields

__all__ = ["export_run"]


def export_run(
    run: Run, out: str | os.PathLike[str] | None = None, *, seed: int | None = None, onnx: bool = True
) -> Path:
    """Export the policy of one seed (default: the first) into a new folder; return the manifest's path.

    The probes on which the files are compared with the policy follow the run's own statistics.

    Args:
        run: A run from `load` or `train`.
        out: Folder to write (default: `export` in the run folder).
        seed: Whose policy (default: the first seed's).
        onnx: Write ONNX beside StableHLO (needs the extra `onnx`).
    """
    seed = run.seeds[0] if seed is None else seed
    if seed not in run.seeds:
        raise InputError(f"this run has no seed {seed}: it has {run.seeds[0]} to {run.seeds[-1]}.")
    folder = run.path / "export" if out is None else Path(out)
    require_writable(folder)
    state = run.states[seed - run.seeds[0]]
    spec = run.problem.spec
    actor = run.problem.algorithm.actor
    parts = None if actor is None else actor(state)
    draws = np.random.default_rng(0).standard_normal((PROBES, spec.obs_dim))
    probes = draws if parts is None else np.asarray(parts.mean) + draws * np.asarray(parts.std)
    with doing("exporting the policy"):
        files, notes = export_policy(spec, run.problem.algorithm, state, probes.astype(np.float32), onnx=onnx)
    about = {
        **spec_contract(spec, run.problem.act_space),
        "algorithm": run.config.algo,
        "seed": seed,
        "env_steps": run.env_steps,
        "tolerance": run.problem.settings.tolerance,
        **_custody(run, seed),
        **stamp("command", "commit", "versions"),
    }
    return write_files(folder, files, notes, about)


def _custody(run: Run, seed: int) -> Fields:
    """Where the policy comes from: its checkpoint, the file that is the policy, and what was certified about it."""
    bound = binding(run.path, run.checkpoint_path)
    found: Fields = {
        "checkpoint": {"file": run.checkpoint_path.name, "sha256": bound["checkpoint"]},
        "policy": policy_file(run.problem.algorithm),
        "certificate": None,
        "certified_file": None,
    }
    path = run.path / "certificates.json"
    if not path.is_file():
        return found
    record = read_record(run.path)
    doubts = why_unbound(record, bound)
    verdicts = {entry["name"]: entry["verdict"] for entry in record["certificates"]}
    safe = verdicts.get(f"safety.seed_{seed}")
    found["certificate"] = {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "is_about_this_checkpoint": not doubts,
        "doubts": doubts,
        "safety_of_this_seed": safe,
        "delivered_seed": record.get("delivered_seed"),
    }
    # Episodes of the run's own policy were certified: its planner where it has one, never the actor beside it.
    found["certified_file"] = found["policy"] if safe == "supported" and not doubts else None
    return found
