"""`awavo fly`: the planner flies a vehicle over MAVLink and records why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from awavo.cli.common import Device, Json, print_json

__all__ = ["Fly"]


@dataclass
class Fly:
    """Options of `awavo fly`."""

    target: Annotated[
        Positional[str],
        arg(metavar="FT1|REFERENCE", help="FT0 to FT3, lissajous, circle, snap, or a file: waypoints or a path as JSON "
            "or CSV, or a record whose path is flown again"),
    ]  # fmt: skip
    link: Annotated[str, arg(help="url of the vehicle, as MAVSDK writes it")] = "udpin://127.0.0.1:14540"
    record: Annotated[Path | None, arg(help="file for the decision record, FLIGHT.mcap (extra 'log')")] = None
    seconds: Annotated[float, arg(help="length of the flight")] = 20.0
    seed: Annotated[int, arg(help="seed of the planner's draws, and of a task's obstacles")] = 0
    speed: Annotated[float, arg(help="speed along waypoints, m/s")] = 1.5
    here: Annotated[bool, arg(help="move the reference so that it starts where the vehicle is")] = False
    mass: Annotated[float, arg(help="the vehicle's mass, kg")] = 1.2
    thrust_max: Annotated[float, arg(help="largest thrust of one of four rotors, N")] = 12.4
    system_id: Annotated[int, arg(help="number of the vehicle's system")] = 1
    peer: Annotated[str | None, arg(help="HOST:PORT that alone is heard")] = None
    json: Json = False

    def run(self) -> int:
        """Fly, then hold; exit code 1 where the flight ended before its time."""
        Device(device="cpu").apply()
        from awavo.deploy.mavlink import LinkConfig
        from awavo.runs.fly import fly_over_link
        from awavo.training.compilation import enable_cache

        enable_cache()
        vehicle = LinkConfig(
            url=self.link, system_id=self.system_id, peer=self.peer, mass=self.mass, thrust_max=self.thrust_max
        )
        found = fly_over_link(
            self.target, vehicle, seconds=self.seconds, record=self.record, seed=self.seed, speed=self.speed,
            here=self.here, on_progress=None if self.json else print,
        )  # fmt: skip
        if self.json:
            print_json(found._asdict())
        else:
            print(f"{found.seconds:.1f} s flown, {found.decisions} decisions ({found.decided_hz:.0f} Hz), setpoints at "
                  f"{found.sent_hz:.1f} Hz, {found.held_share:.1%} held, {found.tracking_rms_m:.3f} m (rms) from the "
                  "reference")  # fmt: skip
            if found.ended is not None:
                print(f"ended before its time: {found.ended}")
            if found.record is not None:
                print(f"record: {found.record} (awavo explain {found.record})")
        return 0 if found.ended is None else 1
