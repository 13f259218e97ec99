"""How the stages of an inference are cut into parts."""

import jax
import pytest

from awavo.assimilation.engine import Settings, _groups


@pytest.mark.parametrize(
    ("platform", "shape", "times", "memory_mb", "parts"),
    [
        ("cpu", (10_000,), 33, 4096.0, 79),  # eight of 625 patches
        ("cpu", (10_000,), 33, 1.0, 313),  # two
        ("cpu", (10_000,), 1000, 4096.0, 625),  # never less than one
        ("cpu", (128,), 33, 4096.0, 1),
        ("gpu", (10_000,), 33, 4096.0, 1),
        ("gpu", (1_000_000,), 33, 4096.0, 6),
        ("cpu", (100, 100), 33, 4096.0, 1),
    ],
)
def test_patches_solved_together_fit_into_memory_and_those_of_a_ring_into_a_cpus_cache(
    platform, shape, times, memory_mb, parts, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert _groups(shape, times, Settings(memory_mb=memory_mb)) == parts
