"""`awavo check-env`: ready, or what to mend."""

import json

import pytest


def test_check_env(run):
    code, text, _ = run("check-env", "awavo/CartPole-v0", "--json")
    assert code == 0
    assert json.loads(text)["ok"]
    code, text, _ = run("check-env", "Pendulum-v1", "--json")
    assert code == 1
    assert any("cost" in f["problem"] for f in json.loads(text)["findings"])


def test_one_finding_is_one(run, monkeypatch):
    from awavo.tasks import check_env

    monkeypatch.setattr(check_env, "check_env", lambda *_, **__: [check_env.Finding("info", "p.", "r.")])
    assert "ready to train (1 finding)" in run("check-env", "cartpole")[1]


def test_limits_are_checked(run):
    code, text, _ = run("check-env", "awavo/CartPole-v0", "--limits", "1", "--steps", "50", "--json")
    assert code == 1
    assert any("expected 2 limits, one for each cost" in f["problem"] for f in json.loads(text)["findings"])
    assert run("check-env", "cartpole", "--limits", "1")[0] == 2
    assert run("check-env", "awavo/CartPole-v0", "--limits", "-1", "2")[0] == 2


@pytest.mark.parametrize("name", ["Pendulm-v1", "cartpol", "gymnasium:Enf", "nowhere:Env", "gymnasium:__version__"])
def test_an_environment_that_nobody_has_is_refused_in_the_words_of_training(run, name):
    code, out, err = run("check-env", name)
    assert (code, out) == (2, "")
    assert err == run("train", name, "--limits", "1")[2]
