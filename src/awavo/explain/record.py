r"""The decision record: an MCAP file with every input and outcome of every planned step.

Topic `/flight` holds one message: planner settings, the vehicle's numbers, the obstacles, provenance. Topic
`/decision` holds one message a step: key, state, force estimate with covariance, posterior particles (the nominal),
log-likelihoods of every coalition (the costs per factor), weights and action; a simulation adds what it alone knows.
Messages are JSON; arrays are a type, a shape and the bytes in base64, so that a decision can be made again bit by bit,
and nothing in a file is ever run. The file is written in small chunks: what was flushed before a crash can be read.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from awavo.control.belief import Belief
from awavo.control.flight_planner import DecisionInputs
from awavo.control.planner_config import PlannerConfig, stored_planner
from awavo.errors import InputError, MissingExtraError
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = [
    "DecisionLog", "FlightLog", "LoggedDecision", "MAX_BYTES", "pack_array", "read_log", "require_mcap", "unpack_array",
]  # fmt: skip

# The second format names the planner's settings in one table; the first, with the model's apart, is still read.
FORMAT, READABLE = 2, (1, 2)
CHUNK_BYTES = 16 * 1024
FIELDS = ("log_likelihood", "weights", "action", "effective_size")
DTYPES = ("float32", "float64", "int32", "uint32", "bool")
MAX_BYTES = 64 * 2**20


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
    from mcap.records import Channel, DataEnd, Message

    topics: dict[int, str] = {}
    ended = False
    with path.open("rb") as file:
        records = iter(mcap.stream_reader.StreamReader(file, record_size_limit=256 * 2**20).records)
        while True:
            try:
                record = next(records)
                if isinstance(record, Channel):
                    topics[record.id] = record.topic
                elif isinstance(record, Message) and record.channel_id in topics:
                    yield topics[record.channel_id], json.loads(record.data)
                elif isinstance(record, DataEnd):
                    ended = True
            except StopIteration:
                break
            except Exception as error:  # the reader fails in many ways on a torn file: struct, decompression, its own
                missing.append(f"the file is damaged or was cut off ({type(error).__name__})")
                return
    if not ended:
        missing.append("the file was not finished: it ends without its closing record")


def _decision(content: Mapping[str, Any], forest: Forest) -> LoggedDecision:
    import jax

    # Numpy arrays stand for jax's here: a decision is made again from exactly these bytes.
    arrays: dict[str, Any] = {name: unpack_array(value) for name, value in content.items() if name != "index"}
    body = Body(*(arrays[f"body_{name}"] for name in Body._fields))
    belief = Belief(arrays["belief_mean"], arrays["belief_covariance"])
    key = jax.random.wrap_key_data(arrays["key"])
    inputs = DecisionInputs(key, body, arrays["time"], belief, arrays["particles"], forest)
    pick = {p: {n.removeprefix(p): a for n, a in arrays.items() if n.startswith(p)} for p in ("out_", "extra_")}
    if set(FIELDS) - set(pick["out_"]):
        raise KeyError("an outcome is missing")
    return LoggedDecision(int(content["index"]), inputs, pick["out_"], pick["extra_"])


def read_log(path: str | Path) -> FlightLog:
    """Read a record, or as much of it as there is; refuse a file that is none."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"'{path}': there is no such file.")
    missing: list[str] = []
    head: tuple[dict, PlannerConfig, QuadrotorParams, Forest] | None = None
    decisions: list[LoggedDecision] = []
    for topic, content in _messages(path, missing):
        try:
            if topic == "/flight":
                if content["format"] not in READABLE:
                    raise InputError(f"'{path}' has record format {content['format']}, expected {FORMAT}.")
                numbers: dict[str, Any] = {k: unpack_array(v)[()] for k, v in content["params"].items()}
                columns: dict[str, Any] = {name: unpack_array(v) for name, v in content["forest"].items()}
                params, forest = QuadrotorParams(**numbers), Forest(**columns)
                head = (content["about"], stored_planner(content["config"]), params, forest)
            elif topic == "/decision" and head is not None:
                decisions.append(_decision(content, head[3]))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError) and topic == "/flight":
                raise
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
    known = set(indices)
    last = planned - 1 if isinstance(planned, int) and 0 < planned < 10**7 else max(known)
    absent = [i for i in range(last + 1) if i not in known]
    if not absent:
        return []
    runs: list[list[int]] = []
    for i in absent:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    named = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs[:5])
    return [f"decisions {named} of {last + 1} are missing"]


def pack_array(array: ArrayLike) -> dict[str, object]:
    """Return a JSON object that holds the array."""
    values = np.asarray(array)
    if values.dtype.name not in DTYPES:
        raise InputError(f"an array of {values.dtype} cannot be logged: expected one of {', '.join(DTYPES)}.")
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False)).tobytes()
    return {"dtype": values.dtype.name, "shape": list(values.shape), "data": base64.b64encode(data).decode()}


def unpack_array(packed: Any) -> np.ndarray:
    """Return the array of `pack_array`, or refuse what is none."""
    try:
        dtype, shape, data = packed["dtype"], packed["shape"], base64.b64decode(packed["data"], validate=True)
        if dtype not in DTYPES or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError(f"dtype {dtype!r}, shape {shape!r}")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size != len(data) or size > MAX_BYTES:
            raise ValueError(f"{len(data)} bytes for shape {shape!r}")
    except (TypeError, KeyError, ValueError, binascii.Error) as error:
        raise InputError(f"an array of the log cannot be read ({error}).") from error
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape).astype(dtype)
