"""`awavo certify RUN` end to end on a small run: record, page, re-check, tampering, bad input."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import awavo
from awavo.cli.main import main
from awavo.formal.run_certificates import Subject, _premises
from awavo.results.curves import learning_curve
from awavo.runs.certify import _complete, _without_limit
from awavo.runs.evaluate import Evaluator
from awavo.runs.problem import build_problem
from awavo.runs.progress import Doing
from awavo.training.evaluation import Episodes


def test_record_page_and_exit_code(certified):
    out, code = certified
    content = json.loads((out / "certificates.json").read_text())
    by_name = {c["name"]: c for c in content["certificates"]}
    assert {"safety.seed_0", "safety.seed_1", "operator.reward", "metric.axioms", "bellman.contraction"} <= set(by_name)
    assert by_name["safety.seed_0"]["verdict"] == "supported"  # 30 steps cannot cost 150
    assert content["delivered_seed"] in (0, 1)
    assert code == 0
    assert by_name["schedule.theorem2"]["verdict"] == "refuted"
    assert {c["verdict"] for name, c in by_name.items() if name.startswith(("metric", "operator"))} == {"proved"}
    assert "only a pseudo-metric" in by_name["metric.rank"]["reason"]
    assert all(c["inputs"] and c["claim"] and c["method"] and c["reason"] for c in by_name.values())
    page = (out / "report.html").read_text()
    assert "Deliver the policy of seed" in page
    assert "awavo certify cartpole --recheck" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_recheck_agrees_and_notices_tampering(certified, safety_only, tmp_path, capsys):
    copy = tmp_path / "cartpole"
    shutil.copytree(certified[0], copy)
    awavo.load(copy).certify(episodes=60)
    assert main(["certify", str(copy), "--recheck"]) == 0
    assert "every certificate was found again" in capsys.readouterr().out
    path = copy / "certificates.json"
    content = json.loads(path.read_text())
    entry = next(c for c in content["certificates"] if c["name"] == "schedule.theorem2")
    entry["verdict"] = "proved"
    cost = next(c for c in content["certificates"] if c["name"] == "safety.seed_1")
    cost["evidence"][0]["high"] -= 1.0
    path.write_text(json.dumps(content))
    assert main(["certify", str(copy), "--recheck", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert set(found["differences"]) == {"certificates.json", "schedule.theorem2", "safety.seed_1"}


def test_an_unsafe_policy_is_not_delivered(certified, safety_only):
    run = awavo.load(certified[0])
    run.problem = run.problem._replace(spec=run.problem.spec._replace(cost_limits=(0.5, 150.0)))
    result = awavo.certify(run, episodes=60)
    assert result["delivered_seed"] is None
    assert {c["verdict"] for c in result["certificates"] if c["name"].startswith("safety")} == {"refuted"}


def test_anytime_stops_early(certified, safety_only):
    run = awavo.load(certified[0])
    result = awavo.certify(run, episodes=5_000, anytime=True)
    assert all(count < 5_000 for count in result["episodes"].values())
    assert result["delivered_seed"] is not None


def test_anytime_gives_up_at_the_limit(certified, safety_only, monkeypatch):
    """Costs around the limit itself: whatever is played, nothing will be decided."""
    run = awavo.load(certified[0])
    costs = np.tile([[14.9, 0.0], [15.1, 0.0]], (125, 1)).astype(np.float32)
    found = Episodes(np.ones(250, np.float32), costs, np.full(250, 30.0, np.float32))
    monkeypatch.setattr(Evaluator, "play_one", lambda *_: found)
    run.problem = run.problem._replace(spec=run.problem.spec._replace(cost_limits=(15.0, 15.0)))
    result = awavo.certify(run, episodes=1_000, anytime=True)
    assert result["episodes"] == {"0": 250, "1": 250}
    assert "the mean sits at its limit" in result["certificates"][0]["reason"]
    assert awavo.certify(run, episodes=1_000, anytime=False)["episodes"] == {"0": 1_000, "1": 1_000}


def test_a_further_trained_run_is_noticed(certified, safety_only):
    run = awavo.load(certified[0])
    other = run.states[0]
    run.states = [other._replace(bounds=other.bounds._replace(high=2 * np.asarray(other.bounds.high))), run.states[1]]
    differences = run.recheck()
    assert "safety.seed_0" in differences or "operator.reward" in differences


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-here"], "run folder"),
        (["RUN", "--episodes", "3"], "at least 20"),
        (["RUN", "--delta", "1.5"], "delta"),
        (["RUN", "--max-violation", "2"], "probability"),
        (["RUN", "extra"], "not expected"),
        (["FRESH", "--recheck"], "no certificates.json"),
    ],
)
def test_bad_input_gets_one_line_and_writes_nothing(certified, tmp_path, capsys, arguments, message):
    fresh = tmp_path / "fresh"
    shutil.copytree(certified[0], fresh, ignore=shutil.ignore_patterns("certificates.json", "report.html"))
    names = {"RUN": str(fresh), "FRESH": str(fresh)}
    assert main(["certify", *(names.get(a, a) for a in arguments)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (fresh / "certificates.json").exists()
    assert not (fresh / "report.html").exists()


def test_what_is_said_of_limits_and_of_the_method_is_kept_apart(certified, safety_only, capsys, tmp_path):
    content = json.loads((certified[0] / "certificates.json").read_text())
    names = [c["name"] for c in content["certificates"]]
    assert sum(content["counts"]["policy"].values()) == sum(name.startswith("safety") for name in names) == 2
    assert sum(content["counts"]["method"].values()) == len(names) - 2
    toys = [c["claim"] for c in content["certificates"] if c["name"].startswith("bellman")]
    assert len(toys) == 3
    assert all("fixed random CMDP" in claim and "not on this run's task" in claim for claim in toys)
    rate = next(c for c in content["certificates"] if c["name"] == "rate.learning_curve")
    assert rate["verdict"] in ("undecided", "refuted")
    copied = tmp_path / "cartpole"
    shutil.copytree(certified[0], copied)
    assert main(["certify", str(copied), "--episodes", "60"]) == 0
    said = capsys.readouterr()
    text = " ".join(said.out.split())
    assert "claims about the policies and their limits: 2 supported." in text
    assert "single episodes: 0.0% of them are above the limit 150 of position, at most " in text


def test_a_policy_that_plans_is_played_in_small_batches_until_it_is_decided(certified, safety_only):
    """Every decision of it is a plan: 1,000 episodes took half an hour, silently."""
    run = awavo.load(certified[0])
    planned = run.problem.algorithm._replace(
        start=lambda num: np.zeros(num, np.float32),
        plan=lambda key, state, obs, memory, greedy: (*run.problem.algorithm.act(key, state, obs, greedy), memory),
    )
    run.problem = run.problem._replace(algorithm=planned)
    said = []
    result = awavo.certify(run, on_progress=said.append)
    assert result["plan"]["anytime"] is True
    assert result["plan"]["batch"] == 4
    assert max(result["episodes"].values()) <= 100
    assert said[0] == "seed 0: 4 of at most 1000 episodes"
    fixed = awavo.certify(run, anytime=False, episodes=60)
    assert set(fixed["episodes"].values()) == {60}
    assert awavo.certify(awavo.load(certified[0]), episodes=60)["plan"]["anytime"] is False


@pytest.mark.parametrize(
    ("algo", "options", "plan"),
    [("paets", {}, (True, 4)), ("awavo", {}, (True, 4)), ("awavo", {"planning": "off"}, (False, 250))],
)
def test_whoever_imagines_before_every_decision_is_played_in_small_batches(algo, options, plan):
    problem = build_problem(awavo.configure("cartpole", algo, **options))
    found = _complete(SimpleNamespace(problem=problem), {})
    assert (found.anytime, found.batch) == plan
    hosted = SimpleNamespace(problem=problem._replace(env=None))
    assert _complete(hosted, {}).batch == (25 if plan[0] else 250)


@pytest.mark.parametrize("task", ["cartpole", "navigation"])
def test_the_slices_by_which_awavo_decides_are_certified(task, monkeypatch):
    """Every other test of this file certifies ORPO-DR, which has no slices: certifying AWaVO failed unseen."""
    import jax

    from awavo.algorithms.awavo import AwavoConfig, awavo
    from awavo.formal.metric import certify_metric
    from awavo.formal.run_certificates import Subject, _slices
    from awavo.registry import make_task
    from awavo.training.compilation import jit_once

    for name, value in (("STARTS", 4), ("STEPS", 10)):  # of attacks, which tests/formal looks at
        monkeypatch.setattr(f"awavo.formal.metric.{name}", value)
    env = make_task(task)
    config = AwavoConfig(hidden=(8,), num_envs=2, rollout_length=2, num_quantiles=4, num_members=2, replay_capacity=64)
    algorithm = awavo(env.spec, config)
    states = [jit_once(algorithm.init)(jax.random.key(0))]
    subject = Subject(
        env.spec, config, algorithm, states, [3], "", lambda *_: None, env, None, None, np.zeros(0), np.zeros(0), 0
    )
    found = _slices(subject, 0)
    assert found is not None
    assert "seed 3" in found.source
    assert all(c.verdict != "refuted" for c in certify_metric(found))


def test_a_run_that_finished_no_episode_in_training_is_certified_all_the_same(certified, safety_only, monkeypatch):
    """A seed without a finished episode has no learning curve; an hour of episodes was lost for it."""
    curve = learning_curve(awavo.load(certified[0]).data, "return", points=100)
    empty = curve._replace(per_seed=np.full_like(curve.per_seed, np.nan))
    monkeypatch.setattr("awavo.runs.certify.learning_curve", lambda *_, **__: empty)
    result = awavo.certify(awavo.load(certified[0]), episodes=60)
    assert not any(c["name"] == "rate.learning_curve" for c in result["certificates"])
    assert any("learning curve" in text for text in result["skipped"])


def test_a_run_without_a_discount_is_certified(certified, safety_only):
    """The baselines may count everything alike: gamma = 1."""
    run = awavo.load(certified[0])
    run.problem = run.problem._replace(settings=SimpleNamespace(discount=1.0))
    assert _without_limit(run) is None


def test_progress_counts_no_more_episodes_than_there_are(certified, safety_only, monkeypatch):
    counted = []
    monkeypatch.setattr(Doing, "advance", lambda self, count=1: counted.append(count))
    awavo.certify(awavo.load(certified[0]), episodes=300)
    assert sum(counted) == 600


@pytest.mark.parametrize(("flag", "anytime"), [("--anytime", True), ("--no-anytime", False)])
def test_the_flag_of_the_documentation_is_understood(certified, safety_only, tmp_path, capsys, flag, anytime):
    copied = tmp_path / "cartpole"
    shutil.copytree(certified[0], copied)
    assert main(["certify", str(copied), flag, "--episodes", "60", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["anytime"] is anytime
    assert main(["certify", str(copied), "--anytime", "--no-anytime"]) == 2
    assert "one of the two" in capsys.readouterr().err


def test_a_counterexample_to_the_schedule_is_one():
    """Enough steps of the critics, and an actor that steps too far: that, and not the critics, is shown."""
    settings = SimpleNamespace(hidden=(4,), discount=0.0, num_updates=10**9, actor_lr=1e9)
    rest = dict.fromkeys(Subject._fields)
    found = _premises(Subject(**{**rest, "settings": settings, "iterations": 100}))
    assert found.verdict == "refuted"
    assert found.counterexample is not None
    assert set(found.counterexample) == {"actor step size", "l_Q"}
    assert "actor" in found.reason
