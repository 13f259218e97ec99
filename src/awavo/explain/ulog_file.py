"""Reading PX4's ULog format: the samples of a few topics, in memory that the file's size bounds.

A log is a header and messages of a size, a kind and a body. Six kinds matter: flags (B), which say where data were
appended after a crash, formats (F), subscriptions of a topic under a number (A), samples (D), parameters (P) and
information (I). A format is read only for a topic that is asked for; a sample's body is copied as it is. What follows
damage is not read, and a note says so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from awavo.errors import InputError

__all__ = ["MAX_BYTES", "ULogFile", "read_ulog"]

MAX_BYTES = 2**29
"""Bytes of a log."""
MAGIC = b"ULog\x01\x12\x35"
# Kinds of messages: flags, formats, information, parameters and their defaults, subscriptions, samples, text, sync,
# dropouts.
KINDS = frozenset(b"BFIMPQARDLCSO")
TYPES = {
    "int8_t": "<i1", "uint8_t": "<u1", "int16_t": "<i2", "uint16_t": "<u2", "int32_t": "<i4", "uint32_t": "<u4",
    "int64_t": "<i8", "uint64_t": "<u8", "float": "<f4", "double": "<f8", "bool": "<u1", "char": "S1",
}  # fmt: skip
FIELD = re.compile(r"(\w+)(?:\[(\d{1,5})\])? (\w+)")


class ULogFile(NamedTuple):
    """The samples of each topic (its first instance) as a record array, and whether the file is damaged at its end.

    `numbers` holds the first value of every numeric parameter and piece of information by name.
    """

    samples: dict[str, np.ndarray]
    damaged: bool
    numbers: dict[str, float]


def read_ulog(path: Path, topics: Collection[str]) -> ULogFile:
    """Read the topics that the file has; refuse what is no ULog."""
    if not path.is_file():
        raise InputError(f"'{path}': there is no such file.")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"'{path}' has {path.stat().st_size:,} bytes, at most {MAX_BYTES:,} are read: cut it.")
    content = path.read_bytes()
    if content[:7] != MAGIC:
        raise InputError(f"'{path}' cannot be read as a ULog: it does not begin like one.")
    formats: dict[str, np.dtype] = {}
    numbers: dict[int, str] = {}
    # Side by side: an object for each sample would take many times what small ones take in the file.
    bodies: dict[str, bytearray] = {}
    values: dict[str, float] = {}
    place, damaged, appended = 16, False, _appended(content, path)
    while place < len(content):
        body = place + 3
        if appended and body + _size(content, place) > appended[0]:
            place = appended.pop(0)  # a message that the crash cut off ends where data were appended
            continue
        size, kind = struct.unpack_from("<HB", content, place) if body <= len(content) else (0, 0)
        place = body + size
        if kind not in KINDS or place > len(content):
            damaged = True
            break
        if kind == ord("D") and size >= 2:
            name = numbers.get(struct.unpack_from("<H", content, body)[0])
            length = formats[name].itemsize if name in formats else 0
            if name is not None and 0 < length <= size - 2:  # those of a wrong size are left out
                bodies[name] += content[body + 2 : body + 2 + length]
        elif kind == ord("F"):
            name, _, fields = content[body:place].decode(errors="replace").partition(":")
            if name in topics and not bodies.get(name):
                formats[name] = _record_type(fields)
        elif kind == ord("A") and size > 3 and content[body] == 0:  # the first instance of a topic
            name = content[body + 3 : place].decode(errors="replace")
            if name in topics and name not in bodies:
                numbers[struct.unpack_from("<H", content, body + 1)[0]] = name
                bodies[name] = bytearray()
        elif kind in b"PI" and size > 1:
            _keep_number(content[body:place], values)
    samples = {
        name: np.frombuffer(found, formats[name]) if found else np.zeros(0, formats[name])
        for name, found in bodies.items() if name in formats
    }  # fmt: skip
    return ULogFile(samples, damaged, values)


def _size(content: bytes, place: int) -> int:
    return struct.unpack_from("<H", content, place)[0] if place + 2 <= len(content) else 0


def _appended(content: bytes, path: Path) -> list[int]:
    """Where data were appended, from the flags; refuse flags of a kind that readers must know and we do not."""
    if len(content) < 59 or content[18] != ord("B") or _size(content, 16) < 40:
        return []
    incompatible = content[27:35]
    if incompatible[0] & ~1 or any(incompatible[1:]):
        raise InputError(f"'{path}' is a ULog of a newer kind (flags {incompatible.hex()}), which is not read here.")
    places = struct.unpack_from("<3Q", content, 35)
    return [x for x in sorted(places) if 16 < x < len(content)] if incompatible[0] & 1 else []


def _keep_number(body: bytes, values: dict[str, float]) -> None:
    """Keep `float NAME` or `int32_t NAME` and its value; what is no number is left out."""
    length = body[0]
    kind, _, name = body[1 : 1 + length].decode(errors="replace").partition(" ")
    dtype = np.dtype(TYPES[kind]) if TYPES.get(kind, "S1") != "S1" else None
    rest = body[1 + length :]
    if dtype is not None and len(rest) == dtype.itemsize:
        values.setdefault(name, float(np.frombuffer(rest, dtype)[0]))


def _record_type(fields: str) -> np.dtype:
    """Type of a record of a format such as `uint64_t timestamp;float[3] xyz;`; without fields where it is none."""
    columns, none = [], np.dtype([])
    for field in filter(None, fields.split(";")):
        match = FIELD.fullmatch(field)
        # Types of the user's own do not occur in the topics that are read here.
        if match is None or match[1] not in TYPES:
            return none
        columns.append((match[3], TYPES[match[1]], (int(match[2]),) if match[2] else ()))
    while columns and columns[-1][0].startswith("_padding"):  # left out of samples
        columns.pop()
    try:
        kind = np.dtype(columns)
    except ValueError:  # a name that is there twice
        return none
    # The size of a message has 16 bits: a larger format has no samples.
    return kind if kind.itemsize < 2**16 else none
