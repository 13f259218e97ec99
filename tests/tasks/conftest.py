import importlib.util
import sys
import warnings
from types import ModuleType

import numpy as np
import pytest
from task_rollouts import simulate

from awavo.tasks.cartpole import cartpole


@pytest.fixture(scope="session")
def random_cartpole():
    """400 steps of 1000 CartPoles under uniformly random actions."""
    env = cartpole()
    actions = np.random.default_rng(0).integers(2, size=(400, 1000)).astype(np.int32)
    return env, *simulate(env, actions)


@pytest.fixture
def gymnasium_mujoco(monkeypatch, tmp_path):
    """Gymnasium's MuJoCo environments, made in a folder of their own: MuJoCo writes a log where it is started.

    They import imageio for a key of their window. Where it is not installed, an empty module takes its place.
    """
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("imageio") is None:
        monkeypatch.setitem(sys.modules, "imageio", ModuleType("imageio"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that v4 is old
        yield
