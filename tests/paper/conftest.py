"""Result files on disk, and pictures of few pixels."""

import matplotlib
import pytest
from made_up import write_results


@pytest.fixture(autouse=True)
def _coarse_pictures(monkeypatch):
    """Nobody looks at the pictures of tests: few pixels are drawn in a fraction of the time."""
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 40)


@pytest.fixture
def write(tmp_path):
    """Write results as files and return their folder."""

    def write_all(*results):
        write_results(tmp_path, *results)
        return tmp_path

    return write_all
