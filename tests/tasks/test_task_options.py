"""Options of tasks: whatever is no physics, no count or no name is refused in one line, for every option there is."""

import math

import pytest

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.registry import HOST_TASKS, TASKS, make_host_task, make_task, resolve, task_defaults

NONSENSE = (math.nan, math.inf, -math.inf, 1e40, -1e9, 10**30, 10**400, "abc", {"a": 1}, [[1, 2], 3])
OWN_CHECK = ("cost_limits", "waypoints")


def options():
    for name, table in [*((n, TASKS) for n in TASKS if n != "walker-mjx"), *((n, HOST_TASKS) for n in HOST_TASKS)]:
        for option, default in task_defaults(resolve(name, table, "task")).items():
            if option not in OWN_CHECK:
                yield name, option, default


@pytest.mark.parametrize("name", [n for n in [*TASKS, *HOST_TASKS] if n != "walker-mjx"])
def test_nonsense_is_refused_in_every_option(name):
    make = make_task if name in TASKS else make_host_task
    for task, option, default in options():
        for value in NONSENSE if task == name else ():
            if isinstance(value, str) and isinstance(default, str):
                value = "no such choice"
            with pytest.raises(InputError, match=option) as caught:
                make(name, **{option: value})
            assert len(str(caught.value).splitlines()) == 1
        if task == name and isinstance(default, int | float) and not isinstance(default, bool):
            with pytest.raises(InputError, match=option):
                make(name, **{option: True})


@pytest.mark.parametrize("name", [n for n in TASKS if n != "walker-mjx"])
def test_defaults_are_accepted(name):
    given = {option: default for task, option, default in options() if task == name and option not in OWN_CHECK}
    assert make_task(name, **given).spec == make_task(name).spec


@pytest.mark.parametrize(
    ("task", "option"),
    [
        ("cartpole", "cart_mass=0"),
        ("cartpole", "half_length=-1"),
        ("cartpole", "cart_mass=NaN"),
        ("cartpole", "horizon=abc"),
        ("cartpole", "horizon=0"),
        ("cartpole", "horizon=2.5"),
        ("cartpole", "horizon=1e12"),
        ("acrobot", "time_step=0"),
        ("garnet", "num_states=1000000"),
        ("hazard-grid", "size=2000"),
        ("quadrotor", "speed=-1"),
        ("drone", "num_hazards=100000000"),
        ("Pendulum-v1", "horizon=-3"),
        ("Pendulum-v1", "horizon=many"),
    ],
)
def test_the_command_refuses_them_and_writes_nothing(tmp_path, capsys, task, option):
    out = tmp_path / "run"
    command = ["train", task, "--task-option", option, "--steps", "64", "--limits", "5", "--out", str(out)]
    if task not in ("Pendulum-v1",):
        command[command.index("--limits") : command.index("--out")] = []
    assert main(command) == 2
    err = capsys.readouterr().err
    assert option.split("=")[0] in err
    assert len(err.strip().splitlines()) == 1
    assert not out.exists()
