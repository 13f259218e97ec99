"""Checkpoints: the whole training state in one safetensors file, checked and written in one piece.

A file holds one array per leaf, named `<seed>/<path of the leaf>`, and in its header the fingerprint of the
configuration, the seal of config.json, the step, and a BLAKE2 hash over names, types, shapes and bytes. It is written
beside its place, flushed and renamed, so that a crash leaves the one before. Nothing in it is code and nothing is
unpickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from awavo.errors import CheckpointError
from awavo.files import write_bytes

__all__ = [
    "Checkpoint",
    "latest_checkpoint",
    "read_checkpoint",
    "restore",
    "resume_notes",
    "seed_arrays",
    "write_checkpoint",
]

FORMAT = "awavo-checkpoint-1"
KEEP = 2  # the newest, and one to fall back on
REMEDY = "Written by another version? Use that one (config.json has its commit), or train again."
Tree = TypeVar("Tree")


class Checkpoint(NamedTuple):
    """The arrays of a file by name, and how far training had come."""

    arrays: dict[str, np.ndarray]
    iteration: int
    env_steps: int
    path: Path


def flatten(state: PyTree) -> dict[str, np.ndarray]:
    """Name every leaf of a state by its path; random keys become their raw words."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(_raw(leaf)) for path, leaf in leaves}


def _raw(leaf: ArrayLike) -> ArrayLike:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def restore(arrays: Mapping[str, np.ndarray], template: Tree, path: Path) -> Tree:
    """Fill the tree of `template` (arrays or shapes) from a checkpoint's arrays of one seed."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(p, simple=True, separator=".") for p, _ in leaves]
    if set(names) != set(arrays):
        odd = sorted(set(names) ^ set(arrays))[0]
        raise CheckpointError(f"'{path}' does not fit this run: array '{odd}' is in only one of them. {REMEDY}")
    return jax.tree_util.tree_unflatten(
        treedef, [_fit(arrays[name], leaf, name, path) for name, (_, leaf) in zip(names, leaves, strict=True)]
    )


def _fit(array: np.ndarray, leaf: jax.Array | jax.ShapeDtypeStruct, name: str, path: Path) -> jax.Array | np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array))
    if array.shape != leaf.shape or array.dtype != leaf.dtype:
        raise CheckpointError(
            f"'{path}' does not fit this run: '{name}' is {array.dtype}{list(array.shape)}, "
            f"expected {leaf.dtype}{list(leaf.shape)}. {REMEDY}"
        )
    return array


def _digest(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    digest = hashlib.blake2b(json.dumps(dict(metadata), sort_keys=True).encode(), digest_size=32)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        # Name, type and shape too: bytes alone would let two arrays change places.
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def write_checkpoint(
    folder: Path,
    seeds: Sequence[int],
    states: Sequence[PyTree],
    *,
    fingerprint: str,
    iteration: int,
    env_steps: int,
    seal: str = "",
) -> Path:
    """Write a checkpoint beside the others and drop all but the newest `KEEP`; `seal` is that of config.json."""
    arrays = {
        f"{seed}/{name}": a for seed, state in zip(seeds, states, strict=True) for name, a in flatten(state).items()
    }
    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    metadata = {"format": FORMAT, "fingerprint": fingerprint, "iteration": str(iteration), "env_steps": str(env_steps)}
    metadata |= {"config": seal} if seal else {}
    payload = save(arrays, {**metadata, "digest": _digest(arrays, metadata)})
    path = folder / _name(env_steps)
    remedy = "The checkpoint before it is intact; free the space and run again."
    write_bytes(path, payload, make_folder=True, remedy=remedy)
    for old in _listed(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def _name(env_steps: int) -> str:
    return f"step-{env_steps:012d}.safetensors"


def _listed(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{12}\.safetensors", p.name))


def read_checkpoint(path: Path, fingerprint: str | None = None) -> Checkpoint:
    """Read and verify one file; a torn, altered or foreign one raises `CheckpointError`."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"'{path}' is damaged or not a checkpoint ({error}).") from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"'{path}' is not a checkpoint of this version (expected format {FORMAT}).")
    stated = metadata.pop("digest", "")
    if stated != _digest(arrays, metadata):
        raise CheckpointError(f"'{path}' is damaged: its checksum does not match.")
    if fingerprint is not None and metadata["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"'{path}' belongs to another configuration: fingerprint {metadata['fingerprint']}, not {fingerprint}."
        )
    if path.name != _name(int(metadata["env_steps"])):
        raise CheckpointError(f"'{path}' was renamed: it holds step {metadata['env_steps']}.")
    return Checkpoint(arrays, int(metadata["iteration"]), int(metadata["env_steps"]), path)


def latest_checkpoint(folder: Path, fingerprint: str | None = None) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that verifies, and a line for each newer file that was refused."""
    refused = []
    for path in reversed(_listed(folder)):
        try:
            return read_checkpoint(path, fingerprint), refused
        except CheckpointError as error:
            refused.append(str(error))
    return None, refused


def resume_notes(found: Checkpoint | None, refused: Sequence[str]) -> tuple[str, ...]:
    """A line for each checkpoint that was refused, with the step from which what resumes goes on instead."""
    if not refused:
        return ()
    place = "no older one is intact, begins anew" if found is None else f"goes on from step {found.env_steps}"
    return tuple(f"{text.rstrip('.')}: {place}." for text in refused)


def seed_arrays(checkpoint: Checkpoint, seed: int) -> dict[str, np.ndarray]:
    """The arrays of one seed, without the prefix."""
    prefix = f"{seed}/"
    return {name[len(prefix) :]: a for name, a in checkpoint.arrays.items() if name.startswith(prefix)}
