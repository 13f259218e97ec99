"""Which tests the fast run leaves out: those named in tests/slow_tests.txt, which get the marker `slow`.

A line of the list is a test, with or without its parameters, or a whole file. `make slow-list` measures all tests and
writes the list anew. The marker `fast` keeps a test in the fast run that would be on the list: every room needs a few.
A test that is neither on the list nor `fast` fails in the fast run when it takes too long, so that a new test cannot
slow down everybody's inner loop unnoticed. Times are CPU seconds, subprocesses included: a busy machine changes little.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__: list[str] = []

LIST = Path(__file__).with_name("slow_tests.txt")
SLOW_SECONDS = 0.6  # what puts a test on the list, with an empty cache of compiled programs
LIMIT_SECONDS = 6.0  # what a test that is not on it may take: far more, for a slower machine and other fixtures first
SECONDS = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--write-slow-list`: measure and write the list."""
    parser.addoption("--write-slow-list", action="store_true", help=f"write {LIST.name} from the tests of this run")


def is_listed(test_id: str, listed: set[str]) -> bool:
    """Whether the list names the test, all cases of its function, or its file."""
    return not listed.isdisjoint((test_id, test_id.split("[")[0], test_id.split("::")[0]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the list."""
    listed = set(LIST.read_text().split("\n"))
    for item in items:
        if is_listed(item.nodeid, listed) and not item.get_closest_marker("fast"):
            item.add_marker("slow")


def cpu_seconds() -> float:
    """What this process and its finished children have used."""
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usage)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Measure the fixtures that this test is the first to need."""
    start = cpu_seconds()
    try:
        return (yield)
    finally:
        item.stash[SECONDS] = cpu_seconds() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure the test, and fail it if it is too slow for a test without the marker."""
    start = cpu_seconds()
    try:
        result = yield
    finally:
        seconds = item.stash[SECONDS] + cpu_seconds() - start
        item.user_properties.append(("cpu_seconds", seconds))
    fast_run = item.config.getoption("markexpr") == "not slow"
    if fast_run and seconds > LIMIT_SECONDS and not item.get_closest_marker("fast"):
        pytest.fail(
            f"This test took {seconds:.1f} s of CPU time, and the fast run is the inner loop of a developer: make it "
            f"cheaper (smaller arrays, fewer compiled programs), or add its line to tests/{LIST.name}.",
            pytrace=False,
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Collect the times where the reports of all test processes arrive."""
    if config.getoption("write_slow_list") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowList(), "slow-list")


class SlowList:
    """The list, from the times of one run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the time of one test."""
        if report.when == "call":
            self.seconds[report.nodeid] = dict(report.user_properties)["cpu_seconds"]  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write the list; a function most of whose cases are slow is named as a whole. Files not run keep theirs."""
        functions: dict[str, list[str]] = {}
        for test_id in self.seconds:
            functions.setdefault(test_id.split("[")[0], []).append(test_id)
        files = {test_id.split("::")[0] for test_id in self.seconds}
        lines = {line for line in LIST.read_text().split("\n") if line and line.split("::")[0] not in files}
        for function, cases in functions.items():
            slow = [case for case in cases if self.seconds[case] > SLOW_SECONDS]
            lines |= {function} if len(slow) > len(cases) / 2 else set(slow)
        LIST.write_text("\n".join(sorted(lines)) + "\n")
