"""What commands show: names are text, neither markup nor commands of the terminal."""

from awavo.cli import show


def test_the_table_of_an_evaluation_takes_names_as_text(capsys):
    figure = {"value": 1.0, "low": 0.5, "high": 1.5, "limit": 2.0}
    entry = {"return": figure, "costs": {"[/x]": figure}, "feasible_seeds": 1, "seeds": 1, "episodes_per_seed": 5}
    show.show_evaluation({"greedy": entry, "stochastic": entry}, "[/task]", "[/algo]")
    said = capsys.readouterr().out
    assert "[/x] (limit 2)" in said
    assert "1.0 [0.5, 1.5]" in said
