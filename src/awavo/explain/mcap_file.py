"""Messages of an MCAP file, up to its end or to the first damage, in memory that the file's size bounds."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from awavo.errors import InputError, MissingExtraError

__all__ = ["messages", "open_mcap", "require_mcap"]

# Stated limits: bytes of what a file unpacks to, also as a multiple of its size.
MAX_UNPACKED, MAX_RATIO = 2**30, 64
BLOCK, MAX_WINDOW = 2**20, 2**27
SHOWN_TOPICS = 4


def open_mcap() -> ModuleType:
    """Return the library, or say which extra brings it."""
    try:
        import mcap.exceptions
        import mcap.stream_reader
        import mcap.writer
    except ImportError as error:
        raise MissingExtraError("decision records need the extra 'log': pip install 'awavo[log]'.") from error
    return mcap


def require_mcap() -> None:
    """Refuse early where the extra is missing."""
    open_mcap()


def messages(path: Path, missing: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield topic and content of every message up to the end or to the first damage, which is then noted."""
    mcap = open_mcap()
    from mcap.records import Channel, Chunk, DataEnd, Header, Message

    topics: dict[int, str] = {}
    others: set[str] = set()
    foreign: dict[str, None] = {}  # in order; a finished file names its channels twice
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
                if isinstance(part, Header) and part.profile == "ros2":
                    others.add("ROS 2")
                elif isinstance(part, Channel) and part.message_encoding != "json":
                    others |= {"ROS 2"} if part.message_encoding == "cdr" else {part.message_encoding or "unknown"}
                    foreign[part.topic] = None
                elif isinstance(part, Channel):
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
    if others and not topics:
        shown = ", ".join([*list(foreign)[:SHOWN_TOPICS], *(["..."] if len(foreign) > SHOWN_TOPICS else [])])
        raise InputError(
            f"'{path}' is a recording of {' and '.join(sorted(others))} messages ({shown}), which hold no decisions of "
            "a planner: give the record of `awavo fly --record`, or the PX4 log (.ulg) of the same flight."
        )
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
