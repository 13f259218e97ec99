"""The search of docs/protocol.md: what was drawn is what is committed, and every method accepts its settings."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from awavo.config import TrainConfig, parse_value
from awavo.runs.configure import resolve_config

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "protocol"


@pytest.fixture(scope="module")
def search():
    spec = importlib.util.spec_from_file_location("protocol_search", FOLDER / "search.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings():
    return json.loads((FOLDER / "settings.json").read_text())["settings"]


def test_the_committed_settings_are_those_drawn(search, settings):
    assert settings == search.draw()
    assert {len(rows) for rows in settings.values()} == {search.NUM}


def test_every_method_accepts_its_settings(settings):
    for algo, rows in settings.items():
        for number, row in enumerate(rows):
            options = {name: parse_value(str(value)) for name, value in row.items()}
            resolved = resolve_config(TrainConfig(task="drone", algo=algo, algo_options=options)).algo_options
            for name, value in options.items():
                found = resolved[name]
                assert (list(found) if isinstance(found, tuple | list) else found) == (
                    list(value) if isinstance(value, tuple) else value
                ), (algo, number, name)


def test_the_best_setting_keeps_its_limits_first(search, tmp_path):
    def write(name, returns, costs):
        (tmp_path / name).write_text(json.dumps({"rows": [{"returns": returns, "costs": costs}]}))
        return tmp_path / name

    loud = write("a.json", [9.0, 9.0, 9.0], [[2.0], [0.5], [0.5]])
    calm = write("b.json", [5.0, 5.0, 5.0], [[0.5], [0.5], [0.5]])
    assert search.score(calm, [1.0]) == (3, 5.0) > search.score(loud, [1.0]) == (2, 9.0)


def test_a_command_names_the_tuning_seeds_and_the_setting(search, settings):
    told = search.command("drone", "pcpo", 3, Path("x.json"), 60.0, search.TUNING_SEEDS)
    assert told[told.index("--first-seed") + 1] == "100"
    assert told[told.index("--seeds") + 1] == "3"
    assert told[told.index("--num-envs") + 1] == str(settings["pcpo"][3]["num_envs"])
    assert f"max_kl={settings['pcpo'][3]['max_kl']}" in told


def test_an_evaluation_has_fresh_seeds_and_ours_no_setting(search):
    told = search.command("drone", "orpo-dr", 0, Path("x.json"), search.FOREVER, search.EVALUATION_SEEDS)
    assert told[told.index("--first-seed") + 1 : told.index("--first-seed") + 4] == ["400", "--seeds", "10"]
    assert "--option" not in told
    assert "--num-envs" not in told


@pytest.mark.parametrize(("algo", "envs"), [("pcpo", "4096"), ("orpo-dr", "2048"), ("awavo", "")])
def test_a_row_of_seconds_has_its_own_seeds_and_thousands_of_environments_where_they_are_of_use(
    search, settings, algo, envs
):
    told = search.command_in_seconds("drone", algo, 3, Path("x.json"))
    assert told[told.index("--first-seed") + 1 : told.index("--first-seed") + 4] == ["420", "--seeds", "10"]
    assert float(told[told.index("--until") + 1]) == 100.0  # ten of them for the evaluation
    assert (told[told.index("--num-envs") + 1] if envs else "--num-envs" not in told) == (envs or True)
    assert told.count("rollout_length=32") == (algo == "pcpo")
    drawn = settings.get(algo, [{}] * 4)[3]
    for name, value in drawn.items():
        assert name in ("num_envs", "rollout_length") or f"{name}={value}" in told


def test_the_methods_of_a_task_share_a_device_and_its_cores_and_say_so(search, tmp_path, monkeypatch):
    """The commands are replaced by one that says what it was given; the machine may have fewer cores than methods."""
    say = (
        "import json, os, sys\nat, part = sorted(os.sched_getaffinity(0)), os.environ[sys.argv[2]]\n"
        "json.dump({'at': at, 'part': part}, open(sys.argv[1], 'w'))"
    )

    def told(task, algo, number, out):
        return [sys.executable, "-c", say, str(out), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]

    monkeypatch.setattr(search, "command_in_seconds", told)
    monkeypatch.setattr(search, "divides_devices", lambda: True)
    search.share_device("drone", search.HERE / "tuned", tmp_path)
    rows = [json.loads(file.read_text()) for file in tmp_path.glob("drone-*.json")]
    assert len(rows) == len(search.SHARERS) == 8
    assert {row["part"] for row in rows} == {"12"}
    cores = len(os.sched_getaffinity(0))
    assert all(len(row["at"]) == max(cores // 8, 1) for row in rows)
    assert len({tuple(row["at"]) for row in rows}) == min(cores, 8)
    assert all(row["share"].startswith("one of 8 at once: 12% of the multiprocessors") for row in rows)
    with pytest.raises(SystemExit, match="once"):
        search.share_device("drone", search.HERE / "tuned", tmp_path)


def test_nothing_begins_where_a_share_cannot_be_given_or_a_search_is_not_complete(search, tmp_path, monkeypatch):
    begun, popen = [], search.subprocess.Popen
    monkeypatch.setattr(search.subprocess, "Popen", lambda words, **rest: begun.append(words) or popen(words, **rest))
    if not search.divides_devices():
        with pytest.raises(SystemExit, match="no CUDA MPS answers"):
            search.share_device("drone", search.HERE / "tuned", tmp_path)
    monkeypatch.setattr(search, "divides_devices", lambda: True)
    with pytest.raises(SystemExit, match="the search of cpo on drone is not complete"):
        search.share_device("drone", tmp_path, tmp_path)
    assert not [words for words in begun if words[0] == "taskset"]


def test_a_setting_that_overshoots_the_steps_is_no_choice(search, tmp_path):
    for number, steps in enumerate((32_768, 20_480)):
        row = {"steps": steps, "returns": [200.0 - number], "costs": [[1.0, 1.0]]}
        (tmp_path / f"cartpole-crpo-{number:02d}.json").write_text(json.dumps({"rows": [row]}))
    assert search.choose("cartpole", "crpo", tmp_path) == (tmp_path / "cartpole-crpo-01.json", 2)
    assert search.choose("cartpole", "pcpo", tmp_path) is None
