"""Result files on disk."""

import pytest
from made_up import write_results


@pytest.fixture
def write(tmp_path):
    """Write results as files and return their folder."""

    def write_all(*results):
        write_results(tmp_path, *results)
        return tmp_path

    return write_all
