"""Which tests the shorter runs leave out: those named in tests/slow_tests.txt, which get the marker `slow` or `long`.

A line of the list is a test, with or without its parameters, or a whole file, that `make test-fast` leaves out: it is
slow. `-` before it leaves it out of `make test` too: it is long, and `make test-long` runs just these; .ci/run calls
both. `+` keeps a slow test in the fast run, as every room needs a few. `make slow-list` measures all tests, adds those
that are slow, writes the long ones anew, drops what is gone. A test that the list does not name so fails in a shorter
run when it takes too long, so that nobody slows down everybody's loop unnoticed. Times are CPU seconds with
subprocesses, which a busy machine changes little. A fixture that several tests share counts for each of them: for slow
tests always, for long ones if the tests of its file alone share it, as `make test` needs the others anyway.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__: list[str] = []

LIST = Path(__file__).with_name("slow_tests.txt")
SLOW_SECONDS = 0.4  # what puts a test on the list, with an empty cache of compiled programs
LONG_SECONDS = 1.5  # what makes it a long one
# What a test may take in a run that leaves out more: far more, as machines differ and fixtures are shared.
LIMITS = {"not slow": 8.0, "not long": 25.0}
SETUP = pytest.StashKey[float]()
SHARED: dict[tuple[str, str], float] = {}  # what each fixture of a module or session took, by where and its name


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--write-slow-list`: measure and write the list."""
    parser.addoption("--write-slow-list", action="store_true", help=f"write {LIST.name} from the tests of this run")


def read_list() -> tuple[set[str], set[str], set[str]]:
    """Lines of slow tests, of long ones, and of tests that are kept in the fast run all the same."""
    lines = set(filter(None, LIST.read_text().split("\n")))
    long, kept = ({line[1:].strip() for line in lines if line.startswith(sign)} for sign in "-+")
    return {line for line in lines if line[0] not in "-+"}, long, kept


def is_named(test_id: str, lines: set[str]) -> bool:
    """Whether the lines name the test, all cases of its function, or its file."""
    return not lines.isdisjoint((test_id, test_id.split("[")[0], test_id.split("::")[0]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list."""
    slow, long, kept = read_list()
    for item in items:
        if is_named(item.nodeid, long):
            item.add_marker("long")
        if is_named(item.nodeid, slow | long) and not is_named(item.nodeid, kept):
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
    used = {key: s for key, s in SHARED.items() if key[1] in fixtures and item.nodeid.startswith(key[0])}
    of_its_file = sum(s for (base, _), s in used.items() if base.endswith(".py"))
    item.user_properties.append(("cpu_seconds", own + max(item.stash[SETUP], sum(used.values()))))
    item.user_properties.append(("cpu_seconds_with_its_file", own + of_its_file))
    took = own + item.stash[SETUP]
    marks = item.config.getoption("markexpr")
    if took > LIMITS.get(marks, float("inf")):
        pytest.fail(
            f"This test took {took:.1f} s of CPU time, and the tests that are {marks} run for every change: make it "
            f"cheaper (smaller arrays, fewer compiled programs), or add its line to tests/{LIST.name}.",
            pytrace=False,
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Write the list at the end, if asked to: the process that hears of all tests does it."""
    if config.getoption("write_slow_list") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowList(), "slow-list")


class SlowList:
    """The list, from the times of one run."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {"cpu_seconds": {}, "cpu_seconds_with_its_file": {}}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the times of one test."""
        for name, value in report.user_properties:
            if report.when == "call" and name in self.seconds and isinstance(value, float):
                self.seconds[name][report.nodeid] = value

    def pytest_sessionfinish(self) -> None:
        """Write the list; a function most of whose cases are slow is named as a whole. Files not run keep theirs."""
        functions: dict[str, list[str]] = {}
        whole, alone = self.seconds["cpu_seconds"], self.seconds["cpu_seconds_with_its_file"]
        for test_id in whole:
            functions.setdefault(test_id.split("[")[0], []).append(test_id)
        files = {test_id.split("::")[0] for test_id in whole}
        slow, long, kept = read_list()
        # What was listed stays while it exists: in the fast run it would pay for programs that others compile here.
        known = {*whole, *functions, *files}
        lines = {line for line in slow if line in known or line.split("::")[0] not in files}
        lines |= {f"+ {line}" for line in kept}
        lines |= {f"- {line}" for line in long if line.split("::")[0] not in files}
        for function, cases in functions.items():
            longer = _joined(function, cases, {case for case in cases if alone[case] > LONG_SECONDS})
            lines |= {f"- {line}" for line in longer}
            if function not in longer:
                lines |= _joined(function, cases, {case for case in cases if whole[case] > SLOW_SECONDS})
            lines -= longer
        LIST.write_text("\n".join(sorted(lines)) + "\n")


def _joined(function: str, cases: list[str], over: set[str]) -> set[str]:
    """The cases that are over a limit, or their function if most of its cases are."""
    return {function} if len(over) > len(cases) / 2 else over
