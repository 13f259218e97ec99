"""What commands show: names are text, neither markup nor commands of the terminal."""

import pytest

from awavo.cli import show


def test_the_table_of_an_evaluation_takes_names_as_text(capsys):
    figure = {"value": 1.0, "low": 0.5, "high": 1.5, "limit": 2.0}
    entry = {"return": figure, "costs": {"[/x]": figure}, "feasible_seeds": 1, "seeds": 1, "episodes_per_seed": 5}
    show.show_evaluation({"greedy": entry, "stochastic": entry}, "[/task]", "[/algo]")
    said = capsys.readouterr().out
    assert "[/x] (limit 2)" in said
    assert "1.0 [0.5, 1.5]" in said


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [(0.14, 0.1, "0.14"), (0.0123, 0.01, "0.012"), (0.0, 0.01, "0.000"), (26.58, 30.0, "26.6"), (2e-8, 1e-8, "2e-08"),
     (0.04, 0.0, "0.040")],
)  # fmt: skip
def test_figures_have_the_digits_that_their_limit_asks_for(value, limit, text, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    figure = {"value": value, "low": value, "high": value, "limit": limit}
    income = {"value": 0.00012, "low": -0.00023, "high": 0.0003}
    entry = {"return": income, "costs": {"c": figure}, "feasible_seeds": 0, "seeds": 1, "episodes_per_seed": 5}
    show.show_evaluation({"greedy": entry}, "task", "algo")
    said = capsys.readouterr().out
    assert f" {text} [{text}, {text}]" in said
    assert "0.00012 [-0.00023, 0.00030]" in said


def test_a_table_keeps_every_figure_however_narrow_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    figure = {"value": 123456.7, "low": 12345.5, "high": 234567.8, "limit": 2.0}
    costs = {f"cost{i}": figure for i in range(4)}
    entry = {"return": figure, "costs": costs, "feasible_seeds": 1, "seeds": 1, "episodes_per_seed": 5}
    show.show_evaluation({"greedy": entry, "stochastic": entry}, "task", "algo")
    said = capsys.readouterr().out
    assert "…" not in said
    assert (said.count("123456.7"), said.count("[12345.5,"), said.count("234567.8]")) == (10, 10, 10)
