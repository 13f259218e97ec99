"""Shared settings: small programs, one cache of compiled code for all tests, shapes of arrays checked everywhere."""

import fcntl
import gc
import os
import signal
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "xla"
CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
os.environ.setdefault("AWAVO_CACHE_DIR", str(CACHE))
os.environ["XDG_STATE_HOME"] = str(CACHE.with_name("state"))  # what the tests trust is not what the user trusts
# Tests compile much and compute little: code that LLVM leaves unoptimised halves their time, the older emitters of
# fused loops halve it again, modules in one piece save a seventh of the rest, and LLVM's expensive passes left out an
# eighth of compiling. The last two below are flags of jax 0.9; XLA aborts on a flag that it does not know.
FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"
FLAGS += " --xla_llvm_disable_expensive_passes=true"
if version("jaxlib").startswith("0.9."):
    FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", FLAGS)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A slow machine would say what it is doing where a test counts lines; tests of the progress take this away.
os.environ.setdefault("AWAVO_QUIET", "1")
# No lines of code attached to the operations of a program: they are a tenth of tracing and lowering.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# A shell starts its background jobs deaf to Ctrl-C, which tests send: they and their children listen all the same.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402

# Tracing makes many small objects and next to no garbage: looking for it less often saves a tenth of the time.
gc.set_threshold(100_000, 20, 100)
pytest_plugins = ["slow_tests", "typechecker", "certified_run"]

SMALL = dict(
    num_envs=4, rollout_length=16, num_updates=4, batch_size=16, hidden=(16,), num_quantiles=8, warmup_steps=64
)


# The same for tests to which the method does not matter: the programs of CRPO compile in half the time.
SMALLEST = dict(algo="crpo", num_envs=4, rollout_length=16, hidden=(8,), window=4)


@pytest.fixture(scope="session", autouse=True)
def _compilation_cache():
    from awavo.training.compilation import enable_cache

    enable_cache()


@pytest.fixture(scope="session", autouse=True)
def _choices_that_compile_fast():
    """XLA's sort, unoptimised engines: what beats them once compiled costs a program up to seconds of compiling.

    tests/transport/test_sorting.py looks at the network of sorting, and puts the choice back.
    """
    from awavo.assimilation import engine
    from awavo.transport import sorting

    sorting._MIN_ROWS = 10**9
    engine.BRISK = engine.CHEAP


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """`once(name, make)`: the folder that `make(folder)` filled, made by one of the test processes and read by all."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder, made = root / name, root / f"{name}.made"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                make(folder)
                made.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def small_config():
    """What the run below was trained with: training with it again compiles nothing."""
    import awavo

    options = dict(cost_limits=(150.0, 150.0), task_options={"horizon": 30})
    return awavo.configure("cartpole", steps=256, seeds=2, **options, **SMALL)


@pytest.fixture(scope="session")
def small_run(once, small_config):
    """Folder of a short run of two seeds that several rooms look at. Copy it to change it."""

    def make(folder):
        import awavo

        awavo.train(small_config, folder)

    return once("small-run", make)


@pytest.fixture
def smallest():
    """Method and settings that compile fastest."""
    return dict(SMALLEST)


@pytest.fixture
def small():
    """Settings of ORPO-DR that compile and run in a moment."""
    return dict(SMALL)
