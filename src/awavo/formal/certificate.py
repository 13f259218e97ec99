"""The certificate: a claim, what it rests on, how it was checked, what was found, and a verdict that can be negative.

Verdicts: `proved` (by exact or interval reasoning, up to the stated assumptions), `supported` (measured, with the
stated confidence), `refuted` (with a counter-example or an interval that excludes the claim), `undecided`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeGuard

import numpy as np

from awavo.errors import RunFolderError

__all__ = [
    "PROVED",
    "REFUTED",
    "SUPPORTED",
    "UNDECIDED",
    "VERDICTS",
    "Assumption",
    "Certificate",
    "Evidence",
    "compare_certificates",
    "digest",
    "weakest",
]

PROVED, SUPPORTED, REFUTED, UNDECIDED = "proved", "supported", "refuted", "undecided"
VERDICTS = (PROVED, SUPPORTED, UNDECIDED, REFUTED)  # from the most to the least favourable


@dataclass(frozen=True)
class Assumption:
    """Something a claim rests on, with a verdict of its own."""

    text: str
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Evidence:
    """One figure with its interval and, where there is one, what the claim requires of it."""

    name: str
    value: float | None  # none where it was not finite: JSON has no such number
    low: float | None = None
    high: float | None = None
    required: str = ""
    ok: bool | None = None


@dataclass(frozen=True)
class Certificate:
    """A claim and its verdict. `inputs` is a hash of everything the check read."""

    name: str
    claim: str
    source: str
    method: str
    verdict: str
    reason: str
    assumptions: tuple[Assumption, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    counterexample: Mapping[str, object] | None = None
    inputs: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is not one of {', '.join(VERDICTS)}.")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """Read back what `as_dict` wrote; a record that does not fit is refused."""
        try:
            content = dict(values)
            content["assumptions"] = tuple(Assumption(**a) for a in content.get("assumptions", ()))
            content["evidence"] = tuple(Evidence(**e) for e in content.get("evidence", ()))
            return cls(**content)
        except (TypeError, ValueError) as error:
            raise RunFolderError(f"a stored certificate is damaged ({error}): run `awavo certify` again.") from error


def weakest(verdicts: Iterable[str]) -> str:
    """The least favourable of several verdicts: a conjunction holds only as far as its weakest part."""
    return max(verdicts, key=VERDICTS.index, default=PROVED)


def digest(*parts: object) -> str:
    """A short hash of arrays, numbers, texts and mappings."""
    total = hashlib.blake2b(digest_size=12)
    for part in parts:
        if isinstance(part, bytes):
            total.update(part)
        elif isinstance(part, np.ndarray):
            total.update(f"{part.dtype}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).tobytes())
        else:
            total.update(json.dumps(_plain(part), sort_keys=True).encode())
        total.update(b"\0")  # so that parts do not run into each other
    return total.hexdigest()


def compare_certificates(stored: Certificate, fresh: Certificate, tolerance: float = 1e-6) -> list[str]:
    """Say in words where a stored certificate differs from a recomputed one; empty when they agree."""
    found = []
    if stored.inputs != fresh.inputs:
        found.append(f"its inputs changed (stored {stored.inputs or 'none'}, now {fresh.inputs})")
    for name in ("claim", "source", "method", "verdict", "reason"):
        if getattr(stored, name) != getattr(fresh, name):
            found.append(f"{name} is stored as '{getattr(stored, name)}', recomputed as '{getattr(fresh, name)}'")
    if [_plain(asdict(a)) for a in stored.assumptions] != [_plain(asdict(a)) for a in fresh.assumptions]:
        found.append("its assumptions differ")
    for name in ("evidence", "counterexample", "details"):
        difference = _first_difference(stored.as_dict()[name], fresh.as_dict()[name], tolerance, name)
        if difference:
            found.append(difference)
    return found


def _first_difference(stored: object, fresh: object, tolerance: float, path: str) -> str | None:
    if isinstance(stored, dict) and isinstance(fresh, dict) and stored.keys() == fresh.keys():
        keys: Iterable = stored
    elif isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
        keys = range(len(stored))
    else:
        if _is_number(stored) and _is_number(fresh):
            close = bool(np.isclose(float(stored), float(fresh), rtol=tolerance, atol=tolerance))
            return None if close else f"{path} is stored as {stored}, recomputed as {fresh}"
        return None if stored == fresh else f"{path} is stored as {stored}, recomputed as {fresh}"
    for key in keys:
        difference = _first_difference(stored[key], fresh[key], tolerance, f"{path}.{key}")
        if difference:
            return difference
    return None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
