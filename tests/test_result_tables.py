"""Every table of results in the README and beside it is what its command makes of the committed files."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import fmean

import pytest

LAST_RULE = "900f948"  # the last commit that changed a rule of docs/protocol.md for the tasks evaluated here
RULE_SECONDS = "4f88e14"  # the axis of seconds as it is run
RULE_AGAIN = "d0dab18"  # that ours are evaluated once more after a change, and on which seeds
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def program(path: str):
    """A program of benchmarks/, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "benchmarks" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def between(marks: tuple[str, str]) -> str:
    return README.partition(marks[0])[2].partition(marks[1])[0].strip()


def test_the_learners_table():
    report = program("learner/report.py")
    assert report.PAGE.read_text() == report.table()


def test_the_table_of_safety_gymnasiums_tasks():
    report = program("safety/report.py")
    assert report.PAGE.read_text() == report.table()


def test_the_protocols_page_and_the_readmes_table():
    report = program("protocol/report.py")
    assert report.PAGE.read_text() == report.page()
    assert between(report.MARKS) == report.readme_table()


def test_the_intervals_of_the_evaluation_hold_what_other_seeds_gave():
    report = program("protocol/report.py")
    lines = report.repeated()
    first, again = (
        {(c[0].strip("| "), c[1]) for c in (line.split(" | ") for line in lines) if c[3] == s}
        for s in ("400 to 409", "410 to 419")
    )
    assert {task for task, _ in first} == {"cartpole", "drone"}
    assert again == {("drone", "AWaVO"), ("drone", "ORPO-DR")}  # the rows that stand in the README
    assert all(line.endswith("| yes |") for line in lines)


def test_the_protocol_is_older_than_every_evaluation():
    report = program("protocol/report.py")
    files = [
        file
        for folder in ("results", "again", "repeated", "again/repeated", "seconds")
        for file in (report.HERE / folder).glob("*.json")
    ]
    rule_of = {"again": RULE_AGAIN, "seconds": RULE_SECONDS}
    rules = {
        (
            next((rule for part, rule in rule_of.items() if part in f.parts), LAST_RULE),
            json.loads(f.read_text())["commit"],
        )
        for f in files
    }
    for rule, commit in rules:
        asked = subprocess.run(["git", "merge-base", "--is-ancestor", rule, commit], cwd=ROOT, capture_output=True)
        if asked.returncode == 128:
            pytest.skip("no git history here to compare commits in")
        assert asked.returncode == 0, commit


def test_the_flights_table_of_the_readme():
    found = json.loads((ROOT / "benchmarks" / "robots" / "results" / "fly.json").read_text())
    assert "--first-seed 320 --seeds 8" in found["command"]
    assert "seeds 320 to 327" in README
    for name, row in found["results"].items():
        rms, costs, count = row["rms_m"], row["costs"]["mean"], 8
        cells = [
            f"{rms['mean']:.3f} m ({rms['worst']:.3f} m)", f"{row['collisions']} of {count}",
            f"{costs[0]:.1f}, {costs[1]:.2f}", f"{row['within_limits']} of {count}",
        ]  # fmt: skip
        assert re.search(rf"\| {name.removeprefix('awavo ')}, .*{re.escape(' | '.join(cells))} \|", README), name


def test_every_evaluation_by_the_protocol_is_of_its_seeds_and_of_the_setting_that_was_chosen():
    report = program("protocol/report.py")
    files = [*(report.HERE / "results").glob("*.json"), *(report.HERE / "again").glob("*.json")]
    for file in files:
        found, first = json.loads(file.read_text()), 410 if file.parent.name == "again" else 400
        assert found["seeds"] == list(range(first, first + 10))
        assert re.fullmatch(r"[0-9a-f]{7,12}", found["commit"])
        if found["algo"] not in report.OURS:
            # Of a baseline that was searched again after a correction, the first search stands in `before`.
            corrected = (report.HERE / "again" / file.name).exists() and file.parent.name == "results"
            tuned = report.HERE / ("tuned/before" if corrected else "tuned")
            best, _ = report.choose(found["task"], found["algo"], tuned)
            for name, value in report.setting_of(found["task"], found["algo"], int(best.stem[-2:])).items():
                told = f"--num-envs {value}" if name == "num_envs" else f"{name}={value}"
                assert told in found["command"], file.name
        else:
            assert "--option" not in found["command"]


def test_ours_evaluated_again_take_the_place_of_the_first_evaluation_which_stays_on_the_page(tmp_path, monkeypatch):
    report = program("protocol/report.py")
    for folder in ("results", "again"):
        (tmp_path / folder).mkdir()
    for name in ("drone-orpo-dr.json", "drone-pcpo.json"):
        shutil.copy(report.HERE / "results" / name, tmp_path / "results")
    later = json.loads((tmp_path / "results" / "drone-orpo-dr.json").read_text())
    later["seeds"] = list(range(410, 420))
    (tmp_path / "again" / "drone-orpo-dr.json").write_text(json.dumps(later))
    monkeypatch.setattr(report, "HERE", tmp_path)
    (comparison,) = report.comparisons()
    assert {s.entry.algo: s.entry.seeds[0] for s in comparison.standings} == {"orpo-dr": 410, "pcpo": 400}
    (line,) = report.changed_since()
    assert line.startswith("| drone | ORPO-DR | 300,032 | 18.5 ")
    assert "Methods before they were changed" in report.page()


def test_rows_of_the_axis_of_seconds_stand_by_limits_first(tmp_path):
    report = program("protocol/report.py")
    for name in ("drone-orpo-dr.json", "drone-pcpo.json"):
        shutil.copy(report.HERE / "results" / name, tmp_path)
    assert [line.split(" | ")[:2] for line in report.in_seconds(tmp_path)] == [
        ["| Drone", "**ORPO-DR**"], ["| Drone", "PCPO"]]  # fmt: skip
    calm = json.loads((tmp_path / "drone-pcpo.json").read_text())
    calm["rows"][-1] |= {"costs": [[0.1]] * 10, "returns": [99.0] * 10}
    (tmp_path / "drone-pcpo.json").write_text(json.dumps(calm))
    assert report.in_seconds(tmp_path)[0].startswith("| Drone | **PCPO** | 400 to 409 | ")


def test_what_the_readme_says_of_the_axis_of_seconds():
    rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")] for line in program("protocol/report.py").in_seconds()
    ]
    found = {(row[0], row[1]): (row[3], row[4].split()[0], row[6]) for row in rows}
    assert len(rows) == 40
    said = README.partition("**Seconds, with thousands of environments.**")[2].partition("\n* ")[0]
    returns = {name: found["Drone", name][1] for name in ("PCPO", "TRPO-Lagrangian", "AWaVO")}
    assert f"({returns['PCPO']} and {returns['TRPO-Lagrangian']}, every seed within)" in said
    assert {found["Drone", name][2] for name in ("PCPO", "TRPO-Lagrangian")} == {"10 of 10"}
    assert f"learns from {found['Drone', 'ORPO-DR'][0]} steps" in said
    assert found["Drone", "ORPO-DR"][2] == "0 of 10"
    assert f"AWaVO has {returns['AWaVO']} and eight of ten" in said
    assert found["Drone", "AWaVO"][2] == "8 of 10"
    acrobot = [f"{float(found['Acrobot', name][1]):.0f}" for name in ("PCPO", "ORPO-DR")]
    assert "PCPO has {} with every seed within, ours {}".format(*acrobot) in said
    navigation = [found["Navigation", name][1] for name in ("CPO", "AWaVO")]
    assert "CPO earns more ({}, seven within; AWaVO {}, eight)".format(*navigation) in said
    assert [found["Navigation", name][2] for name in ("CPO", "AWaVO")] == ["7 of 10", "8 of 10"]
    cartpole = [found["CartPole", name][1:] for name in ("ORPO-DR", "TRPO-Lagrangian")]
    assert cartpole == [("200.0", "9 of 10"), ("200.0", "6 of 10")]
    assert {name for (task, name), row in found.items() if (task, row[2]) == ("Pendulum", "10 of 10")} == {
        "ORPO-DR", "AWaVO"
    }  # fmt: skip


SAID = {
    "HalfCheetah": "halfcheetah-velocity", "Hopper": "hopper-velocity", "Walker2d": "walker2d-velocity",
    "Ant": "ant-velocity", "Swimmer": "swimmer-velocity",
    "Point Goal 1": "point-goal1", "Car Goal 1": "car-goal1", "Point Goal 2": "point-goal2",
}  # fmt: skip


@pytest.mark.parametrize("title", SAID)
def test_what_the_readme_says_first_of_the_fields_tasks_is_the_last_row_of_its_file(title):
    row = json.loads((ROOT / f"benchmarks/safety/results/{SAID[title]}.json").read_text())["rows"][-1]
    mean, count = fmean(row["returns"]), sum(cost <= 25 for (cost,) in row["costs"])
    said = f"{mean:,.0f}" if mean > 1000 else f"{mean:.1f}"
    words = {6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
    assert f"{title} at {said} with {words[count]}" in README


def test_the_readme_counts_the_claims_as_the_page_does():
    page = (ROOT / "docs" / "protocol_results.md").read_text()
    counts = re.search(r"(\d+) could be judged; confirmed (\d+), not confirmed (\d+), undecided (\d+)", page)
    told = r"(\d+) could be judged by the protocol so far: (\d+) confirmed, (\d+) not confirmed.*?, (\d+) undecided"
    assert re.search(told, (ROOT / "README.md").read_text()).groups() == counts.groups()


def test_pcpo_flies_with_the_setting_that_was_chosen_and_on_the_seeds_of_the_evaluation():
    report = program("protocol/report.py")
    best, of = report.choose("quadrotor-detours", "pcpo", report.HERE / "tuned")
    assert of == 20
    chosen = report.setting_of("quadrotor-detours", "pcpo", int(best.stem[-2:]))
    chosen["hidden"] = [int(width) for width in chosen["hidden"].split(",")]
    budget = json.loads((ROOT / "src" / "awavo" / "paper" / "budgets.json").read_text())["flight"]["full"]
    learners = [job["learning"] for job in budget["jobs"] if job["policy"] == "pcpo"]
    assert [job["options"] for job in learners] == [chosen] * 3
    files = list((ROOT / "benchmarks" / "results" / "reproduce" / "jobs" / "flight").glob("*.json"))
    assert len(files) == 9
    assert all(json.loads(file.read_text())["job"]["seeds"] == list(range(400, 410)) for file in files)


def test_what_the_readme_says_of_pcpos_flights_is_what_the_comparison_has():
    page = (ROOT / "docs" / "reproduce_results.md").read_text()

    def cells(flight, name):
        return re.search(rf"^\| {flight} \| {name} \| (.*) \|$", page, re.MULTILINE)[1].split(" | ")

    def rounded(name):
        value, low, high = map(float, re.findall(r"-?[0-9.]+", cells("FT1", name)[0]))
        return f"{value:.1f} [{low:.1f}, {high:.1f}]"

    assert f"by return on FT1 ({rounded('AWaVO')} against {rounded('PCPO')})" in README
    within = {(flight, name): cells(flight, name)[4] for flight in ("FT2", "FT3") for name in ("AWaVO", "PCPO")}
    assert list(within.values()) == ["10 of 10", "2 of 10", "10 of 10", "3 of 10"]
    assert "on FT2 and FT3 (10 of 10 seeds against 2 and 3," in README


def test_every_row_of_the_learner_names_its_command_its_commit_and_seeds_that_were_not_tuned_on():
    report = program("learner/report.py")
    for name, *_ in report.ROWS:
        found = json.loads((report.HERE / "results" / f"{name}.json").read_text())
        assert re.fullmatch(r"[0-9a-f]{7,12}\+?", found["commit"])
        assert "benchmarks/learner/measure.py" in found["command"]
        assert not set(found["seeds"]) & set(range(100, 110))
        assert all(len(row["returns"]) == len(row["costs"]) == len(found["seeds"]) for row in found["rows"])


def test_the_table_of_systems_that_are_inferred():
    report = program("assimilation/table.py")
    told = report.PAGE.read_text().partition(report.BEGIN)[2].partition(report.END)[0].strip()
    assert told == "\n".join(report.rows())


def test_what_the_docs_say_of_the_run_through_shocks_is_in_its_file():
    found = json.loads((ROOT / "benchmarks" / "assimilation" / "results" / "shocks_10000.json").read_text())
    page, told = (ROOT / "docs" / "trajectories.md").read_text(), found["summary"]
    assert "--states 10000 --seed 400 --smooth" in found["command"]
    assert f"**{told['final_rmse']:.3f} at the end**, {told['mean_rmse']:.2f} on average over all analyses" in page
    assert f"with {told['inside90']:.0%} of the truth inside 90% intervals" in page
    assert f"{told['seconds_an_analysis']:.2f} s an analysis; smoothed {told['smoothed_mean_rmse']:.2f}" in page
    assert f"where the filter has {told['filtered_mean_rmse_there']:.2f}" in page
    results = ROOT / "benchmarks" / "assimilation" / "results"
    large, whole = (json.loads((results / f"shocks_{n}.json").read_text())["summary"] for n in (100_000, 1_000_000))
    assert f"with 100,000 of them {large['final_rmse']:.3f} at the end and {large['mean_rmse']:.2f} on average" in page
    assert f"{large['seconds_an_analysis']:.2f} s an analysis on both cores" in page
    assert f"(seed 401): {whole['final_rmse']:.3f} at the end, {whole['mean_rmse']:.2f} on average" in page
    times = whole["seconds_an_analysis"], whole["seconds_a_step_back"]
    assert "{:.3f} s an analysis with its forecast and {:.3f} s a step back".format(*times) in page
    errors = whole["smoothed_mean_rmse"], whole["filtered_mean_rmse_there"]
    assert "smoothed {:.2f} where the filter has {:.2f}, intervals".format(*errors) in page
    assert f"{whole['inside90']:.0%} and {whole['smoothed_inside90']:.0%}" in page
