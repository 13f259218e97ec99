"""MAVLink loopback: the offboard link against our quadrotor, which speaks MAVLink in a process of its own.

    PYTHONPATH=src python benchmarks/robots/loopback.py [--seconds 60] [--out benchmarks/robots/results/loopback.json]

Streams body rates and thrust at 100 Hz while tracking a circle, then stalls the policy, then cuts the link and restores
it, and says what the vehicle did. Needs the extras `px4` and `px4-sim`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np

from awavo.control.tracking import Gains, track
from awavo.deploy.mavlink import LinkConfig, OffboardLink
from awavo.provenance import command_line, device_info, source_commit, versions
from awavo.tasks.quadrotor.params import QuadrotorParams
from awavo.tasks.quadrotor.references import circle


class Vehicle:
    """The simulated vehicle's process and its standard input and output."""

    def __init__(self, port: int):
        command = [sys.executable, "-m", "awavo.deploy.vehicle", "--port", str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert json.loads(self.process.stdout.readline())["ready"]

    def say(self, word: str) -> None:
        """Send a command."""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def status(self) -> dict:
        """Ask for the state."""
        self.say("status")
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self.say("quit")
        self.process.wait(10)


class Pauses(threading.Thread):
    """Measures how long this machine lets a process wait that asked for 5 ms.

    Beyond a fifth of a second no link can be judged that must answer within half a second.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.longest_s, self._done = 0.0, threading.Event()

    def run(self) -> None:
        """Sleep and look at the clock until stopped."""
        last = time.monotonic()
        while not self._done.wait(0.005):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now

    def stop(self) -> float:
        """End and return the longest pause."""
        self._done.set()
        self.join()
        return self.longest_s


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


PARAMS = QuadrotorParams(reference_y=1.0, reference_rate=0.5)


@jax.jit
def policy(position, velocity, attitude, time):
    wanted = circle(time, PARAMS)
    wanted = wanted._replace(position=wanted.position - jnp.array([PARAMS.reference_y, 0.0, 0.0]))
    return track(position, velocity, attitude, wanted, jnp.zeros(3), 9.81, Gains()), wanted.position


def fly(link: OffboardLink, seconds: float, began: float) -> list[float]:
    """Track the circle, one decision a tick; return position errors."""
    errors = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and link.ended is None:
        state = link.state()
        now = jnp.float32(time.monotonic() - began)
        arrays = [jnp.asarray(x, jnp.float32) for x in state[:3]]
        action, wanted = policy(*arrays, now)
        link.submit([np.asarray(action)] * 5)
        errors.append(float(np.linalg.norm(np.asarray(wanted) - state.position)))
        time.sleep(0.01)
    return errors


def run(seconds: float) -> dict:
    port = free_port()
    vehicle = Vehicle(port)
    policy(jnp.zeros(3), jnp.zeros(3), jnp.array([1.0, 0, 0, 0]), jnp.float32(0))
    config = LinkConfig(url=f"udpin://127.0.0.1:{port}")
    found: dict = {}
    pauses = Pauses()
    pauses.start()
    try:
        begin = time.monotonic()
        link = OffboardLink(config)
        found["connect_s"] = time.monotonic() - begin
        link.start()
        before = vehicle.status()
        began = time.monotonic()
        errors = fly(link, seconds, began)
        after = vehicle.status()
        gaps = np.array(after["intervals_ms"][-int(90 * seconds) :])
        found["stream"] = {
            "seconds": seconds,
            "received_hz": (after["setpoints"] - before["setpoints"]) / (after["time"] - before["time"]),
            "interval_ms": {q: float(np.percentile(gaps, q)) for q in (1, 50, 99, 100)},
            "call_us": {q: 1e6 * float(np.percentile(link.call_s, q)) for q in (50, 99, 100)},
            "rms_error_m": float(np.sqrt(np.mean(np.square(errors[len(errors) // 4 :])))) if errors else None,
            "ended": link.ended,
            "mode": after["mode"],
        }
        time.sleep(config.hold_s + 1.0)
        found["stall"] = {"ended": link.ended, "mode": vehicle.status()["mode"]}
        count = vehicle.status()["setpoints"]
        time.sleep(0.5)
        found["stall"]["setpoints_after_the_end"] = vehicle.status()["setpoints"] - count
        link.close()

        link = OffboardLink(config)
        link.start()
        fly(link, 2.0, time.monotonic())
        vehicle.say("cut")
        fly(link, 2.0, began)
        time.sleep(1.5)
        cut = {"ended": link.ended, "mode": vehicle.status()["mode"]}
        vehicle.say("restore")
        link.close()
        link = OffboardLink(config)
        link.start()
        fly(link, 2.0, time.monotonic())
        found["link_cut"] = {**cut, "after_restoring": vehicle.status()["mode"]}
        link.kill()
        time.sleep(0.3)
        count = vehicle.status()["setpoints"]
        time.sleep(1.0)
        last = vehicle.status()
        found["kill"] = {
            "mode": last["mode"],
            "setpoints_after": last["setpoints"] - count,
            "upright": last["upright"],
            "height_m": last["position"][2],
        }
        link.close()
        found["events"] = last["events"]
    finally:
        found["longest_pause_s"] = pauses.stop()
        vehicle.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.seconds)
    print(json.dumps(found, indent=1))
    if options.out:
        made = {"command": command_line(), "commit": source_commit(), "device": device_info(), "versions": versions()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**found, "load": os.getloadavg(), **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
