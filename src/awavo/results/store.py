"""The run folder on disk: read it whole, write its files so that a crash never leaves half of one.

config.json is sealed (a checksum of its own content), its configuration has a fingerprint, the checkpoints name both,
and every table carries a checksum: what was edited or damaged is refused. That is integrity, not a signature: whoever
rewrites every file of a folder consistently is found out by computing its numbers again (`awavo certify --recheck`).
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from awavo.config import stored_fingerprint
from awavo.errors import RunFolderError
from awavo.files import seal_of, write_bytes
from awavo.types import Fields, FieldsView

__all__ = [
    "FORMAT", "RunData", "load_run", "newest_checkpoint", "read_config", "read_json", "read_table", "seal_of",
    "to_plain", "write_bytes", "write_json", "write_sealed", "write_table",
]  # fmt: skip

FORMAT = 1
"""Version of config.json this package writes and reads."""

_EPISODE_COLUMNS = ("seed", "env_steps", "return", "length")
_SUM_KEY, _NO_SUM = b"awavo-sha256", b"0" * 64
_RUN_KEY = "awavo-run"
_MAX_HEADER = 1 << 26
# A file of a run folder may come from anywhere: one that is larger than any run writes is not read into memory.
MOST_JSON_BYTES, MOST_TABLE_BYTES = 1 << 28, 1 << 30
UNSEALED = "config.json carries no seal (an older awavo wrote it): an edit of its limits would not be noticed"
UNSUMMED = "carries no checksum (an older awavo wrote it): damage would not be noticed"


@dataclass(frozen=True)
class RunData:
    """Everything a run folder says, without its parameters."""

    path: Path
    meta: Fields
    metrics: pl.DataFrame
    episodes: pl.DataFrame
    evaluation: Fields | None
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> Fields:
        """The resolved configuration."""
        return self.meta["config"]

    @property
    def spec(self) -> Fields:
        """The task as the algorithm saw it."""
        return self.meta["spec"]

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.config["task"])

    @property
    def algo(self) -> str:
        """Name of the algorithm."""
        return str(self.config["algo"])

    @property
    def label(self) -> str:
        """Algorithm and preset, short enough for a legend."""
        preset = self.config.get("preset")
        return f"{self.algo} ({preset})" if preset and preset != "default" else self.algo

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Names of the costs, in order."""
        return tuple(str(name) for name in self.spec["cost_names"])

    @property
    def cost_limits(self) -> tuple[float, ...]:
        """Limit of each cost's undiscounted episode total."""
        return tuple(float(limit) for limit in self.spec["cost_limits"])

    @property
    def seeds(self) -> list[int]:
        """Seed numbers that the tables hold, in order."""
        return sorted(set(self.metrics["seed"].to_list()) | set(self.episodes["seed"].to_list()))

    @property
    def env_steps(self) -> int:
        """Environment steps per seed reached so far."""
        steps = [table["env_steps"].max() for table in (self.metrics, self.episodes) if table.height]
        return max((int(step) for step in steps if isinstance(step, int)), default=0)


def load_run(path: str | os.PathLike[str]) -> RunData:
    """Read a run folder; `RunFolderError` says which file is wrong and what to do."""
    folder = Path(path)
    meta, notes = read_config(folder)
    columns = (*_EPISODE_COLUMNS, *(f"cost_{name}" for name in meta["spec"]["cost_names"]))
    seal = meta.get("seal")
    metrics, metrics_note = _checked_columns(folder / "metrics.parquet", ("seed", "env_steps"), seal)
    episodes, episodes_note = _checked_columns(folder / "episodes.parquet", columns, seal)
    evaluation = _read_evaluation(folder / "evaluation.json", seal)
    return RunData(folder, meta, metrics, episodes, evaluation, (*notes, *metrics_note, *episodes_note))


def read_config(folder: Path) -> tuple[Fields, list[str]]:
    """The content of config.json, and what cannot be vouched for; an edited one is refused."""
    path = folder / "config.json"
    if not path.is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise RunFolderError(f"'{folder}' {what}: expected a run folder. Give the --out folder of `awavo train`.")
    meta = read_json(path)
    _check_meta(folder, meta)
    edited = f"'{path}' was edited after training:"
    remedy = "Restore it, or train anew with the options you want."
    if "seal" in meta and meta["seal"] != seal_of(meta):
        raise RunFolderError(f"{edited} its content does not match its seal. {remedy}")
    if meta.get("fingerprint") != stored_fingerprint(meta["config"]):
        raise RunFolderError(f"{edited} its configuration does not match its fingerprint. {remedy}")
    newest = newest_checkpoint(folder)
    named = None if newest is None else _checkpoint_header(newest).get("config")
    if named and named != meta.get("seal"):
        raise RunFolderError(f"{edited} its checkpoint was written under another seal. {remedy}")
    return meta, [] if "seal" in meta else [UNSEALED]


def _read_evaluation(path: Path, run: str | None) -> Fields | None:
    """The entries of evaluation.json by mode; beside a run with a seal its own must be there and fit, and name it."""
    sealed = run is not None
    if not path.exists():
        return None
    content = read_json(path, "Evaluate again.")
    entries = {mode: entry for mode, entry in content.items() if mode not in ("run", "seal")}
    if not all(isinstance(entry, dict) for entry in entries.values()):
        raise RunFolderError(f"'{path}' is damaged: expected one object per mode. Evaluate again.")
    if (sealed or "seal" in content) and content.get("seal") != seal_of(content):
        raise RunFolderError(f"'{path}' was edited after it was written: it does not match its seal. Evaluate again.")
    if content.get("run", run) != run:  # one of an older version names none
        raise RunFolderError(f"'{path}' is of another run: it names another config.json. Evaluate again.")
    return entries


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the most steps, whether it can be read or not."""
    names = [p for p in (folder / "checkpoints").glob("step-*.safetensors") if re.fullmatch(r"step-\d{12}", p.stem)]
    return max(names, default=None)


def _checkpoint_header(path: Path) -> Fields:
    """The texts in a checkpoint's header, without its arrays; nothing where it is damaged, which is said on loading."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _MAX_HEADER)))
        return dict(header["__metadata__"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def read_json(path: Path, remedy: str = "Restore it or start a new run.") -> Fields:
    """Read a JSON object; one that names a field twice is refused. `remedy` ends the error's text."""
    try:
        content = json.loads(_content(path, MOST_JSON_BYTES).decode(), object_pairs_hook=_unique)
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"'{path}' is damaged ({error}): expected JSON. {remedy}") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"'{path}' is damaged: expected a JSON object. {remedy}")
    return content


def _content(path: Path, most: int) -> bytes:
    """A whole file; a pipe, which would wait for ever, or what would not fit into memory is refused."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        if found.st_size > most:
            raise ValueError(f"it has {found.st_size:,} bytes, at most {most:,} are read")
        return path.read_bytes()
    except PermissionError as error:  # nothing is wrong with it: nobody shall train anew for that
        raise RunFolderError(f"'{path}' cannot be read ({error.strerror}): change its permissions.") from error


def _unique(pairs: Sequence[tuple[str, Any]]) -> Fields:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field '{twice}' stands there twice")
    return content


def write_sealed(path: str | os.PathLike[str], content: FieldsView) -> Fields:
    """Write a JSON file with its seal as the last field; return what was written."""
    plain = to_plain(content)
    sealed = {**plain, "seal": seal_of(plain)}
    write_json(path, sealed)
    return sealed


def write_json(path: str | os.PathLike[str], content: FieldsView) -> None:
    """Write a JSON file in one piece; NaN and infinities become null."""
    text = json.dumps(to_plain(content), indent=2, allow_nan=False, ensure_ascii=False)
    # A name that is no text (a lone surrogate) is written as JSON escapes it.
    write_bytes(path, (text + "\n").encode(errors="backslashreplace"))


def write_table(
    path: str | os.PathLike[str], table: pl.DataFrame | FieldsView | Sequence[FieldsView], *, run: str | None = None
) -> None:
    """Write a parquet file in one piece, from a frame, columns (arrays or lists) or rows, with a checksum in it.

    `run` is the seal of the run whose table it is: beside another run's configuration it is refused.
    """
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table, infer_schema_length=None)
    buffer = io.BytesIO()
    named = {_RUN_KEY: run} if run else {}
    frame.write_parquet(buffer, metadata={**named, _SUM_KEY.decode(): _NO_SUM.decode()})
    content = buffer.getvalue()
    # The sum is of the file with zeros in its place: whatever bit of it flips, it is noticed.
    start = content.rindex(_NO_SUM, content.rindex(_SUM_KEY))
    checksum = hashlib.sha256(content).hexdigest().encode()
    write_bytes(path, content[:start] + checksum + content[start + len(checksum) :])


def read_table(path: Path, *, summed: bool = False, run: str | None = None) -> tuple[pl.DataFrame, bool]:
    """A parquet file, and whether it carries a checksum; with `summed` one without is refused, as a wrong one is.

    One that names another run than `run` (a seal) is refused; those of older versions name none.
    """
    damaged = f"'{path}' is damaged"
    remedy = "restore it, or train in another --out."
    try:
        content = _content(path, MOST_TABLE_BYTES)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{damaged} ({getattr(error, 'strerror', None) or error}): {remedy}") from error
    found = re.search(rb"%s.{1,4}?([0-9a-f]{64})" % _SUM_KEY, content[-65_536:], re.DOTALL)
    if found is not None:
        at = found.start(1) - min(len(content), 65_536) + len(content)
        if hashlib.sha256(content[:at] + _NO_SUM + content[at + 64 :]).hexdigest().encode() != found[1]:
            raise RunFolderError(f"{damaged}: its checksum does not match. It was edited or a bit flipped: {remedy}")
    elif summed:
        raise RunFolderError(f"{damaged}: it has lost its checksum: {remedy}")
    try:
        table = pl.read_parquet(io.BytesIO(content))
        named = pl.read_parquet_metadata(io.BytesIO(content)).get(_RUN_KEY, run)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunFolderError(f"{damaged} ({first}): {remedy}") from error
    if run and named != run:
        raise RunFolderError(f"'{path}' is of another run: it names another config.json. R{remedy[1:]}")
    return table, found is not None


def to_plain(value: object) -> Any:
    """Turn numpy values, paths and non-finite numbers into what JSON can hold."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return str(value)


def _check_meta(folder: Path, meta: FieldsView) -> None:
    """Refuse a configuration of another format, or one without the parts everything reads."""
    if meta.get("format") != FORMAT:
        raise RunFolderError(
            f"'{folder}' has format {meta.get('format')!r}, expected {FORMAT}: use the awavo version that wrote it."
        )
    wanted = {"config": ("task", "algo"), "spec": ("cost_names", "cost_limits")}
    for part, keys in wanted.items():
        for key in keys:
            if not isinstance(meta.get(part), dict) or key not in meta[part]:
                raise RunFolderError(
                    f"'{folder}/config.json' is damaged: no {part}.{key}. Restore it or start a new run."
                )
    spec, stored = meta["spec"], meta["config"]
    names, limits = spec["cost_names"], spec["cost_limits"]
    if not isinstance(names, list) or not isinstance(limits, list) or len(names) != len(limits):
        raise RunFolderError(f"'{folder}/config.json' is damaged: expected one cost limit per cost name. Restore it.")
    if not all(isinstance(limit, int | float) and abs(limit) < 1e300 for limit in limits):
        raise RunFolderError(f"'{folder}/config.json' is damaged: a cost limit is not a number. Restore it.")
    texts = [stored["task"], stored["algo"], *names]
    mappings = [meta.get(part, {}) for part in ("versions", "device")]
    mappings += [stored.get(part, {}) for part in ("task_options", "algo_options")]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(part, dict) for part in mappings):
        raise RunFolderError(f"'{folder}/config.json' is damaged: a part of it has another type. Restore it.")


def _checked_columns(path: Path, columns: Sequence[str], seal: str | None) -> tuple[pl.DataFrame, list[str]]:
    """A table with its columns checked, and a note if it has no checksum; a table without rows needs no columns."""
    if not path.is_file():
        raise RunFolderError(f"'{path}' is missing: the run has no results yet. Run the same `awavo train` again.")
    table, has_sum = read_table(path, summed=seal is not None, run=seal)
    note = [] if has_sum else [f"{path.name} {UNSUMMED}"]
    if table.is_empty():
        whole = ("seed", "env_steps", "length")
        return pl.DataFrame(schema={name: pl.Int64 if name in whole else pl.Float64 for name in columns}), note
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise RunFolderError(f"'{path}' has no column '{missing[0]}': expected {', '.join(columns)}. Train again.")
    return table, note
