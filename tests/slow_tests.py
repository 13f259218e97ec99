"""Which tests the fast run leaves out: those named in tests/slow_tests.txt, which get the marker `slow`.

A line of the list is a test, with or without its parameters, or a whole file; `+` before it keeps the test in the fast
run though it takes a while, as every room needs a few. `make slow-list` measures all tests, writes the lines anew and
leaves those with a `+`. A test that the list does not name fails in the fast run when it takes too long, so that nobody
slows down everybody's inner loop unnoticed. Times are CPU seconds with subprocesses: a busy machine changes little.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__: list[str] = []

LIST = Path(__file__).with_name("slow_tests.txt")
SLOW_SECONDS = 0.4  # what puts a test on the list, with an empty cache of compiled programs
LIMIT_SECONDS = 8.0  # what a test that is not on it may take: far more, as machines differ and fixtures are shared
SETUP = pytest.StashKey[float]()
SHARED: dict[tuple[str, str], float] = {}  # what each fixture of a module or session took, by where and its name


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--write-slow-list`: measure and write the list."""
    parser.addoption("--write-slow-list", action="store_true", help=f"write {LIST.name} from the tests of this run")


def read_list() -> tuple[set[str], set[str]]:
    """Lines of slow tests, and lines of tests that are kept all the same."""
    lines = set(filter(None, LIST.read_text().split("\n")))
    kept = {line for line in lines if line.startswith("+")}
    return lines - kept, {line.removeprefix("+").strip() for line in kept}


def is_named(test_id: str, lines: set[str]) -> bool:
    """Whether the lines name the test, all cases of its function, or its file."""
    return not lines.isdisjoint((test_id, test_id.split("[")[0], test_id.split("::")[0]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list."""
    slow, kept = read_list()
    for item in items:
        if is_named(item.nodeid, slow) and not is_named(item.nodeid, kept):
            item.add_marker("slow")


def cpu_seconds() -> float:
    """What this process and its finished children have used."""
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usage)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Measure a fixture that several tests share: without the first of them, the next one has to pay for it."""
    start = cpu_seconds()
    result = yield
    if fixturedef.scope != "function":
        SHARED[fixturedef.baseid, fixturedef.argname] = cpu_seconds() - start
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Measure the fixtures that this test is the first to need."""
    start = cpu_seconds()
    result = yield
    item.stash[SETUP] = cpu_seconds() - start
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure the test, and fail it if it is too slow for one that the list does not name."""
    start = cpu_seconds()
    result = yield
    own = cpu_seconds() - start
    fixtures = getattr(item, "fixturenames", ())
    shared = sum(s for (base, name), s in SHARED.items() if name in fixtures and item.nodeid.startswith(base))
    item.user_properties.append(("cpu_seconds", own + max(item.stash[SETUP], shared)))
    took = own + item.stash[SETUP]
    if item.config.getoption("markexpr") == "not slow" and took > LIMIT_SECONDS:
        pytest.fail(
            f"This test took {took:.1f} s of CPU time, and the fast run is the inner loop of a developer: make it "
            f"cheaper (smaller arrays, fewer compiled programs), or add its line to tests/{LIST.name}.",
            pytrace=False,
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Write the list at the end, if asked to."""
    if config.getoption("write_slow_list"):
        config.pluginmanager.register(SlowList(), "slow-list")


class SlowList:
    """The list, from the times of one run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the time of one test."""
        for name, value in report.user_properties:
            if report.when == "call" and name == "cpu_seconds" and isinstance(value, float):
                self.seconds[report.nodeid] = value

    def pytest_sessionfinish(self) -> None:
        """Write the list; a function most of whose cases are slow is named as a whole. Files not run keep theirs."""
        functions: dict[str, list[str]] = {}
        for test_id in self.seconds:
            functions.setdefault(test_id.split("[")[0], []).append(test_id)
        files = {test_id.split("::")[0] for test_id in self.seconds}
        slow, kept = read_list()
        lines = {line for line in slow if line.split("::")[0] not in files} | {f"+ {line}" for line in kept}
        for function, cases in functions.items():
            over = [case for case in cases if self.seconds[case] > SLOW_SECONDS]
            lines |= {function} if len(over) > len(cases) / 2 else set(over)
        LIST.write_text("\n".join(sorted(lines)) + "\n")
