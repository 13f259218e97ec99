"""Writing a policy as files that need no training code: StableHLO, ONNX, and a manifest that binds them.

The manifest states what goes in and out, the limits the policy was trained for, the checkpoint and the certificates it
comes from, which file is the policy that was certified, and a SHA-256 of every file and of itself. An observation that
is not finite gets no action: NaN, or -1 where actions are numbered, and a planner's memory stays as it was. Loading
checks the sums first, then that no program calls code outside of itself. The sums say that nothing was changed by
accident, not who wrote it: a program computes what its author wanted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, PyTree

from awavo.deploy.onnx_actor import actor_onnx, run_onnx
from awavo.deploy.program_check import MAX_BYTES, check_program
from awavo.errors import InputError
from awavo.files import seal_of, write_bytes
from awavo.types import Algorithm, Box, EnvSpec, Fields

__all__ = ["Exported", "export_policy", "load_export", "policy_file", "spec_contract", "write_files"]

FORMAT = 1
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
PROBES = 256


class Exported(NamedTuple):
    """A loaded export: its manifest and the programs by name, each a function of arrays."""

    manifest: Fields
    programs: dict[str, Callable[..., PyTree]]


def spec_contract(spec: EnvSpec, own: spaces.Space | None = None) -> Fields:
    """The observation, action and limit contract of a task; `own` is the action space of its environment."""
    space = spec.action_space
    action = (
        {"kind": "box", "dtype": "float32", "low": list(space.low), "high": list(space.high)}
        if isinstance(space, Box)
        else {"kind": "discrete", "dtype": "int64", "num": space.num}
    )
    if isinstance(own, spaces.Discrete):
        action["start"] = int(own.start)  # programs count from 0, the environment from there
    elif isinstance(own, spaces.Box):
        action["shape"] = list(own.shape)  # programs give flat ones
    return {
        "task": spec.name,
        "observation": {"dim": spec.obs_dim, "dtype": "float32", "normalised_inside": True},
        "action": action,
        "horizon": spec.horizon,
        "cost_names": list(spec.cost_names),
        "cost_limits": list(spec.cost_limits),
    }


def _serialise(function: Callable[..., PyTree], *shapes: jax.ShapeDtypeStruct) -> bytes:
    return bytes(jax.export.export(jax.jit(function), platforms=("cpu", "cuda"))(*shapes).serialize())


def _flagged(action: Array, obs: Float[Array, "1 d"]) -> Array:
    """The action, or NaN (-1 where actions are numbered) for an observation that is not finite."""
    none = jnp.nan if jnp.issubdtype(action.dtype, jnp.floating) else -1
    return jnp.where(jnp.all(jnp.isfinite(obs)), action, jnp.asarray(none, action.dtype))


def policy_file(algorithm: Algorithm) -> str:
    """The file that decides as the trained run does, and as it was certified."""
    return "actor.stablehlo" if algorithm.plan is None else "planner.stablehlo"


def export_policy(
    spec: EnvSpec, algorithm: Algorithm, state: PyTree, probes: Float[np.ndarray, "n d"], *, onnx: bool = True
) -> tuple[dict[str, bytes], Fields]:
    """Return the files of one seed's policy and the manifest's part on them.

    `actor.stablehlo` maps obs [1, d] to the greedy action; `planner.stablehlo`, where the algorithm plans, maps (key
    data [2] uint32, obs, memory...) to (action, memory...). `actor.onnx` is compared with jax on the probes.
    """
    parts = None if algorithm.actor is None else algorithm.actor(state)
    files: dict[str, bytes] = {}
    notes: Fields = {}
    shape = jax.ShapeDtypeStruct((1, spec.obs_dim), jnp.float32)
    act = jax.jit(lambda obs: algorithm.act(jax.random.key(0), state, obs, True)[0])
    if parts is not None or algorithm.plan is None:
        files["actor.stablehlo"] = _serialise(lambda obs: _flagged(act(obs), obs), shape)
        notes["actor.stablehlo"] = {"inputs": ["obs [1, d] float32"], "outputs": ["action"], **_role(algorithm, True)}
    if parts is not None and onnx:
        role = _role(algorithm, True)
        model = actor_onnx(parts, role["about"])
        wanted, found = np.asarray(act(jnp.asarray(probes, jnp.float32))), run_onnx(model, probes)
        gap = float(np.abs(wanted - found).max())
        if not gap <= (1e-4 if isinstance(spec.action_space, Box) else 0):  # nor may an action be no number
            raise InputError(f"the ONNX actor differs from the trained one by {gap:.3g}: nothing was written.")
        files["actor.onnx"] = model
        notes["actor.onnx"] = {
            "inputs": ["obs [B, d] float32"],
            "outputs": ["action"],
            **role,
            "largest_difference": gap,
            "probes": len(probes),
        }
    if algorithm.plan is not None:
        memory = algorithm.begin(1)
        leaves, tree = jax.tree.flatten(memory)

        # Keys are no plain numbers: the program takes their raw words.
        def plan(key_data: Array, obs: Array, *leaves: Array) -> tuple[Array, ...]:
            key = jax.random.wrap_key_data(key_data)
            action, _, after = algorithm.decide(key, state, obs, jax.tree.unflatten(tree, leaves), True)
            # What a refused observation would have left behind is forgotten with it.
            finite = jnp.all(jnp.isfinite(obs))
            kept = [
                jnp.where(finite, jnp.asarray(new), old)
                for new, old in zip(jax.tree.leaves(after), leaves, strict=True)
            ]
            return _flagged(action, obs), *kept

        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
        files["planner.stablehlo"] = _serialise(plan, jax.ShapeDtypeStruct((2,), jnp.uint32), shape, *shapes)
        notes["planner.stablehlo"] = {
            "inputs": ["key data [2] uint32", "obs [1, d] float32", *(f"memory {list(s.shape)}" for s in shapes)],
            "outputs": ["action", *(f"memory {list(s.shape)}" for s in shapes)],
            **_role(algorithm, False),
            "memory_at_start": [np.asarray(x).tolist() for x in leaves] if sum(x.size for x in leaves) < 4096 else None,
        }
    return files, notes


def _role(algorithm: Algorithm, actor: bool) -> Fields:
    """Whether a file is the policy, in a word and in a sentence."""
    is_policy = not actor or algorithm.plan is None
    about = (
        "the policy: it decides as the trained run does"
        if is_policy
        else "NOT the policy: the actor alone, whose actions differ from those of the planner that was trained, "
        "evaluated and certified (planner.stablehlo)"
    )
    return {"is_policy": is_policy, "about": about}


def write_files(out: str | os.PathLike[str], files: dict[str, bytes], notes: Fields, about: Fields) -> Path:
    """Write the files and then the manifest, each under its final name only when complete."""
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"'{folder}' is not empty: give a new folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    listed = {}
    for name, content in files.items():
        write_bytes(folder / name, content)
        listed[name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), **notes.get(name, {})}
    manifest = {"format": FORMAT, **about, "files": listed}
    manifest["seal"] = seal_of(manifest)
    write_bytes(folder / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())
    return folder / "manifest.json"


def load_export(path: str | os.PathLike[str]) -> Exported:
    """Open an export: check every sum and what its StableHLO programs call, then make them callable."""
    folder = Path(path)
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        listed = {name: str(entry["sha256"]) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"'{folder}' is not an export ({error}): expected the --out folder of `awavo export`."
        ) from error
    if manifest.get("format") != FORMAT:
        raise InputError(f"'{folder}' has format {manifest.get('format')}, this version reads {FORMAT}.")
    if "seal" in manifest and manifest["seal"] != seal_of(manifest):  # one of an older version has none
        raise InputError(
            f"'{folder}/manifest.json' was edited after it was written: it does not match its seal. Export again."
        )
    contents = {name: _checked_content(folder, name, wanted) for name, wanted in listed.items()}
    programs = {}
    for name, content in contents.items():
        if not name.endswith(".stablehlo"):
            continue
        if reason := check_program(content):
            raise InputError(f"'{folder / name}' is refused: {reason}. Export the run again.")
        programs[name.removesuffix(".stablehlo")] = jax.export.deserialize(bytearray(content)).call
    return Exported(manifest, programs)


def _checked_content(folder: Path, name: str, wanted: str) -> bytes:
    """The bytes of a file that the manifest lists, if they have its sum."""
    if not PLAIN_NAME.fullmatch(name) or (folder / name).is_symlink():
        raise InputError(f"'{folder}/manifest.json' names '{name[:100]}', which is no plain file in the folder.")
    path = folder / name
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise InputError(f"'{path}' has {path.stat().st_size:,} bytes, at most {MAX_BYTES:,} are read.")
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != wanted:
        raise InputError(f"'{path}' is not the file its manifest describes: export the run again.")
    return content
