"""Result files on disk."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Write results as files and return their folder."""

    def write_all(*results):
        for number, result in enumerate(results):
            path = tmp_path / "jobs" / f"{result['job']['family']}-n{number}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(result))
        return tmp_path

    return write_all
