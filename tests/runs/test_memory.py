"""What cannot fit into memory is refused before the first array is made, with one line and nothing written."""

import os

import jax
import numpy as np
import pytest

import awavo
from awavo.cli.main import main
from awavo.errors import ConfigError
from awavo.registry import ALGORITHMS
from awavo.runs import memory
from awavo.runs.problem import build_problem
from awavo.runs.train import make_runner

GB = 2**30


@pytest.fixture
def free(monkeypatch):
    """Say how many bytes are free."""
    return lambda number: monkeypatch.setattr(memory, "available_bytes", lambda: number)


HUGE = {
    "networks": (["cartpole"], ["hidden=65536,65536"], "for states"),
    "replay": (["cartpole", "--steps", "1e9"], ["replay_capacity=1000000000"], "for states"),
    "seeds": (["cartpole", "--seeds", "100000"], [], "for states"),
    "rollout": (["cartpole", "--algo", "crpo"], ["num_envs=65536", "rollout_length=100000"], "for rollouts"),
    "candidates": (["cartpole", "--algo", "awavo"], ["num_sequences=1000000"], "for decisions"),
    "sequences of PaETS": (["cartpole", "--algo", "paets"], ["num_sequences=1000000"], "for decisions"),
    "particles": (["navigation", "--algo", "awavo"], ["num_particles=100000"], "for decisions"),
    "batch": (["cartpole", "--seeds", "1"], ["batch_size=1000000", "hidden=4096"], "for learning"),
}


# Of a dry run, one case of each part: it asks the same function.
CASES = [pytest.param(case, [], id=case) for case in HUGE]
CASES += [
    pytest.param(case, ["--dry-run"], id=f"dry run, {case}")
    for case in ("networks", "rollout", "sequences of PaETS", "batch")
]


@pytest.mark.parametrize(("case", "dry"), CASES)
def test_a_training_that_does_not_fit_is_refused(case, dry, free, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    free(8 * GB)
    words, options, part = HUGE[case]
    pairs = [word for option in options for word in ("--option", option)]
    assert main(["train", *words, *pairs, *dry]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "this training would take at least" in line
    assert part in line
    assert "8 GB are free: lower " in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_is_shipped_fits_into_a_small_machine(algo, free):
    free(GB)
    config = awavo.configure("navigation" if algo in ("sac-lagrangian", "cal") else "cartpole", algo)
    memory.check_training(config, build_problem(config))


def test_states_are_counted_to_the_byte():
    config = awavo.configure("cartpole", steps=256, num_envs=4, rollout_length=16, hidden=(8,), num_quantiles=4)
    problem = build_problem(config)
    states = make_runner(config, problem, [0, 1]).states
    plain = jax.tree.map(lambda x: x if isinstance(x, np.ndarray) else jax.random.key_data(x), jax.device_get(states))
    assert memory.training_bytes(problem, 2, together=False)["states"] == sum(x.nbytes for x in jax.tree.leaves(plain))


def test_a_plan_is_counted_with_all_that_it_imagines(monkeypatch):
    """Step by step, on a CPU: a layer of both critics, for every member and candidate of every environment. All steps
    together, elsewhere: the widest layer of the model and of its prior, for every step too."""
    config = awavo.configure("cartpole", "awavo", num_envs=3, num_sequences=50, horizon=7, num_members=2)
    found = memory.training_bytes(build_problem(config), 1, together=False)
    assert found["decisions"] == 4 * (3 * 50 * 2) * (2 * 128)
    assert memory.training_bytes(build_problem(config), 5, together=True)["decisions"] == 5 * found["decisions"]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found = memory.training_bytes(build_problem(config), 1, together=False)
    assert found["decisions"] == 4 * (3 * 50 * 7 * 2) * (32 + 8)


def test_episodes_that_are_played_at_once(small_run, free):
    run = awavo.load(small_run)
    free(2**20)
    with pytest.raises(
        ConfigError, match=r"100000 episodes at once would take at least .* lower the number of episodes"
    ):
        awavo.evaluate(run, 100_000)


def test_trajectories_with_all_their_draws(free, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    free(8 * GB)
    assert main(["infer", "lorenz96", "--states", "10000000", "--draws", "10000"]) == 2
    assert "this inference would take at least" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    memory.check_inference(1_000_000, 32, 16, "float32")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["walker", "--option", "num_envs=4097"], "4097 environments of 'walker' are above 4096"),
        (["bridge:X-v0", "--task-option", "python=/x", "--option", "num_envs=513"], "513 processes of 'bridge:X-v0'"),
        (["Pendulum-v1", "--task-option", "vectorization=async", "--option", "num_envs=513"], "513 processes"),
    ],
)
def test_environments_on_the_host_are_counted_before_they_are_made(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words, "--algo", "crpo"]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_environments_of_all_seeds_count_together():
    config = awavo.configure("walker", "crpo", seeds=1025, num_envs=4)
    problem = build_problem(awavo.configure("cartpole", "crpo", num_envs=4))._replace(env=None)
    with pytest.raises(ConfigError, match="4100 environments of 'walker' are above 4096"):
        memory.check_training(config, problem)


def test_what_a_container_leaves(tmp_path):
    assert memory._group_bytes(tmp_path) is None
    for name, text in (("max", "1000"), ("current", "400"), ("stat", "anon 300\ninactive_file 50")):
        (tmp_path / f"memory.{name}").write_text(text + "\n")
    assert memory._group_bytes(tmp_path) == 650
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._group_bytes(tmp_path) is None


def test_memory_of_this_machine_is_known_and_an_unknown_one_refuses_nothing(free):
    assert (memory.available_bytes() or 0) > 2**20
    free(None)
    memory.require_memory({"states": 10**30}, "this")
