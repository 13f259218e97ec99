"""Jobs: pieces of work with a name that says everything that decides their numbers, and one result file each."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from awavo.errors import InputError
from awavo.files import write_bytes
from awavo.paper.figures import FIGURES, load
from awavo.provenance import command_line
from awavo.types import FieldsView

__all__ = [
    "Job", "JobSettings", "Progress", "ResultFile", "ResultRow", "missing_jobs", "run_job", "share_of",
    "write_atomically",
]  # fmt: skip

Progress = Callable[[str], None]
# Plain JSON: what decides a job's numbers, the file they are written to, and one of its rows.
JobSettings: TypeAlias = FieldsView
ResultFile: TypeAlias = FieldsView
ResultRow: TypeAlias = FieldsView


@dataclass(frozen=True)
class Job:
    """Some seeds of one piece of work. `settings` (plain JSON) decide the numbers, together with the seeds."""

    figure: str
    label: str
    settings: JobSettings
    seeds: tuple[int, ...]

    @property
    def family(self) -> str:
        """Label and hash of the settings: the same for all seeds of one curve."""
        text = json.dumps([self.figure, self.settings], sort_keys=True)
        return f"{self.label}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def name(self) -> str:
        """Family and seeds."""
        whole = self.seeds == tuple(range(self.seeds[0], self.seeds[-1] + 1))
        text = f"{self.seeds[0]}-{self.seeds[-1]}" if whole and len(self.seeds) > 1 else "_".join(map(str, self.seeds))
        return f"{self.family}-s{text}"

    def path(self, out: Path) -> Path:
        """Its result file."""
        return out / "jobs" / self.figure / f"{self.name}.json"

    def folder(self, out: Path) -> Path:
        """Its run folder: where a learning job that was killed resumes from."""
        return out / "runs" / self.name


def seeds_in(path: Path) -> range | set[int]:
    """The seeds that a result file's name claims; a range stays one, however far it reaches."""
    text = path.stem.rpartition("-s")[2]
    try:
        if "-" in text:
            first, last = map(int, text.split("-"))
            return range(first, last + 1)
        return set(map(int, text.split("_")))
    except ValueError:
        return set()


def missing_jobs(jobs: Iterable[Job], out: Path) -> list[Job]:
    """The jobs with the seeds for which no finished file of their family lies anywhere in `out`."""
    jobs = list(jobs)
    families = {job.family for job in jobs}
    done: dict[str, list[range | set[int]]] = {}
    for path in out.rglob("*.json") if out.is_dir() else ():
        family = path.stem.rpartition("-s")[0]
        if family in families and _is_finished(path):
            done.setdefault(family, []).append(seeds_in(path))
    return [
        replace(job, seeds=block)
        for job in jobs
        for block in _blocks([seed for seed in job.seeds if not any(seed in s for s in done.get(job.family, ()))])
    ]


def _is_finished(path: Path) -> bool:
    """Whether a result file holds a result: its name alone says nothing."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and bool(content.get("rows"))


def _blocks(seeds: Sequence[int]) -> list[tuple[int, ...]]:
    """Seeds in blocks of consecutive ones: each block is a run."""
    blocks: list[list[int]] = []
    for seed in seeds:
        if blocks and seed == blocks[-1][-1] + 1:
            blocks[-1].append(seed)
        else:
            blocks.append([seed])
    return [tuple(block) for block in blocks]


def share_of(jobs: Sequence[Job], text: str) -> list[Job]:
    """The share I/N of the jobs: those of processes or machines that know nothing of each other are disjoint."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise InputError(f"share '{text}': expected I/N such as 1/2, with I from 1 to N.")
    return list(jobs[int(number) - 1 :: int(count)])


def run_job(job: Job, out: Path, *, on_progress: Progress = lambda line: None, **options: object) -> Path:
    """Run one job and write its result file in one piece.

    A job that learns keeps an ordinary run folder beside it and resumes from its last checkpoint.
    """
    import jax

    from awavo.provenance import device_info, source_commit

    began = time.perf_counter()
    row = load(FIGURES[job.figure].run)(
        job.settings, job.seeds, folder=job.folder(out), on_progress=on_progress, **options
    )
    result = {
        "command": _command(),
        "commit": source_commit(),
        "device": device_info(),
        "jax": jax.__version__,
        "job": {
            "figure": job.figure,
            "label": job.label,
            "family": job.family,
            "seeds": list(job.seeds),
            "variant": job.settings.get("variant", ""),
        },
        "wall_s": time.perf_counter() - began,
        "rows": [row],
    }
    path = job.path(out)
    write_atomically(path, json.dumps(result) + "\n")
    jax.clear_caches()
    return path


def _command() -> str:
    """The command as typed, without the paths of this machine."""
    words = [Path(word).name if word.startswith(("/", "~")) else word for word in command_line().split(" ")]
    return " ".join(["python -m awavo.reproduce.jobs", *words[1:]] if words[0] == "jobs.py" else words)


def write_atomically(path: Path, text: str) -> None:
    """Write a text in one piece, in a folder that is made where it is missing."""
    write_bytes(path, text.encode(), make_folder=True)
