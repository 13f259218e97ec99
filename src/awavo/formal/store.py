"""certificates.json in a run folder: the record, and the check of a stored record against a fresh computation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from awavo.errors import RunFolderError
from awavo.formal.certificate import REFUTED, VERDICTS, Certificate, compare_certificates
from awavo.formal.run_certificates import Findings, Plan

__all__ = ["FORMAT", "favourable", "read_plan", "recheck", "record"]

Record: TypeAlias = Mapping[str, Any]  # what certificates.json holds
FORMAT = 1
_FATAL = ("operator", "metric")  # what a method rests on: one refuted makes the verdict negative


def record(findings: Findings, plan: Plan, stamp: Record) -> dict[str, Any]:
    """The content of certificates.json."""
    counts = Counter(c.verdict for c in findings.certificates)
    return {
        "format": FORMAT,
        "plan": plan._asdict(),
        "delivered_seed": findings.delivered,
        "episodes": {str(k): v for k, v in findings.episodes.items()},
        "returns": {str(k): v for k, v in findings.returns.items()},
        "counts": {verdict: counts.get(verdict, 0) for verdict in VERDICTS},
        "skipped": findings.skipped,
        "certificates": [c.as_dict() for c in findings.certificates],
        **stamp,
    }


def favourable(content: Record) -> bool:
    """Whether a policy is certified safe and nothing its method rests on is refuted."""
    broken = any(c["verdict"] == REFUTED and c["name"].split(".")[0] in _FATAL for c in content["certificates"])
    return content["delivered_seed"] is not None and not broken


def read_plan(content: Record) -> Plan:
    """The plan of a stored record."""
    if content.get("format") != FORMAT:
        raise RunFolderError(
            f"certificates.json has format {content.get('format')!r}, expected {FORMAT}: certify again."
        )
    try:
        return Plan(**content["plan"])
    except (KeyError, TypeError) as error:
        raise RunFolderError(f"certificates.json is damaged ({error}): run `awavo certify` again.") from error


def recheck(content: Record, fresh: Sequence[Certificate], tolerance: float = 1e-4) -> dict[str, list[str]]:
    """Compare every stored certificate with its recomputation; names of those that differ, with the differences."""
    stored = {c.name: c for c in (Certificate.from_dict(entry) for entry in content["certificates"])}
    recomputed = {c.name: c for c in fresh}
    found = {}
    for name in dict.fromkeys([*stored, *recomputed]):
        if name not in recomputed:
            found[name] = ["is stored but was not found again"]
        elif name not in stored:
            found[name] = ["was found but is not stored"]
        else:
            differences = compare_certificates(stored[name], recomputed[name], tolerance)
            if differences:
                found[name] = differences
    return found
