r"""The decision record: an MCAP file with every input and outcome of every planned step.

Topic `/flight` holds one message: planner settings, the vehicle's numbers, the obstacles, provenance. Topic
`/decision` holds one message a step: key, state, force estimate with covariance, posterior particles (the nominal),
log-likelihoods of every coalition (the costs per factor), weights and action; a simulation adds what it alone knows.
Messages are JSON; arrays are a type, a shape and the bytes in base64, so that a decision can be made again bit by bit,
and nothing in a file is ever run. The file is written in small chunks: what was flushed before a crash can be read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from awavo.control.belief import Belief
from awavo.control.flight_planner import DecisionInputs
from awavo.control.planner_config import PlannerConfig, stored_planner
from awavo.errors import InputError, MissingExtraError
from awavo.explain.arrays import checked_array, pack_array, unpack_array
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["DecisionLog", "FlightLog", "LoggedDecision", "read_log", "require_mcap"]

# The second format names the planner's settings in one table; the first, with the model's apart, is still read.
FORMAT, READABLE = 2, (1, 2)
# Stated limits: bytes of a file and of what it unpacks to (that also as a multiple of its size), decisions, obstacles,
# notes on messages that cannot be read.
MAX_FILE, MAX_UNPACKED, MAX_RATIO = 2**29, 2**30, 64
BLOCK, MAX_WINDOW = 2**20, 2**27
MAX_DECISIONS, MAX_OBSTACLES, MAX_NOTES = 10**7, 4096, 20
POSITIVE = ("mass", "gravity", "thrust_coefficient", "thrust_max", "motor_time")
CHUNK_BYTES = 16 * 1024
FIELDS = ("log_likelihood", "weights", "action", "effective_size")


def _mcap() -> ModuleType:
    try:
        import mcap.exceptions
        import mcap.stream_reader
        import mcap.writer
    except ImportError as error:
        raise MissingExtraError("decision records need the extra 'log': pip install 'awavo[log]'.") from error
    return mcap


def require_mcap() -> None:
    """Refuse early where the extra is missing."""
    _mcap()


Arrays = Mapping[str, Array | np.ndarray]


class LoggedDecision(NamedTuple):
    """One step of a record: what the planner got, what came out, and what the simulation knows besides."""

    number: int
    inputs: DecisionInputs
    outcome: dict[str, np.ndarray]
    extra: dict[str, np.ndarray]


class FlightLog(NamedTuple):
    """A record as read: `missing` says in words what is not there."""

    about: dict[str, Any]
    config: PlannerConfig
    params: QuadrotorParams
    decisions: list[LoggedDecision]
    missing: list[str]


class DecisionLog:
    """Write a record; a context manager. `about` is free JSON: seed, task, command, commit."""

    def __init__(self, path: Path, config: PlannerConfig, params: QuadrotorParams, forest: Forest, about: Mapping):
        mcap = _mcap()
        self._file = Path(path).open("wb")  # noqa: SIM115
        self._writer = mcap.writer.Writer(self._file, chunk_size=CHUNK_BYTES)
        self._writer.start(profile="awavo", library="awavo")
        self._count = 0
        schemas = {
            name: self._writer.register_schema(name=f"awavo.{name}", encoding="jsonschema", data=b'{"type": "object"}')
            for name in ("flight", "decision")
        }
        self._channels = {
            name: self._writer.register_channel(topic=f"/{name}", message_encoding="json", schema_id=schema)
            for name, schema in schemas.items()
        }
        head = {
            "format": FORMAT,
            "config": config._asdict(),
            "params": {name: pack_array(np.asarray(value, np.float32)) for name, value in params._asdict().items()},
            "forest": {name: pack_array(column) for name, column in forest._asdict().items()},
            "about": dict(about),
        }
        self._write("flight", 0.0, 0, head)

    def _write(self, channel: str, time: float, index: int, content: Mapping[str, object]) -> None:
        data = json.dumps(content, allow_nan=False).encode()
        stamp = round(max(time, 0.0) * 1e9)
        self._writer.add_message(self._channels[channel], stamp, data, stamp, index)

    def add(self, inputs: DecisionInputs, outcome: Arrays, extra: Arrays | None = None) -> None:
        """Log one decision; `inputs.key` is a jax key, `outcome` holds the fields of a decision named in FIELDS."""
        import jax

        arrays = {
            "key": jax.random.key_data(inputs.key),
            **{f"body_{name}": value for name, value in inputs.body._asdict().items()},
            "time": inputs.time,
            "belief_mean": inputs.belief.mean,
            "belief_covariance": inputs.belief.covariance,
            "particles": inputs.particles,
            **{f"out_{name}": outcome[name] for name in FIELDS},
            **{f"extra_{name}": value for name, value in (extra or {}).items()},
        }
        packed = {name: pack_array(value) for name, value in jax.device_get(arrays).items()}
        self._write("decision", float(inputs.time), self._count, {"index": self._count, **packed})
        self._count += 1

    def close(self) -> None:
        """Finish the file."""
        self._writer.finish()
        self._file.close()

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _messages(path: Path, missing: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield topic and content of every message up to the end or to the first damage, which is then noted."""
    mcap = _mcap()
    from mcap.records import Channel, Chunk, DataEnd, Message

    topics: dict[int, str] = {}
    ended = False
    # From memory: a record that claims to be longer than the file ends with it, and nothing is allocated for it.
    reader = mcap.stream_reader.StreamReader(io.BytesIO(path.read_bytes()), emit_chunks=True, record_size_limit=None)
    records, left = iter(reader.records), min(MAX_RATIO * path.stat().st_size + 2**20, MAX_UNPACKED)
    while True:
        try:
            record = next(records)
            parts = [record]
            if isinstance(record, Chunk):
                content = _unpack(record, left)
                left -= len(content)
                parts = mcap.stream_reader.breakup_chunk(replace(record, compression="", data=content))
            for part in parts:
                if isinstance(part, Channel):
                    topics[part.id] = part.topic
                elif isinstance(part, Message) and part.channel_id in topics:
                    yield topics[part.channel_id], json.loads(part.data)
                elif isinstance(part, DataEnd):
                    ended = True
        except StopIteration:
            break
        except Exception as error:  # the reader fails in many ways on a torn file: struct, decompression, its own
            what = str(error) if isinstance(error, InputError) else type(error).__name__
            missing.append(f"the file is damaged or was cut off ({what})")
            return
    if not ended:
        missing.append("the file was not finished: it ends without its closing record")


def _unpack(chunk: Any, left: int) -> bytes:
    """The content of a chunk, of which no more than `left` bytes are unpacked whatever it claims."""
    if chunk.compression == "":
        return chunk.data
    content = bytearray()
    for block in _blocks(chunk):
        content += block
        if len(content) > left:
            raise InputError(f"it unpacks to more than {MAX_RATIO} times its size, or than {MAX_UNPACKED:,} bytes")
    return bytes(content)


def _blocks(chunk: Any) -> Iterator[bytes]:
    """Unpack a chunk piece by piece."""
    if chunk.compression == "zstd":
        import zstandard

        stream = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(chunk.data)
        while block := stream.read(BLOCK):
            yield block
    elif chunk.compression == "lz4":
        import lz4.frame

        unpacker = lz4.frame.LZ4FrameDecompressor()
        yield unpacker.decompress(chunk.data, max_length=BLOCK)
        while not unpacker.eof and not unpacker.needs_input:
            yield unpacker.decompress(b"", max_length=BLOCK)
    else:
        raise InputError("its compression is none of zstd, lz4")


def _checked_head(content: Any) -> tuple[dict[str, Any], PlannerConfig, QuadrotorParams, Forest]:
    """The parts of the first message, each of its type, shape and range."""
    about = content["about"]
    if not isinstance(about, dict):
        raise ValueError("what it is about is no table")
    numbers: dict[str, Any] = {name: checked_array(name, value, ()) for name, value in content["params"].items()}
    columns = {name: unpack_array(value) for name, value in content["forest"].items()}
    count = len(columns["x"]) if columns["x"].ndim == 1 else -1
    if not 0 <= count <= MAX_OBSTACLES:
        raise ValueError(f"obstacles of shape {list(columns['x'].shape)}, expected a list of at most {MAX_OBSTACLES}")
    forest: dict[str, Any] = {name: checked_array(name, content["forest"][name], (count,)) for name in columns}
    plain = {name: value[()] for name, value in numbers.items()}
    if not all(plain[name] > 0 for name in POSITIVE):
        raise ValueError(f"{', '.join(POSITIVE)} must be above 0")
    return about, stored_planner(content["config"]), QuadrotorParams(**plain), Forest(**forest)


def _decision(content: Any, forest: Forest, config: PlannerConfig) -> LoggedDecision:
    import jax

    number = content["index"]
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MAX_DECISIONS:
        raise ValueError(f"its number is not in 0 .. {MAX_DECISIONS - 1}")
    # Numpy arrays stand for jax's here: a decision is made again from exactly these bytes.
    shapes: dict[str, tuple[int, ...]]
    shapes = {f"body_{name}": (3 if name in ("position", "velocity", "rates") else 4,) for name in Body._fields}
    shapes |= {"time": (), "belief_mean": (5,), "belief_covariance": (5, 5)}
    shapes["particles"] = (config.num_particles, 3 * config.num_knots + 3)
    arrays: dict[str, Any] = {name: checked_array(name, content[name], shape) for name, shape in shapes.items()}
    if not 0.5 < np.linalg.norm(arrays["body_attitude"]) < 2:
        raise ValueError("its attitude is no rotation")
    if not (np.diagonal(arrays["belief_covariance"]) >= 0).all():
        raise ValueError("its covariance is negative")
    key: Any = checked_array("key", content["key"], (2,), "uint32")
    out_shapes = {"log_likelihood": (4, config.num_candidates), "weights": (4, config.num_candidates)}
    out_shapes |= {"action": (4,), "effective_size": ()}
    # What came out may be NaN; it is compared bit by bit, and drawn.
    outcome = {n: checked_array(n, content[f"out_{n}"], out_shapes[n], finite=False) for n in FIELDS}
    extra = {n.removeprefix("extra_"): unpack_array(v) for n, v in content.items() if n.startswith("extra_")}
    for name in {"error", "clearance", "hit"} & set(extra):
        if extra[name].shape != ():
            raise ValueError(f"{name} has shape {list(extra[name].shape)}, expected one number")
    body = Body(*(arrays[f"body_{name}"] for name in Body._fields))
    belief = Belief(arrays["belief_mean"], arrays["belief_covariance"])
    inputs = DecisionInputs(jax.random.wrap_key_data(key), body, arrays["time"], belief, arrays["particles"], forest)
    return LoggedDecision(number, inputs, outcome, extra)


def read_log(path: str | Path) -> FlightLog:
    """Read a record, or as much of it as there is; refuse a file that is none."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"'{path}': there is no such file.")
    if path.stat().st_size > MAX_FILE:
        raise InputError(f"'{path}' has {path.stat().st_size:,} bytes, at most {MAX_FILE:,} are read: cut it.")
    missing: list[str] = []
    head: tuple[dict, PlannerConfig, QuadrotorParams, Forest] | None = None
    decisions: list[LoggedDecision] = []
    for topic, content in _messages(path, missing):
        try:
            if topic == "/flight":
                if content["format"] not in READABLE:
                    raise InputError(f"'{path}' has record format {content['format']}, expected {FORMAT}.")
                head = _checked_head(content)
            elif topic == "/decision" and head is not None:
                decisions.append(_decision(content, head[3], head[1]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, InputError) and topic == "/flight":
                raise
            if len(missing) < MAX_NOTES:
                missing.append(f"a message of {topic} cannot be read ({error})")
    if head is None:
        reason = f" ({missing[0]})" if missing else ""
        raise InputError(f"'{path}' is not a decision record of awavo{reason}.")
    if not decisions:
        raise InputError(f"'{path}' holds no decision ({missing[0] if missing else 'it is empty'}).")
    missing += _gaps([d.number for d in decisions], head[0])
    return FlightLog(head[0], head[1], head[2], decisions, missing)


def _gaps(indices: list[int], about: Mapping[str, object]) -> list[str]:
    """Say which decisions are not there, by their numbers."""
    planned = about.get("steps")
    known = sorted(set(indices))
    count = planned if isinstance(planned, int) and known[-1] < planned <= MAX_DECISIONS else known[-1] + 1
    # A gap lies between two neighbours that are there; the ends count as there.
    edges = zip([-1, *known], [*known, count], strict=True)
    gaps = [(a + 1, b - 1) for a, b in edges if b - a > 1]
    if not gaps:
        return []
    named = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in gaps[:5])
    return [f"decisions {named} of {count} are missing"]
