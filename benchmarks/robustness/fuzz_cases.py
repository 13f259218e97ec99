"""The cases of fuzz.py: good files to bend, and for each kind a function that makes a case from a random stream."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "explain"))

Case = tuple[str, Callable[[], int]]
Kind = Callable[[random.Random, Path, Path], Case]
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e"
NUMBERS = [
    "0", "-1", "1e400", "-1e400", "nan", "inf", "-inf", "1e308", "1e-320", "-0.0", "9" * 400, "2147483647",
    "2147483648", str(10**23), "1.5", "0x10", "1_000", "٣", "", " ", "one", "1e1000000000", "1/0", "1/3/4",
]  # fmt: skip
TEXTS = [
    "", " ", ".", "..", "/", "~", "-", "--", "x" * 300, "x" * 5000, "/dev/null/x", "/proc/self/mem", "a\nb", EVIL,
    "[red]x[/]", "{}", "../../etc/passwd", ".x:y", ":", "os:system", "json:tool:x", "é" * 200, "%s%n", "null", "True",
]  # fmt: skip
JSONS = [
    None, True, False, 0, -1, 1, 0.5, 10**30, -(10**30), 1e308, math.nan, math.inf, "", "x", "x" * 5000, EVIL, [], {},
    [[]], [None], {"a": 1}, [1, 2, 3], "0", "nan", [[[[[[[[1]]]]]]]], {"": {"": {}}}, list(range(100)),
]  # fmt: skip

TINY = {
    "num_envs": 4, "rollout_length": 16, "num_updates": 2, "hidden": (8,), "num_quantiles": 4, "batch_size": 16,
    "warmup_steps": 64,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- good files


def prepare(stock: Path) -> None:
    """Make the good files that cases bend, once."""
    if (stock / "ready").exists():
        return
    stock.mkdir(parents=True, exist_ok=True)
    # In a process of its own: what it compiles is not needed here.
    subprocess.run([sys.executable, __file__, str(stock)], check=True, stdout=subprocess.DEVNULL)
    (stock / "ready").touch()


def make_stock(stock: Path) -> None:
    """A run with evaluation and certificates, an export, a flight record, a PX4 log, observations, a job's result."""
    import awavo
    from awavo.control.planner_config import PlannerConfig
    from awavo.explain.recording import record_flight
    from awavo.runs.export import export_run

    run = awavo.train(awavo.configure("cartpole", "orpo-dr", steps=256, seeds=2, **TINY), stock / "run")
    run.evaluate(20)
    run.report()
    export_run(run, stock / "export")
    small = PlannerConfig(num_candidates=32, num_particles=4, clearance_margin=0.42, max_rate=6.0)
    record_flight(stock / "flight.mcap", task="FT3", seed=3, steps=6, config=small)
    make_small_stock(stock)


def make_small_stock(stock: Path) -> None:
    """The good files that take no time: a PX4 log, observations."""
    import numpy as np
    import polars
    from ulog_writer import write_ulog

    times = np.arange(1.0, 4.0, 0.02)
    rows = {
        "sensor_combined": [[0.0, 0.0, -9.81]], "vehicle_attitude": [[1.0, 0.0, 0.0, 0.0]],
        "vehicle_thrust_setpoint": [[0.0, 0.0, -0.4]],
    }  # fmt: skip
    write_ulog(stock / "flight.ulg", {name: (list(times), row * len(times)) for name, row in rows.items()})
    rng = np.random.default_rng(0)
    np.savez(stock / "own.npz", observed=rng.normal(size=(6, 18)), truth=rng.normal(size=(7, 18)))
    polars.DataFrame({f"x{i}": rng.normal(size=6) for i in range(18)}).write_parquet(stock / "own.parquet")


# ---------------------------------------------------------------------------------------------------- bending


def bend_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, repeat, insert or overwrite with extreme numbers."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(max(1, len(data)))
        how = rng.randrange(6)
        if how == 0 and data:
            data[place] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[place:]
        elif how == 2:
            data[place:place] = data[place : place + rng.choice([1, 8, 400])]
        elif how == 3:
            data[place:place] = rng.randbytes(rng.choice([1, 8, 300]))
        elif how == 4:
            size = rng.choice([1, 2, 4, 8])
            data[place : place + size] = rng.choice([0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1)]).to_bytes(
                size, "little"
            )
        else:
            data[place : place + rng.choice([4, 100])] = b""
    return bytes(data)


def bend_json(rng: random.Random, value: Any) -> Any:
    """Replace, drop, double or move something in a JSON document."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(JSONS)
    value = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    how = rng.random()
    if how < 0.6:
        value[key] = bend_json(rng, value[key])
    elif how < 0.75:
        del value[key]
    elif how < 0.85 and isinstance(value, dict):
        value[rng.choice(TEXTS)] = value[key]
    elif isinstance(value, list):
        value.append(value[key])
    else:
        value[key] = rng.choice(JSONS)
    return value


def bend_text(rng: random.Random, data: bytes) -> bytes:
    """A JSON file bent as a document or as bytes."""
    if rng.random() < 0.25:
        return bend_bytes(rng, data)
    if rng.random() < 0.05:
        return rng.choice([b"", b"[" * 100_000, b"\xff\xfe", b"null", b"{}", b'{"a":' * 50_000])
    return json.dumps(bend_json(rng, json.loads(data))).encode()


# ---------------------------------------------------------------------------------------------------- calling


def cli(*arguments: object) -> Callable[[], int]:
    """A call of the command line in this process."""
    from awavo.cli.main import main

    return lambda: main([str(a) for a in arguments])


def refusing(function: Callable[[], Any]) -> Callable[[], int]:
    """A call of a function that may refuse, with the exit code that the command line would give it."""

    def call() -> int:
        from awavo.errors import AwavoError, printable

        try:
            function()
        except AwavoError as error:
            print(f"awavo: {printable(' '.join(str(error).split()))}", file=sys.stderr)
            return 2
        return 0

    return call


# ---------------------------------------------------------------------------------------------------- kinds of cases


@functools.cache
def options_of(verb: str) -> list[tuple[str, str]]:
    """Flags of a command, and whether they take a number, a text or nothing."""
    import importlib

    from awavo.cli.main import COMMANDS

    module, kind = COMMANDS[verb][0].split(":")
    command = getattr(importlib.import_module(f"awavo.cli.{module}"), kind)
    found = []
    for item in dataclasses.fields(command):
        hint = typing.get_type_hints(command, include_extras=False)[item.name]
        own = dataclasses.fields(hint) if dataclasses.is_dataclass(hint) else [item]
        hints = typing.get_type_hints(hint) if dataclasses.is_dataclass(hint) else {item.name: hint}
        for field in own:
            kinds = (
                set(typing.get_args(hints[field.name]))
                if isinstance(hints[field.name], types.UnionType)
                else {hints[field.name]}
            )
            sort = "flag" if bool in kinds else "number" if kinds & {int, float} else "text"
            found.append((f"--{field.name.replace('_', '-')}", sort))
    return found


# Calls that are cheap where nothing is wrong with them; `train` plans and does not run.
BASES = {
    "train": ["cartpole", "--dry-run"], "evaluate": ["absent"], "certify": ["absent"], "explain": ["absent.mcap"],
    "infer": ["lorenz96", "--data", "absent.npz"], "compare": ["absent"], "report": ["absent"], "export": ["absent"],
    "render": ["absent"], "check-env": ["absent-v0"], "list": ["--json"], "reproduce": ["absent"], "doctor": ["--json"],
    "demo": ["--steps", "0", "--seeds", "0"], "fly": ["absent"], "watch": ["absent"],
}  # fmt: skip


def options_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A verb with one or two options of nonsense."""
    verb = rng.choice(
        [v for v in BASES if v not in ("list", "doctor")] + ["train"] * 4 + ["infer"] * 2 + ["certify"] * 2
    )
    arguments = list(BASES[verb])
    for _ in range(1 if verb == "demo" else rng.choice([1, 1, 2])):  # one of the two of the tour stays refused
        flag, sort = rng.choice(options_of(verb))
        if verb == "infer" and flag == "--data":
            continue
        arguments.append(flag)
        if sort != "flag":
            arguments.append(rng.choice(NUMBERS if sort == "number" or rng.random() < 0.3 else TEXTS))
    return f"options {verb} {arguments}", cli(verb, *arguments)


def setting_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A setting of an algorithm with a value that is none, or with the largest one it may have."""
    from awavo.registry import ALGORITHMS
    from awavo.runs.problem import settings_class

    algo = rng.choice(list(ALGORITHMS))
    largest = {f.name: f.metadata.get("high") for f in dataclasses.fields(settings_class(algo))}
    name = rng.choice([*largest, "nothing"])
    values = [*NUMBERS, *TEXTS, "[" * 3000, "[[1]]", "{}", '{"a": 1}', "1,2,3", "true", "null", '"x"', ",,,"]
    values += [str(largest[name])] * 10 if largest.get(name) is not None else []
    value = rng.choice(values)
    arguments = ["train", "cartpole", "--algo", algo, "--option", f"{name}={value}", "--dry-run"]
    return f"settings {arguments}", cli(*arguments)


def argument_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A verb with a target of nonsense, or words in any order."""
    verb = rng.choice([*BASES, "", EVIL, "trian"])
    words = [
        rng.choice([*TEXTS, *NUMBERS, "cartpole", "lorenz96", "operator", "FT9", "--json", "--out"])
        for _ in range(rng.randrange(4))
    ]
    if verb in ("doctor", "list", "demo", "train", "reproduce", "infer"):  # with good words these would do their work
        words.append(rng.choice(["--nothing", "--steps", "x" * 300]))
    return f"arguments {verb!r} {words}", cli(verb, *words)


def bend_file(rng: random.Random, path: Path) -> None:
    """Bend a file of a run folder; half of the documents are sealed anew, to reach what lies behind the seals."""
    from awavo.config import stored_fingerprint
    from awavo.results.store import seal_of

    if path.suffix != ".json":
        path.write_bytes(bend_bytes(rng, path.read_bytes()))
        return
    bent = bend_text(rng, path.read_bytes())
    if rng.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(bent)
            if isinstance(content, dict) and "seal" in content:
                if isinstance(content.get("config"), dict):
                    content["fingerprint"] = stored_fingerprint(content["config"])
                bent = json.dumps({**content, "seal": seal_of(content)}).encode()
    path.write_bytes(bent)


def run_file_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A run folder with one file bent."""
    shutil.copytree(stock / "run", folder / "run", ignore=shutil.ignore_patterns("report.html"))
    files = [p for p in (folder / "run").rglob("*") if p.is_file() and p.name != ".lock"]
    path = rng.choice(files)
    bend_file(rng, path)
    verb = rng.choice([["compare"], ["compare", "--json"], ["compare", "--markdown"], ["report", "--out", "page.html"]])
    return f"run {verb} {path.name}", cli(verb[0], "run", *verb[1:])


def loaded_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A run folder with its configuration or checkpoint bent, opened for its policy."""
    import awavo

    shutil.copytree(stock / "run", folder / "run")
    path = rng.choice([folder / "run" / "config.json", *(folder / "run" / "checkpoints").iterdir()])
    bend_file(rng, path)
    return f"loaded {path.name}", refusing(lambda: awavo.load("run"))


def flight_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A recorded episode of somebody in the run's folder, for the page."""
    shutil.copytree(stock / "run", folder / "run", ignore=shutil.ignore_patterns("report.html"))
    points = [[0.1 * i, 0.0, 1.0] for i in range(5)]
    good = {"task": "quadrotor", "seed": 0, "path": {"position": points, "target": points, "force": points},
            "cylinders": [{"x": 1, "y": 1, "radius": 1, "height": 2}], "ended": "time",
            "return": 1.0, "costs": {"a": 1}}  # fmt: skip
    (folder / "run" / "flight.json").write_bytes(bend_text(rng, json.dumps(good).encode()))
    return "flight_json", cli("report", "run", "--out", "page.html")


def record_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A decision record, bent as bytes or message by message."""
    from awavo.explain.record import read_log

    data = (stock / "flight.mcap").read_bytes()
    if rng.random() < 0.4:
        (folder / "own.mcap").write_bytes(bend_bytes(rng, data))
    else:
        rewrite_record(rng, stock / "flight.mcap", folder / "own.mcap")
    return "record", refusing(lambda: read_log("own.mcap"))


def rewrite_record(rng: random.Random, source: Path, target: Path) -> None:
    """Write the record again with messages bent, in any compression."""
    from mcap.reader import make_reader
    from mcap.writer import CompressionType, Writer

    share = rng.choice([0.1, 0.5])
    with source.open("rb") as old, target.open("wb") as new:
        writer = Writer(new, compression=rng.choice(list(CompressionType)))
        writer.start()
        schema = writer.register_schema(name="any", encoding="jsonschema", data=b"{}")
        channels = {n: writer.register_channel(topic=n, message_encoding="json", schema_id=schema)
                    for n in ("/flight", "/decision", EVIL)}  # fmt: skip
        for _, channel, message in make_reader(old).iter_messages(log_time_order=False):
            data = message.data
            if rng.random() < share:
                data = bend_text(rng, data)
            if rng.random() < 0.02:
                data = b" " * 2**25
            topic = channel.topic if rng.random() < 0.98 else EVIL
            writer.add_message(channels[topic], message.log_time, data, message.publish_time)
        writer.finish()


def explain_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """The whole command on a record that is none."""
    data = (stock / "flight.mcap").read_bytes()
    (folder / "own.mcap").write_bytes(data[: rng.randrange(600)] + rng.randbytes(rng.randrange(50)))
    return "explain", cli("explain", "own.mcap", *rng.choice([[], ["--json"], ["--out", "there"]]))


def ulog_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A PX4 log, bent as bytes, with times that jump, or with a format that promises much."""
    data = (stock / "flight.ulg").read_bytes()
    how = rng.randrange(4)
    if how == 0:
        at = data.index(struct.pack("<Q", 3_980_000))
        later = struct.pack("<Q", rng.choice([2**63, 3 * 10**13, 0, 4_000_000]))
        data = data[:at] + later + data[at + 8 :]
        data = data.replace(struct.pack("<Q", 3_980_000), later)
    elif how == 1:
        field = rng.choice([b"float[4] q", b"float[3] xyz", b"uint64_t timestamp"])
        other = rng.choice(
            [b"float[9] q", b"float[65535] q", b"char[4] q", b"vehicle_attitude[9] q", b"double q", b"x"]
        )
        data = data.replace(field, other[: len(field)].ljust(len(field)))
    elif how == 2:
        data = data.replace(
            struct.pack("<4f", 1, 0, 0, 0), struct.pack("<4f", *[rng.choice([0.0, math.nan, math.inf, 1e38])] * 4)
        )
    else:
        data = bend_bytes(rng, data)
    (folder / "own.ulg").write_bytes(data)
    return "ulog", cli("explain", "own.ulg", *rng.choice([[], ["--json"], ["--mass", rng.choice(NUMBERS)]]))


def observations_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """Own observations, bent as bytes or as numbers."""
    import numpy as np

    from awavo.assimilation.observation_files import read_observations
    from awavo.assimilation.observations import check_observations

    name = rng.choice(["own.npz", "own.npz", "own.parquet"])
    if name == "own.npz" and rng.random() < 0.5:
        odd = [
            np.zeros(0), np.zeros((0, 18)), np.full((6, 18), np.nan), np.full((6, 18), 1e308), np.array(["a"]),
            np.array([{}]),
            np.zeros((2, 2, 2)), np.zeros((6, 18), complex), np.zeros((6, 18), bool), np.zeros((1, 10**6), np.int8),
        ]  # fmt: skip
        np.savez_compressed(
            folder / name, **{rng.choice(["observed", "truth", EVIL]): rng.choice(odd), "observed": rng.choice(odd)}
        )
    else:
        (folder / name).write_bytes(bend_bytes(rng, (stock / name).read_bytes()))

    def read() -> None:
        observed = read_observations(Path(name)).observed
        check_observations(observed, observed.shape[-1:], 1.0)

    return f"observations {name}", refusing(read)


def manifest_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """An export whose manifest is bent; the program in it is good."""
    from awavo.deploy import export

    shutil.copytree(stock / "export", folder / "export")
    path = folder / "export" / "manifest.json"
    # Without its seal, as older versions wrote it: nothing else would be looked at.
    manifest = {name: value for name, value in json.loads(path.read_text()).items() if name != "seal"}
    path.write_bytes(bend_text(rng, json.dumps(manifest).encode()))

    def load() -> None:
        # Reading the program takes seconds and is tried by another kind of case.
        check, export.check_program = export.check_program, lambda content: "it is not read here"
        try:
            export.load_export("export")
        finally:
            export.check_program = check

    return "manifest", refusing(load)


def program_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """An export whose program is bent, with the right sum."""
    import hashlib

    from awavo.deploy.export import load_export
    from awavo.files import seal_of

    shutil.copytree(stock / "export", folder / "export")
    data = bytearray((folder / "export" / "actor.stablehlo").read_bytes())
    for _ in range(rng.choice([1, 3])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    (folder / "export" / "actor.stablehlo").write_bytes(bytes(data))
    manifest = json.loads((folder / "export" / "manifest.json").read_text())
    manifest["files"]["actor.stablehlo"]["sha256"] = hashlib.sha256(data).hexdigest()
    manifest["seal"] = seal_of(manifest)
    (folder / "export" / "manifest.json").write_text(json.dumps(manifest))
    return "program", refusing(lambda: load_export("export"))


def job_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """Result files of the paper's jobs with odd names and contents, asked what is left to do."""
    from awavo.paper.job import Job, missing_jobs

    job = Job("learning", "a", {"k": 1}, tuple(range(5)))
    seeds = rng.choice(
        ["0-4", "0-" + "9" * rng.choice([1, 12, 100]), "-1", "1_2_x", "3-1", "", "٣", "0x1", "1e9", "0-1-2"]
    )
    (folder / f"{job.family}-s{seeds}.json").write_bytes(
        bend_text(rng, b'{"rows": [{}], "job": {"figure": "learning"}}')
    )
    return f"jobs {seeds}", refusing(lambda: missing_jobs([job], Path(".")))


def frame_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A frame of the bridge, bent as bytes or in its header, answered to a step."""
    import numpy as np

    from awavo.tasks.bridge import BridgeBackend, _specify
    from awavo.tasks.bridge_worker import decode_frame, encode_frame
    from awavo.tasks.host_core import CostSource

    offer = {
        "obs_dim": 2,
        "action": {"kind": "box", "low": [-1.0], "high": [1.0]},
        "horizon": 5,
        "costs": {"cost": 0.0},
    }
    first = {"obs": np.zeros(2), "action": np.zeros(1), "next_obs": np.zeros(2)}
    answer = {"reward": 1.0, "terminated": False, "truncated": False, "costs": {"cost": 0.0}}
    arrays = {"obs": np.zeros(2), "final_obs": np.zeros(2)}
    making = rng.random() < 0.4
    header, body = (offer, first) if making else (answer, arrays)
    if not making and rng.random() < 0.3:
        body = {k: v + rng.choice([1, math.nan, math.inf]) for k, v in body.items()}
    data = encode_frame(header, body)
    size = int.from_bytes(data[:4], "little")
    if rng.random() < 0.7:
        text = json.dumps(bend_json(rng, json.loads(data[4 : 4 + size]))).encode()
        data = len(text).to_bytes(4, "little") + text + data[4 + size :]
    else:
        data = bend_bytes(rng, data)

    def ask() -> None:
        from awavo.errors import BrokenEnvironmentError

        place = 0

        def read(count: int) -> bytes:
            nonlocal place
            place += count
            if place > len(data):
                raise BrokenEnvironmentError("the bridged environment is gone")
            return data[place - count : place]

        try:
            found = decode_frame(read)
        except (ValueError, KeyError, TypeError) as error:  # as Worker.receive does
            raise BrokenEnvironmentError(f"a frame that cannot be read ({error})") from error
        worker = types.SimpleNamespace(
            send=lambda *_, **__: None, receive=lambda: found, refuse=BrokenEnvironmentError, close=lambda: None
        )
        if making:
            _specify("Env", *found, None, None, (1.0,))
        else:
            BridgeBackend([worker], CostSource(("cost",), ("cost",)), 2).step(np.zeros((1, 1), np.float32))

    return f"bridge {'make' if making else 'step'}", refusing(ask)


@functools.cache
def vehicle() -> tuple[Any, Any]:
    """A simulated vehicle, and the socket that it obeys."""
    import socket

    from awavo.deploy.vehicle import SimulatedVehicle

    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind(("127.0.0.1", 0))
    return SimulatedVehicle(ours.getsockname()[1]), ours


def mavlink_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """Datagrams for the vehicle and for the link: bent messages of any sender and target."""
    from pymavlink.dialects.v20 import common

    from awavo.deploy.radio import frame_systems

    mav = common.MAVLink(None, srcSystem=rng.choice([1, 1, 1, 2, 255]), srcComponent=rng.choice([1, 191]))
    target = rng.choice([(1, 1), (1, 0), (2, 1), (0, 0)])
    odd = [0.0, 1.0, math.nan, math.inf, -1e38, 1e38]
    packed = []
    for _ in range(3):
        message = rng.choice([
            lambda: mav.set_attitude_target_encode(0, *target, 128, rng.choices(odd, k=4), *rng.choices(odd, k=4)),
            lambda: mav.command_long_encode(*target, rng.choice([400, 176, 511, 512, 7]), 0, *rng.choices(odd, k=7)),
            lambda: mav.set_mode_encode(target[0], rng.randrange(256), rng.randrange(2**32)),
            lambda: mav.heartbeat_encode(rng.randrange(20), rng.randrange(20), rng.randrange(256), 0, 4),
        ])()  # fmt: skip
        data = message.pack(mav)
        packed.append(bend_bytes(rng, data) if rng.random() < 0.6 else data)

    def send() -> None:
        import numpy as np

        made, ours = vehicle()
        for data in packed:
            list(frame_systems(data))
            ours.sendto(data[:60_000], made.radio.port.getsockname())
        for _ in range(2):
            made.tick()
        assert np.isfinite(made.setpoint).all()
        assert np.isfinite(np.asarray(made.body.position)).all()

    return "mavlink", refusing(send)


def process_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A command as a process of its own, in a memory limit."""
    import resource

    shutil.copy(stock / "flight.ulg", folder / "own.ulg")
    commands = [
        ["train", "cartpole", "--dry-run", "--steps", rng.choice(NUMBERS) or "x"],
        ["train", "cartpole", "--out", "/dev/null/x"],
        ["train", "Pendulum-v1", "--cost-fn", rng.choice([".x:y", "os", "x:", ":y"])], ["evaluate", "x" * 300],
        ["certify", "operator", "power", "--kappa", rng.choice(["inf", "nan", "-1"])],
        ["explain", "own.ulg", "--mass", "nan"],
        ["infer", "lorenz96", "--states", str(10**12)], ["infer", "lorenz96", "--unobserved", "1e1000000000"],
        ["compare", "own.ulg"], ["report", EVIL], ["export", "own.ulg"], ["reproduce", "nothing"], [EVIL],
    ]  # fmt: skip
    command = rng.choice(commands)

    def run() -> int:
        limits = lambda: resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))  # noqa: E731
        done = subprocess.run(
            [sys.executable, "-m", "awavo.cli", *command], capture_output=True, text=True, preexec_fn=limits,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
        )  # fmt: skip
        sys.stderr.write(done.stderr)
        return done.returncode

    return f"process {command}", run


# Kinds of cases and how many of a hundred are of each.
def reference_case(rng: random.Random, stock: Path, folder: Path) -> Case:
    """A path to fly, as JSON or CSV, bent."""
    from awavo.tasks.quadrotor.flight_path import read_reference, reference_function

    points = [[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [2.0, 2.0, 1.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    timed = [[0.7 * i, *point] for i, point in enumerate(points)]
    if rng.random() < 0.6:
        good = rng.choice([{"waypoints": points, "speed": 1.5}, {"path": timed}])
        name, content = "reference.json", bend_text(rng, json.dumps(good).encode())
    else:
        head, rows = rng.choice([("x,y,z", points), ("t,x,y,z", timed), ("north,east,up", points)])
        text = "\n".join([head, *(",".join(map(str, row)) for row in rows)])
        name, content = "reference.csv", bend_bytes(rng, text.encode())
    (folder / name).write_bytes(content)
    return f"reference {name}", refusing(lambda: reference_function(read_reference(str(folder / name))))


KINDS: dict[Kind, float] = {
    options_case: 17, setting_case: 12, argument_case: 8, run_file_case: 8, loaded_case: 3, flight_case: 1.5,
    record_case: 11, explain_case: 2, ulog_case: 10, observations_case: 5, manifest_case: 4, program_case: 0.4,
    job_case: 2.6, frame_case: 8, mavlink_case: 6, process_case: 1.5, reference_case: 4,
}  # fmt: skip


# Those that need no more than `make_small_stock`, and no process.
QUICK = (options_case, setting_case, argument_case, ulog_case, observations_case, job_case, frame_case, reference_case)


def make_case(rng: random.Random, stock: Path, folder: Path, kinds: Collection[Kind] = tuple(KINDS)) -> Case:
    """The case of a random stream."""
    (maker,) = rng.choices(list(kinds), [KINDS[kind] for kind in kinds])
    return maker(rng, stock, folder)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    make_stock(Path(sys.argv[1]))
