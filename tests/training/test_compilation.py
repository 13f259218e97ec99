"""How programs that train are compiled."""

import jax
import pytest

from awavo.training.compilation import for_training

jax.devices()  # XLA has read its flags before a test changes them


@pytest.mark.parametrize(
    ("flags", "level"),
    [("", "1"), ("--xla_cpu_multi_thread_eigen=false", "1"), ("--xla_backend_optimization_level=3", None)],
)
def test_the_first_level_of_optimisation_unless_another_is_asked_for(monkeypatch, flags, level):
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert for_training() == (None if level is None else {"xla_backend_optimization_level": level})


def test_the_compiler_takes_the_options(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    program = jax.jit(lambda x: x + 1, compiler_options=for_training())
    assert program(1) == 2
