"""Fly a reference or a flight task over MAVLink with the planner, and record every decision as it is made.

The loop is the planner's: report, belief, decision, plan for the next ticks; the link's own thread keeps the stream.
Everything is compiled before the vehicle is asked to move. The record is the one that `awavo explain` reads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from awavo.checks import LARGEST_SEED, check_range
from awavo.control.belief import start_belief, take_in
from awavo.control.flight_planner import DEFAULT, DecisionInputs, FlightPlan, flight_planner, start_particles
from awavo.control.flight_policy import tick_plan
from awavo.control.planner_config import PlannerConfig
from awavo.deploy.estimate import Estimator
from awavo.deploy.mavlink import LinkConfig, Measured, OffboardLink, VehicleState
from awavo.errors import InputError
from awavo.explain.mcap_file import require_mcap
from awavo.explain.record import DecisionLog
from awavo.explain.recording import decide_compiled
from awavo.explain.simulation import flight_params, flight_steps
from awavo.files import require_writable
from awavo.provenance import stamp
from awavo.runs.progress import Doing, doing
from awavo.tasks.quadrotor.flight import FLIGHT_TASKS
from awavo.tasks.quadrotor.flight_path import (
    FIGURE_OF_EIGHT,
    Reference,
    path_through,
    read_reference,
    reference_function,
)
from awavo.tasks.quadrotor.forest import Forest
from awavo.tasks.quadrotor.params import QuadrotorParams

__all__ = ["Flown", "fly_over_link", "reference_of"]

LONGEST_S, FARTHEST_START = 3600.0, 3.0


class Flown(NamedTuple):
    """How a flight over the link went; `ended` is None where it was flown to its end."""

    decisions: int
    seconds: float
    sent_hz: float
    decided_hz: float
    held_share: float
    tracking_rms_m: float
    ended: str | None
    record: str | None


def reference_of(target: str, speed: float = 1.5) -> Reference:
    """Return the reference of a task, a name, a JSON or CSV file, or of the path in a decision record."""
    if target in FLIGHT_TASKS:
        return FIGURE_OF_EIGHT
    if Path(target).suffix == ".mcap":
        from awavo.explain.record import read_log

        decisions = read_log(target).decisions
        times = np.array([float(d.inputs.time) for d in decisions])
        return path_through(times, np.array([d.inputs.body.position for d in decisions]))
    return read_reference(target, speed)


class _Planner(NamedTuple):
    """The compiled parts of the loop, and the vehicle they are for."""

    params: QuadrotorParams
    forest: Forest
    learn: Callable[..., Any]
    decide: Callable[..., Any]
    ahead: Callable[..., Any]


def _planner(target: str, reference: Reference, seed: int, config: PlannerConfig, link: LinkConfig) -> _Planner:
    task = target if target in FLIGHT_TASKS else "FT0"
    params = flight_params(task, mass=link.mass, thrust_max=link.thrust_max, motor_time=link.motor_s)
    wanted = reference_function(reference)
    forest: Forest = jax.device_get(flight_steps(reference)[0](jax.random.key(seed), params).forest)

    def ahead(inputs: DecisionInputs, weights, candidates, params):
        """The model's commands along the mean decision, should the next one be late."""
        model = flight_planner(params, wanted, config).model
        near = model.near_path(inputs.forest, inputs.time)
        mean = (weights[-1] @ candidates)[None]
        return model.imagine(inputs.body, inputs.time, inputs.belief.mean[:, None], mean, near).commands[:, :, 0, 0]

    return _Planner(params, forest, jax.jit(take_in), decide_compiled(config, reference), jax.jit(ahead))


class _Loop:
    """What the loop carries from one decision to the next."""

    def __init__(self, planner: _Planner, reference: Reference, config: PlannerConfig, seed: int, period: float):
        self.planner, self.config, self.period = planner, config, period
        self.estimator = Estimator(planner.params, planner.forest, reference_function(reference))
        self.belief, self.particles, self.key = start_belief(), start_particles(config), jax.random.key(seed)
        self.count, self.last = 0, None

    def step(self, seen: VehicleState, measured: Measured | None, now: float) -> tuple[np.ndarray, DecisionInputs, Any]:
        """Decide on a report: the commands of the next ticks, what the decision rests on, and the decision.

        Where nothing new was measured the belief waits, and the next measurement stands for the whole time.
        """
        planner = self.planner
        state = self.estimator.update(seen, measured, now)
        if measured is not None:
            dt = np.float32(np.clip(now - (now - 0.02 if self.last is None else self.last), 1e-3, 0.5))
            self.belief, self.last = planner.learn(self.belief, state, planner.params, jnp.asarray(dt)), now
        key = jax.random.fold_in(self.key, self.count)
        inputs = DecisionInputs(key, state.body, state.time, self.belief, self.particles, state.forest)
        decision = planner.decide(inputs, planner.params)
        ahead = planner.ahead(inputs, decision.weights, decision.candidates, planner.params)
        plan = FlightPlan(decision.action, decision.particles, ahead, decision.effective_size)
        self.particles, self.count = decision.particles, self.count + 1
        return tick_plan(plan, self.config.dt, self.period), inputs, decision


def _warm_up(loop: _Loop, place: np.ndarray) -> None:
    """Compile every program of the loop, on a vehicle that hovers."""
    still = VehicleState(place, np.zeros(3), np.array([1.0, 0, 0, 0]), np.zeros(3), 0.0)
    for felt in (np.array([0.0, 0.0, 9.81]), None):
        jax.block_until_ready(loop.step(still, Measured(felt, 9.81), 0.0)[0])


def fly_over_link(
    target: str,
    link: LinkConfig,
    *,
    seconds: float = 20.0,
    record: Path | None = None,
    seed: int = 0,
    speed: float = 1.5,
    here: bool = False,
    config: PlannerConfig | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Flown:
    """Fly a task (FT0 to FT3), a reference by name or a file of one over the link; then the vehicle holds its place.

    Args:
        target: FT0 to FT3, lissajous, circle, snap, a JSON or CSV file, or a record whose path is flown again.
        link: The vehicle.
        seconds: Length of the flight.
        record: File for the decision record (.mcap).
        seed: Seed of the planner's draws, and of a task's obstacles.
        speed: Speed along waypoints, m/s.
        here: Move the reference so that it starts where the vehicle is.
        config: Settings of the planner (default: those that the intervals were calibrated for).
        on_progress: Called with where the vehicle is; how far the flight is stands on stderr.
    """
    check_range("--seconds", seconds, 1, LONGEST_S)
    check_range("--seed", seed, 0, LARGEST_SEED)
    reference, config = reference_of(target, speed), config or DEFAULT
    if record is not None:
        require_mcap()
        require_writable(record.parent)
        if record.exists():
            raise InputError(f"'{record}' is there already: give a new file with --record.")
    say = on_progress or (lambda line: None)
    with doing(f"waiting for the vehicle on {link.url}"):
        radio = OffboardLink(link)
    try:
        place = _place(radio, link)
        reference = _start_near(reference, place, here)
        say(f"vehicle at {_triple(place)}")
        period = 1 / link.rate_hz
        with doing("preparing the planner; the vehicle waits"):
            planner = _planner(target, reference, seed, config, link)
            _warm_up(_Loop(planner, reference, config, seed, period), place)
        about = {
            "task": target, "seed": seed, "link": link.url, "simulated": False, "rate_hz": link.rate_hz, **stamp(),
        }  # fmt: skip
        with contextlib.ExitStack() as stack:
            log = None
            if record is not None:
                log = stack.enter_context(
                    DecisionLog(record, config, planner.params, planner.forest, about, reference)
                )  # fmt: skip
            loop = _Loop(planner, reference, config, seed, period)
            with doing("flying", seconds, "s") as work:
                found = _fly(radio, loop, reference, seconds, log, work)
            return found._replace(record=None if record is None else str(record))
    finally:
        radio.close()


def _triple(place: np.ndarray) -> str:
    return f"{place[0]:.1f} m north, {-place[1]:.1f} m east, {place[2]:.1f} m up"


def _place(radio: OffboardLink, link: LinkConfig) -> np.ndarray:
    """Where the vehicle is, once it says so."""
    end = time.monotonic() + link.connect_s
    while (seen := radio.state()) is None:
        if time.monotonic() > end:
            raise InputError("the vehicle sends no attitude and local position: check its stream rates.")
        time.sleep(0.01)
    return seen.position


def _start_near(reference: Reference, place: np.ndarray, here: bool) -> Reference:
    """Return the reference, moved to the vehicle where asked; refuse one that starts far from it."""
    if not np.isfinite(place).all():
        raise InputError("the vehicle does not say where it is (nan): start when its estimator has a position.")
    start = np.asarray(reference_function(reference)(jnp.zeros(()), QuadrotorParams()).position, float)
    if here:
        return reference._replace(offset=tuple(float(x) for x in place - start))
    gap = float(np.linalg.norm(start - place))
    if gap > FARTHEST_START:
        raise InputError(
            f"the reference starts {gap:.1f} m from the vehicle, at {_triple(start)}: fly there first, or move the "
            "reference to the vehicle with --here."
        )
    return reference


def _fly(
    radio: OffboardLink, loop: _Loop, reference: Reference, seconds: float, log: DecisionLog | None, work: Doing
) -> Flown:
    wanted = jax.jit(lambda t: reference_function(reference)(t, loop.planner.params).position)
    jax.block_until_ready(wanted(jnp.float32(0)))
    radio.measured()
    radio.start()
    began, errors, due = time.monotonic(), [], time.monotonic()
    work.time_from_here()
    sent, held = radio.sent, radio.held
    while (now := time.monotonic() - began) < seconds and radio.ended is None:
        seen = radio.state()
        assert seen is not None, "start waits for the first report"
        commands, inputs, decision = loop.step(seen, radio.measured(), now)
        radio.submit(list(commands))
        error = float(np.linalg.norm(np.asarray(wanted(inputs.time)) - seen.position))
        errors.append(error)
        if log is not None:
            extra = {"error": np.array(error, np.float32), "age": np.array(seen.age_s, np.float32)}
            log.add(inputs, decision._asdict(), extra)
        work.done, work.details = now, [(f"{error:.2f} m from the reference", "")]
        due = max(due + loop.config.period, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    length = time.monotonic() - began
    sent, held = radio.sent - sent, radio.held - held
    ended = radio.ended
    radio.kill("flown to the end")
    rms = float(np.sqrt(np.mean(np.square(errors)))) if errors else float("nan")
    return Flown(len(errors), length, sent / length, len(errors) / length, held / max(sent, 1), rms, ended, None)
