"""`awavo infer`: a small run with its folder and page, resuming, bad input."""

import json
import shutil

import numpy as np
import pytest

from awavo.cli.main import main
from awavo.errors import InputError
from awavo.results.trajectory_page import read_inference, write_inference_report
from awavo.results.trajectory_scores import fair_crps, score


def run(capsys, *arguments):
    code = main(["infer", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One short inference from a file of own observations."""
    from awavo.tasks.lorenz96 import twin_experiment

    base = tmp_path_factory.mktemp("infer")
    twin = twin_experiment(18, seed=2)
    np.savez(base / "own.npz", observed=twin.observed[:8], truth=twin.truth[:9])
    code = main(
        ["infer", "lorenz96", "--data", str(base / "own.npz"), "--out", str(base / "run"), "--rounds", "0", "--json"]
    )
    assert code in (0, 1)
    return base / "run"


def test_the_folder_holds_posterior_summary_and_page(folder, capsys):
    summary, posterior = read_inference(folder)
    assert posterior["mean"].shape == (9, 18)
    assert posterior["draws"].shape == (16, 9, 18)
    assert summary["states"] == 18
    assert {"command", "commit", "versions", "device", "solve_s", "compile_s"} <= set(summary)
    assert summary["scores"]["rmse"] == pytest.approx(
        score(posterior["mean"], posterior["std"], posterior["truth"], posterior["hidden"])["rmse"]
    )
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "http-equiv" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert main(["report", str(folder), str(folder), "--out", str(folder / "two.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] > len(page)
    assert (folder / "two.html").read_text().count("data:image/png;base64,") == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lorenz69"], "no system is named 'lorenz69'. Did you mean 'lorenz96'?"),
        (["pendulum", "--forcing", "infer"], "--forcing is an option of lorenz96 only"),
        (["pendulum", "--states", "3"], "--states is an option of twin experiments of lorenz96 and ks"),
        (["pendulum", "--noise", "1"], "--start and --noise are options of own observations"),
        (["lorenz96", "--start", "1"], "--start is no option of lorenz96"),
        (["ks", "--states", "4"], "--states 4 is out of range"),
        (["mine:system"], "mine:system needs --data FILE"),
        (["lorenz96", "--states", "5"], "--states 5 is below 16"),
        (["lorenz96", "--unobserved", "much"], "--unobserved much is not a share such as 1/3"),
        (["lorenz96", "--regime", "Q"], "--regime Q is not one of G, D"),
        (["lorenz96", "--forcing", "maybe"], "--forcing maybe is not one of known, infer"),
        (["lorenz96", "--dtype", "int8"], "--dtype int8 is not one of float32, float64"),
        (["lorenz96", "--memory-mb", "0"], "--memory-mb 0 must be above 0"),
        (["lorenz96", "--data", "nowhere.npz"], "--data nowhere.npz: there is no such file"),
        (["lorenz96", "--states", "200", "--unobserved", "0.97"], "sites in a row"),
        (["lorenz96", "--states", str(10**12)], "--states 1e+12 is above 1e+07"),
        (["lorenz96", "--states", "9" * 400], "--states (a huge number) is above 1e+07"),
        (["lorenz96", "--unobserved", "1e400"], "--unobserved 1e400 is not in [0, 1)"),
        (["lorenz96", "--unobserved", "1e1000000000"], "--unobserved 1e1000000000 is not in [0, 1)"),
        (["lorenz96", "--unobserved", "nan"], "--unobserved nan is not a share"),
        (["lorenz96", "--noise", "1e308"], "--noise 1e+308 is out of range"),
        (["lorenz96", "--noise", "nan"], "noise is nan: it must be above 0"),
        (["lorenz96", "--guess", "inf"], "--guess inf is out of range"),
        (["lorenz96", "--draws", "-1"], "--draws -1 is out of range"),
        (["lorenz96", "--seed", str(10**23)], "--seed a huge number is out of range"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("awavo.runs.infer.infer_trajectories", lambda *_, **__: pytest.fail("it was inferred"))
    (tmp_path / "file").write_text("mine")
    code, _, err = run(capsys, "lorenz96", "--states", "16", "--out", tmp_path / "file" / "x")
    assert (code, "is not a folder" in err) == (2, True)


def test_a_file_of_lorenz96_brings_its_noise_and_its_times(capsys, monkeypatch, tmp_path):
    given = {}

    def infer_trajectories(system, observed, noise, *, times, **_):
        given.update(noise=noise, times=times)
        raise InputError("enough")

    monkeypatch.setattr("awavo.runs.infer.infer_trajectories", infer_trajectories)
    monkeypatch.chdir(tmp_path)
    noise, times = np.linspace(0.5, 0.9, 18), 3.0 + 0.125 * np.arange(4)

    def told(*options, **arrays):
        np.savez("own.npz", observed=np.zeros((4, 18)), **arrays)
        return run(capsys, "lorenz96", "--data", "own.npz", *options)[2]

    assert "enough" in told(noise=noise, times=times)
    np.testing.assert_array_equal(given["noise"], noise)
    np.testing.assert_allclose(given["times"], 2.875 + 0.125 * np.arange(5))
    assert "enough" in told("--noise", "0.7", noise=noise)
    assert (given["noise"], given["times"][0]) == (0.7, 0.0)
    assert "enough" in told("--regime", "D", times=0.1 * np.arange(4))
    assert given["noise"] == 0.1**0.5
    for wrong in (2 * times, times[[0, 1, 3, 2]], np.full(4, np.nan)):
        assert "the times of --data own.npz are not 0.125 apart: --regime G has a row for" in told(times=wrong)
    assert "there are 3 times for 4 rows" in told(times=times[:3])
    assert "noise has shape [3]" in told(noise=np.ones(3))
    assert "the noise 1e+09 is out of range" in told(noise=1e9)


def test_a_truth_of_another_shape_is_refused_before_the_inference(monkeypatch, tmp_path):
    from awavo.assimilation import System
    from awavo.runs import infer_system

    monkeypatch.setattr(infer_system, "infer", lambda *_, **__: pytest.fail("it was inferred"))
    system = System((2,), lambda x, theta: 0.9 * x)
    with pytest.raises(InputError, match=r"the truth has shape \[3, 2\], expected \[4, 2\]"):
        infer_system.infer_system(system, np.ones((3, 2)), 0.1, truth=np.ones((3, 2)), start=0.0, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_files_that_are_not_observations(capsys, tmp_path):
    np.savez(tmp_path / "odd.npz", other=np.zeros(3))
    assert "no array 'observed'" in run(capsys, "lorenz96", "--data", tmp_path / "odd.npz")[2]
    (tmp_path / "torn.npz").write_bytes(b"PK not a file")
    assert "cannot be read as .npz" in run(capsys, "lorenz96", "--data", tmp_path / "torn.npz")[2]
    np.savez(tmp_path / "line.npz", observed=np.zeros(7))
    assert run(capsys, "lorenz96", "--data", tmp_path / "line.npz")[0] == 2
    whole = (tmp_path / "line.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    assert "cannot be read as .npz" in run(capsys, "lorenz96", "--data", tmp_path / "cut.npz")[2]
    np.savez(tmp_path / "objects.npz", observed=np.array([{}], object))
    assert "cannot be read as .npz" in run(capsys, "lorenz96", "--data", tmp_path / "objects.npz")[2]
    np.savez(tmp_path / "cube.npz", observed=np.zeros((5, 2, 9)))
    assert "shape [5, 2, 9], expected [times, 9]" in run(capsys, "lorenz96", "--data", tmp_path / "cube.npz")[2]
    np.savez(tmp_path / "short.npz", observed=np.zeros((5, 18)), truth=np.zeros((5, 18)))
    assert "truth has shape [5, 18], expected [6, 18]" in run(capsys, "lorenz96", "--data", tmp_path / "short.npz")[2]
    silent = run(capsys, "lorenz96", "--data", tmp_path / "short.npz", "--noise", "0")
    assert (silent[0], "standard deviation of the noise is 0" in silent[2]) == (2, True)
    (tmp_path / "table.parquet").write_bytes(b"not parquet")
    assert "cannot be read as parquet" in run(capsys, "lorenz96", "--data", tmp_path / "table.parquet")[2]


def test_a_file_that_unpacks_to_more_than_it_may_is_not_unpacked(capsys, tmp_path, monkeypatch):
    import polars

    from awavo.assimilation import observation_files

    monkeypatch.setattr(observation_files, "MAX_BYTES", 10_000)
    np.savez_compressed(tmp_path / "bomb.npz", observed=np.zeros((100, 100)))
    assert (tmp_path / "bomb.npz").stat().st_size < 1000
    code, _, err = run(capsys, "lorenz96", "--data", tmp_path / "bomb.npz")
    assert (code, "unpacks to 80,128 bytes, at most 10,000" in err) == (2, True)
    polars.DataFrame({f"x{i}": np.zeros(100) for i in range(100)}).write_parquet(tmp_path / "bomb.parquet")
    code, _, err = run(capsys, "lorenz96", "--data", tmp_path / "bomb.parquet")
    assert (code, "100 x 100 numbers, at most 1,250" in err) == (2, True)


def test_a_header_that_promises_more_than_the_file_holds(capsys, tmp_path):
    import io
    import zipfile

    buffer = io.BytesIO()
    np.save(buffer, np.zeros((8, 18)))
    lying = buffer.getvalue().replace(b"(8, 18), }", b"(80000000000, 18), }").replace(b" " * 20, b" " * 10, 1)
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("observed.npy", lying)
    code, _, err = run(capsys, "lorenz96", "--data", tmp_path / "lie.npz")
    assert (code, "shape [80000000000, 18]" in err) == (2, True)


def test_another_folders_inference_is_not_overwritten_by_resuming(folder, tmp_path):
    from awavo.assimilation.assimilate import AssimilationState
    from awavo.assimilation.engine import Settings
    from awavo.errors import RunFolderError
    from awavo.runs.infer import _resume, _save

    _save(
        tmp_path,
        AssimilationState(np.ones((3, 4), np.float32), np.ones(1, np.float32), 5, np.zeros(4, np.int32)),
        "a" * 24,
    )
    state, _ = _resume(tmp_path, "a" * 24, Settings())
    assert state is not None
    assert (state.stage, state.changed) == (5, None)
    np.testing.assert_array_equal(state.x, np.ones((3, 4)))
    with pytest.raises(RunFolderError, match="another inference"):
        _resume(tmp_path, "b" * 24, Settings())


def test_what_has_changed_on_a_long_ring_is_saved_and_read_again(tmp_path):
    from awavo.assimilation.assimilate import AssimilationState
    from awavo.assimilation.engine import Settings
    from awavo.runs.infer import _resume, _save

    changed = np.array([False, True, True, False])
    saved = AssimilationState(
        np.ones((3, 4), np.float32), np.ones(1, np.float32), 5, np.arange(4, dtype=np.int32), changed
    )
    _save(tmp_path, saved, "a" * 24)
    state, _ = _resume(tmp_path, "a" * 24, Settings())
    assert state is not None
    np.testing.assert_array_equal(state.changed, changed)
    np.testing.assert_array_equal(state.tries, saved.tries)


def test_another_prior_is_another_inference():
    from awavo.assimilation import System
    from awavo.assimilation.engine import Settings
    from awavo.runs.infer import _fingerprint

    system = System((16,), lambda x, theta: x, np.array([8.0]))
    given = (np.zeros((2, 16)), 1.0)
    marks = {_fingerprint(*given, system._replace(theta_std=std), Settings()) for std in (0.0, 0.5, 0.5)}
    assert len(marks) == 2


def test_scores_by_hand():
    truth = np.zeros((9, 4))
    mean = truth.copy()
    mean[:, 1] = 3.0
    hidden = np.array([True, True, False, False])
    made = score(mean, np.ones_like(mean), truth, hidden)
    assert made["rmse"] == pytest.approx(np.sqrt(4.5))
    assert made["lost"] == made["coverage90"] == 0.5
    mean[:, 1] = 1.5
    assert score(mean, np.ones_like(mean), truth, hidden)["coverage90"] == 1.0
    mean[:, 1] = 1.7
    assert score(mean, np.ones_like(mean), truth, hidden)["coverage90"] == 0.5
    around = np.stack([mean - 1.0, mean + 1.0])  # a deviation of sqrt(2): 1.7 is inside 2.33
    assert score(mean, np.ones_like(mean), truth, hidden, around)["draws_coverage90"] == 1.0
    draws = np.array([[0.0], [2.0]])
    assert fair_crps(draws, np.array([1.0])) == pytest.approx(1.0 - 1.0)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("posterior.npz", b""),
        ("posterior.npz", b"PK\x03\x04 not a zip"),
        ("posterior.npz", None),
        ("inference.json", b"[]"),
        ("inference.json", b"{}"),
        ("inference.json", b"[" * 9999),
    ],
)
def test_a_malformed_inference_gets_one_line(folder, tmp_path, capsys, file, content):
    copied = tmp_path / "run"
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("*.html"))
    if content is None:
        np.savez(copied / file, mean=np.zeros(3))
    else:
        (copied / file).write_bytes(content)
    assert main(["report", str(copied)]) == 2
    err = capsys.readouterr().err.strip()
    assert str(copied) in err
    assert len(err.splitlines()) == 1
    assert not (copied / "report.html").exists()


def test_a_parquet_file_that_its_reader_panics_on_is_refused(tmp_path, monkeypatch, capsys):
    """Polars answers some damaged files with a panic, which is no Exception."""
    import polars

    def panic(path):
        raise polars.exceptions.PanicException("assertion failed")

    monkeypatch.setattr(polars, "scan_parquet", panic)
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    assert main(["infer", "lorenz96", "--data", str(tmp_path / "own.parquet"), "--out", str(tmp_path / "out")]) == 2
    assert "cannot be read as parquet (assertion failed)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


OWN = """
import numpy as np
from awavo.assimilation.examples import pendulum

def system():
    return pendulum(np.random.default_rng(0)).system

number = 3
"""


def test_an_own_system_and_its_table(capsys, tmp_path, monkeypatch):
    """MODULE:SYSTEM with a CSV of angles: parameters with intervals, a page with a verdict, exit code 1 on misfit."""
    import polars

    from awavo.assimilation.examples import make_example

    monkeypatch.chdir(tmp_path)
    (tmp_path / "swinging.py").write_text(OWN)
    made = make_example("pendulum", 101)
    polars.DataFrame({"time": made.times[1:], "angle": made.observed[:, 0]}).write_csv("own.csv")
    given = ["swinging:system", "--data", "own.csv", "--start", "0"]
    code, _, err = run(capsys, *given)
    assert (code, "noise of own.csv is not known: give --noise" in err) == (2, True)
    code, _, err = run(capsys, "swinging:number", "--data", "own.csv", "--noise", "0.1")
    assert (code, "is int, expected an awavo.assimilation.System" in err) == (2, True)
    code, out, _ = run(capsys, *given, "--noise", "0.1", "--out", "good", "--json")
    summary = json.loads(out)
    assert (code, summary["fit"]["good"], summary["theta_names"]) == (0, True, ["friction"])
    (low, high) = summary["theta_interval"][0]
    assert low - 0.1 < made.theta[0] < high + 0.1
    stored, posterior = read_inference(tmp_path / "good")
    assert posterior["mean"].shape == (51, 2)
    assert "fits what was observed, as far as" in (tmp_path / "good" / "report.html").read_text()
    assert (stored["engine"], stored["not_believed"], posterior["believed"].all()) == ("dense", 0, True)
    file = tmp_path / "good" / "inference.json"
    file.write_text(file.read_text().replace('"not_believed": 0', '"not_believed": 1'))
    write_inference_report([tmp_path / "good"], tmp_path / "part.html")
    assert "but for 1 components that are not to be believed" in (tmp_path / "part.html").read_text()
    code, out, _ = run(capsys, *given, "--noise", "0.02", "--starts", "1", "--out", "bad")
    assert code == 1
    assert "NOT TO BE BELIEVED: the residuals are too large" in out
    assert "friction" in out
    assert 'class="verdict bad"' in (tmp_path / "bad" / "report.html").read_text()
    code, _, err = run(capsys, *given, "--noise", "0.1", "--out", "bad")
    assert (code, "holds another inference" in err) == (2, True)


def test_tables_and_arrays_are_read_alike(tmp_path):
    from awavo.assimilation.observation_files import read_observations

    (tmp_path / "a.csv").write_text("t,x,y\n0.5,1,\n1.5,nan,2.5\n")
    read = read_observations(tmp_path / "a.csv")
    np.testing.assert_array_equal(read.observed, [[1, np.nan], [np.nan, 2.5]])
    np.testing.assert_array_equal(read.times, [0.5, 1.5])
    np.savez(tmp_path / "a.npz", observed=read.observed, times=read.times, noise=[0.1, 0.2])
    np.testing.assert_array_equal(read_observations(tmp_path / "a.npz").noise, [0.1, 0.2])


def test_columns_go_to_the_states_they_name(tmp_path):
    from awavo.assimilation.observation_files import read_observations

    def read(text, names=()):
        (tmp_path / "own.csv").write_text(text)
        return read_observations(tmp_path / "own.csv", names)

    table = "y, t ,x\n2,0.5,1\n4,1.5,\n"
    made = read(table, ("x", "y"))
    np.testing.assert_array_equal(made.observed, [[1, 2], [np.nan, 4]])
    np.testing.assert_array_equal(made.times, [0.5, 1.5])
    np.testing.assert_array_equal(read(table).observed, [[2, 1], [4, np.nan]])
    np.testing.assert_array_equal(read("time,T\n0,300\n", ("T",)).observed, [[300]])
    for text, names, message in (
        (table, ("x", "z"), r"own\.csv has the columns y, x, expected x, z \(in any order\)"),
        (table, ("x", "y", "z"), "expected x, y, z"),
        ("t,time,x\n0,0,1\n", (), r"two columns of times \(t and time\): keep one"),
        ("0.5,1.0,1.0\n1.5,2.0,\n", (), "no header row .it begins with '0.5,1.0,1.0'.: put a name over each"),
        ("0.5,,nan\n", (), "no header row"),
        ("time,x\n2024-05-01T00:00,1\n", (), "column 'time' holds '2024-05-01T00:00', expected numbers"),
        ("time,x\n0,1\n1,much\n", (), "column 'x' holds 'much', expected numbers"),
    ):
        with pytest.raises(InputError, match=message):
            read(text, names)


def test_dates_in_parquet_are_refused(tmp_path):
    import datetime

    import polars

    from awavo.assimilation.observation_files import read_observations

    polars.DataFrame({"time": [datetime.date(2024, 5, 1)], "x": [1.0]}).write_parquet(tmp_path / "own.parquet")
    with pytest.raises(InputError, match="column 'time' holds '2024-05-01', expected numbers"):
        read_observations(tmp_path / "own.parquet")


def test_what_an_operator_shows_has_the_names_of_the_states_it_picks():
    from awavo.assimilation import System
    from awavo.assimilation.system import seen_names

    system = System((3,), lambda x, theta: x, names=("a", "b", "c"))
    assert seen_names(system) == ("a", "b", "c")
    assert seen_names(system._replace(observe=lambda x, theta: x[::-2])) == ("c", "a")
    assert seen_names(system._replace(observe=lambda x, theta, time: x[:2] * 2)) == ()
    assert seen_names(system._replace(names=(), observe=lambda x, theta: x[:1])) == ()


def test_columns_of_a_named_system_are_put_in_order(tmp_path):
    from awavo.runs.system_source import read_problem

    (tmp_path / "own.csv").write_text("lower angle,time,upper angle\n2,0,1\n2,1,1\n")
    made = read_problem("double-pendulum", tmp_path / "own.csv", None, None, 0, None)
    np.testing.assert_array_equal(made.observed, [[1, 2], [1, 2]])
    (tmp_path / "own.csv").write_text("rate\n2\n1\n")
    with pytest.raises(InputError, match="has the columns rate, expected angle"):
        read_problem("pendulum", tmp_path / "own.csv", None, None, 0, None)


def test_observations_that_do_not_fit_the_system_leave_no_folder(tmp_path):
    """The columns of a file are counted only where the system is known: after the options were read."""
    from awavo.assimilation import System
    from awavo.runs.infer_system import infer_system

    system = System((2,), lambda x, theta: 0.9 * x, prior_std=1.0)
    with pytest.raises(InputError, match=r"shape \[3, 1\], expected \[times, 2\]"):
        infer_system(system, np.ones((3, 1)), 0.1, out=tmp_path / "found")
    assert not (tmp_path / "found").exists()
