"""The command: one clear line for bad input, resuming, interruption, and collecting alone."""

import json
import sys

import numpy as np
import pytest
from made_up import learning_result

from awavo.cli.main import main
from awavo.paper import engines


@pytest.fixture
def conv(monkeypatch):
    """The convergence figure with instant jobs; returns the calls."""
    calls = []

    def run(settings, seeds, **_):
        calls.append((settings["rate"], tuple(seeds)))
        errors = np.array(settings["horizons"]) ** -0.6 * np.ones((2, len(seeds), 1))
        row = {"rate": settings["rate"], "seed_numbers": list(seeds), "horizons": settings["horizons"]}
        return {**row, "gap": errors.tolist(), "violation": errors.tolist()}

    monkeypatch.setattr("awavo.paper.convergence_run.run_convergence", run)
    return calls


@pytest.fixture
def undrawn(monkeypatch):
    """Figures as empty files: the tests of each figure draw them."""
    blank = '<svg xmlns="http://www.w3.org/2000/svg"/>'
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, path, **_: path.write_text(blank))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "lerning"], "Did you mean 'learning'"),
        (["reproduce", "learning", "--budget", "huge"], "no budget is named 'huge'"),
        (["reproduce", "learning", "--engine", "slurm"], "--engine slurm is not one of local, ray"),
        (["reproduce", "learning", "--seeds", "0"], "expected at least one"),
    ],
)
def test_bad_input_is_one_line(arguments, said, capsys, tmp_path):
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_without_ray_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["reproduce", "convergence", "--engine", "ray", "--out", str(tmp_path)]) == 2
    assert "--engine ray needs the extra 'ray'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_same_command_goes_on(conv, undrawn, capsys, tmp_path):
    command = ["reproduce", "convergence", "--out", str(tmp_path), "--device", "cpu"]
    assert main(command) == 0
    assert len(conv) == 2
    assert main([*command, "--seeds", "4"]) == 0
    assert conv[2:] == [(1.0, (3,)), (10.0, (3,))]
    assert "Quick budget" in capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_an_interruption_keeps_finished_jobs(conv, monkeypatch, capsys, tmp_path):
    real = engines.run_job

    def stop(job, out, **options):
        if job.settings["rate"] == 10.0:
            raise KeyboardInterrupt
        return real(job, out, **options)

    monkeypatch.setattr(engines, "run_job", stop)
    assert main(["reproduce", "convergence", "--out", str(tmp_path)]) == 130
    assert len(list(tmp_path.rglob("*.json"))) == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_collecting_runs_nothing(conv, undrawn, write, capsys):
    folder = write(learning_result("cartpole", "awavo", 198 + np.linspace(-1, 1, 10)))
    assert main(["reproduce", "all", "--collect", "--budget", "full", "--out", str(folder), "--json"]) == 0
    assert conv == []
    said = json.loads(capsys.readouterr().out)
    assert any(path.endswith("learning/finding.md") for path in said["written"])


def test_nothing_to_collect_is_a_negative_verdict(tmp_path, capsys):
    assert main(["reproduce", "lorenz", "--collect", "--out", str(tmp_path)]) == 1
    assert "no results" in capsys.readouterr().out


def test_a_torn_file_is_named(tmp_path, capsys):
    (tmp_path / "torn.json").write_text("{")
    assert main(["reproduce", "learning", "--collect", "--out", str(tmp_path)]) == 2
    assert "torn.json" in capsys.readouterr().err
