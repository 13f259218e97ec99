"""certificates.json as a document: which fields it has, whether it is whole, and whether it is about this run.

It is sealed, and bound to what it was made from by the SHA-256 of each file. What is in it is computed again by
`awavo certify --recheck`; here nothing is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from awavo.errors import RunFolderError
from awavo.results.store import newest_checkpoint, read_json, seal_of
from awavo.types import Fields, FieldsView

__all__ = [
    "FORMAT",
    "PROVENANCE",
    "binding",
    "count_verdicts",
    "favourable",
    "is_about_policy",
    "read_record",
    "what_is_wrong",
    "why_not_shown",
    "why_unbound",
]

Record: TypeAlias = FieldsView

FORMAT = 2
VERDICTS = ("proved", "supported", "undecided", "refuted")
# What nobody can compute again: the seal alone speaks for it.
PROVENANCE = ("command", "commit", "versions", "created", "wall_s")
FIELDS = (
    "format", "bound", "plan", "delivered_seed", "episodes", "returns", "counts", "skipped", "certificates",
    "env_steps", *PROVENANCE, "seal",
)  # fmt: skip
_FATAL = ("operator", "metric")  # what a method rests on: one refuted makes the verdict negative
_CERTIFICATE = ("name", "claim", "source", "method", "verdict", "reason", "inputs")  # all of them texts


def is_about_policy(name: str) -> bool:
    """Whether a claim is about a trained policy and its limits, not about the method or one of its parts."""
    return name.split(".")[0] == "safety"


def count_verdicts(found: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Verdicts of (name, verdict) pairs: those about the policies, and those about the method."""
    pairs = list(found)
    return {
        part: {v: Counter(own for name, own in pairs if is_about_policy(name) == policy)[v] for v in VERDICTS}
        for part, policy in (("policy", True), ("method", False))
    }


def binding(folder: Path, checkpoint: Path | None) -> dict[str, str | None]:
    """The SHA-256 of each file that certificates are made from."""
    files = {
        "checkpoint": checkpoint,
        "config": folder / "config.json",
        "metrics": folder / "metrics.parquet",
        "episodes": folder / "episodes.parquet",
    }
    return {name: _checksum(path) for name, path in files.items()}


def _checksum(path: Path | None) -> str | None:
    try:
        return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def read_record(folder: Path) -> Fields:
    """Read certificates.json, of this format or of format 1; one that does not fit is refused."""
    path = folder / "certificates.json"
    if not path.is_file():
        raise RunFolderError(f"'{folder}' has no certificates.json: run `awavo certify {folder}` first.")
    content = read_json(path, f"Run `awavo certify {folder}` again.")
    wrong = what_is_wrong(content)
    if wrong:
        raise RunFolderError(f"'{path}' is damaged: {wrong}. Run `awavo certify {folder}` again.")
    return content


def what_is_wrong(content: Record) -> str | None:
    """The first thing about a record that no version of this package writes."""
    if content.get("format") not in (1, FORMAT):
        return f"format {content.get('format')!r}, expected {FORMAT}"
    if content["format"] == FORMAT and set(content) != set(FIELDS):
        odd = sorted(set(content) ^ set(FIELDS))[0]
        return f"{'an unknown' if odd in content else 'no'} field '{odd}'"
    certificates = content.get("certificates")
    if not isinstance(certificates, list) or not all(isinstance(entry, dict) for entry in certificates):
        return "no list of certificates"
    for entry in certificates:
        odd = next((name for name in _CERTIFICATE if not isinstance(entry.get(name), str)), None)
        if odd is not None or not entry["name"]:
            return f"a certificate has no {odd or 'name'}"
        if entry["verdict"] not in VERDICTS:
            return f"verdict {entry['verdict']!r} of '{entry['name']}' is not one of {', '.join(VERDICTS)}"
    return None


def _contradictions(content: Record) -> list[str]:
    """Where a record disagrees with itself."""
    pairs = [(entry["name"], entry["verdict"]) for entry in content["certificates"]]
    names = Counter(name for name, _ in pairs)
    found = [f"the certificate '{name}' stands there {number} times" for name, number in names.items() if number > 1]
    seed = content["delivered_seed"]
    if seed is not None and (f"safety.seed_{seed}", "supported") not in pairs:
        found.append(f"seed {seed} is to be delivered, but its safety is not certified")
    if content["counts"] != count_verdicts(pairs):
        found.append("the counts are not those of the certificates")
    return found


def why_unbound(content: Record, bound: Mapping[str, str | None]) -> list[str]:
    """Why a record does not speak of files with these checksums; empty when it does."""
    if content.get("format") != FORMAT:
        return ["an older awavo wrote them, and did not say for which checkpoint"]
    found = _contradictions(content)
    if content["seal"] != seal_of(content):
        found.append("certificates.json was edited after it was written: its content does not match its seal")
    stored = content["bound"] if isinstance(content["bound"], dict) else {}
    if set(stored) != set(bound):
        found.append("certificates.json does not say what it was made from")
    texts = {
        "checkpoint": "they were made for another checkpoint",
        "config": "config.json is not the one they were made with",
        "metrics": "metrics.parquet is not the one they were made with",
        "episodes": "episodes.parquet is not the one they were made with",
    }
    return found + [texts[name] for name in texts if name in stored and stored[name] != bound.get(name)]


def why_not_shown(folder: Path, content: Record) -> list[str]:
    """`why_unbound` of a folder as it is now: its newest checkpoint, its configuration, its tables."""
    return why_unbound(content, binding(folder, newest_checkpoint(folder)))


def favourable(content: Record) -> bool:
    """Whether a policy is certified safe and nothing its method rests on is refuted."""
    broken = any(c["verdict"] == "refuted" and c["name"].split(".")[0] in _FATAL for c in content["certificates"])
    return content["delivered_seed"] is not None and not broken
