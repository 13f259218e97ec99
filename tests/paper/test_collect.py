"""Every figure writes data, pictures and a paragraph, which says so when the paper was not confirmed."""

import json

import numpy as np
import polars as pl
import pytest
from made_up import learning_result, result

from awavo.cli.main import main
from awavo.paper.figures import FIGURES, load
from awavo.paper.method_results import read_results
from awavo.paper.outputs import QUICK, FigureTask, merge_blocks, write_finding
from awavo.paper.page import to_html
from awavo.paper.plans import plan_jobs

AROUND = np.linspace(-1, 1, 10)
DRAWN: set[str] = set()  # figures whose pictures were drawn: other results change the text, and drawing takes long


def collected(folder, figure, size="full"):
    task = FigureTask(figure, size, read_results(folder, figure), plan_jobs(figure, size), folder)
    finding = load(FIGURES[figure].collect)(task)
    assert finding.pictures
    kinds = {".md", ".parquet"} if figure in DRAWN else {".md", ".parquet", ".svg", ".png"}
    finding.pictures = [] if figure in DRAWN else finding.pictures
    DRAWN.add(figure)
    paths = write_finding(task, finding)
    for path in paths:
        assert path.stat().st_size > 0
    assert {path.suffix for path in paths} == kinds
    return paths[0].read_text(), pl.read_parquet(folder / figure / "data.parquet")


def test_learning(write):
    folder = write(
        learning_result("cartpole", "awavo", 198 + AROUND),
        learning_result("cartpole", "paets", 190 + AROUND, cost=99.0),
        learning_result("cartpole", "pcpo", 100 + AROUND),
        learning_result("cartpole", "trpo-ipo", 150 + AROUND),
    )
    text, data = collected(folder, "learning")
    assert "Highest return within limits: AWaVO, 198.0" in text
    assert "PCPO performs better than TRPO-IPO on CartPole: **not confirmed**" in text
    assert "AWaVO outperforms PaETS on CartPole: **confirmed**" in text
    assert "No results yet:" in text
    final = data.filter((pl.col("kind") == "final") & (pl.col("quantity") == "return") & (pl.col("algo") == "awavo"))
    assert final["value"].mean() == pytest.approx(198.0)
    assert QUICK not in text


def test_the_quick_budget_says_so(write):
    text, _ = collected(write(learning_result("cartpole", "awavo", 198 + AROUND)), "learning", "quick")
    assert QUICK in text


def flight_row(policy, returns, cost):
    return {"flight": "FT3", "policy": policy, "seed_numbers": list(range(len(returns))), "returns": list(returns),
            "costs": [[cost, 0.0]] * len(returns), "limits": [2.0, 5.0], "env_steps": 64_000,
            "checkpoints": [{"length": {"value": 500.0}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "cost", "verdict"), [(-10, 0, "confirmed"), (-90, 0, "not confirmed"), (-10, 3, "not confirmed")]
)
def test_flight(write, own, cost, verdict):
    awavo = {**flight_row("awavo", own + AROUND, cost), "rms_m": [0.1] * 10, "collision": [False] * 10}
    folder = write(
        result("flight", "FT3-awavo", awavo), result("flight", "FT3-pcpo", flight_row("pcpo", -50 + AROUND, 0))
    )
    text, data = collected(folder, "flight")
    assert f"on FT3 {verdict} (return" in text
    assert data.height == 20


@pytest.mark.parametrize(("own", "other", "verdict"), [(0, 3, "confirmed"), (3, 3, "undecided")])
def test_who_alone_keeps_the_limits_of_a_flight_outperforms_whatever_the_return(write, own, other, verdict):
    awavo = {**flight_row("awavo", -90 + AROUND, own), "rms_m": [0.1] * 10, "collision": [False] * 10}
    pcpo = flight_row("pcpo", -50 + AROUND, other)
    text, _ = collected(write(result("flight", "FT3-awavo", awavo), result("flight", "FT3-pcpo", pcpo)), "flight")
    assert f"on FT3 {verdict} (return" in text
    assert f"; {0 if own else 10} of 10 and 0 of 10 seeds within limits)" in text


@pytest.mark.parametrize(
    ("cost", "returns", "said"),
    [
        (10.0, -50, "on FT3 is at least that of a collision"),
        (0.0, -600, "loses 1.2 on FT3 of return a step"),
        (9.9, -400, None),
    ],
)
def test_a_policy_that_collides_or_strays_is_no_rival(write, cost, returns, said):
    awavo = {**flight_row("awavo", -10 + AROUND, 0), "rms_m": [0.1] * 10, "collision": [False] * 10}
    pcpo = flight_row("pcpo", returns + AROUND, cost)
    text, _ = collected(write(result("flight", "FT3-awavo", awavo), result("flight", "FT3-pcpo", pcpo)), "flight")
    assert f"on FT3 {'not put to the test' if said else 'confirmed'}" in text
    assert ("After 64,000 steps PCPO has not learnt the task on FT3." in text) == bool(said)
    assert (said or "confirmed") in text


def interpretation_row(flight, value):
    at = [[[value + noise, 0.1]] * 7 for noise in 0.01 * AROUND]
    lines = {"influence": [[[value, 0.1]] * 2] * 10, "force_n": [[1.0, 1.0]] * 10, "seconds": [0.0, 0.1]}
    marks = {"marks": [1, 2, 3, 4, 5, 6, 7], "at_marks": at}
    return {"flight": flight, "scene": "task", "seed_numbers": list(range(10)), **marks, **lines}


@pytest.mark.parametrize(("together", "verdict"), [(0.38, "confirmed"), (0.60, "not additive: not confirmed")])
def test_interpretation(write, together, verdict):
    rows = [interpretation_row(*pair) for pair in (("FT1", 0.20), ("FT2", 0.18), ("FT3", together))]
    text, data = collected(write(*(result("interpretation", row["flight"], row) for row in rows)), "interpretation")
    assert verdict in text
    assert data.height == 3 * 10 * 7 * 2


@pytest.mark.parametrize(("exponent", "verdict"), [(-0.7, "**confirmed**"), (-0.2, "**not confirmed**")])
def test_convergence(write, exponent, verdict):
    horizons = [100, 300, 1000]
    noise = 1 + 0.01 * np.random.default_rng(0).standard_normal((4, 3, 3))
    errors = (np.array(horizons) ** exponent * noise).tolist()
    row = {"rate": 1.0, "seed_numbers": [0, 1, 2], "horizons": horizons, "gap": errors, "violation": errors}
    text, data = collected(write(result("convergence", "rate-1", row)), "convergence")
    assert text.count(verdict) == 2
    assert data.height == 2 * 4 * 3 * 3


@pytest.mark.parametrize(("growth", "seconds", "verdicts"), [(0.0, 5.0, 2), (0.3, 900.0, 0)])
def test_lorenz(write, growth, seconds, verdicts):
    results = []
    for states in (50, 1000):
        rmse = [0.25 * (states / 50) ** growth + 0.01 * k for k in range(3)]
        row = {"states": states, "seed_numbers": [100, 101, 102], "compile_s": 10.0, "rmse": rmse,
               "solve_s": [seconds] * 3, "coverage90": [0.9] * 3, "lost": [0.0] * 3, "median_absolute_error": [0.1] * 3,
               "example": {"site": 3, "truth": [0, 1, 2], "mean": [0, 1, 2], "std": [1, 1, 1]}}  # fmt: skip
        results.append(result("lorenz", f"states-{states}", row))
    text, data = collected(write(*results), "lorenz")
    assert text.count("**confirmed**") == verdicts
    assert text.count("**not confirmed**") == 2 - verdicts
    assert data.height == 6


def test_ablation(write):
    def variant(name, returns, path, task="cartpole", cost=1.0):
        about = {"figure": "ablation", "variant": name, "family": task + name, "path": path}
        return learning_result(task, "awavo", returns, cost, **about)

    early, late = (0.2, 1.0, 1.0), (0.2, 0.5, 1.0)
    folder = write(
        variant("as it is", 199 + AROUND, early), variant("KL", 199 + AROUND, early),
        variant("no planning", 199 + AROUND, late), variant("hard switch", 120 + AROUND, late),
        variant("as it is", 300 + AROUND, early, "acrobot"), variant("KL", 300 + AROUND, early, "acrobot"),
        variant("random slices", 300 + AROUND, early, "acrobot", cost=60.0),
        variant("as it is", AROUND, early, "drone"),
    )  # fmt: skip
    text, data = collected(folder, "ablation")
    assert set(data["task"]) == {"cartpole", "acrobot", "drone"}
    assert "not every seed within limits: random slices" in text
    assert text.count("No variant has results yet.") == 1  # of the drone
    assert "AWaVO on cartpole after" in text
    assert "AWaVO on acrobot after" in text
    assert "Worse without doubt: hard switch" in text
    assert "later without doubt: no planning (return" in text
    assert "1,000 steps until good against 667)" in text
    assert "No difference that these seeds can show: KL" in text
    # On a second task nothing differs, and that is said of it.
    assert text.count("That every part is needed is not shown here.") == 1


def test_ablation_of_a_method_outside_its_limits_compares_returns(write):
    def variant(name, returns, cost):
        about = {"figure": "ablation", "variant": name, "family": name}
        return learning_result("cartpole", "awavo", returns, cost, **about)

    folder = write(variant("as it is", 150 + AROUND, 99.0), variant("KL", 190 + AROUND, 99.0))
    text, _ = collected(folder, "ablation")
    assert "does not keep its limits itself" in text
    assert "No change is worse without doubt" in text
    assert "A higher return without doubt: KL" in text


def test_safety_stands_beside_what_was_published(write):
    def method(algo, returns, cost=20.0):
        path = np.linspace(0.1, 1.0, 10)
        return learning_result("hopper-velocity", algo, returns, cost, steps=1_000_000, path=path, figure="safety")

    folder = write(method("awavo", 1700 + AROUND), method("cal", 1750 + AROUND), method("ppo-lagrangian", AROUND, 30.0))
    text, data = collected(folder, "safety")
    assert "AWaVO 1700" in text
    assert "1650 with nine of ten seeds within was asked for: reached" in text
    assert "Ahead of it within limits: CAL 1750" in text
    assert "Published: CUP 1716 at cost 7.5 after 10,000,000 steps" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    (own,) = [row for row in rows if row[1] == "AWaVO"]
    assert own[6].startswith("510.0")  # the third of ten checkpoints
    assert own[8] == "10 of 10"
    assert [row[5] for row in rows if row[1] == "PPO-Lagrangian"] == ["0 of 10"]
    assert sum("published:" in row[1] for row in rows) == 2
    assert "No results yet:" in text
    assert set(data["algo"]) == {"awavo", "cal", "ppo-lagrangian"}


def test_blocks_of_seeds_are_joined():
    rows = [{"k": 1, "seed_numbers": [0], "v": [5.0]}, {"k": 1, "seed_numbers": [0, 1], "v": [9.0, 6.0]}]
    (merged,) = merge_blocks(rows, ("k",), ("seed_numbers", "v"))
    assert merged["v"] == [5.0, 6.0]


def test_markup_escapes():
    html = str(to_html("**bold** <script>\n\n| a | b |\n|---|---|\n| <b> | 1 |\n\n* one\n* two"))
    assert "<script>" not in html
    assert "<b>bold</b>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert html.count("<li>") == 2


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content["rows"][0]["evaluation"].pop("greedy"), "is damaged"),
        (lambda content: content["rows"][0].update(seeds="ten"), "is damaged"),
        (lambda content: content["rows"][0]["evaluation"]["greedy"]["return"].update(per_seed=[1.0]), "is damaged"),
        (lambda content: content["rows"][0].update(task=1), "no method was evaluated"),
        (lambda content: content["rows"][0].update(task="elsewhere"), "no method was evaluated"),
        (lambda content: content["rows"].append(3), "no results"),
        (lambda content: content.update(job=[]), "no results"),
    ],
)
def test_a_damaged_result_file_is_named_in_one_line(write, capsys, change, says):
    folder = write(learning_result("cartpole", "awavo", 198 + AROUND))
    (path,) = folder.rglob("*.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    code = main(["reproduce", "learning", "--collect", "--out", str(folder)])
    captured = capsys.readouterr()
    assert says in (captured.err if code == 2 else captured.out)
    assert code == (1 if says == "no results" else 2)
    assert code == 1 or str(path) in captured.err
    assert {found for found in folder.rglob("*") if found.is_file()} == {path}
