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
from typing import Any

import numpy as np

from awavo.errors import RunFolderError
from awavo.types import Fields, FieldsView

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
    "differences",
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
    details: FieldsView = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is not one of {', '.join(VERDICTS)}.")

    def as_dict(self) -> Fields:
        """Plain values for JSON."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, values: FieldsView) -> Certificate:
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
    return differences(stored.as_dict(), fresh.as_dict(), "", tolerance)


def differences(stored: object, fresh: object, path: str = "", tolerance: float = 1e-4) -> list[str]:
    """Every place where two plain documents differ, in words; numbers with a fraction may differ by rounding."""
    if isinstance(stored, dict) and isinstance(fresh, dict) and list(stored) == list(fresh):
        keys: Iterable = stored
    elif isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
        keys = range(len(stored))
    else:
        return [] if _same(stored, fresh, tolerance) else [f"{path} is stored as {stored!r}, recomputed as {fresh!r}"]
    return [
        text for key in keys for text in differences(stored[key], fresh[key], f"{path}.{key}".strip("."), tolerance)
    ]


def _same(stored: object, fresh: object, tolerance: float) -> bool:
    if type(stored) is not type(fresh):  # 1, 1.0 and true are not the same field
        return False
    if isinstance(stored, float) and isinstance(fresh, float):
        return math.isclose(stored, fresh, rel_tol=tolerance, abs_tol=min(tolerance, 1e-6))
    return stored == fresh


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
