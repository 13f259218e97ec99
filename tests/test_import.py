import subprocess
import sys
import time

import pytest


def best_of(count, *command):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def test_importing_awavo_loads_no_jax_and_is_quick():
    code = (
        "import sys, time; t = time.perf_counter(); import awavo; print(time.perf_counter() - t, 'jax' in sys.modules)"
    )
    results = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
        for _ in range(3)
    ]
    assert all(loaded == "False" for _, loaded in results)
    assert min(float(t) for t, _ in results) < 0.3


def test_help_is_quick():
    assert best_of(3, sys.executable, "-m", "awavo.cli", "--help") < 1.0


@pytest.mark.parametrize("order", ["awavo, gymnasium", "gymnasium, awavo"])
def test_importing_awavo_registers_the_ids_and_loads_no_jax(order):
    code = f"import sys, {order}; print('awavo/CartPole-v0' in gymnasium.registry, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"]


def test_importing_awavo_does_not_import_gymnasium():
    code = "import sys, awavo; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_public_names_resolve():
    import awavo

    for name in awavo.__all__:
        assert getattr(awavo, name) is not None
