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
