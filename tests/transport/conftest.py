"""Shared samples. Nothing here is random between runs."""

import jax
import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
