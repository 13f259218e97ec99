"""A slice of benchmarks/robustness/fuzz.py: nonsense gets answers, never an exception, and nothing is written."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "robustness"


@pytest.fixture(scope="module")
def fuzz():
    sys.path.insert(0, str(FOLDER))
    try:
        import fuzz
        import fuzz_cases
    finally:
        sys.path.remove(str(FOLDER))
    return fuzz, fuzz_cases


@pytest.mark.bad_input
def test_a_slice_of_the_fuzz(fuzz, tmp_path):
    command, cases = fuzz
    cases.make_small_stock(tmp_path)
    rows = [command.run_case(number, 1, tmp_path, 30.0, cases.QUICK) for number in range(100)]
    assert [row for row in rows if row["wrong"]] == []
    assert {row["kind"] for row in rows} >= {"options", "settings", "arguments", "ulog", "observations", "bridge"}
    assert sum(row["code"] == 2 for row in rows) > 60
