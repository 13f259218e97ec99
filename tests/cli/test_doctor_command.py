"""`awavo doctor`: healthy here, and a wrong sum is a negative verdict."""

import json

from awavo.cli import doctor


def test_this_machine_is_healthy(run):
    code, text, _ = run("doctor", "--json")
    found = json.loads(text)
    assert code == 0
    assert found["healthy"]
    assert {"python", "jax", "device", "arithmetic", "disk"} <= {check["name"] for check in found["findings"]}
    assert all(set(check) == {"name", "ok", "detail"} for check in found["findings"])


def test_wrong_arithmetic_fails(run, monkeypatch):
    monkeypatch.setattr(doctor, "float32_rows_are_right", lambda: False)
    code, text, _ = run("doctor")
    assert code == 1
    assert "FAIL arithmetic" in text
