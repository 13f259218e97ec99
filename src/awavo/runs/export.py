"""`awavo export`: a run's policy as files for machines that do not train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from awavo.deploy.export import PROBES, export_policy, spec_contract, write_files
from awavo.errors import InputError
from awavo.provenance import command_line, source_commit, versions

__all__ = ["export_command", "export_run"]


def export_run(run: Any, out: Path, *, seed: int | None = None, onnx: bool = True) -> Path:
    """Export the policy of one seed; return the manifest's path. The probes follow the run's own statistics."""
    seed = run.seeds[0] if seed is None else seed
    if seed not in run.seeds:
        raise InputError(f"this run has no seed {seed}: it has {run.seeds[0]} to {run.seeds[-1]}.")
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
        "command": command_line(),
        "commit": source_commit(),
        "versions": versions(),
    }
    return write_files(out, files, notes, about)


def export_command(args: Any) -> int:
    """Write the export and say where it is."""
    from awavo.runs import api

    run = api.load(args.run_folder, trust=args.trust)
    path = export_run(run, args.out or args.run_folder / "export", seed=args.seed, onnx=args.onnx)
    manifest = json.loads(path.read_text())
    if args.json:
        print(json.dumps({"manifest": str(path), "files": manifest["files"]}))
    else:
        for name, entry in manifest["files"].items():
            gap = (
                f", largest difference to the trained actor {entry['largest_difference']:.1e}"
                if "largest_difference" in entry
                else ""
            )
            print(f"{path.parent / name}  {entry['bytes']:,} bytes{gap}")
        print(path)
    return 0
