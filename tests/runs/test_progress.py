"""What is shown while something takes its time: a bar on a terminal, lines in a log, and what they say."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from awavo.runs import display, progress
from awavo.runs.budget import default_budget, guess_time
from awavo.runs.problem import build_problem
from awavo.runs.train import Progress, _early_only

EVIL = "\x1b[2J[/red][link=http://x]\x07"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _shown(monkeypatch):
    monkeypatch.delenv("AWAVO_QUIET", raising=False)


@pytest.fixture
def quick(monkeypatch):
    """Nobody waits in these tests."""
    for name in ("BAR_AFTER", "FIRST_LINE", "NEXT_LINE", "FRAME", "AFTER_WRITING"):
        monkeypatch.setattr(display, name, 0.02)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def update(phase, steps=64, name="angle", **changes):
    recent = {"return": 1.0, f"cost_{name}": 2.0}
    return Progress(phase, steps, 640, 2, 100.0, 0.0, recent, {name: 1.0}, ())._replace(**changes)


def shown(stream, monkeypatch, updates, **options):
    """What stderr gets while updates come in slowly."""
    monkeypatch.setattr("sys.stderr", stream)

    def slowly():
        for one in updates:
            yield one
            time.sleep(0.15)

    progress.follow(slowly(), **options)
    return stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_names_are_spelled_out_and_the_end_is_said(stream, quick, monkeypatch):
    said = shown(stream(), monkeypatch, [update("training", name=EVIL), update("finished", 640, EVIL)])
    assert "\x1b[2J" not in said
    assert "\x07" not in said
    assert "\\x1b[2J[/red][link=http://x]\\x07 2.0/1" in said
    assert "finished 640 of 640 steps" in said


def test_a_log_gets_lines_with_how_far_it_is_and_how_long_it_will_take(quick, monkeypatch):
    monkeypatch.setattr(progress, "MEASURE_SECONDS", 0.1)
    updates = [update("compiling", 0), update("training", 64), update("training", 128), update("finished", 640)]
    said = shown(io.StringIO(), monkeypatch, updates, expected=lambda first: "a guess")
    lines = said.splitlines()
    assert lines[0] == "a guess"
    (said_left,) = [line for line in lines if line.startswith("measured here: about ")]
    assert int(said_left.split()[3]) < 30  # 64 steps took 0.15 s, 512 were left
    assert lines.index(said_left) > 1
    assert any(line.startswith("training 128 of 640 steps, ") and " left  100 steps/s" in line for line in lines)
    assert "\r" not in said


def test_a_cost_is_shown_with_the_digits_of_its_limit(quick, monkeypatch):
    last = update("finished", recent={"return": 2e-5, "cost_angle": 0.14}, limits={"angle": 0.1})
    assert "return 0.000020  angle 0.14/0.1\n" in shown(io.StringIO(), monkeypatch, [last])


def test_episodes_that_ended_early_alone_get_no_verdict(quick, monkeypatch):
    last = update("training")
    assert progress._recent(last)[1] == ("angle 2.0/1", "red")
    early = last._replace(early_only=True)
    assert progress._recent(early)[1] == ("angle 2.0/1", "")
    said = shown(io.StringIO(), monkeypatch, [early._replace(phase="finished")])
    assert "angle 2.0/1  (so far only of episodes that ended early" in said
    assert progress._recent(early._replace(recent={})) == []


def test_episodes_are_no_fair_sample_until_a_horizon_after_the_last_cut():
    import awavo

    config = awavo.configure("navigation", "orpo-dr", num_envs=4)
    problem = build_problem(config)
    # Cuts end at 128 (1 - 1/16) horizons of steps; an episode that began then takes a horizon in each environment.
    last = 128 * 15 // 16 * 100
    assert [_early_only(problem, n) for n in (0, last, last + 399, last + 400)] == [True, True, True, False]
    assert not _early_only(build_problem(awavo.configure("cartpole", "orpo-dr")), 0)


def test_what_stays_is_left_out_for_programs_and_a_guess_for_what_resumes(quick, monkeypatch):
    assert "finished" not in shown(io.StringIO(), monkeypatch, [update("finished")], quiet=True).splitlines()[-1:]
    said = shown(
        io.StringIO(), monkeypatch, [update("compiling", resumed_at=64, notes=("torn.",))], expected=lambda _: "a guess"
    )
    assert "a guess" not in said
    assert said.startswith("warning: torn.\nresuming from 64 steps\n")


def test_the_bar_steps_aside_for_what_is_printed_and_comes_back(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.doing("flying", 10, "loops") as work:
        work.advance(5)
        time.sleep(0.3)
        assert "flying 5 of 10 loops" in stream.getvalue()
        progress.say("a line")
        at = len(stream.getvalue())
        time.sleep(0.3)
        assert "flying 5 of 10 loops" in stream.getvalue()[at:]
    time.sleep(0.1)
    end = len(stream.getvalue())
    time.sleep(0.1)
    assert len(stream.getvalue()) == end
    assert stream.getvalue().count("a line\n") == 1


def wait_for(text, stream):
    """Until it is written; a loaded machine may take its time."""
    end = time.monotonic() + 20
    while text not in stream.getvalue():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_shell(monkeypatch, config):
    """As if IPython ran this."""
    shell = None if config is None else SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_a_notebook_gets_one_line_that_is_written_over_and_taken_away(quick, monkeypatch):
    in_shell(monkeypatch, {"IPKernelApp": {"connection_file": "kernel.json"}})
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.doing("flying", 10, "loops") as work:
        wait_for("\rflying 0 of 10 loops", stream)
        work.advance(5)
        wait_for("\rflying 5 of 10 loops", stream)
    said = stream.getvalue()
    assert "\n" not in said
    assert "\x1b" not in said
    assert said.endswith(" \r")


@pytest.mark.parametrize("config", [None, {}, {"TerminalIPythonApp": {}}])
def test_a_kernel_that_does_not_say_what_it_is_gets_lines(config, quick, monkeypatch):
    in_shell(monkeypatch, config)
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.doing("flying"):
        wait_for("flying, ", stream)
    assert stream.getvalue().endswith(" s\n")
    assert "\r" not in stream.getvalue()


def test_a_stream_that_goes_away_ends_what_is_shown_and_not_the_work(quick, monkeypatch):
    in_shell(monkeypatch, {"IPKernelApp": {}})
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.doing("flying") as work:
        wait_for("flying", stream)
        stream.close()
        work.advance()
        progress.hide()
    monkeypatch.setattr("sys.stderr", None)  # a program without a console
    with progress.doing("flying") as work:
        work.advance()


def test_inner_work_is_shown_while_it_lasts(monkeypatch):
    with progress.showing() as shown:
        assert shown.line().startswith("starting")
        with progress.doing("outer"):
            with progress.doing("inner", 3, "seeds", first=1) as inner:
                assert shown.line() == "inner 1 of 3 seeds, 0 s"
                assert list(inner.each("ab")) == ["a", "b"]
                assert shown.line() == "inner 3 of 3 seeds, 0 s"
            assert shown.line() == "outer, 0 s"
        assert shown.line() == "working, 0 s"
    assert progress._display is None


def test_time_left_counts_what_was_done_here_and_no_compiling(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    work = progress.Doing("x", total=100, done=20, first=20, began=0.0)
    assert work.left() is None
    now[0], work.compiled = 50.0, 40.0
    work.advance(10)
    assert work.left() == pytest.approx(70.0)  # 10 of them took 10 s


def test_compiling_is_said_while_jax_compiles_and_only_then(monkeypatch):
    import jax
    import jax.numpy as jnp

    said = []

    def slow(x):
        time.sleep(0.05)  # runs while jax traces it
        said.append(progress._display.line())
        return x + 1

    monkeypatch.setattr(display, "BAR_AFTER", 0.01)
    with progress.doing("working") as work:
        function = jax.jit(slow)
        function(jnp.zeros(3)).block_until_ready()
        assert "working: compiling" in said[0]
        assert "compiling" not in progress._display.line()
        assert work.compiled > 0.04
        function(jnp.zeros(3))
    assert len(said) == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (42.4, "42 s"), (100, "2 minutes"), (60 * 100, "1.7 hours")]
)
def test_durations(seconds, text):
    assert progress.time_text(seconds) == text


def test_nothing_is_shown_where_it_is_not_wanted(monkeypatch):
    monkeypatch.setenv("AWAVO_QUIET", "1")
    with progress.showing() as shown:
        assert shown is None
        with progress.doing("x") as work:
            work.advance()


def test_where_nothing_is_wanted_only_warnings_stay(quick, monkeypatch):
    monkeypatch.setenv("AWAVO_QUIET", "1")
    updates = [update("compiling", notes=("torn.",)), update("training", 64, resumed_at=64), update("finished")]
    assert shown(io.StringIO(), monkeypatch, updates, expected=lambda _: "a guess") == "warning: torn.\n"


def test_planning_on_a_cpu_gets_a_budget_of_minutes():
    import awavo

    assert default_budget("awavo", "cpu") == (20_000, 2)
    assert default_budget("awavo", "gpu").seeds == 10
    # One gradient step or more for every step is dear on a CPU too.
    assert default_budget("cal", "cpu") == (20_000, 2)
    assert default_budget("cal", "gpu") == default_budget("crpo", "cpu") == (200_000, 10)
    config = awavo.configure("cartpole", "awavo")
    assert (config.steps, config.seeds) == (20_000, 2)
    assert awavo.configure("cartpole").steps == 200_000
    assert awavo.configure("cartpole", "awavo", seeds=3).seeds == 3
    said = guess_time(config, "cpu")
    assert said.startswith("20,000 steps of 2 seeds with awavo: a guess of ")
    assert "minutes" in said
    assert "guess" not in guess_time(config, "gpu")


def test_a_guess_knows_that_larger_tasks_take_longer():
    import awavo

    config = awavo.configure("cartpole", steps=12_000, seeds=2)
    assert "a guess of 33 s, from small tasks" in guess_time(config, "cpu")
    assert "a guess of 2 minutes, from a task of more than 12 numbers" in guess_time(config, "cpu", small=False)
    other = awavo.configure("cartpole", "crpo", steps=12_000, seeds=2)
    assert "from small tasks" in guess_time(other, "cpu", small=False)
