import io
import json
import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from awavo.cli.main import main
from awavo.errors import InputError, RunFolderError
from awavo.results.compare import compare_group, compare_runs
from awavo.results.limits import STRICT, LimitRule
from awavo.results.outcome import TRAINING, format_estimate, format_number, outcome_of, verdict
from awavo.results.statistics import iqm
from awavo.results.store import load_run, write_sealed, write_table
from awavo.results.tables import comparison_dict, comparison_markdown, comparison_tables, escape_markdown
from awavo.types import Estimate


@pytest.fixture
def runs(tmp_path, write_run):
    folders = [
        write_run(tmp_path / "unsafe", preset="hard", level=199.9, cost_level=1.3, rng=1),
        write_run(tmp_path / "slow", algo="crpo", preset="default", level=170.0, rng=2, speed=3.0),
        write_run(tmp_path / "good", level=190.0),
    ]
    return [load_run(folder) for folder in folders]


def test_a_high_return_with_a_violated_cost_is_no_win(runs):
    group = compare_runs(runs).groups[0]
    assert [row.run.path.name for row in group.rows] == ["good", "slow", "unsafe"]
    assert [row.outcome.is_within for row in group.rows] == [True, True, False]
    assert [row.outcome.feasible_seeds for row in group.rows] == [10, 10, 0]
    assert group.rows[2].outcome.iqm().value > group.rows[0].outcome.iqm().value
    assert group.rows[1].first_is_better is not None
    assert group.rows[1].first_is_better.value == 1.0


def test_figures_are_those_of_the_evaluation(runs):
    row = compare_runs(runs).groups[0].rows[0]
    entry = row.run.evaluation["greedy"]
    assert row.outcome.iqm().value == pytest.approx(iqm(entry["return"]["per_seed"]))
    mean = row.outcome.mean("angle")
    assert (mean.value, mean.low, mean.high) == tuple(entry["costs"]["angle"][key] for key in ("value", "low", "high"))
    stochastic = compare_runs(runs, "stochastic").groups[0].rows[0].outcome
    assert stochastic.returns.tolist() == row.run.evaluation["stochastic"]["return"]["per_seed"]


def test_without_evaluation_the_end_of_training_is_used_and_said(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r", evaluated=False))
    outcome = outcome_of(run)
    assert (outcome.source, outcome.evaluated) == (TRAINING, False)
    late = run.episodes.filter(run.episodes["env_steps"] > 0.9 * run.env_steps)
    assert outcome.returns[3] == pytest.approx(late.filter(late["seed"] == 3)["return"].mean())
    assert any("not evaluated" in note for note in compare_runs([run]).notes)


def test_a_seed_without_late_episodes_counts_all_the_same(tmp_path, write_run):
    folder = write_run(tmp_path / "r", seeds=3, evaluated=False)
    episodes = load_run(folder).episodes
    steps, seed = episodes["env_steps"], episodes["seed"]
    early = (seed != 2) | (steps < 0.5 * steps.max())
    write_table(
        folder / "episodes.parquet",
        episodes.filter(early).with_columns(cost_angle=pl.when(pl.col("seed") == 2).then(91.0).otherwise(1.0)),
    )
    outcome = outcome_of(load_run(folder))
    last = episodes.filter(early & (seed == 2))["return"][-1]
    assert (outcome.seeds, outcome.feasible_seeds, outcome.returns[2]) == ([0, 1, 2], 2, last)
    write_table(folder / "episodes.parquet", episodes.filter(seed != 2))
    with pytest.raises(RunFolderError, match="no finished episode of seed 2"):
        outcome_of(load_run(folder))


def test_different_problems_are_refused_side_by_side_and_grouped_apart(tmp_path, write_run):
    first = load_run(write_run(tmp_path / "a"))
    limits = load_run(write_run(tmp_path / "b", limits=(50.0, 10.0)))
    task = load_run(write_run(tmp_path / "c", task="acrobot"))
    for other in (limits, task):
        with pytest.raises(InputError, match="different problems") as caught:
            compare_group([first, other])
        assert "\n" not in str(caught.value)
    comparison = compare_runs([first, limits, task])
    assert [len(group.rows) for group in comparison.groups] == [1, 1, 1]
    assert any("listed apart" in note for note in comparison.notes)


def test_one_rule_for_all_runs_whatever_their_evaluations_recorded(tmp_path, write_run):
    first, second = (load_run(write_run(tmp_path / name, rng=i, cost_level=1.0)) for i, name in enumerate("ab"))
    second.evaluation["greedy"]["tolerance"] = second.evaluation["greedy"]["slack"] = 5.0
    comparison = compare_runs([first, second])
    assert {row.outcome.rule for row in comparison.groups[0].rows} == {STRICT}
    assert any("mean cost <= limit, in all seeds" in note for note in comparison.notes)
    wide = compare_runs([first, second], rule=LimitRule(slack=100.0))
    assert all(row.outcome.feasible_seeds == 10 for row in wide.groups[0].rows)
    assert any("limit + 100 (slack)" in note for note in wide.notes)
    assert "limit \\+ 100" in comparison_markdown(wide) or "limit + 100" in comparison_markdown(wide)


def test_one_seed_outside_makes_a_run_outside_unless_fewer_are_required(runs):
    good = next(run for run in runs if run.path.name == "good")
    for name, limit in zip(good.cost_names, good.cost_limits, strict=True):
        good.evaluation["greedy"]["costs"][name]["per_seed"] = [limit] * 9 + [limit + 0.01]
    rows = compare_runs(runs).groups[0].rows
    assert [row.run.path.name for row in rows] == ["slow", "good", "unsafe"]
    assert rows[1].outcome.feasible_seeds == 9
    rows = compare_runs(runs, rule=LimitRule(require="90%")).groups[0].rows
    assert [row.run.path.name for row in rows] == ["good", "slow", "unsafe"]


def test_violators_are_ranked_by_how_much_they_violate(tmp_path, write_run):
    mild, severe = (
        load_run(write_run(tmp_path / name, level=level, cost_level=cost, rng=i))
        for i, (name, level, cost) in enumerate((("mild", 150.0, 1.2), ("severe", 199.0, 3.0)))
    )
    assert [row.run.path.name for row in compare_runs([severe, mild]).groups[0].rows] == ["mild", "severe"]


def test_steps_to_threshold(runs):
    rows = compare_runs(runs, threshold=150.0).groups[0].rows
    fast, slow = rows[0].steps_to_threshold, rows[1].steps_to_threshold
    assert fast is not None
    assert slow is not None
    assert fast < slow
    assert compare_runs(runs, threshold=1e6).groups[0].rows[0].steps_to_threshold is None


def test_bad_input(runs, tmp_path):
    with pytest.raises(InputError, match="no runs"):
        compare_runs([])
    with pytest.raises(InputError, match="more than once"):
        compare_runs([runs[0], runs[0]])
    with pytest.raises(InputError, match="expected 'greedy' or 'stochastic'"):
        compare_runs(runs, "best")
    with pytest.raises(InputError, match="threshold=nan must be a finite return"):
        compare_runs(runs, threshold=float("nan"))
    write_sealed(runs[0].path / "evaluation.json", {"greedy": {"return": {}}})
    with pytest.raises(RunFolderError, match="evaluate the run again"):
        outcome_of(load_run(runs[0].path))


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.update(violation_rate="x"),
        lambda e: e.update(violation_rate={"position": "x"}),
        lambda e: e.update(violation_rate={"position": {"value": "x"}}),
        lambda e: e.update(env_steps=float("inf")),
        lambda e: e.update(length=[]),
        lambda e: e["return"].pop("low"),
    ],
)
def test_a_bent_evaluation_is_refused(tmp_path, write_run, change):
    run = load_run(write_run(tmp_path / "r", seeds=1))
    change(run.evaluation["greedy"])
    with pytest.raises(RunFolderError, match="evaluate the run again"):
        outcome_of(run)


def test_few_seeds_and_short_evaluations_are_noted(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r", seeds=3))
    run.evaluation["greedy"]["env_steps"] = 100
    notes = " ".join(compare_runs([run]).notes)
    assert "3 seeds" in notes
    assert "evaluated at 100 of" in notes


def test_outputs_agree(runs):
    comparison = compare_runs(runs)
    content = json.loads(json.dumps(comparison_dict(comparison), allow_nan=False))
    first = content["groups"][0]["runs"][0]
    assert first["return"]["iqm"]["low"] <= first["return"]["iqm"]["value"] <= first["return"]["iqm"]["high"]
    assert (first["feasible_seeds"], first["seeds"], first["costs"]["angle"]["limit"]) == (10, 10, 10.0)
    assert len(first["return"]["per_seed"]) == 10
    console = Console(width=80, record=True, file=io.StringIO())
    for table in comparison_tables(comparison):
        console.print(table)
    printed, markdown = console.export_text(), comparison_markdown(comparison)
    for row in comparison.groups[0].rows:
        for name in ("return", "position", "angle"):
            estimate = row.outcome.iqm() if name == "return" else row.outcome.mean(name)
            value, interval = format_estimate(estimate).split(" ", 1)
            assert value in printed
            assert interval in printed
            assert f"{value} {interval}" in markdown
    assert "…" not in printed


def test_user_names_cannot_break_a_table(tmp_path, write_run):
    nasty = "a|b_c$x$ [red]\\alpha{} <b>\nz"
    run = load_run(write_run(tmp_path / "r", task=nasty))
    comparison = compare_runs([run])
    rows = [line for line in comparison_markdown(comparison).splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert escape_markdown("a_b|c$1$ 5% [x]") == "a\\_b\\|c\\$1\\$ 5\\% &#91;x&#93;"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(comparison_tables(comparison)[0])
    assert "[red]" in console.export_text()


def test_verdict_lines(tmp_path, write_run):
    outcome = outcome_of(load_run(write_run(tmp_path / "two")))
    assert verdict(outcome).startswith("10 of 10 seeds within both limits; return 19")
    one = outcome_of(load_run(write_run(tmp_path / "one", limits=(30.0,), seeds=1)))
    assert verdict(one).startswith("1 of 1 seed within the limit; return 19")
    assert "[" in verdict(one)
    none = outcome_of(load_run(write_run(tmp_path / "none", limits=())))
    assert verdict(none).startswith("10 seeds, no limits; return")


@pytest.mark.parametrize(
    ("value", "text"),
    [(198.34, "198.3"), (29.876, "29.88"), (0.0, "0.0"), (-9.4321, "-9.432"), (1.5e7, "1.5e+07"), (np.nan, "–")],
)
def test_numbers(value, text):
    assert format_number(value) == text


def test_estimates():
    assert format_estimate(Estimate(198.34, 197.0, 199.4, 10, "")) == "198.3 [197.0, 199.4]"
    assert format_estimate(Estimate(0.0, -0.0035, 0.0031, 10, "")) == "0.000000 [-0.003500, 0.003100]"
    assert format_estimate(Estimate(3.0, np.nan, np.nan, 1, "")) == "3.000"


def test_the_cost_beside_a_limit_is_the_mean_that_is_judged(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r", seeds=4))
    # One seed far outside: the IQM leaves it out and stands at the limit's right side.
    run.evaluation["greedy"]["costs"]["position"]["per_seed"] = [0.0, 0.0, 0.0, 200.0]
    comparison = compare_runs([run])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison_tables(comparison)[0])
    printed, markdown = console.export_text(), comparison_markdown(comparison)
    assert "mean <= 30" in printed
    assert "50.00" in printed
    assert "position mean (limit 30)" in markdown
    assert "| 50.00 [" in markdown


@pytest.fixture
def same_names(tmp_path, write_run, monkeypatch):
    """Two runs in folders of one name, and one of another problem; the first is the folder one stands in."""
    first = write_run(tmp_path / "a" / "run", algo="crpo", preset="default", rng=1)
    write_run(tmp_path / "b" / "run", algo="crpo", preset="default", rng=2, steps=30_000)
    write_run(tmp_path / "other", algo="crpo", preset="default", limits=(20.0, 5.0))
    monkeypatch.chdir(first)
    return [load_run(path) for path in (".", "../../b/run", "../../other")]


def test_no_two_runs_are_called_alike(same_names):
    comparison = compare_runs(same_names)
    labels = {row.run.path.as_posix(): row.label for group in comparison.groups for row in group.rows}
    expected = {
        ".": "crpo · a/run",
        "../../b/run": "crpo · b/run",
        "../../other": f"crpo · {labels['../../other'][7:]}",
    }
    assert labels == expected
    assert labels["../../other"].endswith("other")
    alone = compare_group(same_names[:2])
    assert {row.label for row in alone.rows} == {"crpo · a/run", "crpo · b/run"}


def test_a_training_that_is_not_finished_is_noted(tmp_path, write_run):
    run = load_run(write_run(tmp_path / "r"))
    assert not any("not finished" in note for note in compare_runs([run]).notes)
    run.evaluation["greedy"]["env_steps"] = 8_192
    part = replace(
        run,
        metrics=run.metrics.filter(run.metrics["env_steps"] <= 8_192),
        episodes=run.episodes.filter(run.episodes["env_steps"] <= 8_192),
    )
    notes = compare_runs([part]).notes
    assert "orpo-dr (posterior): its training is not finished, 8,192 of 20,000 steps." in notes


def test_different_numbers_of_episodes_are_noted_once(tmp_path, write_run):
    runs = [load_run(write_run(tmp_path / name, algo=name)) for name in ("crpo", "pcpo")]
    assert not any("episodes a seed" in note for note in compare_runs(runs).notes)
    runs[0].evaluation["greedy"]["episodes_per_seed"] = 20
    notes = compare_runs(runs).notes
    assert notes.count("cartpole: the runs were evaluated on different numbers of episodes a seed (20, 100).") == 1
    assert len(set(notes)) == len(notes)


def test_a_copied_folder_is_no_second_experiment(tmp_path, write_run):
    folder = write_run(tmp_path / "run", algo="crpo", preset="default")
    shutil.copytree(folder, tmp_path / "copy")
    other = write_run(tmp_path / "other", algo="crpo", preset="default", steps=30_000)
    notes = compare_runs([load_run(path) for path in (folder, tmp_path / "copy", other)]).notes
    told = [note for note in notes if "copies" in note]
    assert len(told) == 1
    assert told[0].startswith("crpo · copy and crpo · run are copies of one training")


@pytest.mark.parametrize("columns", ["20", "60"])
def test_a_narrow_terminal_cuts_no_figure(tmp_path, write_run, monkeypatch, capsys, columns):
    folders = (write_run(tmp_path / "r", algo="ppo-lagrangian"), write_run(tmp_path / "s", algo="crpo", rng=1))
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["compare", *map(str, folders)]) == 0
    said = capsys.readouterr().out
    for row in compare_runs([load_run(folder) for folder in folders]).groups[0].rows:
        for estimate in (row.outcome.iqm(), row.outcome.mean("position"), row.outcome.mean("angle")):
            value, interval = format_estimate(estimate).split(" ", 1)
            assert value in said
            assert interval in said
        assert row.run.algo in said
        assert f"{row.rank} {row.run.algo}" in said
