"""Conditions (i) and (ii): built-in operators are proved, bad ones refuted with a counter-example, kinks undecided."""

import json
import os

import jax.numpy as jnp
import pytest

import awavo
from awavo.cli.main import main
from awavo.errors import ConfigError
from awavo.formal.operator_proof import certify_operator, require_operator
from awavo.inference.operators import Operator, check_operator, make_operator

GOOD = (lambda p: p, lambda r: r, lambda p: 1 - p, lambda g: 1 - g)


def unchecked(reward, reward_inverse=GOOD[1], cost=GOOD[2], cost_inverse=GOOD[3]):
    """An operator from maps of the unit range, past the numerical check that would refuse it first."""

    def share(v, low, high):
        return jnp.clip((v - low) / (high - low), 0.0, 1.0)

    return Operator(
        "user",
        lambda u, low, high: low + (high - low) * reward(jnp.exp(u)),
        lambda u, low, high: low + (high - low) * cost(jnp.exp(u)),
        lambda r, low, high: jnp.log(jnp.maximum(reward_inverse(share(r, low, high)), 1e-6)),
        lambda g, low, high: jnp.log(jnp.maximum(cost_inverse(share(g, low, high)), 1e-6)),
        -13.8,
    )


def verdicts(operator):
    return {c.name: c for c in certify_operator(operator, [(0.0, 1.0)])}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic", {}),
        ("log", {"temperature": 0.15}),
        ("log", {"temperature": 0.002}),
        ("affine", {}),
        ("power", {"kappa": 0.1}),
        ("power", {"kappa": 3.0}),
    ],
)
def test_built_in_operators_are_proved(name, options):
    found = certify_operator(make_operator(name, **options), [(0.0, 1.0), (-3.0, 200.0), (0.1, 1.1)])
    assert len(found) == 4
    assert {c.verdict for c in found} == {"proved"}, [c.reason for c in found]


REFUTED = {
    "p(1-p)": (unchecked(lambda p: 4 * p * (1 - p)), "operator.reward", "goes"),
    "increasing cost": (unchecked(GOOD[0], cost=lambda p: p), "operator.cost", "must decrease"),
    "jump": (unchecked(lambda p: jnp.where(p < 0.5, p / 4, p)), "operator.reward", "jumps"),
    "range too small": (unchecked(lambda p: p / 2, lambda r: 2 * r), "operator.reward", "ends at 0.5"),
    "floor too high": (unchecked(lambda p: 0.3 + 0.7 * p), "operator.reward", "ends at 0.3"),
    "flat part": (unchecked(lambda p: jnp.clip(2 * p - 0.5, 0, 1)), "operator.reward", "flat"),
    "narrow flat part": (
        unchecked(lambda p: (jnp.minimum(p, 0.6) + jnp.maximum(p, 0.7) - 0.7) / 0.9),
        "operator.reward",
        "flat between p = 0.6",
    ),
    "not a number": (unchecked(lambda p: jnp.where(p > 0.9, jnp.nan, p)), "operator.reward", "not defined"),
    "wrong inverse": (unchecked(GOOD[0], lambda r: r**2), "operator.reward_inverse", "comes back as"),
}


@pytest.mark.parametrize("case", REFUTED)
def test_bad_operators_are_refuted_with_a_counter_example(case):
    operator, name, reason = REFUTED[case]
    found = verdicts(operator)[name]
    assert found.verdict == "refuted"
    assert reason in found.reason
    assert found.counterexample


def test_a_slope_that_is_zero_in_one_point_alone_is_no_flat_part():
    found = verdicts(unchecked(lambda p: 0.5 + 4 * (p - 0.5) ** 3))["operator.reward"]
    assert found.verdict == "proved", found.reason


def test_the_counter_example_is_one():
    found = verdicts(REFUTED["p(1-p)"][0])["operator.reward"].counterexample
    (low, high), (first, last) = found["p"], found["values"]
    assert low < high
    assert 4 * low * (1 - low) >= first > last >= 4 * high * (1 - high)


def test_a_kink_between_branches_is_undecided_and_the_same_kink_as_a_maximum_is_proved():
    branches = unchecked(
        lambda p: jnp.where(p < 0.5, p / 2, 1.5 * p - 0.5), lambda r: jnp.minimum(2 * r, (r + 0.5) / 1.5)
    )
    found = verdicts(branches)["operator.reward"]
    assert found.verdict == "undecided"
    assert "p = 0.5" in found.reason
    maximum = unchecked(lambda p: jnp.maximum(p / 2, 1.5 * p - 0.5), lambda r: jnp.minimum(2 * r, (r + 0.5) / 1.5))
    assert verdicts(maximum)["operator.reward"].verdict == "proved"


def test_a_dip_between_the_points_of_a_grid_is_found():
    dip = unchecked(lambda p: p - 0.01 * jnp.exp(-(((p - 0.70003) / 1e-6) ** 2)))
    check_operator(dip)  # the grid passes it
    found = verdicts(dip)["operator.reward"]
    assert found.verdict == "refuted"
    assert 0.69 < found.counterexample["p"][0] < 0.71


def test_a_map_without_a_rule_is_undecided():
    import jax

    found = verdicts(unchecked(lambda p: jax.scipy.special.i0e(p)))["operator.reward"]
    assert found.verdict == "undecided"
    assert "no interval rule" in found.reason


def test_an_undecided_operator_may_train_and_a_refuted_one_may_not():
    require_operator(make_operator("log"))
    with pytest.raises(ConfigError, match=r"refused before training.*p = "):
        require_operator(REFUTED["jump"][0])


def test_training_refuses_before_anything_is_written(tmp_path, small):
    config = awavo.configure("cartpole", steps=64, seeds=1, **small)
    dip = unchecked(lambda p: p - 0.01 * jnp.exp(-(((p - 0.70003) / 1e-6) ** 2)))
    with pytest.raises(ConfigError, match="refused before training"):
        next(awavo.train_iter(config, tmp_path / "run", operator=dip))
    assert os.listdir(tmp_path) == []


MODULE = """
import jax.numpy as jnp
from awavo.inference.operators import Operator, operator_from_maps

good = operator_from_maps(lambda p: p, lambda r: r, lambda p: 1 - p, lambda g: 1 - g)
def dipped(p):
    return p - 0.01 * jnp.exp(-((p - 0.70003) / 1e-6) ** 2)

dip = good._replace(name="dip", reward=lambda u, low, high: low + (high - low) * dipped(jnp.exp(u)))
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_operators.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def test_the_command_line_refuses_with_one_line(module, capsys):
    assert main(["train", "cartpole", "--steps", "64", "--seeds", "1", "--option", "operator=my_operators:dip"]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert "operator 'dip' is refused before training" in err
    assert "p = 0.7000" in err
    assert os.listdir(module) == []


@pytest.mark.parametrize("name", ["my_operators:number", "my_operators:nothing", "nowhere:x", "lgo"])
def test_what_is_no_operator(module, capsys, name):
    assert main(["certify", "operator", name]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_certify_operator_command(module, capsys):
    assert main(["certify", "operator", "log", "--json"]) == 0
    assert {c["verdict"] for c in json.loads(capsys.readouterr().out)["certificates"]} == {"proved"}
    assert main(["certify", "operator", "my_operators:dip"]) == 1
    assert "refuted" in capsys.readouterr().out
    assert main(["certify", "operator"]) == 2
