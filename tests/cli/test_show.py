"""What commands show: names are text, neither markup nor commands of the terminal."""

import io

from rich.console import Console

from awavo.cli import show
from awavo.runs.train import Progress

EVIL = "\x1b[2J[/red][link=http://x]\x07"


def progress(phase, name):
    return Progress(
        phase, 64, 64, 1, 1.0, 0.0, {"return": 1.0, f"cost_{name}": 2.0}, {name: 1.0}, (f"{name} refused.",)
    )


def test_progress_spells_names_out(monkeypatch):
    for terminal in (False, True):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=200, color_system=None)
        monkeypatch.setattr(show, "Console", lambda stderr, console=console: console)
        show.show_progress([progress("training", EVIL), progress("finished", EVIL)])
        said = stream.getvalue()
        assert "\x1b[2J" not in said
        assert "\x07" not in said
        assert "\\x1b[2J[/red][link=http://x]\\x07 2.0/1" in said


def test_the_table_of_an_evaluation_takes_names_as_text(capsys):
    figure = {"value": 1.0, "low": 0.5, "high": 1.5, "limit": 2.0}
    entry = {"return": figure, "costs": {"[/x]": figure}, "feasible_seeds": 1, "seeds": 1, "episodes_per_seed": 5}
    show.show_evaluation({"greedy": entry, "stochastic": entry}, "[/task]", "[/algo]")
    said = capsys.readouterr().out
    assert "[/x] (limit 2)" in said
    assert "1.0 [0.5, 1.5]" in said
