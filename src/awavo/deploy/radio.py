"""A UDP socket that hears one vehicle alone: datagrams of another sender or another system never reach MAVSDK.

MAVSDK's own UDP connection takes whatever arrives on its port and adopts the first heartbeat. MAVLink is not signed
here: whoever can send from the vehicle's own address and port is still believed.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator

from awavo.errors import InputError

__all__ = ["Radio", "frame_systems", "read_address", "read_url"]

Address = tuple[str, int]
# Length of a frame without its payload, and where its system stands: MAVLink 1 and 2; a signature adds 13 bytes.
FRAMES = {0xFE: (8, 3), 0xFD: (12, 5)}
SIGNATURE = 13


def read_address(text: str, what: str) -> Address:
    """Read HOST:PORT; a name is looked up once, here."""
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise InputError(f"{what} '{text}' is not HOST:PORT with a port from 1 to 65535.")
    try:
        return socket.gethostbyname(host), int(port)
    except (OSError, ValueError) as error:  # a name that is none (empty parts, a zero byte) is a ValueError
        raise InputError(f"{what} '{text}': the host '{host}' is not known ({error}).") from error


def read_url(url: str) -> tuple[str, Address] | None:
    """Kind (udpin or udpout) and address of a UDP url; None for one of another kind, such as serial."""
    kind, address = url.partition(":")[0].lower(), url.partition("://")[2]
    return (kind, read_address(address, "url")) if kind in ("udpin", "udpout") else None


def frame_systems(data: bytes) -> Iterator[int]:
    """The system that each frame of a datagram says it comes from; -1 for bytes that are no whole frame."""
    place = 0
    while place < len(data):
        head = FRAMES.get(data[place])
        if head is None or place + head[0] > len(data):
            yield -1
            return
        signed = data[place] == 0xFD and data[place + 2] & 1
        yield data[place + head[1]]
        place += head[0] + data[place + 1] + (SIGNATURE if signed else 0)
        if place > len(data):
            yield -1


class Radio:
    """Hears `peer` alone (or, on `udpin`, the first sender with the system's number) and hands on what it says."""

    def __init__(self, kind: str, address: Address, peer: Address | None, system: int, hear: Callable[[bytes], None]):
        self.peer = peer or (address if kind == "udpout" else None)
        self.refused = 0
        self._system, self._hear = system, hear
        self._stop = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # An answer to `udpout` comes over the interface that leads to the peer: loopback for loopback.
            self._socket.bind(address if kind == "udpin" else ("127.0.0.1" if address[0].startswith("127.") else "", 0))
        except OSError as error:
            self._socket.close()
            raise InputError(f"cannot listen on {address[0]}:{address[1]} ({error.strerror}).") from error
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Send to the vehicle, once it is known."""
        if self.peer is not None:
            with contextlib.suppress(
                OSError
            ):  # the vehicle may be away, the socket closed: nothing to do about it here
                self._socket.sendto(data, self.peer)

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._thread.join(2.0)
        self._socket.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                data, sender = self._socket.recvfrom(65535)
            except OSError:  # a time-out, or an answer that the peer is away
                continue
            if self._is_ours(data, sender):
                self._hear(data)
            else:
                self.refused += 1

    def _is_ours(self, data: bytes, sender: Address) -> bool:
        systems = set(frame_systems(data))
        if systems != {self._system} or self.peer not in (None, sender):
            return False
        self.peer = sender
        return True
