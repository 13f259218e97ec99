r"""The decision record: an MCAP file with every input and outcome of every planned step.

Topic `/flight` holds one message: planner settings, reference, the vehicle's numbers, obstacles, provenance. Topic
`/decision` holds one message a step: key, state, force estimate with covariance, posterior particles (the nominal),
log-likelihoods of every coalition (the costs per factor), weights and action; a simulation adds what it alone knows, a
flight over the link how old its state was.
Messages are JSON; arrays are a type, a shape and the bytes in base64, so that a decision can be made again bit by bit,
and nothing in a file is ever run. The file is written in small chunks: what came before a crash can be
read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from awavo.control.belief import Belief, Watch
from awavo.control.flight_planner import DecisionInputs
from awavo.control.planner_config import PlannerConfig, stored_planner
from awavo.errors import InputError
from awavo.explain.arrays import checked_array, pack_array, unpack_array
from awavo.explain.mcap_file import messages, open_mcap
from awavo.tasks.quadrotor.body import Body
from awavo.tasks.quadrotor.flight_path import FIGURE_OF_EIGHT, Reference, stored_reference
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.types import Fields

__all__ = ["DecisionLog", "FlightLog", "LoggedDecision", "read_log"]

# The second format names the planner's settings in one table, the third the reference and how the filter watches
# itself; older ones, flown on the figure of eight, are still read.
FORMAT, READABLE = 3, (1, 2, 3)
# Stated limits: bytes of a file, decisions, obstacles, notes on messages that cannot be read.
MAX_FILE = 2**29
MAX_DECISIONS, MAX_OBSTACLES, MAX_NOTES = 10**7, 4096, 20
POSITIVE = ("mass", "gravity", "thrust_coefficient", "thrust_max", "motor_time")
CHUNK_BYTES = 16 * 1024
FIELDS = ("log_likelihood", "weights", "action", "effective_size")


Arrays = Mapping[str, Array | np.ndarray]


class LoggedDecision(NamedTuple):
    """One step of a record: what the planner got, what came out, and what the simulation knows besides."""

    number: int
    inputs: DecisionInputs
    outcome: dict[str, np.ndarray]
    extra: dict[str, np.ndarray]


class FlightLog(NamedTuple):
    """A record as read: `missing` says in words what is not there."""

    about: Fields
    config: PlannerConfig
    params: QuadrotorParams
    decisions: list[LoggedDecision]
    missing: list[str]
    reference: Reference = FIGURE_OF_EIGHT


class DecisionLog:
    """Write a record; a context manager. `about` is free JSON: seed, task, command, commit."""

    def __init__(
        self,
        path: Path,
        config: PlannerConfig,
        params: QuadrotorParams,
        forest: Forest,
        about: Mapping,
        reference: Reference = FIGURE_OF_EIGHT,
    ):
        mcap = open_mcap()
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
            "reference": reference._asdict(),
            "params": {name: pack_array(np.asarray(value, np.float32)) for name, value in params._asdict().items()},
            "forest": {name: pack_array(column) for name, column in forest._asdict().items()},
            "about": dict(about),
        }
        self._write("flight", 0.0, 0, head)

    def _write(self, channel: str, time: float, index: int, content: Mapping[str, object]) -> None:
        data = json.dumps(content, allow_nan=False).encode()
        stamp = round(max(time, 0.0) * 1e9)
        self._writer.add_message(self._channels[channel], stamp, data, stamp, index)
        self._file.flush()

    def add(self, inputs: DecisionInputs, outcome: Arrays, extra: Arrays | None = None) -> None:
        """Log one decision; `inputs.key` is a jax key, `outcome` holds the fields of a decision named in FIELDS."""
        import jax

        arrays = {
            "key": jax.random.key_data(inputs.key),
            **{f"body_{name}": value for name, value in inputs.body._asdict().items()},
            "time": inputs.time,
            "belief_mean": inputs.belief.mean,
            "belief_covariance": inputs.belief.covariance,
            **{f"watch_{name}": value for name, value in inputs.belief.watch._asdict().items()},
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


Head = tuple[Fields, PlannerConfig, QuadrotorParams, Forest, Reference]


def _checked_head(content: Fields) -> Head:
    """The parts of the first message, each of its type, shape and range."""
    about = content["about"]
    if not isinstance(about, dict):
        raise ValueError("what it is about is no table")
    numbers: Fields = {name: checked_array(name, value, ()) for name, value in content["params"].items()}
    columns = {name: unpack_array(value) for name, value in content["forest"].items()}
    count = len(columns["x"]) if columns["x"].ndim == 1 else -1
    if not 0 <= count <= MAX_OBSTACLES:
        raise ValueError(f"obstacles of shape {list(columns['x'].shape)}, expected a list of at most {MAX_OBSTACLES}")
    forest: Fields = {name: checked_array(name, content["forest"][name], (count,)) for name in columns}
    plain = {name: value[()] for name, value in numbers.items()}
    if not all(plain[name] > 0 for name in POSITIVE):
        raise ValueError(f"{', '.join(POSITIVE)} must be above 0")
    settings = stored_planner(content["config"]), QuadrotorParams(**plain), Forest(**forest)
    return about, *settings, stored_reference(content.get("reference"))


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
    arrays: Fields = {name: checked_array(name, content[name], shape) for name, shape in shapes.items()}
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
    watch = Watch()
    if "watch_noise" in content:
        watch = Watch(*(checked_array(n, content[f"watch_{n}"], np.shape(x)) for n, x in watch._asdict().items()))
    belief = Belief(arrays["belief_mean"], arrays["belief_covariance"], watch)
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
    head: Head | None = None
    decisions: list[LoggedDecision] = []
    for topic, content in messages(path, missing):
        try:
            if topic == "/flight":
                if content["format"] not in READABLE:
                    raise InputError(f"'{path}' has record format {content['format']}, expected {FORMAT}.")
                if head is not None:
                    raise InputError(f"'{path}' holds more than one flight: explain each record by itself.")
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
    if not _in_order(decisions):
        raise InputError(f"'{path}': the numbers or times of its decisions do not grow: the record is damaged.")
    missing += _gaps([d.number for d in decisions], head[0])
    return FlightLog(head[0], head[1], head[2], decisions, missing, head[4])


def _in_order(decisions: list[LoggedDecision]) -> bool:
    """Say whether every decision is later than the one before: who looks back on a flight needs its steps."""
    rows = np.array([(d.number, float(d.inputs.time)) for d in decisions])
    return bool((np.diff(rows, axis=0) > 0).all())


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
