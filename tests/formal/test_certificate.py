"""The record: survives JSON, refuses damage, and a re-check notices every altered field."""

import dataclasses
import json

import numpy as np
import pytest

from awavo.errors import RunFolderError
from awavo.formal.certificate import Assumption, Certificate, Evidence, compare_certificates, digest, weakest

CERTIFICATE = Certificate(
    name="test.one",
    claim="two is even",
    source="arithmetic",
    method="division",
    verdict="supported",
    reason="no rest",
    assumptions=(Assumption("numbers exist", "proved"),),
    evidence=(Evidence("rest", 0.0, -0.1, 0.1, "== 0", True),),
    counterexample={"points": np.arange(3)},
    inputs=digest(2),
    details={"n": 2},
)


def test_round_trip_through_json():
    back = Certificate.from_dict(json.loads(json.dumps(CERTIFICATE.as_dict(), allow_nan=False)))
    assert compare_certificates(back, CERTIFICATE) == []


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "proved"},
        {"claim": "three is even"},
        {"reason": "trust me"},
        {"inputs": digest(3)},
        {"assumptions": ()},
        {"evidence": (Evidence("rest", 0.05, -0.1, 0.1, "== 0", True),)},
        {"counterexample": None},
        {"details": {"n": 3}},
    ],
)
def test_every_altered_field_is_noticed(change):
    assert compare_certificates(dataclasses.replace(CERTIFICATE, **change), CERTIFICATE)


def test_rounding_is_not_a_difference():
    near = dataclasses.replace(CERTIFICATE, evidence=(Evidence("rest", 1e-9, -0.1, 0.1, "== 0", True),))
    assert compare_certificates(near, CERTIFICATE) == []


def test_damaged_records_are_refused():
    for change in ({"verdict": "true"}, {"surprise": 1}, {"evidence": [{"nothing": 1}]}):
        with pytest.raises(RunFolderError, match="damaged"):
            Certificate.from_dict({**CERTIFICATE.as_dict(), **change})


def test_weakest_and_digest():
    assert weakest(["proved", "undecided", "supported"]) == "undecided"
    assert weakest(["proved", "refuted"]) == "refuted"
    assert digest(np.zeros(2)) != digest(np.zeros(3))
    assert digest("a", "b") != digest("ab")
